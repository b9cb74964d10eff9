//! Which slabs are worth emptying, and when.

use std::{collections::BTreeMap, time::Duration};

use forebay_env::Time;

use crate::{
    core::Core,
    limits,
    slab::allocator::{Slab, SlabState},
};

/// A slab to be emptied, in one of its openings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Victim {
    pub slab: u32,
    pub epoch: u64,
}

/// Slabs the cleaner cannot empty, with the opening they failed in, and until when it leaves them alone: damaged data waits
/// there for repair, but a device may also have been ill for a moment.
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
    /// It does not.
    None,
    /// To be asked again when callers have been quiet.
    AheadIn(Duration),
    /// Callers are quiet and much is garbage: whoever comes next finds room.
    Ahead,
    /// Slabs are short, a bad one holds data, or somebody waits.
    Now,
}

impl Core {
    /// `ahead_done_at`: the count of calls when working ahead came to nothing; until there are more, it would again.
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
            return Need::AheadIn(rest);
        }
        if self.candidates(Need::Ahead, stuck).is_empty() { Need::None } else { Need::Ahead }
    }

    /// True if fewer slabs are free than the cleaner likes to have in hand.
    fn short_of_slabs(&self) -> bool {
        let in_hand = (self.geometry.slab_count / 16).clamp(2, limits::SLABS_IN_HAND);
        self.alloc.borrow().free_count() < self.keep_slabs + in_hand
    }

    /// The victims of a round: as many as there is surely room for beside what checkpoints need, and one at least.
    pub(super) fn choose_victims(&self, need: Need, stuck: &Stuck) -> Vec<Victim> {
        let (free, tables_only) = {
            let alloc = self.alloc.borrow();
            (alloc.sure_free_count(), alloc.data_live() == 0)
        };
        let mut kept = self.checkpoint_slabs;
        if tables_only {
            // Whoever changes them waits meanwhile (see `Core::admits`): what is dirty now is all that there will be.
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
            // When somebody waits, whatever gains at all.
            _ if self.somebody_waits() => usable,
            // What checkpoints need is used up: callers that ask for no room beforehand (those of tables alone) wait too.
            Need::Now if alloc.free_count() < self.keep_slabs => usable - usable / limits::LEAST_GAIN_PART,
            Need::Now => usable - usable / 8,
            _ if self.short_of_room_ahead() => usable - usable / 4,
            _ => usable / 2,
        };
        let is_candidate = |number: u32, slab: &Slab| {
            let full = slab.state == SlabState::Full && slab.burden() < worth;
            let emptied = slab.is_empty() && !slab.tombstones;
            let full = full && !emptied && (!slab.is_empty() || alloc.needs_carrying(number));
            // Ahead of need nothing is touched of which it is not known that there is a gain.
            let full = full && (need != Need::Ahead || !slab.tombstones || slab.tombstone_bytes.is_some());
            slab.pins == 0 && (full || is_bad_with_data(slab)) && !stuck.holds(victim(number, slab), now)
        };
        let mut found: Vec<_> = alloc.slabs().filter(|(number, slab)| is_candidate(*number, slab)).collect();
        found.sort_unstable_by_key(|(number, slab)| (slab.state != SlabState::Bad, slab.burden(), *number));
        found.into_iter().map(|(number, slab)| (victim(number, slab), slab.burden())).collect()
    }

    /// True while less than a quarter of all slabs is free: then even a slab that is three quarters full is emptied in
    /// quiet times; else only those of which half is gained.
    fn short_of_room_ahead(&self) -> bool {
        self.alloc.borrow().free_count() < self.geometry.slab_count / limits::FREE_AHEAD
    }
}

fn victim(slab: u32, opening: &Slab) -> Victim {
    Victim { slab, epoch: opening.epoch }
}

fn is_bad_with_data(slab: &Slab) -> bool {
    slab.state == SlabState::Bad && slab.live() > 0
}
