//! Changes that were answered and are not applied yet: commit level `memory`.
//!
//! They leave in any order: one that fails goes before its turn.
//!
//! Invariant: whoever looks at what they change waits until they are applied, and so does who asks for a commit.

use std::{cell::RefCell, collections::BTreeSet};

use forebay_proto::{Fid, Transno};

/// All of them, by file.
#[derive(Default)]
pub struct Held {
    changes: RefCell<BTreeSet<(Fid, Transno)>>,
}

impl Held {
    /// A change of `fid` was answered.
    pub fn answered(&self, fid: Fid, transno: Transno) {
        self.changes.borrow_mut().insert((fid, transno));
    }

    /// It was applied, or never will be.
    pub fn gone(&self, fid: Fid, transno: Transno) {
        self.changes.borrow_mut().remove(&(fid, transno));
    }

    /// Up to which place in line somebody has to wait who looks at `fid`, or, if none, at anything.
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
