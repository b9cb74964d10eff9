//! The bound on leases: near it, only sessions below their share get more, and some leases of the session with most are recalled.

use std::ops::Bound::{Excluded, Unbounded};

use forebay_proto::{Fid, SessionId};

use super::{Holder, Leases};
use crate::limits;

impl Leases {
    /// True if `session` may get one more lease.
    pub(super) fn may_grant_one(&self, session: SessionId) -> bool {
        let held = || self.holders.get(&session).map_or(0, |holder| holder.fids.len());
        self.count < limits::CROWDED_LEASES || self.count < limits::CLIENT_LEASES && held() < self.share()
    }

    /// Number of leases that each session may have, whatever others hold; computed for one more session. The shares
    /// together are below [`limits::CROWDED_LEASES`]: beyond that, at least one session has more than its share.
    pub(super) fn share(&self) -> usize {
        limits::CROWDED_LEASES / (self.holders.len() + 1)
    }

    /// Near the bound, some leases of the session with most are recalled. Which ones does not matter: the client
    /// requests those that it uses again.
    pub(super) fn shrink(&mut self) {
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
