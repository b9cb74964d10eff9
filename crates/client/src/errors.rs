//! What a call fails with: a number for the program, words for the person.

use std::fmt;

use forebay_proto::Errno;
use forebay_rpc::RpcError;

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

impl From<RpcError> for ClientError {
    fn from(error: RpcError) -> Self {
        let message = match &error {
            RpcError::Reply(reply) => reply.message.clone(),
            other => other.to_string(),
        };
        Self { errno: of_linux(error.errno()), message }
    }
}

/// Answers meant for the client library end here: if one gets this far, the program sees an I/O error.
fn of_linux(errno: Errno) -> Errno {
    if errno.0 > 1000 || errno == Errno::EPROTO { Errno::EIO } else { errno }
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

/// Why one attempt at an operation on objects failed.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The truncate epoch or the layout generation was old: fetch the attributes, then try anew.
    Stale(ClientError),
    /// A part of the file that is to be written has no OSTs: start and length. Ask the MDT for some, then try anew.
    Bare(u64, u64),
    /// These OSTs have no room for what is to be written at this offset, behind the end of the file.
    Full(u64, Vec<u32>, ClientError),
    /// For the caller.
    Failed(ClientError),
}

impl From<RpcError> for Trouble {
    fn from(error: RpcError) -> Self {
        match &error {
            RpcError::Reply(reply) if matches!(reply.errno, Errno::STALE_EPOCH | Errno::STALE_LAYOUT) => {
                Self::Stale(error.into())
            }
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Failed(error)
    }
}

impl From<Trouble> for ClientError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Stale(error) | Trouble::Full(_, _, error) | Trouble::Failed(error) => error,
            Trouble::Bare(..) => {
                ClientError::new(Errno::EIO, "a part of the file got no OSTs: that is a bug, report it")
            }
        }
    }
}

#[cfg(test)]
mod tests;
