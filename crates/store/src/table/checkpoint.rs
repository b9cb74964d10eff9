//! Exact snapshots of the table, taken while it changes.
//!
//! [`Table::begin_checkpoint`] only notes which pages belong to the snapshot. Their bytes are handed out page by page:
//! leaves, then inner pages (which name where the leaves were written), then the root. A page that is about to change
//! before its turn is copied first: a leaf as its bytes, an inner page as its list of children.
//!
//! Invariant: while a checkpoint runs, a page it lists keeps its number and its location, even when the table drops it.
//! Invariant: a superseded location stays live until a checkpoint that does not name it is durable.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::branch::Branch;
use super::codec::{PageKind, encode_branch, encode_leaf};
use super::frames::{Body, flag};
use super::page::{PageId, PageLocation};
use super::tree::Table;

/// A running checkpoint.
pub(super) struct Checkpoint {
    root: Branch,
    leaves: Queue,
    inners: Queue,
    /// Bytes of leaves that changed before their turn.
    saved_leaves: VecDeque<(PageId, Bytes)>,
    /// Inner pages whose children changed before their turn.
    saved_inners: BTreeMap<PageId, Branch>,
    /// Memory of both.
    saved_bytes: usize,
    /// Pages handed out and not yet written.
    in_flight: usize,
    root_handed_out: bool,
    /// Pages the table dropped since the checkpoint began.
    pub(super) retired: Vec<PageId>,
}

/// Pages of a checkpoint and how far they have been handed out.
struct Queue {
    pages: Vec<PageId>,
    next: usize,
}

impl Queue {
    fn new(pages: Vec<PageId>) -> Self {
        Self { pages, next: 0 }
    }

    fn take(&mut self) -> Option<PageId> {
        let id = self.pages.get(self.next).copied();
        self.next += id.is_some() as usize;
        id
    }
}

impl Checkpoint {
    pub(super) fn saved_bytes(&self) -> usize {
        self.saved_bytes
    }
}

impl Table {
    /// Begins a checkpoint of the table as it is now. Returns the number of pages it will hand out.
    pub fn begin_checkpoint(&mut self) -> usize {
        assert!(self.checkpoint.is_none(), "one checkpoint at a time");
        assert_eq!(self.inners_out, 0, "all inner pages are installed before the first checkpoint");
        self.superseded.append(&mut self.leaving);
        let (mut leaves, mut inners) = (Vec::new(), Vec::new());
        for id in std::mem::take(&mut self.changed) {
            let frame = self.frames.frame(id);
            if frame.flags & flag::CHANGED == 0 {
                continue;
            }
            match frame.body {
                Body::Leaf(_) => leaves.push(id),
                Body::Inner(_) => inners.push(id),
                _ => panic!("page {} changed and is not in memory", id.0),
            }
            self.frames.set_flags(id, flag::PENDING);
        }
        let pages = leaves.len() + inners.len() + 1;
        self.checkpoint = Some(Checkpoint {
            root: self.root.clone(),
            leaves: Queue::new(leaves),
            inners: Queue::new(inners),
            saved_leaves: VecDeque::new(),
            saved_inners: BTreeMap::new(),
            saved_bytes: 0,
            in_flight: 0,
            root_handed_out: false,
            retired: Vec::new(),
        });
        pages
    }

    /// The next page to write. `None`: first write what was handed out ([`Table::page_written`]); when nothing is
    /// outstanding, the checkpoint is complete. The last page is [`PageId::ROOT`].
    pub fn next_page(&mut self) -> Option<(PageId, Bytes)> {
        let mut checkpoint = self.checkpoint.take()?;
        let next = self.next_page_of(&mut checkpoint);
        checkpoint.in_flight += next.is_some() as usize;
        self.checkpoint = Some(checkpoint);
        next
    }

    fn next_page_of(&mut self, checkpoint: &mut Checkpoint) -> Option<(PageId, Bytes)> {
        if let Some((id, bytes)) = checkpoint.saved_leaves.pop_front() {
            checkpoint.saved_bytes -= bytes.len();
            return Some((id, bytes));
        }
        while let Some(id) = checkpoint.leaves.take() {
            if let Some(bytes) = self.take_leaf_bytes(id) {
                return Some((id, bytes));
            }
        }
        if checkpoint.in_flight > 0 {
            return None;
        }
        if let Some(id) = checkpoint.inners.take() {
            return Some((id, self.take_inner_bytes(id, checkpoint)));
        }
        if checkpoint.root_handed_out {
            return None;
        }
        checkpoint.root_handed_out = true;
        self.frames.set_flags(PageId::ROOT, flag::FLYING);
        Some((PageId::ROOT, encode_branch(PageKind::Root, PageId::ROOT, &checkpoint.root, &self.frames)))
    }

    /// The bytes of a leaf of the checkpoint, unless they were taken before.
    fn take_leaf_bytes(&mut self, id: PageId) -> Option<Bytes> {
        let frame = self.frames.frame(id);
        let Body::Leaf(rows) = &frame.body else { return None };
        if frame.flags & flag::PENDING == 0 {
            return None;
        }
        let bytes = encode_leaf(id, rows);
        let flags = frame.flags & !flag::PENDING | flag::FLYING;
        self.frames.set_flags(id, flags);
        Some(bytes)
    }

    fn take_inner_bytes(&mut self, id: PageId, checkpoint: &mut Checkpoint) -> Bytes {
        let saved = checkpoint.saved_inners.remove(&id);
        checkpoint.saved_bytes -= saved.as_ref().map_or(0, Branch::memory_bytes);
        let now = || self.frames.inner(id).expect("inner pages are in memory");
        let bytes = encode_branch(PageKind::Inner, id, saved.as_ref().unwrap_or_else(now), &self.frames);
        let flags = self.frames.flags(id) & !flag::PENDING | flag::FLYING;
        self.frames.set_flags(id, flags);
        bytes
    }

    /// A page of the checkpoint has been written to `location`, and can be read there.
    pub fn page_written(&mut self, id: PageId, location: PageLocation) {
        let checkpoint = self.checkpoint.as_mut().expect("a page is written for a checkpoint that runs");
        let flags = self.frames.flags(id);
        assert!(checkpoint.in_flight > 0 && flags & flag::FLYING != 0, "page {} was not handed out", id.0);
        checkpoint.in_flight -= 1;
        self.frames.set_flags(id, flags & !flag::FLYING);
        self.superseded.extend(self.frames.set_location(id, location));
    }

    /// The checkpoint is durable: recovery starts from its root. Returns the locations that are free now.
    pub fn finish_checkpoint(&mut self) -> Vec<PageLocation> {
        let checkpoint = self.checkpoint.take().expect("a checkpoint runs");
        assert!(checkpoint.root_handed_out && checkpoint.in_flight == 0, "the checkpoint's root is written");
        self.release_retired(checkpoint.retired);
        self.superseded.take()
    }

    /// Abandons the checkpoint. Pages not written go into the next one; those written stay where they are.
    ///
    /// Locations of pages that were handed out, but not reported as written, are the caller's to free.
    pub fn abandon_checkpoint(&mut self) {
        let Some(checkpoint) = self.checkpoint.take() else {
            return;
        };
        self.frames.set_flags(PageId::ROOT, 0);
        for id in checkpoint.leaves.pages.into_iter().chain(checkpoint.inners.pages) {
            let flags = self.frames.flags(id);
            if flags & (flag::PENDING | flag::FLYING) == 0 {
                continue;
            }
            self.frames.set_flags(id, flags & flag::CHANGED);
            if !matches!(self.frames.frame(id).body, Body::Retired) {
                self.mark_changed(id);
            }
        }
        self.release_retired(checkpoint.retired);
    }

    fn release_retired(&mut self, retired: Vec<PageId>) {
        for id in retired {
            self.leaving.extend(self.frames.frame(id).location);
            self.frames.set_flags(id, 0);
            self.frames.release(id);
        }
    }

    /// Must be called before the rows of a leaf change.
    pub(super) fn before_leaf_change(&mut self, id: PageId) {
        if self.frames.flags(id) & flag::PENDING != 0
            && let Some(bytes) = self.take_leaf_bytes(id)
        {
            let checkpoint = self.checkpoint.as_mut().expect("pending pages belong to a checkpoint that runs");
            checkpoint.saved_bytes += bytes.len();
            checkpoint.saved_leaves.push_back((id, bytes));
        }
        self.mark_changed(id);
    }

    /// Must be called before the children of an inner page change.
    pub(super) fn before_inner_change(&mut self, id: PageId) {
        let flags = self.frames.flags(id);
        if flags & flag::PENDING != 0 {
            let checkpoint = self.checkpoint.as_mut().expect("pending pages belong to a checkpoint that runs");
            let branch = self.frames.inner(id).expect("inner pages are in memory").clone();
            checkpoint.saved_bytes += branch.memory_bytes();
            checkpoint.saved_inners.insert(id, branch);
            self.frames.set_flags(id, flags & !flag::PENDING | flag::FLYING);
        }
        self.mark_changed(id);
    }
}
