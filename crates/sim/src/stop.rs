//! Why an operation went no further: its answer was wrong, or it was an honest EIO of a disk that fails.

use forebay_client::ClientError;
use forebay_proto::Errno;

/// Why an operation went no further.
#[derive(Debug)]
pub enum Stop {
    /// A disk fails in this run, and said so: nothing was changed, nothing was learnt.
    Excused,
    /// It is not what was promised; in words.
    Wrong(String),
}

impl From<String> for Stop {
    fn from(words: String) -> Self {
        Self::Wrong(words)
    }
}

/// Judges an error of a call that changes nothing. `eio`: disks fail in this run.
pub fn judge(what: &str, error: &ClientError, eio: bool) -> Stop {
    if eio && error.errno == Errno::EIO { Stop::Excused } else { Stop::Wrong(format!("{what}: {error}")) }
}
