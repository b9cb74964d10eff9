//! Bounds of the journal. Those marked (format) are part of the bytes on disk.

use forebay_env::SECTOR_BYTES;

/// The sector as a device offset's type.
pub(super) const SECTOR: u64 = SECTOR_BYTES as u64;

/// Where the ring begins: after the two anchors. (format)
pub(super) const RING_START: u64 = 2 * SECTOR;

/// Smallest ring. (format)
pub const RING_BYTES_MIN: u64 = 16 * SECTOR;

/// Largest record; a quarter of the ring where that is less. Longer transactions are cut. (format)
pub const RECORD_BYTES_MAX: u64 = 1 << 20;

/// A record is at most the ring divided by this. (format)
pub(super) const RECORD_RING_SHARE: u64 = 4;

/// Space in an anchor for the store's own bytes. (format)
pub const EXTRA_BYTES_MAX: usize = 3 << 10;

/// The ring divided by this is reserved for the records that restarts write...
pub(super) const RESERVE_RING_SHARE: u64 = 64;
/// ... but at least this much, ...
pub(super) const RESERVE_BYTES_MIN: u64 = 4 * SECTOR;
/// ... and at most this much.
pub(super) const RESERVE_BYTES_MAX: u64 = 1024 * SECTOR;

/// Bytes that recovery's scan reads at a time: several of the longest records.
pub(super) const SCAN_READ_BYTES: u64 = 8 << 20;
/// Bytes that redo reads ahead: at least the longest record.
pub(super) const REDO_READ_BYTES: u64 = RECORD_BYTES_MAX;
