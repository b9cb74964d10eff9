//! Offsets of appends whose clients may not have the reply.
//!
//! An OST acknowledges an append before its journal has it. If the server dies, the client replays the append at its
//! offset. A client whose reply was lost does not know the offset: its append would land behind later ones, with zeros
//! at the first offset. So the reply to an append lists the earlier appends whose replies may be lost. When a client
//! replays an append, it reports that list. The OST then gives each listed request its earlier offset when it is sent
//! again, and shows the file to nobody until then.
//!
//! Invariant: an offset is given again only to the request that had it, in the same truncate epoch.

use std::{cell::RefCell, collections::BTreeMap};

use forebay_env::{Bug, planted, sync::Notify};
use forebay_proto::{ErrorReply, Fid, SessionId, Transno, message::AppendOffset};
use forebay_target::{Attempt, Context};

use crate::{Oss, limits, recent::Recent};

/// An append whose client may not know its offset.
struct Given {
    place: AppendOffset,
    truncate_epoch: u64,
    transno: Transno,
}

/// For each slot of a session, the last append that other clients reported, with its truncate epoch. The replies to
/// earlier ones arrived.
type Reported = BTreeMap<(SessionId, u16), (u64, AppendOffset)>;

/// All these offsets. See the module.
#[derive(Default)]
pub struct AppendOffsets {
    given: Recent<Given>,
    /// Reported by clients after a crash.
    reported: RefCell<BTreeMap<Fid, Reported>>,
    /// Notified when a reported request was sent again, or will not be.
    returned: Notify,
}

impl AppendOffsets {
    /// Earlier appends of `fid` whose replies may be lost. `is_over`: the append is committed, or its client has the
    /// reply.
    pub fn before(
        &self,
        fid: Fid,
        truncate_epoch: u64,
        is_over: impl Fn(&AppendOffset, Transno) -> bool,
    ) -> Vec<AppendOffset> {
        self.given.of(fid, |all| {
            let of_epoch = all.iter().rev().filter(|given| given.truncate_epoch == truncate_epoch);
            let unacknowledged = of_epoch.filter(|given| !is_over(&given.place, given.transno));
            unacknowledged.take(limits::APPEND_OFFSETS).map(|given| given.place.clone()).collect()
        })
    }

    /// Records that `place` was given under `transno`. `is_over` as in [`AppendOffsets::before`].
    pub fn give(
        &self,
        fid: Fid,
        truncate_epoch: u64,
        place: AppendOffset,
        transno: Transno,
        is_over: impl Fn(&AppendOffset, Transno) -> bool,
    ) {
        let given = Given { place, truncate_epoch, transno };
        self.given.add(fid, given, |given| is_over(&given.place, given.transno));
    }

    /// A client replays an append that ends at `end`, and reports the appends before it.
    pub fn report(&self, fid: Fid, truncate_epoch: u64, before: &[AppendOffset], end: u64) {
        let mut all = self.reported.borrow_mut();
        if before.is_empty() || all.len() >= limits::REPORTED_FILES {
            return;
        }
        let reported = all.entry(fid).or_default();
        for place in before.iter().take(limits::APPEND_OFFSETS) {
            let is_before = place.file_offset.checked_add(place.length.into()).is_some_and(|to| to <= end);
            let slot = (place.session, place.slot);
            let is_newer = reported.get(&slot).is_none_or(|(_, known)| known.sequence < place.sequence);
            if is_before && is_newer && (reported.len() < limits::REPORTED_SLOTS || reported.contains_key(&slot)) {
                reported.insert(slot, (truncate_epoch, place.clone()));
            }
        }
    }

    /// Offset that the request of `asked` had, if a client reported it.
    pub fn reported(&self, fid: Fid, truncate_epoch: u64, asked: &AppendOffset) -> Option<u64> {
        let reported = self.reported.borrow();
        let (epoch, place) = reported.get(&fid)?.get(&(asked.session, asked.slot))?;
        let is_it = (*epoch, place.sequence, place.length) == (truncate_epoch, asked.sequence, asked.length);
        is_it.then_some(place.file_offset)
    }

    /// Whether a reported append of `fid` was not sent again yet. `is_over`: it was sent again, or will not be.
    fn lacks_any(&self, fid: Fid, truncate_epoch: u64, is_over: impl Fn(&AppendOffset) -> bool) -> bool {
        let reported = self.reported.borrow();
        let all = reported.get(&fid).into_iter().flat_map(BTreeMap::values);
        all.filter(|(epoch, _)| *epoch == truncate_epoch).any(|(_, place)| !is_over(place))
    }

    /// A reported request was sent again, or a session has ended.
    pub fn returned(&self) {
        self.returned.notify_waiters();
    }
}

/// The request's entry, as it is listed in replies to later appends.
pub(crate) fn own_offset(ctx: &Context, length: u32, file_offset: u64) -> AppendOffset {
    let (session, slot, sequence) = ctx.request();
    AppendOffset { session, slot, sequence, file_offset, length }
}

impl Oss {
    /// Offset that the request had before a crash, as another client reported.
    pub(crate) fn reported_offset(&self, ctx: &Context, fid: Fid, truncate_epoch: u64, length: u32) -> Option<u64> {
        let asked = own_offset(ctx, length, 0);
        self.append_offsets.reported(fid, truncate_epoch, &asked).filter(|_| !planted(Bug::AppendOffsetForgotten))
    }

    /// Waits until all that is applied is committed. The reply to a reported append waits for this: the appends that
    /// reported it are committed, so after another crash nobody would report it again.
    pub(crate) async fn applied_is_committed(&self) -> Result<(), ErrorReply> {
        let applied = self.target().last_applied();
        while self.store().last_committed() < applied {
            self.target().wait_any_commit().await?;
        }
        Ok(())
    }

    /// Waits until the reported appends of the file were sent again.
    pub(crate) async fn reported_appends_return(&self, ctx: &Context, fid: Fid) -> Attempt<()> {
        let is_over = |place: &AppendOffset| self.target().has_done(place.session, place.slot, place.sequence);
        loop {
            let returned = self.append_offsets.returned.notified();
            let lacks_any = |epoch| self.append_offsets.lacks_any(fid, epoch, is_over);
            if !self.append_offsets.reported.borrow().contains_key(&fid) || ctx.has_ended() {
                return Ok(());
            }
            let epoch = self.load_applied(fid).await?.map_or(0, |row| row.truncate_epoch);
            if !lacks_any(epoch) {
                return Ok(());
            }
            // Also an append that returned to nothing: then its client asks for it anew.
            let _ = self.env().timeout(limits::REPORTED_POLL, returned).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Fid = Fid { high: 0, low: 5 };

    fn place(session: u64, file_offset: u64) -> AppendOffset {
        AppendOffset { session: SessionId(session), slot: 1, sequence: 7, file_offset, length: 10 }
    }

    #[test]
    fn append_reply_lists_appends_whose_reply_may_be_lost() {
        let places = AppendOffsets::default();
        let give = |n: u64| places.give(F, 4, place(n, n * 10), Transno(n), |_, _| false);
        (0..3).for_each(give);
        let offsets = |epoch, over: u64| -> Vec<u64> {
            let is_over = |_: &AppendOffset, transno: Transno| transno.0 < over;
            places.before(F, epoch, is_over).iter().map(|place| place.file_offset).collect()
        };
        assert_eq!((offsets(4, 0), offsets(4, 1)), (vec![20, 10, 0], vec![20, 10]));
        assert_eq!((offsets(5, 0), offsets(4, 3)), (vec![], vec![]));
        (0..100).for_each(give);
        let last = offsets(4, 0);
        assert_eq!((last.len(), last.first()), (limits::APPEND_OFFSETS, Some(&990)));
    }

    #[test]
    fn a_reported_offset_goes_only_to_the_request_that_had_it() {
        let places = AppendOffsets::default();
        places.report(F, 4, &[place(1, 30), place(2, 40), place(3, u64::MAX)], 50);
        let asked = |session| place(session, 0);
        assert_eq!(places.reported(F, 4, &asked(1)), Some(30));
        assert_eq!((places.reported(F, 5, &asked(1)), places.reported(F, 4, &asked(3))), (None, None));
        assert_eq!(places.reported(F, 4, &AppendOffset { sequence: 8, ..asked(1) }), None);
        assert_eq!(places.reported(F, 4, &AppendOffset { length: 11, ..asked(1) }), None);
        places.report(F, 4, &[place(1, 20), AppendOffset { sequence: 6, ..place(2, 10) }], 50);
        assert_eq!(
            (places.reported(F, 4, &asked(1)), places.reported(F, 4, &asked(2))),
            (Some(30), Some(40)),
            "it was reported before"
        );
        places.report(F, 4, &[AppendOffset { sequence: 8, ..place(2, 50) }], 90);
        assert_eq!(places.reported(F, 4, &asked(2)), None, "that was heard of");
        assert!(places.lacks_any(F, 4, |place| place.session == SessionId(1)));
        assert!(!places.lacks_any(F, 4, |_| true) && !places.lacks_any(F, 5, |_| false));
    }
}
