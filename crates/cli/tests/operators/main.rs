//! Operator errors: each is noticed or refused at once, with the true reason and what to do. Some tests need root and
//! /dev/fuse; without them they say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

#[path = "../common/mod.rs"]
mod common;
mod formatting;
mod hiding;
mod limits;
mod lost;
mod paths;
mod room;
mod unmounting;
mod users;

use std::{
    process::{Child, Command, Output},
    time::{Duration, Instant},
};

/// A command that takes longer than this is waiting for something that does not come.
const AT_ONCE: Duration = Duration::from_secs(15);

/// Runs the command, and expects that it ends at once.
fn at_once(command: &mut Command) -> Output {
    let begun = Instant::now();
    let output = command.output().expect("it runs");
    assert!(begun.elapsed() < AT_ONCE, "{command:?} took {:?}: {}", begun.elapsed(), common::words(&output));
    output
}

/// A program that is ended after the test, even if the test fails.
struct Program(Child);

impl Program {
    fn end(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
