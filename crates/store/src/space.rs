//! Space: what is used, what is promised, and which requests wait.
//!
//! There are two measures. *Weight* is what live data needs when it is packed well. It decides whether a request can
//! ever be served (`Full`, at once). *Device bytes* are what data takes in the worst case, when each fragment is
//! written alone. They decide whether a request can be served now, or has to wait for the cleaner.
//!
//! Some slabs are reserved for the cleaner, for checkpoints and for tombstones, so that deletes work on a full store.

use std::{cell::Cell, rc::Rc};

use forebay_env::sync::{Mutex, Notify, select};
use forebay_proto::limits::BLOCK_BYTES;

use crate::{StoreError, StoreErrorKind, StoreResult, commit::Close, core::Core, limits};

/// Slabs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabCounts {
    /// May be opened.
    pub free: u32,
    /// Being written.
    pub open: u32,
    /// Written, with live data or waiting to become free.
    pub full: u32,
    /// Retired after a medium error.
    pub bad: u32,
}

/// Space of a store. `total = used + reserved + available`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes callers may fill (reserved slabs, headers and bad slabs taken off).
    pub total_bytes: u64,
    /// Live bytes: file data, index pages, overhead.
    pub used_bytes: u64,
    /// Promised to reservations that are not in the index yet, and reserved for later writes (fallocate).
    pub reserved_bytes: u64,
    /// What another reservation may take.
    pub available_bytes: u64,
    /// Slabs by state.
    pub slabs: SlabCounts,
}

/// What is promised and not yet used.
#[derive(Default)]
pub(crate) struct Promises {
    weight: Cell<u64>,
    device_bytes: Cell<u64>,
    /// Payload bytes reserved for later writes (fallocate): the caller keeps count of them in rows.
    aside: Cell<u64>,
    /// Weight that counts twice for a moment: still reserved by fallocate, and promised to the writes that fill it.
    twice: Cell<u64>,
    /// Held by the request that waits for space; others wait for their turn, in order.
    turn: Mutex<()>,
    /// Notified when promised device bytes are written or given back.
    released: Notify,
    waiting: Cell<u32>,
    grants: Cell<u64>,
    /// Set when the cleaner could gain nothing more for waiting requests: the count of `Allocator::deaths` at that
    /// time.
    nothing_to_clean_at: Cell<Option<u64>>,
}

/// A promise of space: given back when dropped, used up by [`crate::Store::place`].
pub struct Reservation {
    promises: Rc<Promises>,
    weight: u64,
    device_bytes: u64,
    /// See [`Promises::twice`].
    twice: u64,
}

impl Reservation {
    /// Declares that its writes fill `payload_bytes` reserved by fallocate, which count as reserved until the writes
    /// are applied.
    pub fn fills(&mut self, payload_bytes: u64) {
        let weight = aside_weight(payload_bytes).min(self.weight);
        self.twice += weight;
        self.promises.twice.set(self.promises.twice.get() + weight);
    }

    /// The bytes are on the device: only their weight stays promised, until the index has them.
    pub(crate) fn placed(mut self) -> Self {
        let device_bytes = std::mem::take(&mut self.device_bytes);
        self.promises.release(device_bytes);
        self
    }

    /// Weight promised.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// Splits off the promise of `payload_bytes` from one that [`crate::Store::promise`] gave; all of it, if it is
    /// less.
    pub fn split(&mut self, payload_bytes: u64) -> Self {
        let weight = aside_weight(payload_bytes).min(self.weight);
        self.weight -= weight;
        Self { promises: self.promises.clone(), weight, device_bytes: 0, twice: 0 }
    }

    /// Adds another promise of the same store.
    pub fn join(&mut self, mut other: Self) {
        assert!(Rc::ptr_eq(&self.promises, &other.promises), "each is kept in the accounts of its store");
        self.weight += std::mem::take(&mut other.weight);
        self.device_bytes += std::mem::take(&mut other.device_bytes);
        self.twice += std::mem::take(&mut other.twice);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let promises = &self.promises;
        promises.weight.set(promises.weight.get() - self.weight);
        promises.twice.set(promises.twice.get() - self.twice);
        promises.release(self.device_bytes);
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reservation({} bytes)", self.weight)
    }
}

impl Promises {
    /// True if a request waits for the cleaner.
    pub(crate) fn anybody_waits(&self) -> bool {
        self.waiting.get() > 0
    }

    /// At this count of `deaths` the cleaner can gain nothing more: waiting requests get `Full`. None: it may gain
    /// something.
    pub(crate) fn set_nothing_to_clean(&self, deaths: Option<u64>) {
        self.nothing_to_clean_at.set(deaths);
    }

    /// Reservations granted since the start.
    pub(crate) fn grants(&self) -> u64 {
        self.grants.get()
    }

    fn release(&self, device_bytes: u64) {
        self.device_bytes.set(self.device_bytes.get() - device_bytes);
        if self.anybody_waits() && device_bytes > 0 {
            self.released.notify_waiters();
        }
    }

    /// Grants a request for which the device has space; counts as progress of the cleaner.
    fn grant(self: &Rc<Self>, weight: u64, device_bytes: u64) -> Reservation {
        self.grants.set(self.grants.get() + 1);
        self.hold(weight, device_bytes)
    }

    fn hold(self: &Rc<Self>, weight: u64, device_bytes: u64) -> Reservation {
        self.weight.set(self.weight.get() + weight);
        self.device_bytes.set(self.device_bytes.get() + device_bytes);
        Reservation { promises: self.clone(), weight, device_bytes, twice: 0 }
    }
}

/// Weight of `payload_bytes` in `fragments` fragments.
fn weight_of(payload_bytes: u64, fragments: u64) -> u64 {
    let sums = payload_bytes / BLOCK_BYTES + 2 * fragments;
    payload_bytes + fragments * limits::EXTENT_OVERHEAD_BYTES + 8 * sums
}

/// Weight of payload that will be written in pieces of 4 KiB or more.
pub(crate) fn aside_weight(payload_bytes: u64) -> u64 {
    payload_bytes.saturating_add(payload_bytes / 32)
}

/// Worst-case device bytes of a payload: each fragment is written in a run of its own, and slabs end in the middle of
/// runs.
fn device_bytes_of(payload_bytes: u64, fragments: u64, slab_usable: u64) -> u64 {
    let sectors = payload_bytes + fragments * 2 * limits::SECTOR;
    sectors + (sectors / slab_usable + 1) * 3 * limits::SECTOR
}

impl Core {
    /// Bytes of a slab that live data can fill, whatever its fragments.
    pub(crate) fn slab_usable(&self) -> u64 {
        let slab = self.geometry.slab_bytes;
        // Less its header, run headers and padding (1/64, at least 8 KiB), and the end that no whole block fits.
        slab - limits::SECTOR - (slab / 64).max(2 * limits::SECTOR) - BLOCK_BYTES.min(slab / 8)
    }

    /// Space by use.
    pub(crate) fn space(&self) -> Space {
        let alloc = self.alloc.borrow();
        let slabs = alloc.counts();
        // Two more than the reserved ones: the rest of the open slab, and the last slab to be emptied, cannot be
        // counted on.
        let good = self.geometry.slab_count.saturating_sub(slabs.bad + self.reserved_slabs + 2);
        let total_bytes = u64::from(good) * self.slab_usable();
        // Pages that the running checkpoint supersedes are free soon, and the reserved slabs have space for both.
        let pages = alloc.page_live().saturating_sub(self.table.borrow().superseded_bytes());
        let used_bytes = (alloc.data_live() + pages).min(total_bytes);
        let reserved_bytes = self.promises.weight.get() + aside_weight(self.promises.aside.get());
        let available_bytes = (total_bytes - used_bytes).saturating_sub(reserved_bytes);
        Space { total_bytes, used_bytes, reserved_bytes, available_bytes, slabs }
    }

    /// Device bytes that callers' data can take before a slab has to be cleaned.
    fn writable_bytes(&self) -> u64 {
        let free = self.alloc.borrow().sure_free_count().saturating_sub(self.reserved_slabs);
        u64::from(free) * self.slab_usable() + self.writer.open_rest().saturating_sub(BLOCK_BYTES)
    }

    /// See [`crate::Store::promisable_bytes`].
    pub(crate) fn promisable_bytes(&self) -> u64 {
        // The inverse of the weight, rounded down.
        self.space().available_bytes / 33 * 32
    }

    /// See [`crate::Store::reclaimable_bytes`].
    pub(crate) fn reclaimable_bytes(&self) -> u64 {
        // The inverse of the weight, rounded down.
        (self.space().available_bytes + self.overdraft()) / 33 * 32
    }

    /// See [`crate::Store::reclaim_promise`].
    pub(crate) fn reclaim_promise(&self, payload_bytes: u64) -> StoreResult<Reservation> {
        let weight = aside_weight(payload_bytes);
        self.refuse_when_full(weight, self.overdraft())?;
        Ok(self.promises.hold(weight, 0))
    }

    /// See [`crate::Store::promise`].
    pub(crate) fn promise(&self, payload_bytes: u64) -> StoreResult<Reservation> {
        let weight = aside_weight(payload_bytes);
        self.refuse_when_full(weight, 0)?;
        Ok(self.promises.hold(weight, 0))
    }

    /// See [`crate::Store::set_aside`].
    pub(crate) fn set_aside(&self, before: u64, now: u64) {
        let aside = &self.promises.aside;
        aside.set((aside.get() + now).saturating_sub(before));
    }

    /// See [`crate::Store::reserve_from`].
    pub(crate) async fn reserve(&self, payload_bytes: u64, fragments: usize, aside: u64) -> StoreResult<Reservation> {
        let weight = weight_of(payload_bytes, fragments as u64);
        let device_bytes = device_bytes_of(payload_bytes, fragments as u64, self.slab_usable());
        // A piece of a few bytes weighs more than the space withheld for it.
        let overdraft = if aside >= payload_bytes { self.overdraft() } else { 0 };
        let aside = aside_weight(aside) + overdraft;
        self.refuse_when_full(weight, aside)?;
        if self.room_now(device_bytes) && !self.promises.anybody_waits() {
            return Ok(self.promises.grant(weight, device_bytes));
        }
        let promises = self.promises.clone();
        promises.waiting.set(promises.waiting.get() + 1);
        let _leaves = OnDrop(|| promises.waiting.set(promises.waiting.get() - 1));
        let _turn = promises.turn.lock().await;
        let mut hopeless_since = None;
        loop {
            let (progress, stall) = (self.progress.notified(), self.writer.stalls.notified());
            let released = promises.released.notified();
            self.check_running()?;
            self.refuse_when_full(weight, aside)?;
            // The cleaner finds no space to move data to, either.
            self.writer.stalled().map_or(Ok(()), Err)?;
            if self.room_now(device_bytes) {
                return Ok(promises.grant(weight, device_bytes));
            }
            if self.has_nothing_to_clean() {
                let (crowded, now, checkpoints) = (self.journal_crowded(), self.env.now(), self.checkpoints.get());
                // Later checkpoints are not waited for; nor, for long, is data of others that is not in the index yet.
                let (since, begun) = *hopeless_since.get_or_insert((now, checkpoints.begun));
                let checkpoint = checkpoints.finished < begun;
                let pinned = self.alloc.borrow().pinned() > 0 && now.since(since) < limits::PINNED_FOR;
                if !crowded && !checkpoint && !pinned && promises.device_bytes.get() == 0 {
                    return Err(self.full_error(weight));
                }
                if crowded {
                    self.wake_checkpoint.notify_one();
                    self.demand_commit_if_it_frees();
                }
                // Other requests were promised the worst case, write less, and may leave garbage behind. So may those
                // whose bytes are not in the index yet. A checkpoint gives back what it took. Before that there is
                // nothing to clean.
                select! {
                    biased;
                    () = progress => {}
                    () = stall => {}
                    () = released => {}
                    () = self.env.sleep(limits::PROMISES_LOOK) => self.wake_cleaner.notify_one(),
                }
                continue;
            }
            self.wake_cleaner.notify_one();
            self.wake_checkpoint.notify_one();
            self.demand_commit_if_it_frees();
            select! {
                biased;
                () = progress => {}
                () = stall => {}
                () = released => {}
            }
        }
    }

    /// What requests with withheld space may take beyond all that is promised: half of one of the two slabs not counted
    /// on.
    fn overdraft(&self) -> u64 {
        let space = self.space();
        let data_and_pages = {
            let alloc = self.alloc.borrow();
            alloc.data_live() + alloc.page_live().saturating_sub(self.table.borrow().superseded_bytes())
        };
        let promised = space.reserved_bytes.saturating_sub(self.promises.twice.get());
        let over = (data_and_pages + promised).saturating_sub(space.total_bytes);
        (self.slab_usable() / 2).saturating_sub(over)
    }

    /// True if the cleaner found nothing more to gain for waiting requests, and no live bytes have died since.
    fn has_nothing_to_clean(&self) -> bool {
        let alloc = self.alloc.borrow();
        // Slabs that are free now, but not after a crash: a checkpoint makes them so.
        let unsure = alloc.sure_free_count() < alloc.free_count();
        !unsure && self.promises.nothing_to_clean_at.get() == Some(alloc.deaths())
    }

    /// True if a request, or a queued write of a caller, waits for the cleaner.
    pub(crate) fn somebody_waits(&self) -> bool {
        self.promises.anybody_waits() || self.writer.user_waits()
    }

    fn room_now(&self, device_bytes: u64) -> bool {
        !self.journal_crowded() && self.writable_bytes() >= self.promises.device_bytes.get() + device_bytes
    }

    /// `aside`: weight that is withheld for this very request, with the overdraft that it may take.
    fn refuse_when_full(&self, weight: u64, aside: u64) -> StoreResult<()> {
        self.check_running()?;
        if weight <= self.space().available_bytes + aside { Ok(()) } else { Err(self.full_error(weight)) }
    }

    fn full_error(&self, weight: u64) -> StoreError {
        let space = self.space();
        let words = format!(
            "{} is full: {weight} bytes asked for, {} of {} available; delete or migrate files",
            self.identity.target, space.available_bytes, space.total_bytes
        );
        StoreError::new(StoreErrorKind::Full, words)
    }

    fn demand_commit_if_it_frees(&self) {
        if self.alloc.borrow().awaits_commit(self.committed_group()) {
            self.demand_commit(Close::Size);
        }
    }
}

/// Calls its function when it is dropped.
pub(crate) struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
