//! Changes that were answered and are not applied yet: commit level `memory`.
//!
//! Invariant: whoever looks at what they change waits until they are applied, and so does who asks for a commit.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use forebay_proto::{Fid, Transno};

/// The last of them, of each file.
#[derive(Default)]
pub struct Held {
    files: RefCell<BTreeMap<Fid, Transno>>,
    last: Cell<Transno>,
}

impl Held {
    /// A change of `fid` was answered.
    pub fn answered(&self, fid: Fid, transno: Transno) {
        self.files.borrow_mut().insert(fid, transno);
        self.last.set(transno);
    }

    /// It was applied, or never will be.
    pub fn gone(&self, fid: Fid, transno: Transno) {
        let mut files = self.files.borrow_mut();
        if files.get(&fid) == Some(&transno) {
            files.remove(&fid);
        }
    }

    /// Up to which place in line somebody has to wait who looks at `fid`, or, if none, at anything.
    pub fn last(&self, fid: Option<Fid>) -> Option<Transno> {
        let files = self.files.borrow();
        match fid {
            Some(fid) => files.get(&fid).copied(),
            None => Some(self.last.get()).filter(|_| !files.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_a_file_is_the_one_to_wait_for() {
        let fid = |low| Fid { high: 0, low };
        let held = Held::default();
        assert_eq!((held.last(Some(fid(1))), held.last(None)), (None, None));
        held.answered(fid(1), Transno(5));
        held.answered(fid(2), Transno(6));
        held.answered(fid(1), Transno(7));
        held.gone(fid(1), Transno(5));
        assert_eq!((held.last(Some(fid(1))), held.last(Some(fid(2)))), (Some(Transno(7)), Some(Transno(6))));
        held.gone(fid(1), Transno(7));
        assert_eq!((held.last(Some(fid(1))), held.last(None)), (None, Some(Transno(7))));
        held.gone(fid(2), Transno(6));
        assert_eq!(held.last(None), None);
    }
}
