//! What the parts of an open store share, and how it stops.
//!
//! Invariant: no borrow of a cell lives across an await.
//! Invariant: once stopped, a store stays stopped; every waiting caller gets the error.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use bytes::Bytes;
use forebay_env::{
    AlignedBuf, Boxed, Bug, Env, Time, planted,
    sync::{Mutex, Notify, watch},
};
use forebay_proto::{Incarnation, Transno, crc::crc64};

use crate::{
    Identity, OpenOptions, RecoveryReport, StoreError, StoreErrorKind, StoreResult, StoreStats,
    commit::CommitState,
    journal::{Journal, JournalError, JournalErrorKind},
    limits,
    mirror::Device,
    pace::Pace,
    slab::{
        Place,
        allocator::{Allocator, Group},
        header::Geometry,
        writer::Writer,
    },
    space::Promises,
    table::{CorruptPage, MissingPage, PageLocation, Table},
};

/// The open store's parts.
pub(crate) struct Core {
    /// A weak reference to itself, for tasks that need a shared one.
    pub this: Weak<Core>,
    pub env: Env,
    pub identity: Identity,
    pub incarnation: Incarnation,
    pub options: OpenOptions,
    pub geometry: Geometry,
    pub data: Device,
    pub table: RefCell<Table>,
    pub journal: Journal,
    pub alloc: Rc<RefCell<Allocator>>,
    pub writer: Writer,
    pub stats: Rc<RefCell<StoreStats>>,
    pub commit: RefCell<CommitState>,
    pub pace: Pace,
    pub promises: Rc<Promises>,
    /// Slabs that checkpoints and tombstones may need.
    pub checkpoint_slabs: u32,
    /// Slabs that callers' data may not open: those, and the cleaner's.
    pub reserved_slabs: u32,
    /// Dirty bytes of the table that start a checkpoint.
    pub dirty_bytes_max: u64,
    /// The journal position known durable; run headers name it.
    pub durable_lsn: Rc<Cell<u64>>,
    /// Runs covered by the last flush of the data device.
    pub flushed_runs: Cell<u64>,
    pub flushing: Mutex<()>,
    pub last_committed: watch::Sender<Transno>,
    /// Notified when the commit task has something to do.
    pub wake_commit: Notify,
    /// Held from a group's append to the journal until its data is flushed and its record is handed to the device.
    pub journal_gate: Mutex<()>,
    /// Notified when the checkpoint task has something to do.
    pub wake_checkpoint: Notify,
    /// Counts the calls; `called_at`: the time of the last one.
    pub calls: Cell<u64>,
    pub called_at: Cell<Time>,
    /// Notified when the cleaner has something to do.
    pub wake_cleaner: Notify,
    /// True while the cleaner has nothing to do, or nothing that helps.
    pub cleaner_rests: Cell<bool>,
    /// Notified of all progress that a caller may wait for: commits, checkpoints, freed slabs, the stop.
    pub progress: Notify,
    pub checkpoints: Cell<CheckpointCounts>,
    /// Epoch of the newest slab opening that the last checkpoint knows; 0 after a start.
    pub checkpoint_epoch: Cell<u64>,
    /// Pieces of the slab snapshot that the last durable anchor names.
    pub snapshot_places: RefCell<Vec<PageLocation>>,
    pub report: RecoveryReport,
    pub stopped: RefCell<Option<StoreError>>,
    /// Dropped by a clean stop, so that the directory can be opened again at once.
    pub lock: RefCell<Option<Box<dyn std::any::Any>>>,
}

/// Checkpoints asked for, begun and finished, as numbers that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckpointCounts {
    pub wanted: u64,
    pub begun: u64,
    pub finished: u64,
}

impl Core {
    /// A shared reference to it.
    pub(crate) fn shared(&self) -> Rc<Core> {
        self.this.upgrade().expect("a store that is used exists")
    }

    /// Errors: `Stopped`.
    pub(crate) fn check_running(&self) -> StoreResult<()> {
        self.stopped.borrow().as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Stops the store because of `cause`: every call fails from now on.
    pub(crate) fn stop(&self, cause: &StoreError) {
        self.stop_because(&format!("{}; restart it once its device is well", cause.message));
    }

    /// As [`Core::stop`], for a reason that says itself what to do.
    pub(crate) fn stop_because(&self, reason: &str) {
        if self.stopped.borrow().is_some() {
            return;
        }
        let words = format!("{} stopped: {reason}", self.identity.target);
        self.env.log(&words);
        self.halt(StoreError::new(StoreErrorKind::Stopped, words));
    }

    /// Ends all work: at a stop, and when the last handle is dropped.
    pub(crate) fn halt(&self, error: StoreError) {
        self.writer.stop(&error);
        self.data.stop();
        self.journal.device().stop();
        self.stopped.borrow_mut().get_or_insert(error);
        self.wake_commit.notify_one();
        self.wake_checkpoint.notify_one();
        self.wake_cleaner.notify_one();
        self.progress.notify_waiters();
    }

    /// Returns `result`; an error stops the store.
    pub(crate) fn stop_on_error<T>(&self, result: StoreResult<T>) -> StoreResult<T> {
        result.inspect_err(|error| self.stop(error)).map_err(|error| self.check_running().err().unwrap_or(error))
    }

    /// Waits until `ready` returns a value. Errors: `Stopped`.
    pub(crate) async fn until<T>(&self, ready: impl Fn() -> Option<T>) -> StoreResult<T> {
        loop {
            let progress = self.progress.notified();
            if let Some(answer) = ready() {
                return Ok(answer);
            }
            self.check_running()?;
            progress.await;
        }
    }

    /// Highest group that is durable.
    pub(crate) fn committed_group(&self) -> Group {
        self.commit.borrow().committed
    }

    /// Frees emptied slabs, lets the writer continue, and wakes waiting callers.
    pub(crate) fn collect_slabs(&self) {
        self.alloc.borrow_mut().collect(self.committed_group());
        self.writer.pump();
        if self.checkpoint_makes_sure() {
            self.wake_checkpoint.notify_one();
        }
        self.progress.notify_waiters();
    }

    /// Runs `query` on the table, and loads the pages that it misses. No other task runs between its success and the
    /// caller's next await.
    pub(crate) async fn resident<T>(&self, query: impl Fn(&Table) -> Result<T, MissingPage>) -> StoreResult<T> {
        loop {
            self.check_running()?;
            let missing = match query(&self.table.borrow()) {
                Ok(answer) => return Ok(answer),
                Err(missing) => missing,
            };
            self.load_page(missing).await?;
        }
    }

    /// Loads the pages of keys `[from, to)`, several at a time.
    pub(crate) async fn load_range(&self, from: &[u8], to: &[u8]) -> StoreResult<()> {
        loop {
            let missing = self.table.borrow().missing_in(from, to, limits::PAGES_LOADED_AT_ONCE);
            if missing.is_empty() {
                return Ok(());
            }
            let load = |missing| {
                let core = self.shared();
                self.env.spawn(async move { core.load_page(missing).await })
            };
            let tasks: Vec<_> = missing.into_iter().map(load).collect();
            for task in tasks {
                task.await.unwrap_or(Ok(()))?;
            }
        }
    }

    /// Loads one page.
    pub(crate) fn load_page(&self, missing: MissingPage) -> Boxed<'_, StoreResult<()>> {
        Box::pin(async move {
            let location = missing.location;
            let good = |bytes: &[u8]| crc64(bytes) == location.sum;
            let bytes = self.read_place(location_place(&location), u64::from(location.bytes), good).await;
            let mut table = self.table.borrow_mut();
            match bytes {
                Ok(bytes) => {
                    let installed = table.install(missing.page, &location, &bytes)?;
                    drop(table);
                    self.stats.borrow_mut().pages_loaded += u64::from(installed);
                    self.evict_beyond_bound();
                    Ok(())
                }
                // The page moved meanwhile: the caller looks it up again.
                Err(_) if !table.is_live(missing.page, &location) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn evict_beyond_bound(&self) {
        let Some(bound) = self.options.cache_bytes else { return };
        if self.table.borrow().resident_bytes() as u64 > bound + bound / 4 {
            self.wake_commit.notify_one();
        }
    }

    /// Evicts clean leaves down to the bound, but only once memory exceeds it by an eighth: each eviction walks over
    /// pages. If dirty leaves take all of the bound, leaves that were just read get a quarter of it beside them.
    pub(crate) fn evict(&self) {
        let Some(bound) = self.options.cache_bytes else { return };
        let mut table = self.table.borrow_mut();
        let target = (bound as usize).max(table.dirty_bytes() + bound as usize / 4);
        if table.resident_bytes() > target + target / 8 {
            table.evict(target);
        }
    }

    /// The `length` bytes at `place`, from a copy where they are `good` if there is one. The caller verifies them.
    pub(crate) async fn read_place(
        &self,
        place: Place,
        length: u64,
        good: impl Fn(&[u8]) -> bool,
    ) -> StoreResult<Bytes> {
        read_place(&self.data, &self.geometry, place, length, good).await
    }

    /// Makes every run on the device durable. Skipped if the last flush covers all runs.
    pub(crate) async fn flush_data(&self) -> StoreResult<()> {
        let _turn = self.flushing.lock().await;
        let written = self.writer.runs_written();
        if written > self.flushed_runs.get() {
            let flushed = self.data.flush().await;
            if !planted(Bug::FlushErrorIgnored) {
                flushed?;
            }
            self.flushed_runs.set(written);
        }
        Ok(())
    }
}

/// The `length` bytes at `place`, read in whole sectors, from a copy where they are `good` if there is one.
pub(crate) async fn read_place(
    device: &Device,
    geometry: &Geometry,
    place: Place,
    length: u64,
    good: impl Fn(&[u8]) -> bool,
) -> StoreResult<Bytes> {
    let end = u64::from(place.at) + length;
    if place.slab >= geometry.slab_count || end > geometry.slab_bytes {
        return Err(StoreError::corrupt(format!(
            "a place outside of the device: slab {}, byte {}",
            place.slab, place.at
        )));
    }
    let start = u64::from(place.at) / limits::SECTOR * limits::SECTOR;
    let sectors = (end.next_multiple_of(limits::SECTOR) - start) as usize;
    let skip = (u64::from(place.at) - start) as usize;
    let within = skip..skip + length as usize;
    let good = |sectors: &[u8]| good(&sectors[within.clone()]);
    let buf: AlignedBuf = device.read_checked(geometry.device_offset(place.slab, start), sectors, good).await?;
    Ok(buf.freeze().slice(within.clone()))
}

/// Where a page lies, without its length.
pub(crate) fn location_place(location: &PageLocation) -> Place {
    Place { slab: location.slab, epoch: location.epoch, at: location.offset }
}

impl From<CorruptPage> for StoreError {
    fn from(error: CorruptPage) -> Self {
        StoreError::corrupt(error.to_string())
    }
}

impl From<MissingPage> for StoreError {
    fn from(error: MissingPage) -> Self {
        StoreError::new(StoreErrorKind::NotResident, error.to_string())
    }
}

impl From<JournalError> for StoreError {
    fn from(error: JournalError) -> Self {
        let kind = match error.kind {
            JournalErrorKind::Corrupt => StoreErrorKind::Corrupt,
            JournalErrorKind::Foreign => StoreErrorKind::Foreign,
            JournalErrorKind::Unsupported => StoreErrorKind::Unsupported,
            JournalErrorKind::Medium => StoreErrorKind::Medium,
            JournalErrorKind::FlushFailed | JournalErrorKind::Stopped => StoreErrorKind::Stopped,
            JournalErrorKind::Full => StoreErrorKind::Busy,
            JournalErrorKind::Invalid => StoreErrorKind::Invalid,
            JournalErrorKind::Io => StoreErrorKind::Io,
        };
        Self::new(kind, error.message)
    }
}
