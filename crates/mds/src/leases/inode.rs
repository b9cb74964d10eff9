//! The leases on one inode: mostly one session's, tens of thousands where a whole machine works on one file.
//!
//! Invariant: a request that shows the inode looks only at holders that may have unshown changes, mostly one. A request
//! that changes it looks at none, if all leases are recalled already. Otherwise thousands of requests would each scan
//! thousands of leases.

use forebay_env::Time;
use forebay_proto::{Fid, SessionId};

/// What an operation does with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It shows the inode.
    Shows,
    /// It changes the inode.
    Changes,
}

/// A session's lease.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// Its holder.
    pub session: SessionId,
    /// True if the session has changed the inode since it got the lease.
    pub changed: bool,
    /// True if a recall is queued.
    pub recalled: bool,
    /// Set while the lease is exclusive: the directory, and the number of the session's entries-write lease on it, for
    /// as long as the session holds that.
    pub alone: Option<(Fid, u64)>,
}

/// All leases on one inode, ordered by session.
#[derive(Default)]
pub struct InodeLeases {
    all: Vec<Lease>,
    /// Number of recalled leases.
    recalled: u32,
    /// Sessions that may have unshown changes.
    unshown: Vec<SessionId>,
    /// No recalled lease expires before this time; 0: not all leases were looked at.
    until: Time,
}

impl Lease {
    /// True if its holder may have unshown changes.
    fn may_have_unshown(&self) -> bool {
        self.changed || self.alone.is_some()
    }
}

impl InodeLeases {
    /// The leases that can conflict with showing the inode, or with changing it.
    pub fn in_question(&self, wanted: Use) -> impl Iterator<Item = &Lease> {
        let all = if wanted == Use::Changes { &self.all[..] } else { &[] };
        all.iter().chain(self.with_unshown().filter(move |_| wanted == Use::Shows))
    }

    /// The leases whose holders may have unshown changes.
    pub fn with_unshown(&self) -> impl Iterator<Item = &Lease> {
        self.unshown.iter().filter_map(|session| self.get(*session))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn place(&self, session: SessionId) -> Result<usize, usize> {
        self.all.binary_search_by_key(&session, |lease| lease.session)
    }

    /// The lease of `session`.
    pub fn get(&self, session: SessionId) -> Option<&Lease> {
        self.place(session).ok().map(|at| &self.all[at])
    }

    /// True if no session but `session` has a lease.
    pub fn is_only(&self, session: SessionId) -> bool {
        match &self.all[..] {
            [] => true,
            [lease] => lease.session == session,
            _ => false,
        }
    }

    /// Adds a lease of `session`. False if it had one.
    pub fn add(&mut self, session: SessionId) -> bool {
        let Err(at) = self.place(session) else { return false };
        self.all.insert(at, Lease { session, changed: false, recalled: false, alone: None });
        true
    }

    /// Removes the lease of `session`.
    pub fn remove(&mut self, session: SessionId) {
        if let Ok(at) = self.place(session) {
            self.recalled -= u32::from(self.all.remove(at).recalled);
            self.unshown.retain(|keeper| *keeper != session);
        }
    }

    /// Changes the lease of `session`, if it has one.
    fn change(&mut self, session: SessionId, change: impl FnOnce(&mut Lease)) -> Option<Lease> {
        let at = self.place(session).ok()?;
        let lease = &mut self.all[at];
        let before = *lease;
        change(lease);
        self.recalled = self.recalled + u32::from(lease.recalled) - u32::from(before.recalled);
        if lease.may_have_unshown() && !before.may_have_unshown() {
            self.unshown.push(session);
        }
        Some(before)
    }

    /// Notes that `session` has changed the inode.
    pub fn set_changed(&mut self, session: SessionId) {
        self.change(session, |lease| lease.changed = true);
    }

    /// Makes `session` the exclusive holder while it holds this entries-write lease.
    pub fn set_exclusive(&mut self, session: SessionId, names: (Fid, u64)) {
        self.change(session, |lease| lease.alone = Some(names));
    }

    /// Marks the lease of `session`, which expires at `end`, as recalled. False if it was recalled before, or there is
    /// none.
    pub fn set_recalled(&mut self, session: SessionId, end: Time) -> bool {
        let is_new = self.change(session, |lease| lease.recalled = true).is_some_and(|before| !before.recalled);
        if is_new {
            self.until = self.until.min(end);
        }
        is_new
    }

    /// If the leases of all sessions but `session` are recalled: a time after `now` before which none of them expires.
    pub fn asked_until(&self, session: SessionId, now: Time) -> Option<Time> {
        let own = self.get(session).is_some_and(|lease| !lease.recalled);
        let asked = self.recalled as usize + usize::from(own) == self.all.len();
        (asked && self.until > now).then_some(self.until)
    }

    /// All leases were looked at: the first of them, recalled or not, expires at `until`.
    pub fn looked(&mut self, until: Time) {
        self.until = until;
    }

    /// True if waiting requests must look again after the end of `lease`. That is so if its holder may have had unshown
    /// changes, or if at most one recalled lease is left, which may be the waiter's own. A request that waits for
    /// thousands of leases is not woken for each.
    pub fn tells_of(&self, lease: Option<Lease>) -> bool {
        self.recalled <= 1 || lease.is_some_and(|lease| lease.may_have_unshown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u64 = 1000;

    fn at(second: u64) -> Time {
        Time(second * 1_000_000_000)
    }

    fn many() -> InodeLeases {
        let mut leases = InodeLeases::default();
        // In another order than that of the sessions.
        (1..=MANY).for_each(|n| assert!(leases.add(SessionId(n * 3 % (MANY + 1)))));
        leases
    }

    #[test]
    fn a_request_while_all_leases_are_recalled_scans_no_holder() {
        let mut leases = many();
        assert_eq!(leases.asked_until(SessionId(5), at(1)), None);
        (1..=MANY).filter(|n| *n != 5).for_each(|n| assert!(leases.set_recalled(SessionId(n), at(3))));
        leases.looked(at(3));
        assert_eq!(leases.asked_until(SessionId(5), at(1)), Some(at(3)));
        assert_eq!(leases.asked_until(SessionId(6), at(1)), None, "that of 5 is not asked");
        assert!(leases.set_recalled(SessionId(5), at(4)) && !leases.set_recalled(SessionId(5), at(2)));
        assert_eq!(leases.asked_until(SessionId(6), at(1)), Some(at(3)));
        assert_eq!(leases.asked_until(SessionId(6), at(3)), None, "somebody may be silent");
        leases.add(SessionId(2000));
        assert_eq!(leases.asked_until(SessionId(6), at(1)), None);
        assert_eq!(leases.asked_until(SessionId(2000), at(1)), Some(at(3)));
        leases.set_recalled(SessionId(2000), at(2));
        assert_eq!(
            leases.asked_until(SessionId(6), at(1)),
            Some(at(2)),
            "it ends before those that were looked through"
        );
    }

    #[test]
    fn waiters_are_notified_of_the_last_two_lease_ends_and_of_holders_with_changes() {
        let mut leases = many();
        leases.set_changed(SessionId(9));
        (1..=MANY).for_each(|n| assert!(leases.set_recalled(SessionId(n), at(3))));
        let mut told = Vec::new();
        for n in 1..=MANY {
            let lease = leases.get(SessionId(n)).copied();
            leases.remove(SessionId(n));
            leases.remove(SessionId(n));
            told.extend(leases.tells_of(lease).then_some(n));
        }
        assert_eq!(told, [9, MANY - 1, MANY]);
        assert!(leases.is_empty());
    }

    #[test]
    fn a_holder_with_several_delayed_changes_counts_once() {
        let mut leases = many();
        assert_eq!(leases.with_unshown().count(), 0);
        leases.set_changed(SessionId(3));
        leases.set_exclusive(SessionId(3), (Fid::ROOT, 1));
        leases.set_exclusive(SessionId(4), (Fid::ROOT, 1));
        leases.set_changed(SessionId(MANY + 1));
        let kept: Vec<u64> = leases.in_question(Use::Shows).map(|lease| lease.session.0).collect();
        assert_eq!((kept, leases.in_question(Use::Changes).count()), (vec![3, 4], MANY as usize));
        leases.remove(SessionId(3));
        leases.remove(SessionId(4));
        assert!(leases.with_unshown().count() == 0 && !leases.is_only(SessionId(1)));
    }
}
