//! The handle of an open store: its public functions.

use std::{ops::Range, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_env::{Boxed, Bug, Env, planted, sync::watch};
use forebay_proto::{Fid, Incarnation, Transno, Uuid, WriteId};

use crate::{
    DeviceStats, FormatOptions, Identity, JournalSlot, MirrorPlace, MirrorStatus, MovedJournal, NewJournal,
    OpenOptions, Placed, Reservation, Space, StoreError, StoreErrorKind, StoreResult, StoreStats, Txn, commit::Close,
    core::Core, format, mirror, recovery, slots, table::Row, txn::check_key,
};

/// What opening the store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Highest transno recovered.
    pub last_transno: Transno,
    /// Transactions redone from the journal.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// The journal ended in a torn record, which was dropped.
    pub torn_tail: bool,
    /// The store had been closed cleanly.
    pub clean: bool,
    /// Slabs that were found to have been opened since the last checkpoint.
    pub slabs_opened: u32,
    /// How long it took.
    pub duration: Duration,
}

/// File data to be placed: bytes of one object, checksummed by their writer.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// The object.
    pub fid: Fid,
    /// First byte within the object.
    pub offset: u64,
    /// The bytes. If aligned, and a multiple of the sector long, they go to the device without a copy.
    pub data: Bytes,
    /// Chosen by the writer.
    pub write_id: WriteId,
    /// Given by the target.
    pub version: Transno,
    /// Layout generation of the write.
    pub generation: u32,
    /// `proto::crc::block_sum` of each block, in order. The store trusts them: verify at arrival.
    pub sums: Vec<u64>,
}

/// Where an applied transaction stands in the order of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitPoint(pub(crate) u64);

/// A piece of the range that [`Store::read`] was called with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte within the object.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What is there.
    pub body: SegmentBody,
}

/// What lies in a [`Segment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentBody {
    /// Verified bytes of one write.
    Data {
        /// The bytes.
        bytes: Bytes,
        /// The writer's id, which seeds the sums.
        write_id: WriteId,
        /// The target's version.
        version: Transno,
        /// Sums of the returned blocks, cut at multiples of 64 KiB of the object's offset.
        sums: Vec<u64>,
    },
    /// Nothing was written there: zeros.
    Hole,
}

/// An open store, shared by its clones. When the last one is dropped, background work ends and uncommitted changes are
/// lost.
#[derive(Clone)]
pub struct Store {
    core: Rc<Core>,
    _handle: Rc<Handle>,
}

/// Ends background work when the last [`Store`] is dropped.
struct Handle(Rc<Core>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.halt(StoreError::new(StoreErrorKind::Stopped, "the store is closed"));
    }
}

impl Store {
    /// Makes a store in `dir`. Errors: `Invalid` sizes, `Busy` if one is there already.
    pub fn format<'a>(env: &'a Env, dir: &'a str, options: &'a FormatOptions) -> Boxed<'a, StoreResult<Identity>> {
        Box::pin(async move { format::format(env, dir, options).await })
    }

    /// Opens the store in `dir`: recovers, durably opens a new incarnation, starts background work.
    ///
    /// Errors: `Foreign`, `Unsupported`, `Corrupt` (do not serve; fsck), `Busy` when another process has it open.
    pub fn open<'a>(env: &'a Env, dir: &'a str, options: &'a OpenOptions) -> Boxed<'a, StoreResult<Store>> {
        Box::pin(async move {
            let core = recovery::open(env, dir, options).await?;
            drop(env.spawn(core.clone().commit_loop()));
            drop(env.spawn(core.clone().checkpoint_loop()));
            drop(env.spawn(core.clone().clean_loop()));
            core.wake_checkpoint.notify_one();
            core.wake_cleaner.notify_one();
            Ok(Store { _handle: Rc::new(Handle(core.clone())), core })
        })
    }

    /// The identity in `dir`, without opening the store.
    pub fn peek_identity(env: &Env, dir: &str) -> StoreResult<Identity> {
        format::read_identity(env, dir)
    }

    /// Prepares `place` for a new copy of a mirrored store. It replaces the lost copy; or, if none is lost, the one
    /// that `dir` names as the other. A server of the store, now or later, fills the new copy. Returns the directory of
    /// the copy that stays.
    ///
    /// `overwrite`: the devices of `place` may be overwritten, whatever they hold. A copy of this store may be
    /// overwritten in any case. Errors: `Invalid`, in words; `Busy`.
    pub fn mirror_replace<'a>(
        env: &'a Env,
        dir: &'a str,
        place: &'a MirrorPlace,
        overwrite: bool,
    ) -> Boxed<'a, StoreResult<String>> {
        Box::pin(async move { mirror::replace(env, dir, place, overwrite).await })
    }

    /// Declares the missing copy of a mirrored store lost for good. Errors: `Invalid`, in words; `Busy`.
    pub fn mirror_alone<'a>(env: &'a Env, dir: &'a str) -> Boxed<'a, StoreResult<()>> {
        Box::pin(async move { mirror::alone(env, dir).await })
    }

    /// Moves the journal of the cleanly stopped store in `dir` to `to`. If that device is shared, or blank with space
    /// for a slot, the journal takes a slot; else the whole device. After a crash, the same call finishes the move.
    /// Errors: in words; the store is as it was.
    pub fn move_journal<'a>(env: &'a Env, dir: &'a str, to: &'a str) -> Boxed<'a, StoreResult<MovedJournal>> {
        Box::pin(async move { slots::relocate(env, dir, to).await })
    }

    /// Gives the store in `dir`, whose journal is lost, an empty location for another one, chosen as
    /// [`Store::move_journal`] chooses. The store cannot be opened before a journal is made there. Errors: in words;
    /// nothing has changed.
    pub fn new_journal<'a>(env: &'a Env, dir: &'a str, to: &'a str) -> Boxed<'a, StoreResult<NewJournal>> {
        Box::pin(async move { slots::anew(env, dir, to).await })
    }

    /// Undoes [`Store::new_journal`].
    pub fn no_new_journal<'a>(env: &'a Env, dir: &'a str, new: &'a NewJournal) -> Boxed<'a, StoreResult<()>> {
        Box::pin(async move { new.undo(env, dir).await })
    }

    /// The slots of a shared journal device, and the targets that own them. Errors: `Foreign` if it has no slots.
    pub fn journal_slots<'a>(env: &'a Env, path: &'a str) -> Boxed<'a, StoreResult<Vec<JournalSlot>>> {
        Box::pin(async move { slots::list(env, path).await })
    }

    /// Frees the slot of a store that no longer exists. Errors: `Invalid` if it has none there, `Busy` while it is
    /// open.
    pub fn free_journal_slot<'a>(env: &'a Env, path: &'a str, target: Uuid) -> Boxed<'a, StoreResult<()>> {
        Box::pin(async move { slots::free(env, path, target).await })
    }

    /// State of the copies. None: the store is not mirrored.
    pub fn mirror(&self) -> Option<MirrorStatus> {
        let (data, journal) = (self.core.data.mirror()?, self.core.journal.device().mirror()?);
        Some(MirrorStatus { parts: vec![data.status(), journal.status()] })
    }

    /// The store's identity.
    pub fn identity(&self) -> &Identity {
        &self.core.identity
    }

    /// The number of this start; the high bits of transnos.
    pub fn incarnation(&self) -> Incarnation {
        self.core.incarnation
    }

    /// What recovery found when the store was opened.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.core.report
    }

    /// Loads the leaves of `keys` into memory; they stay until the caller's next await. Waits while space in the
    /// journal, or for index pages, is short.
    pub async fn prefetch<K: AsRef<[u8]>>(&self, keys: &[K]) -> StoreResult<()> {
        keys.iter().try_for_each(|key| check_key(key.as_ref()))?;
        self.core.admits().await?;
        self.core.resident(|table| keys.iter().try_for_each(|key| table.get(key.as_ref()).map(drop))).await
    }

    /// True while the store's own writes find no space on a thin-provisioned device. New data may be refused then, even
    /// if its space was reserved.
    pub fn is_out_of_backing_space(&self) -> bool {
        self.core.writer.stalled().is_some()
    }

    /// A row's value. Errors: `NotResident`.
    pub fn get(&self, key: &[u8]) -> StoreResult<Option<Bytes>> {
        check_key(key)?;
        self.core.check_running()?;
        Ok(self.core.table.borrow().get(key)?.map(Bytes::copy_from_slice))
    }

    /// A row's value, read from the device if it is not in memory.
    pub async fn load(&self, key: &[u8]) -> StoreResult<Option<Bytes>> {
        check_key(key)?;
        self.core.resident(|table| Ok(table.get(key)?.map(Bytes::copy_from_slice))).await
    }

    /// At most `limit` rows of `[from, to)`, in order.
    pub fn scan<'a>(
        &'a self,
        from: &'a [u8],
        to: &'a [u8],
        limit: usize,
    ) -> Boxed<'a, StoreResult<Vec<(Bytes, Bytes)>>> {
        Box::pin(async move {
            check_key(from)?;
            check_key(to)?;
            self.core
                .resident(|table| {
                    let row = |row: Row<'_>| (Bytes::copy_from_slice(&row.key), Bytes::copy_from_slice(row.value));
                    table.range(from, to).take(limit).map(|found| found.map(row)).collect()
                })
                .await
        })
    }

    /// Reserves space for `payload_bytes` in `fragments` fragments, headers included. Waits while only garbage takes
    /// the space, or the journal is short of space. Errors: `Full`, at once, when live data leaves no space.
    pub async fn reserve(&self, payload_bytes: u64, fragments: usize) -> StoreResult<Reservation> {
        self.reserve_from(payload_bytes, fragments, 0).await
    }

    /// As [`Store::reserve`], when space for `aside` bytes of the payload is withheld for this request already (by
    /// fallocate or a grant).
    pub fn reserve_from(
        &self,
        payload_bytes: u64,
        fragments: usize,
        aside: u64,
    ) -> Boxed<'_, StoreResult<Reservation>> {
        Box::pin(async move {
            self.core.note_call();
            self.core.reserve(payload_bytes, fragments, aside).await
        })
    }

    /// Promises space for `payload_bytes` of later writes. Hold the promise until they are written, or counted by
    /// [`Store::set_aside`]. Errors: `Full`, at once.
    pub fn promise(&self, payload_bytes: u64) -> StoreResult<Reservation> {
        self.core.promise(payload_bytes)
    }

    /// The largest promise that [`Store::promise`] makes now.
    pub fn promisable_bytes(&self) -> u64 {
        self.core.promisable_bytes()
    }

    /// As [`Store::promise`], for a promise that was made before a restart. Small pieces of other writes may have used
    /// a little of its space since.
    pub fn reclaim_promise(&self, payload_bytes: u64) -> StoreResult<Reservation> {
        self.core.reclaim_promise(payload_bytes)
    }

    /// The largest promise that [`Store::reclaim_promise`] makes now.
    pub fn reclaimable_bytes(&self) -> u64 {
        self.core.reclaimable_bytes()
    }

    /// Bytes of available space that a promise of `payload_bytes` takes.
    pub fn promise_weight(payload_bytes: u64) -> u64 {
        crate::space::aside_weight(payload_bytes)
    }

    /// Counts space that rows of the caller reserve for later writes (fallocate): some that reserved `before` bytes now
    /// reserve `now` bytes. Other requests find that much less space. This is never refused. After a restart the count
    /// starts at 0.
    pub fn set_aside(&self, before: u64, now: u64) {
        self.core.set_aside(before, now);
    }

    /// Space by use.
    pub fn space(&self) -> Space {
        self.core.space()
    }

    /// Writes fragments to the next free location; returns when they are on the device (not flushed).
    ///
    /// Fragments of one call must not overlap, and must fit the reservation. Errors: `Invalid`, `Medium`, `Stopped`.
    pub fn place(&self, room: Reservation, fragments: Vec<Fragment>) -> Boxed<'_, StoreResult<Placed>> {
        Box::pin(async move { self.core.place(room, fragments).await })
    }

    /// Begins a transaction. No await between the end of a prefetch and [`Txn::apply`].
    pub fn begin(&self) -> Txn {
        self.core.note_call();
        Txn::new(self.core.clone())
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// Loads the index of `range` of an object into memory; it stays until the caller's next await.
    pub async fn prefetch_extents(&self, fid: Fid, range: Range<u64>) -> StoreResult<()> {
        self.core.admits().await?;
        self.core.prefetch_extents(fid, range).await
    }

    /// Loads the index of the last `limit` extents of an object's `range` into memory, for [`Txn::tail_begins`].
    pub async fn prefetch_tail(&self, fid: Fid, range: Range<u64>, limit: usize) -> StoreResult<()> {
        self.core.admits().await?;
        self.core.prefetch_tail(fid, range, limit).await
    }

    /// Waits until `point` is durable, without asking for an earlier commit.
    pub async fn committed(&self, point: CommitPoint) -> StoreResult<()> {
        self.core.committed(point.0).await
    }

    /// True if `point` is durable.
    pub fn is_committed(&self, point: CommitPoint) -> bool {
        self.core.committed_group() >= point.0
    }

    /// Closes the running group of transactions now. Concurrent requests share one commit.
    pub fn commit_soon(&self) {
        self.core.demand_commit(Close::Demand);
    }

    /// True if a group of transactions is being committed.
    pub fn is_committing(&self) -> bool {
        self.core.commits_in_flight() > 0
    }

    /// Commit latency: the recent average, or the age of the oldest commit or data write in progress if that is larger.
    /// Zero: no recent commit, and nothing in progress.
    pub fn commit_latency(&self) -> Duration {
        self.core.pace.get(self.core.env.now())
    }

    /// True if a checkpoint has begun and is not durable yet.
    pub fn is_checkpointing(&self) -> bool {
        let counts = self.core.checkpoints.get();
        counts.begun > counts.finished
    }

    /// Highest durable transno.
    pub fn last_committed(&self) -> Transno {
        *self.core.last_committed.borrow()
    }

    /// Notifies the receiver of each change of [`Store::last_committed`].
    pub fn on_commit(&self) -> watch::Receiver<Transno> {
        self.core.last_committed.subscribe()
    }

    /// Reads and verifies `range` of an object: segments in order, covering it without gaps.
    /// Errors: `Corrupt`, `Medium`.
    pub fn read(&self, fid: Fid, range: Range<u64>) -> Boxed<'_, StoreResult<Vec<Segment>>> {
        Box::pin(async move {
            self.core.note_call();
            self.core.read(fid, &[range]).await
        })
    }

    /// As [`Store::read`], for several ranges, in order and not overlapping: returns their segments one after another.
    /// Ranges that lie side by side on the device are read together. Also returns the value of `key`, if it exists, of
    /// the same moment as the bytes.
    pub fn read_with_row<'a>(
        &'a self,
        fid: Fid,
        ranges: &'a [Range<u64>],
        key: &'a [u8],
    ) -> Boxed<'a, StoreResult<(Option<Bytes>, Vec<Segment>)>> {
        Box::pin(async move {
            self.core.note_call();
            self.core.read_with_row(fid, ranges, Some(key)).await
        })
    }

    /// Makes everything applied so far durable.
    pub fn sync(&self) -> Boxed<'_, StoreResult<()>> {
        Box::pin(async move { self.core.sync().await })
    }

    /// Makes a checkpoint of everything applied so far.
    pub fn checkpoint(&self) -> Boxed<'_, StoreResult<()>> {
        Box::pin(async move { self.core.checkpoint_now().await })
    }

    /// Stops cleanly: commits, checkpoints, attests. Other clones fail with `Stopped` afterwards.
    pub fn close(self) -> Boxed<'static, StoreResult<()>> {
        Box::pin(async move {
            // The async block captures only the fields that it uses: without this line `_handle` would be dropped, and
            // the store would halt, at once.
            let Self { core, _handle } = self;
            core.sync().await?;
            core.checkpoint_now().await?;
            core.attest_clean().await?;
            core.halt(StoreError::new(StoreErrorKind::Stopped, "the store is closed"));
            core.data.close().await;
            core.journal.device().close().await;
            core.lock.take();
            Ok(())
        })
    }

    /// Stops the store if a file of its devices has been deleted: whatever is written from then on disappears with the
    /// server process. One system call for each file. Errors: `Stopped`, with the reason.
    pub fn check_devices(&self) -> StoreResult<()> {
        if let Some(path) = self.deleted() {
            self.core.stop_because(&format!(
                "{path} was deleted while it was served; nothing is acknowledged any more, as it would be lost with this process"
            ));
        }
        self.core.check_running()
    }

    /// True if a file of its devices has been deleted.
    pub fn is_deleted(&self) -> bool {
        self.deleted().is_some()
    }

    fn deleted(&self) -> Option<String> {
        let deleted = self.core.data.deleted().or_else(|| self.core.journal.device().deleted());
        deleted.filter(|_| !planted(Bug::DeletedServed))
    }

    /// Why the store stopped, if it did.
    pub fn stopped(&self) -> Option<StoreError> {
        self.core.check_running().err()
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        let mut stats = self.core.stats.borrow().clone();
        let table = self.core.table.borrow();
        stats.table_resident_bytes = table.resident_bytes() as u64;
        stats.table_dirty_bytes = table.dirty_bytes() as u64;
        stats.table_fixed_bytes = table.fixed_bytes() as u64;
        let journal = &self.core.journal;
        stats.journal_ring_bytes = journal.ring_bytes();
        stats.journal_used_bytes = journal.used_bytes();
        stats.journal_free_bytes = journal.free_bytes();
        stats
    }

    /// Requests to the store's disks, for each copy in use now. Data and journal on one disk are counted separately.
    pub fn devices(&self) -> Vec<DeviceStats> {
        let parts = [("data", &self.core.data), ("journal", self.core.journal.device())];
        let of = |(part, device): (&'static str, &mirror::Device)| {
            let requests = device.requests().into_iter();
            requests.map(|(copy, requests)| DeviceStats { part, copy, requests }).collect::<Vec<_>>()
        };
        parts.into_iter().flat_map(of).collect()
    }
}
