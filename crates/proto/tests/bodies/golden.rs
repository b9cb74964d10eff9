//! Every body has the bytes of `golden.txt`: a name, then hexadecimal rows of 32 bytes.
//!
//! A type that is missing there, or whose bytes have changed, fails, and the failure shows the current rows. Changed
//! bytes are another protocol: `cargo run --release -p xtask -- bless` writes them, and the change of `golden.txt` is
//! reviewed.

use std::collections::BTreeMap;

use forebay_proto::message::Op;

use crate::sample::Samples;

const GOLDEN: &str = include_str!("golden.txt");

/// Bodies of the golden file, by name.
pub fn bodies() -> BTreeMap<&'static str, Vec<u8>> {
    let mut bodies: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let mut name = "";
    for line in GOLDEN.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match line.strip_prefix("    ") {
            Some(row) => bodies.get_mut(name).expect("a name stands before its rows").extend(bytes_of(row)),
            None => {
                name = line;
                assert!(bodies.insert(name, Vec::new()).is_none(), "{name} is there twice");
            }
        }
    }
    bodies
}

fn bytes_of(row: &str) -> impl Iterator<Item = u8> {
    let digit = |d: u8| (d as char).to_digit(16).expect("a hexadecimal digit") as u8;
    row.as_bytes().chunks(2).map(move |pair| digit(pair[0]) << 4 | digit(pair[1]))
}

fn rows(bytes: &[u8]) -> String {
    let row = |row: &[u8]| row.iter().map(|b| format!("{b:02x}")).collect();
    let rows: Vec<String> = bytes.chunks(32).map(row).collect();
    format!("    {}", rows.join("\n    "))
}

#[test]
fn every_operation_has_a_request_and_a_reply_to_look_at() {
    let samples = Samples::all();
    for op in (0..=u16::MAX).filter_map(Op::from_number) {
        let times = samples.operations.iter().filter(|(o, ..)| *o == op).count();
        assert_eq!(times, 1, "{}: give its request and reply a value beside the others", op.name());
    }
}

#[test]
fn bodies_have_the_golden_bytes_and_no_other() {
    let (samples, golden) = (Samples::all(), bodies());
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        return bless(&samples);
    }
    let moved = samples.bodies.iter().filter(|(name, s)| golden.get(name.as_str()) != Some(&s.bytes));
    let moved: Vec<String> = moved.map(|(name, s)| format!("{name}\n{}\n", rows(&s.bytes))).collect();
    assert!(moved.is_empty(), "golden.txt says otherwise of these:\n{}", moved.concat());
    let gone: Vec<_> = golden.keys().filter(|name| !samples.bodies.contains_key(**name)).collect();
    assert!(gone.is_empty(), "golden.txt has bodies of which there is no value: {gone:?}");
}

/// Rewrites the file, below its leading comments.
#[allow(clippy::disallowed_methods)] // a developer asks for it: it writes a file of the tree
fn bless(samples: &Samples) {
    let comments: String =
        GOLDEN.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let bodies: String = samples.bodies.iter().map(|(name, s)| format!("{name}\n{}\n", rows(&s.bytes))).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bodies/golden.txt");
    std::fs::write(path, comments + &bodies).unwrap_or_else(|error| panic!("{path}: {error}"));
}

#[test]
fn golden_bytes_are_decoded_to_the_value_they_came_from() {
    let golden = bodies();
    for (name, sample) in Samples::all().bodies {
        let bytes = golden.get(name.as_str()).unwrap_or_else(|| panic!("golden.txt has no {name}"));
        let again = (sample.decoder)(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(again.words, sample.words);
        assert_eq!(again.bytes, sample.bytes, "{name}");
    }
}
