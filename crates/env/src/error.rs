//! Errors of the environment.

use std::fmt;

/// Result of an operation of the environment.
pub type EnvResult<T> = Result<T, EnvError>;

/// What a program can do about an [`EnvError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvErrorKind {
    /// The file, device or address does not exist.
    NotFound,
    /// It exists already, or is in use (an address, a locked directory).
    InUse,
    /// The other side closed or reset the connection, or cannot be reached.
    Disconnected,
    /// A read or write of the device failed (EIO): the medium is bad at that place.
    Medium,
    /// A flush failed. Writes since the last good flush are in doubt; a retry must not turn that into success.
    FlushFailed,
    /// The file system under the file is full.
    NoSpace,
    /// Not permitted.
    Permission,
    /// An argument is wrong (alignment, range, malformed address).
    InvalidInput,
    /// Anything else.
    Other,
}

/// An error of the environment: a kind for the program, words for the person.
#[derive(Clone, Debug)]
pub struct EnvError {
    /// What a program can do about it.
    pub kind: EnvErrorKind,
    /// What happened, to what, and what to do about it.
    pub message: String,
}

impl EnvError {
    /// An error of `kind`; `message` names the thing and what to do.
    pub fn new(kind: EnvErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for EnvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EnvError {}
