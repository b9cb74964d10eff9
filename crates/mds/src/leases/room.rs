//! Who may have how many leases when there are nearly as many as there may be, and who is asked for some then.

use std::ops::Bound::{Excluded, Unbounded};

use forebay_proto::{Fid, SessionId};

use super::{Holder, Leases};
use crate::limits;

impl Leases {
    /// Whether `session` may have one more.
    pub(super) fn has_room(&self, session: SessionId) -> bool {
        let held = || self.holders.get(&session).map_or(0, |holder| holder.fids.len());
        self.count < limits::CROWDED_LEASES || self.count < limits::CLIENT_LEASES && held() < self.share()
    }

    /// Leases that each may have whatever others do; one more could come. All shares together are no crowd: where there is one,
    /// somebody has more.
    pub(super) fn share(&self) -> usize {
        limits::CROWDED_LEASES / (self.holders.len() + 1)
    }

    /// When there are nearly as many as there may be, who has most is asked for some: which, it does not matter to us, and those
    /// that are in use are asked for again.
    pub(super) fn make_room(&mut self) {
        if self.count < limits::CROWDED_LEASES || self.now < self.next_shrink {
            return;
        }
        self.next_shrink = self.now + limits::SHRINK_INTERVAL;
        let share = self.share();
        let may_be_asked = |holder: &Holder| holder.fids.len() > share && holder.queue.len() < limits::SHRINK;
        let most = self.holders.iter().filter(|(_, holder)| may_be_asked(holder));
        let Some((session, holder)) = most.max_by_key(|(_, holder)| holder.fids.len()) else { return };
        let session = *session;
        let (before, after) =
            (holder.fids.range(..=self.shrunk), holder.fids.range((Excluded(self.shrunk), Unbounded)));
        let some = (holder.fids.len() - share).saturating_sub(holder.queue.len()).min(limits::SHRINK);
        let fids: Vec<Fid> = after.chain(before).copied().take(some).collect();
        let end = self.end_of(session);
        fids.iter().for_each(|fid| self.ask(session, *fid, end));
        self.shrunk = fids.last().copied().unwrap_or(self.shrunk);
    }
}
