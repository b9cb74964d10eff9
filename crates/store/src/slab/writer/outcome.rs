//! The outcome of runs: written, failed at their location, refused for lack of space, or the device itself is bad.
//!
//! A slab does not count without its header. Runs that were submitted beside the header wait until it is on the device,
//! and go elsewhere if it fails.
//!
//! A device may be thin-provisioned: a location that was never written to may find no space behind it. Then slabs used
//! before are taken first, as their space exists. If there are none, callers get `Full` at once. Checkpoints,
//! tombstones and data that the cleaner moves wait, and are tried again: the store pauses, and does not stop.
//!
//! Invariant: a slab is recorded as bad only when a write elsewhere succeeded after the one that failed in it. Where
//! every write fails, the device is bad: the writer stops, and the next start finds the slabs as they were.
//! Invariant: a slab whose header found no space was not opened: it is the next to be opened.

use forebay_env::{EnvError, EnvErrorKind, EnvResult};

use super::{
    super::{Place, allocator::Opened, run},
    Class, Run, Stream, Writer,
    ticket::Piece,
};
use crate::{StoreError, StoreErrorKind, limits};

/// Slabs in which a write failed, while no later write has reached the device.
#[derive(Default)]
pub(super) struct Suspects {
    /// Each with the number of its failure.
    pub slabs: Vec<(u64, u32)>,
    /// Number of failures.
    pub failures: u64,
    /// The device had no space for a new location (the storage under it is full).
    pub no_room: bool,
}

impl Suspects {
    fn add(&mut self, slab: u32) {
        self.failures += 1;
        self.slabs.push((self.failures, slab));
    }

    /// A write submitted after `failures` of them succeeded: the device works, so these slabs are bad.
    fn convict(&mut self, failures: u64) -> Vec<u32> {
        let guilty = self.slabs.iter().filter(|(number, _)| *number <= failures).map(|(_, slab)| *slab).collect();
        self.slabs.retain(|(number, _)| *number > failures);
        guilty
    }
}

/// Runs in flight in a slab.
#[derive(Default)]
pub(super) struct Flight {
    runs: u32,
    header: Header,
    /// Runs on the device that wait for the slab's header.
    held: Vec<Run>,
}

/// Whether a slab's header is on the device.
#[derive(Default)]
enum Header {
    #[default]
    Written,
    /// In flight, with the slab's first run.
    Coming,
    /// Its write failed, for this reason.
    Failed(EnvError, Opened),
}

impl Flight {
    /// A run is submitted; the first run of a slab carries its header.
    pub(super) fn begin(&mut self, first: bool) {
        self.runs += 1;
        if first {
            self.header = Header::Coming;
        }
    }
}

impl Writer {
    pub(super) fn finished(&self, run: Run, outcome: EnvResult<()>) {
        let slab = run.slab;
        let mut settled = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            state.in_flight -= 1;
            let flight = state.flights.get_mut(&slab).expect("a run under way is counted");
            flight.runs -= 1;
            match (run.opened, &flight.header) {
                (Some(opened), _) => {
                    let held = std::mem::take(&mut flight.held);
                    flight.header = match &outcome {
                        Ok(()) => Header::Written,
                        Err(error) => Header::Failed(error.clone(), opened),
                    };
                    settled.push((run, outcome.clone()));
                    settled.extend(held.into_iter().map(|run| (run, outcome.clone())));
                }
                (None, Header::Coming) if outcome.is_ok() => flight.held.push(run),
                (None, Header::Failed(error, _)) => settled.push((run, outcome.and(Err(error.clone())))),
                (None, _) => settled.push((run, outcome)),
            }
        }
        settled.into_iter().for_each(|(run, outcome)| self.settle(run, outcome));
        self.landed(slab);
        self.pump();
        self.watch_for_the_end();
    }

    fn settle(&self, run: Run, outcome: EnvResult<()>) {
        match outcome {
            Ok(()) => self.run_written(run),
            Err(error) if error.kind == EnvErrorKind::Medium => self.run_failed(run, error.message),
            Err(error) if error.kind == EnvErrorKind::NoSpace => self.no_room(run, error.message),
            Err(error) => self.give_up(run, error.message),
        }
    }

    /// Once nothing is in flight in the slab: if its header found no space, undoes the opening.
    fn landed(&self, slab: u32) {
        let mut state = self.state.borrow_mut();
        if state.flights.get(&slab).is_none_or(|flight| flight.runs > 0) {
            return;
        }
        let Some(flight) = state.flights.remove(&slab) else { return };
        if let Header::Failed(error, opened) = flight.header
            && error.kind == EnvErrorKind::NoSpace
        {
            self.alloc.borrow_mut().unopen(slab, opened);
        }
    }

    /// The storage under the device is full (a sparse file, a thin volume): no slab is bad.
    fn no_room(&self, run: Run, message: String) {
        if !std::mem::replace(&mut self.suspects.borrow_mut().no_room, true) {
            self.env.log(&format!("{}: {message}; until then writes are answered with ENOSPC", self.config.name));
        }
        self.release(&run);
        self.leave(&run);
        // The space of a slab used before exists. If even that is refused, only time helps.
        let elsewhere = run.fresh && self.alloc.borrow().has_used_free();
        let error = StoreError::new(StoreErrorKind::Full, message);
        let mut refused = Vec::new();
        let mut waits = false;
        {
            let mut state = self.state.borrow_mut();
            for (mut queued, _) in run.members.into_iter().rev() {
                queued.tries += 1;
                match queued.class {
                    Class::User if !elsewhere || queued.tries > limits::PLACE_RETRIES => refused.push(queued),
                    class => {
                        waits |= class == Class::System && !elsewhere;
                        state.push_front(queued);
                    }
                }
            }
        }
        refused.iter().for_each(|queued| queued.ticket.finish(Some(error.clone())));
        if waits {
            self.stall(error);
        }
    }

    /// The store's own writes find no space: they wait, and callers get the error.
    fn stall(&self, error: StoreError) {
        if self.state.borrow_mut().stalled.replace(error.clone()).is_none() {
            let writer = self.clone();
            drop(self.env.spawn(async move {
                writer.env.sleep(limits::THIN_RETRY).await;
                writer.state.borrow_mut().stalled = None;
                writer.pump();
            }));
        }
        self.fail_user(&error);
        self.stalls.notify_waiters();
    }

    /// Fails the run and stops the writer: nothing can be written any more.
    fn give_up(&self, run: Run, message: String) {
        self.release(&run);
        let error = StoreError::new(StoreErrorKind::Stopped, message);
        run.members.iter().for_each(|(queued, _)| queued.ticket.finish(Some(error.clone())));
        self.stop(&error);
    }

    fn run_written(&self, run: Run) {
        self.written.set(self.written.get() + 1);
        let bad = {
            let mut suspects = self.suspects.borrow_mut();
            suspects.no_room &= !run.fresh;
            suspects.convict(run.failures_before)
        };
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

    /// Retires the slab and queues the run's members again, first in line.
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
        self.leave(&run);
        let mut state = self.state.borrow_mut();
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

    /// Closes the slab of a failed run: runs behind a missing one may lack the slab header.
    fn leave(&self, run: &Run) {
        let mut state = self.state.borrow_mut();
        for stream in [Stream::Data, Stream::Index] {
            if state.open[stream as usize].is_some_and(|open| open.slab == run.slab) {
                state.open[stream as usize] = None;
                let headless = state.flights.get(&run.slab).is_some_and(|f| !matches!(f.header, Header::Written));
                if !headless {
                    self.alloc.borrow_mut().close(run.slab);
                }
            }
        }
    }

    fn release(&self, run: &Run) {
        let mut alloc = self.alloc.borrow_mut();
        run.members.iter().for_each(|_| alloc.unpin(run.slab));
    }

    /// True if writes failed and pieces wait, but nothing is in flight and no slab is left to try.
    fn is_stranded(&self) -> bool {
        let state = self.state.borrow();
        let idle = state.is_idle() || state.in_flight > 0 || state.stopped.is_some() || state.stalled.is_some();
        !idle && !self.suspects.borrow().slabs.is_empty() && self.alloc.borrow().free_count() == 0
    }

    /// When slabs run out before it is clear whether they or the device are bad: if none becomes free in time, it is
    /// the device.
    fn watch_for_the_end(&self) {
        if !self.is_stranded() || std::mem::replace(&mut self.state.borrow_mut().watched, true) {
            return;
        }
        let writer = self.clone();
        drop(self.env.spawn(async move {
            writer.env.sleep(limits::STRANDED).await;
            writer.state.borrow_mut().watched = false;
            if writer.is_stranded() {
                let suspects = writer.suspects.borrow().slabs.len();
                let words = format!("writes failed in {suspects} slabs one after another, and no other is free");
                writer.stop(&StoreError::new(StoreErrorKind::Stopped, words));
            }
        }));
    }
}
