//! A cluster is started, inspected, damaged and stopped as by a user; without a mount, so that it needs no root.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::process::Output;

use common::{Scratch, forebay, json};
use serde_json::Value;

/// A cluster that is stopped at the end of the test, even if the test fails.
struct Up<'a>(&'a Scratch);

impl<'a> Up<'a> {
    fn new(scratch: &'a Scratch, more: &[&str]) -> Self {
        let up = Self(scratch);
        let output = up.again(more);
        assert!(output.status.success(), "{}", words(&output));
        up
    }

    fn again(&self, more: &[&str]) -> Output {
        let sizes = ["--osts", "2", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--no-mount"];
        forebay().args(["up", self.0.path()]).args(sizes).args(more).output().expect("it runs")
    }

    fn status(&self) -> Value {
        json(forebay().args(["status", self.0.path(), "--json"]))
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        let _ = forebay().args(["down", self.0.path(), "--force"]).output();
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn pids(status: &Value) -> Vec<u64> {
    let targets = status["targets"].as_array().expect("targets");
    targets.iter().map(|target| target["pid"].as_u64().expect("a pid")).collect()
}

#[test]
fn up_serves_all_targets_and_leaves_them_alone_the_second_time() {
    let scratch = Scratch::new("up");
    let up = Up::new(&scratch, &[]);
    let status = up.status();
    let names: Vec<_> = status["targets"].as_array().expect("targets").iter().map(|t| t["name"].as_str()).collect();
    assert_eq!(names, [Some("MDT0000"), Some("OST0000"), Some("OST0001")]);
    for target in status["targets"].as_array().expect("targets") {
        assert_eq!(target["state"], "serving", "{target}");
        assert!(target["last_committed"].is_u64() && target["dir"].as_str().is_some(), "{target}");
        let cwd = std::fs::read_link(format!("/proc/{}/cwd", target["pid"])).expect("it runs");
        assert_eq!(cwd, std::path::Path::new("/"), "it would hold a file system of its caller's in use");
        let called = std::fs::read_to_string(format!("/proc/{}/comm", target["pid"])).expect("it runs");
        assert_eq!(called, "forebay\n", "what pkill and the kernel's log call it");
    }
    assert!(status["clients"].is_array());
    assert!(up.again(&[]).status.success());
    assert_eq!(pids(&up.status()), pids(&status));
    let other = up.again(&["--separate"]);
    assert!(other.status.code() == Some(2) && words(&other).contains("--separate"), "{}", words(&other));
}

#[test]
fn a_killed_server_is_seen_by_status_and_brought_back_by_up() {
    let scratch = Scratch::new("killed");
    let up = Up::new(&scratch, &["--separate"]);
    let pid = pids(&up.status())[1].to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().expect("kill runs").success());
    let output = forebay().args(["status", scratch.path(), "--json"]).output().expect("it runs");
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON, whoever is down");
    assert_eq!((output.status.code(), &status["targets"][1]["state"]), (Some(1), &Value::from("down")));
    assert!(words(&output).contains("OST0000") && words(&output).contains("forebay up"), "{}", words(&output));
    assert!(up.again(&[]).status.success());
    let after = pids(&up.status());
    assert_ne!(after[1].to_string(), pid);
}

/// servers |power cut|
#[test]
fn servers_whose_disks_forget_say_so_and_come_back_after_a_power_cut() {
    let scratch = Scratch::new("forgetful");
    let up = Up::new(&scratch, &["--forgetful-disks"]);
    let pid = pids(&up.status())[0].to_string();
    let log = std::fs::read_to_string(format!("{}/log/servers.log", scratch.path())).expect("a log");
    assert!(log.contains("--forgetful-disks: for tests only"), "{log}");
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().expect("kill runs").success());
    assert!(up.again(&[]).status.success(), "with ordinary disks this time");
    // Recovery may have to wait: for a previous client, or for the MDT's previous session.
    let serving = || {
        let status = up.status();
        let all = status["targets"].as_array().expect("targets").iter().all(|target| target["state"] == "serving");
        if !all {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        all
    };
    assert!((0..300).any(|_| serving()), "{}", up.status());
    let help = forebay().args(["serve", "--help"]).output().expect("it runs");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("forgetful"), "it is for tests");
}

#[test]
fn down_stops_cleanly_and_what_was_up_comes_up_again() {
    let scratch = Scratch::new("down");
    let up = Up::new(&scratch, &[]);
    assert!(forebay().args(["down", scratch.path()]).status().expect("it runs").success());
    let down = forebay().args(["status", scratch.path(), "--json"]).output().expect("it runs");
    let status: Value = serde_json::from_slice(&down.stdout).expect("JSON, also of one that is down");
    assert!(down.status.code() == Some(1) && status["clients"].is_null(), "nobody could tell of clients: {status}");
    let why = status["targets"][0]["error"].as_str().unwrap_or_default();
    assert!(why.contains("does not run") && why.contains("log/servers.log"), "{why}");
    assert!(up.again(&[]).status.success());
    assert_eq!(up.status()["targets"][0]["store"]["clean_stop"], true);
    assert!(forebay().args(["sync", scratch.path()]).status().expect("it runs").success());
}

#[test]
fn an_address_for_metrics_that_cannot_be_had_is_not_remembered() {
    let scratch = Scratch::new("address");
    let up = Up::new(&scratch, &[]);
    assert!(forebay().args(["down", scratch.path()]).status().expect("it runs").success());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let refused = up.again(&["--metrics", &address]);
    assert!(!refused.status.success() && words(&refused).contains(&address), "{}", words(&refused));
    assert!(up.again(&[]).status.success());
}

#[test]
fn a_target_that_does_not_start_is_told_of_with_the_reason() {
    let scratch = Scratch::new("reason");
    let up = Up::new(&scratch, &["--separate"]);
    assert!(forebay().args(["down", scratch.path()]).status().expect("it runs").success());
    let journal = format!("{}/OST0001/journal", scratch.path());
    std::fs::rename(&journal, format!("{journal}.away")).expect("moved");
    assert!(!up.again(&[]).status.success());
    let output = forebay().args(["status", scratch.path()]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("OST0001: its process does not run, and said at its end:"), "{said}");
    assert!(said.contains("bring it back") && said.contains("log/OST0001.log"), "{said}");
    assert!(forebay().args(["down", scratch.path()]).status().expect("it runs").success());
    let output = forebay().args(["fsck", scratch.path()]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(4) && said.contains("not all could be compared"), "{said}");
    std::fs::rename(format!("{journal}.away"), &journal).expect("moved back");
    assert!(up.again(&[]).status.success());
}

#[test]
fn a_directory_that_is_served_is_not_served_twice() {
    let scratch = Scratch::new("twice");
    let _up = Up::new(&scratch, &[]);
    let dir = format!("{}/OST0000", scratch.path());
    let output =
        forebay().args(["serve", &dir, "--listen", "127.0.0.1:0", "--insecure-loopback"]).output().expect("it runs");
    assert!(output.status.code() == Some(1) && words(&output).contains("locked"), "{}", words(&output));
}

#[test]
fn impossible_arguments_of_up_format_and_serve_are_refused_with_advice() {
    let scratch = Scratch::new("refused");
    let empty = format!("{}/empty", scratch.path());
    std::fs::create_dir(&empty).expect("made");
    let (new, file) = (format!("{}/new/c", scratch.path()), format!("{}/file", scratch.path()));
    std::fs::write(&file, "").expect("written");
    for (flags, code, said) in [
        (&["up", &new, "--ost-size", "1MiB"][..], 2, "64 MiB or more"),
        (&["up", &new, "--ost-size", "1024TiB"], 1, "smaller --ost-size"),
        (&["up", &new, "--listen", "127.0.0.1:65534"], 2, "65534"),
        (&["up", &new, "--mount", &file], 2, "not a directory"),
        (&["up", &empty, "--ost-size", "1MiB"], 2, "64 MiB or more"),
        (&["up", &empty, "--mdts", "2"], 2, "one MDT"),
        (&["up", &empty, "--listen", "0.0.0.0:7700", "--insecure-loopback"], 2, "other machines"),
        (&["up", &empty, "--listen", "0.0.0.0:7700"], 2, "the one that they reach"),
        (&["up", &empty, "--osts", "0"], 2, "--osts 0"),
        (&["serve", &empty, "--listen", "127.0.0.1:0"], 2, "TCP needs the cluster's keys"),
        (&["serve", &empty, "--listen", "0.0.0.0:0", "--insecure-loopback"], 2, "other machines"),
        (&["serve", &empty, "--listen", "127.0.0.1:0", "--insecure-loopback"], 1, "format"),
        (&["format", "ost", &empty], 2, "--cluster"),
        (&["format", "mdt", &empty, "--index", "1"], 2, "one MDT"),
        (&["serve", &empty, "--listen", "127.0.0.1:0", "--recovery-window", "0s"], 2, "1s to 1h"),
        (&["up", &empty, "--recovery-window", "999ms"], 2, "lose what they wrote last"),
        (&["up", &empty, "--recovery-window", "61m"], 2, "everybody waits"),
        (&["down", &empty], 1, "forebay up"),
        (&["status", "/no/such/dir"], 1, "not a directory"),
        (&["umount", &empty], 1, "is not a mount"),
        (&["umount", "/proc"], 2, "not ours"),
        (&["umount", "--lazy", "/proc"], 2, "mount of proc"),
        (&["up", &empty, "--no-mount", "--commit", "data"], 2, "--no-mount"),
        (&["mount", &empty, &empty, "-o", "frobnicate"], 2, "no such option"),
        (&["getstripe", &empty], 1, "not on a Forebay mount"),
        (&["setstripe", "-S", "1000", &empty], 2, "64 KiB"),
    ] {
        let output = forebay().args(flags).output().expect("it runs");
        assert!(output.status.code() == Some(code) && words(&output).contains(said), "{flags:?}: {}", words(&output));
    }
    assert_eq!(std::fs::read_dir(&empty).expect("still there").count(), 0, "nothing was made");
    assert_eq!(scratch.names().len(), 2, "nothing was made: {:?}", scratch.names());
}

#[test]
fn the_demo_runs_through_the_library_and_cleans_up() {
    let scratch = Scratch::new("demo");
    let (dir, tree) = (format!("{}/demo", scratch.path()), format!("{}/src", env!("CARGO_MANIFEST_DIR")));
    let flags = ["demo", &dir, "--library", "--quick", "--checkpoint-size", "8MiB", "--tree", &tree];
    let output = forebay().args(flags).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("All verified"), "{said}\n{}", words(&output));
    assert!(said.contains("OST0001: SIGKILL") && said.contains("MDT0000: SIGKILL"), "{said}");
    assert!(!std::path::Path::new(&dir).exists());
}

#[test]
fn directories_and_files_of_targets_are_private_to_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("private");
    let dir = format!("{}/c", scratch.path());
    let flags = ["up", &dir, "--osts", "1", "--ost-size", "256MiB", "--mdt-size", "256MiB", "--no-mount"];
    assert!(forebay().args(flags).output().expect("it runs").status.success());
    assert!(forebay().args(["down", &dir]).output().expect("it runs").status.success());
    for target in ["MDT0000", "OST0000"] {
        let at = std::path::Path::new(&dir).join(target);
        let mode = |path: &std::path::Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(&at), 0o700, "{target}");
        for entry in std::fs::read_dir(&at).expect("listed") {
            let path = entry.expect("an entry").path();
            assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        }
    }
}

#[test]
fn down_does_not_say_so_of_servers_that_it_cannot_stop() {
    let scratch = Scratch::new("by-hand");
    let dir = format!("{}/c", scratch.path());
    let flags = ["up", &dir, "--osts", "1", "--ost-size", "256MiB", "--mdt-size", "256MiB", "--no-mount"];
    assert!(forebay().args(flags).output().expect("it runs").status.success());
    assert!(forebay().args(["down", &dir]).output().expect("it runs").status.success());
    let (map, mdt, ost) = (format!("{dir}/cluster.toml"), format!("{dir}/MDT0000"), format!("{dir}/OST0000"));
    let mut server = forebay().args(["serve", "--map", &map, &mdt, &ost]).spawn().expect("it starts");
    let locks =
        ["MDT0000", "OST0000"].map(|target| std::fs::canonicalize(&dir).expect("there").join(target).join("lock"));
    let noted = |lock| std::fs::read_to_string(lock).is_ok_and(|pid| pid.trim() == server.id().to_string());
    assert!(common::mounts::soon(|| locks.iter().all(noted)), "it does not serve");
    let output = forebay().args(["down", &dir]).output().expect("it runs");
    server.kill().and_then(|()| server.wait()).expect("ended");
    assert!(
        output.status.code() == Some(1) && words(&output).contains("MDT0000 is still served"),
        "{}",
        words(&output)
    );
}

#[test]
fn up_refuses_sizes_and_addresses_that_differ_from_the_first_use() {
    let scratch = Scratch::new("shape");
    let up = Up::new(&scratch, &[]);
    for (flags, said) in [
        (&["--ost-size", "256MiB"][..], "128 MiB for OST0000"),
        (&["--mdt-size", "1GiB"], "128 MiB for MDT0000"),
        (&["--osts", "3"], "2 OSTs"),
        (&["--listen", "127.0.0.1:4999"], "MDT0000.sock"),
    ] {
        let output = forebay().args(["up", scratch.path(), "--no-mount"]).args(flags).output().expect("it runs");
        assert!(output.status.code() == Some(2) && words(&output).contains(said), "{flags:?}: {}", words(&output));
    }
    assert!(up.again(&[]).status.success());
    let dir = format!("{}/new", scratch.path());
    let output = forebay().args(["up", &dir, "--ost-size", "1MiB"]).output().expect("it runs");
    assert!(output.status.code() == Some(2) && words(&output).contains("64 MiB or more"), "{}", words(&output));
}

#[test]
fn sync_of_a_stopped_cluster_says_at_once_that_it_waits() {
    use std::io::BufRead;
    let scratch = Scratch::new("waits");
    drop(Up::new(&scratch, &[]));
    let mut child =
        forebay().args(["sync", scratch.path()]).stderr(std::process::Stdio::piped()).spawn().expect("runs");
    let mut line = String::new();
    let began = std::time::Instant::now();
    std::io::BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
    assert!(line.contains("MDT0000 does not answer") && line.contains("waiting up to 30 s"), "{line}");
    assert!(began.elapsed().as_secs() < 25);
    child.kill().and_then(|()| child.wait()).expect("ended");
}

/// `up` with umask 0 | sockets and files are for their owner alone: servers trust every client that connects
#[test]
fn sockets_and_files_of_a_cluster_are_private_with_any_umask() {
    let scratch = Scratch::new("mask");
    let dir = scratch.path().to_owned() + "/c";
    let mut up = forebay();
    up.args(["up", &dir, "--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--no-mount"]);
    // SAFETY: umask(2) may be called between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut up, || {
            libc::umask(0);
            Ok(())
        })
    };
    let output = up.output().expect("it runs");
    assert!(output.status.success(), "{}", common::words(&output));
    let mut found = Vec::new();
    let mut dirs = vec![std::path::PathBuf::from(&dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("it is listed").flatten() {
            let meta = entry.metadata().expect("it is there");
            let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
            found.push((mode & 0o077, entry.path()));
            if meta.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    let down = forebay().args(["down", &dir]).output().expect("it runs");
    assert!(down.status.success(), "{}", common::words(&down));
    let open: Vec<_> = found.iter().filter(|(others, _)| *others != 0).collect();
    assert!(open.is_empty() && found.len() > 5, "{open:?} of {}", found.len());
}
