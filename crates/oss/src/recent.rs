//! What was done to files lately, until it is over by itself: nobody says when.
//!
//! Invariant: of each file, and of files, there are no more than twice as many as the last look through them left, or than a few: what
//! one costs does not grow with how many there have been.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use forebay_proto::Fid;

use crate::limits;

/// Of one file.
struct List<T> {
    all: Vec<T>,
    /// How many the last look left.
    left: usize,
}

/// Of all files, in the order in which they were added.
pub struct Recent<T> {
    of: RefCell<BTreeMap<Fid, List<T>>>,
    /// How many files the last look through all left.
    left: Cell<usize>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { of: RefCell::default(), left: Cell::default() }
    }
}

impl<T> Recent<T> {
    /// Adds one; those of which `is_over` is true may be forgotten.
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

    /// What `look` makes of those of `fid`, among them some that are over.
    pub fn of<R>(&self, fid: Fid, look: impl FnOnce(&[T]) -> R) -> R {
        look(self.of.borrow().get(&fid).map_or(&[], |list| &list.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_over_are_forgotten_and_no_others() {
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
