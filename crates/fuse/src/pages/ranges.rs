//! Ranges of a file, each with the number of the last request that gave it to the kernel. Pure.
//!
//! Invariant: bounded. Beyond [`limits::GIVEN_RANGES`] ranges, neighbours are joined with the gap between them. So the
//! ranges may cover more than the kernel was given, never less.

use std::{collections::BTreeMap, ops::Range};

use crate::limits;

/// See the module. Start -> (end, number).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, (u64, u64)>);

impl Ranges {
    /// The request `number`, the latest so far, gave `range` to the kernel.
    pub fn add(&mut self, range: Range<u64>, number: u64) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Ranges that overlap or touch are merged, under the latest number. A merged range may be kept longer than
        // needed.
        while let Some((&other, &(other_end, _))) = self.0.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.0.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.0.insert(start, (end, number));
        if self.0.len() > limits::GIVEN_RANGES {
            self.join();
        }
    }

    /// The kernel has dropped `range`: it no longer has the parts of it that requests before `number` gave.
    pub fn remove(&mut self, range: &Range<u64>, number: u64) {
        let touched: Vec<_> = self.overlapping(range).filter(|(_, (_, given))| *given < number).collect();
        for (start, (end, given)) in touched {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, (range.start, given));
            }
            if range.end < end {
                self.0.insert(range.end, (end, given));
            }
        }
    }

    /// Whether any of `range` is in the set.
    pub fn overlap(&self, range: &Range<u64>) -> bool {
        self.overlapping(range).next().is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, (u64, u64))> {
        let (start, is_any) = (range.start, !range.is_empty());
        let upwards = self.0.range(..range.end).rev().take_while(move |(_, (end, _))| is_any && *end > start);
        upwards.map(|(start, end)| (*start, *end))
    }

    /// The parts of `range` that are not in the set, in order.
    pub fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut covered: Vec<_> = self.overlapping(range).collect();
        covered.reverse();
        let (mut at, mut gaps) = (range.start, Vec::new());
        for (start, (end, _)) in covered {
            if at < start {
                gaps.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Halves the number of ranges: joins those that are nearest to each other.
    fn join(&mut self) {
        let starts = self.0.keys().skip(1);
        let mut gaps: Vec<u64> = self.0.values().zip(starts).map(|((end, _), next)| next - end).collect();
        let middle = gaps.len() / 2;
        let (_, &mut widest, _) = gaps.select_nth_unstable(middle);
        let mut joined: Vec<(u64, (u64, u64))> = Vec::new();
        for (start, (end, number)) in std::mem::take(&mut self.0) {
            match joined.last_mut() {
                Some((_, (last, given))) if start - *last <= widest => (*last, *given) = (end, number.max(*given)),
                _ => joined.push((start, (end, number))),
            }
        }
        self.0 = joined.into_iter().collect();
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // parts are ranges
mod tests {
    use super::*;

    fn ranges(of: &[(u64, u64, u64)]) -> Ranges {
        Ranges(of.iter().map(|(start, end, number)| (*start, (*end, *number))).collect())
    }

    #[test]
    fn neighbours_become_one() {
        let mut given = Ranges::default();
        given.add(10..20, 1);
        given.add(30..40, 2);
        assert_eq!(given, ranges(&[(10, 20, 1), (30, 40, 2)]));
        given.add(20..25, 3);
        assert_eq!(given, ranges(&[(10, 25, 3), (30, 40, 2)]));
        given.add(0..100, 4);
        assert_eq!(given, ranges(&[(0, 100, 4)]));
        given.add(7..7, 5);
        assert_eq!(given, ranges(&[(0, 100, 4)]));
    }

    #[test]
    fn removing_ranges_leaves_those_that_were_given_later() {
        let mut given = ranges(&[(0, 100, 1), (200, 300, 5)]);
        given.remove(&(40..250), 3);
        assert_eq!(given, ranges(&[(0, 40, 1), (200, 300, 5)]));
        given.remove(&(10..20), 3);
        assert_eq!(given, ranges(&[(0, 10, 1), (20, 40, 1), (200, 300, 5)]));
        given.remove(&(0..u64::MAX), 6);
        assert!(given.is_empty());
    }

    #[test]
    fn gaps_are_what_is_not_there() {
        let given = ranges(&[(10, 20, 1), (30, 40, 1)]);
        assert_eq!(given.gaps(&(0..50)), [0..10, 20..30, 40..50]);
        assert_eq!(given.gaps(&(12..18)), []);
        assert_eq!(given.gaps(&(15..35)), [20..30]);
        assert!(given.overlap(&(19..30)) && !given.overlap(&(20..30)) && !given.overlap(&(15..15)));
    }

    #[test]
    fn many_ranges_are_joined_and_none_is_lost() {
        let mut given = Ranges::default();
        let all: Vec<Range<u64>> =
            (0..5000).map(|n| n * 37 % 5000 * 100).map(|start| start..start + 1 + start % 50).collect();
        for (number, range) in all.iter().enumerate() {
            given.add(range.clone(), number as u64);
            assert!(given.0.len() <= limits::GIVEN_RANGES);
        }
        assert!(all.iter().all(|range| given.gaps(range).is_empty()));
    }
}
