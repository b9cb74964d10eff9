//! What an operator does that goes wrong: each is noticed or refused at once, with the true reason and what to do.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

#[path = "../common/mod.rs"]
mod common;
mod formatting;

use std::{
    process::{Command, Output},
    time::{Duration, Instant},
};

/// What takes longer than this waits for something that does not come.
const AT_ONCE: Duration = Duration::from_secs(15);

/// Runs it, and expects that it ends at once.
fn at_once(command: &mut Command) -> Output {
    let begun = Instant::now();
    let output = command.output().expect("it runs");
    assert!(begun.elapsed() < AT_ONCE, "{command:?} took {:?}: {}", begun.elapsed(), common::words(&output));
    output
}
