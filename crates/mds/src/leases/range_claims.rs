//! Range claims: which byte ranges each session is going to write of a file that several sessions have open.
//!
//! A session with a claim does nothing with the file but write in its ranges, until it withdraws the claim. Withdrawing
//! waits until all other holders have sent what they buffer. So where every session that has the file open has a claim,
//! and no two claims overlap, each may buffer its writes: no other session can observe the difference. An open by
//! another session ends that first.
//!
//! All in memory: after a restart clients claim again.

use std::collections::{BTreeMap, BTreeSet};

use forebay_env::{Bug, planted};
use forebay_proto::{Fid, SessionId, message::Pieces};

use crate::limits;

/// The claims on one file.
#[derive(Default)]
struct Claimed {
    of: BTreeMap<SessionId, Vec<Pieces>>,
    /// Pairs of sessions whose ranges may overlap.
    meet: BTreeSet<(SessionId, SessionId)>,
}

/// All range claims. See the module.
#[derive(Default)]
pub struct RangeClaims {
    files: BTreeMap<Fid, Claimed>,
}

impl RangeClaims {
    /// `session` claims `pieces` of `fid`, which replace its earlier claim. False, and nothing changes, if too many
    /// sessions have claims on the file.
    pub fn claim(&mut self, session: SessionId, fid: Fid, pieces: Vec<Pieces>) -> bool {
        let file = self.files.entry(fid).or_default();
        if file.of.get(&session) == Some(&pieces) {
            return true;
        }
        if file.of.len() >= limits::CLAIMANTS && !file.of.contains_key(&session) {
            return false;
        }
        file.meet.retain(|(a, b)| *a != session && *b != session);
        let others = file.of.iter().filter(|(other, _)| **other != session);
        let met = others.filter(|(_, theirs)| may_meet(&pieces, theirs)).map(|(other, _)| (session, *other));
        file.meet.extend(met.collect::<Vec<_>>());
        file.of.insert(session, pieces);
        true
    }

    /// True if `session` has a claim on `fid`.
    pub fn has(&self, session: SessionId, fid: Fid) -> bool {
        !self.files.is_empty() && self.files.get(&fid).is_some_and(|file| file.of.contains_key(&session))
    }

    /// The sessions with a claim on `fid`, if no two claims overlap.
    pub fn apart(&self, fid: Fid) -> Option<impl Iterator<Item = SessionId>> {
        let file = self.files.get(&fid).filter(|file| file.meet.is_empty())?;
        Some(file.of.keys().copied())
    }

    /// `session` has withdrawn its claim, or has closed `fid`.
    pub fn end(&mut self, session: SessionId, fid: Fid) {
        let Some(file) = self.files.get_mut(&fid) else { return };
        file.of.remove(&session);
        file.meet.retain(|(a, b)| *a != session && *b != session);
        if file.of.is_empty() {
            self.files.remove(&fid);
        }
    }

    /// `session` has ended.
    pub fn end_session(&mut self, session: SessionId) {
        let fids: Vec<Fid> =
            self.files.iter().filter(|(_, f)| f.of.contains_key(&session)).map(|(fid, _)| *fid).collect();
        fids.into_iter().for_each(|fid| self.end(session, fid));
    }
}

fn may_meet(ours: &[Pieces], theirs: &[Pieces]) -> bool {
    !planted(Bug::OverlappingClaimsGranted) && ours.iter().any(|our| theirs.iter().any(|their| our.may_meet(their)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Fid = Fid { high: 0, low: 7 };

    fn rank(rank: u64) -> Vec<Pieces> {
        vec![Pieces { start: rank * 10, length: 10, stride: 30, count: 100 }]
    }

    fn apart(claims: &RangeClaims) -> Option<Vec<u64>> {
        claims.apart(F).map(|sessions| sessions.map(|session| session.0).collect())
    }

    #[test]
    fn claims_are_apart_until_two_may_meet() {
        let mut claims = RangeClaims::default();
        assert_eq!(apart(&claims), None);
        (0..3).for_each(|i| assert!(claims.claim(SessionId(i), F, rank(i))));
        assert_eq!(apart(&claims), Some(vec![0, 1, 2]));
        claims.claim(SessionId(3), F, vec![Pieces { start: 1005, length: 1, stride: 1, count: 1 }]);
        assert!(apart(&claims).is_none() && claims.has(SessionId(3), F));
        claims.end(SessionId(3), F);
        assert_eq!(apart(&claims), Some(vec![0, 1, 2]));
        claims.claim(SessionId(2), F, rank(1));
        claims.claim(SessionId(2), F, rank(1));
        assert_eq!(apart(&claims), None);
        claims.claim(SessionId(2), F, rank(2));
        assert_eq!(apart(&claims), Some(vec![0, 1, 2]));
        (0..3).for_each(|i| claims.end_session(SessionId(i)));
        assert!(claims.files.is_empty());
    }

    #[test]
    fn there_is_a_bound_on_how_many_claim_a_file() {
        let mut claims = RangeClaims::default();
        let all = limits::CLAIMANTS as u64;
        let record = |i: u64| vec![Pieces { start: i, length: 1, stride: 1, count: 1 }];
        assert!((0..all).all(|i| claims.claim(SessionId(i), F, record(i))));
        assert!(!claims.claim(SessionId(all), F, record(all)) && claims.claim(SessionId(3), F, record(all)));
    }
}
