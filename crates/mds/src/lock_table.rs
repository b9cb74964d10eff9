//! Advisory locks: which session holds which lock, and which requests wait for which.
//!
//! Invariant: no two sessions hold locks that exclude each other.

use std::collections::{BTreeMap, BTreeSet};

use forebay_proto::{
    Fid, LockList, SessionId,
    message::{LockSpec, lock_kind},
};

use crate::limits;

/// All locks.
#[derive(Default)]
pub struct Locks {
    files: BTreeMap<Fid, LockList<SessionId>>,
    count: usize,
    /// Number of parked requests, by session.
    parked: BTreeMap<SessionId, usize>,
    /// The locks that parked requests wait for, by locker.
    waits: BTreeMap<Locker, Vec<(Fid, LockSpec)>>,
}

/// A session, and a number that distinguishes its lock owners.
type Locker = (SessionId, u64);

impl Locks {
    /// Number of locks.
    pub fn len(&self) -> usize {
        self.count
    }

    /// A lock that conflicts with `wanted`.
    pub fn in_the_way(&self, session: SessionId, fid: Fid, wanted: &LockSpec) -> Option<&LockSpec> {
        self.files.get(&fid).and_then(|list| list.in_the_way(session, wanted))
    }

    /// Sets a lock, or releases one. The handle does not matter to the server: locks of one owner merge where they
    /// touch, whichever descriptors set them.
    pub fn set(&mut self, session: SessionId, fid: Fid, lock: &LockSpec) {
        let lock = &LockSpec { handle: 0, ..lock.clone() };
        let list = self.files.entry(fid).or_default();
        self.count -= list.len();
        list.set(session, lock);
        self.count += list.len();
        if list.is_empty() {
            self.files.remove(&fid);
        }
    }

    /// See [`LockList::is_owned`].
    pub fn is_owned(&self, session: SessionId, fid: Fid, wanted: &LockSpec) -> bool {
        self.files.get(&fid).is_some_and(|list| list.is_owned(session, wanted))
    }

    /// See [`LockList::is_conversion`].
    pub fn is_conversion(&self, session: SessionId, fid: Fid, wanted: &LockSpec) -> bool {
        self.files.get(&fid).is_some_and(|list| list.is_conversion(session, wanted))
    }

    /// True if the session has a lock.
    pub fn has_any(&self, session: SessionId) -> bool {
        self.files.values().flat_map(LockList::iter).any(|(of, _)| of == session)
    }

    /// True if there is space for one more lock.
    pub fn has_space(&self, fid: Fid) -> bool {
        let of_file = self.files.get(&fid).map_or(0, LockList::len);
        of_file < limits::LOCKS_PER_FILE && self.count < limits::LOCKS
    }

    /// Releases all locks of a session.
    pub fn drop_session(&mut self, session: SessionId) {
        self.files.retain(|_, list| {
            list.remove(|of, _| of == session);
            !list.is_empty()
        });
        self.count = self.files.values().map(LockList::len).sum();
    }

    /// Counts one more parked request; false if the session has too many.
    pub fn park(&mut self, session: SessionId, fid: Fid, wanted: &LockSpec) -> bool {
        let parked = self.parked.entry(session).or_default();
        let may = *parked < limits::LOCK_WAITS;
        *parked += usize::from(may);
        if may {
            self.waits.entry((session, wanted.owner)).or_default().push((fid, wanted.clone()));
        }
        may
    }

    /// The parked request has its lock, or gave up.
    pub fn unpark(&mut self, session: SessionId, fid: Fid, wanted: &LockSpec) {
        if let Some(parked) = self.parked.get_mut(&session) {
            *parked -= 1;
            if *parked == 0 {
                self.parked.remove(&session);
            }
        }
        let who = (session, wanted.owner);
        let Some(waits) = self.waits.get_mut(&who) else { return };
        if let Some(at) = waits.iter().position(|(of, lock)| *of == fid && lock == wanted) {
            waits.swap_remove(at);
        }
        if waits.is_empty() {
            self.waits.remove(&who);
        }
    }

    /// The lockers whose locks exclude `wanted`.
    fn holders(&self, session: SessionId, fid: Fid, wanted: &LockSpec) -> Vec<Locker> {
        let holders = self.files.get(&fid).into_iter().flat_map(|list| list.all_in_the_way(session, wanted));
        holders.map(|(of, lock)| (of, lock.owner)).collect()
    }

    /// True if a locker that this request would wait for waits for it in turn, directly or not. Does not apply to
    /// flock(2).
    pub fn is_deadlock(&self, session: SessionId, fid: Fid, wanted: &LockSpec) -> bool {
        let fcntl = wanted.kind == lock_kind::FCNTL;
        let mut todo = if fcntl { self.holders(session, fid, wanted) } else { Vec::new() };
        let mut seen = BTreeSet::new();
        while let Some(holder) = todo.pop() {
            if holder == (session, wanted.owner) {
                return true;
            }
            if seen.insert(holder) {
                let waits = self.waits.get(&holder).into_iter().flatten().filter(|(_, lock)| lock.kind == wanted.kind);
                todo.extend(waits.flat_map(|(fid, lock)| self.holders(holder.0, *fid, lock)));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_proto::message::lock_mode;

    #[test]
    fn locks_of_one_owner_are_one_lock_through_whichever_handle_they_were_set() {
        let (session, fid, mut locks) = (SessionId(1), Fid::ROOT, Locks::default());
        let of = |handle, end| LockSpec { handle, end, kind: lock_kind::FCNTL, ..lock(lock_mode::EXCLUSIVE) };
        for set in [of(1, 9), of(2, u64::MAX), of(1, 29)] {
            locks.set(session, fid, &set);
        }
        let asked = LockSpec { owner: 2, start: 10, ..of(3, 29) };
        let told = locks.in_the_way(session, fid, &asked).map(|lock| (lock.start, lock.end));
        assert_eq!((told, locks.len()), (Some((0, u64::MAX)), 1));
    }

    fn lock(mode: u32) -> LockSpec {
        LockSpec { kind: lock_kind::FLOCK, owner: 1, mode, start: 0, end: 9, pid: 1, handle: 1 }
    }

    #[test]
    fn locks_of_a_session_go_together_and_leave_no_trace() {
        let (a, b, fid) = (SessionId(1), SessionId(2), Fid { high: 0, low: 7 });
        let mut locks = Locks::default();
        locks.set(a, fid, &lock(lock_mode::EXCLUSIVE));
        assert!(locks.in_the_way(b, fid, &lock(lock_mode::SHARED)).is_some());
        assert!(locks.in_the_way(a, fid, &lock(lock_mode::SHARED)).is_none());
        locks.drop_session(a);
        assert!(locks.files.is_empty() && locks.len() == 0 && !locks.has_any(a));
    }

    #[test]
    fn parked_requests_of_a_session_are_bounded() {
        let mut locks = Locks::default();
        let (session, fid, lock) = (SessionId(1), Fid { high: 0, low: 7 }, lock(lock_mode::EXCLUSIVE));
        let parked = (0..limits::LOCK_WAITS + 3).filter(|_| locks.park(session, fid, &lock)).count();
        assert_eq!(parked, limits::LOCK_WAITS);
        (0..parked).for_each(|_| locks.unpark(session, fid, &lock));
        assert!(locks.parked.is_empty() && locks.waits.is_empty());
    }

    #[test]
    fn the_request_that_closes_a_circle_of_lock_waits_gets_edeadlk() {
        let (a, b, c) = (SessionId(1), SessionId(2), SessionId(2));
        let of = |owner: u64, at: u64| LockSpec {
            kind: lock_kind::FCNTL,
            owner,
            start: at,
            end: at,
            ..lock(lock_mode::EXCLUSIVE)
        };
        let file = |low| Fid { high: 0, low };
        let mut locks = Locks::default();
        // a has 1, b has 2, c (another owner of b's session) has 3; a waits for 2, b waits for 3.
        locks.set(a, file(1), &of(1, 0));
        locks.set(b, file(2), &of(1, 0));
        locks.set(c, file(3), &of(9, 0));
        assert!(locks.park(a, file(2), &of(1, 0)) && locks.park(b, file(3), &of(1, 0)));
        assert!(locks.is_deadlock(c, file(1), &of(9, 0)), "c would wait for a, a for b, b for c");
        assert!(!locks.is_deadlock(c, file(1), &of(9, 5)), "nobody has that byte");
        assert!(!locks.is_deadlock(c, file(1), &LockSpec { kind: lock_kind::FLOCK, ..of(9, 0) }));
        assert!(!locks.is_deadlock(a, file(2), &of(2, 0)), "another owner of a's session has nothing");
        locks.unpark(b, file(3), &of(1, 0));
        assert!(!locks.is_deadlock(c, file(1), &of(9, 0)), "b waits no more");
    }
}
