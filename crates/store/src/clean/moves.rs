//! Moving live data out of a victim.
//!
//! Live blocks are verified before they move, and keep write id, version and sums. Cut pieces get new sums after their
//! whole block was verified. Index pages move with the next checkpoint.

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_proto::Fid;

use super::{image::Image, victims::Victim};
use crate::{
    Placed, StoreError, StoreErrorKind, StoreResult,
    core::Core,
    extent::{self, Extent},
    limits, read,
    slab::{
        run::{Descriptor, FragmentKind},
        writer::{Class, Item, Piece},
    },
    table::{PageId, PageLocation},
    txn::Txn,
};

/// A live piece and the row it comes from.
struct Move {
    fid: Fid,
    extent: Extent,
    value: Vec<u8>,
}

/// A victim as it was read.
pub(super) struct Content {
    pub victim: Victim,
    image: Image,
    fragments: Vec<Descriptor>,
}

/// What remains in a victim.
pub(super) struct Cleaned {
    /// True if live data cannot be moved.
    pub damaged: bool,
    /// True if the next checkpoint moves something away.
    pub pages: bool,
}

impl Core {
    /// Reads a victim and what its run headers say was written there.
    pub(super) async fn read_victim(&self, victim: Victim) -> StoreResult<Content> {
        let image = self.read_image(victim).await?;
        let runs = self.runs_of(&image).await?;
        Ok(Content { victim, image, fragments: runs.into_iter().flat_map(|run| run.fragments).collect() })
    }

    /// Writes again the victims' tombstones that other slabs still need, each once: several slabs may hold copies of
    /// one.
    pub(super) async fn carry_tombstones(&self, contents: &[Content]) -> StoreResult<()> {
        let mut seen = BTreeSet::new();
        let mut items = Vec::new();
        for Content { victim, fragments, .. } in contents {
            let oldest = self.alloc.borrow().oldest_epoch_besides(victim.slab);
            let needed = fragments.iter().filter(|f| f.kind.is_tombstone() && oldest < f.origin_epoch);
            let new = needed.filter(|f| seen.insert((f.fid, f.offset, f.length, f.version, f.origin_epoch)));
            items.extend(new.map(tombstone_item));
        }
        if !items.is_empty() {
            self.writer.write(Class::System, items).await?;
            self.flush_data().await?;
        }
        let mut alloc = self.alloc.borrow_mut();
        contents.iter().for_each(|content| alloc.tombstones_carried(content.victim.slab, content.victim.epoch));
        Ok(())
    }

    /// Moves the live data of a victim. Its index pages are only marked, for the next checkpoint to write them anew.
    pub(super) async fn clean(&self, content: &Content) -> StoreResult<Cleaned> {
        let Content { victim, image, fragments } = content;
        let mut damaged = false;
        for _ in 0..limits::COMPACT_ROUNDS {
            damaged = self.move_data(*victim, image, fragments).await?;
            if self.alloc.borrow().slab(victim.slab).is_none_or(|slab| slab.data_live == 0) || damaged {
                break;
            }
        }
        let pages = self.relocate_pages(*victim, fragments).await?;
        Ok(Cleaned { damaged, pages })
    }

    /// Moves the live bytes of `fragments`, in batches. True if some of them are damaged.
    async fn move_data(&self, victim: Victim, image: &Image, fragments: &[Descriptor]) -> StoreResult<bool> {
        let mut damaged = false;
        let mut batch = Vec::new();
        let mut bytes = 0;
        // Fragments of one write may overlap, if an earlier move was abandoned or its rows changed meanwhile. What it
        // left is garbage that looks like the later fragment.
        let mut taken = BTreeSet::new();
        // All rows that are moved in parallel fit one group of the journal.
        let most_rows =
            (self.group_bytes_max() / limits::VICTIMS_AT_ONCE as u64 / limits::MOVED_ROW_BYTES).max(8) as usize;
        for fragment in fragments.iter().filter(|f| f.kind == FragmentKind::Data) {
            for extent in self.live_extents(victim, fragment).await? {
                if !taken.insert((fragment.fid, extent.offset)) {
                    continue;
                }
                bytes += extent.length;
                let value = extent.encode();
                batch.push(Move { fid: fragment.fid, extent, value });
            }
            if bytes >= limits::COMPACT_BATCH_BYTES || batch.len() >= most_rows {
                damaged |= self.move_batch(image, std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        Ok(damaged | self.move_batch(image, batch).await?)
    }

    async fn live_extents(&self, victim: Victim, fragment: &Descriptor) -> StoreResult<Vec<Extent>> {
        let range = fragment.offset..fragment.offset.saturating_add(fragment.length);
        let mut extents = self.extents_of(fragment.fid, &range).await?;
        extents.retain(|e| (e.place.slab, e.place.epoch, e.write_id) == (victim.slab, victim.epoch, fragment.write_id));
        // An extent of another fragment of the same write is found with that fragment.
        extents.retain(|e| range.contains(&e.offset));
        Ok(extents)
    }

    async fn move_batch(&self, image: &Image, moves: Vec<Move>) -> StoreResult<bool> {
        let mut damaged = false;
        let mut items = Vec::new();
        let mut sources = Vec::new();
        let covers = self.read_covers(image, &moves).await?;
        for (moved, cover) in moves.into_iter().zip(covers) {
            match self.read_to_move(&moved, cover).await? {
                Some(item) => {
                    items.push(item);
                    sources.push(moved);
                }
                None => damaged = true,
            }
        }
        if items.is_empty() {
            return Ok(damaged);
        }
        self.journal_admits().await?;
        let pieces = self.writer.write(Class::System, items).await?;
        let mut moved_to = Placed::of_cleaner(pieces);
        let bytes = self.switch_rows(&sources, &mut moved_to).await?;
        self.stats.borrow_mut().compacted_bytes += bytes;
        Ok(damaged)
    }

    /// The bytes of many pieces, from the image or in few reads. None where such a read fails: those pieces are then
    /// read one by one.
    async fn read_covers(&self, image: &Image, moves: &[Move]) -> StoreResult<Vec<Option<Bytes>>> {
        let cover = |moved: &Move| image.slice(moved.extent.place, read::cover_bytes(&moved.extent));
        let mut covers: Vec<Option<Bytes>> = moves.iter().map(cover).collect();
        let missing: Vec<usize> = (0..moves.len()).filter(|index| covers[*index].is_none()).collect();
        if self.data.copies().len() > 1 {
            // One by one: the sums of each piece tell which copy is right.
            return Ok(covers);
        }
        let extents: Vec<Extent> = missing.iter().map(|index| moves[*index].extent.clone()).collect();
        for planned in read::plan_reads(&extents, limits::COMPACT_GAP_BYTES) {
            let bytes = match self.read_place(planned.place, planned.bytes, |_| true).await {
                Ok(bytes) => bytes,
                Err(error) if error.kind == StoreErrorKind::Medium => continue,
                Err(error) => return Err(error),
            };
            for index in planned.extents {
                let at = (extents[index].place.at - planned.place.at) as usize;
                covers[missing[index]] = Some(bytes.slice(at..at + read::cover_bytes(&extents[index]) as usize));
            }
        }
        Ok(covers)
    }

    /// The piece's verified bytes, ready to be written; None if they are damaged.
    async fn read_to_move(&self, moved: &Move, cover: Option<Bytes>) -> StoreResult<Option<Item>> {
        let Move { fid, extent, .. } = moved;
        let good = |bytes: &[u8]| read::verify(*fid, extent, bytes).is_ok();
        let cover = cover.filter(|cover| self.data.copies().len() == 1 || good(cover));
        let bytes = match cover {
            Some(bytes) => bytes,
            None => match self.read_place(extent.place, read::cover_bytes(extent), good).await {
                Ok(bytes) => bytes,
                Err(error) if error.kind == StoreErrorKind::Medium => return Ok(self.report_damage(moved, &error)),
                Err(error) => return Err(error),
            },
        };
        if let Err(error) = read::verify(*fid, extent, &bytes) {
            return Ok(self.report_damage(moved, &error));
        }
        let (data, sums) = read::cut_verified(*fid, extent, bytes);
        Ok(Some(Item {
            kind: FragmentKind::Data,
            fid: *fid,
            offset: extent.offset,
            length: extent.length,
            data,
            write_id: extent.write_id,
            version: extent.version,
            generation: extent.generation,
            origin_epoch: 0,
            sums,
        }))
    }

    fn report_damage(&self, moved: &Move, error: &StoreError) -> Option<Item> {
        self.stats.borrow_mut().damaged_pieces += 1;
        let (fid, range) = (moved.fid, moved.extent.offset..moved.extent.end());
        self.env.log(&format!("{}: object {fid} {range:?} cannot be moved: {}", self.identity.target, error.message));
        None
    }

    /// Points rows to the new location of their bytes, if they still have the value that was read. Returns the bytes
    /// moved.
    async fn switch_rows(&self, sources: &[Move], moved_to: &mut Placed) -> StoreResult<u64> {
        let keys: Vec<_> = sources.iter().map(|m| extent::key(m.fid, m.extent.offset)).collect();
        self.resident(|table| keys.iter().try_for_each(|key| table.get(key).map(drop))).await?;
        let mut txn = Txn::new(self.shared());
        let mut bytes = 0;
        for (source, key) in sources.iter().zip(&keys) {
            let new: Vec<Extent> = moved_to.extents_within(source.fid, &source.extent);
            if !tiles(&new, &source.extent) {
                return Err(StoreError::corrupt(format!(
                    "what was moved of object {} is not what was read",
                    source.fid
                )));
            }
            if txn.replace_extent(key, &source.value, source.fid, &new)? {
                bytes += source.extent.length;
            }
        }
        txn.hold(std::mem::replace(moved_to, Placed::empty()));
        match txn.apply() {
            // Split pieces need rows at keys that may not be resident: the rest of the slab waits for another round.
            Err(error) if error.kind == StoreErrorKind::NotResident => Ok(0),
            other => other.map(|_| bytes),
        }
    }

    /// Marks the victim's index pages for the next checkpoint to move. True if that has something to move.
    async fn relocate_pages(&self, victim: Victim, fragments: &[Descriptor]) -> StoreResult<bool> {
        let mut live = false;
        for page in fragments.iter().filter(|f| f.kind == FragmentKind::IndexPage) {
            let location = PageLocation {
                slab: victim.slab,
                epoch: victim.epoch,
                offset: page_at(page),
                bytes: page.length as u32,
                sum: page.sums.first().copied().unwrap_or_default(),
            };
            live |= self.relocate(PageId(page.fid.low as u32), location).await?;
        }
        let in_victim = |place: &PageLocation| (place.slab, place.epoch) == (victim.slab, victim.epoch);
        Ok(live || self.snapshot_places.borrow().iter().any(in_victim))
    }

    async fn relocate(&self, page: PageId, location: PageLocation) -> StoreResult<bool> {
        loop {
            let missing = match self.table.borrow_mut().relocate(page, &location) {
                Ok(live) => return Ok(live),
                Err(missing) => missing,
            };
            self.load_page(missing).await?;
        }
    }
}

/// True if the extents cover exactly `old`, in order and without gaps.
fn tiles(extents: &[Extent], old: &Extent) -> bool {
    let end = extents.iter().try_fold(old.offset, |at, extent| (extent.offset == at).then(|| extent.end()));
    end == Some(old.end())
}

/// Where a page lies in its slab: the scan has turned its offset in the run into one in the slab.
fn page_at(fragment: &Descriptor) -> u32 {
    fragment.payload_at
}

fn tombstone_item(f: &Descriptor) -> Item {
    Item {
        kind: f.kind,
        fid: f.fid,
        offset: f.offset,
        length: f.length,
        data: Bytes::new(),
        write_id: f.write_id,
        version: f.version,
        generation: f.generation,
        origin_epoch: f.origin_epoch,
        sums: Vec::new(),
    }
}

/// The extent of a piece.
pub(crate) fn piece_extent(piece: &Piece) -> Extent {
    Extent {
        offset: piece.item.offset,
        length: piece.item.length,
        lead: 0,
        tail: 0,
        place: piece.place,
        write_id: piece.item.write_id,
        version: piece.item.version,
        generation: piece.item.generation,
        sums: piece.item.sums.clone(),
    }
}
