//! Counters of the store.

use forebay_env::DiskRequests;
use forebay_proto::Histogram;

/// Counters since the store was opened, and a few gauges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Runs written.
    pub runs: u64,
    /// Slabs opened.
    pub slabs_opened: u64,
    /// Slabs opened that had been used before.
    pub slabs_reused: u64,
    /// Bytes of file data placed for callers.
    pub user_bytes: u64,
    /// Bytes written to the data device, everything included.
    pub device_bytes: u64,
    /// Transactions applied.
    pub transactions: u64,
    /// Groups committed: the time from closing each until it is durable, in microseconds.
    pub commit_us: Histogram,
    /// Groups that closed because their first change was old enough.
    pub closed_by_time: u64,
    /// Groups that closed because the journal, the index in memory or the free slabs ran short.
    pub closed_by_size: u64,
    /// Groups that closed because a caller waited for them.
    pub closed_on_demand: u64,
    /// Payload bytes given to the journal.
    pub journal_bytes: u64,
    /// Bytes of the journal's ring.
    pub journal_ring_bytes: u64,
    /// Bytes of the ring since the last checkpoint.
    pub journal_used_bytes: u64,
    /// Bytes of the ring that transactions may use before the next checkpoint. A part of the ring is reserved for
    /// restarts.
    pub journal_free_bytes: u64,
    /// How often the journal's head passed the end of its ring.
    pub journal_wraps: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Bytes of index pages that checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// Slabs emptied by the cleaner.
    pub slabs_cleaned: u64,
    /// Live bytes that the cleaner moved.
    pub compacted_bytes: u64,
    /// Slabs retired after medium errors.
    pub slabs_retired: u64,
    /// Pieces of live data that the cleaner found unreadable or corrupt.
    pub damaged_pieces: u64,
    /// Reads whose bytes did not match their checksums.
    pub read_corruptions: u64,
    /// Pages of the table read from the device.
    pub pages_loaded: u64,
    /// Bytes of the table in memory.
    pub table_resident_bytes: u64,
    /// Bytes of the table changed since the last checkpoint.
    pub table_dirty_bytes: u64,
    /// Bytes of the table that always stay in memory.
    pub table_fixed_bytes: u64,
    /// Tombstones written.
    pub tombstones: u64,
}

impl StoreStats {
    /// Groups committed.
    pub fn commits(&self) -> u64 {
        self.commit_us.count()
    }
}

/// A disk of a store, and the requests to it since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStats {
    /// `data` or `journal`.
    pub part: &'static str,
    /// Which copy of a mirrored store; 0 if the store has one copy.
    pub copy: usize,
    /// Counts of requests.
    pub requests: DiskRequests,
}
