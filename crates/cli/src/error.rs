//! How a command fails: a kind for the exit code, words that tell the person what to do.

use std::{fmt, path::Path};

/// Result of a command or of a step of one.
pub type CliResult<T = ()> = Result<T, CliError>;

/// Why a command ends without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CliErrorKind {
    /// The arguments make no sense together: exit code 2, as for an unknown flag.
    Usage,
    /// It was tried and did not work: exit code 1.
    Failed,
    /// Bytes, names or attributes are not what they were: exit code 3.
    Mismatch,
    /// A command whose exit codes others have defined (fsck).
    Code(u8),
}

/// A failed command.
#[derive(Clone, Debug)]
pub struct CliError {
    /// For the exit code.
    pub kind: CliErrorKind,
    /// What happened, to what, and what to do.
    pub message: String,
}

impl CliError {
    /// Arguments that make no sense together.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Usage, message: message.into() }
    }

    /// Something that was tried and did not work.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Failed, message: message.into() }
    }

    /// Something that is not what it was.
    pub fn mismatch(message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Mismatch, message: message.into() }
    }

    /// An end with an exit code that others have defined.
    pub fn with_code(code: u8, message: impl Into<String>) -> Self {
        Self { kind: CliErrorKind::Code(code), message: message.into() }
    }

    /// What the process ends with.
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

/// What the program was called as, before what it says on stderr.
pub fn program() -> &'static str {
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name().is_some_and(|name| name == "lfs") { "lfs" } else { "forebay" }
}

/// Says what failed, where that is not the end.
pub fn complain(error: &CliError) {
    eprintln!("{}: {error}", program());
}

/// Adds what was being done to an error that does not know.
pub trait Doing<T> {
    /// `doing` reads well before a colon: "cannot create /x".
    fn doing(self, doing: impl FnOnce() -> String) -> CliResult<T>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> CliResult<T> {
        self.map_err(|error| CliError::failed(format!("{}: {error}", doing())))
    }
}
