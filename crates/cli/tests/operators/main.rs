//! What an operator does that goes wrong: each is noticed or refused at once, with the true reason and what to do. Parts need root
//! and /dev/fuse; they say so and do nothing where these are not.
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

/// What takes longer than this waits for something that does not come.
const AT_ONCE: Duration = Duration::from_secs(15);

/// Runs it, and expects that it ends at once.
fn at_once(command: &mut Command) -> Output {
    let begun = Instant::now();
    let output = command.output().expect("it runs");
    assert!(begun.elapsed() < AT_ONCE, "{command:?} took {:?}: {}", begun.elapsed(), common::words(&output));
    output
}

/// Ended, whatever the test did.
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
