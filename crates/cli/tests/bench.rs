//! The benchmarks as a user runs them: real processes on a temporary directory.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::process::{Command, Stdio};

use common::{Scratch, forebay, json, words};

#[test]
fn ior_writes_checks_and_reads_with_two_processes() {
    let scratch = Scratch::new("ior");
    for layout in [&["-F"][..], &[]] {
        let flags =
            ["bench", "ior", scratch.path(), "-N", "2", "-t", "64KiB", "-b", "256KiB", "-s", "2", "-e", "-W", "-R"];
        let report = json(forebay().args(flags).args(layout).args(["-i", "2", "-z", "--json"]));
        assert_eq!(report["bench"], "ior");
        let rows = report["rows"].as_array().expect("rows");
        let phases: Vec<_> = rows.iter().map(|row| row["phase"].as_str().expect("a phase")).collect();
        assert_eq!(phases, ["write", "check", "read"]);
        for row in rows {
            assert_eq!((row["unit"].as_str(), row["n"].as_u64()), (Some("MiB/s"), Some(2)));
            assert!(row["min"].as_f64() <= row["value"].as_f64() && row["value"].as_f64() <= row["max"].as_f64());
            assert_eq!(row["repetitions"][0]["MiB"], 1.0);
        }
    }
    assert_eq!(scratch.names(), Vec::<String>::new(), "the files are removed");
}

#[test]
fn ior_finds_a_byte_that_changed_between_two_runs() {
    let scratch = Scratch::new("ior-damage");
    let ior = || {
        let mut command = forebay();
        command.args(["bench", "ior", scratch.path(), "-t", "47008", "-b", "47008", "-s", "4"]);
        command
    };
    assert!(ior().args(["-w", "-k", "--stamp"]).status().expect("it runs").success());
    assert!(ior().args(["-r", "-k", "-R"]).status().expect("it runs").success());
    let path = format!("{}/ior.data", scratch.path());
    let mut bytes = std::fs::read(&path).expect("the file was kept");
    bytes[100_000] ^= 1;
    std::fs::write(&path, bytes).expect("it can be written");
    let output = ior().args(["-r", "-k", "-R"]).output().expect("it runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("byte 100000"), "{words}");
}

#[test]
fn a_stonewall_ends_the_write_and_the_read_reads_what_was_written() {
    let scratch = Scratch::new("ior-stonewall");
    let flags = ["bench", "ior", scratch.path(), "-t", "4KiB", "-b", "1GiB", "-D", "100ms", "-R", "-C", "--json"];
    let report = json(forebay().args(flags));
    let moved = |row: usize| report["rows"][row]["repetitions"][0]["MiB"].as_f64().expect("MiB");
    assert!(moved(0) > 0.0 && moved(0) < 2048.0 && moved(1) <= moved(0), "{} {}", moved(0), moved(1));
}

/// Needs root and /dev/fuse.
#[test]
fn fuse_floor_makes_looks_at_and_removes_names_in_its_own_mount() {
    if !common::mounts::can_mount() {
        return;
    }
    let report = json(forebay().args(["bench", "fuse-floor", "-N", "2", "--files", "200", "-i", "1", "--json"]));
    assert_eq!(report["bench"], "fuse-floor");
    let rows = report["rows"].as_array().expect("rows");
    assert!(rows.len() >= 3 && rows.iter().all(|row| row["value"].as_f64().is_some_and(|rate| rate > 0.0)), "{rows:?}");
}

#[test]
fn mdtest_makes_looks_at_and_removes_directories_and_files() {
    let scratch = Scratch::new("mdtest");
    for layout in [&["-u"][..], &[], &["-b", "3", "-z", "2", "-L", "-R"]] {
        let flags = ["bench", "mdtest", scratch.path(), "-N", "3", "-n", "20", "-w", "5000", "-e", "100", "-i", "2"];
        let report = json(forebay().args(flags).args(["--stride", "1", "--json"]).args(layout));
        assert_eq!((&report["bench"], &report["parameters"]["items"]), (&"mdtest".into(), &20.into()));
        let rows = report["rows"].as_array().expect("rows");
        let phases: Vec<_> = rows.iter().map(|row| row["phase"].as_str().expect("a phase")).collect();
        let items = ["directory-create", "directory-stat", "directory-remove"];
        let files = ["file-create", "file-stat", "file-read", "file-remove"];
        assert_eq!(phases, [&["tree-create"][..], &items, &files, &["tree-remove"]].concat());
        for row in &rows[1..rows.len() - 1] {
            let one = &row["repetitions"][1];
            assert_eq!((row["unit"].as_str(), row["n"].as_u64()), (Some("ops/s"), Some(2)));
            assert!(one["ops"] == 60.0 && one["slowest_process"].as_f64() <= one["fastest_process"].as_f64(), "{row}");
        }
    }
    assert_eq!(scratch.names(), Vec::<String>::new(), "everything is removed");
}

#[test]
fn mdtest_in_several_runs_finds_what_the_first_has_made() {
    let scratch = Scratch::new("mdtest-runs");
    let mdtest = |flags: &[&str]| {
        let all = ["bench", "mdtest", scratch.path(), "-F", "-n", "5", "--json"];
        forebay().args(all).args(flags).output().expect("it runs")
    };
    let early = mdtest(&["-T"]);
    assert!(!early.status.success() && String::from_utf8_lossy(&early.stderr).contains("with -C first"));
    assert!(mdtest(&["-C"]).status.success());
    assert_eq!(scratch.names(), ["mdtest.tree"]);
    let again = String::from_utf8_lossy(&mdtest(&["-C"]).stderr).into_owned();
    assert!(again.contains("is there already") && again.contains("-o"), "{again}");
    let wrong = mdtest(&["-T", "-u"]);
    let words = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(1) && words.contains("stat of task.") && words.contains("same -N"), "{words}");
    assert!(mdtest(&["-T", "-E", "-R", "--stride", "1"]).status.success());
    assert!(mdtest(&["-r"]).status.success());
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn mdtest_that_fails_says_why_and_removes_what_it_made() {
    let scratch = Scratch::new("mdtest-fails");
    // Longer than the limit that the shell sets for the size of a file: the write fails in the middle of the run.
    let line =
        format!("ulimit -f 1; exec {} bench mdtest {} -n 3 -w 1M", env!("CARGO_BIN_EXE_forebay"), scratch.path());
    let output = Command::new("sh").args(["-c", &line]).output().expect("it runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains("process"), "{words}");
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn mdtest_that_is_interrupted_removes_what_it_made() {
    let scratch = Scratch::new("mdtest-interrupted");
    let mut child = forebay()
        .args(["bench", "mdtest", scratch.path(), "-n", "10M", "-F"])
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let tree = format!("{}/mdtest.tree/shared/file.1.10", scratch.path());
    while std::fs::metadata(&tree).is_err() {
        assert_eq!(child.try_wait().expect("it is ours"), None, "it ended before it made a file");
        std::thread::yield_now();
    }
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("it runs");
    assert!(kill.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 15));
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn metarates_tells_the_rates_of_all_and_of_the_slowest_and_fastest_process() {
    let scratch = Scratch::new("metarates");
    for layout in [&["-u"][..], &["--stride", "1"]] {
        let flags = ["bench", "metarates", scratch.path(), "-N", "4", "-n", "10", "--json"];
        let report = json(forebay().args(flags).args(layout));
        let rows = report["rows"].as_array().expect("rows");
        let phases: Vec<_> = rows.iter().map(|row| row["phase"].as_str().expect("a phase")).collect();
        assert_eq!(phases, ["create", "stat", "utime", "remove"]);
        for one in rows.iter().map(|row| &row["repetitions"][0]) {
            assert!(one["ops"] == 40.0 && one["slowest_process"].as_f64() <= one["fastest_process"].as_f64(), "{one}");
        }
    }
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn xdd_measures_a_directory_and_leaves_nothing_behind() {
    let scratch = Scratch::new("xdd");
    let flags =
        ["bench", "xdd", scratch.path(), "--size", "1MiB", "--request", "64KiB", "--access", "sequential,random"];
    let report = json(forebay().args(flags).args(["--buffered", "--sync", "--json"]));
    let rows = report["rows"].as_array().expect("rows");
    let phases: Vec<_> = rows.iter().map(|row| row["phase"].as_str().expect("a phase")).collect();
    assert_eq!(phases, ["sequential-write", "sequential-read", "random-write", "random-read"]);
    assert!(rows.iter().all(|row| row["repetitions"][0]["MiB"] == 1.0 && row["target"] == scratch.path()));
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn xdd_does_not_write_to_what_exists_unless_told() {
    let scratch = Scratch::new("xdd-precious");
    let path = format!("{}/precious", scratch.path());
    std::fs::write(&path, vec![7; 1 << 20]).expect("it can be written");
    let output = forebay().args(["bench", "xdd", &path, "--buffered"]).output().expect("it runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && words.contains("--overwrite"), "{words}");
    assert_eq!(std::fs::read(&path).expect("still there"), vec![7; 1 << 20]);
}

#[test]
fn wrong_arguments_end_with_2_and_say_what_is_wrong() {
    for (flags, words) in [
        (&["bench", "ior", "--nonsense"][..], "--nonsense"),
        (&["bench", "ior", "-t", "5 apples"], "not a size"),
        (&["bench", "ior", "-t", "3", "-b", "10"], "not a multiple"),
        (&["bench", "mdtest", "-b", "0"], "at least 1"),
        (&["bench", "metarates", "-n", "none"], "not a number"),
        (&["bench", "xdd"], "TARGETS"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let output = forebay().args(flags).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{flags:?}: {said}");
    }
}

#[test]
fn a_missing_directory_is_named() {
    let output = forebay().args(["bench", "ior", "/nowhere/at/all"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("/nowhere/at/all"), "{said}");
}

#[test]
fn cpu_costs_are_told_for_client_and_servers_and_leave_nothing_behind() {
    let scratch = Scratch::new("cpu-costs");
    let (dir, toml) = (format!("{}/cluster", scratch.path()), format!("{}/costs.toml", scratch.path()));
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    let listen = format!("127.0.0.1:{}", free.port());
    let flags = ["bench", "cpu-costs", &dir, "--files", "200", "--bytes", "64MiB", "-i", "1", "--listen", &listen];
    let report = json(forebay().args(flags).args(["--toml", &toml, "--json"]));
    let rows = report["rows"].as_array().expect("rows");
    let cost = |phase: &str, side: &str| {
        let found = rows.iter().find(|row| row["phase"] == phase && row["side"] == side);
        found.unwrap_or_else(|| panic!("no {phase} of the {side}"))["value"].as_f64().expect("a number")
    };
    for phase in
        ["create", "close", "lookup", "getattr", "open", "unlink", "mkdir", "rmdir", "write 64 KiB", "read 64 KiB"]
    {
        for side in ["client", "server"] {
            assert!(cost(phase, side) > 0.1, "{phase} of the {side}");
        }
    }
    assert!(cost("write 1024 KiB", "server") > cost("write 4 KiB", "server"));
    assert_eq!(scratch.names(), ["costs.toml"]);
    let text = std::fs::read_to_string(toml).expect("the file");
    assert!(text.contains("[message.write]") && text.contains("server_byte_ns"), "{text}");
}

#[test]
fn this_machine_is_measured_described_and_predicted() {
    if !common::mounts::can_mount() {
        return;
    }
    let scratch = Scratch::new("machine");
    let (dir, toml) = (format!("{}/d", scratch.path()), format!("{}/machine.toml", scratch.path()));
    let flags = ["bench", "machine", &dir, "--toml", &toml, "--bytes", "64MiB", "-i", "1", "--osts", "2", "-N", "2"];
    // Other tests may keep the processors busy; then the command says so and is repeated.
    let measure = || forebay().args(flags).output().expect("it runs");
    let is_busy = |output: &std::process::Output| words(output).contains("is the machine busy");
    let output = (0..10).map(|_| measure()).find(|output| !is_busy(output)).expect("it is quiet now and then");
    assert!(output.status.success(), "{}", words(&output));
    assert!(!std::path::Path::new(&dir).exists(), "it leaves nothing behind");
    let text = std::fs::read_to_string(&toml).expect("a description");
    let report = json(forebay().args(["sim", &toml, "--json"]));
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["file-per-process-write", "file-per-process-read", "shared-file-write", "shared-file-read"]);
    for row in rows {
        let mb_s = row["default"].as_f64().expect("a rate");
        assert!((20.0..50_000.0).contains(&mb_s), "{row} on\n{text}");
    }
    // With a fast device, processors of a quarter of the speed are the limit.
    let fast_device = ["--set", "tier.read_mb_s=100000", "--set", "tier.write_mb_s=100000", "--set", "tier.flush_ms=0"];
    let rates = |factor: &str| {
        let report = json(forebay().args(["sim", &toml, "--cpu-factor", factor, "--json"]).args(fast_device));
        let rows = report["rows"].as_array().expect("rows").iter();
        rows.map(|row| row["default"].as_f64().expect("a rate")).collect::<Vec<_>>()
    };
    let (slow, fast) = (rates("4"), rates("1"));
    assert!(slow.iter().zip(&fast).all(|(slow, fast)| slow < fast), "{slow:?} and {fast:?}");
}

#[test]
fn store_is_measured_fresh_and_aged_and_leaves_nothing_behind() {
    let scratch = Scratch::new("store");
    let flags = ["bench", "store", scratch.path(), "--size", "256MiB", "--bytes", "16MiB", "--object", "4MiB"];
    let aged = ["--age", "--overwrites", "0.02", "--rest", "1", "-i", "2", "--depth", "4", "--sums", "--json"];
    let report = json(forebay().args(flags).args(aged));
    let rows = report["rows"].as_array().expect("rows");
    let phases: Vec<_> = rows.iter().map(|row| row["phase"].as_str().expect("a phase")).collect();
    let of = |age: &str| ["raw", "store", "store-of-raw"].map(|what| format!("{age}-{what}"));
    let (fresh, at_once, rested) = (of("fresh"), of("aged-at-once"), of("aged"));
    let [ageing, rest] = ["ageing", "rest"].map(|phase| vec![phase.to_owned()]);
    let of_fresh = ["aged-at-once", "aged"].map(|age| format!("{age}-of-fresh"));
    assert_eq!(phases, [&fresh[..], &ageing, &at_once, &rested, &rest, &of_fresh].concat());
    for row in rows {
        let times = if row["phase"].as_str().is_some_and(|phase| phase.contains("at-once") || phase == "ageing") {
            1
        } else {
            2
        };
        assert!(row["n"] == times && row["value"].as_f64() > Some(0.0), "{row}");
    }
    assert_eq!(rows[1]["repetitions"][0]["MiB"], 16.0);
    assert_eq!(scratch.names(), Vec::<String>::new(), "nothing is left");
}

#[test]
fn obdfilter_survey_measures_every_layer() {
    let scratch = Scratch::new("survey");
    let dir = format!("{}/stores", scratch.path());
    // Finds a free port; the ports behind it are used too.
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = held.local_addr().expect("an address").port().min(65_000);
    drop(held);
    let listen = format!("127.0.0.1:{port}");
    let flags = ["bench", "obdfilter-survey", &dir, "--size", "8MiB", "--thrhi", "4", "--listen", &listen];
    let report = json(forebay().args(flags).args(["--rsz", "256KiB", "-i", "2", "--json"]));
    assert_eq!((&report["bench"], &report["parameters"]["osts"]), (&"obdfilter-survey".into(), &2.into()));
    let rows = report["rows"].as_array().expect("rows");
    // (objects, threads): 1 and 1, 2, 4; 2 and 2, 4.
    assert_eq!(rows.len(), 4 * 5 * 3, "{report}");
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row["case"], ["disk", "network", "netdisk", "striped"][number / 15]);
        assert_eq!(row["phase"], ["write", "rewrite", "read"][number % 3]);
        assert_eq!((row["unit"].as_str(), row["n"].as_u64()), (Some("MiB/s"), Some(2)));
        assert!(row["value"].as_f64() > Some(0.0) && row["objects"].as_u64() <= row["threads"].as_u64(), "{row}");
        assert_eq!(row["repetitions"][0]["MiB"], 16.0, "8 MiB to each of two OSTs");
    }
    assert_eq!(scratch.names(), Vec::<String>::new(), "nothing is left");
    for (wrong, words) in
        [(&["--rsz", "3000"][..], "--rsz"), (&["--size", "1MiB"], "--size"), (&["--case", "x"], "case")]
    {
        let output = forebay().args(["bench", "obdfilter-survey", &dir]).args(wrong).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{wrong:?}: {said}");
    }
}
