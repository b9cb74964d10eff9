//! Errors of the journal.

use std::fmt;

use forebay_env::{EnvError, EnvErrorKind};

/// Result of an operation of the journal.
pub type JournalResult<T> = Result<T, JournalError>;

/// What a program can do about a [`JournalError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalErrorKind {
    /// Durable bytes are damaged or gone: do not serve; `fsck --repair`.
    Corrupt,
    /// Another target's journal, or of another generation: the wrong device.
    Foreign,
    /// Written by a newer program.
    Unsupported,
    /// The device failed to read or write (EIO).
    Medium,
    /// The device failed to flush; what was written is in doubt.
    FlushFailed,
    /// The ring has no space until the next checkpoint.
    Full,
    /// An earlier write or flush failed; nothing is acknowledged any more.
    Stopped,
    /// An argument is wrong, such as a device too small.
    Invalid,
    /// Anything else the device answered.
    Io,
}

/// An error of the journal: a kind for the program, words for the person.
#[derive(Clone, Debug)]
pub struct JournalError {
    /// What a program can do about it.
    pub kind: JournalErrorKind,
    /// What happened, where, expected and got, and what to do about it.
    pub message: String,
}

impl JournalError {
    pub(super) fn new(kind: JournalErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The error of every call after `self` stopped the journal.
    pub(super) fn sticking(&self) -> Self {
        let words = format!(
            "the journal stopped after a failure: {}; restart the target once its device is well",
            self.message
        );
        Self::new(JournalErrorKind::Stopped, words)
    }
}

impl From<EnvError> for JournalError {
    fn from(error: EnvError) -> Self {
        let kind = match error.kind {
            EnvErrorKind::Medium => JournalErrorKind::Medium,
            EnvErrorKind::FlushFailed => JournalErrorKind::FlushFailed,
            EnvErrorKind::InvalidInput => JournalErrorKind::Invalid,
            _ => JournalErrorKind::Io,
        };
        Self::new(kind, format!("journal device: {error}"))
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for JournalError {}
