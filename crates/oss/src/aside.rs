//! Room set aside in an object (fallocate): ranges, and how much of them holds no bytes yet.
//!
//! Invariant: `bytes` is the length of the ranges less the bytes that lie in them, as long as whoever changes either tells
//! the other. So a write uses room up without cutting a range, however many there are.
//! Invariant: ranges are in order, not empty, and do not touch; there are none where nothing is left to be written.

use std::ops::Range;

use forebay_proto::{DecodeError, Reader, Writer};

use crate::limits::{ALLOCATE_BYTES, ASIDE_RANGES};

/// What is set aside in one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aside {
    ranges: Vec<Range<u64>>,
    bytes: u64,
}

impl Aside {
    /// Bytes that may still be written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Parts of `range` in which room is, or was, set aside.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let cut = |of: &Range<u64>| of.start.max(range.start)..of.end.min(range.end);
        self.ranges.iter().map(cut).filter(|part| !part.is_empty()).collect()
    }

    /// Parts of `range` in which none is.
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

    /// `range`, or where it would be one too many: to the nearest of the others, unless that is far.
    pub fn reach(&self, range: Range<u64>) -> Range<u64> {
        let touches = |of: &Range<u64>| of.start <= range.end && range.start <= of.end;
        if self.ranges.len() < ASIDE_RANGES || self.ranges.iter().any(touches) {
            return range;
        }
        let to = |of: &Range<u64>| range.start.min(of.end)..range.end.max(of.start);
        let reached = self.ranges.iter().map(to).min_by_key(|to| to.end - to.start);
        let near = |to: &Range<u64>| to.end - to.start <= (range.end - range.start).saturating_add(ALLOCATE_BYTES);
        reached.filter(near).unwrap_or(range)
    }

    /// Sets room aside in `range`, of which `bytes` were outside and hold no bytes. False: it would be too many ranges.
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
        if ranges.len() > ASIDE_RANGES {
            return false;
        }
        (self.ranges, self.bytes) = (ranges, self.bytes + bytes);
        true
    }

    /// `bytes` more lie in the ranges.
    pub fn fill(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if self.bytes == 0 {
            self.ranges.clear();
        }
    }

    /// `bytes` fewer lie in the ranges: there is room for others in their place.
    pub fn empty(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Nothing is set aside in `range` any more, which holds no bytes from now on; `bytes` lay in what was set aside of it. A
    /// hole in the middle of a range stays set aside where there would be too many.
    pub fn remove(&mut self, range: &Range<u64>, bytes: u64) {
        let outside = |of: &Range<u64>| {
            [of.start..of.end.min(range.start), of.start.max(range.end)..of.end]
                .into_iter()
                .filter(|part| !part.is_empty())
        };
        let left: Vec<Range<u64>> = self.ranges.iter().flat_map(outside).collect();
        if left.len() > ASIDE_RANGES {
            self.bytes += bytes;
            return;
        }
        let gone: u64 = self.within(range).iter().map(|part| part.end - part.start).sum();
        self.ranges = left;
        self.fill(gone - bytes.min(gone));
    }

    /// Number of ranges (1 byte); if there are any, the bytes, then start and end of each, words of 8 bytes.
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

    /// The other way round.
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
                return Err(DecodeError::new("object row: ranges set aside that are not in order"));
            }
            ranges.push(range);
        }
        Ok(Self { ranges, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aside(ranges: &[Range<u64>]) -> Aside {
        let mut aside = Aside::default();
        for range in ranges {
            assert!(aside.add(range.clone(), range.end - range.start));
        }
        aside
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let aside = aside(&[0..10, 30..40, 10..20]);
        assert_eq!((aside.ranges.clone(), aside.bytes()), (vec![0..20, 30..40], 30));
        assert_eq!(aside.within(&(15..35)), [15..20, 30..35]);
        assert_eq!(aside.outside(&(15..50)), [20..30, 40..50]);
        assert_eq!(aside.outside(&(5..15)), []);
    }

    #[test]
    fn what_is_written_is_used_up_and_what_is_cut_is_given_back() {
        let mut aside = aside(&[0..100, 200..300]);
        aside.fill(40);
        aside.remove(&(50..250), 10);
        assert_eq!((aside.ranges.clone(), aside.bytes()), (vec![0..50, 250..300], 200 - 40 - (100 - 10)));
        aside.remove(&(0..u64::MAX), 30);
        assert_eq!(aside, Aside::default());
    }

    #[test]
    fn too_many_ranges_are_refused_and_a_hole_among_too_many_stays_set_aside() {
        let mut aside = Aside::default();
        assert!((0..ASIDE_RANGES as u64).all(|n| aside.add(n * 10..n * 10 + 5, 5)));
        let before = aside.clone();
        assert!(!aside.add(100_000..100_001, 1) && aside == before);
        aside.fill(5);
        aside.remove(&(1..4), 3);
        assert_eq!((aside.ranges.clone(), aside.bytes()), (before.ranges, before.bytes - 5 + 3));
    }

    #[test]
    fn one_too_many_reaches_to_its_nearest_neighbour() {
        let mut aside = Aside::default();
        let places: Vec<u64> = (1..=ASIDE_RANGES as u64).map(|n| n * 100).collect();
        assert!(places.iter().all(|at| aside.reach(*at..at + 5) == (*at..at + 5) && aside.add(*at..at + 5, 5)));
        assert_eq!(aside.reach(20..30), 20..100);
        assert_eq!(aside.reach(110..130), 105..130);
        assert_eq!(aside.reach(180..190), 180..200);
        assert_eq!(aside.reach(103..120), 103..120, "it is none more");
        let far = places[places.len() - 1] + 5 + ALLOCATE_BYTES;
        assert_eq!(aside.reach(far + 1..far + 2), far + 1..far + 2, "that would be too much");
        assert_eq!(aside.reach(far..far + 2).start, far - ALLOCATE_BYTES);
        assert!(aside.add(aside.reach(180..190), 20));
        assert_eq!(aside.within(&(170..310)), [180..205, 300..305]);
        assert_eq!(aside.ranges.len(), ASIDE_RANGES);
    }

    #[test]
    fn where_all_is_written_nothing_is_set_aside() {
        let mut aside = aside(&[0..10, 20..30]);
        aside.fill(19);
        assert_eq!(aside.ranges.len(), 2);
        aside.fill(1);
        assert_eq!(aside, Aside::default());
    }

    /// The golden bytes of docs/format.md.
    #[test]
    fn the_bytes_are_those_of_the_format() {
        let aside = aside(&[1..2, 5..9]);
        let mut w = Writer::default();
        aside.encode(&mut w);
        let mut expected = vec![2u8];
        for word in [5u64, 1, 2, 5, 9] {
            expected.extend_from_slice(&word.to_le_bytes());
        }
        let bytes = w.into_vec();
        assert_eq!(bytes, expected);
        assert_eq!(Aside::decode(&mut Reader::new(&bytes)), Ok(aside));
        assert!((0..bytes.len()).all(|end| Aside::decode(&mut Reader::new(&bytes[..end])).is_err()));
        expected[17] = 9;
        assert!(Aside::decode(&mut Reader::new(&expected)).is_err(), "it ends after the next begins");
    }
}
