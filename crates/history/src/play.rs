//! Draws the next operation of a worker at random. All workers use the same few names, bytes and locks.

use crate::{Dice, Kind, event::Ask, file, lock, log, names};

/// Writes at an offset stay within this many cells of a small file.
const SMALL_CELLS: u64 = 12;
/// The same for a striped file: five stripes of 64 KiB.
const STRIPED_CELLS: u64 = 40;
/// Cells of a shared file. Runs of records lie in its first cells: at most `RUN_RECORDS` times the number of workers.
const SHARED_CELLS: u64 = 480;
/// Most records in one worker's run.
const RUN_RECORDS: u32 = 40;
/// Most cells in one append to a log.
const RECORD_CELLS: u64 = 40;
/// Cells requested by a read of a whole log.
const READ_CELLS: u32 = 4096;

impl Kind {
    /// Bytes of a cell in such a file. On several targets the cell size divides the stripe size.
    pub fn cell_bytes(self) -> usize {
        match self {
            Kind::Small => 700,
            Kind::Striped => 8192,
            Kind::Shared => 2048,
            _ => 512,
        }
    }
}

/// Draws the operations of one worker.
pub struct Player {
    dice: Dice,
    worker: u32,
    kinds: Vec<Kind>,
    tags: u32,
    between: bool,
}

impl Player {
    /// A player for one worker. With `between` it also renames from one shared name to another.
    pub fn new(seed: u64, worker: u32, kinds: &[Kind], between: bool) -> Self {
        assert!(worker < 1 << 12, "tags have room for so many workers");
        Self { dice: Dice::new(seed), worker, kinds: kinds.to_vec(), tags: 0, between }
    }

    /// Draws the next operation and its object; the answer is empty.
    pub fn draw(&mut self) -> (u32, Ask) {
        let object = self.dice.below(self.kinds.len() as u64) as usize;
        let ask = match self.kinds[object] {
            Kind::Names { contested, .. } => Ask::Name(self.name(contested), None),
            Kind::Small => Ask::Bytes(self.bytes(SMALL_CELLS, 4, true), None),
            Kind::Striped => Ask::Bytes(self.bytes(STRIPED_CELLS, 20, false), None),
            Kind::Shared => Ask::Bytes(self.bytes(SHARED_CELLS, 3, false), None),
            Kind::Log => Ask::Log(self.log(), None),
            Kind::Locks => Ask::Lock(self.lock(), None),
        };
        (object as u32, ask)
    }

    /// Draws a run of records that this worker writes in sequence to the shared file, if there is one. The records of
    /// `workers` workers are interleaved, so no two workers write the same cell.
    pub fn run(&mut self, workers: u32) -> Vec<(u32, Ask)> {
        let Some(object) = self.kinds.iter().position(|kind| *kind == Kind::Shared) else { return Vec::new() };
        let records = RUN_RECORDS.min(SHARED_CELLS as u32 / workers);
        let count = records / 2 + self.dice.below(u64::from(records / 2) + 1) as u32;
        let write = |i: u32| file::Ask::Write { at: i * workers + self.worker, cells: 1, tag: self.tag() };
        (0..count).map(write).map(|ask| (object as u32, Ask::Bytes(ask, None))).collect()
    }

    /// How long to wait before the next operation, in microseconds. Mostly zero, so that many operations overlap.
    pub fn pause_us(&mut self, longest: u64) -> u64 {
        if self.dice.below(12) == 0 { self.dice.below(longest) } else { 0 }
    }

    /// True with a probability of one in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.dice.below(n) == 0
    }

    fn tag(&mut self) -> u32 {
        self.tags += 1;
        assert!(self.tags < 1 << 19, "tags have room for so many operations");
        (self.worker + 1) << 19 | self.tags
    }

    fn name(&mut self, contested: u32) -> names::Ask {
        use names::Ask;
        let mine = contested + self.worker;
        let some = self.dice.below(contested.into()) as u32;
        let other = self.dice.below(contested.into()) as u32;
        match self.dice.below(if self.between { 100 } else { 90 }) {
            0..=17 => Ask::Create(some),
            18..=24 => Ask::Create(mine),
            25..=31 => Ask::Move(mine, some),
            32..=37 => Ask::Rename(mine, some),
            38..=45 => Ask::Rename(some, mine),
            46..=52 => Ask::Link(some, other),
            53..=55 => Ask::Link(some, mine),
            56..=67 => Ask::Unlink(some),
            68..=70 => Ask::Unlink(mine),
            71..=83 => Ask::Look(some),
            // The inode number is not known yet: the worker looks up the name first.
            84..=89 => Ask::Links(some.into()),
            90..=94 => Ask::Rename(some, other),
            95..=96 => Ask::Move(some, other),
            _ => Ask::Exchange(some, other),
        }
    }

    fn bytes(&mut self, longest: u64, most: u64, appends: bool) -> file::Ask {
        let cells = 1 + self.dice.below(most) as u32;
        match self.dice.below(100) {
            0..=17 if appends => file::Ask::Append { cells, tag: self.tag() },
            0..=39 => {
                let at = self.dice.below(longest - u64::from(cells) + 1) as u32;
                file::Ask::Write { at, cells, tag: self.tag() }
            }
            40..=51 => file::Ask::Truncate(self.dice.below(longest) as u32),
            52..=83 => file::Ask::Read,
            _ => file::Ask::Size,
        }
    }

    fn log(&mut self) -> log::Ask {
        let cells = 1 + self.dice.below(RECORD_CELLS) as u32;
        match self.dice.below(10) {
            0..=4 => log::Ask::Append { cells, tag: self.tag() },
            5..=6 => log::Ask::Read { from: 0, cells: READ_CELLS },
            7 => log::Ask::Read { from: self.dice.below(2000), cells },
            _ => log::Ask::Size,
        }
    }

    fn lock(&mut self) -> lock::Ask {
        let first = self.dice.below(lock::RANGES.into()) as u32;
        let more = if self.dice.below(4) == 0 { self.dice.below(2) as u32 } else { 0 };
        let longest = *self.dice.pick(&[100, 5000, 30_000]).expect("there are some");
        lock::Ask {
            flock: self.dice.below(3) == 0,
            ranges: (first, (first + more).min(lock::RANGES - 1)),
            exclusive: self.dice.below(3) != 0,
            wait: self.dice.below(2) == 0,
            hold_us: self.dice.below(longest) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn everything_is_drawn_and_no_tag_twice() {
        let kinds = [Kind::Names { contested: 3, workers: 2 }, Kind::Small, Kind::Striped, Kind::Log, Kind::Locks];
        let (mut words, mut tags) = (BTreeSet::new(), BTreeSet::new());
        for worker in 0..2 {
            let mut player = Player::new(7, worker, &kinds, true);
            for _ in 0..3000 {
                let (object, ask) = player.draw();
                let text = format!("{ask:?}");
                words.insert(format!("{object}{}", text.split([' ', '{']).next().unwrap_or_default()));
                if let Some((_, tag)) = text.split_once("tag: ") {
                    assert!(tags.insert(tag.to_owned()), "{text}");
                }
            }
        }
        assert!(words.len() > 15, "{words:?}");
    }
}
