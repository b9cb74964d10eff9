//! Nodes that are threads of one machine: they share its processors, and a thread with nothing to do sleeps.
//!
//! Invariant: a thread does one piece of work at a time. It has a processor during the work, and only then.
//! Invariant: no task of a sleeping thread runs before the thread is awake.
//! An idle processor has to be interrupted when a thread wakes up on it: that takes time, and work of the waking
//! thread. While all processors are busy, the thread gets the next free one.
//! Not modelled: which processor a thread wakes up on, and preemption. A busy-polling thread takes no processor from a
//! working one: its processor only counts as not idle.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::Duration,
};

use super::{
    executor::{Sleep, nanos},
    world::World,
};
use crate::{
    limits::{BUSY_POLL, BUSY_POLL_MESSAGE_BYTES},
    sync::Semaphore,
};

/// The processors of a machine whose threads are nodes here. Clones share them.
#[derive(Clone)]
pub struct Processors(Rc<Shared>);

struct Shared {
    free: Semaphore,
    threads: RefCell<Vec<Weak<Thread>>>,
}

impl Processors {
    /// A machine with `count` processors.
    pub fn new(count: usize) -> Self {
        Self(Rc::new(Shared { free: Semaphore::new(count), threads: RefCell::default() }))
    }

    /// Number of idle processors. A thread that busy-polls takes one.
    fn idle(&self, now: u64) -> usize {
        self.0.free.available_permits().saturating_sub(self.count(|thread| thread.only_looks(now)))
    }

    fn count(&self, which: impl Fn(&Thread) -> bool) -> usize {
        self.0.threads.borrow().iter().filter_map(Weak::upgrade).filter(|thread| which(thread)).count()
    }
}

/// How a thread sleeps and wakes up.
#[derive(Clone, Copy, Debug)]
pub struct Waking {
    /// Time from the wake-up to its first step, on a processor that was idle.
    pub latency: Duration,
    /// Work of the thread that wakes it there, before that latency begins; that thread finishes its current work first.
    pub work: Duration,
    /// Small messages that follow each other closely keep it from sleeping, as with the real half's shards.
    pub looks: bool,
}

/// A node's thread.
pub(crate) struct Thread {
    processors: Processors,
    /// Its work, one piece after the other.
    turn: Semaphore,
    waking: Waking,
    /// Pieces of work in progress, or waiting for their turn.
    under_way: Cell<u32>,
    /// The last time at which it was awake.
    awake_at: Cell<Option<u64>>,
    /// It is waking up.
    wakes: Cell<bool>,
    heard_at: Cell<Option<u64>>,
    looks_until: Cell<u64>,
}

/// Whether a thread can run a task.
pub(crate) enum Sleeps {
    /// It can.
    Awake,
    /// It is waking up already.
    Wakes,
    /// It starts to wake up, and is awake at this time; the duration is work for the thread that wakes it.
    Until(u64, Duration),
}

impl Thread {
    pub(crate) fn new(processors: &Processors, waking: Waking) -> Rc<Self> {
        let thread = Rc::new(Self {
            processors: processors.clone(),
            turn: Semaphore::new(1),
            waking,
            under_way: Cell::new(0),
            awake_at: Cell::new(None),
            wakes: Cell::new(false),
            heard_at: Cell::new(None),
            looks_until: Cell::new(0),
        });
        processors.0.threads.borrow_mut().push(Rc::downgrade(&thread));
        thread
    }

    fn only_looks(&self, now: u64) -> bool {
        self.under_way.get() == 0 && !self.wakes.get() && now < self.looks_until.get()
    }

    /// A task of the thread is ready; `by_another`: another thread made it ready.
    pub(crate) fn sleeps(&self, now: u64, by_another: bool) -> Sleeps {
        if self.wakes.get() {
            return Sleeps::Wakes;
        }
        let idle = self.processors.idle(now);
        let is_awake = self.under_way.get() > 0 || self.awake_at.get() == Some(now) || now < self.looks_until.get();
        if is_awake || self.waking.latency.is_zero() || idle == 0 {
            self.awake_at.set(Some(now));
            return Sleeps::Awake;
        }
        // A processor is woken once.
        let wakes_one = by_another && idle > self.processors.count(|thread| thread.wakes.get());
        let work = if wakes_one { self.waking.work } else { Duration::ZERO };
        self.wakes.set(true);
        Sleeps::Until(now.saturating_add(nanos(work + self.waking.latency)), work)
    }

    /// The thread has done something just now.
    pub(crate) fn was_awake(&self, now: u64) {
        if !self.wakes.get() {
            self.awake_at.set(Some(now));
        }
    }

    /// Whether both are threads of the same machine.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.processors.0, &other.processors.0)
    }

    pub(crate) fn is_awake(&self, now: u64) {
        self.wakes.set(false);
        self.awake_at.set(Some(now));
    }

    /// A message of `bytes` bytes has arrived.
    pub(crate) fn heard(&self, now: u64, bytes: usize) {
        if !self.waking.looks || bytes >= BUSY_POLL_MESSAGE_BYTES {
            return;
        }
        let before = self.heard_at.replace(Some(now));
        if before.is_some_and(|before| now - before < nanos(BUSY_POLL)) {
            self.looks_until.set(now + nanos(BUSY_POLL));
        }
    }

    /// Works for this long.
    pub(crate) async fn work(&self, world: &Rc<World>, work: Duration) {
        self.under_way.set(self.under_way.get() + 1);
        let under_way = UnderWay { thread: self, world };
        let turn = self.turn.acquire().await;
        if !work.is_zero() {
            let processor = self.processors.0.free.acquire().await;
            Sleep::new(world, work).await;
            drop(processor);
        }
        drop(turn);
        drop(under_way);
    }
}

/// Work in progress; it ends when this is dropped.
struct UnderWay<'a> {
    thread: &'a Thread,
    world: &'a World,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.thread.under_way.set(self.thread.under_way.get() - 1);
        self.thread.awake_at.set(Some(self.world.now()));
    }
}
