//! Why an operation went no further: its answer was wrong, or an honest one of a disk that fails or is full.

use std::fmt;

use forebay_client::{Client, ClientError};
use forebay_proto::Errno;

/// Why an operation went no further.
#[derive(Debug)]
pub enum Stop {
    /// A disk fails or is full in this run, and said so: nothing was changed, nothing was learnt.
    Excused,
    /// A call failed; in words.
    Failed(Errno, String),
    /// There are other names than were promised; in words.
    Names(String),
    /// It is not what was promised; in words.
    Wrong(String),
}

impl Stop {
    /// With where it happened.
    pub fn at(self, place: &str) -> Self {
        match self {
            Self::Excused => Self::Excused,
            Self::Failed(errno, words) => Self::Failed(errno, format!("{place}: {words}")),
            Self::Names(words) => Self::Names(format!("{place}: {words}")),
            Self::Wrong(words) => Self::Wrong(format!("{place}: {words}")),
        }
    }

    /// True if a client that its targets gave up is told so by this: by an error of its files. Changes of names that it had
    /// answered before it asked the MDT are not there then, as with P3.
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

/// What servers may answer in a run, as its disks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excuses {
    /// Disks fail: EIO.
    pub eio: bool,
    /// Clients may be given up by their targets, and lose then what these did not commit.
    pub evicted: bool,
    /// No room, or no OST to be asked for it: ENOSPC.
    pub full: bool,
}

impl Excuses {
    /// True for an error that is no fault of the servers.
    pub fn cover(self, error: &ClientError) -> bool {
        self.eio && error.errno == Errno::EIO || self.full && error.errno == Errno::ENOSPC
    }
}

/// Judges an error of a call that changes nothing, for which no room is needed.
pub fn judge(what: &str, error: &ClientError, excuses: Excuses) -> Stop {
    if (Excuses { full: false, ..excuses }).cover(error) {
        Stop::Excused
    } else {
        Stop::Failed(error.errno, format!("{what}: {error}"))
    }
}
