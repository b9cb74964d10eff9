//! Why an operation went no further: its answer was wrong, or an honest one of a disk that fails or is full.

use forebay_client::ClientError;
use forebay_proto::Errno;

/// Why an operation went no further.
#[derive(Debug)]
pub enum Stop {
    /// A disk fails or is full in this run, and said so: nothing was changed, nothing was learnt.
    Excused,
    /// It is not what was promised; in words.
    Wrong(String),
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
        Stop::Wrong(format!("{what}: {error}"))
    }
}
