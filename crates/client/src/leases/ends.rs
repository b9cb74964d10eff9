//! The end of leases: recalled, lost, or given back.
//!
//! Invariant: a lease that was given up and has come again since is not returned before that one is.

use std::collections::BTreeSet;

use forebay_env::{Bug, planted};
use forebay_proto::{Fid, message::AwaitRecalls};

use super::{Dropped, Leases, State};
use crate::limits;

impl Leases {
    /// What nobody has wanted any of for a while is given up: see [`Leases::take_undelivered`], [`Leases::question`]. True if it is.
    pub fn give_up_idle(&self) -> bool {
        self.alive();
        let is_idle = self.env.now().since(self.state.borrow().used) >= limits::CACHE_IDLE;
        let had = is_idle && self.state.borrow().nodes.values().any(|node| node.leased);
        if is_idle {
            self.give_up_all();
        }
        had
    }

    /// What to ask the MDT with next. `None`: nothing is kept, and it knows that.
    pub fn question(&self) -> Option<AwaitRecalls> {
        self.alive();
        let mut state = self.state.borrow_mut();
        let nothing = (state.acknowledged <= state.known_acknowledged || planted(Bug::LastRecallNotAcknowledged))
            && state.returned.is_empty()
            && state.data.is_empty()
            && state.flushed.is_empty()
            && state.directories.is_empty();
        if nothing && self.writers.get() == 0 && !state.nodes.values().any(|node| node.leased) {
            return None;
        }
        let flushed = std::mem::take(&mut state.flushed);
        // What was leased again is returned with that lease.
        let State { nodes, returned, directories, .. } = &*state;
        let kept = |fid: &Fid| directories.contains_key(fid) || nodes.get(fid).is_some_and(|node| node.leased);
        let now: BTreeSet<Fid> = returned.iter().copied().filter(|fid| !kept(fid)).take(limits::RETURNED).collect();
        state.returned.retain(|fid| !now.contains(fid));
        let returned = Vec::from_iter(now);
        if !returned.is_empty() {
            // Leases that come with replies to what was asked before may be the ones that are returned.
            state.sequence += 1;
            let number = state.sequence;
            state.forgotten = number;
            for fid in &returned {
                if let Some(node) = state.nodes.get_mut(fid) {
                    node.recalled = number;
                }
            }
        }
        Some(AwaitRecalls { acknowledged: state.acknowledged, returned, flushed })
    }

    /// The MDT takes leases back. What nobody may have heard of yet is to be said again ([`Leases::tell`]) before that is
    /// acknowledged ([`Leases::acknowledge`]); if there is nothing, it is.
    #[cfg(test)]
    pub fn recalled(&self, fids: &[Fid], sequence: u64) -> Vec<Dropped> {
        let undelivered = self.drop_recalled(fids);
        if undelivered.is_empty() {
            self.acknowledge(sequence);
        }
        undelivered
    }

    /// As [`Leases::recalled`], which is not to be acknowledged yet.
    pub fn drop_recalled(&self, fids: &[Fid]) -> Vec<Dropped> {
        let mut undelivered = Vec::new();
        for fid in fids.iter().filter(|_| !planted(Bug::RecallIgnored)) {
            let dropped = {
                let mut state = self.state.borrow_mut();
                state.sequence += 1;
                let number = state.sequence;
                state.drop_names(*fid);
                let node = state.node(*fid);
                node.recalled = number;
                node.give_up(*fid, self.env.now())
            };
            undelivered.extend(self.tell(dropped));
        }
        self.bound();
        undelivered
    }

    /// The MDT did not hear that these were given back.
    pub fn not_returned(&self, fids: Vec<Fid>) {
        self.state.borrow_mut().returned.extend(fids);
    }

    /// What to say beside the question that waits for recalls: nothing is given back by that, nor more acknowledged.
    pub fn what_is_flushed(&self) -> Option<AwaitRecalls> {
        let mut state = self.state.borrow_mut();
        let flushed = std::mem::take(&mut state.flushed);
        let (acknowledged, returned) = (state.acknowledged, Vec::new());
        (!flushed.is_empty()).then_some(AwaitRecalls { acknowledged, returned, flushed })
    }

    /// The MDT has answered this.
    pub fn answered(&self, question: &AwaitRecalls) {
        let mut state = self.state.borrow_mut();
        state.known_acknowledged = state.known_acknowledged.max(question.acknowledged);
    }

    /// Everything that was recalled up to `sequence` has been heard of.
    pub fn acknowledge(&self, sequence: u64) {
        let mut state = self.state.borrow_mut();
        state.acknowledged = state.acknowledged.max(sequence);
    }

    /// The MDT restarted, or ended the session: it knows of no leases any more. As [`Leases::recalled`].
    pub fn lost(&self) -> Vec<Dropped> {
        let now = self.env.now();
        let dropped: Vec<Dropped> = {
            let mut state = self.state.borrow_mut();
            let dropped = state.nodes.iter_mut().flat_map(|(fid, node)| node.give_up(*fid, now)).collect();
            state.forget_all();
            state.returned.clear();
            (state.contact, state.acknowledged, state.known_acknowledged) = (None, 0, 0);
            dropped
        };
        self.tell(dropped)
    }

    /// Gives everything up, to be returned.
    fn give_up_all(&self) {
        let fids: BTreeSet<Fid> = {
            let mut state = self.state.borrow_mut();
            state.order.clear();
            state.nodes.keys().chain(state.directories.keys()).copied().collect()
        };
        for fid in fids {
            self.give_up(fid);
        }
    }

    /// False: changes of it are under way, so that it has to be kept until they have come to pass; no more are answered.
    fn give_up(&self, fid: Fid) -> bool {
        let now = self.env.now();
        let dropped = {
            let mut state = self.state.borrow_mut();
            if let Some(directory) = state.directories.get_mut(&fid).filter(|directory| directory.under_way > 0) {
                directory.may = false;
                state.order.push_front(fid);
                return false;
            }
            let counted = state.directories.remove(&fid).is_some();
            state.drop_names(fid);
            let known = state.nodes.remove(&fid);
            if counted || known.as_ref().is_some_and(|node| node.leased) {
                state.returned.insert(fid);
            }
            let Some(mut node) = known else { return true };
            state.forgotten = state.forgotten.max(node.recalled).max(node.data_ended).max(node.changed);
            node.give_up(fid, now)
        };
        let undelivered = self.tell(dropped);
        self.state.borrow_mut().undelivered.extend(undelivered);
        true
    }

    /// No more is kept from now on than takes about so many bytes.
    pub fn keep_within(&self, bytes: u64) {
        self.state.borrow_mut().most_bytes = Some(bytes);
        self.bound();
    }

    pub(super) fn bound(&self) {
        loop {
            let oldest = {
                let mut state = self.state.borrow_mut();
                let most_bytes = state.most_bytes.unwrap_or(u64::MAX);
                let inodes = limits::CACHED_INODES.min((most_bytes / limits::CACHED_INODE_BYTES) as usize);
                let names = limits::CACHED_NAMES.min((most_bytes / limits::CACHED_NAME_BYTES) as usize);
                if state.nodes.len() <= inodes && state.names <= names {
                    return;
                }
                state.order.pop_front()
            };
            let Some(fid) = oldest else { return };
            if !self.give_up(fid) {
                return;
            }
        }
    }

    /// What was given up of our own accord and nobody may have heard of yet: said again before it is returned.
    pub fn take_undelivered(&self) -> Vec<Dropped> {
        std::mem::take(&mut self.state.borrow_mut().undelivered)
    }

    /// Tells what was dropped. What may not have been heard is to be said again.
    pub fn tell(&self, dropped: Vec<Dropped>) -> Vec<Dropped> {
        match self.hook.borrow().clone() {
            Some(hook) => dropped.into_iter().filter(|dropped| !hook(*dropped)).collect(),
            None => Vec::new(),
        }
    }
}
