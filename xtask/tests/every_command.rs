//! `xtask every-command`: each subcommand and option of both programs, once, small.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

/// forebay, xtask |none| | every command and option ends as its row says, and none is without a row
#[test]
fn every_subcommand_and_option_of_both_programs_does_what_it_says() {
    // A short path: sockets are made in it, whose names have at most 107 bytes.
    common::run(&["every-command"], std::env::temp_dir(), "forebay-every");
}
