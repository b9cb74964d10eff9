//! What was asked and not answered so far; reads requests from `/dev/fuse`, on the shard.

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

/// The mount's descriptor, and what is to be answered over it.
pub(crate) struct Device {
    pub(super) env: Env,
    descriptor: Rc<Descriptor>,
    /// The other way by which requests come, where there is one.
    pub(super) ring: Option<Rc<FuseRing>>,
    pub(super) known: Rc<Known>,
    /// Requests without an answer so far.
    open: RefCell<BTreeMap<u64, Asked>>,
    /// Those of them whose threads have a signal to see to.
    interrupted: RefCell<BTreeSet<u64>>,
    /// Those of them that are bounded.
    bounded: Cell<usize>,
    answered: Notify,
    /// Nobody serves requests any more, though the kernel still sends some.
    is_over: Cell<bool>,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    way: Way,
    waiter: Waiter,
    since: Time,
}

/// By which a request came, and its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `/dev/fuse`.
    Device,
    /// The ring, in this entry.
    Ring(usize),
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    /// This thread (0: none that can be seen), which need not wait once it is killed.
    Thread(u32),
    /// This thread, which only looks: also one that is asked to end need not wait for long.
    Onlooker(u32),
    /// No program: close(2) has returned.
    Nobody,
    /// Who wants a lock. It looks for signals itself: a lock that came later would be nobody's. It may wait for another
    /// program's unlock, so it does not count when requests are too many for that one to be read.
    Locker,
}

impl Device {
    pub fn new(env: &Env, descriptor: Rc<Descriptor>, ring: Option<Rc<FuseRing>>, known: Rc<Known>) -> Rc<Self> {
        let (open, interrupted, bounded) = (RefCell::default(), RefCell::default(), Cell::new(0));
        let (answered, is_over) = (Notify::new(), Cell::new(false));
        Rc::new(Self { env: env.clone(), descriptor, ring, known, open, interrupted, bounded, answered, is_over })
    }

    /// Programs that still use the mount are told ENOTCONN from now on, as when the kernel has given it up.
    pub fn end(&self) {
        self.is_over.set(true);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Request `unique` has been read.
    pub(super) fn begin(&self, unique: u64, way: Way, waiter: Waiter) {
        self.bounded.set(self.bounded.get() + waiter.counts());
        self.open.borrow_mut().insert(unique, Asked { way, waiter, since: self.env.now() });
    }

    /// Answers request `unique`. False if nobody waits for the answer any more: the request was given up, or the mount is gone.
    /// `slices`: the header and what follows it.
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

    /// The thread that waits for request `unique` has a signal.
    pub(super) fn is_interrupted(&self, unique: u64) -> bool {
        self.interrupted.borrow().contains(&unique)
    }

    /// Requests of programs that have waited for `long` (those for locks apart), and how long the one that was first has.
    pub fn waiting(&self, long: Duration) -> Option<(usize, Duration)> {
        let now = self.env.now();
        let open = self.open.borrow();
        let waits = open.values().filter(|asked| asked.waiter.is_seen()).map(|asked| now.since(asked.since));
        let (count, longest) = waits
            .filter(|wait| *wait >= long)
            .fold((0, Duration::ZERO), |(count, longest), wait| (count + 1, longest.max(wait)));
        (count > 0).then_some((count, longest))
    }

    /// The thread that waits for request `unique` has a signal. While servers answer, requests are not interrupted, as on a
    /// local file system; but a thread that is killed need not wait for one that is away, nor one that only looks and is
    /// asked to end. What it asked for may still be done.
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

    /// False: the mount is gone. Meanwhile nothing is read, no signal either: those who wait are looked at.
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

    /// The kernel does not tell of a signal that came while it handed a request to the ring: of those that have waited for
    /// long it is asked.
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
        // What it asked for may still be done, a name made: as long as servers answer, who waits for its end finds it done.
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

    /// A program hangs if it is not answered.
    fn is_seen(&self) -> bool {
        matches!(self, Self::Thread(_) | Self::Onlooker(_))
    }
}

/// Serves requests until the mount is taken away.
pub(crate) async fn serve(device: Rc<Device>, filesystem: impl Filesystem + 'static) -> io::Result<()> {
    let filesystem = Rc::new(filesystem);
    let ring = device.ring.clone().map(|ring| ring::begin(&device, ring, &filesystem));
    let Some(mut ring) = ring else { return serve_device(&device, &*filesystem).await };
    let served = forebay_env::sync::select! {
        biased;
        served = serve_device(&device, &*filesystem) => served,
        // Without it nobody would be answered any more.
        failed = &mut ring => Err(failed.unwrap_or_else(|| io::Error::other("the task of the ring ended without a word"))),
    };
    // What came by the ring goes with it.
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
            // Interrupted before it was read; or the mount is gone.
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
