//! The table itself: finding, putting and deleting rows.

use bytes::Bytes;

use super::branch::Branch;
use super::checkpoint::Checkpoint;
use super::codec;
use super::frames::{Body, Frames, flag};
use super::limits::{KEY_BYTES_MAX, LEAF_BYTES};
use super::page::{MissingPage, PageId};
use super::places::Places;
use super::rows::Rows;

/// An ordered table of keys and values. See the module's description.
pub struct Table {
    pub(super) root: Branch,
    pub(super) frames: Frames,
    /// Pages with [`flag::CHANGED`], in the order they got it; may name some that have lost it, or some twice.
    pub(super) changed: Vec<PageId>,
    pub(super) checkpoint: Option<Checkpoint>,
    /// Locations that the last durable checkpoint names and the running one no longer does.
    pub(super) superseded: Places,
    /// Locations that only the checkpoint after the running one will no longer name.
    pub(super) leaving: Places,
    /// Inner pages of a loaded table that are yet to be installed.
    pub(super) inners_out: usize,
    pub(super) clock_hand: u32,
}

/// Where a key's leaf is: positions in the root and in the inner page, and the pages there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) root_position: usize,
    pub(super) inner: PageId,
    pub(super) inner_position: usize,
    pub(super) leaf: PageId,
}

impl Table {
    /// A table without rows, all of it new to the device.
    pub fn empty() -> Self {
        let mut frames = Frames::new();
        let leaf = frames.allocate(Body::Leaf(Rows::default()));
        let inner = frames.allocate(Body::Inner(Branch::new(leaf)));
        frames.set_parent(leaf, inner);
        let mut table = Self::with_root(Branch::new(inner), frames, 0);
        table.mark_changed(leaf);
        table
    }

    pub(super) fn with_root(root: Branch, frames: Frames, inners_out: usize) -> Self {
        Self {
            root,
            frames,
            changed: Vec::new(),
            checkpoint: None,
            superseded: Places::default(),
            leaving: Places::default(),
            inners_out,
            clock_hand: 0,
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, MissingPage> {
        let path = self.descend(key)?;
        Ok(self.frames.leaf(path.leaf)?.get(key))
    }

    /// Sets the value of `key`; returns the value it had. Keys and values are bounded by [`limits`](super::limits).
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Bytes>, MissingPage> {
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes; at most {KEY_BYTES_MAX} are allowed", key.len());
        let path = self.descend_to_change(key)?;
        self.before_leaf_change(path.leaf);
        let (index, old, large) = self.frames.change_leaf(path.leaf, |rows| {
            let (index, old) = rows.put(key, value);
            (index, old, codec::page_bytes(rows) > LEAF_BYTES && rows.len() > 1)
        });
        if large {
            self.split_leaf(&path, index);
        }
        Ok(old)
    }

    /// Removes `key`; returns the value it had.
    pub fn delete(&mut self, key: &[u8]) -> Result<Option<Bytes>, MissingPage> {
        let path = self.descend_to_change(key)?;
        let rows = self.frames.leaf(path.leaf)?;
        let Ok(index) = rows.locate(key) else { return Ok(None) };
        let old = Bytes::copy_from_slice(rows.value(index));
        self.before_leaf_change(path.leaf);
        self.frames.change_leaf(path.leaf, |rows| rows.remove(index));
        self.after_delete(&path);
        Ok(Some(old))
    }

    /// Memory of the leaves that are in memory, in bytes.
    pub fn resident_bytes(&self) -> usize {
        self.frames.leaf_bytes()
    }

    /// Memory that only a checkpoint makes evictable: changed leaves, and bytes of the running checkpoint.
    pub fn dirty_bytes(&self) -> usize {
        self.frames.dirty_bytes() + self.checkpoint.as_ref().map_or(0, Checkpoint::saved_bytes)
    }

    /// Memory that always stays: root, inner pages and the list of pages, in bytes. Counts them anew at each call.
    pub fn fixed_bytes(&self) -> usize {
        self.root.memory_bytes() + self.frames.fixed_bytes()
    }

    pub(super) fn descend(&self, key: &[u8]) -> Result<Path, MissingPage> {
        let root_position = self.root.find(key);
        let inner = self.root.child(root_position);
        let branch = self.frames.inner(inner)?;
        let inner_position = branch.find(key);
        Ok(Path { root_position, inner, inner_position, leaf: branch.child(inner_position) })
    }

    /// The path to a key's leaf, which is resident: from here on the change cannot fail.
    fn descend_to_change(&self, key: &[u8]) -> Result<Path, MissingPage> {
        assert_eq!(self.inners_out, 0, "all inner pages are installed before the first change");
        let path = self.descend(key)?;
        self.frames.leaf(path.leaf)?;
        Ok(path)
    }

    /// Notes that a page differs from its bytes on the device. If it is a leaf, its inner page will differ, too.
    pub(super) fn mark_changed(&mut self, id: PageId) {
        let frame = self.frames.frame(id);
        if frame.flags & flag::CHANGED != 0 {
            return;
        }
        let (flags, parent) = (frame.flags, frame.parent);
        self.frames.set_flags(id, flags | flag::CHANGED);
        self.changed.push(id);
        if parent != PageId::ROOT {
            self.mark_changed(parent);
        }
    }
}
