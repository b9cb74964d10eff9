//! The writer: appends fragments to the open slabs of the device.
//!
//! Two slabs are open at a time: one for data and tombstones, one for index pages. Pages die together at the next
//! checkpoint; data in the same slab would then have to be moved. Within each slab, every write follows the one before.
//! While device writes are in flight, small fragments that arrive are coalesced into the next run. Large aligned
//! fragments go to the device from where they lie in memory. A fragment that does not fit into a run is cut at block
//! boundaries, so that slabs fill to their end.
//!
//! Invariant: nobody knows the location of a piece before its run is on the device. The slab is pinned until the owner
//! of the piece puts it into the index or drops it.
//! Invariant: a tombstone lies in a slab opened no earlier than those of the data that it outdates: both use one
//! stream.
//! Invariant: an open slab is among the last [`limits::RECOVERY_SLABS_SCANNED`] opened.
//! Not here: flushes (see `commit`), admission (see `space`). Within: what goes into a run (`select`), its bytes
//! (`lay_out`), its outcome (`outcome`), the waiting callers (`ticket`).

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

/// On whose behalf a fragment is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Callers' data: may not use the reserved slabs.
    User,
    /// Checkpoints, the cleaner, tombstones: may use the reserved slabs, and take precedence.
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
    /// The slab's state before it was opened.
    opened: Option<Opened>,
}

/// Fragments that share a slab.
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
    /// Runs in flight, by slab.
    flights: BTreeMap<u32, Flight>,
    /// Set while the store's own writes find no space: callers get this error until the writes are tried again.
    stalled: Option<StoreError>,
    /// A task waits to see whether a slab becomes free.
    watched: bool,
    stopped: Option<StoreError>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.index.is_empty() && self.system.is_empty() && self.user.is_empty()
    }

    /// The queue from which a run of `stream` takes its next piece.
    fn queue(&mut self, stream: Stream) -> &mut VecDeque<Queued> {
        match stream {
            Stream::Index => &mut self.index,
            Stream::Data if !self.system.is_empty() => &mut self.system,
            Stream::Data => &mut self.user,
        }
    }

    /// Puts a piece that could not be written back at the head of its queue.
    fn push_front(&mut self, queued: Queued) {
        match Stream::of(queued.item.kind) {
            Stream::Index => self.index.push_front(queued),
            Stream::Data if self.stalled.is_none() => self.system.push_front(queued),
            // Callers' data never waits behind what the store itself cannot write.
            Stream::Data if queued.class == Class::User => self.user.push_front(queued),
            Stream::Data => self.system.push_front(queued),
        }
    }
}

/// A run that has its location and is ready to be submitted.
struct Run {
    slab: u32,
    epoch: u64,
    at: u64,
    bytes: u64,
    parts: Vec<Bytes>,
    members: Vec<(Queued, u32)>,
    /// Failures counted when it was built.
    failures_before: u64,
    /// For a slab's first run, which carries the slab header: the slab's previous state.
    opened: Option<Opened>,
    /// The slab was never written to before this opening.
    fresh: bool,
}

/// Fixed parameters of the writer.
pub(crate) struct WriterConfig {
    /// The data device.
    pub disk: Device,
    /// How it is divided.
    pub geometry: Geometry,
    /// The target's uuid.
    pub target: Uuid,
    /// The target's name, for messages.
    pub name: TargetId,
    /// The incarnation that writes.
    pub incarnation: Incarnation,
    /// The target's generation.
    pub generation: u32,
    /// Slabs that callers' data may not open.
    pub reserved_slabs: u32,
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
    /// The highest committed transno, in the form of run headers.
    committed: Rc<Cell<u32>>,
    /// Counts runs that reached the device: a flush covers those counted when it began.
    written: Rc<Cell<u64>>,
    /// Retired slabs that the store has yet to record durably.
    retired: Rc<RefCell<Vec<u32>>>,
    suspects: Rc<RefCell<Suspects>>,
    /// Notified when the store's own writes find no space, so that waiting callers get the error.
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

    /// Everything up to `transno` is durable: runs built from now on name it.
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

    /// True if [`Writer::take_retired`] would return slabs.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.borrow().is_empty()
    }

    /// Bytes left in the open data slab.
    pub(crate) fn open_rest(&self) -> u64 {
        let open = self.state.borrow().open[Stream::Data as usize];
        open.map_or(0, |open| self.config.geometry.slab_bytes - open.at)
    }

    /// True if callers' data waits for a slab.
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

    /// Fails the callers' data that waits for a slab.
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

    /// The error for lack of space, while the store's own writes find none.
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

    /// Bytes for the next run in the stream's open slab, or in a new one. None: its queue is empty, or the first piece
    /// has to wait for a slab.
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
        // After failed writes, callers' data may open any slab: each may show whether the device itself is bad.
        let keep = if of_callers && !in_doubt { self.config.reserved_slabs } else { 0 };
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

    /// Closes the slab of a stream with little traffic: recovery searches for the newest runs in the last slabs opened
    /// only.
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
