//! Appends of which nobody knows yet whether their clients have heard where they lie.
//!
//! An append is acknowledged before the journal has it, whatever lies before it: if the server dies, its client brings it back to
//! its place. Who was answered, and has not heard it, cannot, and would be put behind those that came later: zeros would stay
//! where it was. So the reply to an append names those before it that others may not have heard of. A client with such a reply
//! tells of them when it replays its own; they have their places again when they are asked for again, and until then nobody is
//! shown the file.
//!
//! Invariant: a place is given again to the very request that had it, in the truncate epoch in which it had it, and to nobody else.

use std::{cell::RefCell, collections::BTreeMap};

use forebay_env::{Bug, planted, sync::Notify};
use forebay_proto::{ErrorReply, Fid, SessionId, Transno, message::AppendPlace};
use forebay_target::Context;

use crate::{Oss, limits, recent::Recent};

/// A place in a file of which its owner may not know.
struct Given {
    place: AppendPlace,
    truncate_epoch: u64,
    transno: Transno,
}

/// Of each slot of a session the last place that others told of, with its truncate epoch: those before it were heard of.
type Told = BTreeMap<(SessionId, u16), (u64, AppendPlace)>;

/// All of them. See the module.
#[derive(Default)]
pub struct Places {
    given: Recent<Given>,
    /// Those that others told of after a crash.
    told: RefCell<BTreeMap<Fid, Told>>,
    /// One of those was asked for again, or will not be.
    came: Notify,
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
        self.given.of(fid, |all| {
            let of_epoch = all.iter().rev().filter(|given| given.truncate_epoch == truncate_epoch);
            let unheard = of_epoch.filter(|given| !is_over(&given.place, given.transno));
            unheard.take(limits::APPEND_PLACES).map(|given| given.place.clone()).collect()
        })
    }

    /// `place` was given, under `transno`. `is_over` as in [`Places::before`].
    pub fn give(
        &self,
        fid: Fid,
        truncate_epoch: u64,
        place: AppendPlace,
        transno: Transno,
        is_over: impl Fn(&AppendPlace, Transno) -> bool,
    ) {
        let given = Given { place, truncate_epoch, transno };
        self.given.add(fid, given, |given| is_over(&given.place, given.transno));
    }

    /// Somebody tells of places that were given before its own, which ends at `end`.
    pub fn tell(&self, fid: Fid, truncate_epoch: u64, before: &[AppendPlace], end: u64) {
        let mut all = self.told.borrow_mut();
        if before.is_empty() || all.len() >= limits::FILES_TOLD {
            return;
        }
        let told = all.entry(fid).or_default();
        for place in before.iter().take(limits::APPEND_PLACES) {
            let is_before = place.file_offset.checked_add(place.length.into()).is_some_and(|to| to <= end);
            let slot = (place.session, place.slot);
            let is_newer = told.get(&slot).is_none_or(|(_, known)| known.sequence < place.sequence);
            if is_before && is_newer && (told.len() < limits::PLACES_TOLD || told.contains_key(&slot)) {
                told.insert(slot, (truncate_epoch, place.clone()));
            }
        }
    }

    /// Where the request of `asked` had its place, if somebody has told of it.
    pub fn told(&self, fid: Fid, truncate_epoch: u64, asked: &AppendPlace) -> Option<u64> {
        let told = self.told.borrow();
        let (epoch, place) = told.get(&fid)?.get(&(asked.session, asked.slot))?;
        let is_it = (*epoch, place.sequence, place.length) == (truncate_epoch, asked.sequence, asked.length);
        is_it.then_some(place.file_offset)
    }

    /// Somebody has told of one in `fid` that has not come again. `is_over`: of a request that has, or will not.
    fn lacks_any(&self, fid: Fid, truncate_epoch: u64, is_over: impl Fn(&AppendPlace) -> bool) -> bool {
        let told = self.told.borrow();
        let all = told.get(&fid).into_iter().flat_map(BTreeMap::values);
        all.filter(|(epoch, _)| *epoch == truncate_epoch).any(|(_, place)| !is_over(place))
    }

    /// A place has come again, or a session has ended.
    pub fn came(&self) {
        self.came.notify_waiters();
    }
}

/// The request's place in the list of those that others may not have heard of.
pub(crate) fn own_place(ctx: &Context, length: u32, file_offset: u64) -> AppendPlace {
    let (session, slot, sequence) = ctx.request();
    AppendPlace { session, slot, sequence, file_offset, length }
}

impl Oss {
    /// Where the request has its place already, as another client has told after a crash.
    pub(crate) fn place_told(&self, ctx: &Context, fid: Fid, truncate_epoch: u64, length: u32) -> Option<u64> {
        let asked = own_place(ctx, length, 0);
        self.places.told(fid, truncate_epoch, &asked).filter(|_| !planted(Bug::PlaceForgotten))
    }

    /// Waits until all that is applied by now is committed. The reply to an append that came again waits for this: those that told
    /// of its place are committed, and after another crash nobody would tell of it.
    pub(crate) async fn applied_is_committed(&self) -> Result<(), ErrorReply> {
        let applied = self.target().last_applied();
        while self.store().last_committed() < applied {
            self.target().wait_any_commit().await?;
        }
        Ok(())
    }

    /// Waits until appends have come again that lay in the file before a crash.
    pub(crate) async fn places_came(&self, ctx: &Context, fid: Fid) -> Result<(), ErrorReply> {
        let is_over = |place: &AppendPlace| self.target().has_done(place.session, place.slot, place.sequence);
        loop {
            let came = self.places.came.notified();
            let lacks_any = |epoch| self.places.lacks_any(fid, epoch, is_over);
            if !self.places.told.borrow().contains_key(&fid) || ctx.has_ended() {
                return Ok(());
            }
            let epoch = self.load_applied(fid).await?.map_or(0, |row| row.truncate_epoch);
            if !lacks_any(epoch) {
                return Ok(());
            }
            // Also an append that came to nothing: then its client asks for it anew.
            let _ = self.env().timeout(limits::PLACE_LOOK, came).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Fid = Fid { high: 0, low: 5 };

    fn place(session: u64, file_offset: u64) -> AppendPlace {
        AppendPlace { session: SessionId(session), slot: 1, sequence: 7, file_offset, length: 10 }
    }

    #[test]
    fn who_is_given_a_place_is_told_of_those_that_may_be_lost() {
        let places = Places::default();
        let give = |n: u64| places.give(F, 4, place(n, n * 10), Transno(n), |_, _| false);
        (0..3).for_each(give);
        let offsets = |epoch, over: u64| -> Vec<u64> {
            let is_over = |_: &AppendPlace, transno: Transno| transno.0 < over;
            places.before(F, epoch, is_over).iter().map(|place| place.file_offset).collect()
        };
        assert_eq!((offsets(4, 0), offsets(4, 1)), (vec![20, 10, 0], vec![20, 10]));
        assert_eq!((offsets(5, 0), offsets(4, 3)), (vec![], vec![]));
        (0..100).for_each(give);
        let last = offsets(4, 0);
        assert_eq!((last.len(), last.first()), (limits::APPEND_PLACES, Some(&990)));
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
        places.tell(F, 4, &[place(1, 20), AppendPlace { sequence: 6, ..place(2, 10) }], 50);
        assert_eq!(
            (places.told(F, 4, &asked(1)), places.told(F, 4, &asked(2))),
            (Some(30), Some(40)),
            "it was told before"
        );
        places.tell(F, 4, &[AppendPlace { sequence: 8, ..place(2, 50) }], 90);
        assert_eq!(places.told(F, 4, &asked(2)), None, "that was heard of");
        assert!(places.lacks_any(F, 4, |place| place.session == SessionId(1)));
        assert!(!places.lacks_any(F, 4, |_| true) && !places.lacks_any(F, 5, |_| false));
    }
}
