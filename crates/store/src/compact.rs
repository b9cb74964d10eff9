//! The cleaner: empties slabs in which much is garbage, and those that went bad.
//!
//! Greedy by live weight. A victim's run headers say what was written there; the index says what of it still lives. Live
//! blocks are verified before they move, and keep write id, version and sums; cut pieces get new sums after the whole
//! block was verified. Index pages move by way of the next checkpoint. Tombstones are carried on while the device holds
//! older bytes elsewhere.
//!
//! Invariant: a row is changed only if it is still what was moved.
//! Not here: when an emptied slab may be opened again (see `slab::allocator`).

use std::{collections::BTreeSet, rc::Rc};

use bytes::Bytes;
use forebay_proto::Fid;

use crate::{
    Placed, StoreError, StoreErrorKind, StoreResult,
    core::Core,
    extent::{self, Extent},
    limits, read,
    scan::scan_runs,
    slab::{
        allocator::{Slab, SlabState},
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

/// Slabs the cleaner cannot empty, with the opening they failed in; damaged data waits there for repair.
#[derive(Default)]
pub(crate) struct Stuck(BTreeSet<(u32, u64)>);

/// What the cleaner did since it began, and what came of it: bytes that pack badly must not be moved around for ever.
#[derive(Default)]
struct Effort {
    most_free: u32,
    grants: u64,
    slabs_since: u32,
}

impl Effort {
    /// True if as many slabs as there are were cleaned, no more are free than before, and nobody got room meanwhile.
    fn is_fruitless(&mut self, core: &Core) -> bool {
        let (free, grants) = (core.alloc.borrow().free_count(), core.promises.grants());
        let progress = free > self.most_free || grants > self.grants;
        self.slabs_since = if progress { 0 } else { self.slabs_since + 1 };
        (self.most_free, self.grants) =
            if grants > self.grants { (free, grants) } else { (self.most_free.max(free), grants) };
        self.slabs_since > core.geometry.slab_count
    }
}

impl Core {
    /// The cleaner's task.
    pub(crate) async fn clean_loop(self: Rc<Self>) {
        let mut stuck = Stuck::default();
        let mut effort = Effort::default();
        loop {
            let wake = self.wake_cleaner.notified();
            if self.check_running().is_err() {
                return;
            }
            if !self.cleaning_due(&stuck) {
                effort = Effort::default();
                wake.await;
                continue;
            }
            let outcome = self.clean_some(&mut stuck).await;
            match outcome {
                Ok(true) if !effort.is_fruitless(&self) => (),
                Ok(_) => {
                    effort = Effort::default();
                    let deaths = self.alloc.borrow().deaths();
                    self.promises.set_hopeless(Some(deaths));
                    self.writer_gives_up_if_stranded();
                    self.progress.notify_waiters();
                    wake.await;
                }
                Err(error) if matches!(error.kind, StoreErrorKind::Busy | StoreErrorKind::Full) => wake.await,
                Err(error) => {
                    self.stop(&error);
                    return;
                }
            }
        }
    }

    /// Cleans one slab now, if any is worth it. Returns whether something was gained. For tests and tools.
    pub(crate) async fn clean_some(&self, stuck: &mut Stuck) -> StoreResult<bool> {
        let Some((victim, epoch)) = self.choose_victim(stuck) else {
            return self.settle_emptied().await;
        };
        let clean = match self.clean(victim, epoch).await {
            // A damaged page of the index: what lives in the slab cannot be told. It stays as it is; readers get errors.
            Err(error) if matches!(error.kind, StoreErrorKind::Corrupt | StoreErrorKind::Medium) => {
                self.stats.borrow_mut().damaged_pieces += 1;
                self.env.log(&format!("{}: slab {victim} cannot be cleaned: {}", self.identity.target, error.message));
                false
            }
            other => other?,
        };
        if !clean {
            stuck.0.insert((victim, epoch));
        }
        self.settle_emptied().await?;
        Ok(true)
    }

    /// Makes what was emptied free, which takes a commit.
    async fn settle_emptied(&self) -> StoreResult<bool> {
        let before = self.alloc.borrow().free_count();
        if self.alloc.borrow().awaits_commit(self.committed_group()) {
            self.sync().await?;
        }
        self.collect_slabs();
        Ok(self.alloc.borrow().free_count() > before)
    }

    fn cleaning_due(&self, stuck: &Stuck) -> bool {
        self.promises.anybody_waits()
            || self.writer.user_waits()
            || self.short_of_slabs()
            || self
                .alloc
                .borrow()
                .slabs()
                .any(|(n, slab)| is_bad_with_data(slab) && !stuck.0.contains(&(n, slab.epoch)))
    }

    /// True if fewer slabs are free than the cleaner likes to have in hand.
    fn short_of_slabs(&self) -> bool {
        let in_hand = (self.geometry.slab_count / 16).clamp(2, limits::SLABS_IN_HAND);
        self.alloc.borrow().free_count() < self.keep_slabs + in_hand
    }

    fn writer_gives_up_if_stranded(&self) {
        if self.writer.user_waits() {
            self.writer
                .fail_user(&StoreError::full(format!("{} is full: no slab can be emptied", self.identity.target)));
        }
    }

    /// Bad slabs with data first, then the one with the least live weight, if emptying it gains anything.
    fn choose_victim(&self, stuck: &Stuck) -> Option<(u32, u64)> {
        let alloc = self.alloc.borrow();
        // In the background only what is worth it; when somebody waits, whatever gains at all.
        let least_gain = if self.promises.anybody_waits() { 0 } else { self.slab_usable() / 8 };
        let worth = self.slab_usable() - least_gain;
        let candidates = alloc.slabs().filter(|(number, slab)| {
            let full = slab.state == SlabState::Full && slab.live() < worth;
            let emptied = slab.is_empty() && !slab.tombstones;
            let full = full && (!emptied) && (!slab.is_empty() || alloc.needs_carrying(*number));
            slab.pins == 0 && (full || is_bad_with_data(slab)) && !stuck.0.contains(&(*number, slab.epoch))
        });
        candidates.min_by_key(|(_, slab)| (slab.state != SlabState::Bad, slab.live())).map(|(n, slab)| (n, slab.epoch))
    }

    /// Empties `victim`. False if live data is left that cannot be moved.
    async fn clean(&self, victim: u32, epoch: u64) -> StoreResult<bool> {
        let runs = scan_runs(&self.data, &self.geometry, self.identity.uuid, victim, epoch).await?;
        let fragments: Vec<Descriptor> = runs.into_iter().flat_map(|run| run.fragments).collect();
        self.carry_tombstones(victim, &fragments).await?;
        let mut damaged = false;
        for _ in 0..limits::COMPACT_ROUNDS {
            damaged = self.move_data(victim, epoch, &fragments).await?;
            if self.alloc.borrow().slab(victim).is_none_or(|slab| slab.data_live == 0) || damaged {
                break;
            }
        }
        self.relocate_pages(victim, epoch, &fragments).await?;
        let alloc = self.alloc.borrow();
        let slab = alloc.slab(victim).expect("victims exist");
        let emptied = slab.epoch != epoch || slab.data_live == 0 && slab.page_live == 0;
        if emptied && slab.epoch == epoch {
            self.stats.borrow_mut().slabs_cleaned += 1;
        }
        Ok(emptied && !damaged)
    }

    async fn carry_tombstones(&self, victim: u32, fragments: &[Descriptor]) -> StoreResult<()> {
        let oldest = self.alloc.borrow().oldest_epoch_besides(victim);
        let needed = fragments.iter().filter(|f| f.kind.is_tombstone() && oldest < f.origin_epoch);
        let items: Vec<Item> = needed.map(tombstone_item).collect();
        if !items.is_empty() {
            self.writer.write(Class::System, items).await?;
            self.flush_data().await?;
        }
        self.alloc.borrow_mut().tombstones_carried(victim);
        Ok(())
    }

    /// Moves what lives of `fragments`, in batches. True if some of it is damaged.
    async fn move_data(&self, victim: u32, epoch: u64, fragments: &[Descriptor]) -> StoreResult<bool> {
        let mut damaged = false;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for fragment in fragments.iter().filter(|f| f.kind == FragmentKind::Data) {
            for extent in self.live_extents(victim, epoch, fragment).await? {
                bytes += extent.length;
                let value = extent.encode();
                batch.push(Move { fid: fragment.fid, extent, value });
            }
            if bytes >= limits::COMPACT_BATCH_BYTES {
                damaged |= self.move_batch(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        Ok(damaged | self.move_batch(batch).await?)
    }

    async fn live_extents(&self, victim: u32, epoch: u64, fragment: &Descriptor) -> StoreResult<Vec<Extent>> {
        let range = fragment.offset..fragment.offset.saturating_add(fragment.length);
        let mut extents = self.extents_of(fragment.fid, &range).await?;
        extents.retain(|e| (e.place.slab, e.place.epoch, e.write_id) == (victim, epoch, fragment.write_id));
        // An extent of another fragment of the same write is found with that fragment.
        extents.retain(|e| range.contains(&e.offset));
        Ok(extents)
    }

    async fn move_batch(&self, moves: Vec<Move>) -> StoreResult<bool> {
        let mut damaged = false;
        let mut items = Vec::new();
        let mut sources = Vec::new();
        let covers = self.read_covers(&moves).await?;
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

    /// The bytes of many pieces in few reads; none where such a read fails: its pieces are read one by one then.
    async fn read_covers(&self, moves: &[Move]) -> StoreResult<Vec<Option<Bytes>>> {
        let extents: Vec<Extent> = moves.iter().map(|moved| moved.extent.clone()).collect();
        let mut covers = vec![None; moves.len()];
        for planned in read::plan_reads(&extents, limits::COMPACT_GAP_BYTES) {
            let bytes = match self.read_place(planned.place, planned.bytes).await {
                Ok(bytes) => bytes,
                Err(error) if error.kind == StoreErrorKind::Medium => continue,
                Err(error) => return Err(error),
            };
            for index in planned.extents {
                let at = (extents[index].place.at - planned.place.at) as usize;
                covers[index] = Some(bytes.slice(at..at + read::cover_bytes(&extents[index]) as usize));
            }
        }
        Ok(covers)
    }

    /// The piece's verified bytes, ready to be written; none if they are damaged.
    async fn read_to_move(&self, moved: &Move, cover: Option<Bytes>) -> StoreResult<Option<Item>> {
        let Move { fid, extent, .. } = moved;
        let bytes = match cover {
            Some(bytes) => bytes,
            None => match self.read_place(extent.place, read::cover_bytes(extent)).await {
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

    /// Points the rows that are still what was read to where the bytes lie now.
    async fn switch_rows(&self, sources: &[Move], moved_to: &mut Placed) -> StoreResult<u64> {
        let keys: Vec<_> = sources.iter().map(|m| extent::key(m.fid, m.extent.offset)).collect();
        self.resident(|table| keys.iter().try_for_each(|key| table.get(key).map(drop))).await?;
        let mut txn = Txn::new(self.shared());
        let mut bytes = 0;
        for (source, key) in sources.iter().zip(&keys) {
            let new: Vec<Extent> = moved_to.extents_within(source.fid, &source.extent);
            if txn.replace_extent(key, &source.value, source.fid, &new)? {
                bytes += source.extent.length;
            }
        }
        txn.hold(std::mem::replace(moved_to, Placed::empty()));
        match txn.apply() {
            // Pieces that were split land on keys that may not be resident: the rest of the slab waits for another round.
            Err(error) if error.kind == StoreErrorKind::NotResident => Ok(0),
            other => other.map(|_| bytes),
        }
    }

    async fn relocate_pages(&self, victim: u32, epoch: u64, fragments: &[Descriptor]) -> StoreResult<()> {
        let mut live = false;
        for page in fragments.iter().filter(|f| f.kind == FragmentKind::IndexPage) {
            let location = PageLocation {
                slab: victim,
                epoch,
                offset: page_at(page),
                bytes: page.length as u32,
                sum: page.sums.first().copied().unwrap_or_default(),
            };
            live |= self.relocate(PageId(page.fid.low as u32), location).await?;
        }
        let anchored = self.snapshot_places.borrow().iter().any(|place| (place.slab, place.epoch) == (victim, epoch));
        if live || anchored {
            self.checkpoint_now().await?;
        }
        Ok(())
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

fn is_bad_with_data(slab: &Slab) -> bool {
    slab.state == SlabState::Bad && slab.live() > 0
}

/// Where a page lies in its slab: the scan turned the payload's place in the run into one in the slab.
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

/// Extents made of pieces.
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
