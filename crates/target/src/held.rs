//! Changes that were acknowledged and are not applied yet: commit level `memory`.
//!
//! They are removed in any order: a change that fails is removed before its turn.
//!
//! Invariant: a request that reads what such a change modifies waits until the change is applied. So does a request for
//! a commit.

use std::{cell::RefCell, collections::BTreeSet};

use forebay_proto::{Fid, Transno};

/// All such changes, by file.
#[derive(Default)]
pub struct Held {
    changes: RefCell<BTreeSet<(Fid, Transno)>>,
}

impl Held {
    /// A change of `fid` was acknowledged.
    pub fn answered(&self, fid: Fid, transno: Transno) {
        self.changes.borrow_mut().insert((fid, transno));
    }

    /// The change was applied, or failed.
    pub fn gone(&self, fid: Fid, transno: Transno) {
        self.changes.borrow_mut().remove(&(fid, transno));
    }

    /// The transno up to which a reader of `fid` has to wait for the apply queue; without a `fid`, a reader of
    /// anything.
    pub fn last(&self, fid: Option<Fid>) -> Option<Transno> {
        let changes = self.changes.borrow();
        match fid {
            Some(fid) => changes.range((fid, Transno(0))..=(fid, Transno(u64::MAX))).next_back().map(|(_, last)| *last),
            None => changes.iter().map(|(_, transno)| *transno).max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_a_file_that_is_there_is_the_one_to_wait_for() {
        let fid = |low| Fid { high: 0, low };
        let held = Held::default();
        assert_eq!((held.last(Some(fid(1))), held.last(None)), (None, None));
        for (of, transno) in [(1, 5), (2, 6), (1, 7)] {
            held.answered(fid(of), Transno(transno));
        }
        assert_eq!((held.last(Some(fid(1))), held.last(Some(fid(2)))), (Some(Transno(7)), Some(Transno(6))));
        assert_eq!(held.last(None), Some(Transno(7)));
        held.gone(fid(1), Transno(7));
        assert_eq!((held.last(Some(fid(1))), held.last(None)), (Some(Transno(5)), Some(Transno(6))), "it failed first");
        held.gone(fid(1), Transno(5));
        held.gone(fid(2), Transno(6));
        assert_eq!((held.last(Some(fid(1))), held.last(None)), (None, None));
    }
}
