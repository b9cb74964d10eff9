//! Checkpoints: the table's changed pages go to slabs, then an anchor names the new root and where redo starts.
//!
//! A commit begins a checkpoint (see `commit`). The checkpoint is written in small steps while operations continue. The
//! anchor names it only when the group that it began with is durable and the pages are flushed. Locations that the
//! anchor no longer names become free then.
//!
//! Source: [ARIES]-like fuzzy checkpoints. Differs: the snapshot is exact, by copying pages before they change.

use std::rc::Rc;

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{Fid, Transno, WriteId, crc::crc64};

use crate::{
    StoreResult,
    commit::{BegunCheckpoint, Close},
    core::{Core, location_place},
    journal::RootLocation,
    limits,
    slab::{
        allocator::{Known, SlabState},
        run::FragmentKind,
        writer::{Class, Item, Piece},
    },
    snapshot,
    table::{PageId, PageLocation},
};

impl Core {
    /// The checkpoint task.
    pub(crate) async fn checkpoint_loop(self: Rc<Self>) {
        loop {
            let wake = self.wake_checkpoint.notified();
            if self.check_running().is_err() {
                return;
            }
            if !self.checkpoint_due() {
                wake.await;
                continue;
            }
            let outcome = self.checkpoint().await;
            if self.stop_on_error(outcome).is_err() {
                return;
            }
        }
    }

    /// Asks for a checkpoint of everything applied so far, and waits until it is durable.
    pub(crate) async fn checkpoint_now(&self) -> StoreResult<()> {
        let target = self.want_checkpoint();
        self.wake_checkpoint.notify_one();
        self.until(|| (self.checkpoints.get().finished >= target).then_some(())).await
    }

    fn want_checkpoint(&self) -> u64 {
        let mut counts = self.checkpoints.get();
        // A checkpoint that has begun does not contain what was applied since.
        counts.wanted = counts.wanted.max(counts.begun + 1);
        self.checkpoints.set(counts);
        counts.wanted
    }

    fn checkpoint_due(&self) -> bool {
        let counts = self.checkpoints.get();
        let dirty = self.table.borrow().dirty_bytes() as u64;
        // After a crash, slabs opened since the checkpoint count as full until the cleaner has examined each. They must
        // stay few, or a start finds no slab to write to.
        let opened = self.alloc.borrow().opened_after(self.checkpoint_epoch.get());
        counts.wanted > counts.finished
            || self.checkpoint_makes_sure()
            || self.journal.used_fraction() > 0.5
            || dirty > self.dirty_bytes_max
            || opened > self.geometry.slab_count as usize / limits::OPENED_SINCE_CHECKPOINT
    }

    /// True if few slabs would be free after a crash, and more are free now: a checkpoint makes those free after a
    /// crash, too.
    pub(crate) fn checkpoint_makes_sure(&self) -> bool {
        let alloc = self.alloc.borrow();
        let (free, sure) = (alloc.free_count(), alloc.sure_free_count());
        sure < free && sure <= self.reserved_slabs + (free - sure) / 2
    }

    async fn checkpoint(&self) -> StoreResult<()> {
        if self.checkpoints.get().wanted == self.checkpoints.get().finished {
            self.want_checkpoint();
        }
        self.demand_commit(Close::Size);
        let begun = self.until(|| self.commit.borrow_mut().snapshot.take()).await?;
        let root = self.write_pages().await?;
        let known = self.alloc.borrow().known_now();
        let pieces = self.write_snapshot(&begun).await?;
        if !planted(Bug::CheckpointNotFlushed) {
            self.flush_data().await?;
        }
        self.committed(begun.group).await?;
        let extra = snapshot::encode_extra(&pieces);
        self.journal.set_checkpoint(begun.at, Some(root_location(&root)), extra.into()).await?;
        self.finish_checkpoint(pieces, known);
        Ok(())
    }

    /// Writes the frozen pages; returns where the root lies.
    async fn write_pages(&self) -> StoreResult<PageLocation> {
        let mut root = None;
        loop {
            let batch = self.next_pages();
            if batch.is_empty() {
                return Ok(root.expect("the last page of a checkpoint is its root"));
            }
            let pieces = self.writer.write(Class::System, batch).await?;
            for piece in &pieces.list {
                let location = piece_location(piece);
                let id = PageId(piece.item.fid.low as u32);
                let mut table = self.table.borrow_mut();
                table.page_written(id, location);
                drop(table);
                self.alloc.borrow_mut().add_page(piece.place, u64::from(location.bytes));
                self.stats.borrow_mut().checkpoint_bytes += u64::from(location.bytes);
                root = if id == PageId::ROOT { Some(location) } else { root };
            }
        }
    }

    fn next_pages(&self) -> Vec<Item> {
        let mut table = self.table.borrow_mut();
        let mut bytes = 0;
        let mut batch = Vec::new();
        while bytes < limits::CHECKPOINT_BATCH_BYTES {
            let Some((id, page)) = table.next_page() else { break };
            bytes += page.len() as u64;
            batch.push(index_item(FragmentKind::IndexPage, u64::from(id.0), 0, page));
        }
        batch
    }

    async fn write_snapshot(&self, begun: &BegunCheckpoint) -> StoreResult<Vec<PageLocation>> {
        let bytes = Bytes::from(self.snapshot_now(begun).encode());
        let piece_bytes = (self.geometry.slab_bytes / 4).min(1 << 20) as usize;
        let at = (0..bytes.len()).step_by(piece_bytes);
        let items = at
            .map(|at| {
                let part = bytes.slice(at..bytes.len().min(at + piece_bytes));
                index_item(FragmentKind::Root, 0, at as u64, part)
            })
            .collect();
        let mut pieces = self.writer.write(Class::System, items).await?;
        pieces.list.sort_by_key(|piece| piece.item.offset);
        let mut alloc = self.alloc.borrow_mut();
        pieces.list.iter().for_each(|piece| alloc.add_page(piece.place, piece.item.length));
        drop(alloc);
        Ok(pieces.list.iter().map(piece_location).collect())
    }

    /// The slabs as of the checkpoint. Those opened since then held nothing at that time.
    fn snapshot_now(&self, begun: &BegunCheckpoint) -> snapshot::Snapshot {
        let mut slabs = begun.slabs.clone();
        let alloc = self.alloc.borrow();
        slabs.next_epoch = alloc.next_epoch();
        slabs.free = alloc.free_list().collect();
        for (row, (_, slab)) in slabs.slabs.iter_mut().zip(alloc.slabs()) {
            if row.epoch != slab.epoch {
                *row = snapshot::SlabRow { epoch: slab.epoch, data_live: 0, tombstones: false };
            }
            // A slab that is still written may get more tombstones, which only a scan of the slab would find.
            row.tombstones = slab.tombstones || slab.state == SlabState::Open || slab.pins > 0;
        }
        slabs
    }

    fn finish_checkpoint(&self, pieces: Vec<PageLocation>, known: Known) {
        let freed = self.table.borrow_mut().finish_checkpoint();
        let old_pieces = self.snapshot_places.replace(pieces);
        let mut alloc = self.alloc.borrow_mut();
        for location in freed.iter().chain(&old_pieces) {
            alloc.remove_page(location_place(location), u64::from(location.bytes));
        }
        alloc.checkpointed(known);
        drop(alloc);
        let mut counts = self.checkpoints.get();
        counts.finished = counts.begun;
        self.checkpoints.set(counts);
        self.stats.borrow_mut().checkpoints += 1;
        self.evict(); // what was dirty is clean now
        self.collect_slabs();
        self.wake_cleaner.notify_one();
    }
}

fn index_item(kind: FragmentKind, number: u64, offset: u64, bytes: Bytes) -> Item {
    Item {
        kind,
        fid: Fid { high: 0, low: number },
        offset,
        length: bytes.len() as u64,
        sums: vec![crc64(&bytes)],
        data: bytes,
        write_id: WriteId::default(),
        version: Transno(0),
        generation: 0,
        origin_epoch: 0,
    }
}

/// Where a page or a piece of the snapshot lies.
fn piece_location(piece: &Piece) -> PageLocation {
    PageLocation {
        slab: piece.place.slab,
        epoch: piece.place.epoch,
        offset: piece.place.at,
        bytes: piece.item.length as u32,
        sum: piece.item.sums[0],
    }
}

fn root_location(page: &PageLocation) -> RootLocation {
    RootLocation {
        slab: page.slab,
        epoch: page.epoch,
        offset: u64::from(page.offset),
        bytes: u64::from(page.bytes),
        sum: page.sum,
    }
}
