//! Evicting leaves that can be read again: a clock over all pages.

use super::frames::Body;
use super::page::PageId;
use super::tree::Table;

impl Table {
    /// Evicts clean leaves, those not used lately first, until at most `target_bytes` of leaves are in memory or only
    /// dirty ones are left. Returns the bytes freed.
    pub fn evict(&mut self, target_bytes: usize) -> usize {
        let before = self.resident_bytes();
        let mut steps = 2 * self.frames.len();
        while self.resident_bytes() > target_bytes && steps > 0 {
            self.clock_hand = (self.clock_hand + 1) % self.frames.len() as u32;
            self.evict_unless_used(PageId(self.clock_hand));
            steps -= 1;
        }
        before - self.resident_bytes()
    }

    fn evict_unless_used(&mut self, id: PageId) {
        let frame = self.frames.frame(id);
        if frame.flags != 0 || !matches!(frame.body, Body::Leaf(_)) || frame.referenced.take() {
            return;
        }
        assert!(frame.location.is_some(), "a clean leaf has been written");
        self.frames.set_body(id, Body::LeafOut);
    }
}
