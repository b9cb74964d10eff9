//! Why a call failed.

use std::fmt;

use forebay_proto::{Errno, ErrorReply};

/// Why a call failed. A server that is down is no reason: the call waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcError {
    /// The target replied with an error.
    Reply(ErrorReply),
    /// The session ended while the request was in flight. Whether it was executed is unknown, and uncommitted changes
    /// are lost. A new session begins automatically unless the client was fenced.
    Evicted(String),
    /// The target refuses this client for good: another cluster, target or version, or the client was fenced.
    Refused(String),
    /// No server replies at any of the addresses (only [`crate::ask`] gives up).
    Unreachable(String),
    /// A server seems to be there, and does not reply in time (only [`crate::ask`] gives up).
    Silent(String),
    /// What replies at the address is not a Forebay server (only [`crate::ask`] gives up).
    Foreign(String),
    /// The request is longer than the protocol allows, or the reply could not be read: a bug on one side.
    Protocol(String),
    /// [`crate::ClientSession::close`] was called.
    Closed,
}

impl RpcError {
    /// The error number to return to a program.
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
