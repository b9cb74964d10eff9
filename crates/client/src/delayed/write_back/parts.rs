//! What was written and not sent yet, of one file. Pure.
//!
//! Invariant: parts do not overlap; the bytes are those that were written last.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use forebay_env::Time;

use crate::payload::Run;

/// See the module.
#[derive(Debug, Default)]
pub struct Parts {
    parts: BTreeMap<u64, Bytes>,
    /// Each unit of the file that has any bytes here.
    units: BTreeMap<u64, Unit>,
    unit_bytes: u64,
    bytes: usize,
}

/// What is here of one unit.
#[derive(Debug)]
struct Unit {
    bytes: u64,
    /// When the first of it came, whatever was written over it since.
    since: Time,
}

impl Parts {
    /// Of a file that is sent in units of `unit_bytes`.
    pub fn new(unit_bytes: u64) -> Self {
        Self { unit_bytes, ..Self::default() }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// In how many parts.
    pub fn pieces(&self) -> usize {
        self.parts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Where the last part ends.
    pub fn end(&self) -> u64 {
        self.parts.last_key_value().map_or(0, |(offset, part)| offset + part.len() as u64)
    }

    /// Some of it lies between `start` and `end`.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        let last = self.parts.range(..end).next_back();
        last.is_some_and(|(offset, part)| offset + part.len() as u64 > start)
    }

    /// Takes in what was written at `offset`, over what was there. It is `now`.
    pub fn insert(&mut self, offset: u64, data: Bytes, now: Time) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        self.cut(offset);
        self.cut(end);
        let covered: Vec<u64> = self.parts.range(offset..end).map(|(start, _)| *start).collect();
        // Counted first: a unit stays as old as it was.
        self.count(offset, data.len(), now);
        covered.into_iter().for_each(|start| drop(self.remove(start)));
        self.parts.insert(offset, data);
    }

    /// The units that `[start, end)` touches and that are whole, each by itself.
    pub fn take_whole_units(&mut self, start: u64, end: u64) -> Vec<Run> {
        let whole = |(number, unit): (&u64, &Unit)| (unit.bytes == self.unit_bytes).then_some(*number);
        let touched = self.units.range(start / self.unit_bytes..end.div_ceil(self.unit_bytes));
        let whole: Vec<u64> = touched.filter_map(whole).collect();
        let mut take = |unit: u64| self.take(unit * self.unit_bytes, (unit + 1) * self.unit_bytes).remove(0);
        whole.into_iter().map(&mut take).collect()
    }

    /// All units of which something has been here for `age`, in pieces without gaps. It is `now`.
    pub fn take_older(&mut self, now: Time, age: Duration) -> Vec<Run> {
        let mut runs = Vec::new();
        let old = |(number, unit): (&u64, &Unit)| (unit.since + age <= now).then_some(*number);
        for unit in self.units.iter().filter_map(old).collect::<Vec<_>>() {
            self.take_to(&mut runs, unit * self.unit_bytes, (unit + 1) * self.unit_bytes);
        }
        runs
    }

    /// Everything, in pieces without gaps.
    pub fn take_all(&mut self) -> Vec<Run> {
        self.take(0, u64::MAX)
    }

    fn take(&mut self, start: u64, end: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        self.take_to(&mut runs, start, end);
        runs
    }

    /// The same, behind what was taken before.
    fn take_to(&mut self, runs: &mut Vec<Run>, start: u64, end: u64) {
        self.cut(start);
        self.cut(end);
        let starts: Vec<u64> = self.parts.range(start..end).map(|(start, _)| *start).collect();
        for start in starts {
            let part = self.remove(start);
            match runs.last_mut().filter(|run| run.end() == start) {
                Some(run) => run.parts.push(part),
                None => runs.push(Run { offset: start, parts: vec![part] }),
            }
        }
    }

    /// No part lies across `at` any more.
    fn cut(&mut self, at: u64) {
        let Some((start, part)) = self.parts.range_mut(..at).next_back() else { return };
        let head = at - start;
        if head < part.len() as u64 {
            let tail = part.split_off(head as usize);
            self.parts.insert(at, tail);
        }
    }

    fn count(&mut self, start: u64, length: usize, now: Time) {
        self.bytes += length;
        for (unit, bytes) in pieces(start, length, self.unit_bytes) {
            self.units.entry(unit).or_insert(Unit { bytes: 0, since: now }).bytes += bytes;
        }
    }

    fn remove(&mut self, start: u64) -> Bytes {
        let part = self.parts.remove(&start).expect("it was found a moment ago");
        self.bytes -= part.len();
        for (unit, bytes) in pieces(start, part.len(), self.unit_bytes) {
            let here = self.units.get_mut(&unit).expect("what is here was counted");
            here.bytes -= bytes;
            if here.bytes == 0 {
                self.units.remove(&unit);
            }
        }
        part
    }
}

/// The units that `length` bytes at `start` lie in, and how many of them in each.
fn pieces(start: u64, length: usize, unit_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let (mut at, end) = (start, start + length as u64);
    std::iter::from_fn(move || {
        let unit = at / unit_bytes;
        let next = end.min((unit + 1) * unit_bytes);
        let bytes = next - at;
        at = next;
        (bytes > 0).then_some((unit, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dice;

    const UNIT: u64 = 100;

    fn filled(runs: Vec<Run>, file: &mut [u8]) {
        for run in runs {
            let bytes = run.parts.concat();
            file[run.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    #[test]
    fn what_comes_out_is_what_was_written_last() {
        for seed in 0..300 {
            let mut dice = Dice::new(seed);
            let mut parts = Parts::new(UNIT);
            let (mut written, mut sent, mut sizes) = (vec![0; 1000], vec![0; 1000], 0);
            for _ in 0..60 {
                let offset = dice.below(800);
                let length = 1 + dice.below(200) as usize;
                let bytes = dice.bytes(length);
                written[offset as usize..][..length].copy_from_slice(&bytes);
                let now = Time(dice.below(50));
                parts.insert(offset, bytes.into(), now);
                for run in parts.take_whole_units(offset, offset + length as u64) {
                    let is_touched = offset < run.end() && run.offset < offset + length as u64;
                    assert_eq!((run.offset % UNIT, run.len() as u64, is_touched), (0, UNIT, true), "seed {seed}");
                    sizes += run.len();
                    filled(vec![run], &mut sent);
                }
                if dice.below(5) == 0 {
                    filled(parts.take_older(Time(dice.below(60)), Duration::from_nanos(10)), &mut sent);
                    let there: usize = parts.parts.values().map(Bytes::len).sum();
                    let counted: u64 = parts.units.values().map(|unit| unit.bytes).sum();
                    assert_eq!((parts.bytes(), counted), (there, there as u64), "seed {seed}");
                }
                if dice.below(10) == 0 {
                    filled(parts.take_all(), &mut sent);
                    assert!(parts.is_empty() && parts.bytes() == 0 && parts.units.is_empty(), "seed {seed}");
                    assert_eq!(sent, written, "seed {seed}");
                }
            }
            filled(parts.take_all(), &mut sent);
            assert!(sent == written && sizes <= 60 * 200, "seed {seed}");
        }
    }

    #[test]
    fn neighbours_come_out_together() {
        let mut parts = Parts::new(UNIT);
        [(30, 20), (10, 20), (90, 5)]
            .into_iter()
            .for_each(|(at, length)| parts.insert(at, vec![1; length].into(), Time(0)));
        assert_eq!((parts.bytes(), parts.end()), (45, 95));
        assert!(parts.touches(0, 11) && parts.touches(49, 51) && parts.touches(92, 93));
        assert!(!parts.touches(0, 10) && !parts.touches(50, 90) && !parts.touches(95, 200));
        let runs: Vec<_> = parts.take_all().iter().map(|run| (run.offset, run.len(), run.parts.len())).collect();
        assert_eq!(runs, [(10, 40, 2), (90, 5, 1)]);
    }

    #[test]
    fn a_unit_is_whole_whatever_it_was_pieced_together_from() {
        let mut parts = Parts::new(UNIT);
        parts.insert(50, vec![1; 60].into(), Time(0));
        parts.insert(50, Bytes::new(), Time(0));
        assert_eq!(parts.take_whole_units(50, 110), []);
        parts.insert(0, vec![2; 70].into(), Time(0));
        let run = parts.take_whole_units(3, 4).remove(0);
        assert_eq!(run.parts.concat(), [vec![2; 70], vec![1; 30]].concat());
        assert_eq!((parts.bytes(), parts.end()), (10, 110));
    }

    #[test]
    fn a_long_write_gives_its_whole_units_one_by_one_and_keeps_its_ends() {
        let mut parts = Parts::new(UNIT);
        parts.insert(150, vec![1; 400].into(), Time(0));
        let units: Vec<_> = parts.take_whole_units(150, 550).iter().map(|run| (run.offset, run.len())).collect();
        assert_eq!(units, [(200, 100), (300, 100), (400, 100)]);
        assert!(parts.touches(150, 200) && parts.touches(500, 550));
        assert_eq!(parts.bytes(), 100);
    }

    #[test]
    fn only_old_units_are_taken_and_what_is_written_over_makes_none_younger() {
        let mut parts = Parts::new(UNIT);
        let ranges = |runs: Vec<Run>| runs.iter().map(|run| (run.offset, run.end())).collect::<Vec<_>>();
        let age = Duration::from_nanos(100);
        [(90, 20, 5), (210, 30, 6), (310, 10, 5)]
            .into_iter()
            .for_each(|(at, length, time)| parts.insert(at, vec![1; length].into(), Time(time)));
        assert_eq!(ranges(parts.take_older(Time(104), age)), []);
        // All of what is old is written over.
        parts.insert(310, vec![2; 10].into(), Time(9));
        // A unit that something older lies in is old as a whole.
        parts.insert(150, vec![3; 10].into(), Time(9));
        assert_eq!(ranges(parts.take_older(Time(105), age)), [(90, 110), (150, 160), (310, 320)]);
        assert_eq!((parts.bytes(), ranges(parts.take_older(Time(106), age))), (30, vec![(210, 240)]));
        parts.insert(310, vec![4; 10].into(), Time(9));
        assert_eq!(ranges(parts.take_older(Time(108), age)), [], "what was taken is not here any more");
        assert_eq!(ranges(parts.take_older(Time(109), age)), [(310, 320)]);
        assert!(parts.is_empty() && parts.units.is_empty() && parts.bytes() == 0);
    }
}
