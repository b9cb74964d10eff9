//! Leases: what each client may cache or buffer, and what the MDT recalls before somebody else sees or changes it.
//!
//! | lease | its holder may | ends by |
//! |---|---|---|
//! | inode (`inode`) | cache attributes and, of a directory, entries | recall, 2 s without contact, restart |
//! | data-write (`data`) | buffer writes to a file that nobody else has open | recall, last close, eviction |
//! | byte-range write (`range_leases`) | buffer writes in the ranges that it claimed (`range_claims`) | as data-write |
//! | entries-write (`data`) | delay changes of a directory's entries | recall, end of its session |
//!
//! All in memory. A restarted server grants and changes nothing before each client that may hold a lease has come back
//! without it, or its term is over.
//!
//! Invariant: while a session holds an inode lease, nobody else changes the inode. Nobody else is shown a change that
//! the session itself made either: the session's kernel may show the earlier state until the reply arrives.
//! Invariant: an inode lease ends [`LEASE_TERM`] after the last request of its session; the client stops using it
//! earlier. A data-write lease does not end by time: its holder is evicted when it blocks others for too long
//! (`recall_timeout`).
//! Invariant: no client keeps others from having leases. Near the bound, only sessions below their share get more, and
//! some leases of the session with most are recalled (`bounds`).
//!
//! Which leases a reply grants is decided in `policy`.

mod bounds;
mod contended;
mod data;
mod inode;
mod policy;
mod range_claims;
mod range_leases;
mod recall_timeout;
mod waits;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use forebay_env::{Bug, Time, planted, sync::Notify};
use forebay_proto::{
    Fid, Incarnation, SessionId,
    limits::{LEASE_TERM, RECALLS},
    message::{AwaitRecalls, DataRecall},
};

use self::{
    contended::Contended,
    data::DataLeases,
    inode::{InodeLeases, Lease},
    range_claims::RangeClaims,
    recall_timeout::{Overdue, RecallTimeouts},
};
pub use self::{inode::Use, waits::LeaseWaits};
use crate::limits;

/// What the server knows of a session with leases.
struct Holder {
    /// When its last request came.
    seen: Time,
    /// When it last released a recalled lease.
    progressed: Time,
    fids: BTreeSet<Fid>,
    /// Recalls that it has not acknowledged, in order.
    queue: VecDeque<Recall>,
    /// Notified when a recall is queued.
    recall: Rc<Notify>,
}

/// A recall that its holder has not acknowledged.
struct Recall {
    number: u64,
    what: Recalled,
    asked: Time,
}

/// The lease that is recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recalled {
    /// The lease on an inode.
    Inode(Fid),
    /// The lease on a file's data.
    Data(Fid),
}

/// The recalls that a client receives.
pub struct PendingRecalls {
    /// Inode leases.
    pub fids: Vec<Fid>,
    /// Data leases and entries-write leases.
    pub data: Vec<DataRecall>,
    /// Number of the last recall; 0 if there is none.
    pub sequence: u64,
    /// Notified when the next recall is queued.
    pub next: Rc<Notify>,
}

/// All leases. See the module.
#[derive(Default)]
pub struct Leases {
    of: BTreeMap<Fid, InodeLeases>,
    /// Data-write and entries-write leases.
    pub data: DataLeases,
    /// Range claims on files that several sessions have open.
    pub claims: RangeClaims,
    /// Sessions that block others for too long, to be evicted.
    overdue: BTreeMap<SessionId, Overdue>,
    timeouts: RecallTimeouts,
    holders: BTreeMap<SessionId, Holder>,
    count: usize,
    /// When leases of a client are next recalled so that others can get some.
    next_shrink: Time,
    /// The last inode whose lease was recalled for that.
    shrunk: Fid,
    /// Inodes for whose leases an operation waits: no new leases on them meanwhile.
    awaited: BTreeMap<Fid, u32>,
    /// Inodes that get no new leases for a moment.
    contended: Contended,
    now: Time,
    /// Number of the last recall, over all sessions. Numbers are never reused, not even in a later incarnation.
    sequence: u64,
    granted: u64,
    recalled: u64,
}

impl Leases {
    /// No leases, in this incarnation of the server.
    pub fn new(incarnation: Incarnation) -> Self {
        Self { sequence: u64::from(incarnation.0) << 32, ..Self::default() }
    }

    /// Notes a request of `session`.
    pub fn note_request(&mut self, session: SessionId, now: Time) {
        self.set_now(now);
        if let Some(holder) = self.holders.get_mut(&session) {
            let late = now.since(holder.seen) >= LEASE_TERM;
            holder.seen = now;
            if late {
                self.forget_inodes(session);
            }
        }
        self.shrink();
    }

    /// Sets the time used from here on. A server that was stopped itself could not receive requests meanwhile.
    fn set_now(&mut self, now: Time) {
        if now.since(self.now) > limits::STOPPED {
            self.timeouts.stopped(now);
        }
        self.now = now;
    }

    /// Notes that a server was away at `now`, or its device stuck: lease holders may be waiting for it.
    pub fn trouble(&mut self, now: Time) {
        self.timeouts.trouble(now);
    }

    /// True if `session` can get a lease on `fid` now. False while its lease is being recalled: its acknowledgement may
    /// be in flight.
    pub fn is_free(&self, session: SessionId, fid: Fid) -> bool {
        self.is_free_after_wait(session, fid) && !self.awaited.contains_key(&fid) && !self.contended.is(fid, self.now)
    }

    /// The same for an operation that has just waited for the end of other sessions' leases.
    pub fn is_free_after_wait(&self, session: SessionId, fid: Fid) -> bool {
        self.may_grant_one(session) && !self.lease(session, fid).is_some_and(|lease| lease.recalled)
    }

    /// Grants `session` a lease on `fid`.
    pub fn grant(&mut self, session: SessionId, fid: Fid) {
        if !self.of.entry(fid).or_default().add(session) {
            return;
        }
        self.holder(session).fids.insert(fid);
        self.count += 1;
        self.granted += 1;
        self.shrink();
    }

    /// True if `session` is, or can be, the only holder of a lease on `fid` while it changes the entries of `parent`.
    pub fn is_alone(&self, session: SessionId, fid: Fid, parent: Fid) -> bool {
        self.data.entries_write_of(session, parent).is_some()
            && self.of.get(&fid).is_none_or(|leases| leases.is_only(session))
            && !self.lease(session, fid).is_some_and(|lease| lease.recalled)
    }

    /// Makes `session`, which has a lease on `fid`, its exclusive holder.
    pub fn set_exclusive(&mut self, session: SessionId, fid: Fid, parent: Fid) {
        if let (Some(leases), Some(number)) = (self.of.get_mut(&fid), self.data.entries_write_of(session, parent)) {
            leases.set_exclusive(session, (parent, number));
        }
    }

    /// True if `session`, which has a lease on the directory `fid`, can get its entries-write lease.
    pub fn is_names_free(&self, session: SessionId, fid: Fid) -> bool {
        self.is_data_free(session, fid) && self.of.get(&fid).is_none_or(|leases| leases.is_only(session))
    }

    /// Grants `session` the entries-write lease on `fid`: it may delay changes of the entries.
    pub fn grant_entries_write(&mut self, session: SessionId, fid: Fid) {
        if self.data.entries_write_of(session, fid).is_none() {
            self.data.grant_entries_write(session, fid);
            self.holder(session);
            self.granted += 1;
        }
    }

    /// Recalls all entries-write leases.
    pub fn recall_entries_write(&mut self, now: Time) {
        for (session, fid) in self.data.all_names() {
            self.recall_data(session, fid, None, now);
        }
    }

    /// True if `session` can get a data-write lease on `fid`, which nobody else has open.
    pub fn is_data_free(&self, session: SessionId, fid: Fid) -> bool {
        self.is_free(session, fid) && self.data.is_free(session, fid)
    }

    /// Grants `session` a data-write lease on `fid`: it may buffer its writes.
    pub fn grant_data(&mut self, session: SessionId, fid: Fid) {
        self.data.grant(session, fid);
        self.holder(session);
        self.granted += 1;
    }

    /// True if sessions with range claims may get byte-range write leases on `fid` now, if the claims allow it. No
    /// operation waits for leases on the file, and each holder of a data lease has a claim.
    pub fn may_share_ranges(&self, fid: Fid) -> bool {
        self.count < limits::CLIENT_LEASES
            && !self.awaited.contains_key(&fid)
            && self.data.all(fid, |session| self.claims.has(session, fid))
    }

    fn holder(&mut self, session: SessionId) -> &mut Holder {
        let seen = self.now;
        let new = || Holder {
            seen,
            progressed: Time(0),
            fids: BTreeSet::new(),
            queue: VecDeque::new(),
            recall: Rc::new(Notify::new()),
        };
        self.holders.entry(session).or_insert_with(new)
    }

    /// True if `session` has a lease on `fid` that is not being recalled.
    pub fn has(&self, session: SessionId, fid: Fid) -> bool {
        self.lease(session, fid).is_some_and(|lease| !lease.recalled)
    }

    fn lease(&self, session: SessionId, fid: Fid) -> Option<&Lease> {
        self.of.get(&fid)?.get(session)
    }

    /// Notes that `session` has changed `fid`: others are shown that only after its lease has ended.
    pub fn changed(&mut self, session: SessionId, fid: Fid) {
        if let Some(leases) = self.of.get_mut(&fid) {
            leases.set_changed(session);
        }
    }

    /// True if another session's lease conflicts with `wanted`.
    pub fn conflicts(&self, session: SessionId, fid: Fid, wanted: Use) -> bool {
        let inode = self.count > 0 && self.conflicting(session, fid, wanted).next().is_some();
        inode || self.data_conflicts(session, fid)
    }

    /// The sessions whose leases on the inode conflict.
    pub fn conflicting_sessions(&self, session: SessionId, fid: Fid, wanted: Use) -> Vec<SessionId> {
        self.conflicting(session, fid, wanted).map(|lease| lease.session).collect()
    }

    /// Other sessions' leases on the inode that conflict.
    fn conflicting(&self, session: SessionId, fid: Fid, wanted: Use) -> impl Iterator<Item = &Lease> {
        let leases = self.of.get(&fid).into_iter().flat_map(move |leases| leases.in_question(wanted));
        leases.filter(move |lease| lease.conflicts_with(session, wanted, &self.data))
    }

    /// The inodes on which a lease has to end before `session` may continue. They are those in `uses`, and the
    /// directories whose entries-write lease makes a conflicting lease exclusive.
    pub fn may_end(&self, session: SessionId, uses: &BTreeMap<Fid, Use>) -> Vec<Fid> {
        let mut fids: Vec<Fid> = uses.keys().copied().collect();
        for (fid, wanted) in uses {
            let conflicts = |lease: &&Lease| lease.conflicts_with(session, *wanted, &self.data);
            let kept = self.of.get(fid).into_iter().flat_map(InodeLeases::with_unshown).filter(conflicts);
            fids.extend(kept.filter_map(|lease| lease.alone).map(|(dir, _)| dir));
        }
        fids.sort_unstable();
        fids.dedup();
        fids
    }

    /// True if only leases of `holders` on the inode conflict with showing it to `session`.
    pub fn conflicts_only_with(&self, holders: &[SessionId], session: SessionId, fid: Fid) -> bool {
        !self.data_conflicts(session, fid)
            && self.conflicting_sessions(session, fid, Use::Shows).iter().all(|other| holders.contains(other))
    }

    /// True if another session's data lease conflicts. Not for a session with a data lease or a range claim. Its
    /// request may be needed to send what it buffers, or does not concern the bytes of other sessions. Or it has
    /// withdrawn its claim before.
    fn data_conflicts(&self, session: SessionId, fid: Fid) -> bool {
        if planted(Bug::RangeLeasesNotRecalled) && self.claims.apart(fid).is_some() {
            return false;
        }
        self.data.conflicts(session, fid) && !self.data.has(session, fid) && !self.claims.has(session, fid)
    }

    /// Recalls the leases that conflict with `uses`. Returns when the first of them expires, or the time of its holder
    /// is over; `None` if nothing conflicts (any more).
    pub fn recall(&mut self, session: SessionId, uses: &BTreeMap<Fid, Use>, now: Time) -> Option<Time> {
        self.set_now(now);
        let mut first: Option<Time> = None;
        for (fid, wanted) in uses {
            let end = self.recall_inode(session, *fid, *wanted, now);
            first = first.into_iter().chain(end).min();
            if self.data_conflicts(session, *fid) {
                let end = self.recall_from_others(session, *fid, now);
                first = first.into_iter().chain(end).min();
            }
            let pause = if *wanted == Use::Changes { limits::CONTENDED } else { limits::SHOWN };
            self.contended.insert(*fid, now + pause, now);
        }
        first
    }

    /// Recalls the leases on one inode. As [`Leases::recall`].
    fn recall_inode(&mut self, session: SessionId, fid: Fid, wanted: Use, now: Time) -> Option<Time> {
        let others = self.of.get(&fid)?;
        if wanted == Use::Changes
            && !others.is_only(session)
            && let Some(until) = others.asked_until(session, now)
        {
            return Some(until);
        }
        let mut first: Option<Time> = None;
        for other in self.conflicting_sessions(session, fid, wanted) {
            let end = self.end_of(other);
            if end <= now {
                self.forget_inodes(other);
                continue;
            }
            self.ask(other, fid, end);
            first = Some(first.map_or(end, |first| first.min(end)));
        }
        if wanted == Use::Changes {
            // The session's own lease would be recalled by the next request that conflicts with it.
            let own = self.lease(session, fid).map(|_| self.end_of(session));
            if let (Some(leases), Some(until)) = (self.of.get_mut(&fid), first.into_iter().chain(own).min()) {
                leases.looked(until);
            }
        }
        first
    }

    /// When the inode leases of `session` expire, unless it sends another request.
    fn end_of(&self, session: SessionId) -> Time {
        self.holders.get(&session).map_or(self.now, |holder| holder.seen + LEASE_TERM)
    }

    /// Recalls the data leases on `fid` of all sessions but `session`, whatever it holds itself. As [`Leases::recall`].
    pub fn recall_from_others(&mut self, session: SessionId, fid: Fid, now: Time) -> Option<Time> {
        self.set_now(now);
        let others = self.data.others(session, fid);
        others.into_iter().map(|(other, asked)| self.recall_data(other, fid, asked, now)).min()
    }

    /// Recalls a data lease, once. Returns until when its holder has time (see [`RecallTimeouts`]).
    fn recall_data(&mut self, holder: SessionId, fid: Fid, asked: Option<Time>, now: Time) -> Time {
        let Some(asked) = asked else {
            self.sequence += 1;
            self.recalled += 1;
            let number = self.sequence;
            self.data.recall(holder, fid, number, now);
            let holder = self.holder(holder);
            holder.queue.push_back(Recall { number, what: Recalled::Data(fid), asked: now });
            holder.recall.notify_waiters();
            return now + limits::RECALL_TIMEOUT_SILENT;
        };
        let (seen, progressed) = self.holders.get(&holder).map_or((asked, asked), |it| (it.seen, it.progressed));
        let (end, overdue) = self.timeouts.until(asked, seen, progressed);
        if end > now {
            return end;
        }
        self.overdue.insert(holder, overdue);
        now + limits::RECALL_TIMEOUT_SILENT
    }

    /// Sessions to be evicted, with the reason.
    pub fn take_overdue(&mut self) -> BTreeMap<SessionId, Overdue> {
        std::mem::take(&mut self.overdue)
    }

    /// Queues a recall for a session, once. The lease expires at `end`.
    fn ask(&mut self, session: SessionId, fid: Fid, end: Time) {
        if !self.of.get_mut(&fid).is_some_and(|leases| leases.set_recalled(session, end)) {
            return;
        }
        if let Some(holder) = self.holders.get_mut(&session) {
            self.sequence += 1;
            holder.queue.push_back(Recall { number: self.sequence, what: Recalled::Inode(fid), asked: self.now });
            holder.recall.notify_waiters();
            self.recalled += 1;
        }
    }

    /// Grants no lease on `fid` until [`Leases::stop_awaiting`].
    pub fn await_end(&mut self, fid: Fid) {
        *self.awaited.entry(fid).or_default() += 1;
    }

    /// See [`Leases::await_end`].
    pub fn stop_awaiting(&mut self, fid: Fid) {
        if let Some(count) = self.awaited.get_mut(&fid) {
            *count -= 1;
            if *count == 0 {
                self.awaited.remove(&fid);
            }
        }
    }

    /// Handles an acknowledgement: `session` has dropped the recalled leases, returned others, and sent its buffered
    /// data. Returns the inodes whose leases have ended, now or before, so that waiting requests look again.
    pub fn acknowledge(&mut self, session: SessionId, said: &AwaitRecalls) -> Vec<Fid> {
        let mut dropped = said.returned.clone();
        if let Some(holder) = self.holders.get_mut(&session) {
            let acknowledged = holder.queue.partition_point(|recall| recall.number <= said.acknowledged);
            let inode = |recall: Recall| if let Recalled::Inode(fid) = recall.what { Some(fid) } else { None };
            dropped.extend(holder.queue.drain(..acknowledged).filter_map(inode));
        }
        let flushed = said.flushed.iter().filter(|it| self.data.flushed(session, it.fid, it.sequence));
        let mut ended: Vec<Fid> = flushed.map(|it| it.fid).collect();
        if let Some(holder) = self.holders.get_mut(&session).filter(|_| !ended.is_empty()) {
            holder.progressed = self.now;
        }
        // A client that returns a directory has no changes of it in flight.
        let entries_write_of = |fid: &&Fid| self.data.entries_write_of(session, **fid).is_some();
        let names: Vec<Fid> = said.returned.iter().filter(entries_write_of).copied().collect();
        ended.extend(names.into_iter().filter(|fid| self.data.end(session, *fid)));
        for fid in dropped {
            let lease = self.lease(session, fid).copied();
            self.drop_lease(session, fid);
            // Also if the lease ended another way since its recall: a request may be waiting for that.
            if self.of.get(&fid).is_none_or(|left| left.tells_of(lease)) {
                ended.push(fid);
            }
        }
        ended
    }

    /// The recalls to send to `session`.
    pub fn recalls(&mut self, session: SessionId) -> PendingRecalls {
        let holder = self.holder(session);
        let mut pending =
            PendingRecalls { fids: Vec::new(), data: Vec::new(), sequence: 0, next: holder.recall.clone() };
        for recall in holder.queue.iter().take(RECALLS) {
            pending.sequence = recall.number;
            match recall.what {
                Recalled::Inode(fid) => pending.fids.push(fid),
                Recalled::Data(fid) => pending.data.push(DataRecall { fid, sequence: recall.number }),
            }
        }
        pending
    }

    fn drop_lease(&mut self, session: SessionId, fid: Fid) -> bool {
        if !self.holders.get_mut(&session).is_some_and(|holder| holder.fids.remove(&fid)) {
            return false;
        }
        self.count -= 1;
        if let Some(leases) = self.of.get_mut(&fid) {
            leases.remove(session);
            if leases.is_empty() {
                self.of.remove(&fid);
            }
        }
        true
    }

    /// Ends the leases of sessions that have expired; true if there were any. Sessions that send requests but do not
    /// acknowledge their recalls become overdue.
    pub fn expire(&mut self, now: Time) -> bool {
        self.set_now(now);
        for (session, holder) in &mut self.holders {
            // No request waits for a lease that ended another way.
            let is_over = |recall: &Recall| match recall.what {
                Recalled::Inode(fid) => !holder.fids.contains(&fid),
                Recalled::Data(fid) => !self.data.is_recalled(*session, fid, recall.number),
            };
            while holder.queue.front().is_some_and(is_over) {
                holder.queue.pop_front();
            }
            let end = holder.queue.front().map(|it| self.timeouts.while_in_contact(it.asked, holder.progressed));
            if now.since(holder.seen) < LEASE_TERM && end.is_some_and(|end| end <= now) {
                self.overdue.insert(*session, Overdue::Keeps);
            }
        }
        self.shrink();
        let silent = |holder: &Holder| now.since(holder.seen) >= LEASE_TERM;
        let over: Vec<SessionId> =
            self.holders.iter().filter(|(_, h)| silent(h)).map(|(session, _)| *session).collect();
        over.into_iter().filter(|session| self.forget_inodes(*session)).count() > 0
    }

    /// A session has disconnected: it has dropped all its leases, and sent all buffered data.
    pub fn forget(&mut self, session: SessionId) {
        self.data.end_session(session);
        self.claims.end_session(session);
        self.forget_inodes(session);
    }

    /// Ends a session's leases on inodes. True if it had any.
    fn forget_inodes(&mut self, session: SessionId) -> bool {
        let Some(holder) = self.holders.get_mut(&session) else { return false };
        holder.recall.notify_waiters();
        holder.queue.retain(|recall| matches!(recall.what, Recalled::Data(_)));
        let fids: Vec<Fid> = holder.fids.iter().copied().collect();
        for fid in &fids {
            self.drop_lease(session, *fid);
        }
        if !self.data.has_any(session) {
            self.holders.remove(&session);
        }
        !fids.is_empty()
    }

    /// Numbers of leases that are held, were granted, and were recalled.
    pub fn counters(&self) -> (usize, u64, u64) {
        (self.count + self.data.len(), self.granted, self.recalled)
    }
}

impl Lease {
    fn conflicts_with(&self, session: SessionId, wanted: Use, data: &DataLeases) -> bool {
        let is_alone =
            || self.alone.is_some_and(|(dir, number)| data.entries_write_of(self.session, dir) == Some(number));
        self.session != session
            && (wanted == Use::Changes || self.changed || !planted(Bug::ExclusiveFileShown) && is_alone())
    }
}

#[cfg(test)]
mod tests;
