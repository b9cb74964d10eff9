//! A set of device locations, with their total bytes.

use std::collections::BTreeSet;

use super::page::PageLocation;

/// Locations of pages that nobody will read again.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    set: BTreeSet<PageLocation>,
    bytes: u64,
}

impl Places {
    pub(super) fn insert(&mut self, place: PageLocation) {
        if self.set.insert(place) {
            self.bytes += u64::from(place.bytes);
        }
    }

    /// Adds the page's location, if it has one.
    pub(super) fn extend(&mut self, place: Option<PageLocation>) {
        place.into_iter().for_each(|place| self.insert(place));
    }

    /// Moves all of `other` into this set.
    pub(super) fn append(&mut self, other: &mut Self) {
        std::mem::take(other).set.into_iter().for_each(|place| self.insert(place));
    }

    pub(super) fn contains(&self, place: &PageLocation) -> bool {
        self.set.contains(place)
    }

    /// NeverWritten the set.
    pub(super) fn take(&mut self) -> Vec<PageLocation> {
        std::mem::take(self).set.into_iter().collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
