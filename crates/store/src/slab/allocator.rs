//! The states of slabs, and the live bytes of each.
//!
//! Invariant: a slab is opened again only when nothing in it is live or pinned (a pin is a location that is not in the
//! index yet). Also, the group of transactions that removed its last live bytes must be committed. Index pages are
//! removed only when the anchor that drops them is durable.
//! Invariant: an open slab of an earlier incarnation is never appended to. Free slabs are used in the order in which
//! they became free: so all wear alike, and recovery can tell which were opened last.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use forebay_env::{Bug, planted};
use forebay_proto::Incarnation;

use super::Place;
use crate::SlabCounts;

/// Number of a group of transactions that commit together.
pub(crate) type Group = u64;

/// State of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlabState {
    /// It may be opened.
    Free,
    /// It is being written.
    Open,
    /// It is not written any more; it may hold live bytes.
    Full,
    /// A write to it failed: never opened again. It may hold live bytes.
    Bad,
}

/// One slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slab {
    /// Its state.
    pub state: SlabState,
    /// Epoch of its last opening; 0 = never opened.
    pub epoch: u64,
    /// Live weight of file data, uncommitted changes included.
    pub data_live: u64,
    /// Live bytes of index pages.
    pub page_live: u64,
    /// Locations in it that are not in the index yet.
    pub pins: u32,
    /// The last group that removed live bytes from it.
    pub freed_at: Group,
    /// It may hold tombstones. They must be carried on (written to another slab) or not needed any more before it is
    /// free.
    pub tombstones: bool,
    /// Bytes of their descriptors. None: they were written before this start, and the slab has not been scanned.
    pub tombstone_bytes: Option<u32>,
    /// The value of `Allocator::carried` when its tombstones were carried on; 0 = they were not.
    pub carried_at: u64,
    /// It is free, and would be free after a crash too.
    pub sure: bool,
}

impl Slab {
    /// True if nothing in it is needed, except perhaps tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.data_live == 0 && self.page_live == 0 && self.pins == 0
    }

    /// Weight of its live data and pages.
    pub(crate) fn live(&self) -> u64 {
        self.data_live + self.page_live
    }

    /// Bytes that emptying it would write elsewhere, as far as is known.
    pub(crate) fn burden(&self) -> u64 {
        self.live() + u64::from(self.tombstone_bytes.filter(|_| self.tombstones).unwrap_or(0))
    }
}

/// The state of a slab before it was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    before: Slab,
}

impl Opened {
    /// True if the slab was never written to.
    pub(crate) fn is_fresh(&self) -> bool {
        self.before.epoch == 0
    }
}

/// How much a checkpoint knows of the slabs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// It knows of slabs opened before this epoch.
    next_epoch: u64,
    /// It knows of tombstones carried on up to this count.
    carried: u64,
}

/// The states of all slabs.
pub(crate) struct Allocator {
    slabs: Vec<Slab>,
    free: VecDeque<u32>,
    /// Number of free slabs that would be free after a crash too, by the last durable checkpoint and the journal.
    sure_free: u32,
    /// What the last durable checkpoint knows.
    known: Known,
    /// Number of slabs whose tombstones were carried on.
    carried: u64,
    emptied: BTreeSet<u32>,
    next_epoch: u64,
    data_live: u64,
    page_live: u64,
    /// Locations that are not in the index yet.
    pinned: u64,
    /// Slabs by state; None after a change.
    counts: Cell<Option<SlabCounts>>,
    /// Counts deaths of live bytes, and slabs that can be emptied since. While it does not change, the cleaner can gain
    /// no more.
    deaths: u64,
    /// Slabs by the epoch of their last opening, to find the oldest bytes on the device. Holds every slab ever opened.
    by_epoch: BTreeMap<u64, u32>,
}

impl Allocator {
    /// `count` slabs that were never opened.
    pub(crate) fn new(count: u32) -> Self {
        let never = Slab {
            state: SlabState::Free,
            epoch: 0,
            data_live: 0,
            page_live: 0,
            pins: 0,
            freed_at: 0,
            tombstones: false,
            tombstone_bytes: Some(0),
            carried_at: 0,
            sure: true,
        };
        Self {
            sure_free: count,
            known: Known { next_epoch: 1, carried: 0 },
            carried: 0,
            slabs: vec![never; count as usize],
            free: (0..count).collect(),
            emptied: BTreeSet::new(),
            next_epoch: 1,
            data_live: 0,
            page_live: 0,
            pinned: 0,
            counts: Cell::new(None),
            deaths: 0,
            by_epoch: BTreeMap::new(),
        }
    }

    /// Openings of `incarnation` get higher epochs than all earlier ones.
    pub(crate) fn begin_incarnation(&mut self, incarnation: Incarnation) {
        self.next_epoch = u64::from(incarnation.0) << 32 | 1;
    }

    /// The epoch the next opening will have.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.next_epoch
    }

    /// The slab, if there is one of this number.
    pub(crate) fn slab(&self, number: u32) -> Option<&Slab> {
        self.slabs.get(number as usize)
    }

    /// All slabs in order of their numbers.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = (u32, &Slab)> {
        (0..).zip(&self.slabs)
    }

    /// Free slabs in the order in which they will be opened.
    pub(crate) fn free_list(&self) -> impl Iterator<Item = u32> {
        self.free.iter().copied()
    }

    /// Number of free slabs.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Number of free slabs that would be free after a crash too: those that a restart can use.
    pub(crate) fn sure_free_count(&self) -> u32 {
        self.sure_free
    }

    /// What a checkpoint knows that takes its slab snapshot now.
    pub(crate) fn known_now(&self) -> Known {
        Known { next_epoch: self.next_epoch, carried: self.carried }
    }

    /// The checkpoint that knows this is durable. A free slab is sure if the checkpoint knows it as free.
    pub(crate) fn checkpointed(&mut self, known: Known) {
        self.known = known;
        self.sure_free = 0;
        for index in 0..self.free.len() {
            let number = self.free[index];
            let sure = self.is_sure(number);
            self.slabs[number as usize].sure = sure;
            self.sure_free += u32::from(sure);
        }
    }

    fn is_sure(&self, number: u32) -> bool {
        let slab = &self.slabs[number as usize];
        slab.epoch < self.known.next_epoch && slab.carried_at <= self.known.carried
    }

    /// Live weight of file data.
    pub(crate) fn data_live(&self) -> u64 {
        self.data_live
    }

    /// Live bytes of index pages.
    pub(crate) fn page_live(&self) -> u64 {
        self.page_live
    }

    /// Locations that are not in the index yet: when they enter it, other bytes may become garbage.
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned
    }

    /// Changes whenever live bytes die, or another slab can be emptied.
    pub(crate) fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Slabs by state.
    pub(crate) fn counts(&self) -> SlabCounts {
        if let Some(counts) = self.counts.get() {
            return counts;
        }
        let count = |state| self.slabs.iter().filter(|slab| slab.state == state).count() as u32;
        let counts = SlabCounts {
            free: count(SlabState::Free),
            open: count(SlabState::Open),
            full: count(SlabState::Full),
            bad: count(SlabState::Bad),
        };
        self.counts.set(Some(counts));
        counts
    }

    /// The epoch of the oldest bytes on the device outside of `slab`: `u64::MAX` if there are none.
    pub(crate) fn oldest_epoch_besides(&self, slab: u32) -> u64 {
        self.by_epoch.iter().find(|(_, number)| **number != slab).map_or(u64::MAX, |(epoch, _)| *epoch)
    }

    /// Opens the next free slab, if more than `keep` are sure, or if `keep` is 0. With `used_first`, takes the next one
    /// that was used before, if there is one. Returns its number, its new epoch, and its previous state.
    pub(crate) fn open(&mut self, keep: u32, used_first: bool) -> Option<(u32, u64, Opened)> {
        if keep > 0 && self.sure_free <= keep {
            return None;
        }
        let used = used_first.then(|| self.free.iter().position(|number| self.slabs[*number as usize].epoch != 0));
        let number = self.free.remove(used.flatten().unwrap_or(0))?;
        let epoch = self.next_epoch;
        let before = self.slabs[number as usize];
        self.next_epoch += 1;
        self.set_epoch(number, epoch);
        let slab = &mut self.slabs[number as usize];
        assert!(slab.state == SlabState::Free && slab.is_empty(), "a free slab is empty");
        slab.state = SlabState::Open;
        slab.tombstones = false;
        slab.tombstone_bytes = Some(0);
        slab.carried_at = 0;
        self.sure_free -= u32::from(std::mem::take(&mut slab.sure));
        self.counts.set(None);
        Some((number, epoch, Opened { before }))
    }

    /// Undoes an opening whose slab header was not written. The slab gets its previous state back, and is the next to
    /// be opened.
    pub(crate) fn unopen(&mut self, number: u32, opened: Opened) {
        let before = opened.before;
        self.set_epoch(number, before.epoch);
        let slab = &mut self.slabs[number as usize];
        assert!(slab.is_empty() && slab.state != SlabState::Free, "nothing lies in a slab without a header");
        if slab.state == SlabState::Bad {
            return;
        }
        *slab = before;
        self.emptied.remove(&number);
        self.sure_free += u32::from(before.sure);
        self.free.push_front(number);
        self.counts.set(None);
    }

    /// True if a free slab was used before: its space exists, even on a thin-provisioned device.
    pub(crate) fn has_used_free(&self) -> bool {
        self.free.iter().any(|number| self.slabs[*number as usize].epoch != 0)
    }

    /// Closes the slab: it is not written any more.
    pub(crate) fn close(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        if slab.state == SlabState::Open {
            slab.state = SlabState::Full;
            self.counts.set(None);
            self.deaths += 1;
        }
        self.note_if_empty(number);
    }

    /// Retires the slab: it is never opened again. True if it was not bad before.
    pub(crate) fn retire(&mut self, number: u32) -> bool {
        let Some(slab) = self.slabs.get_mut(number as usize) else { return false };
        let news = slab.state != SlabState::Bad;
        slab.state = SlabState::Bad;
        self.counts.set(None);
        let slab = &mut self.slabs[number as usize];
        self.sure_free -= u32::from(std::mem::take(&mut slab.sure));
        self.free.retain(|free| *free != number);
        self.emptied.remove(&number);
        news
    }

    /// Pins the slab: a location in it is not in the index yet.
    pub(crate) fn pin(&mut self, number: u32) {
        self.slabs[number as usize].pins += 1;
        self.pinned += 1;
    }

    /// Removes a pin.
    pub(crate) fn unpin(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        slab.pins = slab.pins.checked_sub(1).expect("every unpin follows a pin");
        self.pinned -= 1;
        if slab.pins == 0 {
            self.deaths += 1;
        }
        self.note_if_empty(number);
    }

    /// Adds `weight` live bytes of file data at `place`. A newer opening than the known one replaces what was known.
    pub(crate) fn add_data(&mut self, place: Place, weight: u64) {
        if self.current(place) {
            self.slabs[place.slab as usize].data_live += weight;
            self.data_live += weight;
        }
    }

    /// Removes `weight` live bytes of file data at `place`: they are garbage once `group` is committed.
    pub(crate) fn remove_data(&mut self, place: Place, weight: u64, group: Group) {
        if !self.current(place) {
            return;
        }
        let slab = &mut self.slabs[place.slab as usize];
        slab.data_live = slab.data_live.checked_sub(weight).expect("no more dies than lived");
        slab.freed_at = group;
        self.data_live -= weight;
        self.deaths += 1;
        self.note_if_empty(place.slab);
    }

    /// Adds a live index page of `bytes` at `place`.
    pub(crate) fn add_page(&mut self, place: Place, bytes: u64) {
        if self.current(place) {
            self.slabs[place.slab as usize].page_live += bytes;
            self.page_live += bytes;
        }
    }

    /// Removes the index page at `place`, which no anchor needs any more.
    pub(crate) fn remove_page(&mut self, place: Place, bytes: u64) {
        if !self.current(place) {
            return;
        }
        let slab = &mut self.slabs[place.slab as usize];
        slab.page_live = slab.page_live.checked_sub(bytes).expect("no more pages die than lived");
        self.page_live -= bytes;
        self.deaths += 1;
        self.note_if_empty(place.slab);
    }

    /// Frees the slabs that may be opened again. Everything up to `committed` is durable.
    pub(crate) fn collect(&mut self, committed: Group) -> u32 {
        let mut freed = 0;
        for number in std::mem::take(&mut self.emptied) {
            let slab = &self.slabs[number as usize];
            if !slab.is_empty() || slab.state != SlabState::Full {
                continue; // it has live bytes again; it is noted again when those die
            }
            let early = slab.freed_at > committed && !planted(Bug::SlabReusedEarly);
            if early || self.needs_carrying(number) {
                self.emptied.insert(number);
                continue;
            }
            let sure = self.is_sure(number);
            let slab = &mut self.slabs[number as usize];
            (slab.state, slab.sure) = (SlabState::Free, sure);
            self.sure_free += u32::from(sure);
            self.counts.set(None);
            self.free.push_back(number);
            freed += 1;
        }
        freed
    }

    /// True if the slab holds tombstones, and older fragments that they outdate may lie elsewhere on the device.
    pub(crate) fn needs_carrying(&self, number: u32) -> bool {
        let slab = &self.slabs[number as usize];
        slab.tombstones && self.oldest_epoch_besides(number) < slab.epoch
    }

    /// Notes that a tombstone, whose descriptor takes `bytes`, was written to the slab.
    pub(crate) fn add_tombstone(&mut self, number: u32, bytes: u32) {
        let slab = &mut self.slabs[number as usize];
        slab.tombstones = true;
        slab.tombstone_bytes = slab.tombstone_bytes.map(|so_far| so_far + bytes);
    }

    /// The tombstones of the slab's opening `epoch` are now durable in another slab.
    pub(crate) fn tombstones_carried(&mut self, number: u32, epoch: u64) {
        let slab = &mut self.slabs[number as usize];
        if slab.epoch != epoch {
            return; // opened anew meanwhile: its present contents were not carried on
        }
        self.carried += 1;
        slab.tombstones = false;
        slab.carried_at = self.carried;
    }

    /// True if emptied slabs wait for a commit after `committed`.
    pub(crate) fn awaits_commit(&self, committed: Group) -> bool {
        self.emptied.iter().any(|number| self.slabs[*number as usize].freed_at > committed)
    }

    /// Restores what a checkpoint knows of a slab.
    pub(crate) fn restore(&mut self, number: u32, restored: Slab) {
        self.set_epoch(number, restored.epoch);
        self.data_live += restored.data_live;
        self.page_live += restored.page_live;
        self.slabs[number as usize] = restored;
        self.counts.set(None);
    }

    /// Recovery found the slab's header with a newer opening than the checkpoint knew.
    pub(crate) fn found_opening(&mut self, number: u32, epoch: u64) {
        if self.slabs[number as usize].epoch < epoch {
            self.begin_opening(number, epoch);
        }
    }

    /// Ends recovery: every slab that holds nothing becomes free. First come those of `order`, the checkpoint's free
    /// slabs in their order, except those opened since (epoch `opened_from` or higher). Until the next checkpoint, a
    /// recovery searches for openings in that order. The other free slabs follow, the oldest opening first.
    pub(crate) fn settle(&mut self, order: &[u32], opened_from: u64) {
        self.emptied.clear();
        self.free.clear();
        self.counts.set(None);
        let mut places = vec![usize::MAX; self.slabs.len()];
        for (place, number) in order.iter().enumerate() {
            if let Some(slab) = self.slabs.get(*number as usize)
                && slab.epoch < opened_from
            {
                places[*number as usize] = place;
            }
        }
        let mut empty: Vec<(usize, u64, u32)> = Vec::new();
        for (number, slab) in (0..).zip(&mut self.slabs) {
            slab.freed_at = 0;
            slab.sure = false;
            if slab.state == SlabState::Bad {
                continue;
            }
            let free = slab.data_live == 0 && slab.page_live == 0 && !slab.tombstones;
            slab.state = if free { SlabState::Free } else { SlabState::Full };
            if free {
                slab.sure = true;
                empty.push((places[number as usize], slab.epoch, number));
            }
        }
        self.sure_free = empty.len() as u32;
        empty.sort_unstable();
        (0..self.slabs.len() as u32).for_each(|number| self.note_if_empty(number));
        self.free.extend(empty.into_iter().map(|(.., number)| number));
    }

    /// True if `place` is of the slab's last opening. In recovery, a location of a newer opening begins that opening.
    fn current(&mut self, place: Place) -> bool {
        let Some(slab) = self.slabs.get(place.slab as usize) else { return false };
        if slab.epoch < place.epoch {
            self.begin_opening(place.slab, place.epoch);
        }
        self.slabs[place.slab as usize].epoch == place.epoch
    }

    /// Epoch of the newest opening.
    pub(crate) fn newest_epoch(&self) -> u64 {
        self.by_epoch.last_key_value().map_or(0, |(epoch, _)| *epoch)
    }

    /// How many slabs were opened after `epoch`.
    pub(crate) fn opened_after(&self, epoch: u64) -> usize {
        self.by_epoch.range(epoch + 1..).count()
    }

    fn begin_opening(&mut self, number: u32, epoch: u64) {
        let slab = &mut self.slabs[number as usize];
        self.data_live -= std::mem::take(&mut slab.data_live);
        self.page_live -= std::mem::take(&mut slab.page_live);
        if slab.state != SlabState::Bad {
            slab.state = SlabState::Full;
            self.counts.set(None);
        }
        slab.tombstones = true; // assumed until known otherwise
        slab.tombstone_bytes = None;
        self.set_epoch(number, epoch);
    }

    fn set_epoch(&mut self, number: u32, epoch: u64) {
        let slab = &mut self.slabs[number as usize];
        self.by_epoch.remove(&slab.epoch);
        slab.epoch = epoch;
        if epoch != 0 {
            self.by_epoch.insert(epoch, number);
        }
    }

    fn note_if_empty(&mut self, number: u32) {
        let slab = &self.slabs[number as usize];
        if slab.is_empty() && slab.state == SlabState::Full {
            self.emptied.insert(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(slab: u32, epoch: u64) -> Place {
        Place { slab, epoch, at: 4096 }
    }

    #[test]
    fn a_slab_is_reused_only_after_the_commit_of_the_change_that_emptied_it() {
        let mut allocator = Allocator::new(2);
        let (slab, epoch, _) = allocator.open(0, false).unwrap();
        allocator.add_data(place(slab, epoch), 100);
        allocator.close(slab);
        assert_eq!(allocator.collect(9), 0);
        allocator.remove_data(place(slab, epoch), 100, 7);
        assert_eq!(allocator.collect(6), 0);
        assert!(allocator.awaits_commit(6));
        assert_eq!(allocator.collect(7), 1);
        assert_eq!(allocator.free_list().collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn pins_and_pages_keep_a_slab() {
        let mut allocator = Allocator::new(1);
        let (slab, epoch, _) = allocator.open(0, false).unwrap();
        allocator.pin(slab);
        allocator.add_page(place(slab, epoch), 50);
        allocator.close(slab);
        allocator.unpin(slab);
        assert_eq!(allocator.collect(0), 0);
        allocator.remove_page(place(slab, epoch), 50);
        assert_eq!(allocator.collect(0), 1);
        assert_eq!((allocator.data_live(), allocator.page_live()), (0, 0));
    }

    #[test]
    fn slabs_kept_back_are_not_opened() {
        let mut allocator = Allocator::new(3);
        assert!(allocator.open(2, false).is_some());
        assert!(allocator.open(2, false).is_none());
        assert!(allocator.open(0, false).is_some());
    }

    #[test]
    fn a_slab_opened_since_the_checkpoint_is_not_sure_to_be_free_after_a_crash() {
        let mut allocator = Allocator::new(3);
        let (slab, epoch, _) = allocator.open(0, false).unwrap();
        allocator.close(slab);
        assert_eq!(allocator.collect(0), 1);
        assert_eq!((allocator.free_count(), allocator.sure_free_count()), (3, 2));
        assert!(allocator.open(2, false).is_none());
        let known = allocator.known_now();
        assert!(epoch < known.next_epoch);
        allocator.checkpointed(known);
        assert_eq!(allocator.sure_free_count(), 3);
        assert!(allocator.open(2, false).is_some());
    }

    #[test]
    fn redo_of_a_newer_opening_forgets_the_older_one() {
        let mut allocator = Allocator::new(1);
        let old = Slab {
            state: SlabState::Full,
            epoch: 5,
            data_live: 70,
            page_live: 0,
            pins: 0,
            freed_at: 0,
            tombstones: false,
            tombstone_bytes: None,
            carried_at: 0,
            sure: false,
        };
        allocator.restore(0, old);
        allocator.add_data(place(0, 6), 30);
        allocator.remove_data(place(0, 5), 70, 0); // stale: its opening is gone
        assert_eq!(allocator.data_live(), 30);
        allocator.settle(&[], 0);
        assert_eq!(allocator.slab(0).unwrap().state, SlabState::Full);
    }

    #[test]
    fn a_retired_slab_never_comes_back() {
        let mut allocator = Allocator::new(2);
        let (slab, ..) = allocator.open(0, false).unwrap();
        assert!(allocator.retire(slab));
        assert!(!allocator.retire(slab));
        allocator.close(slab);
        allocator.settle(&[], 0);
        assert_eq!(allocator.free_list().collect::<Vec<_>>(), [1]);
        assert_eq!(allocator.counts().bad, 1);
    }

    #[test]
    fn a_restart_keeps_the_order_of_the_checkpoint() {
        let mut allocator = Allocator::new(6);
        let used = |epoch| Slab {
            state: SlabState::Full,
            epoch,
            data_live: 0,
            page_live: 0,
            pins: 0,
            freed_at: 0,
            tombstones: false,
            tombstone_bytes: None,
            carried_at: 0,
            sure: false,
        };
        (0..).zip([50, 10, 40, 20, 30, 60]).for_each(|(number, epoch)| allocator.restore(number, used(epoch)));
        // Since the checkpoint, 0 has been opened and holds nothing, and 5 and 3 became free.
        allocator.settle(&[0, 4, 1, 2], 50);
        assert_eq!(allocator.free_list().collect::<Vec<_>>(), [4, 1, 2, 3, 0, 5]);
    }
}
