//! Why an operation stopped: its answer was wrong, or it got a legitimate error from a failing or full disk.

use std::fmt;

use forebay_client::{Client, ClientError};
use forebay_proto::Errno;

/// Why an operation stopped.
#[derive(Debug)]
pub enum Stop {
    /// A disk fails or is full in this run, and the call returned its error. It changed nothing and showed nothing.
    Excused,
    /// A call failed; the text says how.
    Failed(Errno, String),
    /// The names are not as promised; the text says how.
    Names(String),
    /// Something else is not as promised; the text says how.
    Wrong(String),
}

impl Stop {
    /// Adds where it happened.
    pub fn at(self, place: &str) -> Self {
        match self {
            Self::Excused => Self::Excused,
            Self::Failed(errno, words) => Self::Failed(errno, format!("{place}: {words}")),
            Self::Names(words) => Self::Names(format!("{place}: {words}")),
            Self::Wrong(words) => Self::Wrong(format!("{place}: {words}")),
        }
    }

    /// True if this tells an evicted client of the eviction: by an error on its files, or by names that are missing.
    /// The client may have lost delayed directory operations, as under P3.
    pub fn tells_eviction(&self, client: &Client) -> bool {
        let stats = client.stats();
        match self {
            Self::Failed(Errno::EIO | Errno::ESTALE, _) => stats.evictions > 0,
            Self::Failed(..) | Self::Names(_) => stats.mdt_evictions > 0,
            Self::Excused | Self::Wrong(_) => false,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Excused => f.write_str("excused"),
            Self::Failed(_, words) | Self::Names(words) | Self::Wrong(words) => f.write_str(words),
        }
    }
}

impl From<String> for Stop {
    fn from(words: String) -> Self {
        Self::Wrong(words)
    }
}

/// The errors that servers may return in this run, given its disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excuses {
    /// Disks fail: EIO.
    pub eio: bool,
    /// Targets may evict clients, which lose uncommitted changes.
    pub evicted: bool,
    /// Too little space, or no OST to ask for it: ENOSPC.
    pub full: bool,
}

impl Excuses {
    /// True for an error that is not the servers' fault.
    pub fn cover(self, error: &ClientError) -> bool {
        self.eio && error.errno == Errno::EIO || self.full && error.errno == Errno::ENOSPC
    }
}

/// Judges an error of a call that changes nothing and needs no space.
pub fn judge(what: &str, error: &ClientError, excuses: Excuses) -> Stop {
    if (Excuses { full: false, ..excuses }).cover(error) {
        Stop::Excused
    } else {
        Stop::Failed(error.errno, format!("{what}: {error}"))
    }
}
