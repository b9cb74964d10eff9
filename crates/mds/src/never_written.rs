//! Files that certainly have no data although they were open for writing. The session that created the file closed it
//! without a write, no other session opened it for writing, and no OST was notified of it. Such files have no objects
//! to destroy.
//!
//! This is an optimisation, and only in memory. After a restart, or beyond the bound on remembered files, no file is
//! known to be empty, and the destroys are sent whether objects exist or not. Nothing else may depend on it: a replay
//! may not find what the first execution of its request found here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_proto::{Fid, SessionId};

use crate::limits;

/// See the module.
#[derive(Default)]
pub struct NeverWritten {
    /// The handle with which each file was made, while it is open and no other handle may write.
    made: BTreeMap<Fid, (SessionId, u64)>,
    empty: BTreeSet<Fid>,
    /// The files in the order in which they were added.
    order: VecDeque<Fid>,
}

impl NeverWritten {
    /// True if the file certainly has no objects.
    pub fn has(&self, fid: Fid) -> bool {
        self.empty.contains(&fid)
    }

    /// `handle` of `session`, which may write, has created the file.
    pub fn made(&mut self, fid: Fid, session: SessionId, handle: u64) {
        self.made.insert(fid, (session, handle));
    }

    /// Another session may write to the file, or its OSTs are notified of it.
    pub fn has_objects(&mut self, fid: Fid) {
        self.made.remove(&fid);
        self.empty.remove(&fid);
    }

    /// A handle was closed. `wrote`: bytes were written, or may have been, through it.
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
    fn a_file_is_empty_if_its_creator_closes_it_without_a_write() {
        let mut empties = NeverWritten::default();
        empties.made(fid(1), MINE, 7);
        assert!(!empties.has(fid(1)), "it is open");
        empties.closed(fid(1), MINE, 8, false);
        empties.closed(fid(1), SessionId(2), 7, false);
        assert!(!empties.has(fid(1)), "these were others'");
        empties.closed(fid(1), MINE, 7, false);
        assert!(empties.has(fid(1)));
    }

    #[test]
    fn a_file_that_a_session_may_have_written_is_not_called_never_written() {
        let mut empties = NeverWritten::default();
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
    fn the_oldest_never_written_files_are_forgotten_beyond_the_bound() {
        let mut empties = NeverWritten::default();
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
