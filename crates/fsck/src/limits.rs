//! Every bound of fsck, with its reason. Those marked (format) are part of the bytes on disk.

/// Findings of one kind that are kept in words; the rest is counted.
pub const FINDINGS_OF_A_KIND: usize = 200;
/// Memory for what slabs say they hold. A target with more is checked in several passes over its table.
pub const WINDOW_BYTES: usize = 512 << 20;
/// What is read of a slab at a time while its runs are looked for.
pub const SLAB_READ_BYTES: u64 = 256 << 10;
/// What is read of the journal at a time, more where a longer record lies.
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
/// Page ids lie below. (format)
pub const PAGES: u64 = 1 << 26;
/// Largest root page: what the children of the largest table take, with room to spare.
pub const ROOT_BYTES: u64 = 64 << 20;
/// Largest header of a run. (format)
pub const RUN_HEADER_BYTES: u32 = 1 << 20;
/// Where the journal's ring begins. (format)
pub const RING_START: u64 = 2 * SECTOR;
/// Smallest ring. (format)
pub const RING_BYTES_MIN: u64 = 16 * SECTOR;
/// Longest record; a quarter of the ring where that is less. (format)
pub const RECORD_BYTES: u64 = 1 << 20;
/// Lsns lie below. (format)
pub const LSN_MAX: u64 = 1 << 62;
/// The store's own bytes in an anchor. (format)
pub const ANCHOR_EXTRA_BYTES: usize = 3 << 10;
/// Longest extent. (format)
pub const EXTENT_BYTES: u64 = 4 << 20;
/// What an extent counts in its slab beside its bytes and sums. (format: the slab snapshot's live bytes)
pub const EXTENT_OVERHEAD_BYTES: u64 = 96;
/// Smallest and largest slab. (format)
pub const SLAB_BYTES: std::ops::RangeInclusive<u64> = (128 << 10)..=(1 << 30);
/// Where the first slot of a shared journal device may begin. (format)
pub const SLOTS_START: u64 = 1 << 20;
/// Slots of one device. (format)
pub const SLOTS: usize = 63;
/// A rebuilt journal's incarnation is so far above all that the slabs name: starts that wrote no slab are among them.
pub const INCARNATIONS_UNSEEN: u32 = 1 << 10;
/// Collision numbers of one name hash lie below. (format)
pub const COLLISIONS: u64 = (1 << 15) - 1;
