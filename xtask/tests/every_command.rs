//! `xtask every-command`: runs each subcommand and option of both programs once, on a small scale.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

/// Every command and option of forebay and xtask ends as its row says, and each has a row.
#[test]
fn every_subcommand_and_option_of_both_programs_does_what_it_says() {
    // A short path, as sockets are made in it whose names have at most 107 bytes.
    common::run(&["every-command"], std::env::temp_dir(), "forebay-every");
}
