//! FUSE over io_uring: the kernel puts requests into entries, and takes replies out of them, when the shard enters the
//! ring.
//!
//! There is a queue for each processor, for the requests of programs on that processor; one ring has the entries of
//! all. A turn of the shard submits all waiting replies and takes all requests that arrived, with one system call. An
//! entry belongs to the kernel, or to us while it has a request that is not replied to.
//!
//! Invariant: an entry's memory is accessed only while the entry is ours; it lives as long as the ring.
//! Invariant: a queue with more than half of its entries in use registers more, if the caller allows it. So requests
//! that wait for one another (locks) do not run out of entries.
//! Not here: the meaning of requests. Requests without a reply, and interrupts of others, arrive through `/dev/fuse`.
//! Source: Documentation/filesystems/fuse/fuse-io-uring.rst of Linux.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
};

use bytes::Bytes;
use io_uring::{IoUring, opcode, squeue, types};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    Descriptor,
    busy_poll::{self, Look},
    device_queue::eventfd,
    fuse_memory::{EntryMemory, FuseHead},
};
use crate::{Arena, limits, sync::Notify};

/// `FUSE_IO_URING_CMD_REGISTER`: registers an entry.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: submits a reply and frees the entry.
const COMMIT_AND_FETCH: u32 = 2;
/// `IORING_ENTER_GETEVENTS`: also run the work that the kernel deferred to this thread.
const GET_EVENTS: u32 = 1;
/// Offset of `len` in `struct io_uring_sqe`.
const SQE_LEN_AT: usize = 24;

type Ring = IoUring<squeue::Entry128>;

/// See the module.
pub struct FuseRing {
    state: RefCell<State>,
    wake: AsyncFd<OwnedFd>,
    wanted: Notify,
}

struct State {
    ring: Ring,
    /// The kernel's file of the mount; none before there are entries.
    file: Option<Rc<Descriptor>>,
    payload_bytes: usize,
    entries: Vec<Entry>,
    queues: Vec<Queue>,
    /// Entries that are not gone.
    alive: usize,
    /// Entries with requests that were not returned to the caller yet.
    came: Vec<usize>,
    /// The error with which the kernel removed the first of the entries that are gone.
    refused: Option<i32>,
}

/// Entries of one processor.
#[derive(Default)]
struct Queue {
    registered: usize,
    ours: usize,
}

struct Entry {
    memory: EntryMemory,
    queue: u16,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Kernels,
    /// It has a request with this id.
    Ours {
        commit_id: u64,
    },
    Gone,
}

impl Entry {
    fn is_ours(&self) -> bool {
        matches!(self.stage, Stage::Ours { .. })
    }
}

impl FuseRing {
    /// A ring of this shard for requests and replies of up to `payload_bytes`, without entries so far.
    pub fn new(payload_bytes: usize) -> io::Result<Rc<Self>> {
        let mut builder = IoUring::<squeue::Entry128>::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        builder.setup_cqsize(limits::FUSE_RING_COMPLETIONS);
        let (ring, wake) = (builder.build(limits::FUSE_RING_SUBMISSIONS)?, eventfd(libc::EFD_NONBLOCK)?);
        ring.submitter().register_eventfd(wake.as_raw_fd())?;
        // SAFETY: an owned descriptor stays valid until it is dropped.
        let wake = unsafe { AsyncFd::register_with_interest(wake, Interest::READABLE) }.map_err(io::Error::from)?;
        let (entries, queues) = (Vec::new(), Vec::new());
        let (came, refused) = (Vec::new(), None);
        let state = State { ring, file: None, payload_bytes, entries, queues, alive: 0, came, refused };
        let state = RefCell::new(state);
        let this = Rc::new(Self { state, wake, wanted: Notify::new() });
        let look: Rc<dyn Look> = this.clone();
        busy_poll::add(&look);
        Ok(this)
    }

    /// Registers the first entries of all queues with the mount of `file`, which has agreed to it.
    pub fn begin(&self, file: &Rc<Descriptor>) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        state.file = Some(file.clone());
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let queues = count(possible.trim()).and_then(|count| u16::try_from(count).ok());
        let queues = queues.ok_or_else(|| io::Error::other(format!("{possible:?} are no processors")))?;
        for queue in 0..queues {
            state.queues.push(Queue::default());
            state.register(queue, limits::FUSE_RING_ENTRIES)?;
        }
        state.enter()?;
        state.take();
        state.refused.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }

    /// Waits for requests; returns their entries. With `may_grow`, queues that run short of entries register more.
    /// ENOTCONN: the mount is gone.
    pub async fn arrived(&self, may_grow: bool) -> io::Result<Vec<usize>> {
        loop {
            let came = self.state.borrow_mut().turn(may_grow)?;
            if !came.is_empty() {
                return Ok(came);
            }
            // While the shard busy-polls, it needs no wake-up.
            if !busy_poll::is_polling() {
                let mut state = self.state.borrow_mut();
                state.ring.completion().enable_eventfd();
                // What arrived before that has woken nobody.
                state.enter()?;
                if state.has_something() {
                    continue;
                }
            }
            crate::sync::select! {
                biased;
                () = self.wanted.notified() => {}
                // The count is never read: every completion is a new edge.
                ready = self.wake.readable() => ready?.clear_ready(),
            }
        }
    }

    /// The headers that the kernel wrote for the request in `place`.
    pub fn head(&self, place: usize) -> FuseHead {
        let state = self.state.borrow();
        state.ours(place).map_or(FuseHead([0; _]), |entry| entry.memory.head())
    }

    /// Appends the payload of the request in `place` to `to`. False if no request can be that long.
    pub fn read(&self, place: usize, len: usize, to: &mut Vec<u8>) -> bool {
        self.state.borrow().ours(place).is_some_and(|entry| entry.memory.read(len, to))
    }

    /// A copy of the payload of the request in `place`, in memory of `arena`. None if no request can be that long.
    pub fn take(&self, place: usize, len: usize, arena: &mut Arena) -> Option<Bytes> {
        let state = self.state.borrow();
        state.ours(place)?.memory.read_to_arena(len, arena).then(|| arena.take(len))
    }

    /// Replies to the request in `place`. False if the mount is gone, or the reply is too long.
    pub fn answer(&self, place: usize, header: &[u8], parts: &[IoSlice<'_>]) -> bool {
        let answered = self.state.borrow_mut().answer(place, header, parts);
        self.wanted.notify_one();
        answered
    }

    /// Whether any entries are registered and not gone.
    pub fn is_alive(&self) -> bool {
        self.state.borrow().alive > 0
    }
}

impl Look for FuseRing {
    fn look(&self, last: bool) {
        let Ok(mut state) = self.state.try_borrow_mut() else { return };
        if last || state.has_something() {
            self.wanted.notify_one();
        }
    }
}

impl State {
    fn ours(&self, place: usize) -> Option<&Entry> {
        self.entries.get(place).filter(|entry| entry.is_ours())
    }

    fn has_something(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// Submits waiting replies, takes requests that arrived.
    fn turn(&mut self, may_grow: bool) -> io::Result<Vec<usize>> {
        self.ring.completion().disable_eventfd();
        if self.has_something() || !self.ring.submission().is_empty() {
            self.enter()?;
        }
        self.take();
        if self.alive == 0 {
            return Err(io::Error::from_raw_os_error(self.refused.unwrap_or(libc::ENOTCONN)));
        }
        for queue in 0..self.queues.len() {
            let Queue { registered, ours } = self.queues[queue];
            // If there is no memory for more, requests wait for a reply to one of these.
            if may_grow && 2 * ours > registered && self.register(queue as u16, registered).is_ok() {
                self.enter()?;
            }
        }
        Ok(std::mem::take(&mut self.came))
    }

    fn take(&mut self) {
        let mut smallest = usize::MAX;
        loop {
            let next = self.ring.completion().next().map(|next| (next.user_data() as usize, next.result()));
            let Some((place, result)) = next else { break };
            let Some(entry) = self.entries.get_mut(place).filter(|entry| entry.stage == Stage::Kernels) else {
                continue;
            };
            if result < 0 {
                entry.stage = Stage::Gone;
                self.refused = self.refused.or(Some(-result));
                self.alive -= 1;
                self.queues[usize::from(entry.queue)].registered -= 1;
                continue;
            }
            let head = entry.memory.head();
            entry.stage = Stage::Ours { commit_id: head.commit_id() };
            self.queues[usize::from(entry.queue)].ours += 1;
            smallest = smallest.min(head.payload_bytes());
            self.came.push(place);
        }
        if smallest < usize::MAX {
            busy_poll::message(smallest);
        }
    }

    fn register(&mut self, queue: u16, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let (memory, place) = (EntryMemory::new(self.payload_bytes)?, self.entries.len());
            let vectors = memory.vectors();
            let (address, segments) = (vectors.as_ptr() as u64, vectors.len() as u32);
            self.entries.push(Entry { memory, queue, stage: Stage::Kernels });
            self.queues[usize::from(queue)].registered += 1;
            self.alive += 1;
            let mut entry = self.command(REGISTER, 0, queue, Some(address), place);
            // SAFETY: the entry is a `struct io_uring_sqe` (repr(C), with the system's layout), longer than this.
            unsafe { (&raw mut entry).byte_add(SQE_LEN_AT).cast::<u32>().write(segments) };
            self.push(&entry)?;
        }
        Ok(())
    }

    fn answer(&mut self, place: usize, header: &[u8], parts: &[IoSlice<'_>]) -> bool {
        let Some(entry) = self.entries.get_mut(place) else { return false };
        let Stage::Ours { commit_id } = entry.stage else { return false };
        if !entry.memory.write(header, parts) {
            return false;
        }
        let queue = entry.queue;
        entry.stage = Stage::Kernels;
        self.queues[usize::from(queue)].ours -= 1;
        let entry = self.command(COMMIT_AND_FETCH, commit_id, queue, None, place);
        self.push(&entry).is_ok()
    }

    fn command(&self, what: u32, commit_id: u64, queue: u16, address: Option<u64>, place: usize) -> squeue::Entry128 {
        // `struct fuse_uring_cmd_req`: flags, commit id, queue.
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        command[16..18].copy_from_slice(&queue.to_ne_bytes());
        let fd = types::Fd(self.file.as_ref().expect("entries have a file").raw());
        opcode::UringCmd80::new(fd, what).cmd(command).addr(address).build().user_data(place as u64)
    }

    fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.enter()?;
        }
        // SAFETY: the memory that it names lives as long as the ring.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::from_raw_os_error(libc::ENOBUFS))
    }

    fn enter(&mut self) -> io::Result<()> {
        let count = self.ring.submission().len() as u32;
        // SAFETY: no memory is passed besides the entries, see `push`.
        match unsafe { self.ring.submitter().enter::<libc::sigset_t>(count, 0, GET_EVENTS, None) } {
            Ok(_) => Ok(()),
            // Interrupted, or short of memory for a moment: entries that were not submitted are still queued.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Number of processors in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let mut total = 0usize;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        total = total.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_in_ranges_or_not_at_all() {
        assert_eq!((count("0"), count("0-1"), count("0-3,8-11,15")), (Some(1), Some(2), Some(9)));
        for wrong in ["", "a", "3-1", "0-", "0-18446744073709551615", "0,,1"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_ring_without_a_mount_answers_nothing_and_ends() {
        crate::real::run(async |_| {
            let Ok(ring) = FuseRing::new(1 << 20) else { return eprintln!("no io_uring here: skipped") };
            assert!(!ring.answer(0, &[0; 16], &[]) && !ring.is_alive());
            assert!(!ring.read(0, 0, &mut Vec::new()) && ring.take(0, 0, &mut Arena::new(4096)).is_none());
            assert!(ring.arrived(true).await.is_err());
        });
    }

    #[test]
    fn a_file_that_is_no_mount_is_refused() {
        crate::real::run(async |_| {
            let Ok(ring) = FuseRing::new(1 << 20) else { return eprintln!("no io_uring here: skipped") };
            let no_mount = Rc::new(Descriptor::new(eventfd(libc::EFD_NONBLOCK).expect("an eventfd")).expect("adopted"));
            assert!(ring.begin(&no_mount).is_err());
        });
    }
}
