//! Errors of commands: a kind for the exit code, and a text that tells the user what to do.

use std::{fmt, path::Path};

/// Result of a command or of a step of one.
pub type CliResult<T = ()> = Result<T, CliError>;

/// Why a command ends without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CliErrorKind {
    /// The arguments are invalid together: exit code 2, as for an unknown flag.
    Usage,
    /// The command failed: exit code 1.
    Failed,
    /// Bytes, names or attributes differ from the expected ones: exit code 3.
    Mismatch,
    /// A command whose exit codes are defined elsewhere (fsck).
    Code(u8),
}

/// A failed command.
#[derive(Clone, Debug)]
pub struct CliError {
    /// Determines the exit code.
    pub kind: CliErrorKind,
    /// What happened, to what, and what to do.
    pub message: String,
}

impl CliError {
    /// The arguments are invalid together.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Usage, message: message.into() }
    }

    /// The command failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Failed, message: message.into() }
    }

    /// Something differs from what is expected.
    pub fn mismatch(message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Mismatch, message: message.into() }
    }

    /// An exit code that is defined elsewhere.
    pub fn with_code(code: u8, message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Code(code), message: message.into() }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            CliErrorKind::Failed => 1,
            CliErrorKind::Usage => 2,
            CliErrorKind::Mismatch => 3,
            CliErrorKind::Code(code) => code,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The name by which the program was called, which precedes its messages on stderr.
pub fn program() -> &'static str {
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name().is_some_and(|name| name == "lfs") { "lfs" } else { "forebay" }
}

/// Prints an error that does not end the command.
pub fn complain(error: &CliError) {
    eprintln!("{}: {error}", program());
}

/// Adds to an error what the command was doing.
pub trait Doing<T> {
    /// `doing` reads well before a colon: "cannot create /x".
    fn doing(self, doing: impl FnOnce() -> String) -> CliResult<T>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> CliResult<T> {
        self.map_err(|error| CliError::failed(format!("{}: {error}", doing())))
    }
}
