//! What shards and a device's thread share: the queue of requests, and the device's state.
//!
//! Invariant: a request is seen by the thread without anybody's further help: either the thread is awake and will look
//! before it sleeps, or the shard that queued the request wakes it.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::transfer::Request;
use crate::{EnvError, EnvErrorKind, EnvResult, limits::DEVICE_REQUESTS};

pub(super) struct Device {
    pub(super) path: String,
    queue: Mutex<Queue>,
    wake: OwnedFd,
    flush_failed: AtomicBool,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    /// The thread sleeps, or is about to without looking again.
    asleep: bool,
    closed: bool,
}

impl Device {
    pub(super) fn new(path: &str) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let wake = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { path: path.to_string(), queue: Mutex::default(), wake, flush_failed: AtomicBool::new(false) })
    }

    /// Queues a request, and wakes the thread if it sleeps.
    pub(super) fn submit(&self, request: Request) -> EnvResult<()> {
        let mut queue = self.lock();
        if queue.closed || queue.requests.len() >= DEVICE_REQUESTS {
            let message = format!("{} takes no more requests: {DEVICE_REQUESTS} are waiting, or it closed", self.path);
            return Err(EnvError::new(EnvErrorKind::Other, message));
        }
        queue.requests.push_back(request);
        self.unlock_and_wake(queue);
        Ok(())
    }

    /// The thread ends when it has answered what was queued.
    pub(super) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        self.unlock_and_wake(queue);
    }

    /// The thread is gone: drops what is queued, which tells the shards, and takes nothing more.
    pub(super) fn abandon(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let requests = std::mem::take(&mut queue.requests);
        drop(queue);
        drop(requests);
    }

    /// Moves all queued requests to `taken`; true if the queue is closed.
    pub(super) fn take(&self, taken: &mut VecDeque<Request>) -> bool {
        let mut queue = self.lock();
        queue.asleep = false;
        taken.append(&mut queue.requests);
        queue.closed
    }

    /// Says that the thread will sleep until it is woken; false, and it must look again, if there is something to do.
    pub(super) fn fall_asleep(&self, seen_closed: bool) -> bool {
        let mut queue = self.lock();
        queue.asleep = queue.requests.is_empty() && queue.closed == seen_closed;
        queue.asleep
    }

    /// The eventfd that becomes readable when the thread is woken.
    pub(super) fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    pub(super) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes.
        let n = unsafe { libc::write(self.wake_fd(), one.as_ptr().cast(), one.len()) };
        assert_eq!(n, 8, "an eventfd takes a one");
    }

    pub(super) fn fail_flushes(&self) {
        self.flush_failed.store(true, Ordering::Release);
    }

    /// An error once a flush has failed: what was written since the last good one is in doubt for ever.
    pub(super) fn check_flushed(&self) -> EnvResult<()> {
        if !self.flush_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let message = format!("an earlier flush of {} failed; stop using it and check the device", self.path);
        Err(EnvError::new(EnvErrorKind::FlushFailed, message))
    }

    fn unlock_and_wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let asleep = std::mem::take(&mut queue.asleep);
        drop(queue);
        if asleep {
            self.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
