//! Bytes that one client pins for this target: those of its changes that are applied and not committed.
//!
//! This is the target's view. The client pins a request from before it sends it until it learns of the commit, and pins
//! a little more than its bytes.

use std::cell::RefCell;

use forebay_store::{CommitPoint, Store};

/// Bytes by commit group; only a few groups exist at any time.
#[derive(Default)]
pub struct Pinned {
    groups: RefCell<Vec<(CommitPoint, u64)>>,
}

impl Pinned {
    /// Notes that a change with `bytes` was applied.
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

    /// Bytes of changes that are not committed yet.
    pub fn bytes(&self, store: &Store) -> u64 {
        self.groups.borrow().iter().filter(|(point, _)| !store.is_committed(*point)).map(|(_, bytes)| bytes).sum()
    }
}
