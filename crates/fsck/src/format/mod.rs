//! Decoders of the format on disk, written from `docs/format*.md` alone.
//!
//! Invariant: pure functions over slices. They never panic, and allocate no more than the input's length.

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

/// The location of a piece of a slab. It refers to pages, roots and snapshot pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The slab.
    pub slab: u32,
    /// The slab's epoch.
    pub epoch: u64,
    /// First byte within the slab.
    pub at: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// CRC-64/NVME of those bytes.
    pub sum: u64,
}

/// The little-endian word at `at`, or 0 beyond the end. Callers check lengths first.
pub(crate) fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The same for four bytes.
pub(crate) fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}
