//! Splitting pages that grew too large, merging those that became small, dropping empty ones.
//!
//! Before each step changes a page, the running checkpoint takes what it needs of it.

use super::codec;
use super::frames::{Body, flag};
use super::key::Key;
use super::limits::{INNER_LEAVES_MAX, INNER_MERGE_BELOW, INNER_MERGED_MAX, LEAF_MERGE_BELOW_BYTES, LEAF_MERGED_BYTES};
use super::page::PageId;
use super::tree::{Path, Table};

impl Table {
    /// Splits the leaf whose row `changed` made it too large.
    pub(super) fn split_leaf(&mut self, path: &Path, changed: usize) {
        let (separator, right) = self.frames.change_leaf(path.leaf, |rows| {
            let right = rows.split_off(rows.split_point(changed));
            (Key::between(&rows.key(rows.len() - 1), &right.key(0)), right)
        });
        let new = self.frames.allocate(Body::Leaf(right));
        self.frames.set_parent(new, path.inner);
        self.before_inner_change(path.inner);
        self.mark_changed(new);
        let inner = self.frames.inner_mut(path.inner);
        inner.insert_after(path.inner_position, &separator, new);
        if inner.len() > INNER_LEAVES_MAX {
            self.split_inner(path.root_position, path.inner_position + 1);
        }
    }

    /// Splits the inner page at `root_position`, which became too large when a child was inserted at `changed`.
    fn split_inner(&mut self, root_position: usize, changed: usize) {
        let left = self.frames.inner_mut(self.root.child(root_position));
        let (separator, right) = left.split_off(left.split_point(changed));
        let leaves: Vec<PageId> = right.children().collect();
        let new = self.frames.allocate(Body::Inner(right));
        leaves.into_iter().for_each(|leaf| self.frames.set_parent(leaf, new));
        self.mark_changed(new);
        self.root.insert_after(root_position, &separator, new);
    }

    /// Drops the leaf if its last row went, or merges it with a neighbour in memory if both have become small.
    pub(super) fn after_delete(&mut self, path: &Path) {
        let rows = self.frames.leaf(path.leaf).expect("a leaf just changed is in memory");
        if rows.is_empty() {
            return self.drop_leaf(path);
        }
        if codec::page_bytes(rows) >= LEAF_MERGE_BELOW_BYTES {
            return;
        }
        let left = if self.merges_with_next(path.inner, path.inner_position) {
            path.inner_position
        } else if path.inner_position > 0 && self.merges_with_next(path.inner, path.inner_position - 1) {
            path.inner_position - 1
        } else {
            return;
        };
        self.merge_leaves(path, left);
    }

    /// Whether the leaf at `position` and the one behind it are in memory and small enough to be one.
    fn merges_with_next(&self, inner: PageId, position: usize) -> bool {
        let branch = self.frames.inner(inner).expect("inner pages are in memory");
        let body_bytes = |position| match &self.frames.frame(branch.child(position)).body {
            Body::Leaf(rows) => Some(codec::page_bytes(rows)),
            _ => None,
        };
        if position + 1 >= branch.len() {
            return false;
        }
        match (body_bytes(position), body_bytes(position + 1)) {
            (Some(left), Some(right)) => left + right <= LEAF_MERGED_BYTES,
            _ => false,
        }
    }

    /// Makes one leaf of those at `left` and behind it.
    fn merge_leaves(&mut self, path: &Path, left: usize) {
        let branch = self.frames.inner(path.inner).expect("inner pages are in memory");
        let (into, from) = (branch.child(left), branch.child(left + 1));
        self.before_leaf_change(into);
        self.before_leaf_change(from);
        let Body::Leaf(rows) = self.frames.set_body(from, Body::LeafOut) else {
            panic!("a leaf to merge is in memory")
        };
        self.frames.change_leaf(into, |left| left.absorb(&rows));
        self.remove_leaf(path, left + 1, from);
    }

    fn drop_leaf(&mut self, path: &Path) {
        let only_leaf = self.frames.inner(path.inner).is_ok_and(|inner| inner.len() == 1);
        if !only_leaf {
            return self.remove_leaf(path, path.inner_position, path.leaf);
        }
        if self.root.len() > 1 {
            self.before_inner_change(path.inner);
            self.retire(path.leaf);
            self.root.remove(path.root_position);
            self.retire(path.inner);
        }
    }

    /// Takes a leaf, which is not the only one, out of its inner page.
    fn remove_leaf(&mut self, path: &Path, position: usize, leaf: PageId) {
        self.before_inner_change(path.inner);
        self.frames.inner_mut(path.inner).remove(position);
        self.retire(leaf);
        self.merge_small_inner(path.root_position);
    }

    fn merge_small_inner(&mut self, position: usize) {
        let leaves = |position: usize| self.frames.inner(self.root.child(position)).map_or(0, |inner| inner.len());
        if leaves(position) >= INNER_MERGE_BELOW {
            return;
        }
        let fits = |left: usize| left + 1 < self.root.len() && leaves(left) + leaves(left + 1) <= INNER_MERGED_MAX;
        let candidates = [Some(position), position.checked_sub(1)];
        if let Some(left) = candidates.into_iter().flatten().find(|&left| fits(left)) {
            self.merge_inners(left);
        }
    }

    /// Makes one inner page of those at `left` and behind it.
    fn merge_inners(&mut self, left: usize) {
        let (into, from) = (self.root.child(left), self.root.child(left + 1));
        let separator = self.root.separators().key(left);
        self.before_inner_change(into);
        self.before_inner_change(from);
        let Body::Inner(right) = self.frames.set_body(from, Body::InnerOut) else {
            panic!("an inner page to merge is in memory")
        };
        right.children().for_each(|leaf| self.frames.set_parent(leaf, into));
        self.frames.inner_mut(into).absorb(&separator, &right);
        self.root.remove(left + 1);
        self.retire(from);
    }

    /// Drops a page that is no longer listed. If a running checkpoint still lists it, its number and location stay.
    fn retire(&mut self, id: PageId) {
        let flags = self.frames.flags(id);
        self.frames.set_flags(id, flags & !flag::CHANGED);
        match &mut self.checkpoint {
            Some(checkpoint) => {
                checkpoint.retired.push(id);
                self.frames.set_body(id, Body::Retired);
            }
            None => {
                self.leaving.extend(self.frames.frame(id).location);
                self.frames.release(id);
            }
        }
    }
}
