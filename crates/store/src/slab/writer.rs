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
//! Invariant: a device write lies within one full stripe, or covers several whole ones.
//! Invariant: a tombstone lies in a slab opened no earlier than those of the data it outdates: both go one way.
//! Invariant: an open slab is among the last [`limits::RECOVERY_SLABS_SCANNED`] opened.
//! Invariant: a slab is noted as bad only when a write elsewhere succeeded after the one that failed in it: where every
//! write fails it is the device that is bad, the writer stops, and the slabs are as they were at the next start.
//! Not here: flushes (see `commit`), admission (see `space`).

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{AlignedBuf, Env, EnvErrorKind, EnvResult, is_aligned, sync::oneshot};
use forebay_proto::{Fid, Incarnation, TargetId, Transno, Uuid, WriteId, crc, limits::BLOCK_BYTES};

use super::{
    Place,
    allocator::Allocator,
    header::{Geometry, SlabHeader},
    run::{self, Descriptor, FragmentKind, RunHeader},
};
use crate::{StoreError, StoreErrorKind, StoreResult, StoreStats, limits, mirror::Device};

/// A fragment on its way to the device.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// What it is.
    pub kind: FragmentKind,
    /// The object, or a page's number.
    pub fid: Fid,
    /// First byte within the object.
    pub offset: u64,
    /// Bytes of the object (of tombstones: what is gone).
    pub length: u64,
    /// The bytes; empty for tombstones.
    pub data: Bytes,
    /// Chosen by the writer.
    pub write_id: WriteId,
    /// Given by the target.
    pub version: Transno,
    /// Layout generation.
    pub generation: u32,
    /// Tombstones that are carried on: where they were first written. 0 = here.
    pub origin_epoch: u64,
    /// Sum of each block.
    pub sums: Vec<u64>,
}

/// A piece of an item that lies on the device.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// What lies there; `data` is given back to its owner.
    pub item: Item,
    /// Where it lies.
    pub place: Place,
}

/// Pieces on the device whose slabs are pinned until this is dropped.
pub(crate) struct Pieces {
    /// The pieces, in no order.
    pub list: Vec<Piece>,
    alloc: Rc<RefCell<Allocator>>,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let mut alloc = self.alloc.borrow_mut();
        self.list.iter().for_each(|piece| alloc.unpin(piece.place.slab));
    }
}

/// For whom something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Callers' data: leaves the slabs kept back alone.
    User,
    /// Checkpoints, the cleaner, tombstones: may use them, and goes first.
    System,
}

/// Who waits for items; gathers their pieces.
struct Ticket {
    alloc: Rc<RefCell<Allocator>>,
    remaining: Cell<usize>,
    pieces: RefCell<Vec<Piece>>,
    done: RefCell<Option<oneshot::Sender<StoreResult<Pieces>>>>,
}

impl Ticket {
    fn arrived(&self, piece: Piece) {
        self.pieces.borrow_mut().push(piece);
        self.remaining.set(self.remaining.get() - 1);
        if self.remaining.get() == 0 {
            self.finish(None);
        }
    }

    /// Sends what came, or the error; without a receiver the pieces are dropped and their pins with them.
    fn finish(&self, error: Option<StoreError>) {
        let pieces = Pieces { list: self.pieces.take(), alloc: self.alloc.clone() };
        if let Some(done) = self.done.take() {
            let _ = done.send(error.map_or(Ok(pieces), Err));
        }
    }
}

struct Queued {
    item: Item,
    ticket: Rc<Ticket>,
    tries: u32,
}

#[derive(Clone, Copy)]
struct OpenSlab {
    slab: u32,
    epoch: u64,
    /// Where the next run begins.
    at: u64,
    runs: u32,
    prev_sum: u64,
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
    /// Counts runs that reached the device: a flush covers those counted when it began.
    written: Rc<Cell<u64>>,
    /// Slabs retired, whose news the store has yet to make durable.
    retired: Rc<RefCell<Vec<u32>>>,
    suspects: Rc<RefCell<Suspects>>,
}

/// Slabs in which a write failed, while no later one has reached the device.
#[derive(Default)]
struct Suspects {
    /// Each with the number of its failure.
    slabs: Vec<(u64, u32)>,
    /// Failures so far.
    failures: u64,
    /// The device had no room for the last write (the storage under it is full).
    no_room: bool,
}

impl Suspects {
    fn add(&mut self, slab: u32) {
        self.failures += 1;
        self.slabs.push((self.failures, slab));
    }

    /// A write submitted after `failures` of them succeeded: the device works, the slabs do not.
    fn convict(&mut self, failures: u64) -> Vec<u32> {
        self.no_room = false;
        let guilty = self.slabs.iter().filter(|(number, _)| *number <= failures).map(|(_, slab)| *slab).collect();
        self.slabs.retain(|(number, _)| *number > failures);
        guilty
    }
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
            written: Rc::default(),
            retired: Rc::default(),
            suspects: Rc::default(),
        }
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
        let ticket = Rc::new(Ticket {
            alloc: self.alloc.clone(),
            remaining: Cell::new(items.len()),
            pieces: RefCell::default(),
            done: RefCell::new(Some(sender)),
        });
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
                queue.push_back(Queued { item, ticket: ticket.clone(), tries: 0 });
            }
        }
        self.pump();
        async move {
            let stopped =
                || StoreError::new(StoreErrorKind::Stopped, "the store was closed while bytes were being placed");
            receiver.await.unwrap_or_else(|_| Err(stopped()))
        }
    }

    /// Submits runs while there is work and the device takes more.
    pub(crate) fn pump(&self) {
        while let Some(run) = self.next_run() {
            self.submit(run);
        }
    }

    fn next_run(&self) -> Option<Run> {
        let mut state = self.state.borrow_mut();
        if state.in_flight >= limits::WRITES_IN_FLIGHT || state.stopped.is_some() || state.is_idle() {
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
        Some(self.build(state, stream, members))
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
        let keep = if of_callers { self.config.keep_slabs } else { 0 };
        let (slab, epoch, used) = self.alloc.borrow_mut().open(keep)?;
        let mut stats = self.stats.borrow_mut();
        stats.slabs_opened += 1;
        stats.slabs_reused += u64::from(used);
        // `at` 0: the slab's header goes out together with its first run.
        state.open[stream as usize] = Some(OpenSlab { slab, epoch, at: 0, runs: 0, prev_sum: 0 });
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

    fn build(&self, state: &mut State, stream: Stream, members: Vec<Queued>) -> Run {
        let open = state.open[stream as usize].as_mut().expect("room() left a slab open");
        let config = &self.config;
        let mut parts = Vec::new();
        let begins_at = open.at;
        if open.at == 0 {
            let header = SlabHeader { slab: open.slab, epoch: open.epoch, incarnation: config.incarnation };
            let sector = header.encode(config.target);
            open.prev_sum = super::header::sum_of(&sector);
            parts.push(sector.freeze());
            open.at = limits::SECTOR;
        }
        let (mut header, payload, places) = self.lay_out(open, &members);
        header.total_bytes = header.header_bytes() as u64 + payload.iter().map(|p| p.len() as u64).sum::<u64>();
        let (header_bytes, sum) = header.encode(config.target);
        parts.push(header_bytes.freeze());
        parts.extend(payload);
        let run_at = open.at;
        open.at += header.total_bytes;
        open.runs += 1;
        open.prev_sum = sum;
        assert!(open.at <= config.geometry.slab_bytes, "a run ends in its slab");
        let mut alloc = self.alloc.borrow_mut();
        members.iter().for_each(|_| alloc.pin(open.slab));
        let members = members.into_iter().zip(places.into_iter().map(|at| run_at as u32 + at)).collect();
        let failures_before = self.suspects.borrow().failures;
        Run {
            slab: open.slab,
            epoch: open.epoch,
            at: begins_at,
            bytes: open.at - begins_at,
            parts,
            members,
            failures_before,
        }
    }

    /// The header, the payload's parts, and where in the run each member's payload begins.
    fn lay_out(&self, open: &OpenSlab, members: &[Queued]) -> (RunHeader, Vec<Bytes>, Vec<u32>) {
        let mut header = RunHeader {
            total_bytes: 0,
            slab: open.slab,
            epoch: open.epoch,
            number: open.runs,
            prev_sum: open.prev_sum,
            incarnation: self.config.incarnation,
            generation: self.config.generation,
            durable_lsn: self.durable_lsn.get(),
            moved_lsn: self.durable_lsn.get(),
            fragments: members.iter().map(|m| describe(&m.item, open.epoch)).collect(),
        };
        let mut at = header.header_bytes();
        let mut parts = Vec::new();
        for (member, fragment) in members.iter().zip(&mut header.fragments).filter(|(m, _)| goes_as_it_is(&m.item)) {
            fragment.payload_at = at as u32;
            at += member.item.data.len();
            parts.push(member.item.data.clone());
        }
        let packed: usize = members.iter().filter(|m| !goes_as_it_is(&m.item)).map(|m| m.item.data.len()).sum();
        let mut buf = AlignedBuf::to_be_filled(packed.next_multiple_of(limits::SECTOR as usize));
        buf[packed..].fill(0);
        let mut filled = 0;
        for (member, fragment) in members.iter().zip(&mut header.fragments).filter(|(m, _)| !goes_as_it_is(&m.item)) {
            let data = &member.item.data;
            fragment.payload_at = if data.is_empty() { 0 } else { (at + filled) as u32 };
            buf[filled..filled + data.len()].copy_from_slice(data);
            filled += data.len();
        }
        if !buf.is_empty() {
            parts.push(buf.freeze());
        }
        let places = header.fragments.iter().map(|fragment| fragment.payload_at).collect();
        (header, parts, places)
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
            for write in writes {
                outcome = outcome.and(write.await);
            }
            writer.finished(run, outcome);
        }));
    }

    fn finished(&self, run: Run, outcome: EnvResult<()>) {
        self.state.borrow_mut().in_flight -= 1;
        match outcome {
            Ok(()) => self.run_written(run),
            Err(error) if error.kind == EnvErrorKind::Medium => self.run_failed(run, error.message),
            Err(error) if error.kind == EnvErrorKind::NoSpace => self.no_room(run, error.message),
            Err(error) => self.give_up(run, error.message),
        }
        self.pump();
    }

    /// The storage under the device is full (a sparse file, a thin volume): whoever wrote is told, nothing is bad.
    fn no_room(&self, run: Run, message: String) {
        if !std::mem::replace(&mut self.suspects.borrow_mut().no_room, true) {
            self.env.log(&format!("{}: {message}; until then writes are answered with ENOSPC", self.config.name));
        }
        self.release(&run);
        let mut state = self.state.borrow_mut();
        for stream in [Stream::Data, Stream::Index] {
            // What follows a run that is missing may lack the slab's header.
            if state.open[stream as usize].is_some_and(|open| open.slab == run.slab) {
                self.close_slab(&mut state, stream);
            }
        }
        drop(state);
        let error = StoreError::new(StoreErrorKind::Full, message);
        run.members.iter().for_each(|(queued, _)| queued.ticket.finish(Some(error.clone())));
    }

    /// Nothing can be written any more.
    fn give_up(&self, run: Run, message: String) {
        self.release(&run);
        let error = StoreError::new(StoreErrorKind::Stopped, message);
        run.members.iter().for_each(|(queued, _)| queued.ticket.finish(Some(error.clone())));
        self.stop(&error);
    }

    fn run_written(&self, run: Run) {
        self.written.set(self.written.get() + 1);
        let bad = self.suspects.borrow_mut().convict(run.failures_before);
        {
            let mut stats = self.stats.borrow_mut();
            stats.runs += 1;
            stats.device_bytes += run.bytes;
            stats.slabs_retired += bad.len() as u64;
        }
        self.retired.borrow_mut().extend(bad);
        for (queued, at) in run.members {
            let place = Place { slab: run.slab, epoch: run.epoch, at };
            if queued.item.kind.is_tombstone() {
                self.alloc.borrow_mut().add_tombstone(run.slab, run::DESCRIPTOR_BYTES as u32);
            }
            queued.ticket.arrived(Piece { item: queued.item, place });
        }
    }

    /// Leaves the slab and queues the run's members again, first in line.
    fn run_failed(&self, run: Run, message: String) {
        if self.state.borrow().stopped.is_some() {
            return self.give_up(run, message);
        }
        if self.alloc.borrow_mut().retire(run.slab) {
            self.env.log(&format!("{}: slab {} is left alone: {message}", self.config.name, run.slab));
            self.suspects.borrow_mut().add(run.slab);
        }
        let suspects = self.suspects.borrow().slabs.len();
        if suspects >= limits::SUSPECT_SLABS {
            let words = format!("writes fail wherever they go, in {suspects} slabs one after another: {message}");
            return self.give_up(run, words);
        }
        self.release(&run);
        let mut state = self.state.borrow_mut();
        for open in &mut state.open {
            if open.is_some_and(|open| open.slab == run.slab) {
                *open = None;
            }
        }
        let mut given_up = Vec::new();
        for (mut queued, _) in run.members.into_iter().rev() {
            queued.tries += 1;
            match queued.tries > limits::PLACE_RETRIES {
                true => given_up.push(queued),
                false => state.push_front(queued),
            }
        }
        drop(state);
        let error = StoreError::new(StoreErrorKind::Medium, format!("writes fail in slab after slab: {message}"));
        given_up.iter().for_each(|queued| queued.ticket.finish(Some(error.clone())));
    }

    fn release(&self, run: &Run) {
        let mut alloc = self.alloc.borrow_mut();
        run.members.iter().for_each(|_| alloc.unpin(run.slab));
    }
}

fn describe(item: &Item, epoch: u64) -> Descriptor {
    let origin = if item.origin_epoch == 0 { epoch } else { item.origin_epoch };
    Descriptor {
        kind: item.kind,
        fid: item.fid,
        offset: item.offset,
        length: item.length,
        write_id: item.write_id,
        version: item.version,
        generation: item.generation,
        payload_at: 0,
        origin_epoch: if item.kind.is_tombstone() { origin } else { 0 },
        sums: item.sums.clone(),
    }
}

/// True if the device takes the item's bytes from where they lie.
fn goes_as_it_is(item: &Item) -> bool {
    !item.data.is_empty() && is_aligned(&item.data)
}

/// True if a piece of the item may be cut off at a block boundary.
fn may_be_cut(item: &Item) -> bool {
    item.kind == FragmentKind::Data && item.sums.len() > 1
}

/// Bytes of a run with the least piece of `item` that may be written by itself.
fn least_run_bytes(item: &Item) -> u64 {
    let (data, sums) = match may_be_cut(item) {
        true => (BLOCK_BYTES - item.offset % BLOCK_BYTES, 1),
        false => (item.data.len() as u64, item.sums.len()),
    };
    run::header_bytes(run::DESCRIPTOR_BYTES + 8 * sums) as u64 + data.next_multiple_of(limits::SECTOR)
}

/// What a run takes so far.
#[derive(Default)]
struct Fill {
    descriptors: usize,
    aligned: u64,
    packed: u64,
    members: usize,
}

impl Fill {
    fn with(&self, item: &Item) -> Self {
        let bytes = item.data.len() as u64;
        let aligned = goes_as_it_is(item);
        Self {
            descriptors: self.descriptors + run::DESCRIPTOR_BYTES + 8 * item.sums.len(),
            aligned: self.aligned + if aligned { bytes } else { 0 },
            packed: self.packed + if aligned { 0 } else { bytes },
            members: self.members + 1,
        }
    }

    fn total(&self) -> u64 {
        run::header_bytes(self.descriptors) as u64 + self.aligned + self.packed.next_multiple_of(limits::SECTOR)
    }

    fn full(&self) -> bool {
        self.members >= limits::RUN_FRAGMENTS || self.aligned + self.packed >= limits::RUN_BYTES
    }
}

/// Takes what the next run holds off the queues.
fn select(state: &mut State, stream: Stream, room: u64) -> Vec<Queued> {
    let mut members = Vec::new();
    let mut fill = Fill::default();
    while !fill.full() {
        let queue = state.queue(stream);
        let Some(first) = queue.front() else { break };
        if fill.with(&first.item).total() <= room {
            fill = fill.with(&first.item);
            members.extend(queue.pop_front());
            continue;
        }
        if let Some(head) = cut_to_fit(queue, &fill, room) {
            members.push(head);
        }
        break;
    }
    members
}

/// Cuts the first item of `queue` so that its head fits; the rest stays first in line.
fn cut_to_fit(queue: &mut VecDeque<Queued>, fill: &Fill, room: u64) -> Option<Queued> {
    let first = queue.front_mut()?;
    if !may_be_cut(&first.item) {
        return None;
    }
    let left = room.saturating_sub(fill.total() + 2 * limits::SECTOR + 8 * first.item.sums.len() as u64);
    let end = (first.item.offset + left) / BLOCK_BYTES * BLOCK_BYTES;
    // A single block may fit exactly where the careful estimate above says it does not.
    let end = end.max((first.item.offset / BLOCK_BYTES + 1) * BLOCK_BYTES);
    let (head, rest) = split(&first.item, end)?;
    if fill.with(&head).total() > room {
        return None;
    }
    first.ticket.remaining.set(first.ticket.remaining.get() + 1);
    let (ticket, tries) = (first.ticket.clone(), first.tries);
    first.item = rest;
    Some(Queued { item: head, ticket, tries })
}

/// The item's bytes before and from object offset `at`, a block boundary within it.
fn split(item: &Item, at: u64) -> Option<(Item, Item)> {
    let head_bytes = at.checked_sub(item.offset).filter(|bytes| *bytes > 0 && *bytes < item.length)?;
    let blocks = crc::blocks(item.offset, head_bytes, BLOCK_BYTES).count();
    let piece = |offset, data: Bytes, sums: &[u64]| Item {
        offset,
        length: data.len() as u64,
        data,
        sums: sums.to_vec(),
        ..item.clone()
    };
    let (head, rest) = (item.data.slice(..head_bytes as usize), item.data.slice(head_bytes as usize..));
    Some((piece(item.offset, head, &item.sums[..blocks]), piece(at, rest, &item.sums[blocks..])))
}

/// Cuts `parts`, to be written at `at`, where the first whole full stripe begins and where the last one ends.
fn cut_at_stripes(mut at: u64, parts: &[Bytes], stripe_bytes: u64) -> Vec<(u64, Vec<Bytes>)> {
    let end = at + parts.iter().map(|part| part.len() as u64).sum::<u64>();
    let cuts = [at.next_multiple_of(stripe_bytes), end / stripe_bytes * stripe_bytes];
    let mut writes: Vec<(u64, Vec<Bytes>)> = Vec::new();
    for part in parts {
        let mut rest = part.clone();
        while !rest.is_empty() {
            let next_cut = cuts.into_iter().find(|cut| *cut > at).unwrap_or(end);
            let take = (next_cut - at).min(rest.len() as u64) as usize;
            match writes.last_mut() {
                Some((_, parts)) if !cuts.contains(&at) => parts.push(rest.split_to(take)),
                _ => writes.push((at, vec![rest.split_to(take)])),
            }
            at += take as u64;
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_writes_are_cut_at_full_stripes() {
        let parts = [Bytes::from(vec![1; 4096]), Bytes::from(vec![2; 8192]), Bytes::from(vec![3; 4096])];
        let writes = cut_at_stripes(4096, &parts, 8192);
        let shape: Vec<(u64, usize)> =
            writes.iter().map(|(at, parts)| (*at, parts.iter().map(Bytes::len).sum())).collect();
        assert_eq!(shape, [(4096, 4096), (8192, 8192), (16384, 4096)]);
    }

    #[test]
    fn whole_stripes_go_to_the_device_together_and_a_part_of_one_is_not_cut() {
        let shape = |at, bytes: &[usize]| -> Vec<(u64, usize)> {
            let parts: Vec<Bytes> = bytes.iter().map(|bytes| Bytes::from(vec![1; *bytes])).collect();
            let writes = cut_at_stripes(at, &parts, 8192);
            writes.iter().map(|(at, parts)| (*at, parts.iter().map(Bytes::len).sum())).collect()
        };
        assert_eq!(shape(4096, &[4096, 32768]), [(4096, 4096), (8192, 32768)]);
        assert_eq!(shape(8192, &[4096, 16384]), [(8192, 16384), (24576, 4096)]);
        assert_eq!(shape(8192, &[4096]), [(8192, 4096)]);
        assert_eq!(shape(12288, &[4096]), [(12288, 4096)]);
    }

    #[test]
    fn an_item_is_split_between_blocks_with_their_sums() {
        let item = Item {
            kind: FragmentKind::Data,
            fid: Fid::ROOT,
            offset: 60_000,
            length: 100_000,
            data: Bytes::from(vec![0; 100_000]),
            write_id: WriteId::default(),
            version: Transno(1),
            generation: 0,
            origin_epoch: 0,
            sums: vec![1, 2, 3],
        };
        let (head, rest) = split(&item, 131_072).unwrap();
        assert_eq!((head.offset, head.length, head.sums), (60_000, 71_072, vec![1, 2]));
        assert_eq!((rest.offset, rest.length, rest.sums), (131_072, 28_928, vec![3]));
        assert!(split(&item, 60_000).is_none() && split(&item, 160_000).is_none());
    }
}
