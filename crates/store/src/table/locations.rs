//! Where the pages of a table lie.

use super::page::{PageId, PageLocation};
use super::tree::Table;

impl Table {
    /// Every page that has been written, and where. After [`Table::from_root`] and all [`Table::needs`]: all of them.
    pub fn locations(&self) -> impl Iterator<Item = (PageId, PageLocation)> + '_ {
        let ids = (0..self.frames.len()).map(|index| PageId(index as u32));
        ids.filter_map(|id| Some((id, self.frames.get(id)?.location?)))
    }
}
