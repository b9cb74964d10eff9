//! Why fsck could not do its work. What is wrong with a target is a [`crate::Finding`], not an error.

use std::fmt;

use forebay_env::{EnvError, EnvErrorKind};

/// What a program can do about an [`FsckError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsckErrorKind {
    /// There is no target in the directory.
    NoTarget,
    /// A process serves the target: stop it first.
    InUse,
    /// Written by another version of Forebay: use that one.
    Unsupported,
    /// The damage found is beyond what repair does yet.
    CannotRepair,
    /// A file or device cannot be used.
    Io,
}

/// An operational error: the words say what to do.
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
