//! Granted space: what a client buffers will find its space.
//!
//! A client acknowledges small writes before it sends them. So it asks for space first, which then goes to nobody else.
//! A write says how much of the grant it may use.
//!
//! Invariant: a write that brings enough of its grant is not refused with ENOSPC.
//! Invariant: grants together are at most [`limits::GRANTED_SHARE`] of the space that would be free without them.
//! Not durable: after a restart clients claim their grants before anything new is admitted.

use std::{cell::RefCell, collections::BTreeMap};

use forebay_env::{Bug, planted};
use forebay_proto::SessionId;
use forebay_store::{Reservation, Store, StoreResult};

use crate::limits;

/// The grants of all sessions.
#[derive(Default)]
pub struct Grants {
    sessions: RefCell<BTreeMap<SessionId, Share>>,
    /// Grants from before a restart for which there was no space yet: the session claimed them before the replays freed
    /// some.
    missing: RefCell<BTreeMap<SessionId, u64>>,
}

/// The grant of one session, or a part of it for one write.
pub struct Share {
    bytes: u64,
    room: Reservation,
}

impl Share {
    /// Bytes of it that the write may count as its own.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Grants {
    /// All granted bytes.
    pub fn bytes(&self) -> u64 {
        self.sessions.borrow().values().map(Share::bytes).sum()
    }

    /// Grants the session up to `wanted` bytes in all. Returns what it has.
    pub fn ask(&self, store: &Store, session: SessionId, wanted: u64) -> u64 {
        let all = self.bytes();
        let most = (store.space().available_bytes + all) / limits::GRANTED_SHARE;
        let has = self.has(session);
        let wanted = wanted.min(has + most.saturating_sub(all)).max(wanted.min(has));
        self.set(session, wanted, |bytes| store.promise(bytes))
    }

    /// The session claims a grant that it had before the target was restarted.
    pub fn again(&self, store: &Store, session: SessionId, counted_on: u64) {
        if planted(Bug::GrantsForgotten) {
            return;
        }
        let missing = counted_on - self.raise(store, session, counted_on);
        match missing {
            0 => self.missing.borrow_mut().remove(&session),
            _ => self.missing.borrow_mut().insert(session, missing),
        };
    }

    /// All replays are done, and nothing new is admitted yet: sessions receive the rest of their earlier grants.
    /// Sessions that have ended meanwhile take no part ([`Grants::end`]).
    pub fn replayed(&self, store: &Store) {
        for (session, missing) in self.missing.take() {
            let has = self.has(session);
            self.raise(store, session, has + missing);
        }
    }

    /// Raises the session's grant to `wanted` bytes, limited only by the free space. Returns how much of that it has.
    fn raise(&self, store: &Store, session: SessionId, wanted: u64) -> u64 {
        let most = self.has(session).saturating_add(store.reclaimable_bytes());
        self.set(session, wanted.min(most), |bytes| store.reclaim_promise(bytes))
    }

    fn has(&self, session: SessionId) -> u64 {
        self.sessions.borrow().get(&session).map_or(0, Share::bytes)
    }

    /// The session has ended.
    pub fn end(&self, session: SessionId) {
        self.missing.borrow_mut().remove(&session);
        self.sessions.borrow_mut().remove(&session);
    }

    fn set(&self, session: SessionId, bytes: u64, promise: impl Fn(u64) -> StoreResult<Reservation>) -> u64 {
        let has = self.has(session);
        let mut sessions = self.sessions.borrow_mut();
        if bytes == 0 {
            sessions.remove(&session);
            return 0;
        }
        if let Some(share) = sessions.get_mut(&session).filter(|share| bytes <= share.bytes) {
            drop(share.room.split(share.bytes - bytes));
            share.bytes = bytes;
            return bytes;
        }
        match (promise(bytes - has), sessions.get_mut(&session)) {
            (Err(_), _) => has,
            (Ok(room), Some(share)) => {
                share.room.join(room);
                share.bytes = bytes;
                bytes
            }
            (Ok(room), None) => {
                sessions.insert(session, Share { bytes, room });
                bytes
            }
        }
    }

    /// Takes up to `bytes` of the grant for a write. Drop the result once the write has its space, or put it back.
    pub fn take(&self, session: SessionId, bytes: u64) -> Option<Share> {
        let mut sessions = self.sessions.borrow_mut();
        let share = sessions.get_mut(&session)?;
        let bytes = bytes.min(share.bytes);
        share.bytes -= bytes;
        let taken = Share { bytes, room: share.room.split(bytes) };
        if share.bytes == 0 {
            sessions.remove(&session);
        }
        Some(taken)
    }

    /// The write was refused; the client may send it again.
    pub fn put_back(&self, session: SessionId, taken: Share) {
        match self.sessions.borrow_mut().entry(session) {
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let share = entry.get_mut();
                share.bytes += taken.bytes;
                share.room.join(taken.room);
            }
            std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert(taken)),
        }
    }
}
