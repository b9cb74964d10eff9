//! Targets whose directories disappear.

use std::fs;

use super::{
    at_once,
    common::{forebay, mounts::soon, site::Site, words},
};

fn state(site: &Site, target: usize) -> String {
    site.status().0["targets"][target]["state"].as_str().unwrap_or_default().to_owned()
}

/// an OST's directory is deleted while it is served | it stops and says so; down reports it; up serves the rest
#[test]
fn a_target_whose_directory_is_deleted_stops_and_the_others_go_on() {
    let site = Site::new("deleted");
    site.comes_up();
    fs::remove_dir_all(site.path("OST0001")).expect("deleted");
    assert!(soon(|| state(&site, 2) == "stopped"), "{}", site.status().1);
    assert!(
        site.log().contains("OST0001 stopped") && site.log().contains("was deleted while it was served"),
        "{}",
        site.log()
    );
    let (status, said, code) = site.status();
    assert!(code == Some(1) && said.contains("OST0001 is lost: there is no"), "{said}");
    assert!(!said.contains("forebay format") && !said.contains("starts it again"), "{said}");
    assert_eq!(
        (&status["targets"][0]["state"], &status["targets"][1]["state"]),
        (&"serving".into(), &"serving".into())
    );

    let down = at_once(forebay().args(["down", site.scratch.path()]));
    assert!(down.status.code() == Some(1) && words(&down).contains("OST0001 is lost"), "{}", words(&down));
    let up = at_once(forebay().args(["up", site.scratch.path(), "--no-mount"]));
    assert!(up.status.code() == Some(1) && words(&up).contains("OST0001 is lost"), "{}", words(&up));
    assert!(String::from_utf8_lossy(&up.stdout).contains("MDT0000 and 1 of 2 OSTs"), "{up:?}");
    assert!(soon(|| state(&site, 0) == "serving" && state(&site, 1) == "serving"), "{}", site.status().1);
    assert_eq!(state(&site, 2), "lost");
}

/// an OST's directory is missing at the start, and comes back | the others are served meanwhile, then all
#[test]
fn a_target_that_comes_back_is_served_by_the_next_up() {
    let site = Site::new("comes-back");
    fs::rename(site.path("OST0000"), site.path("away")).expect("moved");
    let up = at_once(forebay().args(["up", site.scratch.path(), "--no-mount"]));
    let said = words(&up);
    assert!(
        up.status.code() == Some(1) && said.contains("OST0000 is lost") && !said.contains("forebay format"),
        "{said}"
    );
    assert!(soon(|| state(&site, 0) == "serving" && state(&site, 2) == "serving"), "{}", site.status().1);
    let by_hand = [
        "serve",
        "--map",
        &format!("{}/cluster.toml", site.scratch.path()),
        &format!("{}/OST0000", site.scratch.path()),
    ];
    let by_hand = at_once(forebay().args(by_hand));
    assert!(
        words(&by_hand).contains("OST0000 is lost") && !words(&by_hand).contains("forebay format"),
        "{}",
        words(&by_hand)
    );
    fs::rename(site.path("away"), site.path("OST0000")).expect("moved back");
    let up = at_once(forebay().args(["up", site.scratch.path(), "--no-mount"]));
    assert!(up.status.success() && words(&up).contains("OST0000 is back"), "{}", words(&up));
    assert!(soon(|| (0..3).all(|target| state(&site, target) == "serving")), "{}", site.status().1);
    site.down();
}

#[test]
fn without_its_metadata_target_nothing_is_started() {
    let site = Site::new("headless");
    fs::rename(site.path("MDT0000"), site.path("away")).expect("moved");
    site.refuses("MDT0000 is lost");
    fs::create_dir(site.path("MDT0000")).expect("an empty mount point");
    site.refuses("holds no target");
    fs::remove_dir(site.path("MDT0000")).expect("removed");
    fs::rename(site.path("away"), site.path("MDT0000")).expect("moved back");
    site.is_well();
}

/// everything is deleted under the servers | their process ends
#[test]
fn servers_of_which_everything_was_deleted_end() {
    let site = Site::new("all-deleted");
    site.comes_up();
    let noted = fs::read_to_string(site.path("run/servers.pid")).expect("they run");
    let pid = noted.split(' ').next().expect("a pid").to_owned();
    for name in ["MDT0000", "OST0000", "OST0001"] {
        fs::remove_dir_all(site.path(name)).expect("deleted");
    }
    let has_ended = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z') || rest.is_empty())
    };
    assert!((0..5).any(|_| soon(has_ended)), "{}", site.log());
    assert!(site.log().contains("nothing is left to serve"), "{}", site.log());
}
