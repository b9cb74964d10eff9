//! What one client keeps in memory for us: the bytes of its changes that were applied and are not committed.
//!
//! As the target sees it: the client keeps a request from before it is sent until it hears of the commit, and a little more
//! than its bytes.

use std::cell::RefCell;

use forebay_store::{CommitPoint, Store};

/// Bytes by the group they are committed with; a few groups at any time.
#[derive(Default)]
pub struct Pinned {
    groups: RefCell<Vec<(CommitPoint, u64)>>,
}

impl Pinned {
    /// A change that came with `bytes` was applied.
    pub fn note(&self, store: &Store, point: CommitPoint, bytes: u64) {
        let mut groups = self.groups.borrow_mut();
        match groups.last_mut() {
            Some((last, sum)) if *last == point => *sum += bytes,
            _ => {
                groups.retain(|(point, _)| !store.is_committed(*point));
                groups.push((point, bytes));
            }
        }
    }

    /// Bytes of what is not committed now.
    pub fn bytes(&self, store: &Store) -> u64 {
        self.groups.borrow().iter().filter(|(point, _)| !store.is_committed(*point)).map(|(_, bytes)| bytes).sum()
    }
}
