//! Reads requests from the kernel, on the shard.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io::{self, IoSlice, IoSliceMut},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{Arena, Env, real::Descriptor, sync::Notify};

use super::{
    Filesystem,
    dispatch::{self, HEADER_BYTES, Header, WRITE_HEADER_BYTES},
    reply,
};
use crate::{limits, signals};

/// The mount's descriptor, and what is to be answered over it.
pub(super) struct Device {
    env: Env,
    descriptor: Descriptor,
    /// Requests without an answer so far.
    open: RefCell<BTreeMap<u64, Waiter>>,
    /// Those of them that are bounded.
    bounded: Cell<usize>,
    answered: Notify,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    /// This thread (0: none that can be seen), which need not wait once it is killed.
    Thread(u32),
    /// Who wants a lock. It looks for signals itself: a lock that came later would be nobody's. It may wait for another
    /// program's unlock, so it does not count when requests are too many for that one to be read.
    Locker,
}

impl Device {
    /// Request `unique` has been read.
    pub fn begin(&self, unique: u64, waiter: Waiter) {
        self.bounded.set(self.bounded.get() + waiter.counts());
        self.open.borrow_mut().insert(unique, waiter);
    }

    /// Answers request `unique`. False if nobody waits for the answer any more: the request was given up, or the mount is gone.
    pub fn answer(&self, unique: u64, slices: &[IoSlice<'_>]) -> bool {
        let Some(waiter) = self.open.borrow_mut().remove(&unique) else { return false };
        self.bounded.set(self.bounded.get() - waiter.counts());
        self.answered.notify_one();
        self.descriptor.write(slices).is_ok()
    }

    /// The thread that waits for request `unique` has a signal. Requests are not interrupted, as on a local file system; but
    /// a thread that is killed need not wait for a server that is away. What it asked for may still be done.
    pub fn interrupted(self: &Rc<Self>, unique: u64) {
        let Some(&Waiter::Thread(thread @ 1..)) = self.open.borrow().get(&unique) else { return };
        let device = self.clone();
        drop(self.env.spawn(async move {
            while device.open.borrow().contains_key(&unique) {
                if signals::is_killed(thread) {
                    reply::error(&device, unique, libc::EINTR);
                    return;
                }
                device.env.sleep(limits::SIGNAL_INTERVAL).await;
            }
        }));
    }

    async fn room_for_one_more(&self) {
        while self.bounded.get() >= limits::OPEN_REQUESTS {
            self.answered.notified().await;
        }
    }
}

impl Waiter {
    fn counts(self) -> usize {
        usize::from(matches!(self, Self::Thread(_)))
    }
}

/// Serves requests until the mount is taken away.
pub(crate) async fn serve(env: &Env, descriptor: Descriptor, filesystem: impl Filesystem) -> io::Result<()> {
    let (open, bounded, answered) = (RefCell::default(), Cell::new(0), Notify::new());
    let device = Rc::new(Device { env: env.clone(), descriptor, open, bounded, answered });
    let mut arena = Arena::new(limits::ARENA_BYTES);
    let mut head = [0; WRITE_HEADER_BYTES];
    loop {
        device.room_for_one_more().await;
        let room = arena.room(limits::REQUEST_BYTES as usize);
        let read = device.descriptor.read(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(room)]).await;
        let n = match read {
            Ok(n) => n,
            // Interrupted before it was read; or the mount is gone.
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                Some(libc::ENODEV) => return Ok(()),
                _ => return Err(e),
            },
        };
        let Some(header) = Header::parse(&head[..n.min(HEADER_BYTES)]).filter(|header| header.bytes == n) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel sent what is no request"));
        };
        let more = n.saturating_sub(WRITE_HEADER_BYTES);
        let args = &head[HEADER_BYTES..n.min(WRITE_HEADER_BYTES)];
        if header.is_write() {
            dispatch::write(&device, &filesystem, &header, args, arena.take(more));
        } else if header.is_destroy() {
            return Ok(());
        } else {
            let args: Bytes = [args, arena.last(more)].concat().into();
            dispatch::request(&device, &filesystem, &header, &args);
        }
    }
}
