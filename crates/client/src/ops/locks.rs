//! Advisory locks of files: requested from the MDT, remembered here to be reclaimed when it restarts.
//!
//! Invariant: what is remembered is what the MDT has granted, less what is being let go of.
//! Invariant: a lock that is lost (the MDT ended the session) is never lost silently: every later use of the handle it was
//! set through fails.
//! Invariant: nobody is given a lock before what was written under an exclusive one has arrived, or is lost and its
//! writer was notified; however long the OSTs take.

use std::rc::Rc;

use forebay_env::Boxed;
use forebay_proto::{
    Errno, Fid,
    message::{HeldLock, Lock, LockReply, LockSpec, lock_how, lock_kind, lock_mode},
};

use crate::{
    Client, ClientError, ClientResult, OpenFile, client::Inner, delayed::queue::Scope, limits, tasks::detached,
};

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// It is set.
    Granted,
    /// Somebody has one that excludes it.
    Denied,
}

impl Client {
    /// Sets a lock (or lets go of one: mode `NONE`), if nobody is in the way. Runs to its end even if it is dropped.
    ///
    /// `lock.handle` is taken from `file`.
    pub fn try_lock<'a>(&'a self, file: &'a OpenFile, lock: LockSpec) -> Boxed<'a, ClientResult<LockOutcome>> {
        Box::pin(async move {
            file.check_lock()?;
            let (client, file, fid) = (self.clone(), file.clone(), file.fid());
            let lock = LockSpec { handle: file.handle(), ..lock };
            detached(self.env(), async move {
                let before = client.inner.peers.mdt().session.stats().evictions;
                let had = client.inner.ends_exclusive(fid, &lock);
                client.inner.unlocked(fid).await;
                let (lets_go, ends) = (lock.mode == lock_mode::NONE, client.inner.ends_exclusive(fid, &lock));
                // It may have been lost while another one was let go of.
                file.check_lock()?;
                if had && !ends && client.inner.peers.mdt().session.stats().evictions != before {
                    return Err(lost_before(fid));
                }
                // The caller may be gone meanwhile: later requests are executed after this one, or they would be
                // released with the old lock.
                let _unlocking = (lets_go || ends).then(|| Unlocking::begin(&client.inner, fid));
                if ends && !lets_go {
                    let _ = client.flush_own_writes_of(fid).await;
                    client.flush_delayed(Scope::SetAttr(fid)).await;
                    // It stays exclusive: readers would not see what was written under it.
                    file.report()?;
                }
                let outcome = client.set_lock(fid, lock).await?;
                if lets_go && client.inner.peers.mdt().session.stats().evictions != before {
                    // Others may have had it since, and what was written under it need not be there.
                    return Err(lost_before(fid));
                }
                if ends && lets_go {
                    // It is let go of all the same, but the next one does not see what was written under it.
                    file.report()?;
                }
                Ok(outcome)
            })
            .await
        })
    }

    /// Returns when the lock might be set now. Changes nothing; may be dropped at any time.
    pub fn wait_for_lock<'a>(&'a self, file: &'a OpenFile, lock: &'a LockSpec) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let request = Lock { fid: file.fid(), how: lock_how::WAIT, lock: lock.clone() };
            file.check_lock()?;
            let begun = self.env().now();
            if !self.mdt(file.fid(), &request).await?.granted && self.env().now().since(begun) < limits::LOCK_PAUSE {
                // The MDT has enough waiting requests of this client: it answered at once.
                self.env().sleep(limits::LOCK_PAUSE).await;
            }
            Ok(())
        })
    }

    /// Sets a lock as soon as nobody is in the way. Given up by dropping it between two attempts only: see
    /// [`Client::try_lock`].
    pub fn lock<'a>(&'a self, file: &'a OpenFile, lock: LockSpec) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            while self.try_lock(file, lock.clone()).await? == LockOutcome::Denied {
                self.wait_for_lock(file, &lock).await?;
            }
            Ok(())
        })
    }

    /// A lock that keeps `lock` from being set, if there is one (F_GETLK).
    pub fn test_lock<'a>(&'a self, file: &'a OpenFile, lock: LockSpec) -> Boxed<'a, ClientResult<Option<LockSpec>>> {
        Box::pin(async move {
            let request = Lock { fid: file.fid(), how: lock_how::TEST, lock };
            Ok(self.mdt(file.fid(), &request).await?.holder)
        })
    }

    /// Whether this client has locks of the file.
    pub fn has_locks(&self, fid: Fid) -> bool {
        self.inner.mdt.locks.held.borrow().contains_key(&fid)
    }

    /// A process has closed a descriptor of the file: its fcntl locks of it go, whichever descriptor they were set through.
    pub fn unlock_owner<'a>(&'a self, file: &'a OpenFile, owner: u64) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let its = |lock: &LockSpec| lock.kind == lock_kind::FCNTL && lock.owner == owner;
            self.unlock(file.fid(), its).await
        })
    }

    /// An open file description ends: what was set through it goes.
    pub async fn unlock_handle(&self, file: &OpenFile) -> ClientResult<()> {
        self.unlock(file.fid(), |lock| lock.handle == file.handle()).await
    }

    async fn unlock(&self, fid: Fid, which: impl Fn(&LockSpec) -> bool) -> ClientResult<()> {
        let held: Vec<LockSpec> = self.inner.locks_of(fid).into_iter().filter(which).collect();
        if held.is_empty() {
            return Ok(());
        }
        // Nobody may wait for this to end: later requests are executed after it, or they would be released with the old
        // lock.
        let _unlocking = Unlocking::begin(&self.inner, fid);
        for lock in held {
            self.set_lock(fid, LockSpec { mode: lock_mode::NONE, ..lock }).await?;
        }
        Ok(())
    }

    async fn set_lock(&self, fid: Fid, lock: LockSpec) -> ClientResult<LockOutcome> {
        let session = &self.inner.peers.mdt().session;
        let lets_go = lock.mode == lock_mode::NONE;
        if lets_go {
            if self.inner.ends_exclusive(fid, &lock) {
                // What was written under a lock does not die with this client once the lock is gone. What is lost, handles report.
                let _ = self.flush_own_writes_of(fid).await;
                self.flush_delayed(Scope::SetAttr(fid)).await;
            }
            // First: if the MDT restarts, what is let go of must not be brought back.
            self.inner.remember_lock(fid, &lock);
        }
        if self.inner.is_conversion(fid, &lock) {
            // It may go at the MDT, whatever comes of this. So it must not be brought back either.
            self.inner.remember_lock(fid, &LockSpec { mode: lock_mode::NONE, ..lock.clone() });
        }
        loop {
            let before = (session.incarnation(), session.stats().evictions);
            let LockReply { granted, .. } =
                self.mdt(fid, &Lock { fid, how: lock_how::TRY, lock: lock.clone() }).await?;
            if !granted {
                return Ok(LockOutcome::Denied);
            }
            if lets_go {
                return Ok(LockOutcome::Granted);
            }
            // An MDT that has restarted, or begun another session, has no such lock: the request is sent again.
            if (session.incarnation(), session.stats().evictions) == before {
                self.inner.remember_lock(fid, &lock);
                return Ok(LockOutcome::Granted);
            }
        }
    }
}

fn lost_before(fid: Fid) -> ClientError {
    ClientError::new(Errno::EIO, format!("a lock of {fid} was lost with the MDT's session before it was let go of"))
}

/// Locks of a file that are on their way to be let go of, or to be no longer exclusive.
struct Unlocking {
    inner: Rc<Inner>,
    fid: Fid,
}

impl Unlocking {
    fn begin(inner: &Rc<Inner>, fid: Fid) -> Self {
        *inner.mdt.locks.unlocking.borrow_mut().entry(fid).or_default() += 1;
        Self { inner: inner.clone(), fid }
    }
}

impl Drop for Unlocking {
    fn drop(&mut self) {
        let mut unlocking = self.inner.mdt.locks.unlocking.borrow_mut();
        if let Some(count) = unlocking.get_mut(&self.fid) {
            *count -= 1;
            if *count == 0 {
                unlocking.remove(&self.fid);
            }
        }
        drop(unlocking);
        self.inner.mdt.locks.unlocked.notify_waiters();
    }
}

impl Inner {
    /// Returns when no locks of the file are being let go of by a close.
    async fn unlocked(&self, fid: Fid) {
        loop {
            let ended = self.mdt.locks.unlocked.notified();
            if !self.mdt.locks.unlocking.borrow().contains_key(&fid) {
                return;
            }
            ended.await;
        }
    }

    fn locks_of(&self, fid: Fid) -> Vec<LockSpec> {
        let locks = self.mdt.locks.held.borrow();
        locks.get(&fid).into_iter().flat_map(|list| list.iter()).map(|((), lock)| lock.clone()).collect()
    }

    fn ends_exclusive(&self, fid: Fid, lock: &LockSpec) -> bool {
        self.mdt.locks.held.borrow().get(&fid).is_some_and(|list| list.ends_exclusive((), lock))
    }

    fn is_conversion(&self, fid: Fid, lock: &LockSpec) -> bool {
        self.mdt.locks.held.borrow().get(&fid).is_some_and(|list| list.is_conversion((), lock))
    }

    fn remember_lock(&self, fid: Fid, lock: &LockSpec) {
        let mut locks = self.mdt.locks.held.borrow_mut();
        let list = locks.entry(fid).or_default();
        list.set((), lock);
        if list.is_empty() {
            locks.remove(&fid);
        }
    }

    /// Locks to bring back after a restart of the MDT, ordered.
    pub fn locks_to_reclaim(&self) -> Vec<HeldLock> {
        let locks = self.mdt.locks.held.borrow();
        let of_file = |(fid, list): (&Fid, &forebay_proto::LockList<()>)| {
            list.iter().map(|((), lock)| HeldLock { fid: *fid, lock: lock.clone() }).collect::<Vec<_>>()
        };
        locks.iter().flat_map(of_file).collect()
    }

    /// The MDT has ended the session, and with it all locks: the handles they were set through are good for nothing more.
    pub fn lose_locks(self: &Rc<Self>) {
        let lost = self.mdt.locks.held.take();
        for handle in lost.values().flat_map(|list| list.iter()).map(|((), lock)| lock.handle) {
            if let Some(file) = self.open_handles().into_iter().find(|file| file.handle() == handle) {
                file.lose_lock();
            }
        }
    }
}

impl OpenFile {
    /// A lock is of no use through a handle that lost one.
    fn check_lock(&self) -> ClientResult<()> {
        if self.has_lost_lock() { Err(Errno::EIO.into()) } else { Ok(()) }
    }
}
