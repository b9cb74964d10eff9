//! Why a call failed.

use std::fmt;

use forebay_proto::{Errno, ErrorReply};

/// Why a call failed. A server that is away is no reason: the call waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcError {
    /// The target answered with an error.
    Reply(ErrorReply),
    /// The session ended under the request: whether it was executed is unknown, and what was not committed is lost.
    /// The session begins anew by itself unless the client was fenced.
    Evicted(String),
    /// The target refuses this client for good: another cluster, target or version, or the client was fenced.
    Refused(String),
    /// Nobody answers at any of the addresses (only [`crate::ask`] gives up).
    Unreachable(String),
    /// A server is there, or seems to be, and does not answer in time (the same).
    Silent(String),
    /// What answers at the address is no server of ours (the same).
    Foreign(String),
    /// The request is longer than the protocol allows, or the reply could not be read: a bug on one of the sides.
    Protocol(String),
    /// [`crate::ClientSession::close`] was called.
    Closed,
}

impl RpcError {
    /// What to tell a program.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Reply(reply) => reply.errno,
            Self::Evicted(_) => Errno::EIO,
            Self::Refused(_) => Errno::EACCES,
            Self::Unreachable(_) | Self::Silent(_) | Self::Foreign(_) => Errno::ETIMEDOUT,
            Self::Protocol(_) => Errno::EPROTO,
            Self::Closed => Errno::ENXIO,
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => fmt::Display::fmt(reply, f),
            Self::Evicted(why) => write!(f, "the session was ended by the target: {why}"),
            Self::Refused(why) => write!(f, "the target refuses this client: {why}"),
            Self::Unreachable(why) => write!(f, "nobody answers: {why}"),
            Self::Silent(why) | Self::Foreign(why) => f.write_str(why),
            Self::Protocol(why) => write!(f, "protocol error: {why}"),
            Self::Closed => f.write_str("the session was closed"),
        }
    }
}

impl std::error::Error for RpcError {}

impl From<ErrorReply> for RpcError {
    fn from(reply: ErrorReply) -> Self {
        Self::Reply(reply)
    }
}
