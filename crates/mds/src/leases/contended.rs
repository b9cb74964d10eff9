//! Contended inodes: several clients use them at the moment, so nobody gets a lease on them; it would only be recalled.
//!
//! Invariant: expired entries are purged only when there are twice as many as the last purge left, so the cost per
//! inode is constant.

use std::collections::BTreeMap;

use forebay_env::Time;
use forebay_proto::Fid;

use crate::limits;

/// Until when each inode is contended.
#[derive(Default)]
pub struct Contended {
    until: BTreeMap<Fid, Time>,
    /// Number of entries that the last purge left.
    left: usize,
}

impl Contended {
    /// True if `fid` is contended at `now`.
    pub fn is(&self, fid: Fid, now: Time) -> bool {
        self.until.get(&fid).is_some_and(|until| *until > now)
    }

    /// Marks `fid` as contended until then. True if expired entries were purged.
    pub fn insert(&mut self, fid: Fid, until: Time, now: Time) -> bool {
        self.until.insert(fid, until);
        let looks = self.until.len() > limits::CONTENDED_INODES.max(2 * self.left);
        if looks {
            self.until.retain(|_, until| *until > now);
            self.left = self.until.len();
        }
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(low: u64) -> Fid {
        Fid { high: 0, low }
    }

    fn at(ms: u64) -> Time {
        Time(0) + limits::SHOWN * u32::try_from(ms).unwrap()
    }

    #[test]
    fn many_are_looked_through_seldom() {
        let mut contended = Contended::default();
        let looks = (0..100_000).filter(|low| contended.insert(fid(*low), at(2), at(1))).count();
        assert_eq!(looks, 4, "beyond 10,000, 20,000, 40,000 and 80,000");
        assert!((0..100_000).all(|low| contended.is(fid(low), at(1))), "all of them still are");
    }

    #[test]
    fn contended_inodes_are_forgotten_after_their_time() {
        let mut contended = Contended::default();
        for low in 0..100_000 {
            contended.insert(fid(low), at(1), at(0));
        }
        assert!(contended.is(fid(7), at(0)) && !contended.is(fid(7), at(1)), "it ends by time, forgotten or not");
        let before = contended.until.len();
        let later = (100_000..200_000).take_while(|low| !contended.insert(fid(*low), at(2), at(1))).count();
        assert!(later <= before, "{later} more before a look, after {before}");
        assert_eq!(contended.until.len(), later + 1, "those that ended are gone");
        assert!((200_000..400_000).filter(|low| contended.insert(fid(*low), at(2), at(1))).count() < 6);
    }
}
