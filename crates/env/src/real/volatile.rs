//! Bytes that a disk holds in memory alone: the latest writes, by offset.
//!
//! Invariant: extents do not overlap; of a byte that was written twice the later value is kept.
//! Invariant: at most as many bytes as the caller allows stay, besides those of one write.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;

/// Bytes at an offset, with the number of the batch of requests in which they were written; later batches have greater
/// numbers.
#[derive(Clone)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
    pub(super) batch: u64,
}

impl Extent {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes.len() as u64
    }

    /// The part of it that lies in `range`, which overlaps it.
    fn part(&self, range: &Range<u64>) -> Self {
        let own = self.range();
        let (start, end) = (range.start.max(own.start), range.end.min(own.end));
        let bytes = self.bytes.slice((start - own.start) as usize..(end - own.start) as usize);
        Self { offset: start, bytes, batch: self.batch }
    }
}

/// Extents by their offsets.
#[derive(Default)]
pub(super) struct Volatile {
    extents: BTreeMap<u64, Extent>,
    bytes: usize,
}

impl Volatile {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn put(&mut self, extent: Extent) {
        self.take(extent.range());
        self.insert(extent);
    }

    /// The extents in `range`, cut to it, in order.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Extent> {
        let before = self.extents.range(..range.start).next_back().map(|(offset, _)| *offset);
        let from = before.unwrap_or(range.start);
        let touched = self.extents.range(from..range.end.max(from)).map(|(_, extent)| extent);
        let clipped = self.clip(range.clone());
        let touches = move |extent: &&Extent| extent.range().end > range.start && range.end > range.start;
        touched.filter(touches).map(clipped)
    }

    /// Removes and returns what lies in `range`.
    pub(super) fn take(&mut self, range: Range<u64>) -> Vec<Extent> {
        let taken: Vec<Extent> = self.within(range.clone()).collect();
        for part in &taken {
            let key = *self.extents.range(..=part.offset).next_back().expect("the part is of an extent").0;
            let whole = self.remove(key);
            let (own, cut) = (whole.range(), part.range());
            for rest in [own.start..cut.start, cut.end..own.end].into_iter().filter(|rest| !rest.is_empty()) {
                self.insert(whole.part(&rest));
            }
        }
        taken
    }

    /// Removes and returns what was written before batch `batch`.
    pub(super) fn take_before(&mut self, batch: u64) -> Vec<Extent> {
        let keys: Vec<u64> = self.extents.iter().filter(|(_, e)| e.batch < batch).map(|(key, _)| *key).collect();
        keys.into_iter().map(|key| self.remove(key)).collect()
    }

    /// Removes and returns the oldest extents, until at most `bytes` are left.
    pub(super) fn take_oldest(&mut self, bytes: usize) -> Vec<Extent> {
        let mut keys: Vec<(u64, u64)> = self.extents.iter().map(|(key, extent)| (extent.batch, *key)).collect();
        keys.sort_unstable();
        let mut taken = Vec::new();
        for (_, key) in keys {
            if self.bytes <= bytes {
                break;
            }
            taken.push(self.remove(key));
        }
        taken
    }

    /// The first extent at or behind `place`, else the first of all.
    pub(super) fn near(&self, place: u64) -> Option<&Extent> {
        self.extents.range(place..).next().or_else(|| self.extents.first_key_value()).map(|(_, extent)| extent)
    }

    fn clip(&self, range: Range<u64>) -> impl Fn(&Extent) -> Extent + use<> {
        move |extent| extent.part(&range)
    }

    fn insert(&mut self, extent: Extent) {
        self.bytes += extent.bytes.len();
        self.extents.insert(extent.offset, extent);
    }

    fn remove(&mut self, key: u64) -> Extent {
        let extent = self.extents.remove(&key).expect("the key was found");
        self.bytes -= extent.bytes.len();
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::{Extent, Volatile};

    fn extent(offset: u64, len: usize, fill: u8) -> Extent {
        Extent { offset, bytes: vec![fill; len].into(), batch: u64::from(fill) }
    }

    fn image(volatile: &Volatile, len: u64) -> Vec<u8> {
        let mut image = vec![0; len as usize];
        for extent in volatile.within(0..len) {
            image[extent.offset as usize..][..extent.bytes.len()].copy_from_slice(&extent.bytes);
        }
        image
    }

    #[test]
    fn the_later_of_two_writes_is_kept_whatever_they_overlap() {
        let mut seed = 1u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let (mut volatile, mut expected) = (Volatile::default(), vec![0u8; 100]);
        for fill in 1..=200 {
            let offset = below(90);
            let len = 1 + below(100 - offset) as usize;
            expected[offset as usize..][..len].fill(fill);
            volatile.put(extent(offset, len, fill));
            assert_eq!(image(&volatile, 100), expected);
            assert_eq!(volatile.bytes(), expected.iter().filter(|byte| **byte != 0).count());
            let (from, to) = (below(100), below(100));
            let part: Vec<u8> = volatile.within(from..to).flat_map(|extent| extent.bytes.to_vec()).collect();
            let there = expected.get(from as usize..to as usize).unwrap_or_default();
            assert_eq!(part, there.iter().copied().filter(|byte| *byte != 0).collect::<Vec<_>>());
        }
    }

    #[test]
    fn taking_a_range_out_of_volatile_bytes_leaves_the_others() {
        let mut volatile = Volatile::default();
        volatile.put(extent(0, 10, 1));
        volatile.put(extent(20, 10, 2));
        let taken = volatile.take(5..25);
        assert_eq!(taken.iter().map(|e| (e.offset, e.bytes.len())).collect::<Vec<_>>(), [(5, 5), (20, 5)]);
        assert_eq!((image(&volatile, 30)[4], image(&volatile, 30)[5], image(&volatile, 30)[25]), (1, 0, 2));
        assert_eq!(volatile.take_before(2).len(), 1);
        assert_eq!(volatile.near(0).map(|extent| extent.offset), Some(25));
        assert_eq!(volatile.take_oldest(4).len(), 1);
        assert!(volatile.bytes() == 0 && volatile.near(7).is_none());
    }
}
