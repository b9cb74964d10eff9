//! Arithmetic of [`Pieces`]: which bytes of a file they cover, and whether two sets may overlap. Pure.

use crate::{DecodeError, limits::FILE_BYTES, message::Pieces};

impl Pieces {
    /// Pieces of `length` bytes every `stride` bytes from `start` on, as many as a file can have. `None` if not even
    /// one fits.
    pub fn endless(start: u64, length: u64, stride: u64) -> Option<Self> {
        let left = FILE_BYTES.checked_sub(start)?.checked_sub(length)?;
        let pieces = Self { start, length, stride, count: left.checked_div(stride)? + 1 };
        pieces.validate().is_ok().then_some(pieces)
    }

    /// Checks what the other functions rely on.
    pub fn validate(&self) -> Result<(), DecodeError> {
        let span = self.count.checked_sub(1).and_then(|gaps| gaps.checked_mul(self.stride));
        let end = span.and_then(|span| span.checked_add(self.length)?.checked_add(self.start));
        if self.length == 0 || self.stride < self.length || end.is_none_or(|end| end > FILE_BYTES) {
            return Err(DecodeError::new("pieces: empty, overlapping, or beyond the largest file"));
        }
        Ok(())
    }

    /// Where the last one ends.
    pub fn end(&self) -> u64 {
        self.start + (self.count - 1) * self.stride + self.length
    }

    /// All of `[offset, offset + length)` lies in one piece, or in several that touch.
    pub fn covers(&self, offset: u64, length: u64) -> bool {
        let inside = offset >= self.start && offset.checked_add(length).is_some_and(|end| end <= self.end());
        inside && (self.stride == self.length || (offset - self.start) % self.stride + length <= self.length)
    }

    /// False only if no byte is in both sets: their spans do not overlap, or the pieces do not overlap modulo the
    /// greatest common divisor of the strides. (Other sets may be disjoint too; that is not detected.)
    pub fn may_meet(&self, other: &Self) -> bool {
        if self.end() <= other.start || other.end() <= self.start {
            return false;
        }
        let step = gcd(self.stride, other.stride);
        // Start of the other's pieces, relative to ours.
        let shift = (other.start % step + step - self.start % step) % step;
        self.length > shift || shift + other.length > step
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(start: u64, length: u64, stride: u64, count: u64) -> Pieces {
        let pieces = Pieces { start, length, stride, count };
        assert_eq!(pieces.validate(), Ok(()));
        pieces
    }

    fn bytes(of: &Pieces) -> Vec<u64> {
        (0..of.count).flat_map(|i| of.start + i * of.stride..of.start + i * of.stride + of.length).collect()
    }

    /// All small cases.
    #[test]
    fn strided_ranges_reported_as_disjoint_share_no_byte() {
        let mut all = Vec::new();
        for (start, length, more, count) in (0..7).flat_map(|start| {
            (1..4).flat_map(move |length| (0..5).flat_map(move |more| (1..4).map(move |n| (start, length, more, n))))
        }) {
            all.push(pieces(start, length, length + more, count));
        }
        let mut apart = 0;
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
            let meet = bytes(a).iter().any(|byte| bytes(b).contains(byte));
            assert!(a.may_meet(b) || !meet, "{a:?} {b:?}");
            assert_eq!(a.may_meet(b), b.may_meet(a), "{a:?} {b:?}");
            apart += usize::from(!a.may_meet(b));
        }
        assert!(apart > all.len());
    }

    #[test]
    fn records_of_processes_in_turn_are_apart_for_ever() {
        let rank = |rank: u64, ranks: u64| Pieces::endless(rank * 47_008, 47_008, ranks * 47_008).unwrap();
        let all: Vec<Pieces> = (0..7).map(|i| rank(i, 7)).collect();
        for (i, a) in all.iter().enumerate() {
            assert!(a.may_meet(a) && a.end() <= FILE_BYTES && a.end() + a.stride > FILE_BYTES);
            assert!(all[i + 1..].iter().all(|b| !a.may_meet(b)));
        }
        assert!(all[0].may_meet(&rank(1, 2)), "two of seven, and one of two");
        assert!(!rank(0, 2).may_meet(&rank(3, 4)), "what one of two leaves out is two of four");
        // A header written by one of them shifts its pieces.
        let shifted = Pieces { start: all[1].start + 1, ..all[1].clone() };
        assert!(shifted.may_meet(&all[2]) && !shifted.may_meet(&all[0]));
    }

    #[test]
    fn a_range_is_covered_if_all_of_it_is() {
        let strided = pieces(100, 10, 40, 3);
        for (offset, length, covers) in
            [(100, 10, true), (142, 8, true), (142, 9, false), (99, 2, false), (180, 10, true), (220, 1, false)]
        {
            assert_eq!(strided.covers(offset, length), covers, "{offset} {length}");
        }
        assert!(!strided.covers(100, 41) && !strided.covers(u64::MAX, 2));
        let one_after_another = pieces(100, 10, 10, 5);
        assert!(one_after_another.covers(103, 40) && !one_after_another.covers(103, 48));
    }

    #[test]
    fn strided_ranges_beyond_the_largest_file_are_refused() {
        for (start, length, stride, count) in
            [(0, 0, 5, 1), (0, 6, 5, 1), (0, 5, 5, 0), (FILE_BYTES, 1, 1, 1), (0, 1, u64::MAX, 3), (u64::MAX, 1, 1, 1)]
        {
            assert!(Pieces { start, length, stride, count }.validate().is_err(), "{start} {length} {stride} {count}");
        }
        assert_eq!(Pieces::endless(0, 0, 0), None);
        assert_eq!(Pieces::endless(FILE_BYTES, 1, 1), None);
    }
}
