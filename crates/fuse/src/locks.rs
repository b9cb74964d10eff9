//! flock(2), fcntl(2) locks and locks of open file descriptions. The MDT keeps them, so they hold across mounts.
//!
//! Interrupts do not arrive with the requests. So the mount reads from /proc whether a thread that waits for a lock has
//! a pending signal. Then the wait ends at once with EINTR, as nothing was changed yet. For a thread in another pid
//! namespace only the kernel's own interrupt shows it. While the mount waits for a reply of the MDT, only a killed
//! thread stops waiting.
//!
//! A lock ends with the descriptor of the process that set it (FLUSH names the owner) or with the open file description
//! (RELEASE), whichever comes first.

use std::{cell::Cell, rc::Rc};

use forebay_client::{ClientResult, LockOutcome, LockSpec, OpenFile, lock_kind, lock_mode};
use forebay_proto::Errno;
use fuser::FileHandle;

use crate::{limits, server::Server, signals};

/// A request for a lock, in the kernel's terms.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub owner: u64,
    pub start: u64,
    pub end: u64,
    /// F_RDLCK, F_WRLCK, F_UNLCK.
    pub kind: i32,
    /// Set by flock(2), which never conflicts with fcntl(2) locks.
    pub flock: bool,
    /// The process that F_GETLK reports as the holder.
    pub pid: u32,
    /// The thread that waits for the reply.
    pub thread: u32,
}

/// A conflicting lock, as F_GETLK reports it; kind F_UNLCK: none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub start: u64,
    pub end: u64,
    pub kind: i32,
    pub pid: u32,
}

/// Last byte of a lock of the whole file.
const WHOLE_FILE_END: u64 = i64::MAX as u64;

impl Wanted {
    fn spec(&self) -> ClientResult<LockSpec> {
        let kind = if self.flock { lock_kind::FLOCK } else { lock_kind::FCNTL };
        let mode = match self.kind {
            libc::F_RDLCK => lock_mode::SHARED,
            libc::F_WRLCK => lock_mode::EXCLUSIVE,
            libc::F_UNLCK => lock_mode::NONE,
            _ => return Err(Errno::EINVAL.into()),
        };
        let (owner, start, end, pid) = (self.owner, self.start, self.end.min(WHOLE_FILE_END), self.pid);
        Ok(LockSpec { kind, owner, mode, start, end, pid, handle: 0 })
    }
}

impl Server {
    /// `wait`: wait until no lock conflicts. `signal`: the kernel has reported a signal. Errors: EAGAIN, EINTR, ENOLCK.
    pub async fn set_lock(
        &self,
        handle: FileHandle,
        wanted: Wanted,
        wait: bool,
        signal: impl Fn() -> bool,
    ) -> ClientResult<()> {
        let file = self.file(handle)?.file().await?;
        let lock = wanted.spec()?;
        let (thread, is_killed) = (wanted.thread, || signals::is_killed(wanted.thread));
        let has_signal = || signals::is_interrupted(thread) || thread == 0 && signal();
        while self.try_or_signal(&file, &lock, &is_killed).await? == LockOutcome::Denied {
            if !wait {
                return Err(Errno::EAGAIN.into());
            }
            self.or_signal(self.client.wait_for_lock(&file, &lock), &has_signal).await?;
        }
        Ok(())
    }

    /// One attempt. It is abandoned only for a thread that `ends`. The MDT may grant the lock afterwards: then it is
    /// released again.
    async fn try_or_signal(
        &self,
        file: &OpenFile,
        lock: &LockSpec,
        ends: &impl Fn() -> bool,
    ) -> ClientResult<LockOutcome> {
        let (client, of, wanted) = (self.client.clone(), file.clone(), lock.clone());
        let given_up = Rc::new(Cell::new(false));
        let late = given_up.clone();
        let attempt = self.env.spawn(async move {
            let outcome = client.try_lock(&of, wanted.clone()).await;
            if late.get() && outcome == Ok(LockOutcome::Granted) && wanted.mode != lock_mode::NONE {
                let _ = client.try_lock(&of, LockSpec { mode: lock_mode::NONE, ..wanted }).await;
            }
            outcome
        });
        let tried = self.or_signal(async { attempt.await.unwrap_or(Err(Errno::EIO.into())) }, ends).await;
        given_up.set(true);
        tried
    }

    pub async fn test_lock(&self, handle: FileHandle, wanted: Wanted) -> ClientResult<Found> {
        let file = self.file(handle)?.file().await?;
        let holder = self.client.test_lock(&file, wanted.spec()?).await?;
        Ok(holder.map_or(Found { start: 0, end: 0, kind: libc::F_UNLCK, pid: 0 }, |lock| Found {
            start: lock.start,
            end: lock.end,
            kind: if lock.mode == lock_mode::EXCLUSIVE { libc::F_WRLCK } else { libc::F_RDLCK },
            pid: lock.pid,
        }))
    }

    /// Waits for `wait`, or until `ends` is true for the thread (EINTR).
    async fn or_signal<T>(
        &self,
        wait: impl Future<Output = ClientResult<T>>,
        ends: &impl Fn() -> bool,
    ) -> ClientResult<T> {
        let mut wait = std::pin::pin!(wait);
        loop {
            if let Ok(ended) = self.env.timeout(limits::SIGNAL_INTERVAL, wait.as_mut()).await {
                return ended;
            }
            if ends() {
                return Err(Errno::EINTR.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_worded_as_the_protocol_has_them() {
        let wanted = Wanted { owner: 5, start: 0, end: u64::MAX, kind: libc::F_WRLCK, flock: true, pid: 6, thread: 7 };
        let spec = wanted.spec().expect("a lock");
        assert_eq!(spec.kind, lock_kind::FLOCK);
        assert_eq!((spec.mode, spec.end, spec.owner, spec.pid), (lock_mode::EXCLUSIVE, WHOLE_FILE_END, 5, 6));
        assert!(Wanted { kind: 77, ..wanted }.spec().is_err());
    }
}
