//! Decoders of the bytes on disk, written from `docs/format*.md` alone.
//!
//! Invariant: pure functions over slices; nothing here panics or allocates more than the input is long.

pub mod anchor;
pub mod device;
pub mod extent;
pub mod identity;
pub mod label;
pub mod page;
pub mod payload;
pub mod record;
pub mod run;
pub mod slots;
pub mod snapshot;
pub mod varint;

/// Where a piece of a slab lies, as pages, roots and snapshots are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The slab.
    pub slab: u32,
    /// That slab's opening.
    pub epoch: u64,
    /// First byte within the slab.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
    /// CRC-64/NVME of those bytes.
    pub sum: u64,
}

/// The little-endian word at `at`; 0 beyond the end (callers check lengths first).
pub(crate) fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// As [`word64`], of four bytes.
pub(crate) fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}
