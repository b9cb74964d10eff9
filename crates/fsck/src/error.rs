//! Errors of fsck itself. Damage of a target is a [`crate::Finding`], not an error.

use std::fmt;

use forebay_env::{EnvError, EnvErrorKind};

/// What a program can do about an [`FsckError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsckErrorKind {
    /// There is no target in the directory.
    NoTarget,
    /// A process serves the target. Stop it first.
    InUse,
    /// Another version of Forebay wrote the target. Use that version.
    Unsupported,
    /// Repair cannot handle the damage yet.
    CannotRepair,
    /// A file or device is unusable.
    Io,
}

/// An operational error. Its message says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckError {
    /// What a program can do about it.
    pub kind: FsckErrorKind,
    /// What happened, and what to do.
    pub message: String,
}

impl FsckError {
    pub(crate) fn new(kind: FsckErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for FsckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FsckError {}

impl From<EnvError> for FsckError {
    fn from(error: EnvError) -> Self {
        let kind = if error.kind == EnvErrorKind::InUse { FsckErrorKind::InUse } else { FsckErrorKind::Io };
        Self::new(kind, error.message)
    }
}

/// Result of fsck's own work.
pub type FsckResult<T> = Result<T, FsckError>;
