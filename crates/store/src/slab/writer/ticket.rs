//! Fragments to be written, their pieces on the device, and the callers that wait for them.
//!
//! Invariant: a piece on the device pins its slab until its owner drops it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::sync::oneshot;
use forebay_proto::{Fid, Transno, WriteId};

use super::{
    super::{Place, allocator::Allocator, run::FragmentKind},
    Class,
};
use crate::{StoreError, StoreResult};

/// A fragment on its way to the device.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// What it is.
    pub kind: FragmentKind,
    /// The object, or a page's number.
    pub fid: Fid,
    /// First byte within the object.
    pub offset: u64,
    /// Bytes of the object (tombstones: bytes that are gone).
    pub length: u64,
    /// The bytes; empty for tombstones.
    pub data: Bytes,
    /// Chosen by the writer.
    pub write_id: WriteId,
    /// Given by the target.
    pub version: Transno,
    /// Layout generation.
    pub generation: u32,
    /// Tombstones that are carried on: the epoch of the slab they were first written to. 0 = the one they are written
    /// to now.
    pub origin_epoch: u64,
    /// Sum of each block.
    pub sums: Vec<u64>,
}

/// A piece of an item that lies on the device.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// What lies there; `data` goes back to its owner.
    pub item: Item,
    /// Where it lies.
    pub place: Place,
}

/// Pieces on the device whose slabs are pinned until this is dropped.
pub(crate) struct Pieces {
    /// The pieces, in no order.
    pub list: Vec<Piece>,
    alloc: Rc<RefCell<Allocator>>,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let mut alloc = self.alloc.borrow_mut();
        self.list.iter().for_each(|piece| alloc.unpin(piece.place.slab));
    }
}

/// A caller that waits for items; collects their pieces.
pub(super) struct Ticket {
    alloc: Rc<RefCell<Allocator>>,
    remaining: Cell<usize>,
    pieces: RefCell<Vec<Piece>>,
    done: RefCell<Option<oneshot::Sender<StoreResult<Pieces>>>>,
}

/// Pieces that arrive after the caller got an error have no owner: their slabs are unpinned.
impl Drop for Ticket {
    fn drop(&mut self) {
        drop(Pieces { list: self.pieces.take(), alloc: self.alloc.clone() });
    }
}

impl Ticket {
    pub(super) fn new(
        alloc: &Rc<RefCell<Allocator>>,
        items: usize,
        done: oneshot::Sender<StoreResult<Pieces>>,
    ) -> Rc<Self> {
        let (remaining, done) = (Cell::new(items), RefCell::new(Some(done)));
        Rc::new(Self { alloc: alloc.clone(), remaining, pieces: RefCell::default(), done })
    }

    /// An item was cut into two.
    pub(super) fn one_more(&self) {
        self.remaining.set(self.remaining.get() + 1);
    }

    pub(super) fn arrived(&self, piece: Piece) {
        self.pieces.borrow_mut().push(piece);
        self.remaining.set(self.remaining.get() - 1);
        if self.remaining.get() == 0 {
            self.finish(None);
        }
    }

    /// Sends the pieces, or the error. Without a receiver the pieces are dropped, and their pins with them.
    pub(super) fn finish(&self, error: Option<StoreError>) {
        let pieces = Pieces { list: self.pieces.take(), alloc: self.alloc.clone() };
        if let Some(done) = self.done.take() {
            let _ = done.send(error.map_or(Ok(pieces), Err));
        }
    }
}

/// An item in a queue.
pub(super) struct Queued {
    pub item: Item,
    pub class: Class,
    pub ticket: Rc<Ticket>,
    pub tries: u32,
}
