//! The leases on one inode: of one session mostly, of tens of thousands where a whole machine works on one file.
//!
//! Invariant: who wants to show the inode looks only through those whose holders may keep something, one in most cases; who wants
//! to change it through none, if all have been asked back. Thousands come at once, and each would look through all of the others'.

use forebay_env::Time;
use forebay_proto::{Fid, SessionId};

use crate::leases::Use;

/// A session's lease.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// Whose it is.
    pub session: SessionId,
    /// The session has changed the inode since it got the lease.
    pub changed: bool,
    /// A recall is in its queue.
    pub recalled: bool,
    /// Nobody else has one, as long as the session holds this lease on the names of this directory.
    pub alone: Option<(Fid, u64)>,
}

/// All of them, in the order of their sessions.
#[derive(Default)]
pub struct InodeLeases {
    all: Vec<Lease>,
    /// Those that are asked back.
    recalled: u32,
    /// Who may keep what nobody else is shown.
    keepers: Vec<SessionId>,
    /// No lease of those that are asked back ends by itself before then; 0: nobody has looked through all.
    until: Time,
}

impl Lease {
    /// Its holder may keep what nobody else is shown.
    fn may_keep(&self) -> bool {
        self.changed || self.alone.is_some()
    }
}

impl InodeLeases {
    /// Those that can stand in the way of who wants to show the inode, or to change it.
    pub fn in_question(&self, wanted: Use) -> impl Iterator<Item = &Lease> {
        let all = if wanted == Use::Changes { &self.all[..] } else { &[] };
        all.iter().chain(self.kept().filter(move |_| wanted == Use::Shows))
    }

    /// Those whose holders may keep what nobody else is shown.
    pub fn kept(&self) -> impl Iterator<Item = &Lease> {
        self.keepers.iter().filter_map(|session| self.get(*session))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn place(&self, session: SessionId) -> Result<usize, usize> {
        self.all.binary_search_by_key(&session, |lease| lease.session)
    }

    /// That of `session`.
    pub fn get(&self, session: SessionId) -> Option<&Lease> {
        self.place(session).ok().map(|at| &self.all[at])
    }

    /// Nobody but `session` has one.
    pub fn is_only(&self, session: SessionId) -> bool {
        match &self.all[..] {
            [] => true,
            [lease] => lease.session == session,
            _ => false,
        }
    }

    /// `session` holds one. False if it did.
    pub fn add(&mut self, session: SessionId) -> bool {
        let Err(at) = self.place(session) else { return false };
        self.all.insert(at, Lease { session, changed: false, recalled: false, alone: None });
        true
    }

    /// `session` holds none.
    pub fn remove(&mut self, session: SessionId) {
        if let Ok(at) = self.place(session) {
            self.recalled -= u32::from(self.all.remove(at).recalled);
            self.keepers.retain(|keeper| *keeper != session);
        }
    }

    /// Changes what is said of that of `session`, if it has one.
    fn change(&mut self, session: SessionId, change: impl FnOnce(&mut Lease)) -> Option<Lease> {
        let at = self.place(session).ok()?;
        let lease = &mut self.all[at];
        let before = *lease;
        change(lease);
        self.recalled = self.recalled + u32::from(lease.recalled) - u32::from(before.recalled);
        if lease.may_keep() && !before.may_keep() {
            self.keepers.push(session);
        }
        Some(before)
    }

    /// `session` has changed the inode.
    pub fn set_changed(&mut self, session: SessionId) {
        self.change(session, |lease| lease.changed = true);
    }

    /// `session` is to stay the only one while it holds this lease on the names of a directory.
    pub fn set_alone(&mut self, session: SessionId, names: (Fid, u64)) {
        self.change(session, |lease| lease.alone = Some(names));
    }

    /// That of `session`, which ends by itself at `end`, is asked back. False if it was, or there is none.
    pub fn set_recalled(&mut self, session: SessionId, end: Time) -> bool {
        let is_new = self.change(session, |lease| lease.recalled = true).is_some_and(|before| !before.recalled);
        if is_new {
            self.until = self.until.min(end);
        }
        is_new
    }

    /// Those of all but `session` have been asked back, and none of them ends by itself before this time, which is not over.
    pub fn asked_until(&self, session: SessionId, now: Time) -> Option<Time> {
        let own = self.get(session).is_some_and(|lease| !lease.recalled);
        let asked = self.recalled as usize + usize::from(own) == self.all.len();
        (asked && self.until > now).then_some(self.until)
    }

    /// All were looked through: the first of them, also of one that is not asked back yet, ends by itself at `until`.
    pub fn looked(&mut self, until: Time) {
        self.until = until;
    }

    /// Whether who waits is to look again when `lease` has ended: it kept something, or was the last that is asked back, but for one
    /// that may be the waiter's own. Those who wait for thousands are not told of each.
    pub fn tells_of(&self, lease: Option<Lease>) -> bool {
        self.recalled <= 1 || lease.is_some_and(|lease| lease.may_keep())
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
        // In an order of their own.
        (1..=MANY).for_each(|n| assert!(leases.add(SessionId(n * 3 % (MANY + 1)))));
        leases
    }

    #[test]
    fn who_comes_when_all_are_asked_looks_through_none() {
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
    fn only_the_last_ends_are_told_of_and_those_of_who_keeps_something() {
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
    fn those_who_keep_something_are_counted_once() {
        let mut leases = many();
        assert_eq!(leases.kept().count(), 0);
        leases.set_changed(SessionId(3));
        leases.set_alone(SessionId(3), (Fid::ROOT, 1));
        leases.set_alone(SessionId(4), (Fid::ROOT, 1));
        leases.set_changed(SessionId(MANY + 1));
        let kept: Vec<u64> = leases.in_question(Use::Shows).map(|lease| lease.session.0).collect();
        assert_eq!((kept, leases.in_question(Use::Changes).count()), (vec![3, 4], MANY as usize));
        leases.remove(SessionId(3));
        leases.remove(SessionId(4));
        assert!(leases.kept().count() == 0 && !leases.is_only(SessionId(1)));
    }
}
