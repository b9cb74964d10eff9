//! Files of which it is certain that nothing was ever written to them, though they were open for writing: whoever made them closed
//! them again without a write, nobody else opened them for writing, and no OST was told of them. They have no objects to destroy.
//!
//! Only a gain, and only in memory: after a restart, and of files that are too many to be kept, nothing is certain, and their objects are
//! destroyed whether there are any or not. Nothing else may hang on it: what the first execution of a request found here, a
//! replay does not find.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_proto::{Fid, SessionId};

use crate::limits;

/// See the module.
#[derive(Default)]
pub struct Empties {
    /// By which handle they were made, while that is open and no other may write.
    made: BTreeMap<Fid, (SessionId, u64)>,
    empty: BTreeSet<Fid>,
    /// The order in which they came.
    order: VecDeque<Fid>,
}

impl Empties {
    /// True if the file certainly has no objects.
    pub fn has(&self, fid: Fid) -> bool {
        self.empty.contains(&fid)
    }

    /// `handle` of `session`, which may write, has made the file.
    pub fn made(&mut self, fid: Fid, session: SessionId, handle: u64) {
        self.made.insert(fid, (session, handle));
    }

    /// Somebody else may write to the file, or its OSTs are told of it.
    pub fn has_objects(&mut self, fid: Fid) {
        self.made.remove(&fid);
        self.empty.remove(&fid);
    }

    /// A handle was closed; `wrote`: something was, or may have been, written through it.
    pub fn closed(&mut self, fid: Fid, session: SessionId, handle: u64, wrote: bool) {
        if self.made.get(&fid) != Some(&(session, handle)) {
            return;
        }
        self.made.remove(&fid);
        if wrote {
            return;
        }
        self.empty.insert(fid);
        self.order.push_back(fid);
        if self.order.len() > limits::EMPTIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.empty.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: SessionId = SessionId(1);

    fn fid(low: u64) -> Fid {
        Fid { high: 0, low }
    }

    #[test]
    fn a_file_is_empty_if_who_made_it_closes_it_without_a_write() {
        let mut empties = Empties::default();
        empties.made(fid(1), MINE, 7);
        assert!(!empties.has(fid(1)), "it is open");
        empties.closed(fid(1), MINE, 8, false);
        empties.closed(fid(1), SessionId(2), 7, false);
        assert!(!empties.has(fid(1)), "these were others'");
        empties.closed(fid(1), MINE, 7, false);
        assert!(empties.has(fid(1)));
    }

    #[test]
    fn who_wrote_or_may_have_leaves_nothing_certain() {
        let mut empties = Empties::default();
        (1..5).for_each(|low| empties.made(fid(low), MINE, low));
        empties.closed(fid(1), MINE, 1, true);
        empties.has_objects(fid(2));
        empties.closed(fid(2), MINE, 2, false);
        empties.closed(fid(3), MINE, 3, false);
        empties.has_objects(fid(3));
        empties.closed(fid(3), SessionId(2), 9, false);
        assert!((1..5).all(|low| !empties.has(fid(low))));
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let mut empties = Empties::default();
        let all = limits::EMPTIES as u64 + 3;
        for low in 0..all {
            empties.made(fid(low), MINE, low);
            empties.closed(fid(low), MINE, low, false);
        }
        assert!(!empties.has(fid(2)) && empties.has(fid(3)) && empties.has(fid(all - 1)));
        assert_eq!(
            (empties.made.len(), empties.empty.len(), empties.order.len()),
            (0, limits::EMPTIES, limits::EMPTIES)
        );
    }
}
