//! Room that was granted to clients: what they keep back will find it.
//!
//! A client acknowledges small writes before it sends them. So it asks for room first, and nobody else is given that. A write
//! says how much of it may be used.
//!
//! Invariant: a write that brings enough of its grant is not refused for want of room.
//! Invariant: together no more is granted than [`limits::GRANTED_SHARE`] of what would be there without it; others have the rest.
//! Not durable: after a restart clients tell what they count on, before anything new is admitted.

use std::{cell::RefCell, collections::BTreeMap};

use forebay_env::{Bug, planted};
use forebay_proto::SessionId;
use forebay_store::{Reservation, Store, StoreResult};

use crate::limits;

/// What all sessions were granted.
#[derive(Default)]
pub struct Granted {
    sessions: RefCell<BTreeMap<SessionId, Share>>,
    /// What sessions of before counted on, and found no room for before their replays made some.
    missing: RefCell<BTreeMap<SessionId, u64>>,
}

/// Of one session; or a part of that, for one write.
pub struct Share {
    bytes: u64,
    room: Reservation,
}

impl Share {
    /// So much of it is to be counted as the write's own.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Granted {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.sessions.borrow().values().map(Share::bytes).sum()
    }

    /// The session is to have `wanted`. Returns what it has.
    pub fn ask(&self, store: &Store, session: SessionId, wanted: u64) -> u64 {
        let all = self.bytes();
        let most = (store.space().available_bytes + all) / limits::GRANTED_SHARE;
        let has = self.has(session);
        let wanted = wanted.min(has + most.saturating_sub(all)).max(wanted.min(has));
        self.set(session, wanted, |bytes| store.promise(bytes))
    }

    /// What the session counts on: it had it before the target was started.
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

    /// All replays are done, and nothing new is admitted yet: sessions get what they had to do without. Those that have ended meanwhile
    /// are not in the way ([`Granted::end`]).
    pub fn replayed(&self, store: &Store) {
        for (session, missing) in self.missing.take() {
            let has = self.has(session);
            self.raise(store, session, has + missing);
        }
    }

    /// The session gets `wanted` in all, or less where there is no more, whatever somebody says. Returns how much, of that.
    fn raise(&self, store: &Store, session: SessionId, wanted: u64) -> u64 {
        let most = self.has(session).saturating_add(store.promisable_again());
        self.set(session, wanted.min(most), |bytes| store.promise_again(bytes))
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

    /// Takes up to `bytes` of it for a write: drop it when the write has its room, or give it back.
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

    /// The write was refused: it may come again.
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
