//! An MDT on two devices, under real processes. Copies are deleted, swapped, brought back too late and replaced while a
//! program creates and syncs files and servers are killed. The program sees no error, and nothing that it synced is
//! ever missing.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use common::{
    forebay,
    site::Site,
    words,
    writer::{self, Busy},
};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A site whose MDT is mirrored: in `MDT0000`, and in `second`.
fn mirrored(name: &str) -> Site {
    let site = Site::new(name);
    fs::remove_dir_all(site.path("MDT0000")).expect("removed");
    let map = fs::read_to_string(site.path("cluster.toml")).expect("a description");
    let cluster = map.split('"').nth(1).expect("its uuid");
    let output = forebay()
        .args(["format", "mdt", "--cluster", cluster, "--size", "128MiB", "--mirror"])
        .args([site.path("second"), site.path("MDT0000")])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", words(&output));
    site
}

fn mirror(site: &Site) -> (Value, String) {
    let (status, said, _) = site.status();
    let targets = status["targets"].as_array().expect("targets").clone();
    let mdt = targets.into_iter().find(|target| target["name"] == "MDT0000").expect("it is listed");
    (mdt["mirror"].clone(), said)
}

/// Waits until `status` says that both copies are complete, or that they are not.
fn until_degraded(site: &Site, degraded: bool) -> String {
    let began = Instant::now();
    loop {
        let (mirror, said) = mirror(site);
        if mirror["degraded"] == degraded {
            return said;
        }
        assert!(began.elapsed() < TIMEOUT, "degraded is never {degraded}: {mirror}\n{said}\n{}", site.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn operate(arguments: &[&str], paths: &[PathBuf]) -> (bool, String) {
    let output = forebay().arg("mirror").args(arguments).args(paths).output().expect("it runs");
    (output.status.success(), words(&output))
}

fn replace(site: &Site, dir: &str, place: &str) {
    let (done, said) = operate(&["replace"], &[site.path(dir), site.path(place)]);
    assert!(done, "{said}");
}

fn is_clean(site: &Site) {
    let (code, said) = site.fsck("", &["--verify-data"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_deleted_copy_is_left_behind_and_replaced_under_load_and_then_the_other_one_may_go() {
    let site = mirrored("mirror-deleted");
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    busy.reach(10);
    fs::remove_dir_all(site.path("second")).expect("deleted");
    let said = until_degraded(&site, true);
    assert!(said.contains("MDT0000 is degraded") && said.contains("forebay mirror replace"), "{said}");
    assert!(site.log().contains("goes on with one copy"), "{}", site.log());
    busy.reach(busy.synced() + 10);
    site.kill();
    site.comes_up();
    busy.reach(busy.synced() + 10);
    replace(&site, "MDT0000", "third");
    // During the resync, or soon after it.
    std::thread::sleep(Duration::from_millis(1200));
    site.kill();
    site.comes_up();
    until_degraded(&site, false);
    busy.reach(busy.synced() + 10);
    site.kill();
    // The source of the resync is lost while the target is down. The other copy cannot know whether it is current.
    for part in ["data", "journal"] {
        fs::remove_file(site.path("MDT0000").join(part)).expect("deleted");
    }
    site.refuses("forebay mirror alone");
    let (code, said) = site.fsck("MDT0000", &[]);
    assert!(code == Some(4) && said.contains("cannot know whether it was left behind"), "{said}");
    let (done, said) = operate(&["alone"], &[site.path("MDT0000")]);
    assert!(done, "{said}");
    site.comes_up();
    busy.reach(busy.synced() + 10);
    let synced = busy.die();
    writer::all_there(&site.mgs(), synced);
    replace(&site, "third", "MDT0000");
    until_degraded(&site, false);
    site.down();
    is_clean(&site);
}

#[test]
fn a_copy_that_was_away_never_comes_back_as_current_wherever_it_lies() {
    let site = mirrored("mirror-stale");
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    busy.reach(10);
    // The second copy is away: its directory is elsewhere, and it misses the writes meanwhile.
    fs::rename(site.path("second"), site.path("away")).expect("moved");
    until_degraded(&site, true);
    busy.reach(busy.synced() + 10);
    site.kill();
    let synced = busy.die();
    // It comes back, and the first copy is away.
    fs::rename(site.path("away"), site.path("second")).expect("moved");
    for part in ["data", "journal"] {
        fs::rename(site.path("MDT0000").join(part), site.path(part)).expect("moved");
    }
    site.refuses("bring");
    // Both copies are there, in each other's directories.
    for part in ["data", "journal"] {
        fs::rename(site.path("second").join(part), site.path("MDT0000").join(part)).expect("moved");
        fs::rename(site.path(part), site.path("second").join(part)).expect("moved");
    }
    site.comes_up();
    writer::all_there(&site.mgs(), synced);
    until_degraded(&site, false);
    site.down();
    is_clean(&site);
    // Each copy has continued alone.
    for (kept, hidden) in [("MDT0000", "second"), ("second", "MDT0000")] {
        for part in ["data", "journal"] {
            fs::rename(site.path(hidden).join(part), site.path(part)).expect("moved");
        }
        let (done, said) = operate(&["alone"], &[site.path(kept)]);
        assert!(done, "{said}");
        for part in ["data", "journal"] {
            fs::rename(site.path(part), site.path(hidden).join(part)).expect("moved");
        }
    }
    site.refuses("each without the other");
    let (code, said) = site.fsck("MDT0000", &[]);
    assert!(code == Some(4) && said.contains("each without the other"), "{said}");
}

#[test]
fn damage_to_one_copy_is_found_told_and_mended() {
    let site = mirrored("mirror-rot");
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    busy.reach(30);
    let synced = busy.die();
    site.down();
    is_clean(&site);
    // Flip a bit in every written sector of one copy of each part, except in its labels.
    for (dir, part) in [("MDT0000", "data"), ("second", "journal")] {
        let path = site.path(dir).join(part);
        let mut bytes = fs::read(&path).expect("there");
        let end = bytes.len() - 8192;
        for sector in bytes[..end].chunks_mut(4096).filter(|sector| sector.iter().any(|byte| *byte != 0)) {
            sector[1000] ^= 4;
        }
        fs::write(&path, bytes).expect("damaged");
    }
    let (code, said) = site.fsck("MDT0000", &["--verify-data"]);
    assert!(code == Some(4) && said.contains("in one copy only"), "{said}");
    assert!(!said.contains("error:"), "{said}");
    site.comes_up();
    writer::all_there(&site.mgs(), synced);
    let (mirror, said) = mirror(&site);
    let mended = |part: usize| mirror["parts"][part]["mended"].as_u64() > Some(0);
    assert!(mirror["degraded"] == false && mended(0) && mended(1), "{mirror}: {said}");
    site.down();
}
