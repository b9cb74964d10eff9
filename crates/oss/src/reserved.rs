//! Space reserved in an object by fallocate: ranges, and how many of their bytes are not written yet.
//!
//! Invariant: `bytes` is the length of the ranges less the bytes written in them; every change of either updates the
//! other. So a write uses space up without cutting a range, however many there are.
//! Invariant: ranges are in order, not empty, and do not touch. There are none once all their bytes are written.

use std::ops::Range;

use forebay_proto::{DecodeError, Reader, Writer};

use crate::limits::{ALLOCATE_BYTES, RESERVED_RANGES};

/// The reserved ranges of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedRanges {
    ranges: Vec<Range<u64>>,
    bytes: u64,
}

impl ReservedRanges {
    /// Reserved bytes that are not written yet.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Parts of `range` that are reserved, written or not.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let cut = |of: &Range<u64>| of.start.max(range.start)..of.end.min(range.end);
        self.ranges.iter().map(cut).filter(|part| !part.is_empty()).collect()
    }

    /// Parts of `range` that are not reserved.
    pub fn outside(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        let mut from = range.start;
        for within in self.within(range) {
            parts.push(from..within.start);
            from = within.end;
        }
        parts.push(from..range.end);
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// `range` itself, unless it would be one range too many. Then it is extended to its nearest neighbour, unless that
    /// is far.
    pub fn reach(&self, range: Range<u64>) -> Range<u64> {
        let touches = |of: &Range<u64>| of.start <= range.end && range.start <= of.end;
        if self.ranges.len() < RESERVED_RANGES || self.ranges.iter().any(touches) {
            return range;
        }
        let to = |of: &Range<u64>| range.start.min(of.end)..range.end.max(of.start);
        let reached = self.ranges.iter().map(to).min_by_key(|to| to.end - to.start);
        let near = |to: &Range<u64>| to.end - to.start <= (range.end - range.start).saturating_add(ALLOCATE_BYTES);
        reached.filter(near).unwrap_or(range)
    }

    /// Reserves `range`, of which `bytes` were not reserved before and hold no data. False: there would be too many
    /// ranges.
    pub fn add(&mut self, range: Range<u64>, bytes: u64) -> bool {
        let touches = |of: &Range<u64>| of.start <= range.end && range.start <= of.end;
        let mut all = range.clone();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for of in &self.ranges {
            if touches(of) {
                all = all.start.min(of.start)..all.end.max(of.end);
            } else {
                ranges.push(of.clone());
            }
        }
        ranges.push(all);
        ranges.sort_by_key(|of| of.start);
        if ranges.len() > RESERVED_RANGES {
            return false;
        }
        (self.ranges, self.bytes) = (ranges, self.bytes + bytes);
        true
    }

    /// `bytes` more of the ranges are written.
    pub fn fill(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if self.bytes == 0 {
            self.ranges.clear();
        }
    }

    /// `bytes` fewer of the ranges are written: they are reserved space again.
    pub fn empty(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Removes the reservation of `range`, which is about to hold no data; `bytes` of its reserved parts were written.
    /// A hole in the middle of a range stays reserved if there would be too many ranges otherwise.
    pub fn remove(&mut self, range: &Range<u64>, bytes: u64) {
        let outside = |of: &Range<u64>| {
            [of.start..of.end.min(range.start), of.start.max(range.end)..of.end]
                .into_iter()
                .filter(|part| !part.is_empty())
        };
        let left: Vec<Range<u64>> = self.ranges.iter().flat_map(outside).collect();
        if left.len() > RESERVED_RANGES {
            self.bytes += bytes;
            return;
        }
        let gone: u64 = self.within(range).iter().map(|part| part.end - part.start).sum();
        self.ranges = left;
        self.fill(gone - bytes.min(gone));
    }

    /// Number of ranges (1 byte). If there are any: the bytes, then the start and end of each range, as words of 8
    /// bytes.
    pub fn encode(&self, w: &mut Writer) {
        w.u8(self.ranges.len() as u8);
        if self.ranges.is_empty() {
            return;
        }
        w.u64(self.bytes);
        for range in &self.ranges {
            w.u64(range.start);
            w.u64(range.end);
        }
    }

    /// The inverse of [`ReservedRanges::encode`].
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = r.u8()?;
        if count == 0 {
            return Ok(Self::default());
        }
        let bytes = r.u64()?;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for _ in 0..count {
            let range = r.u64()?..r.u64()?;
            if range.is_empty() || ranges.last().is_some_and(|last| last.end >= range.start) {
                return Err(DecodeError::new("object row: ranges set reserved that are not in order"));
            }
            ranges.push(range);
        }
        Ok(Self { ranges, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(ranges: &[Range<u64>]) -> ReservedRanges {
        let mut reserved = ReservedRanges::default();
        for range in ranges {
            assert!(reserved.add(range.clone(), range.end - range.start));
        }
        reserved
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let reserved = reserved(&[0..10, 30..40, 10..20]);
        assert_eq!((reserved.ranges.clone(), reserved.bytes()), (vec![0..20, 30..40], 30));
        assert_eq!(reserved.within(&(15..35)), [15..20, 30..35]);
        assert_eq!(reserved.outside(&(15..50)), [20..30, 40..50]);
        assert_eq!(reserved.outside(&(5..15)), []);
    }

    #[test]
    fn writes_use_up_reserved_space_and_truncates_return_it() {
        let mut reserved = reserved(&[0..100, 200..300]);
        reserved.fill(40);
        reserved.remove(&(50..250), 10);
        assert_eq!((reserved.ranges.clone(), reserved.bytes()), (vec![0..50, 250..300], 200 - 40 - (100 - 10)));
        reserved.remove(&(0..u64::MAX), 30);
        assert_eq!(reserved, ReservedRanges::default());
    }

    #[test]
    fn too_many_ranges_are_refused_and_a_hole_among_too_many_stays_set_aside() {
        let mut reserved = ReservedRanges::default();
        assert!((0..RESERVED_RANGES as u64).all(|n| reserved.add(n * 10..n * 10 + 5, 5)));
        let before = reserved.clone();
        assert!(!reserved.add(100_000..100_001, 1) && reserved == before);
        reserved.fill(5);
        reserved.remove(&(1..4), 3);
        assert_eq!((reserved.ranges.clone(), reserved.bytes()), (before.ranges, before.bytes - 5 + 3));
    }

    #[test]
    fn a_reserved_range_beyond_the_bound_is_joined_to_its_nearest_neighbour() {
        let mut reserved = ReservedRanges::default();
        let places: Vec<u64> = (1..=RESERVED_RANGES as u64).map(|n| n * 100).collect();
        assert!(places.iter().all(|at| reserved.reach(*at..at + 5) == (*at..at + 5) && reserved.add(*at..at + 5, 5)));
        assert_eq!(reserved.reach(20..30), 20..100);
        assert_eq!(reserved.reach(110..130), 105..130);
        assert_eq!(reserved.reach(180..190), 180..200);
        assert_eq!(reserved.reach(103..120), 103..120, "it is none more");
        let far = places[places.len() - 1] + 5 + ALLOCATE_BYTES;
        assert_eq!(reserved.reach(far + 1..far + 2), far + 1..far + 2, "that would be too much");
        assert_eq!(reserved.reach(far..far + 2).start, far - ALLOCATE_BYTES);
        assert!(reserved.add(reserved.reach(180..190), 20));
        assert_eq!(reserved.within(&(170..310)), [180..205, 300..305]);
        assert_eq!(reserved.ranges.len(), RESERVED_RANGES);
    }

    #[test]
    fn where_all_is_written_nothing_is_set_aside() {
        let mut reserved = reserved(&[0..10, 20..30]);
        reserved.fill(19);
        assert_eq!(reserved.ranges.len(), 2);
        reserved.fill(1);
        assert_eq!(reserved, ReservedRanges::default());
    }

    /// The golden bytes of docs/format.md.
    #[test]
    fn the_bytes_are_those_of_the_format() {
        let reserved = reserved(&[1..2, 5..9]);
        let mut w = Writer::default();
        reserved.encode(&mut w);
        let mut expected = vec![2u8];
        for word in [5u64, 1, 2, 5, 9] {
            expected.extend_from_slice(&word.to_le_bytes());
        }
        let bytes = w.into_vec();
        assert_eq!(bytes, expected);
        assert_eq!(ReservedRanges::decode(&mut Reader::new(&bytes)), Ok(reserved));
        assert!((0..bytes.len()).all(|end| ReservedRanges::decode(&mut Reader::new(&bytes[..end])).is_err()));
        expected[17] = 9;
        assert!(ReservedRanges::decode(&mut Reader::new(&expected)).is_err(), "it ends after the next begins");
    }
}
