//! What the store counts.

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
    /// Groups committed, by the time from closing each to its durability, in microseconds.
    pub commit_us: Histogram,
    /// Of them, those that closed because their first change was old enough.
    pub closed_by_time: u64,
    /// Those that closed because the journal, the index in memory or the free slabs ran short.
    pub closed_by_size: u64,
    /// Those that closed because somebody waited for them.
    pub closed_on_demand: u64,
    /// Payload bytes given to the journal.
    pub journal_bytes: u64,
    /// Bytes of the journal's ring.
    pub journal_ring_bytes: u64,
    /// Bytes of it since the last checkpoint.
    pub journal_used_bytes: u64,
    /// Bytes of it that transactions may take before the next one. A part of the ring is kept for restarts.
    pub journal_free_bytes: u64,
    /// Times the journal's end passed the end of its ring.
    pub journal_wraps: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Bytes of index pages written by them.
    pub checkpoint_bytes: u64,
    /// Slabs emptied by the cleaner.
    pub slabs_cleaned: u64,
    /// Live bytes it moved.
    pub compacted_bytes: u64,
    /// Slabs retired after medium errors.
    pub slabs_retired: u64,
    /// Pieces of live data the cleaner found unreadable or rotten.
    pub damaged_pieces: u64,
    /// Reads whose bytes did not match their sums.
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

/// A disk of a store, and what was asked of it since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStats {
    /// `data` or `journal`.
    pub part: &'static str,
    /// Which copy of a mirrored store; 0 if there is one only.
    pub copy: usize,
    /// Counts of requests.
    pub requests: DiskRequests,
}
