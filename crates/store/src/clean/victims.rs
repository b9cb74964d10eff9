//! Which slabs are worth emptying, and when.

use std::{collections::BTreeMap, time::Duration};

use forebay_env::Time;

use crate::{
    core::Core,
    limits,
    slab::allocator::{Slab, SlabState},
};

/// A slab to be emptied, as of one of its openings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Victim {
    pub slab: u32,
    pub epoch: u64,
}

/// Slabs that the cleaner could not empty, with the opening in which it failed, and until when it skips them. Damaged
/// data waits there for repair, but the device may also have failed for a moment only.
#[derive(Default)]
pub(super) struct Stuck(BTreeMap<Victim, Time>);

impl Stuck {
    pub(super) fn add(&mut self, victim: Victim, now: Time) {
        self.0.retain(|_, until| *until > now);
        self.0.insert(victim, now + limits::STUCK_FOR);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn holds(&self, victim: Victim, now: Time) -> bool {
        self.0.get(&victim).is_some_and(|until| *until > now)
    }
}

/// Why the cleaner works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing to do.
    None,
    /// Ask again after this time, when callers have been quiet.
    BackgroundIn(Duration),
    /// Callers are quiet and much is garbage: background cleaning makes space for later requests.
    Ahead,
    /// Slabs are short, a bad one holds data, or a request waits.
    Now,
}

impl Core {
    /// `ahead_done_at`: the count of calls when background cleaning gained nothing. Until it changes, it would gain
    /// nothing again.
    pub(super) fn cleaning_need(&self, stuck: &Stuck, ahead_done_at: Option<u64>) -> Need {
        let (alloc, now) = (self.alloc.borrow(), self.env.now());
        let bad = |(number, slab): (u32, &Slab)| is_bad_with_data(slab) && !stuck.holds(victim(number, slab), now);
        if self.somebody_waits() || self.short_of_slabs() || (alloc.counts().bad > 0 && alloc.slabs().any(bad)) {
            return Need::Now;
        }
        if ahead_done_at == Some(self.calls.get()) {
            return Need::None;
        }
        let quiet = self.env.now().since(self.called_at.get());
        if let Some(rest) = limits::QUIET.checked_sub(quiet).filter(|rest| !rest.is_zero()) {
            return Need::BackgroundIn(rest);
        }
        if self.candidates(Need::Ahead, stuck).is_empty() { Need::None } else { Need::Ahead }
    }

    /// True if fewer slabs are free than the cleaner tries to keep ready.
    fn short_of_slabs(&self) -> bool {
        let in_hand = (self.geometry.slab_count / 16).clamp(2, limits::SLABS_IN_HAND);
        self.alloc.borrow().free_count() < self.reserved_slabs + in_hand
    }

    /// The victims of a round: as many as durably free slabs have space for, beside what checkpoints need; at least
    /// one.
    pub(super) fn choose_victims(&self, need: Need, stuck: &Stuck) -> Vec<Victim> {
        let (free, tables_only) = {
            let alloc = self.alloc.borrow();
            (alloc.sure_free_count(), alloc.data_live() == 0)
        };
        let mut kept = self.checkpoint_slabs;
        if tables_only {
            // Changes of tables wait meanwhile (see `Core::admits`), so the dirty pages will not become more.
            let dirty = self.table.borrow().dirty_bytes() as u64;
            kept = kept.min(2 + (dirty + dirty / 2).div_ceil(self.slab_usable()) as u32);
        }
        let mut room = u64::from(free.saturating_sub(kept)) * self.slab_usable();
        let mut chosen = Vec::new();
        for (victim, live) in self.candidates(need, stuck) {
            let fits = live <= room;
            if !chosen.is_empty() && (!fits || chosen.len() >= limits::VICTIMS_AT_ONCE) {
                break;
            }
            room = room.saturating_sub(live);
            chosen.push(victim);
        }
        chosen
    }

    /// Bad slabs with data first, then those with the least live weight, if emptying them gains anything.
    fn candidates(&self, need: Need, stuck: &Stuck) -> Vec<(Victim, u64)> {
        let (alloc, now) = (self.alloc.borrow(), self.env.now());
        let usable = self.slab_usable();
        let worth = match need {
            // If a request waits, any gain.
            _ if self.somebody_waits() => usable,
            // The slabs reserved for checkpoints are in use: callers that make no reservation (those with tables alone)
            // wait too.
            Need::Now if alloc.free_count() < self.reserved_slabs => usable - usable / limits::LEAST_GAIN_PART,
            Need::Now => usable - usable / 8,
            _ if self.short_of_room_ahead() => usable - usable / 4,
            _ => usable / 2,
        };
        let is_candidate = |number: u32, slab: &Slab| {
            let full = slab.state == SlabState::Full && slab.burden() < worth;
            let emptied = slab.is_empty() && !slab.tombstones;
            let full = full && !emptied && (!slab.is_empty() || alloc.needs_carrying(number));
            // Background cleaning takes a slab only if it is known to gain something.
            let full = full && (need != Need::Ahead || !slab.tombstones || slab.tombstone_bytes.is_some());
            slab.pins == 0 && (full || is_bad_with_data(slab)) && !stuck.holds(victim(number, slab), now)
        };
        let mut found: Vec<_> = alloc.slabs().filter(|(number, slab)| is_candidate(*number, slab)).collect();
        found.sort_unstable_by_key(|(number, slab)| (slab.state != SlabState::Bad, slab.burden(), *number));
        found.into_iter().map(|(number, slab)| (victim(number, slab), slab.burden())).collect()
    }

    /// True while less than a quarter of all slabs is free. Then background cleaning empties slabs that are up to three
    /// quarters full; else only those that gain half.
    fn short_of_room_ahead(&self) -> bool {
        self.alloc.borrow().free_count() < self.geometry.slab_count / limits::BACKGROUND_FREE_PART
    }
}

fn victim(slab: u32, opening: &Slab) -> Victim {
    Victim { slab, epoch: opening.epoch }
}

fn is_bad_with_data(slab: &Slab) -> bool {
    slab.state == SlabState::Bad && slab.live() > 0
}
