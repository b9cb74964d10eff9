//! The end of leases: recalled, lost, or given back.
//!
//! Invariant: a lease that was given up and has come again since is not returned before that one is.

use std::collections::BTreeSet;

use forebay_env::{Bug, planted};
use forebay_proto::{Fid, message::AwaitRecalls};

use super::{Dropped, LeaseTable};
use crate::limits;

impl LeaseTable {
    /// What nobody has wanted any of for a while is given up: see [`LeaseTable::take_undelivered`], [`LeaseTable::question`]. True if
    /// it is.
    pub fn give_up_idle(&mut self) -> bool {
        self.alive();
        if self.now.since(self.used) < limits::CACHE_IDLE {
            return false;
        }
        let had = self.has_leased();
        self.give_up_all();
        had
    }

    /// The next request to the MDT. `None`: nothing is cached, nobody writes, and the MDT knows that.
    pub fn question(&mut self, writes: bool) -> Option<AwaitRecalls> {
        self.alive();
        let nothing = (self.to_tell.acknowledged <= self.to_tell.known_acknowledged
            || planted(Bug::LastRecallNotAcknowledged))
            && self.to_tell.returned.is_empty()
            && self.data.is_empty()
            && self.to_tell.flushed.is_empty()
            && self.directories.is_empty();
        if nothing && !writes && !self.has_leased() {
            return None;
        }
        let (returned, flushed) = (self.take_returned(), std::mem::take(&mut self.to_tell.flushed));
        Some(AwaitRecalls { acknowledged: self.to_tell.acknowledged, returned, flushed })
    }

    fn take_returned(&mut self) -> Vec<Fid> {
        // What was leased again is returned with that lease.
        let is_kept = |fid: &Fid| self.directories.contains_key(fid) || self.leased(*fid).is_some();
        let returned = Vec::from_iter(
            self.to_tell.returned.iter().copied().filter(|fid| !is_kept(fid)).take(limits::RETURNED_LEASES),
        );
        if returned.is_empty() {
            return returned;
        }
        // Leases that come with replies to earlier requests may be the ones that are returned.
        self.forgotten = self.next();
        for fid in &returned {
            self.to_tell.returned.remove(fid);
            if let Some(node) = self.nodes.get_mut(fid) {
                node.recalled = self.forgotten;
            }
        }
        returned
    }

    /// The MDT recalls leases. What the kernel may not have received yet is delivered again before the recall is
    /// acknowledged ([`LeaseTable::acknowledge`]).
    pub fn drop_recalled(&mut self, fids: &[Fid]) {
        for fid in fids.iter().filter(|_| !planted(Bug::RecallIgnored)) {
            let (number, now) = (self.next(), self.now);
            self.drop_names(*fid);
            let node = self.node(*fid);
            node.recalled = number;
            let dropped = node.give_up(*fid, now);
            self.effects.ended.extend(dropped);
        }
    }

    /// These are not cached any more, and the MDT may count them as leased: it was not notified of their return, or a
    /// change failed.
    pub fn return_later(&mut self, fids: Vec<Fid>) {
        self.to_tell.returned.extend(fids);
    }

    /// What to send beside the request that waits for recalls: it returns no lease, and acknowledges no more.
    pub fn what_is_flushed(&mut self) -> Option<AwaitRecalls> {
        let (acknowledged, flushed) = (self.to_tell.acknowledged, std::mem::take(&mut self.to_tell.flushed));
        (!flushed.is_empty()).then_some(AwaitRecalls { acknowledged, returned: Vec::new(), flushed })
    }

    /// The MDT has answered this.
    pub fn answered(&mut self, question: &AwaitRecalls) {
        self.to_tell.known_acknowledged = self.to_tell.known_acknowledged.max(question.acknowledged);
    }

    /// The kernel was notified of every recall up to `sequence`.
    pub fn acknowledge(&mut self, sequence: u64) {
        self.to_tell.acknowledged = self.to_tell.acknowledged.max(sequence);
    }

    /// The MDT restarted, or ended the session: it knows of no leases any more. As [`LeaseTable::drop_recalled`].
    pub fn lost(&mut self) {
        let dropped = self.nodes.iter_mut().flat_map(|(fid, node)| node.give_up(*fid, self.now));
        self.effects.ended.extend(dropped);
        self.forget_all();
        self.to_tell.returned.clear();
        (self.contact, self.to_tell.acknowledged, self.to_tell.known_acknowledged) = (None, 0, 0);
    }

    /// No more is kept from now on than takes about so many bytes.
    pub fn keep_within(&mut self, bytes: u64) {
        self.most_bytes = Some(bytes);
    }

    /// What was given up of our own accord, and the kernel may not have received: delivered again before it is
    /// returned.
    pub fn take_undelivered(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.to_tell.undelivered)
    }

    /// The kernel may not have received these, which were given up.
    pub fn not_heard(&mut self, given_up: Vec<Dropped>) {
        self.to_tell.undelivered.extend(given_up);
    }

    /// Gives everything up, to be returned.
    fn give_up_all(&mut self) {
        self.order.clear();
        let fids = BTreeSet::from_iter(self.nodes.keys().chain(self.directories.keys()).copied());
        for fid in fids {
            self.give_up(fid);
        }
    }

    fn has_leased(&self) -> bool {
        self.nodes.values().any(|node| node.leased)
    }
}
