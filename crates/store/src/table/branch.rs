//! Children of the root or of an inner page, by the keys that separate them.
//!
//! Invariant: child 0 takes every key below the first separator; child `i` those from separator `i - 1` on.

use super::limits::INNER_LEAVES_MAX;
use super::page::PageId;
use super::rows::Rows;

/// An ordered list of at least one child. Positions count from 0.
#[derive(Clone)]
pub(super) struct Branch {
    first: PageId,
    /// Separator to child id.
    rest: Rows,
}

impl Branch {
    pub(super) fn new(first: PageId) -> Self {
        Self { first, rest: Rows::default() }
    }

    pub(super) fn len(&self) -> usize {
        1 + self.rest.len()
    }

    /// The position of the child whose range holds `key`.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.rest.locate(key).map_or_else(|position| position, |index| index + 1)
    }

    pub(super) fn child(&self, position: usize) -> PageId {
        if position == 0 {
            return self.first;
        }
        let id = self.rest.value(position - 1).try_into().expect("a child's id is four bytes");
        PageId(u32::from_le_bytes(id))
    }

    pub(super) fn children(&self) -> impl Iterator<Item = PageId> {
        (0..self.len()).map(|position| self.child(position))
    }

    pub(super) fn separators(&self) -> &Rows {
        &self.rest
    }

    /// Inserts a child behind the one at `position`, for keys from `separator` on.
    pub(super) fn insert_after(&mut self, position: usize, separator: &[u8], child: PageId) {
        self.rest.insert(position, separator, &child.0.to_le_bytes());
    }

    /// Removes a child. Its neighbour below takes its keys, or the one above if there is none below.
    pub(super) fn remove(&mut self, position: usize) {
        assert!(self.len() > 1, "the last child of a page goes with the page");
        if position == 0 {
            self.first = self.child(1);
        }
        self.rest.remove(position.saturating_sub(1));
    }

    /// Where to split after a child was inserted at `position`: nearly everything stays when children come in order.
    pub(super) fn split_point(&self, position: usize) -> usize {
        let at_end = position + 1 == self.len();
        if at_end { self.len() - INNER_LEAVES_MAX / 20 } else { self.len() / 2 }
    }

    /// Splits off the children from position `at` (not 0) on. Returns the key at which they begin.
    pub(super) fn split_off(&mut self, at: usize) -> (super::Key, Self) {
        let separator = self.rest.key(at - 1);
        let first = self.child(at);
        let rest = self.rest.split_off(at);
        self.rest.remove(at - 1);
        (separator, Self { first, rest })
    }

    /// Takes over the children of the neighbour above, which began at `separator`.
    pub(super) fn absorb(&mut self, separator: &[u8], right: &Self) {
        self.insert_after(self.len() - 1, separator, right.first);
        self.rest.absorb(&right.rest);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.rest.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(branch: &Branch) -> Vec<u32> {
        branch.children().map(|id| id.0).collect()
    }

    fn branch() -> Branch {
        let mut branch = Branch::new(PageId(10));
        for (position, separator) in [b"d", b"h", b"p"].into_iter().enumerate() {
            branch.insert_after(position, separator, PageId(11 + position as u32));
        }
        branch
    }

    #[test]
    fn a_key_belongs_to_the_child_of_the_separator_at_or_below_it() {
        let found = [b"a", b"d", b"e", b"h", b"z"].map(|key| branch().child(branch().find(key)).0);
        assert_eq!(found, [10, 11, 11, 12, 13]);
    }

    #[test]
    fn the_neighbour_takes_the_keys_of_a_removed_child() {
        let mut branch = branch();
        branch.remove(0);
        assert_eq!((children(&branch), branch.find(b"a")), (vec![11, 12, 13], 0));
        branch.remove(1);
        assert_eq!((children(&branch), branch.find(b"i")), (vec![11, 13], 0));
    }

    #[test]
    fn split_and_absorb_are_inverse() {
        for at in 1..4 {
            let mut left = branch();
            let (separator, right) = left.split_off(at);
            assert_eq!((left.len(), right.len()), (at, 4 - at));
            left.absorb(&separator, &right);
            assert_eq!(children(&left), children(&branch()));
            assert_eq!(left.find(b"e"), 1);
        }
    }
}
