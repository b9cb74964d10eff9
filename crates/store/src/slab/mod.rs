//! Slabs: what their bytes are, and how they are filled.

pub(crate) mod allocator;
pub(crate) mod header;
pub(crate) mod run;
pub(crate) mod writer;

/// Where bytes lie. Never a bare device address: the epoch tells contents of an earlier opening of the slab apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Number of the slab.
    pub slab: u32,
    /// Its opening.
    pub epoch: u64,
    /// Byte within the slab.
    pub at: u32,
}
