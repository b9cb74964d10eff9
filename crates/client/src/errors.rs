//! What a call fails with: a number for the program, words for the person.

use std::fmt;

use forebay_proto::Errno;

/// Result of a call.
pub type ClientResult<T> = Result<T, ClientError>;

/// A call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError {
    /// What to answer the program with; always an errno of Linux.
    pub errno: Errno,
    /// What happened and what to do; empty for the plain errors of names.
    pub message: String,
}

impl ClientError {
    /// An error with words.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }
}

impl From<Errno> for ClientError {
    fn from(errno: Errno) -> Self {
        Self { errno, message: String::new() }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            write!(f, "{}", self.errno)
        } else {
            write!(f, "{}: {}", self.errno, self.message)
        }
    }
}

impl std::error::Error for ClientError {}
