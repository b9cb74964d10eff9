//! Errors of the store: a kind for the program, words for the person.

use std::fmt;

use forebay_env::{EnvError, EnvErrorKind};

/// Result of an operation of the store.
pub type StoreResult<T> = Result<T, StoreError>;

/// What a program can do about a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Live data leaves no space, or the storage under the device is full: answer ENOSPC.
    Full,
    /// A leaf of the table is not in memory: prefetch the key, then ask again without an await in between.
    NotResident,
    /// Bytes differ from what was written: answer EIO; the message says where.
    Corrupt,
    /// The device could not read or write there: answer EIO.
    Medium,
    /// The store stopped after a failed flush or a failed background step: every call fails until it is opened again.
    Stopped,
    /// The directory or device belongs to another target, or is no store at all.
    Foreign,
    /// Written by a version that uses features this one does not know.
    Unsupported,
    /// In use, or too much work at once: try again later.
    Busy,
    /// The caller's argument is wrong.
    Invalid,
    /// Anything else of the environment.
    Io,
}

/// An error of the store.
#[derive(Clone, Debug)]
pub struct StoreError {
    /// What a program can do about it.
    pub kind: StoreErrorKind,
    /// What happened, to what, expected and got.
    pub message: String,
}

impl StoreError {
    /// An error of `kind`.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Corrupt, message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Invalid, message)
    }

    pub(crate) fn full(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Full, message)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

impl From<EnvError> for StoreError {
    fn from(error: EnvError) -> Self {
        let kind = match error.kind {
            EnvErrorKind::Medium => StoreErrorKind::Medium,
            EnvErrorKind::FlushFailed => StoreErrorKind::Stopped,
            EnvErrorKind::NoSpace => StoreErrorKind::Full,
            EnvErrorKind::InUse => StoreErrorKind::Busy,
            _ => StoreErrorKind::Io,
        };
        Self::new(kind, error.message)
    }
}
