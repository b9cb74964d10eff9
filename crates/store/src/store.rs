//! The handle.

use std::{ops::Range, time::Duration};

use bytes::Bytes;
use forebay_env::{Env, sync::watch};
use forebay_proto::{Fid, Incarnation, TargetId, Transno, Uuid, WriteId};

use crate::{FormatOptions, OpenOptions, Reservation, Space, StoreResult, StoreStats, Txn};

/// What a target's directory says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster it belongs to.
    pub cluster: Uuid,
    /// The target's own id, new at each format.
    pub uuid: Uuid,
    /// Its kind and number.
    pub target: TargetId,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Bytes of the device's full stripe.
    pub stripe_bytes: u64,
    /// Bytes of the data device.
    pub data_bytes: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Raised by `fsck --repair`; sessions of an older one are evicted.
    pub generation: u32,
}

/// What opening the store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Highest transno recovered.
    pub last_transno: Transno,
    /// Journal records applied again.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The journal ended in a torn record, which was dropped.
    pub torn_tail: bool,
    /// The store had been closed cleanly.
    pub clean: bool,
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
    /// The bytes; aligned ones of a sector's multiple go to the device without a copy.
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

/// Fragments that lie on the device (not flushed) and wait to be inserted. Dropped, their place becomes garbage.
pub struct Placed {}

/// Where an applied transaction stands in the order of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitPoint(pub(crate) u64);

/// A piece of what [`Store::read`] was asked for.
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

/// An open store. Clones share it.
#[derive(Clone)]
pub struct Store {}

#[allow(clippy::unused_async)]
impl Store {
    /// Makes a store in `dir`. Errors: `Invalid` sizes, `Busy` if one is there already.
    pub async fn format(_env: &Env, _dir: &str, _options: &FormatOptions) -> StoreResult<Identity> {
        todo!()
    }

    /// Opens the store in `dir`: recovers, durably opens a new incarnation, starts background work.
    pub async fn open(_env: &Env, _dir: &str, _options: &OpenOptions) -> StoreResult<Store> {
        todo!()
    }

    /// What it is.
    pub fn identity(&self) -> &Identity {
        todo!()
    }

    /// Counts the openings; the high bits of transnos.
    pub fn incarnation(&self) -> Incarnation {
        todo!()
    }

    /// What opening it found.
    pub fn recovery(&self) -> &RecoveryReport {
        todo!()
    }

    /// Brings the leaves of `keys` to memory: they stay until the caller's next await.
    pub async fn prefetch<K: AsRef<[u8]>>(&self, _keys: &[K]) -> StoreResult<()> {
        todo!()
    }

    /// A row's value. Errors: `NotResident`.
    pub fn get(&self, _key: &[u8]) -> StoreResult<Option<Bytes>> {
        todo!()
    }

    /// A row's value, from the device if need be.
    pub async fn load(&self, _key: &[u8]) -> StoreResult<Option<Bytes>> {
        todo!()
    }

    /// At most `limit` rows of `[from, to)`, in order.
    pub async fn scan(&self, _from: &[u8], _to: &[u8], _limit: usize) -> StoreResult<Vec<(Bytes, Bytes)>> {
        todo!()
    }

    /// Promises room for `payload_bytes` in `fragments` fragments, headers included. Waits while only garbage is in the
    /// way. Errors: `Full`, at once, when live data leaves no room.
    pub async fn reserve(&self, _payload_bytes: u64, _fragments: usize) -> StoreResult<Reservation> {
        todo!()
    }

    /// Space by use.
    pub fn space(&self) -> Space {
        todo!()
    }

    /// Puts fragments in the next free place; returns when they are on the device (not flushed).
    pub async fn place(&self, _room: Reservation, _fragments: Vec<Fragment>) -> StoreResult<Placed> {
        todo!()
    }

    /// Begins a transaction. No await between the end of a prefetch and [`Txn::apply`].
    pub fn begin(&self) -> Txn {
        todo!()
    }

    /// Brings the index of `range` of an object to memory.
    pub async fn prefetch_extents(&self, _fid: Fid, _range: Range<u64>) -> StoreResult<()> {
        todo!()
    }

    /// Waits until `point` is durable; does not hurry it.
    pub async fn committed(&self, _point: CommitPoint) -> StoreResult<()> {
        todo!()
    }

    /// Closes the running group of transactions now. Many demands share one commit.
    pub fn commit_soon(&self) {
        todo!()
    }

    /// Highest durable transno.
    pub fn last_committed(&self) -> Transno {
        todo!()
    }

    /// Tells each change of [`Store::last_committed`].
    pub fn on_commit(&self) -> watch::Receiver<Transno> {
        todo!()
    }

    /// Reads and verifies `range` of an object: segments in order, covering it without gaps.
    /// Errors: `Corrupt`, `Medium`.
    pub async fn read(&self, _fid: Fid, _range: Range<u64>) -> StoreResult<Vec<Segment>> {
        todo!()
    }

    /// Makes everything applied so far durable.
    pub async fn sync(&self) -> StoreResult<()> {
        todo!()
    }

    /// Stops cleanly: commits, checkpoints, attests.
    pub async fn close(self) -> StoreResult<()> {
        todo!()
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        todo!()
    }
}
