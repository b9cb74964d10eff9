//! Leases: what each client keeps of inodes and names, and what has to be recalled before it changes.
//!
//! A lease on an inode is a session's right to believe its attributes and, of a directory, its names. All in memory: a
//! restarted server grants and changes nothing before every client that may hold one has come back without it, or its time
//! is over.
//!
//! Invariant: while a session holds a lease, nobody else changes the inode, and nobody else is shown a change that the
//! session itself made: its own kernel may show the state before it until the reply is there.
//! Invariant: a session that has not been heard for [`LEASE_TERM`] has none: it has stopped to believe them by itself. A
//! lease on data (see [`DataLeases`]) does not end by that: its holder is evicted when it is in the way for too long.
//! Invariant: who is asked for a lease and neither gives it back nor falls silent is evicted too (see [`Patience`]).
//! Invariant: no client keeps others from having leases. When there are nearly as many as there may be, only those that have
//! less than their share get more, and who has most is asked for some (`room`).

mod room;

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

use crate::{
    claims::Claims,
    contended::Contended,
    data_leases::DataLeases,
    inode_leases::{InodeLeases, Lease},
    limits,
    patience::{Overdue, Patience},
};

/// How an operation looks at an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It shows it.
    Shows,
    /// It changes it.
    Changes,
}

/// What is known of a session with leases.
struct Holder {
    /// When it was last heard.
    seen: Time,
    /// When it last sent what it was asked for.
    progressed: Time,
    fids: BTreeSet<Fid>,
    /// Recalls it has not acknowledged, in their order.
    queue: VecDeque<Recall>,
    /// There is a recall.
    recall: Rc<Notify>,
}

/// A recall that its holder has not acknowledged.
struct Recall {
    number: u64,
    what: Recalled,
    asked: Time,
}

/// What a recall takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recalled {
    /// The lease on an inode.
    Inode(Fid),
    /// The lease on a file's data.
    Data(Fid),
}

/// What a client is told of recalls.
pub struct Told {
    /// Inodes.
    pub fids: Vec<Fid>,
    /// Data.
    pub data: Vec<DataRecall>,
    /// Number of the last one; 0 if there is none.
    pub sequence: u64,
    /// Tells of the next.
    pub next: Rc<Notify>,
}

/// All leases. See the module.
#[derive(Default)]
pub struct Leases {
    of: BTreeMap<Fid, InodeLeases>,
    /// On data.
    pub data: DataLeases,
    /// What sessions are going to write of files that several have open.
    pub claims: Claims,
    /// Sessions that keep others waiting for too long, to be evicted.
    overdue: BTreeMap<SessionId, Overdue>,
    patience: Patience,
    holders: BTreeMap<SessionId, Holder>,
    count: usize,
    /// When somebody is next asked for leases so that others can have some.
    next_shrink: Time,
    /// The last inode that somebody was asked for to that end.
    shrunk: Fid,
    /// Operations that wait for the end of leases on an inode: no new ones meanwhile.
    awaited: BTreeMap<Fid, u32>,
    /// Inodes without new leases for a moment.
    contended: Contended,
    now: Time,
    /// Number of the last recall, of all sessions: no number is given twice, and none of an earlier incarnation.
    sequence: u64,
    granted: u64,
    recalled: u64,
}

impl Leases {
    /// None, in this incarnation of the server.
    pub fn new(incarnation: Incarnation) -> Self {
        Self { sequence: u64::from(incarnation.0) << 32, ..Self::default() }
    }

    /// A request of `session` came in.
    pub fn heard(&mut self, session: SessionId, now: Time) {
        self.set_now(now);
        if let Some(holder) = self.holders.get_mut(&session) {
            let late = now.since(holder.seen) >= LEASE_TERM;
            holder.seen = now;
            if late {
                self.forget_inodes(session);
            }
        }
        self.make_room();
    }

    /// All times are looked at after this. A server that was stopped itself has not heard anybody meanwhile.
    fn set_now(&mut self, now: Time) {
        if now.since(self.now) > limits::STOPPED {
            self.patience.stopped(now);
        }
        self.now = now;
    }

    /// Some server was away at `now`, or its device stuck: those who hold leases may be waiting for it.
    pub fn trouble(&mut self, now: Time) {
        self.patience.trouble(now);
    }

    /// Whether `session` can have a lease on `fid` now. Not while one is recalled from it: it may be about to say that it
    /// has dropped that.
    pub fn is_free(&self, session: SessionId, fid: Fid) -> bool {
        self.is_free_after_wait(session, fid) && !self.awaited.contains_key(&fid) && !self.contended.is(fid, self.now)
    }

    /// The same where it has just waited for the end of those of others.
    pub fn is_free_after_wait(&self, session: SessionId, fid: Fid) -> bool {
        self.has_room(session) && !self.lease(session, fid).is_some_and(|lease| lease.recalled)
    }

    /// `session` holds a lease on `fid` from now on.
    pub fn grant(&mut self, session: SessionId, fid: Fid) {
        if !self.of.entry(fid).or_default().add(session) {
            return;
        }
        self.holder(session).fids.insert(fid);
        self.count += 1;
        self.granted += 1;
        self.make_room();
    }

    /// Whether `session` is, or can be, the only one with a lease on `fid` while it changes the names of `parent`.
    pub fn is_alone(&self, session: SessionId, fid: Fid, parent: Fid) -> bool {
        self.data.of_names(session, parent).is_some()
            && self.of.get(&fid).is_none_or(|leases| leases.is_only(session))
            && !self.lease(session, fid).is_some_and(|lease| lease.recalled)
    }

    /// `session`, which has a lease on `fid`, is to stay the only one.
    pub fn set_alone(&mut self, session: SessionId, fid: Fid, parent: Fid) {
        if let (Some(leases), Some(number)) = (self.of.get_mut(&fid), self.data.of_names(session, parent)) {
            leases.set_alone(session, (parent, number));
        }
    }

    /// Whether `session`, which has a lease on the directory `fid`, can have one on its names.
    pub fn is_names_free(&self, session: SessionId, fid: Fid) -> bool {
        self.is_data_free(session, fid) && self.of.get(&fid).is_none_or(|leases| leases.is_only(session))
    }

    /// `session` may answer changes of the names of `fid` before it asks for them.
    pub fn grant_names(&mut self, session: SessionId, fid: Fid) {
        if self.data.of_names(session, fid).is_none() {
            self.data.grant_names(session, fid);
            self.holder(session);
            self.granted += 1;
        }
    }

    /// All changes of names are to be asked for again before they are answered.
    pub fn recall_names(&mut self, now: Time) {
        for (session, fid) in self.data.all_names() {
            self.recall_data(session, fid, None, now);
        }
    }

    /// Whether `session` can have a lease on the data of `fid`, which nobody else has open.
    pub fn is_data_free(&self, session: SessionId, fid: Fid) -> bool {
        self.is_free(session, fid) && self.data.is_free(session, fid)
    }

    /// `session` may keep back what it writes to `fid`.
    pub fn grant_data(&mut self, session: SessionId, fid: Fid) {
        self.data.grant(session, fid);
        self.holder(session);
        self.granted += 1;
    }

    /// Whether sessions with claims may share the data of `fid` now, if these allow it: nobody waits for it, and whoever
    /// holds it already has one.
    pub fn is_share_free(&self, fid: Fid) -> bool {
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

    /// `session` has a lease on `fid` that is not being recalled.
    pub fn has(&self, session: SessionId, fid: Fid) -> bool {
        self.lease(session, fid).is_some_and(|lease| !lease.recalled)
    }

    fn lease(&self, session: SessionId, fid: Fid) -> Option<&Lease> {
        self.of.get(&fid)?.get(session)
    }

    /// `session` has changed `fid`: nobody else is shown that before its lease has ended.
    pub fn changed(&mut self, session: SessionId, fid: Fid) {
        if let Some(leases) = self.of.get_mut(&fid) {
            leases.set_changed(session);
        }
    }

    /// Somebody else's lease stands in the way of `session`.
    pub fn is_in_the_way(&self, session: SessionId, fid: Fid, wanted: Use) -> bool {
        let inode = self.count > 0 && self.hindering(session, fid, wanted).next().is_some();
        inode || self.is_data_in_the_way(session, fid)
    }

    /// Whose leases on the inode stand in the way of `session`.
    pub fn hinderers(&self, session: SessionId, fid: Fid, wanted: Use) -> Vec<SessionId> {
        self.hindering(session, fid, wanted).map(|lease| lease.session).collect()
    }

    /// Others' leases on the inode that stand in the way of `session`.
    fn hindering(&self, session: SessionId, fid: Fid, wanted: Use) -> impl Iterator<Item = &Lease> {
        let leases = self.of.get(&fid).into_iter().flat_map(move |leases| leases.in_question(wanted));
        leases.filter(move |lease| lease.hinders(session, wanted, &self.data))
    }

    /// What has to end before `session` may go on: leases on `uses`, or on the names of a directory in which a file is its holder's
    /// alone.
    pub fn may_end(&self, session: SessionId, uses: &BTreeMap<Fid, Use>) -> Vec<Fid> {
        let mut fids: Vec<Fid> = uses.keys().copied().collect();
        for (fid, wanted) in uses {
            let hinders = |lease: &&Lease| lease.hinders(session, *wanted, &self.data);
            let kept = self.of.get(fid).into_iter().flat_map(InodeLeases::kept).filter(hinders);
            fids.extend(kept.filter_map(|lease| lease.alone).map(|(dir, _)| dir));
        }
        fids.sort_unstable();
        fids.dedup();
        fids
    }

    /// Nothing stands in the way of showing it but leases of these on the inode.
    pub fn is_kept_by_none_but(&self, holders: &[SessionId], session: SessionId, fid: Fid) -> bool {
        !self.is_data_in_the_way(session, fid)
            && self.hinderers(session, fid, Use::Shows).iter().all(|other| holders.contains(other))
    }

    /// Somebody else's lease on data does. Not of who has one too: what it asks for is needed to send what it keeps back, or
    /// has nothing to do with the bytes of others, or it has taken its claim back before.
    fn is_data_in_the_way(&self, session: SessionId, fid: Fid) -> bool {
        if planted(Bug::SharesNotRecalled) && self.claims.apart(fid).is_some() {
            return false;
        }
        self.data.is_in_the_way(session, fid) && !self.data.has(session, fid) && !self.claims.has(session, fid)
    }

    /// Recalls what stands in the way of `session`. When the first of these leases ends by itself, or its holder has had time
    /// enough; `None`: nothing stands in the way (any more).
    pub fn recall(&mut self, session: SessionId, uses: &BTreeMap<Fid, Use>, now: Time) -> Option<Time> {
        self.set_now(now);
        let mut first: Option<Time> = None;
        for (fid, wanted) in uses {
            let end = self.recall_inode(session, *fid, *wanted, now);
            first = first.into_iter().chain(end).min();
            if self.is_data_in_the_way(session, *fid) {
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
        for other in self.hinderers(session, fid, wanted) {
            let end = self.end_of(other);
            if end <= now {
                self.forget_inodes(other);
                continue;
            }
            self.ask(other, fid, end);
            first = Some(first.map_or(end, |first| first.min(end)));
        }
        if wanted == Use::Changes {
            // Its own is asked back by the next who comes.
            let own = self.lease(session, fid).map(|_| self.end_of(session));
            if let (Some(leases), Some(until)) = (self.of.get_mut(&fid), first.into_iter().chain(own).min()) {
                leases.looked(until);
            }
        }
        first
    }

    /// When what `session` keeps of inodes ends, if it is not heard again.
    fn end_of(&self, session: SessionId) -> Time {
        self.holders.get(&session).map_or(self.now, |holder| holder.seen + LEASE_TERM)
    }

    /// Recalls the data of `fid` from all but `session`, whatever it has itself. As [`Leases::recall`].
    pub fn recall_from_others(&mut self, session: SessionId, fid: Fid, now: Time) -> Option<Time> {
        self.set_now(now);
        let others = self.data.others(session, fid);
        others.into_iter().map(|(other, asked)| self.recall_data(other, fid, asked, now)).min()
    }

    /// Asks for data, once. Until when its holder has time (see [`Patience`]).
    fn recall_data(&mut self, holder: SessionId, fid: Fid, asked: Option<Time>, now: Time) -> Time {
        let Some(asked) = asked else {
            self.sequence += 1;
            self.recalled += 1;
            let number = self.sequence;
            self.data.recall(holder, fid, number, now);
            let holder = self.holder(holder);
            holder.queue.push_back(Recall { number, what: Recalled::Data(fid), asked: now });
            holder.recall.notify_waiters();
            return now + limits::DATA_TERM;
        };
        let (seen, progressed) = self.holders.get(&holder).map_or((asked, asked), |it| (it.seen, it.progressed));
        let (end, overdue) = self.patience.until(asked, seen, progressed);
        if end > now {
            return end;
        }
        self.overdue.insert(holder, overdue);
        now + limits::DATA_TERM
    }

    /// Sessions to be evicted, and why.
    pub fn take_overdue(&mut self) -> BTreeMap<SessionId, Overdue> {
        std::mem::take(&mut self.overdue)
    }

    /// Puts a recall into a session's queue, once. Its lease ends by itself at `end`.
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

    /// No lease on `fid` is granted until [`Leases::stop_awaiting`].
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

    /// `session` has dropped what was recalled, and returned some; what it kept back of data was sent. Of what leases ended, or had,
    /// so that who waits for them is to look again.
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
        // Who gives a directory back has no changes of it under way.
        let of_names = |fid: &&Fid| self.data.of_names(session, **fid).is_some();
        let names: Vec<Fid> = said.returned.iter().filter(of_names).copied().collect();
        ended.extend(names.into_iter().filter(|fid| self.data.end(session, *fid)));
        for fid in dropped {
            let lease = self.lease(session, fid).copied();
            self.drop_lease(session, fid);
            // Also if it went another way since it was recalled: somebody may wait for that.
            if self.of.get(&fid).is_none_or(|left| left.tells_of(lease)) {
                ended.push(fid);
            }
        }
        ended
    }

    /// Recalls to be told to `session`.
    pub fn recalls(&mut self, session: SessionId) -> Told {
        let holder = self.holder(session);
        let mut told = Told { fids: Vec::new(), data: Vec::new(), sequence: 0, next: holder.recall.clone() };
        for recall in holder.queue.iter().take(RECALLS) {
            told.sequence = recall.number;
            match recall.what {
                Recalled::Inode(fid) => told.fids.push(fid),
                Recalled::Data(fid) => told.data.push(DataRecall { fid, sequence: recall.number }),
            }
        }
        told
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

    /// Sessions whose time is over hold none. True if there was one. Those that are heard, and do not acknowledge what they are
    /// asked for, are overdue.
    pub fn expire(&mut self, now: Time) -> bool {
        self.set_now(now);
        for (session, holder) in &mut self.holders {
            // What ended another way nobody waits for.
            let is_over = |recall: &Recall| match recall.what {
                Recalled::Inode(fid) => !holder.fids.contains(&fid),
                Recalled::Data(fid) => !self.data.is_recalled(*session, fid, recall.number),
            };
            while holder.queue.front().is_some_and(is_over) {
                holder.queue.pop_front();
            }
            let end = holder.queue.front().map(|it| self.patience.while_heard(it.asked, holder.progressed));
            if now.since(holder.seen) < LEASE_TERM && end.is_some_and(|end| end <= now) {
                self.overdue.insert(*session, Overdue::Keeps);
            }
        }
        self.make_room();
        let silent = |holder: &Holder| now.since(holder.seen) >= LEASE_TERM;
        let over: Vec<SessionId> =
            self.holders.iter().filter(|(_, h)| silent(h)).map(|(session, _)| *session).collect();
        over.into_iter().filter(|session| self.forget_inodes(*session)).count() > 0
    }

    /// A session said goodbye: it has dropped everything, and sent everything.
    pub fn forget(&mut self, session: SessionId) {
        self.data.end_session(session);
        self.claims.end_session(session);
        self.forget_inodes(session);
    }

    /// A session keeps nothing of inodes and names any more. True if it did.
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

    /// Leases there are, were granted, were recalled.
    pub fn counters(&self) -> (usize, u64, u64) {
        (self.count + self.data.len(), self.granted, self.recalled)
    }
}

impl Lease {
    fn hinders(&self, session: SessionId, wanted: Use, data: &DataLeases) -> bool {
        let is_alone = || self.alone.is_some_and(|(dir, number)| data.of_names(self.session, dir) == Some(number));
        self.session != session
            && (wanted == Use::Changes || self.changed || !planted(Bug::LoneFileShown) && is_alone())
    }
}

#[cfg(test)]
mod tests;
