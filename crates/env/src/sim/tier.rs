//! A modelled storage device at work: its queue, requests in progress, and the ports through which hosts reach it.
//!
//! A request waits in the queue of its tier. A few are in progress: over the port to the medium (reads: back), and at
//! the medium, one after another. Several disks may lie on one tier: their requests share its heads.
//!
//! Invariant: a request completes once, after everything ahead of it on its way; the same seed gives the same order.
//! Not here: contents, faults, lives (see `device`).

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use super::{
    chance::Chance,
    control::Sim,
    executor::{Event, nanos},
    link::transfer_ns,
    medium::{Command, Medium, Position, QueueOrder, SMALL_BYTES, TierModel, TierStats},
    world::World,
};

/// Called when a request completes.
pub(crate) type Done = Box<dyn FnOnce(&Rc<World>)>;

/// A host's connection to storage: the requests of all disks behind it share its rate.
#[derive(Clone)]
pub struct Port(Rc<PortState>);

struct PortState {
    bytes_per_s: u64,
    latency: Duration,
    free_at: Cell<u64>,
}

/// A modelled storage device. Clones share it.
#[derive(Clone)]
pub struct Tier(Rc<TierInner>);

struct TierInner {
    model: TierModel,
    chance: Chance,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Waiting>,
    /// Commands taken from the queue and not completed.
    under_way: usize,
    /// Commands that have reached the medium and wait for it.
    at_medium: VecDeque<Waiting>,
    medium_busy: bool,
    position: Position,
    cached_bytes: u64,
    /// Writes that wait for space in the cache.
    uncached: VecDeque<Waiting>,
    stats: TierStats,
}

/// A request, or several merged ones.
struct Waiting {
    command: Command,
    port: Option<Port>,
    done: Vec<Done>,
    /// Its bytes are in the cache until it completes.
    cached: bool,
}

/// The placement of a disk.
#[derive(Clone)]
pub struct Placement {
    /// The device.
    pub tier: Tier,
    /// The port to it.
    pub port: Option<Port>,
    /// Byte of the tier where the disk begins.
    pub base: u64,
    /// Shape of durable writes, if it is not the store's own.
    pub shape: Option<JournalShape>,
    /// A journal of data: other writes go there first, then to their own place.
    pub bulk_journal: Option<BulkJournal>,
}

/// The region of a journal of data on the tier; it is written cyclically.
#[derive(Clone)]
pub struct BulkJournal {
    start: u64,
    bytes: u64,
    next: Rc<Cell<u64>>,
}

impl BulkJournal {
    /// A journal in `bytes` of the tier from `start` on.
    pub fn new(start: u64, bytes: u64) -> Self {
        Self { start, bytes, next: Rc::default() }
    }

    /// Position of the next `len` bytes.
    pub(crate) fn take(&self, len: u64) -> u64 {
        let at = if self.next.get() + len > self.bytes { 0 } else { self.next.get() };
        self.next.set(at + len);
        self.start + at
    }
}

/// How another journal writes a transaction: its blocks, then a record that declares them complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalShape {
    /// Fewest bytes of a transaction's blocks.
    pub least_bytes: u64,
    /// Bytes of the record, which is written once the blocks are on the medium.
    pub record_bytes: u64,
}

impl Port {
    /// An idle port.
    pub fn new(bytes_per_s: u64, latency: Duration) -> Self {
        Self(Rc::new(PortState { bytes_per_s, latency, free_at: Cell::new(0) }))
    }

    /// When `len` bytes that are ready at `now` have passed the port.
    fn through(&self, now: u64, len: u64) -> u64 {
        let free = self.0.free_at.get().max(now).saturating_add(transfer_ns(len as usize, self.0.bytes_per_s));
        self.0.free_at.set(free);
        free.saturating_add(nanos(self.0.latency))
    }
}

impl Tier {
    /// An idle device; `number` distinguishes its chance from that of other devices.
    pub fn new(sim: &Sim, model: TierModel, number: u64) -> Self {
        let chance = Chance::new(sim.seed(), (1 << 32) + number);
        Self(Rc::new(TierInner { model, chance, state: RefCell::default() }))
    }

    /// How its time was spent so far.
    pub fn stats(&self) -> TierStats {
        self.0.state.borrow().stats
    }

    /// Drops all waiting requests; none of them completes.
    pub(crate) fn forget_requests(&self) {
        let mut state = self.0.state.borrow_mut();
        let State { queue, at_medium, uncached, .. } = &mut *state;
        let waiting = [queue, at_medium, uncached].map(std::mem::take);
        drop(state);
        drop(waiting);
    }

    pub(crate) fn flush_time(&self) -> Duration {
        self.0.model.flush
    }

    /// Takes a request; `done` is called when it completes.
    pub(crate) fn submit(&self, world: &Rc<World>, command: Command, port: Option<Port>, done: Done) {
        let waiting = Waiting { command, port, done: vec![done], cached: false };
        match self.0.model.cache {
            Some(_) if command.write => {
                self.0.state.borrow_mut().uncached.push_back(waiting);
                self.fill_cache(world);
            }
            _ => self.0.state.borrow_mut().queue.push_back(waiting),
        }
        self.dispatch(world);
    }

    /// Writes for which the cache has space complete when they have passed the port.
    fn fill_cache(&self, world: &Rc<World>) {
        let Some(cache) = self.0.model.cache else { return };
        loop {
            let mut state = self.0.state.borrow_mut();
            let Some(first) = state.uncached.front() else { return };
            let len = first.command.end - first.command.start;
            if state.cached_bytes > 0 && state.cached_bytes + len > cache.bytes {
                return;
            }
            state.cached_bytes += len;
            let mut waiting = state.uncached.pop_front().expect("there is a first");
            drop(state);
            let now = world.now();
            let through = waiting.port.take().map_or(now, |port| port.through(now, len));
            let done = std::mem::take(&mut waiting.done);
            waiting.cached = true;
            let tier = self.clone();
            let arrives = move |world: &Rc<World>| {
                done.into_iter().for_each(|done| done(world));
                tier.0.state.borrow_mut().queue.push_back(waiting);
                tier.dispatch(world);
            };
            world.exec.at(through.saturating_add(nanos(cache.latency)), Event::Call(Box::new(arrives)));
        }
    }

    /// Sends waiting requests on their way.
    fn dispatch(&self, world: &Rc<World>) {
        loop {
            let mut state = self.0.state.borrow_mut();
            if state.under_way >= self.0.model.depth.max(1) {
                return;
            }
            let Some(next) = state.take_next(&self.0.model) else { return };
            state.under_way += 1;
            drop(state);
            let len = next.command.end - next.command.start;
            let arrival = match &next.port {
                Some(port) if next.command.write => port.through(world.now(), len),
                Some(port) => world.now().saturating_add(nanos(port.0.latency)),
                None => world.now(),
            };
            let tier = self.clone();
            let arrives = move |world: &Rc<World>| {
                tier.0.state.borrow_mut().at_medium.push_back(next);
                tier.serve(world);
            };
            world.exec.at(arrival, Event::Call(Box::new(arrives)));
        }
    }

    /// Starts the next command at the medium, if that is free.
    fn serve(&self, world: &Rc<World>) {
        let mut state = self.0.state.borrow_mut();
        if state.medium_busy {
            return;
        }
        let Some(waiting) = state.at_medium.pop_front() else { return };
        state.medium_busy = true;
        let command = waiting.command;
        let mut stats = state.stats;
        let mut position = state.position;
        let (busy, later) = match &self.0.model.medium {
            Medium::Heads(heads) => (
                heads.serve(world.now(), &command, &mut position, &self.0.model, &self.0.chance, &mut stats),
                Duration::ZERO,
            ),
            Medium::Solid(solid) => solid.serve(&command, &mut stats),
        };
        stats.commands += 1;
        stats.small_commands += u64::from(command.end - command.start < SMALL_BYTES);
        stats.bytes += command.end - command.start;
        (state.stats, state.position) = (stats, position);
        drop(state);
        let tier = self.clone();
        let served = move |world: &Rc<World>| {
            tier.0.state.borrow_mut().medium_busy = false;
            tier.serve(world);
            tier.finish_after(world, waiting, later);
        };
        world.exec.at(world.now().saturating_add(nanos(busy)), Event::Call(Box::new(served)));
    }

    fn finish_after(&self, world: &Rc<World>, waiting: Waiting, later: Duration) {
        let mut end = world.now().saturating_add(nanos(later));
        if let Some(port) = &waiting.port {
            let len = waiting.command.end - waiting.command.start;
            end = if waiting.command.write { end + nanos(port.0.latency) } else { port.through(end, len) };
        }
        let tier = self.clone();
        let finish = move |world: &Rc<World>| {
            {
                let mut state = tier.0.state.borrow_mut();
                state.under_way -= 1;
                if waiting.cached {
                    state.cached_bytes -= waiting.command.end - waiting.command.start;
                }
            }
            waiting.done.into_iter().for_each(|done| done(world));
            tier.fill_cache(world);
            tier.dispatch(world);
        };
        world.exec.at(end, Event::Call(Box::new(finish)));
    }
}

impl State {
    /// The next request in the order of the queue, merged with those that follow it on the medium.
    fn take_next(&mut self, model: &TierModel) -> Option<Waiting> {
        // Cached writes wait behind requests that have waiters, unless other writes wait for space in the cache.
        let waited_for = |waiting: &Waiting| !waiting.done.is_empty();
        let all = !self.uncached.is_empty() || !self.queue.iter().any(waited_for);
        let mut eligible = (0..self.queue.len()).filter(|index| all || waited_for(&self.queue[*index]));
        let ahead = |waiting: &Waiting| (waiting.command.start < self.position.at, waiting.command.start);
        let index = match model.order {
            QueueOrder::Arrival => eligible.next()?,
            QueueOrder::Elevator => eligible.min_by_key(|index| ahead(&self.queue[*index]))?,
        };
        let mut next = self.queue.remove(index)?;
        while let Some(index) = self.queue.iter().position(|other| next.continues_with(other, model)) {
            let other = self.queue.remove(index).expect("just found");
            next.command.start = next.command.start.min(other.command.start);
            next.command.end = next.command.end.max(other.command.end);
            next.done.extend(other.done);
        }
        Some(next)
    }
}

impl Waiting {
    fn continues_with(&self, other: &Waiting, model: &TierModel) -> bool {
        let (a, b) = (&self.command, &other.command);
        let together = (a.end - a.start) + (b.end - b.start);
        let touch = a.end == b.start || b.end == a.start;
        touch && a.write == b.write && self.cached == other.cached && together <= model.command_bytes
    }
}
