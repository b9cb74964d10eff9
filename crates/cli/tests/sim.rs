//! The laboratory as a user runs it: the same seed gives the same bytes, the rows have the documented form, wrong input
//! gets a message.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{fs, process::Output};

use common::{Scratch, forebay, json, words};

const SPIDER: &str = include_str!("../../../machines/spider.toml");

/// Two of the paper's tiers, behind one server.
fn small(scratch: &Scratch) -> String {
    let text = SPIDER
        .replacen("nodes = { value = 4,", "nodes = { value = 1,", 1)
        .replacen("osts_per_node = { value = 7,", "osts_per_node = { value = 2,", 1)
        .replacen("nodes = { value = 28,", "nodes = { value = 2,", 1);
    file(scratch, "small.toml", &text)
}

fn file(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = format!("{}/{name}", scratch.path());
    fs::write(&path, text).expect("written");
    path
}

fn sim(args: &[&str]) -> Output {
    forebay().arg("sim").args(args).output().expect("it runs")
}

#[test]
fn spider_prints_the_contracts_rows_and_the_same_bytes_for_the_same_seed() {
    let scratch = Scratch::new("sim-spider");
    let machine = small(&scratch);
    let args =
        ["spider", "--machine", &machine, "--threads", "4", "--window", "300ms", "--seed", "7", "--gtc-steps", "1"];
    let plots = format!("{}/plots", scratch.path());
    let first = sim(&[&args[..], &["--json", "--plots", &plots]].concat());
    assert!(first.status.success(), "{}", words(&first));
    let report: serde_json::Value = serde_json::from_slice(&first.stdout).expect("it prints JSON");
    for name in ["spider-obdfilter-survey.png", "spider-gtc.png"] {
        let bytes = fs::read(format!("{plots}/{name}")).expect("a picture");
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 2000, "{name}: {} bytes", bytes.len());
    }
    assert_eq!((&report["experiment"], &report["seed"]), (&"spider".into(), &7.into()));
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    for name in ["xdd-lun-read", "xdd-28-write", "sync-internal", "external-ssd", "async-internal", "data-journal"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for row in rows.iter().filter(|row| row["name"].as_str().is_some_and(|name| name.starts_with("gtc-"))) {
        let change = row["paper_mode"].as_f64().expect("it was run");
        assert_eq!(change < 0.0, row["name"] != "gtc-bandwidth", "asynchronous journals made it slower: {row}");
    }
    for row in rows {
        for key in ["unit", "published", "paper_mode", "default"] {
            assert!(row.get(key).is_some(), "{key}: {row}");
        }
    }
    let second = sim(&[&args[..], &["--json"]].concat());
    assert!(second.status.success() && second.stderr.is_empty(), "{}", words(&second));
    assert_eq!(first.stdout, second.stdout);
}

#[test]
fn wall_prints_the_contracts_rows_and_the_same_bytes_for_the_same_seed() {
    let scratch = Scratch::new("sim-wall");
    let plots = format!("{}/plots", scratch.path());
    let args = ["wall", "--tasks", "1,64,96", "--files", "960", "--seed", "7"];
    let report = json(forebay().arg("sim").args(args).args(["--json", "--plots", &plots]));
    assert!(fs::read(format!("{plots}/wall-names.png")).expect("a picture").starts_with(b"\x89PNG"));
    let rows = report["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"));
    for tasks in ["1", "64", "96"] {
        for operation in ["create", "stat", "remove", "dir-create", "dir-stat", "dir-remove"] {
            for device in ["sata", "ssd"] {
                let row = row(&format!("{operation}-{tasks}-{device}"));
                let rates = ["paper_mode", "default"].map(|way| row[way].as_f64().expect("a rate"));
                assert!(rates.iter().all(|rate| *rate > 0.1 && *rate < 1e4), "{row}");
                assert!(row.get("published").is_some() && row["unit"] == "thousand operations/s", "{row}");
            }
        }
        assert!(row(&format!("open-shared-{tasks}"))["default"].as_f64().expect("a time") > 0.01);
    }
    // Waiting for each change gives a lower rate.
    let alone = row("create-1-ssd");
    assert!(alone["paper_mode"].as_f64() < alone["default"].as_f64(), "{alone}");
    let hosts: Vec<_> = report["hosts"].as_array().expect("hosts").iter().map(|run| run["hosts"].as_u64()).collect();
    assert_eq!(hosts, [Some(1), Some(6), Some(8)]);
    let (first, second) = (sim(&args), sim(&args));
    assert!(first.status.success() && first.stderr.is_empty(), "{}", words(&first));
    assert_eq!(first.stdout, second.stdout);
}

#[test]
fn a_described_machine_is_predicted() {
    let scratch = Scratch::new("sim-file");
    let machine = small(&scratch);
    let report = json(forebay().args(["sim", &machine, "--window", "300ms", "--json"]));
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["write", "read"]);
    assert!(rows.iter().all(|row| row["default"].as_f64().expect("a rate") > 50.0), "{report}");
}

#[test]
fn an_ost_that_is_too_small_is_refused_and_what_the_refusal_says_would_do_does() {
    let scratch = Scratch::new("sim-room");
    let machine = small(&scratch);
    let with = |gib: &str, window: &str| sim(&[&machine, "--set", &format!("tier.gib={gib}"), "--window", window]);
    let refused = with("1", "2s");
    let said = words(&refused);
    assert!(refused.status.code() == Some(1) && said.contains("tier.gib = 1: "), "{said}");
    let least = said.split_once("use ").and_then(|(_, rest)| rest.split_once(" or more, or a shorter --window"));
    let (least, _) = least.unwrap_or_else(|| panic!("it says what would do: {said}"));
    let enough = with(least, "2s");
    assert!(enough.status.success(), "tier.gib={least}: {}", words(&enough));
    let less = (least.parse::<u64>().expect("a whole number") - 1).to_string();
    assert!(words(&with(&less, "2s")).contains(&format!("tier.gib = {less}: ")));
    let long = with("7450", "1h");
    assert!(words(&long).contains("256 GiB at most: a shorter --window"), "{}", words(&long));
}

#[test]
fn a_window_in_which_nothing_is_transferred_is_too_short() {
    let scratch = Scratch::new("sim-short");
    let machine = small(&scratch);
    let output = sim(&[&machine, "--set", "tier.mb_s=1", "--window", "1ms"]);
    let said = words(&output);
    assert!(
        output.status.code() == Some(1) && said.contains("was written within 1ms: give a longer --window"),
        "{said}"
    );
}

#[test]
fn nonsense_is_refused_in_words() {
    let scratch = Scratch::new("sim-nonsense");
    let cases = [
        (
            "revolution_ms = { value = 8.333,",
            "revolution_ms = { value = -8,",
            "tier.revolution_ms = -8: use 0.1 to 100",
        ),
        ("nodes = { value = 4,", "nodes = { value = 0,", "servers.nodes = 0"),
        ("[cpu]", "[gpu]", "unknown field `gpu`"),
        ("name = \"spider\"", "name = spider", "string values must be quoted"),
        ("depth = { value = 2,", "depth = { value = 1.5,", "tier.depth = 1.5: it has to be a whole number"),
        ("nodes = { value = 4,", "nodes = { value = 2000,", "14000 OSTs: 2000 at most"),
    ];
    for (from, to, expected) in cases {
        let path = file(&scratch, "bad.toml", &SPIDER.replacen(from, to, 1));
        let output = sim(&[&path]);
        assert!(output.status.code() == Some(1) && words(&output).contains("bad.toml"), "{}", words(&output));
        assert!(words(&output).contains(expected), "{expected}: {}", words(&output));
    }
    for (args, code, expected) in [
        (&["no-such-machine.toml"][..], 1, "no-such-machine.toml"),
        (&["zest"], 1, "no such experiment yet"),
        (&["wall", "--tasks", "0"], 2, "--tasks"),
        (&["wall", "--files", "0"], 2, "--files"),
        (&["couplet"], 2, "a FILE.toml that describes a machine"),
        (&["spider", "--set", "tier.color=1"], 2, "not a parameter of this machine"),
        (&["spider", "--modes", "sync"], 2, "use sync-internal"),
        (&["spider", "--threads", "0"], 2, "--threads"),
    ] {
        let output = sim(args);
        assert_eq!(output.status.code(), Some(code), "{}", words(&output));
        assert!(words(&output).contains(expected), "{}", words(&output));
    }
}
