//! Lock requests: set, test, and wait for an advisory lock. `lock_table` has which session holds which.
//!
//! Locks live in memory only. After a restart every client reclaims its locks before the server serves any request, so
//! the server knows all locks that clients hold. A request that cannot have its lock is parked, for
//! [`limits::LOCK_WAIT`] at most. It then changes nothing, and its client tries again.
//!
//! A lock request that would wait for itself, through other waiting requests, fails with EDEADLK, as fcntl(2) says. The
//! check runs when a wait begins and each time the client repeats the request, so the request that closes a cycle finds it.
//!
//! Invariant: the locks of an ended session are released only when it can neither write (its handles are closed, it is
//! fenced) nor come back (its rows are durably removed).

use forebay_proto::{
    Decode, Errno, ErrorReply, Fid, SessionId,
    message::{Lock, LockReply, LockSpec, lock_how, lock_kind, lock_mode},
};
use forebay_target::{Answer, Context};

use crate::{Mds, limits};

/// Why a lock cannot be set.
enum LockConflict {
    /// Another owner holds a conflicting lock.
    Holder(LockSpec),
    /// A writer that is gone has not been fenced yet: it may have held one.
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
            lock_how::WAIT => self.wait_for_lock(ctx.session(), &request).await.map(|reply| Answer::read(&reply)),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn try_lock(&self, session: SessionId, request: &Lock) -> Result<Answer, ErrorReply> {
        if !self.target()?.has_session(session) {
            return Err(ErrorReply::new(Errno::EVICTED, "the session was ended"));
        }
        let obstacle = self.obstacle(session, request.fid, &request.lock);
        let converts = self.memory.borrow().locks.is_conversion(session, request.fid, &request.lock);
        if obstacle.is_some() && converts {
            let gone = LockSpec { mode: lock_mode::NONE, ..request.lock.clone() };
            self.memory.borrow_mut().locks.set(session, request.fid, &gone);
            self.memory_changed();
        }
        if obstacle.is_none() {
            let mut memory = self.memory.borrow_mut();
            if request.lock.mode != lock_mode::NONE && !converts && !memory.locks.has_space(request.fid) {
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

    fn obstacle(&self, session: SessionId, fid: Fid, lock: &LockSpec) -> Option<LockConflict> {
        if lock.mode == lock_mode::NONE {
            return None;
        }
        let memory = self.memory.borrow();
        if let Some(holder) = memory.locks.in_the_way(session, fid, lock) {
            return Some(LockConflict::Holder(holder.clone()));
        }
        // If its owner holds the lock already, no lost session can have held a conflicting one.
        if memory.locks.is_owned(session, fid, lock) {
            return None;
        }
        let target = self.target().ok()?;
        memory.opens.has_lost_writer(fid, |session| target.has_session(session)).then_some(LockConflict::Ending)
    }

    /// Replies when the lock can be set, or after [`limits::LOCK_WAIT`].
    async fn wait_for_lock(&self, session: SessionId, request: &Lock) -> Result<LockReply, ErrorReply> {
        let Lock { fid, lock, .. } = request;
        let obstacle = || self.obstacle(session, *fid, lock);
        if obstacle().is_some() {
            if self.memory.borrow().locks.is_deadlock(session, *fid, lock) {
                return Err(ErrorReply::new(Errno::EDEADLK, "who has the lock waits for one that the asker has"));
            }
            if self.memory.borrow_mut().locks.park(session, *fid, lock) {
                let free = self.wait_until_free(session, request);
                let _ = self.env.timeout(limits::LOCK_WAIT, free).await;
                self.memory.borrow_mut().locks.unpark(session, *fid, lock);
            }
        }
        Ok(reply(obstacle()))
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

    /// Called when the handles of an ended session are closed: releases its locks once it cannot come back.
    pub(crate) async fn end_locks(&self, session: SessionId) -> Result<(), ErrorReply> {
        if self.memory.borrow().locks.has_any(session) {
            self.target()?.wait_forgotten(session, limits::FORGOTTEN_INTERVAL).await?;
            self.memory.borrow_mut().locks.drop_session(session);
        }
        self.memory_changed();
        Ok(())
    }
}

fn reply(obstacle: Option<LockConflict>) -> LockReply {
    let granted = obstacle.is_none();
    LockReply {
        granted,
        holder: obstacle.and_then(|it| if let LockConflict::Holder(lock) = it { Some(lock) } else { None }),
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
    fn invalid_lock_requests_are_refused() {
        assert_eq!(check(&lock(lock_mode::NONE)), Ok(()));
        for bad in [LockSpec { kind: 3, ..lock(1) }, lock(3), LockSpec { start: 10, ..lock(1) }] {
            assert_eq!(check(&bad).unwrap_err().errno, Errno::EINVAL);
        }
    }
}
