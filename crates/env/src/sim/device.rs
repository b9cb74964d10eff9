//! A disk of a node: its contents, its cache, its faults; it outlives the node's lives.
//!
//! Invariant: reads see a write once it completed; a completion from an older life has no effect.

use std::{cell::RefCell, ops::Range, rc::Rc};

use super::{
    NodeId,
    disk_model::{DiskModel, Fault, Latency, Timing, Wanted},
    executor::{Event, nanos},
    image::{DiskImage, PAGE_BYTES, StoredWrite},
    medium::Command,
    recorder::Step,
    tier::{self, Placement},
    trace::Kind,
    world::World,
    write_cache::{CacheKey, TearChoice, WriteCache},
};
use crate::{AlignedBuf, EnvError, EnvErrorKind, EnvResult};

pub(crate) struct Device {
    node: NodeId,
    pub(crate) path: String,
    state: RefCell<DeviceState>,
}

struct DeviceState {
    visible: DiskImage,
    cache: WriteCache,
    /// Grows with each crash.
    epoch: u64,
    timing: Timing,
    faults: Faults,
    /// Its number in the recording.
    recorded: Option<usize>,
    /// Its placement on a tier; none: it takes as long as `timing` says.
    placement: Option<Placement>,
}

#[derive(Default)]
struct Faults {
    read_eio: Vec<Range<u64>>,
    write_eio: Vec<Range<u64>>,
    no_room: bool,
    flush_fails: bool,
    lose: Option<Wanted>,
    misdirect: Option<(Wanted, u64)>,
}

impl Faults {
    fn misdirect(&mut self, wanted: Wanted, to: u64) {
        assert!(to.is_multiple_of(PAGE_BYTES as u64), "writes go to multiples of the sector");
        self.misdirect = Some((wanted, to));
    }
}

impl Device {
    pub(crate) fn new(world: &World, node: NodeId, path: &str, image: DiskImage, model: DiskModel) -> Rc<Self> {
        let state = DeviceState {
            visible: image.clone(),
            cache: WriteCache::new(image),
            epoch: 0,
            timing: Timing::new(model),
            faults: Faults::default(),
            recorded: None,
            placement: None,
        };
        let device = Rc::new(Self { node, path: path.to_string(), state: RefCell::new(state) });
        if world.recording.borrow().is_wanted(node, path) {
            device.record(world);
        }
        device
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state.borrow().visible.bytes()
    }

    pub(crate) fn image(&self) -> DiskImage {
        self.state.borrow().visible.clone()
    }

    /// Replaces the contents; all of it is durable.
    pub(crate) fn set_image(&self, world: &World, image: DiskImage) {
        let mut state = self.state.borrow_mut();
        state.epoch += 1;
        state.replace(world, image);
    }

    pub(crate) fn set_model(&self, model: DiskModel) {
        self.state.borrow_mut().timing.model = model;
    }

    pub(crate) fn place(&self, placement: Placement) {
        self.state.borrow_mut().placement = Some(placement);
    }

    /// The world ends: requests waiting at the device's tier would keep the device, and themselves, alive.
    pub(crate) fn leave_tier(&self) {
        let placement = self.state.borrow_mut().placement.take();
        if let Some(placement) = placement {
            placement.tier.forget_requests();
        }
    }

    /// Begins to record.
    pub(crate) fn record(&self, world: &World) {
        let mut state = self.state.borrow_mut();
        let number = world.recording.borrow_mut().begin(self.node, &self.path, state.cache.clone());
        state.recorded = Some(number);
    }

    pub(crate) fn fault(&self, world: &World, fault: Fault) {
        world.note(Kind::Fault, self.node, 0, 0);
        world.trace.print(world.now(), &world.node_name(self.node), || format!("{}: {fault:?}", self.path));
        let mut state = self.state.borrow_mut();
        match fault {
            Fault::ReadEio { range } => state.faults.read_eio.push(range),
            Fault::WriteEio { range } => state.faults.write_eio.push(range),
            Fault::NoRoom => state.faults.no_room = true,
            Fault::FlushFails => state.faults.flush_fails = true,
            Fault::LoseNextWrite => state.faults.lose = Some(Wanted::any()),
            Fault::LoseWrite { wanted } => state.faults.lose = Some(wanted),
            Fault::MisdirectNextWrite { to } => state.faults.misdirect(Wanted::any(), to),
            Fault::MisdirectWrite { wanted, to } => state.faults.misdirect(wanted, to),
            Fault::Rot { offset, bits } => {
                let byte = state.visible.read(offset, 1)[0] ^ bits;
                state.visible.write(offset, &[byte]);
                state.cache.rot(offset, bits);
            }
            Fault::Stuck(duration) => state.timing.stuck_until = world.now().saturating_add(nanos(duration)),
            Fault::Slow(factor) => state.timing.slow = factor,
        }
    }

    /// Ends all faults except rot, which is in the stored bytes.
    pub(crate) fn clear_faults(&self) {
        let mut state = self.state.borrow_mut();
        state.faults = Faults::default();
        state.timing.slow = 1.0;
        state.timing.stuck_until = 0;
    }

    /// The node's life ended. By chance, each write in flight still completes, in full or up to a sector, or does not.
    pub(crate) fn stop(&self, world: &World) {
        let mut state = self.state.borrow_mut();
        state.epoch += 1;
        state.timing.forget_queue();
        for (key, write) in state.cache.in_flight() {
            match world.chance.below(3) {
                0 => drop(state.complete(world, key, &write)),
                1 => state.forget(world, key),
                _ => {
                    state.forget(world, key);
                    let pages = world.chance.below(write.pages.len() as u64 + 1) as usize;
                    let front = StoredWrite { offset: write.offset, pages: write.pages[..pages].to_vec() };
                    let key = state.submit(world, front.clone());
                    state.complete(world, key, &front);
                }
            }
        }
    }

    /// Loses or tears unflushed writes.
    pub(crate) fn power_cut(&self, world: &World) {
        let mut state = self.state.borrow_mut();
        let image = state.cache.after_power_cut(TearChoice::Random(0), None, &world.chance);
        state.replace(world, image);
    }

    /// Submits a write; `done` receives its result.
    pub(crate) fn write(
        self: &Rc<Self>,
        world: &Rc<World>,
        mut write: StoredWrite,
        durable: bool,
        done: impl FnOnce(EnvResult<()>) + 'static,
    ) {
        world.note(Kind::DiskSubmit, self.node, write.offset, write.len() as u64);
        let latency = if durable { Latency::DurableWrite } else { Latency::Write };
        let request = Request { latency, offset: write.offset, len: write.len() };
        let (elsewhere, lost) = self.fate(&write);
        let mut state = self.state.borrow_mut();
        if let Some(to) = elsewhere {
            write.offset = to.min(state.visible.bytes().saturating_sub(write.len() as u64));
        }
        let bad = touches(&state.faults.write_eio, write.offset, write.len());
        let no_room = state.faults.no_room && state.visible.has_hole(write.offset, write.len());
        let key = if lost || bad || no_room { None } else { Some(state.submit(world, write.clone())) };
        let epoch = state.epoch;
        drop(state);
        self.when_done(world, request, epoch, move |world, device| {
            world.note(Kind::DiskDone, device.node, write.offset, u64::from(durable));
            if bad {
                return done(Err(device.medium_error("write", write.offset, write.len())));
            }
            if no_room {
                let words = format!("no room for {} bytes at {} of {}", write.len(), write.offset, device.path);
                return done(Err(EnvError::new(EnvErrorKind::NoSpace, words)));
            }
            let mut state = device.state.borrow_mut();
            let key = key.map(|key| state.complete(world, key, &write));
            let flushed = match key {
                Some(key) if durable => state.keep(world, key),
                _ => true,
            };
            drop(state);
            done(if flushed { Ok(()) } else { Err(device.flush_error()) });
        });
    }

    /// Where a write goes instead of its own place, and whether it is lost. The functions that choose writes may access
    /// the device.
    fn fate(&self, write: &StoredWrite) -> (Option<u64>, bool) {
        let (mut misdirect, mut lose) = {
            let faults = &mut self.state.borrow_mut().faults;
            (faults.misdirect.take(), faults.lose.take())
        };
        let to = misdirect.take_if(|(wanted, _)| wanted.wants(&write.bytes())).map(|(_, to)| to);
        let lost = lose.take_if(|wanted| wanted.wants(&write.bytes())).is_some();
        let faults = &mut self.state.borrow_mut().faults;
        (faults.misdirect, faults.lose) = (misdirect, lose);
        (to, lost)
    }

    pub(crate) fn read(
        self: &Rc<Self>,
        world: &Rc<World>,
        offset: u64,
        len: usize,
        done: impl FnOnce(EnvResult<AlignedBuf>) + 'static,
    ) {
        world.note(Kind::DiskSubmit, self.node, offset, len as u64);
        let epoch = self.state.borrow().epoch;
        let request = Request { latency: Latency::Read, offset, len };
        self.when_done(world, request, epoch, move |world, device| {
            world.note(Kind::DiskDone, device.node, offset, 2);
            let state = device.state.borrow();
            if touches(&state.faults.read_eio, offset, len) {
                return done(Err(device.medium_error("read", offset, len)));
            }
            let mut buf = AlignedBuf::to_be_filled(len);
            state.visible.read_into(offset, &mut buf);
            drop(state);
            done(Ok(buf));
        });
    }

    pub(crate) fn flush(self: &Rc<Self>, world: &Rc<World>, done: impl FnOnce(EnvResult<()>) + 'static) {
        let (point, epoch) = {
            let state = self.state.borrow();
            (state.cache.flush_point(), state.epoch)
        };
        let request = Request { latency: Latency::Flush, offset: 0, len: 0 };
        self.when_done(world, request, epoch, move |world, device| {
            world.note(Kind::DiskFlush, device.node, point, 0);
            let flushed = device.state.borrow_mut().flush(world, point);
            done(if flushed { Ok(()) } else { Err(device.flush_error()) });
        });
    }

    /// Calls `done` when a request that is submitted now completes.
    fn when_done<F>(self: &Rc<Self>, world: &Rc<World>, request: Request, epoch: u64, done: F)
    where
        F: FnOnce(&Rc<World>, &Rc<Device>) + 'static,
    {
        let Request { latency, offset, len } = request;
        let placement = self.state.borrow().placement.clone();
        let Some(placement) = placement else {
            let time = self.state.borrow_mut().timing.completion(world.now(), latency, len, &world.chance);
            return self.at(world, time, epoch, done);
        };
        if let Latency::Flush = latency {
            let time = world.now().saturating_add(nanos(placement.tier.flush_time()));
            return self.at(world, time, epoch, done);
        }
        let (device, base) = (self.clone(), placement.base);
        let done: tier::Done = Box::new(move |world| device.at(world, world.now(), epoch, done));
        let write = !matches!(latency, Latency::Read);
        let command = |start: u64, len: u64| Command { write, start: base + start, end: base + start + len };
        let Placement { tier, port, shape, bulk_journal, .. } = placement;
        match (latency, shape) {
            (Latency::DurableWrite, Some(shape)) => {
                let blocks = shape.least_bytes.max(len as u64);
                let record = command(offset + blocks, shape.record_bytes);
                let (tier_too, port_too) = (tier.clone(), port.clone());
                let blocks_down: tier::Done = Box::new(move |world| tier_too.submit(world, record, port_too, done));
                tier.submit(world, command(offset, blocks), port, blocks_down);
            }
            (Latency::Write, _) if bulk_journal.is_some() => {
                let at = bulk_journal.map_or(0, |journal| journal.take(len as u64));
                let first = Command { write, start: at, end: at + len as u64 };
                let (home, tier_too, port_too) = (command(offset, len as u64), tier.clone(), port.clone());
                let journaled: tier::Done = Box::new(move |world| tier_too.submit(world, home, port_too, done));
                tier.submit(world, first, port, journaled);
            }
            _ => tier.submit(world, command(offset, len as u64), port, done),
        }
    }

    /// Calls `done` at `time`, or when the device is no longer stuck; never after a crash.
    fn at<F>(self: &Rc<Self>, world: &World, time: u64, epoch: u64, done: F)
    where
        F: FnOnce(&Rc<World>, &Rc<Device>) + 'static,
    {
        let device = self.clone();
        let event = move |world: &Rc<World>| {
            let (now_epoch, stuck_until) = {
                let state = device.state.borrow();
                (state.epoch, state.timing.stuck_until)
            };
            if now_epoch != epoch {
                return;
            }
            if world.now() < stuck_until {
                return device.at_boxed(world, stuck_until, epoch, Box::new(done));
            }
            done(world, &device);
        };
        world.exec.at(time, Event::Call(Box::new(event)));
    }

    fn at_boxed(self: &Rc<Self>, world: &World, time: u64, epoch: u64, done: Completion) {
        self.at(world, time, epoch, done);
    }

    fn medium_error(&self, what: &str, offset: u64, len: usize) -> EnvError {
        let message = format!("{what} of {len} bytes at {offset} of {} failed (simulated EIO)", self.path);
        EnvError::new(EnvErrorKind::Medium, message)
    }

    pub(crate) fn flush_error(&self) -> EnvError {
        let message = format!("flush of {} failed; what was written since the last good one is in doubt", self.path);
        EnvError::new(EnvErrorKind::FlushFailed, message)
    }
}

/// A request to the device.
struct Request {
    latency: Latency,
    offset: u64,
    len: usize,
}

type Completion = Box<dyn FnOnce(&Rc<World>, &Rc<Device>)>;

impl DeviceState {
    fn log(&self, world: &World, step: impl FnOnce() -> Step) {
        if let Some(number) = self.recorded {
            world.recording.borrow_mut().add(number, step());
        }
    }

    fn submit(&mut self, world: &World, write: StoredWrite) -> CacheKey {
        let stamp = world.recording.borrow_mut().stamp();
        self.log(world, || Step::Submit { write: write.clone(), stamp });
        self.cache.submit(write, stamp)
    }

    fn complete(&mut self, world: &World, key: CacheKey, write: &StoredWrite) -> CacheKey {
        self.log(world, || Step::Complete(key));
        self.visible.apply(write);
        self.cache.complete(key)
    }

    fn forget(&mut self, world: &World, key: CacheKey) {
        self.log(world, || Step::Forget(key));
        self.cache.forget(key);
    }

    /// Makes one write durable; false if the implied flush fails.
    fn keep(&mut self, world: &World, key: CacheKey) -> bool {
        if self.flush_fails(world) {
            return false;
        }
        self.log(world, || Step::Keep(key));
        self.cache.keep(key);
        true
    }

    fn flush(&mut self, world: &World, point: CacheKey) -> bool {
        if self.flush_fails(world) {
            return false;
        }
        self.log(world, || Step::Flush(point));
        self.cache.flush(point);
        true
    }

    /// As in Linux, a failed flush may leave writes that reads see and no later flush makes durable.
    fn flush_fails(&mut self, world: &World) -> bool {
        if !std::mem::take(&mut self.faults.flush_fails) {
            return false;
        }
        for key in self.cache.unflushed() {
            if world.chance.chance(0.5) {
                self.forget(world, key);
            }
        }
        true
    }

    fn replace(&mut self, world: &World, image: DiskImage) {
        self.log(world, || Step::Replace(image.clone()));
        self.visible = image.clone();
        self.cache = WriteCache::new(image);
    }
}

fn touches(ranges: &[Range<u64>], offset: u64, len: usize) -> bool {
    ranges.iter().any(|range| range.start < offset + len as u64 && offset < range.end)
}
