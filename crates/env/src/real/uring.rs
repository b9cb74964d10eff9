//! A device's thread on io_uring.
//!
//! One io_uring_enter submits all that is queued and waits for both completions and new requests: a read of the queue's
//! eventfd is always in flight beside the transfers.
//!
//! Invariant: memory named in a submitted entry lives until its completion, also in a panic (it leaks then).

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, RawFd},
};

use io_uring::{IoUring, opcode, squeue, types};

use super::{
    device_queue::Device,
    open::OpenedDisk,
    transfer::{Call, Request, Transfer},
};
use crate::limits::DEVICE_QUEUE_DEPTH;

/// `user_data` of the eventfd's read; transfers have their place's number.
const WAKE: u64 = u64::MAX;

/// Entries of the ring: all transfers and the eventfd's read, so that a push never fails.
const ENTRIES: u32 = (DEVICE_QUEUE_DEPTH as u32 + 1).next_power_of_two();

/// A ring for one thread, with what newer kernels do for one thread alone. Must be made by that thread.
pub(super) fn ring() -> io::Result<IoUring> {
    let single = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
    single.or_else(|_| IoUring::new(ENTRIES))
}

/// Serves requests until the queue is closed and empty.
pub(super) fn serve(device: &Device, disk: &OpenedDisk, ring: IoUring) {
    let mut server = Server {
        device,
        fd: disk.file.as_raw_fd(),
        direct: disk.direct,
        places: Places::new(),
        wake: Box::new([0; 8]),
        wake_armed: false,
        ring,
    };
    server.serve();
    server.disarm_wake();
}

struct Server<'a> {
    device: &'a Device,
    fd: RawFd,
    direct: bool,
    ring: IoUring,
    places: Places,
    /// Where the eventfd's count is read to.
    wake: Box<[u8; 8]>,
    wake_armed: bool,
}

impl Server<'_> {
    fn serve(&mut self) {
        let mut waiting: VecDeque<Request> = VecDeque::new();
        loop {
            let closed = self.device.take(&mut waiting);
            while !self.places.is_full()
                && let Some(request) = waiting.pop_front()
            {
                self.start(Transfer::new(request, self.direct));
            }
            if closed && waiting.is_empty() && self.places.is_empty() {
                return;
            }
            self.arm_wake();
            // With all places taken only a completion helps; else sleep unless something was queued meanwhile.
            let sleeps = !waiting.is_empty() || self.device.fall_asleep(closed);
            self.enter(usize::from(sleeps));
            self.complete();
        }
    }

    fn start(&mut self, transfer: Transfer) {
        if transfer.is_empty() {
            return transfer.finish(self.device, Ok(()));
        }
        let place = self.places.put(transfer);
        self.submit(place);
    }

    fn submit(&mut self, place: usize) {
        let transfer = self.places.get(place);
        let fd = types::Fd(self.fd);
        let (vectors, count) = (transfer.vectors().as_ptr(), transfer.vectors().len() as u32);
        let offset = transfer.offset;
        let entry = match transfer.call {
            Call::Read => opcode::Readv::new(fd, vectors, count).offset(offset).build(),
            Call::Write => opcode::Writev::new(fd, vectors, count).offset(offset).build(),
            Call::DurableWrite => {
                opcode::Writev::new(fd, vectors, count).offset(offset).rw_flags(libc::RWF_DSYNC).build()
            }
            Call::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        self.push(&entry.user_data(place as u64));
    }

    fn arm_wake(&mut self) {
        if !self.wake_armed {
            self.wake_armed = true;
            let fd = types::Fd(self.device.wake_fd());
            let entry = opcode::Read::new(fd, self.wake.as_mut_ptr(), self.wake.len() as u32).build();
            self.push(&entry.user_data(WAKE));
        }
    }

    /// Ends the eventfd's read, so that the kernel has nothing of ours any more.
    fn disarm_wake(&mut self) {
        if self.wake_armed {
            self.device.wake();
        }
        while self.wake_armed {
            self.enter(1);
            self.complete();
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory that the entry names is owned by `places` or `wake` until the completion is seen.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the ring has an entry for every place and the wake");
    }

    fn enter(&self, wait_for: usize) {
        match self.ring.submit_and_wait(wait_for) {
            Ok(_) => {}
            // Interrupted, or short of memory for a moment: what was not submitted is still queued.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(e) => panic!("io_uring of {} failed: {e}", self.device.path),
        }
    }

    fn complete(&mut self) {
        while let Some((place, answer)) = self.next_completion() {
            if place == WAKE {
                self.wake_armed = false;
                continue;
            }
            let place = place as usize;
            let answer = usize::try_from(answer).map_err(|_| io::Error::from_raw_os_error(-answer));
            match self.places.get(place).take_answer(answer) {
                Some(result) => self.places.take(place).finish(self.device, result),
                None => self.submit(place),
            }
        }
    }

    fn next_completion(&mut self) -> Option<(u64, i32)> {
        self.ring.completion().next().map(|entry| (entry.user_data(), entry.result()))
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
        self.free.len() == self.transfers.len()
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
