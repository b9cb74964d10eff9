//! Every bound of fsck, with its reason. Those marked (format) are part of the format on disk.

/// Findings of one kind that are listed; further ones are only counted.
pub const FINDINGS_OF_A_KIND: usize = 200;
/// Memory for the fragments of slabs. A target with more is checked in several passes over its table.
pub const WINDOW_BYTES: usize = 512 << 20;
/// Bytes of a slab that are read at a time in the search for runs.
pub const SLAB_READ_BYTES: u64 = 256 << 10;
/// Bytes of the journal that are read at a time, more for a longer record.
pub const JOURNAL_READ_BYTES: u64 = 4 << 20;

/// The sector. (format)
pub const SECTOR: u64 = 4096;
/// Longest key of a row. (format)
pub const KEY_BYTES: usize = 64;
/// Longest value of a row. (format)
pub const VALUE_BYTES: usize = 192 << 10;
/// Largest leaf or inner page. (format)
pub const PAGE_BYTES: u32 = 256 << 10;
/// Most children of an inner page. (format)
pub const INNER_CHILDREN: usize = 512;
/// Page ids are below this. (format)
pub const PAGES: u64 = 1 << 26;
/// Largest root page: enough for the children of the largest table, with space to spare.
pub const ROOT_BYTES: u64 = 64 << 20;
/// Largest header of a run. (format)
pub const RUN_HEADER_BYTES: u32 = 1 << 20;
/// Where the journal's ring begins. (format)
pub const RING_START: u64 = 2 * SECTOR;
/// Smallest ring. (format)
pub const RING_BYTES_MIN: u64 = 16 * SECTOR;
/// Longest record; a quarter of the ring where that is less. (format)
pub const RECORD_BYTES: u64 = 1 << 20;
/// Lsns are below this. (format)
pub const LSN_MAX: u64 = 1 << 62;
/// The store's own bytes in an anchor. (format)
pub const ANCHOR_EXTRA_BYTES: usize = 3 << 10;
/// Longest extent. (format)
pub const EXTENT_BYTES: u64 = 4 << 20;
/// What an extent adds to its slab's live bytes, besides its bytes and sums. (format: the slab snapshot's live bytes)
pub const EXTENT_OVERHEAD_BYTES: u64 = 96;
/// Smallest and largest slab. (format)
pub const SLAB_BYTES: std::ops::RangeInclusive<u64> = (128 << 10)..=(1 << 30);
/// Where the first slot of a shared journal device may begin. (format)
pub const SLOTS_START: u64 = 1 << 20;
/// Slots per device. (format)
pub const SLOTS: usize = 63;
/// The incarnation of a rebuilt journal is this far above the highest one that the slabs name, as some starts wrote to
/// no slab.
pub const INCARNATIONS_UNSEEN: u32 = 1 << 10;
/// Collision numbers of one name hash are below this. (format)
pub const COLLISIONS: u64 = (1 << 15) - 1;
