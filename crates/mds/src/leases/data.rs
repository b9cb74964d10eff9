//! Data-write leases on files (the holder may buffer writes) and entries-write leases on directories (the holder may
//! delay changes of entries).
//!
//! A data-write lease goes to the only session that has a file open; or to all of them, limited to the byte ranges that
//! each has claimed ([`crate::leases::range_claims`]). It ends when its holder has sent everything: after a recall, or
//! before the last close of a writing handle. It also ends when the session ends: by a goodbye, or by an eviction once
//! the client is fenced on the file's OSTs. It never ends by time alone, as acknowledged bytes may be in flight.
//!
//! After a restart every session with a writing handle is presumed to hold one, until it has reclaimed what it holds,
//! or is gone.
//!
//! An entries-write lease has one holder, and only while nobody else has a lease on the directory. It is not presumed
//! after a restart: a client with changes in flight reports them when it comes back, and without its session it can make
//! none.

use std::collections::{BTreeMap, BTreeSet};

use forebay_env::Time;
use forebay_proto::{Fid, SessionId};

/// One session's lease on the data of one file, or on the entries of one directory.
#[derive(Clone, Copy, Debug)]
struct Holding {
    session: SessionId,
    /// Number and time of its recall.
    recall: Option<(u64, Time)>,
    /// Presumed after a restart: its session has not reclaimed it yet.
    presumed: bool,
    /// For an entries-write lease its number, unique among all that were granted; 0 for a data lease.
    names: u64,
}

/// All data-write and entries-write leases. See the module.
#[derive(Default)]
pub struct DataLeases {
    of: BTreeMap<Fid, Vec<Holding>>,
    by_session: BTreeMap<SessionId, BTreeSet<Fid>>,
    /// Number of entries-write leases granted so far.
    numbered: u64,
}

impl DataLeases {
    /// Grants `session` a data lease.
    pub fn grant(&mut self, session: SessionId, fid: Fid) {
        self.end(session, fid);
        self.add(session, fid, false, 0);
    }

    /// Grants `session` the entries-write lease on the directory `fid`.
    pub fn grant_entries_write(&mut self, session: SessionId, fid: Fid) {
        if self.entries_write_of(session, fid).is_none() {
            self.end(session, fid);
            self.numbered += 1;
            self.add(session, fid, false, self.numbered);
        }
    }

    /// Number of the entries-write lease on `fid`, if `session` holds it.
    pub fn entries_write_of(&self, session: SessionId, fid: Fid) -> Option<u64> {
        let holding = self.of.get(&fid)?.iter().find(|holding| holding.session == session)?;
        (holding.names != 0).then_some(holding.names)
    }

    /// All entries-write leases that are not being recalled.
    pub fn all_names(&self) -> Vec<(SessionId, Fid)> {
        let free = |holding: &&Holding| holding.names != 0 && holding.recall.is_none();
        let of = |(fid, all): (&Fid, &Vec<Holding>)| -> Vec<(SessionId, Fid)> {
            all.iter().filter(free).map(|holding| (holding.session, *fid)).collect()
        };
        self.of.iter().flat_map(of).collect()
    }

    /// Ends the entries-write leases of `session`, which can change no more entries. True if it held any.
    pub fn end_names(&mut self, session: SessionId) -> bool {
        let fids = self.by_session.get(&session).cloned().unwrap_or_default();
        fids.into_iter().filter(|fid| self.entries_write_of(session, *fid).is_some() && self.end(session, *fid)).count()
            > 0
    }

    /// Presumes that `session` held a lease before the restart.
    pub fn presume(&mut self, session: SessionId, fid: Fid) {
        if self.of.get(&fid).is_none_or(|all| all.iter().all(|holding| holding.session != session)) {
            self.add(session, fid, true, 0);
        }
    }

    fn add(&mut self, session: SessionId, fid: Fid, presumed: bool, names: u64) {
        self.by_session.entry(session).or_default().insert(fid);
        self.of.entry(fid).or_default().push(Holding { session, recall: None, presumed, names });
    }

    /// Called after recovery: every session that came back has reclaimed its leases. Sessions for which `is_back` is
    /// false are being ended.
    pub fn recovered(&mut self, is_back: impl Fn(SessionId) -> bool) {
        let presumed = |(fid, all): (&Fid, &Vec<Holding>)| -> Vec<(SessionId, Fid)> {
            let over = all.iter().filter(|holding| holding.presumed && is_back(holding.session));
            over.map(|holding| (holding.session, *fid)).collect()
        };
        let over: Vec<_> = self.of.iter().flat_map(presumed).collect();
        for (session, fid) in over {
            self.end(session, fid);
        }
    }

    /// True if `session` holds a lease.
    pub fn has(&self, session: SessionId, fid: Fid) -> bool {
        self.by_session.get(&session).is_some_and(|fids| fids.contains(&fid))
    }

    /// True if no lease on `fid` is being recalled, and every holder is as `wanted`.
    pub fn all(&self, fid: Fid, wanted: impl Fn(SessionId) -> bool) -> bool {
        self.of.get(&fid).is_none_or(|all| all.iter().all(|it| it.recall.is_none() && wanted(it.session)))
    }

    /// True if a session other than `session` holds a lease.
    pub fn conflicts(&self, session: SessionId, fid: Fid) -> bool {
        !self.of.is_empty() && self.of.get(&fid).is_some_and(|all| all.iter().any(|holding| holding.session != session))
    }

    /// True if `session` may get a lease: no other session has one, and its own is not being recalled.
    pub fn is_free(&self, session: SessionId, fid: Fid) -> bool {
        let free = |holding: &Holding| holding.session == session && holding.recall.is_none();
        self.of.get(&fid).is_none_or(|all| all.iter().all(free))
    }

    /// Sessions other than `session` that hold a lease, with the time of its recall.
    pub fn others(&self, session: SessionId, fid: Fid) -> Vec<(SessionId, Option<Time>)> {
        let all = self.of.get(&fid).into_iter().flatten().filter(|holding| holding.session != session);
        all.map(|holding| (holding.session, holding.recall.map(|(_, asked)| asked))).collect()
    }

    /// Files on whose data a session other than `session` holds a lease.
    pub fn of_others(&self, session: SessionId) -> Vec<Fid> {
        self.of.keys().copied().filter(|fid| self.conflicts(session, *fid)).collect()
    }

    /// Marks the lease as recalled, under `number`.
    pub fn recall(&mut self, session: SessionId, fid: Fid, number: u64, now: Time) {
        let holding = self.of.get_mut(&fid).and_then(|all| all.iter_mut().find(|holding| holding.session == session));
        if let Some(holding) = holding {
            holding.recall = Some((number, now));
        }
    }

    /// True if `session` holds a lease that was recalled under `number`.
    pub fn is_recalled(&self, session: SessionId, fid: Fid, number: u64) -> bool {
        let asked = |holding: &Holding| holding.session == session && holding.recall.is_some_and(|(n, _)| n == number);
        self.has(session, fid) && self.of.get(&fid).is_some_and(|all| all.iter().any(asked))
    }

    /// The holder has sent all buffered data, after the recall `number`. False if the lease is not recalled under this
    /// number.
    pub fn flushed(&mut self, session: SessionId, fid: Fid, number: u64) -> bool {
        self.is_recalled(session, fid, number) && self.end(session, fid)
    }

    /// No session has the file open for writing any more. True if a session held a lease.
    pub fn closed(&mut self, fid: Fid) -> bool {
        let sessions: Vec<SessionId> = self.of.get(&fid).into_iter().flatten().map(|holding| holding.session).collect();
        sessions.into_iter().filter(|session| self.end(*session, fid)).count() > 0
    }

    /// After a restart: `session` reports whether it holds a lease on a file that it has open.
    pub fn reclaim(&mut self, session: SessionId, fid: Fid, holds: bool) {
        if holds {
            self.grant(session, fid);
        } else {
            self.end(session, fid);
        }
    }

    /// `session` can write to `fid` no more, or reports that it buffers nothing. True if it held a lease.
    pub fn end(&mut self, session: SessionId, fid: Fid) -> bool {
        let Some(fids) = self.by_session.get_mut(&session) else { return false };
        if !fids.remove(&fid) {
            return false;
        }
        if fids.is_empty() {
            self.by_session.remove(&session);
        }
        if let Some(all) = self.of.get_mut(&fid) {
            all.retain(|holding| holding.session != session);
            if all.is_empty() {
                self.of.remove(&fid);
            }
        }
        true
    }

    /// `session` can write nothing any more. True if it held any lease.
    pub fn end_session(&mut self, session: SessionId) -> bool {
        let fids = self.by_session.get(&session).cloned().unwrap_or_default();
        fids.into_iter().filter(|fid| self.end(session, *fid)).count() > 0
    }

    /// True if `session` holds a lease on any file.
    pub fn has_any(&self, session: SessionId) -> bool {
        self.by_session.contains_key(&session)
    }

    /// Number of leases.
    pub fn len(&self) -> usize {
        self.by_session.values().map(BTreeSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const F: Fid = Fid { high: 0, low: 7 };

    #[test]
    fn only_the_answer_to_its_own_recall_ends_a_lease() {
        let mut leases = DataLeases::default();
        leases.grant(A, F);
        assert!(leases.conflicts(B, F) && !leases.conflicts(A, F) && !leases.is_free(B, F));
        leases.recall(A, F, 4, Time(0));
        assert!(!leases.flushed(A, F, 3) && !leases.flushed(B, F, 4) && !leases.is_free(A, F));
        assert!(leases.flushed(A, F, 4) && leases.len() == 0);
        leases.grant(A, F);
        assert!(!leases.flushed(A, F, 4), "that was another lease");
    }

    #[test]
    fn reclaims_replace_the_data_write_leases_presumed_after_a_restart() {
        let mut leases = DataLeases::default();
        let other = Fid { low: 8, ..F };
        let third = Fid { low: 9, ..F };
        [F, other, third].into_iter().for_each(|fid| leases.presume(A, fid));
        leases.presume(B, F);
        leases.reclaim(A, F, false);
        leases.reclaim(A, other, true);
        leases.recovered(|session| session == A);
        assert_eq!(leases.others(SessionId(0), third).len(), 0, "it came back, and did not name it");
        assert_eq!((leases.others(SessionId(0), F).len(), leases.others(SessionId(0), other).len()), (1, 1));
        assert!(leases.end_session(B) && !leases.end_session(B) && leases.has_any(A));
        assert!(leases.closed(other) && leases.len() == 0);
    }
}
