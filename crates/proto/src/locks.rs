//! The locks of one file: which of them conflict, and how setting one changes the others of its owner.
//!
//! Both ends use this list: the metadata server to decide, a client to reclaim its own locks after a restart. Pure.
//!
//! Invariant: ranges of one owner and kind do not overlap.
//! Invariant: locks of different sessions, kinds or owners are never merged.

use crate::message::{LockSpec, lock_kind, lock_mode};

/// Locks of one file. `W`: what identifies the holder beside the owner's number (a session; `()` if there is only one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockList<W> {
    held: Vec<(W, LockSpec)>,
}

impl<W> Default for LockList<W> {
    fn default() -> Self {
        Self { held: Vec::new() }
    }
}

impl<W: Copy + Eq> LockList<W> {
    /// The lock that conflicts with `wanted` of `whose`; of several, the one that begins first, as fcntl(2) reports it.
    pub fn in_the_way(&self, whose: W, wanted: &LockSpec) -> Option<&LockSpec> {
        self.all_in_the_way(whose, wanted).map(|(_, lock)| lock).min_by_key(|lock| lock.start)
    }

    /// All conflicting locks, and their holders.
    pub fn all_in_the_way(&self, whose: W, wanted: &LockSpec) -> impl Iterator<Item = (W, &LockSpec)> {
        let excludes = |lock: &LockSpec| match (lock.mode, wanted.mode) {
            (_, lock_mode::NONE) => false,
            (held, wanted) => held == lock_mode::EXCLUSIVE || wanted == lock_mode::EXCLUSIVE,
        };
        let same = move |of: W, lock: &LockSpec| of == whose && lock.owner == wanted.owner;
        let meets = move |(of, lock): &(W, &LockSpec)| {
            lock.kind == wanted.kind && overlap(lock, wanted) && excludes(lock) && !same(*of, lock)
        };
        self.iter().filter(meets)
    }

    /// Sets `lock`, regardless of conflicts. Other locks of the owner and kind are cut where they overlap it. Mode
    /// `NONE` releases the range.
    pub fn set(&mut self, whose: W, lock: &LockSpec) {
        let mut kept = Vec::with_capacity(self.held.len() + 2);
        for (of, held) in self.held.drain(..) {
            if of != whose || held.kind != lock.kind || held.owner != lock.owner || !overlap(&held, lock) {
                kept.push((of, held));
                continue;
            }
            if held.start < lock.start {
                kept.push((of, LockSpec { end: lock.start - 1, ..held.clone() }));
            }
            if held.end > lock.end {
                kept.push((of, LockSpec { start: lock.end + 1, ..held }));
            }
        }
        self.held = kept;
        if lock.mode != lock_mode::NONE {
            let whole = self.absorb_neighbours(whose, lock.clone());
            self.held.push((whose, whole));
        }
    }

    /// `lock` merged with the equal locks that touch it: a program that locks byte after byte has one lock.
    fn absorb_neighbours(&mut self, whose: W, mut lock: LockSpec) -> LockSpec {
        let same = |of: &W, held: &LockSpec, lock: &LockSpec| {
            let told = (held.kind, held.owner, held.mode, held.pid, held.handle);
            *of == whose && told == (lock.kind, lock.owner, lock.mode, lock.pid, lock.handle)
        };
        self.held.retain(|(of, held)| {
            let before = held.end.checked_add(1) == Some(lock.start);
            let after = lock.end.checked_add(1) == Some(held.start);
            let absorbed = (before || after) && same(of, held, &lock);
            if absorbed {
                (lock.start, lock.end) = (lock.start.min(held.start), lock.end.max(held.end));
            }
            !absorbed
        });
        lock
    }

    /// True if one exclusive lock of the owner covers all of `wanted`.
    pub fn is_owned(&self, whose: W, wanted: &LockSpec) -> bool {
        let own = |(of, lock): (W, &LockSpec)| of == whose && (lock.kind, lock.owner) == (wanted.kind, wanted.owner);
        let covers = |lock: &LockSpec| lock.start <= wanted.start && wanted.end <= lock.end;
        self.iter().any(|held| own(held) && held.1.mode == lock_mode::EXCLUSIVE && covers(held.1))
    }

    /// True if `wanted` converts a flock(2) lock of its owner to another mode. The old lock is released first, whatever
    /// the outcome. Otherwise two owners of a shared lock could wait for each other for ever.
    pub fn is_conversion(&self, whose: W, wanted: &LockSpec) -> bool {
        let own = |(of, lock): (W, &LockSpec)| of == whose && (lock.kind, lock.owner) == (wanted.kind, wanted.owner);
        let is_set = wanted.kind == lock_kind::FLOCK && wanted.mode != lock_mode::NONE;
        is_set && self.iter().any(|held| own(held) && held.1.mode != wanted.mode)
    }

    /// True if `wanted` ends an exclusive lock of its owner, or a part of it: others may then read what was written
    /// under it.
    pub fn ends_exclusive(&self, whose: W, wanted: &LockSpec) -> bool {
        let own = |(of, lock): (W, &LockSpec)| of == whose && (lock.kind, lock.owner) == (wanted.kind, wanted.owner);
        let ends = |held: &LockSpec| held.mode == lock_mode::EXCLUSIVE && overlap(held, wanted);
        wanted.mode != lock_mode::EXCLUSIVE && self.iter().any(|held| own(held) && ends(held.1))
    }

    /// Releases all locks that match `which`; true if there was one.
    pub fn remove(&mut self, which: impl Fn(W, &LockSpec) -> bool) -> bool {
        let before = self.held.len();
        self.held.retain(|(of, lock)| !which(*of, lock));
        self.held.len() < before
    }

    /// All locks, with their holders.
    pub fn iter(&self) -> impl Iterator<Item = (W, &LockSpec)> {
        self.held.iter().map(|(of, lock)| (*of, lock))
    }

    /// Number of locks.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True if there are no locks.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

fn overlap(a: &LockSpec, b: &LockSpec) -> bool {
    a.start <= b.end && b.start <= a.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock_mode::{EXCLUSIVE, NONE, SHARED};

    fn lock(owner: u64, mode: u32, start: u64, end: u64) -> LockSpec {
        LockSpec { kind: lock_kind::FCNTL, owner, mode, start, end, pid: 7, handle: 1 }
    }

    /// Lock mode of every byte below 32, for `owner` of session `whose`.
    fn modes(list: &LockList<u8>, whose: u8, owner: u64) -> Vec<u32> {
        let at = |byte: u64| {
            let mut found =
                list.iter().filter(|(of, l)| *of == whose && l.owner == owner && l.start <= byte && byte <= l.end);
            let mode = found.next().map_or(NONE, |(_, l)| l.mode);
            assert!(found.next().is_none(), "ranges of one owner overlap: {list:?}");
            mode
        };
        (0..32).map(at).collect()
    }

    #[test]
    fn shared_locks_meet_and_exclusive_ones_do_not() {
        let mut list = LockList::default();
        list.set(1, &lock(1, SHARED, 10, 19));
        assert_eq!(list.in_the_way(2, &lock(1, SHARED, 0, 100)), None);
        assert!(list.in_the_way(2, &lock(1, EXCLUSIVE, 19, 19)).is_some());
        assert_eq!(list.in_the_way(2, &lock(1, EXCLUSIVE, 20, 30)), None);
        assert_eq!(list.in_the_way(1, &lock(1, EXCLUSIVE, 0, 100)), None, "nobody is in his own way");
        assert!(list.in_the_way(1, &lock(2, EXCLUSIVE, 0, 100)).is_some());
    }

    #[test]
    fn of_several_locks_in_the_way_the_one_that_begins_first_is_told() {
        let mut list = LockList::default();
        list.set(1, &lock(1, EXCLUSIVE, 20, 29));
        list.set(1, &lock(1, SHARED, 5, 9));
        list.set(2, &lock(1, SHARED, 12, 14));
        let first = |mode, start| list.in_the_way(3, &lock(1, mode, start, 100)).map(|found| found.start);
        assert_eq!([first(EXCLUSIVE, 0), first(EXCLUSIVE, 10), first(SHARED, 0)], [Some(5), Some(12), Some(20)]);
    }

    #[test]
    fn flock_and_fcntl_never_meet() {
        let mut list = LockList::default();
        list.set(1, &lock(1, EXCLUSIVE, 0, i64::MAX as u64));
        let flock = LockSpec { kind: lock_kind::FLOCK, ..lock(2, EXCLUSIVE, 0, i64::MAX as u64) };
        assert_eq!(list.in_the_way(2, &flock), None);
        list.set(1, &LockSpec { owner: 1, mode: NONE, ..flock });
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn only_flock_converts_by_letting_go() {
        let mut list = LockList::default();
        let flock = |owner, mode| LockSpec { kind: lock_kind::FLOCK, ..lock(owner, mode, 0, 99) };
        list.set(1, &flock(1, SHARED));
        list.set(1, &lock(1, SHARED, 0, 99));
        assert!(list.is_conversion(1, &flock(1, EXCLUSIVE)));
        assert!(!list.is_conversion(1, &flock(1, SHARED)) && !list.is_conversion(1, &flock(1, NONE)));
        assert!(!list.is_conversion(1, &flock(2, EXCLUSIVE)) && !list.is_conversion(2, &flock(1, EXCLUSIVE)));
        assert!(!list.is_conversion(1, &lock(1, EXCLUSIVE, 0, 99)) && !list.is_owned(1, &flock(1, SHARED)));
        list.set(1, &flock(1, EXCLUSIVE));
        assert!(list.is_owned(1, &flock(1, SHARED)) && !list.is_owned(2, &flock(1, SHARED)));
    }

    #[test]
    fn any_history_of_one_owner_is_what_a_table_of_bytes_says() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut roll = move |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        for _ in 0..200 {
            let mut list = LockList::default();
            let mut table = [[NONE; 32]; 4];
            for _ in 0..30 {
                let (who, mode, a, b) = (roll(4), roll(3) as u32, roll(32), roll(32));
                let (whose, owner) = ((who / 2) as u8, who % 2);
                list.set(whose, &lock(owner, mode, a.min(b), a.max(b)));
                table[who as usize][a.min(b) as usize..=a.max(b) as usize].fill(mode);
                for (who, expected) in table.iter().enumerate() {
                    assert_eq!(modes(&list, (who / 2) as u8, who as u64 % 2), expected);
                }
            }
        }
    }

    #[test]
    fn byte_after_byte_becomes_one_lock_and_a_hole_two() {
        let mut list = LockList::default();
        (0..10).for_each(|byte| list.set(1, &lock(1, EXCLUSIVE, byte, byte)));
        assert_eq!(list.len(), 1);
        list.set(1, &lock(1, NONE, 5, 5));
        assert_eq!(list.len(), 2);
        list.set(1, &lock(1, SHARED, 0, u64::MAX));
        assert_eq!(list.len(), 1);
        assert!(list.remove(|_, lock| lock.handle == 1) && list.is_empty());
    }
}
