//! Pages by number: what of each is in memory, where its bytes are, and what work is pending.
//!
//! Invariant: `leaf_bytes` and `dirty_bytes` are the memory of resident leaves, and of those with any flag set.
//! Invariant: a leaf leaves memory only without flags, and then has a location.

use std::cell::Cell;

use super::branch::Branch;
use super::limits::PAGES_MAX;
use super::page::{MissingPage, PageId, PageLocation};
use super::rows::Rows;

/// Flags of a page.
pub(super) mod flag {
    /// Differs from its bytes on the device; part of the next checkpoint.
    pub const CHANGED: u8 = 1;
    /// Part of the running checkpoint; its bytes are not yet taken.
    pub const PENDING: u8 = 2;
    /// Part of the running checkpoint; its bytes are taken but not yet written.
    pub const FLYING: u8 = 4;
}

/// What a page number stands for.
#[derive(Default)]
pub(super) enum Body {
    /// Nothing: the number is free.
    #[default]
    Free,
    /// The root, kept in the table itself.
    Root,
    /// A page that the table has dropped, but that the running checkpoint still lists.
    Retired,
    /// A leaf not in memory.
    LeafOut,
    /// An inner page not yet loaded.
    InnerOut,
    Leaf(Rows),
    Inner(Branch),
}

#[derive(Default)]
pub(super) struct Frame {
    pub(super) location: Option<PageLocation>,
    pub(super) body: Body,
    /// The inner page that lists this leaf.
    pub(super) parent: PageId,
    pub(super) flags: u8,
    /// Used since the clock's hand last passed.
    pub(super) referenced: Cell<bool>,
}

impl Default for PageId {
    fn default() -> Self {
        PageId::ROOT
    }
}

/// All pages of a table.
pub(super) struct Frames {
    frames: Vec<Frame>,
    free: Vec<PageId>,
    leaf_bytes: usize,
    dirty_bytes: usize,
}

impl Frames {
    pub(super) fn new() -> Self {
        let root = Frame { body: Body::Root, ..Frame::default() };
        Self { frames: vec![root], free: Vec::new(), leaf_bytes: 0, dirty_bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn leaf_bytes(&self) -> usize {
        self.leaf_bytes
    }

    pub(super) fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    /// Memory of everything that is never evicted.
    pub(super) fn fixed_bytes(&self) -> usize {
        let inners = self.frames.iter().map(|frame| match &frame.body {
            Body::Inner(branch) => branch.memory_bytes(),
            _ => 0,
        });
        inners.sum::<usize>() + self.frames.capacity() * size_of::<Frame>()
    }

    /// A page number for a new leaf or inner page.
    pub(super) fn allocate(&mut self, body: Body) -> PageId {
        let id = self.free.pop().unwrap_or_else(|| {
            assert!(
                self.frames.len() < PAGES_MAX,
                "the table has {PAGES_MAX} pages: this store needs a larger page size"
            );
            self.frames.push(Frame::default());
            PageId(self.frames.len() as u32 - 1)
        });
        let frame = &mut self.frames[id.index()];
        debug_assert!(matches!(frame.body, Body::Free) && frame.flags == 0 && frame.location.is_none());
        if let Body::Leaf(rows) = &body {
            self.leaf_bytes += rows.memory_bytes();
        }
        frame.body = body;
        id
    }

    /// Gives a free number of a loaded table to a page that is not in memory. False when the number is taken.
    pub(super) fn claim(&mut self, id: PageId, body: Body, location: PageLocation, parent: PageId) -> bool {
        if id.index() >= self.frames.len() {
            self.frames.resize_with(id.index() + 1, Frame::default);
        }
        let frame = &mut self.frames[id.index()];
        let free = matches!(frame.body, Body::Free);
        if free {
            (frame.body, frame.location, frame.parent) = (body, Some(location), parent);
        }
        free
    }

    /// Collects the unused numbers, once all pages of a loaded table are claimed.
    pub(super) fn collect_free(&mut self) {
        let free = |id: &PageId| matches!(self.frames[id.index()].body, Body::Free);
        self.free = (1..self.frames.len() as u32).rev().map(PageId).filter(free).collect();
    }

    /// Frees a number.
    pub(super) fn release(&mut self, id: PageId) {
        self.take_body(id);
        self.frames[id.index()] = Frame::default();
        self.free.push(id);
    }

    pub(super) fn frame(&self, id: PageId) -> &Frame {
        &self.frames[id.index()]
    }

    pub(super) fn get(&self, id: PageId) -> Option<&Frame> {
        self.frames.get(id.index())
    }

    pub(super) fn flags(&self, id: PageId) -> u8 {
        self.frame(id).flags
    }

    pub(super) fn set_flags(&mut self, id: PageId, flags: u8) {
        let frame = &mut self.frames[id.index()];
        if let Body::Leaf(rows) = &frame.body {
            let bytes = rows.memory_bytes();
            self.dirty_bytes += if flags != 0 { bytes } else { 0 };
            self.dirty_bytes -= if frame.flags != 0 { bytes } else { 0 };
        }
        frame.flags = flags;
    }

    pub(super) fn set_parent(&mut self, id: PageId, parent: PageId) {
        self.frames[id.index()].parent = parent;
    }

    /// Sets where the page's bytes are; returns where they were.
    pub(super) fn set_location(&mut self, id: PageId, location: PageLocation) -> Option<PageLocation> {
        self.frames[id.index()].location.replace(location)
    }

    /// The rows of a leaf that is in memory.
    pub(super) fn leaf(&self, id: PageId) -> Result<&Rows, MissingPage> {
        let frame = self.frame(id);
        match &frame.body {
            Body::Leaf(rows) => {
                if !frame.referenced.get() {
                    frame.referenced.set(true);
                }
                Ok(rows)
            }
            Body::LeafOut => Err(self.missing(id)),
            _ => panic!("page {} is listed as a leaf", id.0),
        }
    }

    /// The children of an inner page.
    pub(super) fn inner(&self, id: PageId) -> Result<&Branch, MissingPage> {
        match &self.frame(id).body {
            Body::Inner(branch) => Ok(branch),
            Body::InnerOut => Err(self.missing(id)),
            _ => panic!("page {} is listed as an inner page", id.0),
        }
    }

    pub(super) fn inner_mut(&mut self, id: PageId) -> &mut Branch {
        match &mut self.frames[id.index()].body {
            Body::Inner(branch) => branch,
            _ => panic!("page {} is listed as a loaded inner page", id.0),
        }
    }

    /// Changes the rows of a resident leaf and keeps account of their memory.
    pub(super) fn change_leaf<R>(&mut self, id: PageId, change: impl FnOnce(&mut Rows) -> R) -> R {
        let frame = &mut self.frames[id.index()];
        let Body::Leaf(rows) = &mut frame.body else { panic!("page {} is listed as a leaf", id.0) };
        let before = rows.memory_bytes();
        let result = change(rows);
        let after = rows.memory_bytes();
        self.leaf_bytes = self.leaf_bytes + after - before;
        if frame.flags != 0 {
            self.dirty_bytes = self.dirty_bytes + after - before;
        }
        result
    }

    /// Replaces what is in memory of a page.
    pub(super) fn set_body(&mut self, id: PageId, body: Body) -> Body {
        let old = self.take_body(id);
        let frame = &mut self.frames[id.index()];
        if let Body::Leaf(rows) = &body {
            self.leaf_bytes += rows.memory_bytes();
            self.dirty_bytes += if frame.flags != 0 { rows.memory_bytes() } else { 0 };
        }
        frame.body = body;
        old
    }

    fn take_body(&mut self, id: PageId) -> Body {
        let frame = &mut self.frames[id.index()];
        let body = std::mem::take(&mut frame.body);
        if let Body::Leaf(rows) = &body {
            self.leaf_bytes -= rows.memory_bytes();
            self.dirty_bytes -= if frame.flags != 0 { rows.memory_bytes() } else { 0 };
        }
        body
    }

    fn missing(&self, id: PageId) -> MissingPage {
        let location = self.frame(id).location.expect("a page not in memory has a location");
        MissingPage { page: id, location }
    }
}
