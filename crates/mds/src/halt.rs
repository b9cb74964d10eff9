//! Why an operation did not finish: for good, or until something is there.

use std::collections::BTreeMap;

use forebay_proto::{DecodeError, Errno, ErrorReply, Fid};

use crate::{keys::Key, leases::Use};

/// Why `apply` stopped. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The answer.
    Fail(ErrorReply),
    /// This row is not in memory: prefetch it, begin anew.
    Missing(Key),
    /// A truncate of this file is on its way to the OSTs: wait for it, begin anew.
    Truncating(Fid),
    /// A new placement table is being committed: wait for it, begin anew.
    Placing,
    /// There is no room, or none until the changed rows are written and the places of the old ones free: wait for that, begin
    /// anew.
    NoRoom,
    /// Other clients keep what this operation shows or changes: recall it, begin anew.
    Kept(BTreeMap<Fid, Use>),
}

/// Result of the parts of an operation.
pub type Step<T> = Result<T, Halt>;

impl From<Errno> for Halt {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno.into())
    }
}

impl From<ErrorReply> for Halt {
    fn from(error: ErrorReply) -> Self {
        Self::Fail(error)
    }
}

/// What is told when all room is taken.
pub fn no_room() -> ErrorReply {
    let words = "the metadata target is full: delete something, or give it a larger device";
    ErrorReply::new(Errno::ENOSPC, words)
}

/// The bytes under `key` are not what this program writes: damage, or a version to come.
pub fn damaged(key: &[u8], error: DecodeError) -> ErrorReply {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    ErrorReply::new(Errno::EIO, format!("row {key} of the metadata target is damaged ({error}); run forebay fsck"))
}

/// As [`damaged`], as an operation's end.
pub fn corrupt(key: &[u8], error: DecodeError) -> Halt {
    damaged(key, error).into()
}
