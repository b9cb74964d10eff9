//! Transactions: changes of rows, collected privately and applied at once.
//!
//! Invariant: a transaction that fails has changed nothing.
//! Not here: when a transaction becomes durable (see `commit`), and how overlapping writes change extents (see
//! `extent`).

use std::{collections::BTreeMap, ops::Range, rc::Rc};

use bytes::Bytes;
use forebay_proto::{Fid, Transno, WriteId};

use crate::{
    CommitPoint, Placed, StoreError, StoreErrorKind, StoreResult,
    commit::Close,
    core::Core,
    extent::{self, Change, Extent},
    limits,
    redo::{Step, step_bytes},
    slab::{run::FragmentKind, writer::Item},
    table::{
        Key, MissingPage, Table,
        limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
    },
};

/// A transaction being built. Nothing is visible before [`Txn::apply`]; a transaction that is dropped leaves no trace.
///
/// Keys are at most 64 bytes long, values at most 192 KiB. Keys that begin with a byte below 0x10 are the store's own.
pub struct Txn {
    core: Rc<Core>,
    rows: BTreeMap<Key, Option<Bytes>>,
    tombstones: Vec<Item>,
    transno: Transno,
    /// Fragments whose slabs stay pinned until the index has them.
    placed: Vec<Placed>,
}

impl Txn {
    pub(crate) fn new(core: Rc<Core>) -> Self {
        Self { core, rows: BTreeMap::new(), tombstones: Vec::new(), transno: Transno(0), placed: Vec::new() }
    }

    /// The row's value, as this transaction will leave it. Errors: `NotResident`.
    pub fn get(&self, key: &[u8]) -> StoreResult<Option<Bytes>> {
        check_key(key)?;
        match self.rows.get(&Key::new(key)) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.core.table.borrow().get(key)?.map(Bytes::copy_from_slice)),
        }
    }

    /// Sets a row. Panics on a key of the store's own.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) {
        assert!(key.as_ref().first().is_some_and(|space| *space >= 0x10), "keys below 0x10 are the store's own");
        self.set(key.as_ref(), Some(value.into()));
    }

    /// Removes a row, if it exists.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        assert!(key.as_ref().first().is_some_and(|space| *space >= 0x10), "keys below 0x10 are the store's own");
        self.set(key.as_ref(), None);
    }

    /// Makes placed fragments visible, and trims the extents that they overlap. Prefetch the extents of each fragment's
    /// range just before. Errors: `NotResident`.
    pub fn insert(&mut self, placed: Placed) -> StoreResult<()> {
        for new in placed.extents() {
            let existing = self.overlapping(new.0, new.1.offset..new.1.end())?;
            self.change(new.0, extent::plan_insert(&existing, new.1));
        }
        self.placed.push(placed);
        Ok(())
    }

    /// Removes an object's bytes from `object_bytes` on. Prefetch the extents of `object_bytes..u64::MAX` just before.
    pub fn truncate(&mut self, fid: Fid, object_bytes: u64, version: Transno) -> StoreResult<()> {
        self.remove(FragmentKind::Truncate, fid, object_bytes..u64::MAX, version)
    }

    /// Removes an object's bytes in `range`. Prefetch its extents just before.
    pub fn punch(&mut self, fid: Fid, range: Range<u64>, version: Transno) -> StoreResult<()> {
        self.remove(FragmentKind::Punch, fid, range, version)
    }

    /// Removes all bytes of an object. Prefetch the extents of `0..u64::MAX` just before.
    pub fn destroy(&mut self, fid: Fid, version: Transno) -> StoreResult<()> {
        self.remove(FragmentKind::Destroy, fid, 0..u64::MAX, version)
    }

    /// Offset at which the last `limit` extents of an object's `range` begin; `range.start` if there are fewer. To cut
    /// objects of any size in bounded steps: [`crate::Store::prefetch_tail`], this, then [`Txn::truncate`] or
    /// [`Txn::punch`] from there.
    pub fn tail_begins(&self, fid: Fid, range: Range<u64>, limit: usize) -> StoreResult<u64> {
        let tail = tail_extents(&self.core.table.borrow(), fid, &range, limit)?;
        Ok(tail_start(&tail, &range, limit))
    }

    /// How many bytes of an object's `range` hold data. Prefetch its extents just before. Errors: `NotResident`.
    pub fn data_bytes(&self, fid: Fid, range: Range<u64>) -> StoreResult<u64> {
        let found = self.overlapping(fid, range.clone())?;
        let within = |extent: &Extent| extent.end().min(range.end).saturating_sub(extent.offset.max(range.start));
        Ok(found.iter().map(within).sum())
    }

    /// The parts of an object's `range` that hold data, in order, each with the write that it comes from. Prefetch its
    /// extents just before. Errors: `NotResident`.
    pub fn writes(&self, fid: Fid, range: Range<u64>) -> StoreResult<Vec<(Range<u64>, WriteId)>> {
        let found = self.overlapping(fid, range.clone())?;
        let within = |extent: &Extent| extent.offset.max(range.start)..extent.end().min(range.end);
        Ok(found.iter().map(|extent| (within(extent), extent.write_id)).filter(|(of, _)| !of.is_empty()).collect())
    }

    /// Sets the highest transno contained: `last_committed` moves to it when this transaction is durable.
    pub fn set_transno(&mut self, transno: Transno) {
        self.transno = transno;
    }

    /// Changes the table, at once and as a whole. Errors: `NotResident` (nothing changed: prefetch, build it anew),
    /// `Stopped`, `Busy` (the running group would exceed three eighths of the journal, or the space left in it).
    pub fn apply(self) -> StoreResult<CommitPoint> {
        let core = self.core.clone();
        core.check_running()?;
        let bytes: usize = self.rows.iter().map(|(key, value)| step_bytes(key, value.as_deref())).sum();
        self.rows.values().flatten().try_for_each(|value| core.check_value(value))?;
        core.refuse_flood(bytes as u64)?;
        let missing = core.table.borrow().missing_for(self.rows.keys());
        if let Some(missing) = missing.first() {
            return Err((*missing).into());
        }
        Ok(core.apply(self.rows, self.tombstones, self.transno))
        // The index has the placed fragments now: dropping them here unpins their slabs.
    }

    pub(crate) fn set(&mut self, key: &[u8], value: Option<Bytes>) {
        self.rows.insert(Key::new(key), value);
    }

    /// Replaces the extent whose row is `key` by others, if its value is still `value`. For the cleaner.
    pub(crate) fn replace_extent(&mut self, key: &[u8], value: &[u8], fid: Fid, by: &[Extent]) -> StoreResult<bool> {
        if self.get(key)?.as_deref() != Some(value) {
            return Ok(false);
        }
        self.set(key, None);
        by.iter().for_each(|extent| self.set(&extent::key(fid, extent.offset), Some(extent.encode().into())));
        Ok(true)
    }

    /// Keeps the slabs of `placed` pinned until this transaction is applied.
    pub(crate) fn hold(&mut self, placed: Placed) {
        self.placed.push(placed);
    }

    fn remove(&mut self, kind: FragmentKind, fid: Fid, range: Range<u64>, version: Transno) -> StoreResult<()> {
        if range.start >= range.end {
            return Ok(());
        }
        let existing = self.overlapping(fid, range.clone())?;
        self.change(fid, extent::plan_remove(&existing, range.clone()));
        let length = if range.end == u64::MAX { u64::MAX } else { range.end - range.start };
        self.tombstones.push(tombstone(kind, fid, range.start, length, version));
        Ok(())
    }

    fn change(&mut self, fid: Fid, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Delete(offset) => self.set(&extent::key(fid, offset), None),
                Change::Put(extent) => self.set(&extent::key(fid, extent.offset), Some(extent.encode().into())),
            }
        }
    }

    /// Extents that overlap `range`, in order, as this transaction will leave them.
    fn overlapping(&self, fid: Fid, range: Range<u64>) -> StoreResult<Vec<Extent>> {
        let (from, to) = (extent::key(fid, range.start), extent::key(fid, range.end));
        let table = self.core.table.borrow();
        let mut found: BTreeMap<Key, Bytes> = BTreeMap::new();
        if let Some(row) = table.last_before(&from)?.filter(|row| !self.rows.contains_key(&row.key)) {
            found.insert(row.key, Bytes::copy_from_slice(row.value));
        }
        for row in table.range(&from, &to) {
            let row = row?;
            if !self.rows.contains_key(&row.key) {
                found.insert(row.key, Bytes::copy_from_slice(row.value));
            }
        }
        let own = |(key, value): (&Key, &Option<Bytes>)| value.clone().map(|value| (*key, value));
        found.extend(self.rows.range(..Key::new(&from)).rev().find_map(own));
        found.extend(self.rows.range(Key::new(&from)..Key::new(&to)).filter_map(own));
        let mut extents = Vec::with_capacity(found.len());
        for (key, value) in found {
            let Some((owner, offset)) = extent::parse_key(&key) else { continue };
            if owner == fid {
                let extent = decode_row(fid, offset, &value)?;
                extents.extend((extent.end() > range.start).then_some(extent));
            }
        }
        Ok(extents)
    }
}

/// The extent in a row. Errors: `Corrupt`.
pub(crate) fn decode_row(fid: Fid, offset: u64, value: &[u8]) -> StoreResult<Extent> {
    Extent::decode(offset, value)
        .map_err(|error| StoreError::corrupt(format!("the index of object {fid} at {offset}: {error}; run fsck")))
}

/// Why the last extents of an object could not be found.
pub(crate) enum TailError {
    Missing(MissingPage),
    Store(StoreError),
}

impl From<MissingPage> for TailError {
    fn from(missing: MissingPage) -> Self {
        Self::Missing(missing)
    }
}

impl From<StoreError> for TailError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<TailError> for StoreError {
    fn from(error: TailError) -> Self {
        match error {
            TailError::Missing(missing) => missing.into(),
            TailError::Store(error) => error,
        }
    }
}

/// The `limit` last extents that overlap `range`, last first.
pub(crate) fn tail_extents(
    table: &Table,
    fid: Fid,
    range: &Range<u64>,
    limit: usize,
) -> Result<Vec<Extent>, TailError> {
    let mut found = Vec::new();
    let mut before = Key::new(&extent::key(fid, range.end));
    while found.len() < limit {
        let Some(row) = table.last_before(&before)? else { break };
        let Some((owner, offset)) = extent::parse_key(&row.key).filter(|(owner, _)| *owner == fid) else { break };
        let extent = decode_row(owner, offset, row.value)?;
        if extent.end() <= range.start {
            break;
        }
        found.push(extent);
        before = row.key;
    }
    Ok(found)
}

/// Where the extents of `tail` begin, or `range.start` if they are fewer than `limit`.
pub(crate) fn tail_start(tail: &[Extent], range: &Range<u64>, limit: usize) -> u64 {
    let first = tail.last().filter(|_| tail.len() >= limit);
    first.map_or(range.start, |extent| extent.offset.max(range.start))
}

fn tombstone(kind: FragmentKind, fid: Fid, offset: u64, length: u64, version: Transno) -> Item {
    Item {
        kind,
        fid,
        offset,
        length,
        data: Bytes::new(),
        write_id: WriteId::default(),
        version,
        generation: 0,
        origin_epoch: 0,
        sums: Vec::new(),
    }
}

pub(crate) fn check_key(key: &[u8]) -> StoreResult<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(StoreError::invalid(format!("a key of {} bytes; at most {KEY_BYTES_MAX} are allowed", key.len())))
}

impl Core {
    /// Errors: `Invalid` for a value that is too large: a page must hold any row, and a slab any page.
    fn check_value(&self, value: &[u8]) -> StoreResult<()> {
        let most = VALUE_BYTES_MAX.min(self.geometry.slab_bytes as usize / 4);
        if value.len() <= most {
            return Ok(());
        }
        Err(StoreError::invalid(format!("a value of {} bytes; at most {most} are allowed here", value.len())))
    }

    /// Errors: `Busy` when the running group would outgrow the journal; admission (`journal_admits`) makes that rare.
    fn refuse_flood(&self, more_bytes: u64) -> StoreResult<()> {
        let running = self.commit.borrow().running.redo.len() as u64;
        // What is applied must fit the journal as it is: a checkpoint, which frees space, begins only behind the
        // running group.
        let total = running + more_bytes;
        if total <= self.journal.ring_bytes() * 3 / 8 && self.journal.room_for(total + limits::OWN_ROWS_BYTES) {
            return Ok(());
        }
        self.demand_commit(Close::Size);
        Err(StoreError::new(StoreErrorKind::Busy, "too much waits to be committed: try again after the next commit"))
    }

    /// Sets a row of the store's own in the running group. Its leaf is resident.
    pub(crate) fn put_own_row(&self, key: &[u8], value: &'static [u8]) {
        self.apply(BTreeMap::from([(Key::new(key), Some(Bytes::from_static(value)))]), Vec::new(), Transno(0));
    }

    fn apply(&self, rows: BTreeMap<Key, Option<Bytes>>, tombstones: Vec<Item>, transno: Transno) -> CommitPoint {
        let mut commit = self.commit.borrow_mut();
        if rows.is_empty() && tombstones.is_empty() && transno == Transno(0) {
            return CommitPoint(commit.running.number - 1);
        }
        let group = commit.running.number;
        let mut table = self.table.borrow_mut();
        // A leaf is dropped with its last row, and the leaf that then takes its keys may not be in memory. So puts come
        // first, which only split leaves; and rows that do not exist are not deleted.
        let found = |value: Result<Option<&[u8]>, MissingPage>| value.expect("it was found resident").is_some();
        let puts = rows.iter().filter_map(|(key, value)| Some((key, Some(value.as_deref()?))));
        let deletes = rows.iter().filter(|(key, value)| value.is_none() && found(table.get(key)));
        let steps: Vec<(&Key, Option<&[u8]>)> = puts.chain(deletes.map(|(key, _)| (key, None))).collect();
        for (key, value) in steps {
            let old = match value {
                Some(value) => table.put(key, value),
                None => table.delete(key),
            };
            let old = old.expect("the leaf was found resident and nothing ran since");
            commit.running.redo.push(value.map_or(Step::Delete(key), |value| Step::Put(key, value)));
            self.account(key, old.as_deref(), value, group);
        }
        if transno != Transno(0) {
            commit.running.redo.push(Step::Transno(transno));
            commit.running.transno = commit.running.transno.max(transno);
        }
        commit.running.tombstones.extend(tombstones);
        commit.running.first_at.get_or_insert(self.env.now());
        let (bytes, transactions) = (commit.running.redo.len() as u64, 1);
        drop((commit, table));
        self.stats.borrow_mut().transactions += transactions;
        // The commit task sets its timer by the first change, and starts at once when the group is large enough.
        if bytes >= self.group_bytes_max() {
            self.demand_commit(Close::Size);
        } else {
            self.wake_commit.notify_one();
        }
        CommitPoint(group)
    }

    /// Updates the live bytes of slabs when a row changes.
    fn account(&self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>, group: u64) {
        if key.first() != Some(&extent::SPACE) {
            return;
        }
        let mut alloc = self.alloc.borrow_mut();
        if let Some((place, weight)) = new.and_then(|value| extent::row_weight(key, value)) {
            alloc.add_data(place, weight);
        }
        if let Some((place, weight)) = old.and_then(|value| extent::row_weight(key, value)) {
            alloc.remove_data(place, weight, group);
        }
    }
}
