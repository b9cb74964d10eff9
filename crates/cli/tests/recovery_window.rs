//! How long a restarted server waits for a client that crashed, as other clients experience it and as `status` shows
//! it. Without a mount, so that it needs no root.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use common::{
    Scratch, forebay, json, words,
    writer::{Busy, write_synced},
};
use forebay_client::{Client, MountOptions};
use forebay_env::{Address, real};
use serde_json::Value;

/// Longer than the default, by more than the delay of a busy machine.
const WINDOW: Duration = Duration::from_secs(10);

/// A cluster with a process per target. It is stopped at the end of the test, even if the test fails.
struct Site(Scratch);

impl Site {
    fn up(&self, flags: &[&str]) -> Output {
        let sizes = ["--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--no-mount", "--separate"];
        forebay().args(["up", self.0.path()]).args(sizes).args(flags).output().expect("it runs")
    }

    fn comes_up(&self, flags: &[&str]) {
        let output = self.up(flags);
        assert!(output.status.success(), "{}", words(&output));
    }

    fn down(&self) {
        assert!(forebay().args(["down", self.0.path()]).status().expect("it runs").success());
    }

    fn mgs(&self) -> Vec<Address> {
        vec![Address::Unix(format!("{}/run/MDT0000.sock", self.0.path()))]
    }

    fn targets(&self) -> Vec<Value> {
        let status = json(forebay().args(["status", self.0.path(), "--json"]));
        status["targets"].as_array().expect("targets").clone()
    }

    fn kill(&self, target: &str) {
        let noted = fs::read_to_string(format!("{}/run/{target}.pid", self.0.path())).expect("it runs");
        let pid = noted.split(' ').next().expect("a pid");
        assert!(Command::new("kill").args(["-9", pid]).status().expect("kill runs").success());
        while std::path::Path::new(&format!("/proc/{pid}/stat")).exists() {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = forebay().args(["down", self.0.path(), "--force"]).output();
    }
}

/// A client that writes something and crashes without closing its sessions.
fn who_dies(mgs: &[Address]) {
    let options = MountOptions::new(mgs.to_vec());
    real::run(|env| async move {
        let client = Client::mount(&env, options).await.expect("mounted");
        write_synced(&client, 1 << 40).await.expect("written");
    });
}

/// write, the writer crashes |OST|
#[test]
fn a_client_that_is_missing_delays_the_others_by_the_window_given_and_status_counts_it_down() {
    let site = Site(Scratch::new("window"));
    site.comes_up(&["--recovery-window", "10s"]);
    who_dies(&site.mgs());
    let others = Busy::start(&site.mgs());
    others.reach(3);
    site.kill("OST0000");
    let begun = Instant::now();
    // With the window of the first start, also for one server that is restarted alone.
    site.comes_up(&[]);
    let mut left = Vec::new();
    let mut said = String::new();
    let mut seen = Vec::new();
    loop {
        let targets = site.targets();
        let ost = targets.iter().find(|target| target["name"] == "OST0000").expect("described").clone();
        if ost["state"] == "serving" {
            break;
        }
        let recovery = &ost["recovery"];
        assert_eq!((&ost["state"], &recovery["window_ms"]), (&"recovering".into(), &10_000.into()), "{ost}");
        // The MDT, the live client, and the crashed one.
        assert_eq!(recovery["expected"], 3, "{ost}");
        seen.push(recovery.to_string());
        if recovery["awaited"] == 1 {
            left.push(recovery["left_ms"].as_u64().expect("a time"));
            let output = forebay().args(["status", site.0.path()]).output().expect("it runs");
            said += &String::from_utf8_lossy(&output.stdout);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it waits for ever: {ost}");
        thread::sleep(Duration::from_millis(100));
    }
    let waited = begun.elapsed();
    let synced = others.synced();
    assert!((WINDOW.mul_f32(0.9)..WINDOW * 3).contains(&waited), "{waited:?}");
    assert!(said.contains("OST0000 waits for 1 of 3 clients, ") && said.contains(" s at most"), "{said}: {seen:?}");
    assert!(left.is_sorted_by(|a, b| a >= b) && left.iter().all(|ms| *ms <= 10_000), "{left:?}");
    assert!(left.len() > 1 && left.first() > left.last(), "it counts down: {left:?}");
    // The live client has not lost its session, and continues.
    others.reach(synced + 2);
    others.die();
}

#[test]
fn the_recovery_window_is_remembered_and_only_a_start_changes_the_value() {
    let site = Site(Scratch::new("window-kept"));
    site.comes_up(&[]);
    let windows = |site: &Site| -> Vec<u64> {
        site.targets().iter().map(|target| target["recovery"]["window_ms"].as_u64().expect("a time")).collect()
    };
    assert_eq!(windows(&site), [2000, 2000]);
    site.comes_up(&["--recovery-window", "2s"]);
    let refused = site.up(&["--recovery-window", "10s"]);
    assert!(refused.status.code() == Some(1), "{}", words(&refused));
    assert!(words(&refused).contains("run with 2s") && words(&refused).contains("forebay down"), "{}", words(&refused));
    site.down();
    site.comes_up(&["--recovery-window", "1s"]);
    assert_eq!(windows(&site), [2000, 1000], "of the MDT leases have to end");
    site.down();
    site.comes_up(&[]);
    assert_eq!(windows(&site), [2000, 1000]);
    site.down();
    site.comes_up(&["--recovery-window", "1500ms"]);
    let map = format!("{}/cluster.toml", site.0.path());
    let text = fs::read_to_string(&map).expect("a description");
    assert!(text.contains("recovery_window = \"1500ms\""), "{text}");
    site.down();
    fs::write(&map, text.replace("1500ms", "0s")).expect("written");
    let refused = site.up(&[]);
    assert!(words(&refused).contains("recovery_window") && words(&refused).contains("1s to 1h"), "{}", words(&refused));
}
