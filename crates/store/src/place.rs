//! Writing callers' fragments to slabs, and pinning their locations until they are in the index.

use std::{ops::Range, rc::Rc};

use forebay_proto::{
    Fid, crc,
    limits::{BLOCK_BYTES, FILE_BYTES},
};

use crate::{
    Fragment, Reservation, StoreError, StoreErrorKind, StoreResult,
    clean::piece_extent,
    core::Core,
    extent::Extent,
    limits,
    slab::{
        run::FragmentKind,
        writer::{Class, Item, Pieces},
    },
    txn::{TailError, tail_extents, tail_start},
};

/// Fragments on the device (not flushed), to be inserted into the index. Once all clones are dropped, an uninserted
/// fragment becomes garbage.
#[derive(Clone)]
pub struct Placed {
    pieces: Option<Rc<Pieces>>,
    _room: Option<Rc<Reservation>>,
}

impl Placed {
    /// No fragments.
    pub(crate) fn empty() -> Self {
        Self { pieces: None, _room: None }
    }

    /// Pieces that the cleaner moved.
    pub(crate) fn of_cleaner(pieces: Pieces) -> Self {
        Self { pieces: Some(Rc::new(pieces)), _room: None }
    }

    /// The extents, in order of object and offset.
    pub(crate) fn extents(&self) -> Vec<(Fid, Extent)> {
        let pieces = self.pieces.iter().flat_map(|pieces| &pieces.list);
        let mut extents: Vec<_> = pieces.map(|piece| (piece.item.fid, piece_extent(piece))).collect();
        extents.sort_by_key(|(fid, extent)| (*fid, extent.offset));
        extents
    }

    /// The extents that replace `old`.
    pub(crate) fn extents_within(&self, fid: Fid, old: &Extent) -> Vec<Extent> {
        let pieces = self.pieces.iter().flat_map(|pieces| &pieces.list);
        let same =
            pieces.filter(|p| p.item.fid == fid && p.item.write_id == old.write_id && p.item.version == old.version);
        let mut extents: Vec<Extent> = same.map(piece_extent).collect();
        extents.retain(|extent| old.offset <= extent.offset && extent.end() <= old.end());
        extents.sort_by_key(|extent| extent.offset);
        extents
    }
}

impl Core {
    /// See [`crate::Store::place`].
    pub(crate) async fn place(&self, room: Reservation, fragments: Vec<Fragment>) -> StoreResult<Placed> {
        fragments.iter().try_for_each(check)?;
        let bytes: u64 = fragments.iter().map(|fragment| fragment.data.len() as u64).sum();
        if bytes > room.weight() {
            return Err(StoreError::invalid(format!("{bytes} bytes to place, {} reserved", room.weight())));
        }
        let _write = self.pace.write(self.env.now());
        let items = fragments.into_iter().map(item).collect();
        let written = self.writer.write(Class::User, items);
        if self.writer.user_waits() {
            self.wake_cleaner.notify_one();
        }
        let pieces = match written.await {
            // The device accepts no writes any more: stop the store, so that every caller gets the error.
            Err(error) if error.kind == StoreErrorKind::Stopped => return self.stop_on_error(Err(error)),
            outcome => outcome?,
        };
        self.stats.borrow_mut().user_bytes += bytes;
        Ok(Placed { pieces: Some(Rc::new(pieces)), _room: Some(Rc::new(room.placed())) })
    }

    /// See [`crate::Store::prefetch_tail`].
    pub(crate) async fn prefetch_tail(&self, fid: Fid, range: Range<u64>, limit: usize) -> StoreResult<()> {
        loop {
            // Inserting or removing also looks for overlaps, so it needs the extent before the first one, too.
            let tail = tail_extents(&self.table.borrow(), fid, &range, limit);
            match tail {
                Ok(tail) => return self.prefetch_extents(fid, tail_start(&tail, &range, limit)..range.end).await,
                Err(TailError::Missing(missing)) => self.load_page(missing).await?,
                Err(TailError::Store(error)) => return Err(error),
            }
        }
    }
}

fn check(fragment: &Fragment) -> StoreResult<()> {
    let Fragment { fid, offset, data, sums, .. } = fragment;
    let length = data.len() as u64;
    let blocks = crc::blocks(*offset, length, BLOCK_BYTES).count();
    let fits = length > 0
        && length <= limits::FRAGMENT_BYTES
        && offset.checked_add(length).is_some_and(|end| end <= FILE_BYTES);
    if fits && blocks == sums.len() {
        return Ok(());
    }
    Err(StoreError::invalid(format!(
        "object {fid}: {length} bytes at {offset} with {} sums make no fragment ({blocks} blocks, 1 byte to 4 MiB)",
        sums.len()
    )))
}

fn item(fragment: Fragment) -> Item {
    Item {
        kind: FragmentKind::Data,
        fid: fragment.fid,
        offset: fragment.offset,
        length: fragment.data.len() as u64,
        data: fragment.data,
        write_id: fragment.write_id,
        version: fragment.version,
        generation: fragment.generation,
        origin_epoch: 0,
        sums: fragment.sums,
    }
}
