//! The queue of requests between a shard and a device's thread.
//!
//! Invariant: the thread finds every request without further help. Either it is awake and checks the queue before it
//! sleeps, or the shard that queued the request wakes it.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{device::Device, transfer::Request};
use crate::{EnvResult, limits::DEVICE_REQUESTS};

pub(super) struct DeviceQueue {
    pub(super) device: Device,
    queue: Mutex<Queue>,
    wake: OwnedFd,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    /// The thread sleeps, or is about to without checking again.
    asleep: bool,
    closed: bool,
}

impl DeviceQueue {
    pub(super) fn new(path: &str) -> io::Result<Self> {
        let wake = eventfd(0)?;
        Ok(Self { device: Device::new(path), queue: Mutex::default(), wake })
    }

    /// Queues a request, and wakes the thread if it sleeps.
    pub(super) fn submit(&self, request: Request) -> EnvResult<()> {
        let mut queue = self.lock();
        if queue.closed || queue.requests.len() >= DEVICE_REQUESTS {
            return Err(self.device.crowded(queue.requests.len()));
        }
        queue.requests.push_back(request);
        self.unlock_and_wake(queue);
        Ok(())
    }

    /// The thread ends once it has served what is queued.
    pub(super) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        self.unlock_and_wake(queue);
    }

    /// The thread has ended: drops what is queued, which notifies the shards, and accepts nothing more.
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

    /// Declares that the thread will sleep until it is woken. False if there is something to do: then it must check
    /// again.
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

/// A new eventfd.
pub(super) fn eventfd(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
