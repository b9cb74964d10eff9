//! Nodes that are threads of one machine: they share its processors, and one that has nothing to do sleeps.
//!
//! Invariant: a thread does one piece of work at a time, and has a processor while it does, and only then.
//! Invariant: no task of a thread that sleeps runs before it is awake.
//! A processor that has nothing to do has to be interrupted when a thread wakes up: that takes time, and work of whoever woke
//! it. While all processors are at work, the thread is there for the next one that is free.
//! Not modelled: which processor a thread wakes up on, and preemption. One that looks takes no processor from one that works: it only
//! counts as one that does not idle.

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

/// The processors of a machine whose threads are nodes here. Clones are the same.
#[derive(Clone)]
pub struct Processors(Rc<Shared>);

struct Shared {
    free: Semaphore,
    threads: RefCell<Vec<Weak<Thread>>>,
}

impl Processors {
    /// So many.
    pub fn new(count: usize) -> Self {
        Self(Rc::new(Shared { free: Semaphore::new(count), threads: RefCell::default() }))
    }

    /// So many have nothing to do. A thread that looks for messages takes one.
    fn idle(&self, now: u64) -> usize {
        self.0.free.available_permits().saturating_sub(self.count(|thread| thread.only_looks(now)))
    }

    fn count(&self, which: impl Fn(&Thread) -> bool) -> usize {
        self.0.threads.borrow().iter().filter_map(Weak::upgrade).filter(|thread| which(thread)).count()
    }
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Waking {
    /// From what wakes it to its first step, on a processor that had nothing to do.
    pub latency: Duration,
    /// Work of another thread that wakes it there, before that; it has what it is at behind it first.
    pub work: Duration,
    /// Small messages in close order keep it from sleeping, as the real half's shards.
    pub looks: bool,
}

/// A node's thread.
pub(crate) struct Thread {
    processors: Processors,
    /// Its work, one after the other.
    turn: Semaphore,
    waking: Waking,
    /// Pieces of work under way, or waiting for their turn.
    under_way: Cell<u32>,
    /// It was awake then.
    awake_at: Cell<Option<u64>>,
    /// It is on its way from sleep.
    wakes: Cell<bool>,
    heard_at: Cell<Option<u64>>,
    looks_until: Cell<u64>,
}

/// Whether a thread can run a task.
pub(crate) enum Sleeps {
    /// It can.
    Awake,
    /// It wakes up already.
    Wakes,
    /// It begins to wake up, and has done so at this time; so much work that is for who wakes it.
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

    /// A task of it is ready, by another thread's doing or not.
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

    /// It has done something just now.
    pub(crate) fn was_awake(&self, now: u64) {
        if !self.wakes.get() {
            self.awake_at.set(Some(now));
        }
    }

    /// On the same machine.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.processors.0, &other.processors.0)
    }

    pub(crate) fn is_awake(&self, now: u64) {
        self.wakes.set(false);
        self.awake_at.set(Some(now));
    }

    /// A message of so many bytes has come.
    pub(crate) fn heard(&self, now: u64, bytes: usize) {
        if !self.waking.looks || bytes >= BUSY_POLL_MESSAGE_BYTES {
            return;
        }
        let before = self.heard_at.replace(Some(now));
        if before.is_some_and(|before| now - before < nanos(BUSY_POLL)) {
            self.looks_until.set(now + nanos(BUSY_POLL));
        }
    }

    /// Works for so long.
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

/// Work that is done, or given up, with it.
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
