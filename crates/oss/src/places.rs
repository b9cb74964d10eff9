//! Places at the ends of files that were given, and of which nobody knows yet whether they were heard of.
//!
//! A place is given in memory, whatever the level: if the server dies before its journal has it, who was given it brings it back.
//! Who had not heard of it cannot, and would be given another one, behind those who appended meanwhile: zeros would stay
//! where it was. So whoever is given a place is told of those before it that others may not have heard of, and tells of them after a
//! crash; they are given again to who asks again.
//!
//! Invariant: a place is given again to the very request that had it, in the truncate epoch in which it had it, and to nobody else.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use forebay_proto::{Fid, Transno, message::AppendPlace};

use crate::limits;

/// A place in a file of which its owner may not know.
struct Given {
    place: AppendPlace,
    truncate_epoch: u64,
    transno: Transno,
}

/// All of them. See the module.
#[derive(Default)]
pub struct Places {
    given: RefCell<BTreeMap<Fid, Vec<Given>>>,
    /// How many files the last look through all has left.
    left: Cell<usize>,
    /// Those that others told of after a crash.
    told: RefCell<BTreeMap<Fid, Vec<(u64, AppendPlace)>>>,
}

/// Whether `place` belongs to the request of `other`.
fn is_of(place: &AppendPlace, other: &AppendPlace) -> bool {
    (place.session, place.slot, place.sequence, place.length)
        == (other.session, other.slot, other.sequence, other.length)
}

impl Places {
    /// Those before a new one in `fid` that others may not have heard of. `is_over`: one that is committed, or that its owner has heard
    /// of.
    pub fn before(
        &self,
        fid: Fid,
        truncate_epoch: u64,
        is_over: impl Fn(&AppendPlace, Transno) -> bool,
    ) -> Vec<AppendPlace> {
        let mut given = self.given.borrow_mut();
        let keep = |given: &Given| !is_over(&given.place, given.transno);
        if given.len() > limits::CHANGED_FILES.max(2 * self.left.get()) {
            given.retain(|_, places| {
                places.retain(keep);
                !places.is_empty()
            });
            self.left.set(given.len());
        }
        let Some(places) = given.get_mut(&fid) else { return Vec::new() };
        places.retain(|given| given.truncate_epoch == truncate_epoch && keep(given));
        let first = places.len().saturating_sub(limits::APPEND_PLACES);
        places[first..].iter().map(|given| given.place.clone()).collect()
    }

    /// `place` was given, under `transno`.
    pub fn give(&self, fid: Fid, truncate_epoch: u64, place: AppendPlace, transno: Transno) {
        if let Some(told) = self.told.borrow_mut().get_mut(&fid) {
            told.retain(|(_, told)| !is_of(told, &place));
        }
        self.given.borrow_mut().entry(fid).or_default().push(Given { place, truncate_epoch, transno });
    }

    /// Somebody tells of places that were given before its own, which ends at `end`.
    pub fn tell(&self, fid: Fid, truncate_epoch: u64, before: &[AppendPlace], end: u64) {
        let mut told = self.told.borrow_mut();
        let places = told.entry(fid).or_default();
        for place in before.iter().take(limits::APPEND_PLACES) {
            let is_before = place.file_offset.checked_add(place.length.into()).is_some_and(|to| to <= end);
            if is_before && places.len() < limits::PLACES_TOLD && !places.iter().any(|(_, known)| is_of(known, place)) {
                places.push((truncate_epoch, place.clone()));
            }
        }
        if places.is_empty() {
            told.remove(&fid);
        }
    }

    /// Where the request of `asked` had its place, if somebody has told of it.
    pub fn told(&self, fid: Fid, truncate_epoch: u64, asked: &AppendPlace) -> Option<u64> {
        let told = self.told.borrow();
        let of = |(epoch, place): &&(u64, AppendPlace)| *epoch == truncate_epoch && is_of(place, asked);
        told.get(&fid)?.iter().find(of).map(|(_, place)| place.file_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_proto::SessionId;

    const F: Fid = Fid { high: 0, low: 5 };

    fn place(session: u64, file_offset: u64) -> AppendPlace {
        AppendPlace { session: SessionId(session), slot: 1, sequence: 7, file_offset, length: 10 }
    }

    #[test]
    fn who_is_given_a_place_is_told_of_those_that_may_be_lost() {
        let places = Places::default();
        (0..3).for_each(|n| places.give(F, 4, place(n, n * 10), Transno(n)));
        let offsets = |epoch, over: u64| -> Vec<u64> {
            let is_over = |_: &AppendPlace, transno: Transno| transno.0 < over;
            places.before(F, epoch, is_over).iter().map(|place| place.file_offset).collect()
        };
        assert_eq!((offsets(4, 0), offsets(4, 1)), (vec![0, 10, 20], vec![10, 20]));
        assert_eq!((offsets(4, 0), offsets(5, 0), offsets(4, 0)), (vec![10, 20], vec![], vec![]), "they are forgotten");
        for n in 0..100 {
            places.give(F, 4, place(n, n * 10), Transno(n));
        }
        let last = offsets(4, 0);
        assert_eq!((last.len(), last.last()), (limits::APPEND_PLACES, Some(&990)));
    }

    #[test]
    fn what_was_told_is_given_to_the_request_that_had_it_and_to_no_other() {
        let places = Places::default();
        places.tell(F, 4, &[place(1, 30), place(2, 40), place(3, u64::MAX)], 50);
        let asked = |session| place(session, 0);
        assert_eq!(places.told(F, 4, &asked(1)), Some(30));
        assert_eq!((places.told(F, 5, &asked(1)), places.told(F, 4, &asked(3))), (None, None));
        assert_eq!(places.told(F, 4, &AppendPlace { sequence: 8, ..asked(1) }), None);
        assert_eq!(places.told(F, 4, &AppendPlace { length: 11, ..asked(1) }), None);
        places.tell(F, 4, &[place(1, 20)], 50);
        assert_eq!(places.told(F, 4, &asked(1)), Some(30), "it was told before");
        places.give(F, 4, place(1, 30), Transno(9));
        assert_eq!((places.told(F, 4, &asked(1)), places.told(F, 4, &asked(2))), (None, Some(40)));
    }
}
