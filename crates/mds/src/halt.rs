//! Why an operation stopped: with an error, or because it has to wait for something and then start again.

use std::collections::BTreeMap;

use forebay_proto::{DecodeError, Errno, ErrorReply, Fid};

use crate::{keys::Key, leases::Use};

/// Why `apply` stopped. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The error to reply.
    Fail(ErrorReply),
    /// Some of these rows are not in memory: prefetch them and start again.
    Missing(Vec<Key>),
    /// The journal is full of uncommitted changes: wait for a commit and start again.
    JournalFull,
    /// A truncate of this file is in progress on the OSTs: wait for it and start again.
    Truncating(Fid),
    /// A new placement table is being committed: wait for it and start again.
    Placing,
    /// There is no space, or none until the changed rows are written and the space of the old ones is free. Wait for
    /// that and start again.
    NoSpace,
    /// Other clients hold leases on what this operation shows or changes: recall them and start again.
    Leased(BTreeMap<Fid, Use>),
}

/// The result of one part of an operation.
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

/// The error when all space is used.
pub fn no_space() -> ErrorReply {
    let words = "the metadata target is full: delete something, or give it a larger device";
    ErrorReply::new(Errno::ENOSPC, words)
}

/// The error for bytes under `key` that this program does not write: damage, or a newer version.
pub fn damaged(key: &[u8], error: DecodeError) -> ErrorReply {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    ErrorReply::new(Errno::EIO, format!("row {key} of the metadata target is damaged ({error}); run forebay fsck"))
}

/// As [`damaged`], as a [`Halt`].
pub fn corrupt(key: &[u8], error: DecodeError) -> Halt {
    damaged(key, error).into()
}
