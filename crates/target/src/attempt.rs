//! How one attempt to execute a request ended.
//!
//! Invariant: an attempt that was aborted changed nothing.

use forebay_proto::{DecodeError, Errno, ErrorReply};
use forebay_store::{StoreError, StoreErrorKind};

/// The result of an attempt, or of a part of one.
pub type Attempt<T> = Result<T, Abort>;

/// Why an attempt was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abort {
    /// The store could not do it now: the target executes the request again.
    Retry(Retry),
    /// The request fails with this error.
    Failed(ErrorReply),
}

/// Why the store could not do it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// A row was not in memory. The next attempt prefetches it.
    NotResident,
    /// The journal is full of uncommitted changes. The next attempt waits for a commit.
    JournalFull,
}

impl Abort {
    /// The error for a request that is not executed again.
    pub fn into_error(self) -> ErrorReply {
        match self {
            Self::Retry(_) => overloaded(),
            Self::Failed(error) => error,
        }
    }
}

impl From<StoreError> for Abort {
    fn from(error: StoreError) -> Self {
        match error.kind {
            StoreErrorKind::NotResident => Self::Retry(Retry::NotResident),
            StoreErrorKind::Busy => Self::Retry(Retry::JournalFull),
            _ => Self::Failed(store_error(error)),
        }
    }
}

impl From<ErrorReply> for Abort {
    fn from(error: ErrorReply) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for Abort {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

impl From<DecodeError> for Abort {
    fn from(error: DecodeError) -> Self {
        Self::Failed(error.into())
    }
}

/// The error for what was aborted too often.
pub(crate) fn overloaded() -> ErrorReply {
    ErrorReply::new(Errno::EAGAIN, "the store's memory or journal is too small for its load")
}

/// The error for work outside of any request. Within one, an error of the store becomes an [`Abort`].
pub fn store_error(error: StoreError) -> ErrorReply {
    let errno = match error.kind {
        StoreErrorKind::Full => Errno::ENOSPC,
        StoreErrorKind::NotResident | StoreErrorKind::Busy => Errno::EAGAIN,
        StoreErrorKind::Stopped => Errno::STOPPED,
        StoreErrorKind::Invalid => Errno::EINVAL,
        _ => Errno::EIO,
    };
    ErrorReply::new(errno, error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_out_of_memory_and_a_full_journal_are_retried() {
        let abort = |kind| Abort::from(StoreError::new(kind, "words"));
        assert_eq!(abort(StoreErrorKind::NotResident), Abort::Retry(Retry::NotResident));
        assert_eq!(abort(StoreErrorKind::Busy), Abort::Retry(Retry::JournalFull));
        for (kind, errno) in [
            (StoreErrorKind::Full, Errno::ENOSPC),
            (StoreErrorKind::Stopped, Errno::STOPPED),
            (StoreErrorKind::Invalid, Errno::EINVAL),
            (StoreErrorKind::Corrupt, Errno::EIO),
        ] {
            assert_eq!(abort(kind), Abort::Failed(ErrorReply::new(errno, "words")));
        }
    }
}
