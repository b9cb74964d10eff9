//! The benchmarks as a user runs them: real processes on a temporary directory.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use common::{Scratch, forebay, json};

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
