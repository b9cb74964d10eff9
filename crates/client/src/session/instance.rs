//! Client instances: each time the MDT ends a mount's session, the client continues under a new id.
//!
//! The MDT fences an evicted client on the OSTs by its id, so that no late request is applied. With its next session the client takes
//! a new id, at the MDT and at every OST. Nobody refuses requests under that one.
//!
//! Invariant: an operation is sent under the instance in which it began, or fails. A call that changes bytes begins when its handle was
//! checked; buffered bytes, when they were acknowledged. Requests of an earlier instance are never sent to an OST under a later id:
//! another client may hold the lease or lock by now. The same holds for requests to the MDT that depend on a lock (ftruncate).
//! Changes of names and attributes depend on none, and wait for the next session.
//! Invariant: no acknowledged change is lost silently. Sessions of earlier instances go on until all of it is committed or reported
//! as lost, and every sync waits for that.
//! Not here: what happens then (`eviction`), handles and locks (`ops`), fids (`fids`).

use forebay_proto::Errno;

use crate::ClientError;

/// How often the MDT had ended the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientInstance(u64);

impl ClientInstance {
    /// The one after it.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What was begun in an earlier instance fails with.
pub(crate) fn instance_is_over() -> ClientError {
    ClientError::new(Errno::EIO, "the MDT ended this mount's session meanwhile: do it again")
}
