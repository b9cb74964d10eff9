//! Bounds of the table.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64;
/// Longest value, in bytes: all extended attributes of an inode, and space for what lies beside them.
pub const VALUE_BYTES_MAX: usize = 192 << 10;
/// A leaf page of more bytes than this is split, unless it holds one row only.
pub const LEAF_BYTES: usize = 16 << 10;
/// Largest leaf or inner page: a leaf before its split, with one row of the longest value.
pub const PAGE_BYTES_MAX: usize = 256 << 10;
/// A leaf page of fewer bytes looks for a neighbour to merge with.
pub const LEAF_MERGE_BELOW_BYTES: usize = LEAF_BYTES / 4;
/// Two leaves merge into one page of at most these bytes, so that the next put does not split it again.
pub const LEAF_MERGED_BYTES: usize = LEAF_BYTES / 4 * 3;
/// What ascending puts leave behind: leaves filled to this many percent.
pub const LEAF_FILL_PERCENT: usize = 95;
/// Puts in ascending order, one directly after the other, that make a leaf's next split an ascending one.
pub const ASCENDING_PUTS: u16 = 4;
/// Most leaves of one inner page.
pub const INNER_LEAVES_MAX: usize = 512;
/// An inner page of fewer leaves looks for a neighbour to merge with.
pub const INNER_MERGE_BELOW: usize = INNER_LEAVES_MAX / 4;
/// Two inner pages merge into one of at most these many leaves.
pub const INNER_MERGED_MAX: usize = INNER_LEAVES_MAX / 4 * 3;
/// Most pages of one table; page ids lie below it.
pub const PAGES_MAX: usize = 1 << 26;
/// Memory for the rows of a leaf grows in steps of this many bytes.
pub const HEAP_STEP_BYTES: usize = 1 << 10;
