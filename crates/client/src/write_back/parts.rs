//! What was written and not sent yet, of one file. Pure.
//!
//! Invariant: parts do not overlap; the bytes are those that were written last.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Bytes of one piece of the file, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub offset: u64,
    pub parts: Vec<Bytes>,
}

impl Run {
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    pub fn end(&self) -> u64 {
        self.offset + self.len() as u64
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Parts {
    parts: BTreeMap<u64, Bytes>,
    /// Bytes in each unit of the file that has any.
    units: BTreeMap<u64, u64>,
    unit_bytes: u64,
    bytes: usize,
}

impl Parts {
    /// Of a file that is sent in units of `unit_bytes`.
    pub fn new(unit_bytes: u64) -> Self {
        Self { unit_bytes, ..Self::default() }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
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

    /// Takes in what was written at `offset`, over what was there.
    pub fn insert(&mut self, offset: u64, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        self.cut(offset);
        self.cut(end);
        let covered: Vec<u64> = self.parts.range(offset..end).map(|(start, _)| *start).collect();
        covered.into_iter().for_each(|start| drop(self.remove(start)));
        self.add(offset, data);
    }

    /// If the unit around `offset` is whole, all of it.
    pub fn take_whole_unit(&mut self, offset: u64) -> Option<Run> {
        let unit = offset / self.unit_bytes;
        (self.units.get(&unit) == Some(&self.unit_bytes))
            .then(|| self.take(unit * self.unit_bytes, (unit + 1) * self.unit_bytes).remove(0))
    }

    /// Everything, in pieces without gaps.
    pub fn take_all(&mut self) -> Vec<Run> {
        self.take(0, u64::MAX)
    }

    fn take(&mut self, start: u64, end: u64) -> Vec<Run> {
        self.cut(start);
        self.cut(end);
        let starts: Vec<u64> = self.parts.range(start..end).map(|(start, _)| *start).collect();
        let mut runs: Vec<Run> = Vec::new();
        for start in starts {
            let part = self.remove(start);
            match runs.last_mut().filter(|run| run.end() == start) {
                Some(run) => run.parts.push(part),
                None => runs.push(Run { offset: start, parts: vec![part] }),
            }
        }
        runs
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

    fn add(&mut self, offset: u64, part: Bytes) {
        self.bytes += part.len();
        self.each_unit(offset, part.len(), |unit, bytes| *unit += bytes);
        self.parts.insert(offset, part);
    }

    fn remove(&mut self, start: u64) -> Bytes {
        let part = self.parts.remove(&start).expect("it was found a moment ago");
        self.bytes -= part.len();
        self.each_unit(start, part.len(), |unit, bytes| *unit -= bytes);
        part
    }

    fn each_unit(&mut self, offset: u64, length: usize, count: impl Fn(&mut u64, u64)) {
        let (mut offset, end) = (offset, offset + length as u64);
        while offset < end {
            let unit = offset / self.unit_bytes;
            let next = end.min((unit + 1) * self.unit_bytes);
            let bytes = self.units.entry(unit).or_default();
            count(bytes, next - offset);
            if *bytes == 0 {
                self.units.remove(&unit);
            }
            offset = next;
        }
    }
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
                parts.insert(offset, bytes.into());
                if let Some(run) = parts.take_whole_unit(offset) {
                    assert_eq!((run.offset, run.len() as u64), (offset / UNIT * UNIT, UNIT), "seed {seed}");
                    sizes += run.len();
                    filled(vec![run], &mut sent);
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
        [(30, 20), (10, 20), (90, 5)].into_iter().for_each(|(at, length)| parts.insert(at, vec![1; length].into()));
        assert_eq!((parts.bytes(), parts.end()), (45, 95));
        assert!(parts.touches(0, 11) && parts.touches(49, 51) && parts.touches(92, 93));
        assert!(!parts.touches(0, 10) && !parts.touches(50, 90) && !parts.touches(95, 200));
        let runs: Vec<_> = parts.take_all().iter().map(|run| (run.offset, run.len(), run.parts.len())).collect();
        assert_eq!(runs, [(10, 40, 2), (90, 5, 1)]);
    }

    #[test]
    fn a_unit_is_whole_whatever_it_was_pieced_together_from() {
        let mut parts = Parts::new(UNIT);
        parts.insert(50, vec![1; 60].into());
        parts.insert(50, Bytes::new());
        assert_eq!(parts.take_whole_unit(50), None);
        parts.insert(0, vec![2; 70].into());
        let run = parts.take_whole_unit(3).expect("it is whole");
        assert_eq!(run.parts.concat(), [vec![2; 70], vec![1; 30]].concat());
        assert_eq!((parts.bytes(), parts.end()), (10, 110));
    }
}
