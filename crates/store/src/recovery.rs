//! Opening a store: the last checkpoint, redo of the journal, a new incarnation.
//!
//! Invariant: nothing is served before the new incarnation is durable.
//! Invariant: a slab that was open at the crash is not appended to. Its contents stay; the rest of it is unused until
//! the slab is emptied.
//! Invariant: a journal that ends before what run headers name as durable is damaged, and refused.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use bytes::{Bytes, BytesMut};
use forebay_env::{
    Env,
    sync::{Mutex, Notify, watch},
};
use forebay_proto::crc::crc64;

use crate::{
    Identity, OpenOptions, RecoveryReport, StoreError, StoreResult,
    commit::{BAD_SLAB_SPACE, CommitState},
    core::{Core, location_place, read_place},
    extent, format,
    journal::{Journal, Lsn, Recovered, RootLocation},
    limits,
    mirror::{self, Device, Dirs},
    pace::Pace,
    redo::{self, Step},
    scan::{read_slab_header, scan_runs},
    slab::{
        Place,
        allocator::{Allocator, Slab, SlabState},
        header::Geometry,
        writer::{Writer, WriterConfig},
    },
    snapshot::{self, Snapshot},
    table::{MissingPage, PageLocation, Table},
};

/// Releases the lock of a mirrored store's other directory together with its own.
struct Unlock(Rc<Dirs>);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// The state that recovery puts together.
struct Recovery {
    identity: Identity,
    geometry: Geometry,
    data: Device,
    table: Table,
    alloc: Allocator,
    snapshot: Snapshot,
    snapshot_places: Vec<PageLocation>,
    report: RecoveryReport,
}

/// See [`crate::Store::open`].
pub(crate) async fn open(env: &Env, dir: &str, options: &OpenOptions) -> StoreResult<Rc<Core>> {
    let began = env.now();
    let identity = mirror::newer_identity(env, dir, format::read_identity(env, dir)?);
    let lock = env.lock_file(&format::join(dir, format::LOCK_FILE))?;
    let format::Devices { data, journal: journal_disk, dirs } = format::open_devices(env, dir, &identity).await?;
    let found = async |named| {
        Journal::recover(env, &journal_disk, identity.uuid, identity.generation, named).await.map_err(StoreError::from)
    };
    let mut journal = found(Lsn(0)).await?;
    let mut recovery = Recovery::of_checkpoint(identity.clone(), data, &journal).await?;
    let named = recovery.find_openings().await?;
    if named > journal.highest_durable {
        journal = found(named).await?;
    }
    recovery.redo(&mut journal).await?;
    recovery.retire_bad_slabs().await?;
    recovery.alloc.settle(&recovery.snapshot.free, recovery.snapshot.next_epoch);
    recovery.alloc.begin_incarnation(journal.incarnation);
    recovery.report.torn_tail = journal.torn_tail;
    recovery.report.clean = journal.clean;
    let journal = journal.open().await?;
    recovery.report.duration = env.now().since(began);
    let core = recovery.into_core(env, options, journal);
    core.lock.replace(Some(Box::new((lock, dirs.map(Unlock)))));
    Ok(core)
}

impl Recovery {
    /// The table and the slabs of the last checkpoint.
    async fn of_checkpoint(identity: Identity, data: Device, journal: &Recovered) -> StoreResult<Self> {
        let geometry = Geometry::of(&identity);
        let mut recovery = Self {
            table: Table::empty(),
            alloc: Allocator::new(geometry.slab_count),
            snapshot: Snapshot { next_epoch: 1, free: (0..geometry.slab_count).collect(), ..Snapshot::default() },
            snapshot_places: Vec::new(),
            report: RecoveryReport::default(),
            identity,
            geometry,
            data,
        };
        if let Some(root) = journal.anchor.root {
            recovery.load_snapshot(&journal.anchor.extra).await?;
            recovery.load_table(root).await?;
        }
        recovery.report.last_transno = recovery.snapshot.transno;
        Ok(recovery)
    }

    async fn load_snapshot(&mut self, extra: &[u8]) -> StoreResult<()> {
        let wrong = |error| StoreError::corrupt(format!("the last checkpoint cannot be read: {error}; run fsck"));
        let places = snapshot::decode_extra(extra).map_err(wrong)?;
        let mut bytes = BytesMut::new();
        for place in &places {
            let piece = self.read(location_place(place), u64::from(place.bytes), place.sum).await?;
            if crc64(&piece) != place.sum {
                return Err(wrong(forebay_proto::DecodeError::new("a piece of the slab snapshot has another sum")));
            }
            bytes.extend_from_slice(&piece);
        }
        let snapshot = Snapshot::decode(&bytes).map_err(wrong)?;
        if snapshot.slabs.len() != self.geometry.slab_count as usize {
            return Err(wrong(forebay_proto::DecodeError::new("it knows another number of slabs")));
        }
        for (number, row) in (0..).zip(&snapshot.slabs) {
            let slab = Slab {
                state: SlabState::Full,
                epoch: row.epoch,
                data_live: row.data_live,
                page_live: 0,
                pins: 0,
                freed_at: 0,
                tombstones: row.tombstones,
                tombstone_bytes: (!row.tombstones).then_some(0),
                carried_at: 0,
                sure: false,
            };
            self.alloc.restore(number, slab);
        }
        for place in &places {
            self.alloc.add_page(location_place(place), u64::from(place.bytes));
        }
        self.snapshot = snapshot;
        self.snapshot_places = places;
        Ok(())
    }

    async fn load_table(&mut self, root: RootLocation) -> StoreResult<()> {
        let location = PageLocation {
            slab: root.slab,
            epoch: root.epoch,
            offset: root.offset as u32,
            bytes: root.bytes as u32,
            sum: root.sum,
        };
        let bytes = self.read(location_place(&location), root.bytes, root.sum).await?;
        self.table = Table::from_root(&bytes, location)?;
        for missing in self.table.needs() {
            self.load_page(missing).await?;
        }
        for (_, location) in self.table.locations() {
            self.alloc.add_page(location_place(&location), u64::from(location.bytes));
        }
        Ok(())
    }

    async fn read(&self, place: Place, length: u64, sum: u64) -> StoreResult<Bytes> {
        read_place(&self.data, &self.geometry, place, length, |bytes| crc64(bytes) == sum).await
    }

    async fn load_page(&mut self, missing: MissingPage) -> StoreResult<()> {
        let location = &missing.location;
        let bytes = self.read(location_place(location), u64::from(location.bytes), location.sum).await?;
        self.table.install(missing.page, &missing.location, &bytes)?;
        Ok(())
    }

    /// Finds the slabs opened since the checkpoint; returns the highest durable lsn that the runs of the newest slabs
    /// name.
    async fn find_openings(&mut self) -> StoreResult<Lsn> {
        let mut openings: BTreeMap<u64, u32> = BTreeMap::new();
        // Slabs are opened in the order of the free list. On a thin-provisioned device without space, only slabs that
        // were used before are opened, in the same order.
        let free = self.snapshot.free.clone();
        let used = |slab: &u32| self.snapshot.slabs.get(*slab as usize).is_some_and(|row| row.epoch != 0);
        let used: Vec<u32> = free.iter().copied().filter(used).collect();
        let all = self.find_in_order(&free, &mut openings).await?;
        let all = self.find_in_order(&used, &mut openings).await? && !used.is_empty() || all;
        if all {
            // Slabs that became free since the checkpoint may have been opened too.
            for slab in 0..self.geometry.slab_count {
                let header = read_slab_header(&self.data, &self.geometry, self.identity.uuid, slab).await?;
                openings.extend(header.filter(|h| h.epoch >= self.snapshot.next_epoch).map(|h| (h.epoch, slab)));
            }
        }
        openings.iter().for_each(|(epoch, slab)| self.alloc.found_opening(*slab, *epoch));
        self.report.slabs_opened = openings.len() as u32;
        // Slabs that were already open at the checkpoint may have been written since.
        openings
            .extend(self.alloc.slabs().filter(|(_, slab)| slab.epoch > 0).map(|(number, slab)| (slab.epoch, number)));
        let mut named = 0;
        for (epoch, slab) in openings.into_iter().rev().take(limits::RECOVERY_SLABS_SCANNED) {
            let runs = scan_runs(&self.data, &self.geometry, self.identity.uuid, slab, epoch).await?;
            let ours = runs.iter().filter(|run| run.generation == self.identity.generation);
            named = ours.map(|run| run.durable_lsn).fold(named, u64::max);
        }
        Ok(Lsn(named))
    }

    /// Notes which slabs of `list` were opened since the checkpoint; those come first in it. True if all of them were
    /// opened.
    async fn find_in_order(&self, list: &[u32], openings: &mut BTreeMap<u64, u32>) -> StoreResult<bool> {
        let mut unopened = 0;
        for slab in list {
            let header = read_slab_header(&self.data, &self.geometry, self.identity.uuid, *slab).await?;
            match header.filter(|header| header.epoch >= self.snapshot.next_epoch) {
                Some(header) => {
                    unopened = 0;
                    openings.insert(header.epoch, *slab);
                }
                // A crash loses unflushed headers in any order.
                None => unopened += 1,
            }
            if unopened == limits::RECOVERY_SLABS_SCANNED {
                return Ok(false);
            }
        }
        Ok(unopened == 0)
    }

    async fn redo(&mut self, journal: &mut Recovered) -> StoreResult<()> {
        while let Some(transaction) = journal.next_transaction().await? {
            let steps = redo::steps(&transaction.payload).map_err(|error| StoreError::corrupt(error.to_string()))?;
            for step in steps {
                self.redo_step(step).await?;
            }
            self.report.records += 1;
            self.report.bytes += transaction.payload.len() as u64;
        }
        Ok(())
    }

    async fn redo_step(&mut self, step: Step<'_>) -> StoreResult<()> {
        let (key, value) = match step {
            Step::Transno(transno) => {
                self.report.last_transno = self.report.last_transno.max(transno);
                return Ok(());
            }
            Step::Put(key, value) => (key, Some(value)),
            Step::Delete(key) => (key, None),
        };
        if key.len() > crate::table::limits::KEY_BYTES_MAX {
            return Err(StoreError::corrupt("journal payload: a key is too long"));
        }
        let old = loop {
            let outcome = match value {
                Some(value) => self.table.put(key, value),
                None => self.table.delete(key),
            };
            match outcome {
                Ok(old) => break old,
                Err(missing) => self.load_page(missing).await?,
            }
        };
        if let Some((place, weight)) = value.and_then(|value| extent::row_weight(key, value)) {
            self.alloc.add_data(place, weight);
        }
        if let Some((place, weight)) = old.and_then(|value| extent::row_weight(key, &value)) {
            self.alloc.remove_data(place, weight, 0);
        }
        Ok(())
    }

    async fn retire_bad_slabs(&mut self) -> StoreResult<()> {
        loop {
            let listed = bad_slabs(&self.table);
            match listed {
                Ok(slabs) => {
                    slabs.into_iter().for_each(|slab| {
                        self.alloc.retire(slab);
                    });
                    return Ok(());
                }
                Err(missing) => self.load_page(missing).await?,
            }
        }
    }

    fn into_core(self, env: &Env, options: &OpenOptions, journal: Journal) -> Rc<Core> {
        let incarnation = journal.incarnation();
        let alloc = Rc::new(RefCell::new(self.alloc));
        let stats = Rc::default();
        let durable_lsn = Rc::new(Cell::new(journal.durable().0));
        let dirty_bytes_max = (self.identity.data_bytes / 64).clamp(limits::DIRTY_BYTES_MIN, limits::DIRTY_BYTES);
        let checkpoint_slabs = 4 + (dirty_bytes_max * 3 / 2).div_ceil(self.geometry.slab_bytes) as u32;
        let cleaner_slabs = (self.geometry.slab_count / limits::CLEANER_SLABS_PART).min(limits::CLEANER_SLABS);
        let reserved_slabs = checkpoint_slabs + cleaner_slabs;
        let config = WriterConfig {
            disk: self.data.clone(),
            geometry: self.geometry,
            target: self.identity.uuid,
            name: self.identity.target,
            incarnation,
            generation: self.identity.generation,
            reserved_slabs,
        };
        let writer = Writer::new(env, config, alloc.clone(), Rc::clone(&stats), durable_lsn.clone());
        let last_transno = self.report.last_transno;
        Rc::new_cyclic(|this| Core {
            this: this.clone(),
            env: env.clone(),
            identity: self.identity,
            incarnation,
            options: options.clone(),
            geometry: self.geometry,
            data: self.data,
            table: RefCell::new(self.table),
            journal,
            alloc,
            writer,
            stats,
            commit: RefCell::new(CommitState::new(last_transno)),
            pace: Pace::default(),
            promises: Rc::default(),
            checkpoint_slabs,
            reserved_slabs,
            dirty_bytes_max,
            durable_lsn,
            flushed_runs: Cell::new(0),
            flushing: Mutex::new(()),
            last_committed: watch::Sender::new(last_transno),
            wake_commit: Notify::new(),
            journal_gate: Mutex::new(()),
            wake_checkpoint: Notify::new(),
            calls: Cell::default(),
            called_at: Cell::new(env.now()),
            wake_cleaner: Notify::new(),
            cleaner_rests: Cell::new(true),
            progress: Notify::new(),
            checkpoints: Cell::default(),
            checkpoint_epoch: Cell::default(),
            snapshot_places: RefCell::new(self.snapshot_places),
            report: self.report,
            stopped: RefCell::default(),
            lock: RefCell::default(),
        })
    }
}

fn bad_slabs(table: &Table) -> Result<Vec<u32>, MissingPage> {
    let rows = table.range(&[BAD_SLAB_SPACE], &[BAD_SLAB_SPACE + 1]);
    let slab =
        |row: crate::table::Row<'_>| row.key.get(1..5).map(|n| u32::from_be_bytes(n.try_into().expect("four bytes")));
    rows.filter_map(|row| row.map(slab).transpose()).collect()
}
