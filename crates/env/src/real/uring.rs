//! A device on io_uring, driven by the shard that uses it: no other thread, and no change of threads.
//!
//! A request waits until the ready tasks have had their turn. Then one io_uring_enter submits all waiting requests and
//! takes the completions. The ring's eventfd wakes the shard for completions.
//!
//! Invariant: requests go to the kernel in the order in which they were made.
//! Invariant: memory named in a submitted entry lives until its completion, also in a panic (it leaks then).

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
};

use io_uring::{IoUring, opcode, squeue, types};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    device::Device,
    device_queue::eventfd,
    open::OpenedDisk,
    transfer::{Call, Request, Transfer},
};
use crate::{
    EnvResult,
    limits::{DEVICE_QUEUE_DEPTH, DEVICE_REQUESTS},
    sync::Notify,
};

/// `IORING_ENTER_GETEVENTS`: also run the work that the kernel deferred to this thread.
const GET_EVENTS: u32 = 1;

/// Entries of the ring: enough for all transfers, so that a push never fails.
const ENTRIES: u32 = (DEVICE_QUEUE_DEPTH as u32).next_power_of_two();

/// A device whose requests this shard passes to the kernel itself.
pub(super) struct UringDevice {
    pub(super) device: Device,
    /// None once it is closed.
    state: RefCell<Option<State>>,
    wanted: Notify,
}

struct State {
    ring: IoUring,
    /// The ring reports whether the kernel has deferred work to this thread.
    tells: bool,
    places: Places,
    waiting: VecDeque<Request>,
    disk: OpenedDisk,
}

/// A completed transfer, and its result.
type Finished = (Transfer, io::Result<()>);

/// A ring for one thread, with the options that newer kernels have for that. True if it then also reports whether it
/// has deferred work. Must be created by that thread.
fn ring() -> io::Result<(IoUring, bool)> {
    let single = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(ENTRIES);
    single.map(|ring| (ring, true)).or_else(|_| Ok((IoUring::new(ENTRIES)?, false)))
}

/// A ring, and the descriptor that reports its completions.
fn ring_and_wake() -> io::Result<(IoUring, bool, AsyncFd<OwnedFd>)> {
    let ((ring, tells), wake) = (ring()?, eventfd(libc::EFD_NONBLOCK)?);
    ring.submitter().register_eventfd(wake.as_raw_fd())?;
    // SAFETY: an owned descriptor stays valid until it is dropped.
    let wake = unsafe { AsyncFd::register_with_interest(wake, Interest::READABLE) };
    Ok((ring, tells, wake.map_err(io::Error::from)?))
}

impl UringDevice {
    /// Starts to serve `disk` with a task of this shard; returns it if the kernel refuses io_uring.
    pub(super) fn start(device: Device, disk: OpenedDisk) -> Result<Rc<Self>, OpenedDisk> {
        let Ok((ring, tells, wake)) = ring_and_wake() else { return Err(disk) };
        let state = State { ring, tells, places: Places::new(), waiting: VecDeque::new(), disk };
        let this = Rc::new(Self { device, state: RefCell::new(Some(state)), wanted: Notify::new() });
        drop(tokio::task::spawn_local(this.clone().drive(wake)));
        Ok(this)
    }

    /// Queues a request.
    pub(super) fn submit(&self, request: Request) -> EnvResult<()> {
        let mut state = self.state.borrow_mut();
        match &mut *state {
            Some(state) if state.waiting.len() < DEVICE_REQUESTS => state.waiting.push_back(request),
            state => return Err(self.device.crowded(state.as_ref().map_or(0, |state| state.waiting.len()))),
        }
        self.wanted.notify_one();
        Ok(())
    }

    /// Waits, without yielding to other tasks, until everything queued is done; then closes the device.
    pub(super) fn close(&self) {
        while !self.state.borrow().as_ref().is_none_or(State::is_idle) {
            self.turn(1);
        }
        drop(self.state.take());
        self.wanted.notify_one();
    }

    async fn drive(self: Rc<Self>, wake: AsyncFd<OwnedFd>) {
        while self.state.borrow().is_some() {
            crate::sync::select! {
                biased;
                () = self.wanted.notified() => {}
                // The count is never read: every completion is a new edge.
                ready = wake.readable() => match ready {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
            }
            self.turn(0);
        }
    }

    /// Submits waiting requests, takes completions (at least `wait_for`, if that many are in flight), and replies.
    fn turn(&self, wait_for: usize) {
        let mut finished = Vec::new();
        if let Some(state) = &mut *self.state.borrow_mut() {
            state.turn(wait_for, &self.device, &mut finished);
        }
        for (transfer, result) in finished {
            transfer.finish(&self.device, result);
        }
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.places.is_empty()
    }

    fn turn(&mut self, mut wait_for: usize, device: &Device, finished: &mut Vec<Finished>) {
        if wait_for == 0 && self.has_nothing_to_do() {
            return;
        }
        loop {
            self.start_waiting(finished);
            self.enter(wait_for.min(self.places.taken()), device);
            self.complete(finished);
            // Freed places take waiting requests; a short transfer goes on.
            let more = !self.places.is_full() && !self.waiting.is_empty();
            if !more && self.ring.submission().is_empty() {
                return;
            }
            wait_for = 0;
        }
    }

    /// True if there is nothing to do: the wake-up may be for completions that an earlier turn has already taken.
    fn has_nothing_to_do(&mut self) -> bool {
        let deferred = !self.tells || self.ring.submission().taskrun();
        self.waiting.is_empty() && !deferred && self.ring.completion().is_empty()
    }

    fn start_waiting(&mut self, finished: &mut Vec<Finished>) {
        while !self.places.is_full()
            && let Some(request) = self.waiting.pop_front()
        {
            let transfer = Transfer::new(request, self.disk.direct);
            if transfer.is_empty() {
                finished.push((transfer, Ok(())));
                continue;
            }
            let place = self.places.put(transfer);
            self.push(place);
        }
    }

    fn push(&mut self, place: usize) {
        let transfer = self.places.get(place);
        let fd = types::Fd(self.disk.file.as_raw_fd());
        let (vectors, count) = (transfer.vectors().as_ptr(), transfer.vectors().len() as u32);
        let offset = transfer.offset;
        let entry: squeue::Entry = match transfer.call {
            Call::Read => opcode::Readv::new(fd, vectors, count).offset(offset).build(),
            Call::Write => opcode::Writev::new(fd, vectors, count).offset(offset).build(),
            Call::DurableWrite => {
                opcode::Writev::new(fd, vectors, count).offset(offset).rw_flags(libc::RWF_DSYNC).build()
            }
            Call::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        // SAFETY: the memory that the entry names is owned by `places` until the completion is seen.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(place as u64)) };
        pushed.expect("the ring has an entry for every place");
    }

    fn enter(&mut self, wait_for: usize, device: &Device) {
        let count = self.ring.submission().len() as u32;
        // SAFETY: no memory is passed besides the entries, see `push`.
        let entered =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(count, wait_for as u32, GET_EVENTS, None) };
        match entered {
            Ok(_) => {}
            // Interrupted, or short of memory for a moment: entries that were not submitted are still queued.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(e) => panic!("io_uring of {} failed: {e}", device.path),
        }
    }

    fn complete(&mut self, finished: &mut Vec<Finished>) {
        while let Some((place, answer)) = self.next_completion() {
            let answer = usize::try_from(answer).map_err(|_| io::Error::from_raw_os_error(-answer));
            match self.places.get(place).take_answer(answer) {
                Some(result) => finished.push((self.places.take(place), result)),
                None => self.push(place),
            }
        }
    }

    fn next_completion(&mut self) -> Option<(usize, i32)> {
        self.ring.completion().next().map(|entry| (entry.user_data() as usize, entry.result()))
    }
}

/// The transfers in flight.
struct Places {
    transfers: Vec<Option<Transfer>>,
    free: Vec<usize>,
}

impl Places {
    fn new() -> Self {
        Self {
            transfers: (0..DEVICE_QUEUE_DEPTH).map(|_| None).collect(),
            free: (0..DEVICE_QUEUE_DEPTH).rev().collect(),
        }
    }

    fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.taken() == 0
    }

    fn taken(&self) -> usize {
        self.transfers.len() - self.free.len()
    }

    fn put(&mut self, transfer: Transfer) -> usize {
        let place = self.free.pop().expect("the caller asked is_full");
        self.transfers[place] = Some(transfer);
        place
    }

    fn get(&mut self, place: usize) -> &mut Transfer {
        self.transfers[place].as_mut().expect("a completion has a transfer")
    }

    fn take(&mut self, place: usize) -> Transfer {
        self.free.push(place);
        self.transfers[place].take().expect("a completion has a transfer")
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // Only a panic leaves transfers here; the kernel may still use their memory.
        self.transfers.drain(..).for_each(std::mem::forget);
    }
}
