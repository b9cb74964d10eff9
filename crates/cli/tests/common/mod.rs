//! Helpers for tests of the program.
#![allow(dead_code, clippy::disallowed_types, clippy::disallowed_methods)]

pub mod device;
pub mod hosts;
pub mod joined;
pub mod journal;
pub mod mounts;
pub mod site;
pub mod writer;

use std::{
    path::PathBuf,
    process::{Command, Output},
};

/// The program.
pub fn forebay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
}

/// Runs the command, expects success, and parses its JSON.
pub fn json(command: &mut Command) -> serde_json::Value {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// Its output on stderr.
pub fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory that is removed after the test.
pub struct Scratch(PathBuf);

impl Scratch {
    /// In the build's directory for tests: a real file system, while /tmp may be memory.
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
