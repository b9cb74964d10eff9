//! Emptying slabs: which locations hold live pages, and moving these with the next checkpoint.

use super::frames::{Body, flag};
use super::page::{MissingPage, PageId, PageLocation};
use super::tree::Table;

impl Table {
    /// Bytes of pages on the device that no later checkpoint will name.
    pub fn superseded_bytes(&self) -> u64 {
        self.superseded.bytes() + self.leaving.bytes()
    }

    /// True if the location holds a page of the table, of its last durable checkpoint, or of the running one.
    pub fn is_live(&self, id: PageId, location: &PageLocation) -> bool {
        self.frames.get(id).is_some_and(|frame| frame.location == Some(*location))
            || self.superseded.contains(location)
            || self.leaving.contains(location)
    }

    /// Ensures that the next checkpoint to begin no longer names this location. Returns whether it is live now. It
    /// becomes free, at the latest, when that checkpoint is finished.
    ///
    /// A leaf has to be in memory for that.
    pub fn relocate(&mut self, id: PageId, location: &PageLocation) -> Result<bool, MissingPage> {
        let Some(frame) = self.frames.get(id).filter(|frame| frame.location == Some(*location)) else {
            return Ok(self.is_live(id, location));
        };
        let moving = frame.flags & (flag::CHANGED | flag::PENDING | flag::FLYING) != 0;
        match frame.body {
            Body::Leaf(_) | Body::Inner(_) if !moving => self.mark_changed(id),
            Body::LeafOut => self.frames.leaf(id).map(drop)?,
            Body::InnerOut => self.frames.inner(id).map(drop)?,
            _ => {}
        }
        Ok(true)
    }
}
