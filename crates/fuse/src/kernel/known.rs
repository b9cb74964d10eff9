//! The inodes that the kernel has, or is about to take up. Each reply that names an inode counts until the kernel
//! forgets it.
//!
//! An entry is a number and a count; the kernel itself uses a kilobyte per inode.

use std::{cell::RefCell, collections::BTreeMap};

use fuser::INodeNo;

/// How many replies named each inode that the kernel has not forgotten.
#[derive(Default)]
pub(crate) struct Known(RefCell<BTreeMap<u64, u64>>);

impl Known {
    /// A reply named the inode, and the kernel took the reply.
    pub fn told(&self, ino: u64) {
        *self.0.borrow_mut().entry(ino).or_insert(0) += 1;
    }

    /// The kernel forgets this many of the replies that named the inode.
    pub fn forgotten(&self, ino: u64, answers: u64) {
        let mut known = self.0.borrow_mut();
        let Some(left) = known.get_mut(&ino) else { return };
        *left = left.saturating_sub(answers);
        if *left == 0 {
            known.remove(&ino);
        }
    }

    /// Whether the kernel may have the inode. It always has the root, which no reply names.
    pub fn has(&self, ino: u64) -> bool {
        ino == INodeNo::ROOT.0 || self.0.borrow().contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_known_until_the_kernel_forgets_as_many_lookups_as_it_was_told() {
        let known = Known::default();
        known.told(7);
        known.told(7);
        known.forgotten(7, 1);
        assert!(known.has(7) && !known.has(8) && known.has(1));
        known.forgotten(7, 1);
        known.forgotten(7, 1);
        assert!(!known.has(7));
    }
}
