//! Space: what is used, what is promised.

/// Slabs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabCounts {
    /// May be opened.
    pub free: u32,
    /// Being written.
    pub open: u32,
    /// Written, with live data or waiting to become free.
    pub full: u32,
    /// Retired after a medium error.
    pub bad: u32,
}

/// Space of a store. `total = used + available + what is kept back`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes callers may fill (kept-back slabs, headers and bad slabs taken off).
    pub total_bytes: u64,
    /// Live bytes: file data, index pages, overhead.
    pub used_bytes: u64,
    /// Promised to reservations that are not placed yet.
    pub reserved_bytes: u64,
    /// What another reservation may take: `total - used - reserved`.
    pub available_bytes: u64,
    /// Slabs by state.
    pub slabs: SlabCounts,
}

/// A promise of room, given back when dropped, used up by [`crate::Store::place`].
#[derive(Debug)]
pub struct Reservation {}
