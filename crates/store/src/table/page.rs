//! Names and locations of the table's pages, and what can be wrong with them.

use std::fmt;

/// The number of a page: stable while the page lives, then reused. Names the fragment that carries its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

impl PageId {
    /// The root page, of which there is one.
    pub const ROOT: PageId = PageId(0);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a page's bytes lie on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageLocation {
    /// Number of the slab.
    pub slab: u32,
    /// The slab's epoch when the page was written.
    pub epoch: u64,
    /// First byte of the page within the slab.
    pub offset: u32,
    /// Bytes of the page.
    pub bytes: u32,
    /// CRC-64/NVME of the page's bytes.
    pub sum: u64,
}

/// A page that an operation needs and that is not in memory: read it, [`install`](super::Table::install) it, try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingPage {
    /// Which page.
    pub page: PageId,
    /// Where its bytes are.
    pub location: PageLocation,
}

impl fmt::Display for MissingPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageLocation { slab, offset, .. } = self.location;
        write!(f, "index page {} (slab {slab}, offset {offset}) is not in memory: prefetch its keys first", self.page.0)
    }
}

impl std::error::Error for MissingPage {}

/// Bytes that are not the page they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptPage {
    /// Which page was expected.
    pub page: PageId,
    /// What is wrong with the bytes.
    pub reason: &'static str,
}

impl fmt::Display for CorruptPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index page {} is corrupt ({}): run fsck on this target", self.page.0, self.reason)
    }
}

impl std::error::Error for CorruptPage {}
