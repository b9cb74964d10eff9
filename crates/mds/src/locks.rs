//! Advisory locks: who has which, over all sessions.
//!
//! They live in memory. After a restart every client brings its own back before anybody is served, so what the clients hold
//! is what the server knows. Nothing here waits for a lock to become free: a request that would is parked for a while at
//! most, changes nothing, and its client tries again.
//!
//! Invariant: no two sessions hold locks that exclude each other.
//! Invariant: the locks of a session that ended are let go of only when it can neither write (its handles are closed, it
//! is fenced) nor come back (its rows are gone for good).

use std::collections::BTreeMap;

use forebay_proto::{
    Decode, Errno, ErrorReply, Fid, LockList, SessionId,
    message::{Lock, LockReply, LockSpec, lock_how, lock_kind, lock_mode},
};
use forebay_target::{Answer, Context};

use crate::{Mds, limits};

/// All locks.
#[derive(Default)]
pub struct Locks {
    files: BTreeMap<Fid, LockList<SessionId>>,
    count: usize,
    /// Requests parked, by session.
    parked: BTreeMap<SessionId, usize>,
}

impl Locks {
    /// Locks there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// A lock that keeps the session from having `wanted`.
    fn in_the_way(&self, session: SessionId, fid: Fid, wanted: &LockSpec) -> Option<&LockSpec> {
        self.files.get(&fid).and_then(|list| list.in_the_way(session, wanted))
    }

    /// Sets a lock, or lets go of one.
    pub fn set(&mut self, session: SessionId, fid: Fid, lock: &LockSpec) {
        let list = self.files.entry(fid).or_default();
        self.count -= list.len();
        list.set(session, lock);
        self.count += list.len();
        if list.is_empty() {
            self.files.remove(&fid);
        }
    }

    /// The session has a lock.
    fn has_any(&self, session: SessionId) -> bool {
        self.files.values().flat_map(LockList::iter).any(|(of, _)| of == session)
    }

    /// There is room for one more.
    fn has_room(&self, fid: Fid) -> bool {
        let of_file = self.files.get(&fid).map_or(0, LockList::len);
        of_file < limits::LOCKS_PER_FILE && self.count < limits::LOCKS
    }

    /// Lets go of all a session has.
    fn drop_session(&mut self, session: SessionId) {
        self.files.retain(|_, list| {
            list.remove(|of, _| of == session);
            !list.is_empty()
        });
        self.count = self.files.values().map(LockList::len).sum();
    }

    /// Counts one more parked request; false if there are enough.
    fn park(&mut self, session: SessionId) -> bool {
        let parked = self.parked.entry(session).or_default();
        let may = *parked < limits::LOCK_WAITS;
        *parked += usize::from(may);
        may
    }

    fn unpark(&mut self, session: SessionId) {
        if let Some(parked) = self.parked.get_mut(&session) {
            *parked -= 1;
            if *parked == 0 {
                self.parked.remove(&session);
            }
        }
    }
}

/// What keeps a lock from being set.
enum Obstacle {
    /// Somebody has one.
    Holder(LockSpec),
    /// A writer that is gone has not been fenced yet: it may have had one.
    Ending,
}

impl Mds {
    /// Executes a `Lock`.
    pub(crate) async fn lock(&self, ctx: &Context, body: &[u8]) -> Result<Answer, ErrorReply> {
        let request = Lock::from_bytes(body)?;
        check(&request.lock)?;
        match request.how {
            lock_how::TRY => self.try_lock(ctx.session(), &request),
            lock_how::TEST => Ok(Answer::read(&reply(self.obstacle(ctx.session(), request.fid, &request.lock)))),
            lock_how::WAIT => Ok(Answer::read(&self.wait_for_lock(ctx.session(), &request).await)),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn try_lock(&self, session: SessionId, request: &Lock) -> Result<Answer, ErrorReply> {
        if !self.target()?.has_session(session) {
            return Err(ErrorReply::new(Errno::EVICTED, "the session was ended"));
        }
        let obstacle = self.obstacle(session, request.fid, &request.lock);
        if obstacle.is_none() {
            let mut memory = self.memory.borrow_mut();
            if request.lock.mode != lock_mode::NONE && !memory.locks.has_room(request.fid) {
                return Err(ErrorReply::new(Errno::ENOLCK, "there are too many locks of this file, or of all files"));
            }
            memory.locks.set(session, request.fid, &request.lock);
            drop(memory);
            if request.lock.mode != lock_mode::EXCLUSIVE {
                self.memory_changed();
            }
        }
        Ok(Answer::read(&reply(obstacle)))
    }

    fn obstacle(&self, session: SessionId, fid: Fid, lock: &LockSpec) -> Option<Obstacle> {
        if lock.mode == lock_mode::NONE {
            return None;
        }
        let memory = self.memory.borrow();
        if let Some(holder) = memory.locks.in_the_way(session, fid, lock) {
            return Some(Obstacle::Holder(holder.clone()));
        }
        let target = self.target().ok()?;
        memory.opens.has_lost_writer(fid, |session| target.has_session(session)).then_some(Obstacle::Ending)
    }

    /// Answers when the lock could be set, or after a while.
    async fn wait_for_lock(&self, session: SessionId, request: &Lock) -> LockReply {
        let obstacle = || self.obstacle(session, request.fid, &request.lock);
        if obstacle().is_some() && self.memory.borrow_mut().locks.park(session) {
            let free = self.wait_until_free(session, request);
            let _ = self.env.timeout(limits::LOCK_WAIT, free).await;
            self.memory.borrow_mut().locks.unpark(session);
        }
        reply(obstacle())
    }

    async fn wait_until_free(&self, session: SessionId, request: &Lock) {
        loop {
            let changed = self.changed();
            if self.obstacle(session, request.fid, &request.lock).is_none() || self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// The handles of a session that ended are closed: lets go of its locks once it cannot come back.
    pub(crate) async fn end_locks(&self, session: SessionId) -> Result<(), ErrorReply> {
        if self.memory.borrow().locks.has_any(session) {
            self.target()?.wait_forgotten(session, limits::FORGOTTEN_INTERVAL).await?;
            self.memory.borrow_mut().locks.drop_session(session);
        }
        self.memory_changed();
        Ok(())
    }
}

fn reply(obstacle: Option<Obstacle>) -> LockReply {
    let granted = obstacle.is_none();
    LockReply {
        granted,
        holder: obstacle.and_then(|it| if let Obstacle::Holder(lock) = it { Some(lock) } else { None }),
    }
}

fn check(lock: &LockSpec) -> Result<(), ErrorReply> {
    let kind = matches!(lock.kind, lock_kind::FCNTL | lock_kind::FLOCK);
    if kind && lock.mode <= lock_mode::EXCLUSIVE && lock.start <= lock.end {
        return Ok(());
    }
    Err(ErrorReply::new(Errno::EINVAL, "a lock of an unknown kind or mode, or one that ends before it begins"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let parked = (0..limits::LOCK_WAITS + 3).filter(|_| locks.park(SessionId(1))).count();
        assert_eq!(parked, limits::LOCK_WAITS);
        (0..parked).for_each(|_| locks.unpark(SessionId(1)));
        assert!(locks.parked.is_empty());
    }

    #[test]
    fn what_is_no_lock_is_refused() {
        assert_eq!(check(&lock(lock_mode::NONE)), Ok(()));
        for bad in [LockSpec { kind: 3, ..lock(1) }, lock(3), LockSpec { start: 10, ..lock(1) }] {
            assert_eq!(check(&bad).unwrap_err().errno, Errno::EINVAL);
        }
    }
}
