//! Requests in flight between the kernel and the mount; reads requests from `/dev/fuse`, on the shard.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    io::{self, IoSlice, IoSliceMut},
    rc::Rc,
    time::Duration,
};

use forebay_env::{
    Arena, Env, Time,
    real::{Descriptor, FuseRing},
    sync::Notify,
};

use super::{
    Filesystem, Known,
    dispatch::{self, HEADER_BYTES, Header, WRITE_HEADER_BYTES},
    reply, ring,
};
use crate::{limits, signals};

/// The mount's descriptor, and the requests that need a reply over it.
pub(crate) struct Device {
    pub(super) env: Env,
    descriptor: Rc<Descriptor>,
    /// The ring through which requests also arrive, if there is one.
    pub(super) ring: Option<Rc<FuseRing>>,
    pub(super) known: Rc<Known>,
    /// Requests that have no reply yet.
    open: RefCell<BTreeMap<u64, Asked>>,
    /// Open requests whose threads have a pending signal.
    interrupted: RefCell<BTreeSet<u64>>,
    /// Number of open requests that count towards [`limits::OPEN_REQUESTS`].
    bounded: Cell<usize>,
    answered: Notify,
    /// Requests are no longer served, though the kernel still sends some.
    is_over: Cell<bool>,
}

/// A request without a reply.
#[derive(Clone, Copy, Debug)]
struct Asked {
    way: Way,
    waiter: Waiter,
    since: Time,
}

/// How a request arrived, and how its reply is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `/dev/fuse`.
    Device,
    /// The ring, at this entry.
    Ring(usize),
}

/// The thread that waits for a reply, if any.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    /// This thread (0: it cannot be seen from here). It stops waiting if it is killed.
    Thread(u32),
    /// This thread, whose request changes nothing. It stops waiting also soon after a signal that asks it to end.
    Onlooker(u32),
    /// No thread: close(2) has returned.
    Nobody,
    /// A thread that wants a lock. The lock request checks for signals itself: a lock granted later would have no
    /// owner. It may wait for another program's unlock. So it does not count towards the bound on open requests, and
    /// the unlock can still be read.
    Locker,
}

impl Device {
    pub fn new(env: &Env, descriptor: Rc<Descriptor>, ring: Option<Rc<FuseRing>>, known: Rc<Known>) -> Rc<Self> {
        let (open, interrupted, bounded) = (RefCell::default(), RefCell::default(), Cell::new(0));
        let (answered, is_over) = (Notify::new(), Cell::new(false));
        Rc::new(Self { env: env.clone(), descriptor, ring, known, open, interrupted, bounded, answered, is_over })
    }

    /// From now on programs that still use the mount get ENOTCONN, as when the kernel has aborted the mount.
    pub fn end(&self) {
        self.is_over.set(true);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Registers request `unique`, which has been read.
    pub(super) fn begin(&self, unique: u64, way: Way, waiter: Waiter) {
        self.bounded.set(self.bounded.get() + waiter.counts());
        self.open.borrow_mut().insert(unique, Asked { way, waiter, since: self.env.now() });
    }

    /// Replies to request `unique`. False if nobody waits for the reply any more: the request was abandoned, or the
    /// mount is gone. `slices`: the header and what follows it.
    pub(super) fn answer(&self, unique: u64, slices: &[IoSlice<'_>]) -> bool {
        let Some(asked) = self.open.borrow_mut().remove(&unique) else { return false };
        self.interrupted.borrow_mut().remove(&unique);
        self.bounded.set(self.bounded.get() - asked.waiter.counts());
        self.answered.notify_one();
        match (asked.way, &self.ring, slices) {
            (Way::Ring(place), Some(ring), [header, parts @ ..]) => ring.answer(place, header, parts),
            _ => self.descriptor.write(slices).is_ok(),
        }
    }

    /// The thread that waits for request `unique` has a pending signal.
    pub(super) fn is_interrupted(&self, unique: u64) -> bool {
        self.interrupted.borrow().contains(&unique)
    }

    /// How many requests of programs have waited for `long`, and the longest wait. Lock requests are not counted.
    pub fn waiting(&self, long: Duration) -> Option<(usize, Duration)> {
        let now = self.env.now();
        let open = self.open.borrow();
        let waits = open.values().filter(|asked| asked.waiter.is_seen()).map(|asked| now.since(asked.since));
        let (count, longest) = waits
            .filter(|wait| *wait >= long)
            .fold((0, Duration::ZERO), |(count, longest), wait| (count + 1, longest.max(wait)));
        (count > 0).then_some((count, longest))
    }

    /// Called when the thread that waits for request `unique` has a pending signal. While servers reply, requests are
    /// not interrupted, as on a local file system. If a server is unreachable, a killed thread stops waiting. A thread
    /// whose request changes nothing also stops when a signal asks it to end. The request may still be executed.
    pub(super) fn interrupted(self: &Rc<Self>, unique: u64) {
        let Some(&asked) = self.open.borrow().get(&unique) else { return };
        if !self.interrupted.borrow_mut().insert(unique) {
            return;
        }
        if !matches!(asked.waiter, Waiter::Thread(1..) | Waiter::Onlooker(1..)) {
            return;
        }
        let device = self.clone();
        drop(self.env.spawn(async move {
            while device.open.borrow().contains_key(&unique) {
                if asked.may_go(device.env.now()) {
                    reply::error(&device, unique, libc::EINTR);
                    return;
                }
                device.env.sleep(limits::SIGNAL_INTERVAL).await;
            }
        }));
    }

    pub(super) fn has_room_for_one_more(&self) -> bool {
        self.bounded.get() < limits::OPEN_REQUESTS
    }

    /// Waits until another request may be read. False: the mount is gone. Meanwhile nothing is read, not even signals,
    /// so the waiting threads are checked for signals.
    async fn room_for_one_more(self: &Rc<Self>) -> bool {
        while !self.has_room_for_one_more() {
            if self.env.timeout(limits::INTERRUPT_AFTER, self.answered.notified()).await.is_err() {
                if self.descriptor.has_failed() {
                    return false;
                }
                self.look_for_signals(|_| true);
            }
        }
        true
    }

    /// The kernel does not report a signal that arrived while it handed a request to the ring. So requests that have
    /// waited for long are checked here.
    pub(super) fn look_for_signals_by_ring(self: &Rc<Self>) {
        self.look_for_signals(|way| way != Way::Device);
    }

    fn look_for_signals(self: &Rc<Self>, by: impl Fn(Way) -> bool) {
        let now = self.env.now();
        let has_signal = |asked: &Asked| match asked.waiter {
            Waiter::Thread(thread) | Waiter::Onlooker(thread) => signals::is_interrupted(thread),
            Waiter::Nobody | Waiter::Locker => false,
        };
        let long = |asked: &Asked| by(asked.way) && now.since(asked.since) >= limits::INTERRUPT_AFTER;
        let told = self
            .open
            .borrow()
            .iter()
            .filter(|(unique, asked)| long(asked) && !self.is_interrupted(**unique) && has_signal(asked))
            .map(|(unique, _)| *unique)
            .collect::<Vec<_>>();
        told.into_iter().for_each(|unique| self.interrupted(unique));
    }
}

impl Asked {
    fn may_go(self, now: Time) -> bool {
        // The request may still be executed, and for example create a name. So while servers reply, the thread waits
        // for the result and finds it done.
        if now.since(self.since) < limits::INTERRUPT_AFTER {
            return false;
        }
        match self.waiter {
            Waiter::Thread(thread) => signals::is_killed(thread),
            Waiter::Onlooker(thread) => signals::is_killed(thread) || signals::is_asked_to_end(thread),
            Waiter::Nobody | Waiter::Locker => false,
        }
    }
}

impl Waiter {
    fn counts(self) -> usize {
        usize::from(!matches!(self, Self::Locker))
    }

    /// Whether a program hangs until this request has a reply.
    fn is_seen(&self) -> bool {
        matches!(self, Self::Thread(_) | Self::Onlooker(_))
    }
}

/// Serves requests until the file system is unmounted.
pub(crate) async fn serve(device: Rc<Device>, filesystem: impl Filesystem + 'static) -> io::Result<()> {
    let filesystem = Rc::new(filesystem);
    let ring = device.ring.clone().map(|ring| ring::begin(&device, ring, &filesystem));
    let Some(mut ring) = ring else { return serve_device(&device, &*filesystem).await };
    let served = forebay_env::sync::select! {
        biased;
        served = serve_device(&device, &*filesystem) => served,
        // Without the ring's task no request would get a reply.
        failed = &mut ring => Err(failed.unwrap_or_else(|| io::Error::other("the task of the ring ended without a word"))),
    };
    // Requests that arrived by the ring end with it.
    ring.abort();
    served
}

async fn serve_device(device: &Rc<Device>, filesystem: &impl Filesystem) -> io::Result<()> {
    let mut arena = Arena::new(limits::ARENA_BYTES);
    let mut head = [0; WRITE_HEADER_BYTES];
    loop {
        if !device.room_for_one_more().await {
            return Ok(());
        }
        let room = arena.room(limits::REQUEST_BYTES as usize);
        let read = device.descriptor.read(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(room)]).await;
        let n = match read {
            Ok(n) => n,
            // The request was interrupted before it was read, or the mount is gone.
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                Some(libc::ENODEV) => return Ok(()),
                _ => return Err(e),
            },
        };
        let Some(header) = Header::parse(&head[..n.min(HEADER_BYTES)], Way::Device).filter(|header| header.bytes == n)
        else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel sent what is no request"));
        };
        let more = n.saturating_sub(WRITE_HEADER_BYTES);
        let args = &head[HEADER_BYTES..n.min(WRITE_HEADER_BYTES)];
        if header.is_write() {
            dispatch::write(device, filesystem, &header, args, arena.take(more));
        } else if header.is_destroy() {
            return Ok(());
        } else {
            let whole;
            let args = match more {
                0 => args,
                _ => {
                    whole = [args, arena.last(more)].concat();
                    &whole
                }
            };
            dispatch::request(device, filesystem, &header, args);
        }
    }
}
