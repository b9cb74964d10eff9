//! The writer: puts fragments in the next free place of the device.
//!
//! Two slabs are open at a time, one for data and tombstones and one for the index: pages die together, at the next
//! checkpoint, and data beside them would have to be moved for them. Within each, whatever is to be written follows what
//! was written before. While device writes are in flight, small fragments that arrive are gathered into the next run;
//! large aligned ones go to the device as they lie in memory. What one run may not hold is cut at block boundaries, so
//! that slabs fill to their end.
//!
//! Invariant: the place of a piece is known to nobody before its run is on the device; until its owner puts it into the
//! index or drops it, the slab is pinned.
//! Invariant: a tombstone lies in a slab opened no earlier than those of the data it outdates: both go one way.
//! Invariant: an open slab is among the last [`limits::RECOVERY_SLABS_SCANNED`] opened.
//! Not here: flushes (see `commit`), admission (see `space`); within: what goes into a run (`select`), its bytes (`lay_out`),
//! what becomes of it (`outcome`), who waits (`ticket`).

mod lay_out;
mod outcome;
mod select;
mod ticket;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{
    Bug, Env, planted,
    sync::{Notify, oneshot},
};
use forebay_proto::{Incarnation, TargetId, Transno, Uuid};

pub(crate) use self::ticket::{Item, Piece, Pieces};
use self::{
    lay_out::cut_at_stripes,
    outcome::{Flight, Suspects},
    select::{least_run_bytes, select},
    ticket::{Queued, Ticket},
};
use super::{
    allocator::{Allocator, Opened},
    header::Geometry,
    run::{self, FragmentKind},
};
use crate::{StoreError, StoreErrorKind, StoreResult, StoreStats, limits, mirror::Device};

/// For whom something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Callers' data: leaves the slabs kept back alone.
    User,
    /// Checkpoints, the cleaner, tombstones: may use them, and goes first.
    System,
}

#[derive(Clone, Copy)]
struct OpenSlab {
    slab: u32,
    epoch: u64,
    /// Where the next run begins.
    at: u64,
    runs: u32,
    prev_sum: u64,
    /// What it was before it was opened; none after a start.
    opened: Option<Opened>,
}

/// What shares a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    /// Data and tombstones.
    Data,
    /// Pages of the index, and the slab snapshots of checkpoints.
    Index,
}

impl Stream {
    fn of(kind: FragmentKind) -> Self {
        match kind {
            FragmentKind::IndexPage | FragmentKind::Root => Self::Index,
            _ => Self::Data,
        }
    }
}

#[derive(Default)]
struct State {
    index: VecDeque<Queued>,
    system: VecDeque<Queued>,
    user: VecDeque<Queued>,
    /// The open slab of each stream.
    open: [Option<OpenSlab>; 2],
    in_flight: usize,
    /// What is under way, by slab.
    flights: BTreeMap<u32, Flight>,
    /// What the store itself has to write finds no room: callers are told this, until it is tried again.
    stalled: Option<StoreError>,
    /// Somebody looks whether a slab becomes free.
    watched: bool,
    stopped: Option<StoreError>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.index.is_empty() && self.system.is_empty() && self.user.is_empty()
    }

    /// Where a run of `stream` takes its next piece from.
    fn queue(&mut self, stream: Stream) -> &mut VecDeque<Queued> {
        match stream {
            Stream::Index => &mut self.index,
            Stream::Data if !self.system.is_empty() => &mut self.system,
            Stream::Data => &mut self.user,
        }
    }

    /// Puts what could not be written first in line again.
    fn push_front(&mut self, queued: Queued) {
        match Stream::of(queued.item.kind) {
            Stream::Index => self.index.push_front(queued),
            Stream::Data if self.stalled.is_none() => self.system.push_front(queued),
            // Nobody's data waits for what the store itself cannot write.
            Stream::Data if queued.class == Class::User => self.user.push_front(queued),
            Stream::Data => self.system.push_front(queued),
        }
    }
}

/// A run built and given its place, ready to be submitted.
struct Run {
    slab: u32,
    epoch: u64,
    at: u64,
    bytes: u64,
    parts: Vec<Bytes>,
    members: Vec<(Queued, u32)>,
    /// Failures of others before it was submitted.
    failures_before: u64,
    /// Of a slab's first run, which brings its header: what the slab was before.
    opened: Option<Opened>,
    /// The slab was never written to before this opening.
    fresh: bool,
}

/// Fixed facts the writer works with.
pub(crate) struct WriterConfig {
    /// The data device.
    pub disk: Device,
    /// How it is divided.
    pub geometry: Geometry,
    /// Whose it is.
    pub target: Uuid,
    /// What people call that.
    pub name: TargetId,
    /// Who writes.
    pub incarnation: Incarnation,
    /// The target's generation.
    pub generation: u32,
    /// Slabs that callers' data may not open.
    pub keep_slabs: u32,
}

/// See the module. Clones share it.
#[derive(Clone)]
pub(crate) struct Writer {
    env: Env,
    config: Rc<WriterConfig>,
    alloc: Rc<RefCell<Allocator>>,
    stats: Rc<RefCell<StoreStats>>,
    state: Rc<RefCell<State>>,
    durable_lsn: Rc<Cell<u64>>,
    /// As run headers name it.
    committed: Rc<Cell<u32>>,
    /// Counts runs that reached the device: a flush covers those counted when it began.
    written: Rc<Cell<u64>>,
    /// Slabs retired, whose news the store has yet to make durable.
    retired: Rc<RefCell<Vec<u32>>>,
    suspects: Rc<RefCell<Suspects>>,
    /// Told when callers have to be told that there is no room.
    pub stalls: Rc<Notify>,
}

impl Writer {
    /// A writer without an open slab.
    pub(crate) fn new(
        env: &Env,
        config: WriterConfig,
        alloc: Rc<RefCell<Allocator>>,
        stats: Rc<RefCell<StoreStats>>,
        durable_lsn: Rc<Cell<u64>>,
    ) -> Self {
        Self {
            env: env.clone(),
            config: Rc::new(config),
            alloc,
            stats,
            state: Rc::default(),
            durable_lsn,
            committed: Rc::default(),
            written: Rc::default(),
            retired: Rc::default(),
            suspects: Rc::default(),
            stalls: Rc::default(),
        }
    }

    /// Everything up to `transno` is durable: runs built from now on say so.
    pub(crate) fn note_committed(&self, transno: Transno) {
        let named = run::committed(transno, self.config.incarnation);
        self.committed.set(self.committed.get().max(named));
    }

    /// Number of runs on the device so far.
    pub(crate) fn runs_written(&self) -> u64 {
        self.written.get()
    }

    /// Slabs retired since the last call.
    pub(crate) fn take_retired(&self) -> Vec<u32> {
        self.retired.take()
    }

    /// True if there is news for [`Writer::take_retired`].
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.borrow().is_empty()
    }

    /// Bytes of data the open slab still takes.
    pub(crate) fn open_rest(&self) -> u64 {
        let open = self.state.borrow().open[Stream::Data as usize];
        open.map_or(0, |open| self.config.geometry.slab_bytes - open.at)
    }

    /// Bytes of callers' data that wait for a slab.
    pub(crate) fn user_waits(&self) -> bool {
        let state = self.state.borrow();
        !state.user.is_empty() && state.in_flight == 0
    }

    /// Fails everything queued, now and later.
    pub(crate) fn stop(&self, error: &StoreError) {
        let queued = {
            let mut state = self.state.borrow_mut();
            state.stopped = Some(error.clone());
            [std::mem::take(&mut state.index), std::mem::take(&mut state.system), std::mem::take(&mut state.user)]
        };
        queued.iter().flatten().for_each(|queued| queued.ticket.finish(Some(error.clone())));
    }

    /// Fails callers' data that waits for a slab.
    pub(crate) fn fail_user(&self, error: &StoreError) {
        let queued = std::mem::take(&mut self.state.borrow_mut().user);
        queued.iter().for_each(|queued| queued.ticket.finish(Some(error.clone())));
    }

    /// Writes `items`; returns when all are on the device, not flushed. Submitted in the order of the calls.
    pub(crate) fn write(&self, class: Class, items: Vec<Item>) -> impl Future<Output = StoreResult<Pieces>> + use<> {
        let (sender, receiver) = oneshot::channel();
        let ticket = Ticket::new(&self.alloc, items.len(), sender);
        let stopped = self.state.borrow().stopped.clone();
        if stopped.is_some() || items.is_empty() {
            ticket.finish(stopped);
        } else {
            let mut state = self.state.borrow_mut();
            for item in items {
                let queue = match (Stream::of(item.kind), class) {
                    (Stream::Index, _) => &mut state.index,
                    (Stream::Data, Class::System) => &mut state.system,
                    (Stream::Data, Class::User) => &mut state.user,
                };
                queue.push_back(Queued { item, class, ticket: ticket.clone(), tries: 0 });
            }
        }
        self.pump();
        if let Some(full) = self.stalled() {
            self.fail_user(&full);
        }
        async move {
            let stopped =
                || StoreError::new(StoreErrorKind::Stopped, "the store was closed while bytes were being placed");
            receiver.await.unwrap_or_else(|_| Err(stopped()))
        }
    }

    /// Why nothing can be written for want of room, while that is so.
    pub(crate) fn stalled(&self) -> Option<StoreError> {
        self.state.borrow().stalled.clone()
    }

    /// Submits runs while there is work and the device takes more.
    pub(crate) fn pump(&self) {
        while let Some(run) = self.next_run() {
            self.submit(run);
        }
    }

    fn next_run(&self) -> Option<Run> {
        let mut state = self.state.borrow_mut();
        let held_up = state.stopped.is_some() || state.stalled.is_some();
        if state.in_flight >= limits::WRITES_IN_FLIGHT || held_up || state.is_idle() {
            return None;
        }
        let waiting = state.index.iter().chain(&state.system).chain(&state.user);
        let queued: u64 = waiting.map(|q| q.item.data.len() as u64).take(limits::RUN_FRAGMENTS).sum();
        let worth_a_write = match state.in_flight {
            few if few < limits::SMALL_RUNS_IN_FLIGHT => 0,
            some if some < limits::MIDDLE_RUNS_IN_FLIGHT => limits::RUN_BYTES_EAGER,
            _ => limits::RUN_BYTES,
        };
        if queued < worth_a_write {
            return None;
        }
        self.run_of(&mut state, Stream::Index).or_else(|| self.run_of(&mut state, Stream::Data))
    }

    fn run_of(&self, state: &mut State, stream: Stream) -> Option<Run> {
        let room = self.room(state, stream)?;
        let members = select(state, stream, room);
        assert!(!members.is_empty(), "a slab has room for the first piece of anything queued");
        state.in_flight += 1;
        let run = self.build(state, stream, members);
        state.flights.entry(run.slab).or_default().begin(run.opened.is_some());
        Some(run)
    }

    /// Bytes for the next run in the stream's open slab, or in a new one. None: nothing is queued for it, or the first in
    /// the queue has to wait for a slab.
    fn room(&self, state: &mut State, stream: Stream) -> Option<u64> {
        let slab_bytes = self.config.geometry.slab_bytes;
        let need = least_run_bytes(&state.queue(stream).front()?.item);
        if let Some(open) = state.open[stream as usize] {
            if slab_bytes - open.at >= need {
                return Some(slab_bytes - open.at);
            }
            self.close_slab(state, stream);
        }
        assert!(need + limits::SECTOR <= slab_bytes, "a slab holds any single piece");
        let of_callers = stream == Stream::Data && state.system.is_empty();
        let (in_doubt, no_room) = {
            let suspects = self.suspects.borrow();
            (!suspects.slabs.is_empty(), suspects.no_room)
        };
        // Where writes fail, any slab may tell whether it is the device.
        let keep = if of_callers && !in_doubt { self.config.keep_slabs } else { 0 };
        let (slab, epoch, opened) = self.alloc.borrow_mut().open(keep, no_room)?;
        let mut stats = self.stats.borrow_mut();
        stats.slabs_opened += 1;
        stats.slabs_reused += u64::from(!opened.is_fresh());
        // `at` 0: the slab's header goes out together with its first run.
        let opened = Some(opened);
        state.open[stream as usize] = Some(OpenSlab { slab, epoch, at: 0, runs: 0, prev_sum: 0, opened });
        drop(stats);
        self.close_left_behind(state);
        Some(slab_bytes - limits::SECTOR)
    }

    fn close_slab(&self, state: &mut State, stream: Stream) {
        if let Some(open) = state.open[stream as usize].take() {
            self.alloc.borrow_mut().close(open.slab);
        }
    }

    /// Closes the slab of a stream that hardly moves: recovery looks for the newest runs in the last slabs opened.
    fn close_left_behind(&self, state: &mut State) {
        for stream in [Stream::Data, Stream::Index] {
            let Some(open) = state.open[stream as usize] else { continue };
            if self.alloc.borrow().opened_after(open.epoch) + 1 >= limits::RECOVERY_SLABS_SCANNED {
                self.close_slab(state, stream);
            }
        }
    }

    fn submit(&self, run: Run) {
        let at = self.config.geometry.device_offset(run.slab, run.at);
        let writes: Vec<_> = cut_at_stripes(at, &run.parts, self.config.geometry.stripe_bytes)
            .into_iter()
            .map(|(at, parts)| self.config.disk.write(at, parts))
            .collect();
        let writer = self.clone();
        // Dropping the handle lets the task run on.
        drop(self.env.spawn(async move {
            let mut outcome = Ok(());
            let mut run = Some(run);
            if planted(Bug::WriteNotAwaited)
                && let Some(run) = run.take()
            {
                writer.finished(run, Ok(()));
            }
            for write in writes {
                outcome = outcome.and(write.await);
            }
            if let Some(run) = run {
                writer.finished(run, outcome);
            }
        }));
    }
}
