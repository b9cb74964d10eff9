//! Recent changes of files, kept until they are over. No event reports that; a caller's predicate decides it.
//!
//! Invariant: an entry costs constant time on average. Entries that are over are removed only when a file's list, or
//! the list of files, exceeds both a small bound and twice the length that its last purge left.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use forebay_proto::Fid;

use crate::limits;

/// The entries of one file.
struct List<T> {
    all: Vec<T>,
    /// How many entries the last purge left.
    left: usize,
}

/// The entries of all files, each file's in the order in which they were added.
pub struct Recent<T> {
    of: RefCell<BTreeMap<Fid, List<T>>>,
    /// How many files the last purge left.
    left: Cell<usize>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { of: RefCell::default(), left: Cell::default() }
    }
}

impl<T> Recent<T> {
    /// Adds an entry; entries for which `is_over` is true may be removed.
    pub fn add(&self, fid: Fid, one: T, is_over: impl Fn(&T) -> bool) {
        let mut of = self.of.borrow_mut();
        if of.len() > limits::RECENT_FILES.max(2 * self.left.get()) {
            of.retain(|_, list| {
                list.all.retain(|one| !is_over(one));
                !list.all.is_empty()
            });
            self.left.set(of.len());
        }
        let list = of.entry(fid).or_insert_with(|| List { all: Vec::new(), left: 0 });
        if list.all.len() > limits::RECENT_OF_FILE.max(2 * list.left) {
            list.all.retain(|one| !is_over(one));
            list.left = list.all.len();
        }
        list.all.push(one);
    }

    /// Passes the entries of `fid` to `look`, possibly including some that are over.
    pub fn of<R>(&self, fid: Fid, look: impl FnOnce(&[T]) -> R) -> R {
        look(self.of.borrow().get(&fid).map_or(&[], |list| &list.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_recent_changes_are_forgotten_and_unfinished_ones_stay() {
        let (recent, one) = (Recent::default(), Fid { high: 0, low: 5 });
        for n in 0..10 * limits::RECENT_FILES as u64 {
            let is_over = |added: &u64| added + 5 < n;
            recent.add(one, n, is_over);
            recent.add(Fid { high: 1, low: n }, n, is_over);
        }
        let last = 10 * limits::RECENT_FILES as u64 - 1;
        let (count, is_kept) = recent.of(one, |all| (all.len(), (last - 5..=last).all(|n| all.contains(&n))));
        assert!(count <= limits::RECENT_OF_FILE + 1 && is_kept);
        assert!(recent.of.borrow().len() <= limits::RECENT_FILES + 1);
    }
}
