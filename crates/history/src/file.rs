//! Checks the bytes and the size of one file, in cells.
//!
//! On a file with one target every call is atomic. This includes an append: its bytes and the new size become visible
//! together.
//!
//! On a file with several targets a call is atomic on each target only, so each cell and the size are checked as
//! separate objects ([`check_striped`]). A write may extend the file stripe by stripe. A write that races with a
//! truncate is executed once more in full, even if other clients have already seen parts of it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    search::{Object, Operation, explain},
    stamp::{self, Cell},
};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// pwrite(2).
    Write {
        /// First cell.
        at: u32,
        /// Number of cells.
        cells: u32,
        /// Tag of this write.
        tag: u32,
    },
    /// write(2) on O_APPEND.
    Append {
        /// Number of cells.
        cells: u32,
        /// Tag of this append.
        tag: u32,
    },
    /// truncate(2), ftruncate(2) or O_TRUNC: the new size in cells.
    Truncate(u32),
    /// A read of the whole file.
    Read,
    /// st_size.
    Size,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Success.
    Done,
    /// The bytes that were read, as cells.
    Cells(Vec<Cell>),
    /// The size in cells.
    Size(u32),
}

type Op = Operation<Ask, Answer>;

/// Stands for any cell that was written and that no client ever read.
const UNREAD: Cell = Cell::MAX;

/// A file on one target. Its state distinguishes only cells that were read: no client can tell the others apart.
pub struct Whole {
    read: BTreeSet<Cell>,
}

impl Whole {
    fn fill(&self, bytes: &mut Vec<Cell>, at: usize, tag: u32, count: u32) {
        let end = at + count as usize;
        bytes.resize(bytes.len().max(end), 0);
        for (index, place) in bytes[at..end].iter_mut().enumerate() {
            let cell = stamp::cell(tag, index as u32);
            *place = if self.read.contains(&cell) { cell } else { UNREAD };
        }
    }
}

impl Object for Whole {
    type State = Vec<Cell>;
    type Input = Ask;
    type Output = Answer;

    fn initial(&self) -> Vec<Cell> {
        Vec::new()
    }

    fn only_looks(&self, operation: &Op) -> bool {
        matches!(operation.input, Ask::Read | Ask::Size)
    }

    fn steps(&self, state: &Vec<Cell>, _: usize, operation: &Op) -> Vec<(Vec<Cell>, bool)> {
        let mut after = state.clone();
        let fits = match (&operation.input, &operation.output) {
            (Ask::Write { at, cells, tag }, _) => {
                self.fill(&mut after, *at as usize, *tag, *cells);
                true
            }
            (Ask::Append { cells, tag }, _) => {
                self.fill(&mut after, state.len(), *tag, *cells);
                true
            }
            (Ask::Truncate(cells), _) => {
                after.resize(*cells as usize, 0);
                true
            }
            (Ask::Read, Some(Answer::Cells(seen))) => seen == state,
            (Ask::Size, Some(Answer::Size(seen))) => *seen as usize == state.len(),
            (Ask::Read | Ask::Size, given) => given.is_none(),
        };
        if fits { vec![(after, true)] } else { Vec::new() }
    }
}

/// Checks the history of a file on one target.
pub fn check(history: Vec<Op>) -> Result<(), String> {
    let read = Seen::of(&history).cells;
    explain(&Whole { read }, history)
}

/// A register that is set, raised and read: one cell, or the size.
struct Number;

#[derive(Clone, Copy, Debug)]
enum Change {
    /// A truncate.
    Cut(Cell),
    /// A write of a cell. With `again` it may have been executed twice.
    Set {
        value: Cell,
        again: bool,
    },
    /// A write raises the size, to its end or to any stripe boundary before it. With `again` it may have been executed
    /// twice.
    Raise {
        from: Cell,
        to: Cell,
        stripe: Cell,
        again: bool,
    },
    Get,
}

impl Object for Number {
    type State = Cell;
    type Input = Change;
    type Output = Cell;

    fn initial(&self) -> Cell {
        0
    }

    fn only_looks(&self, operation: &Operation<Change, Cell>) -> bool {
        matches!(operation.input, Change::Get)
    }

    fn steps(&self, state: &Cell, _: usize, operation: &Operation<Change, Cell>) -> Vec<(Cell, bool)> {
        match operation.input {
            Change::Cut(value) => vec![(value, true)],
            Change::Set { value, again } if again && *state != value => vec![(value, true), (value, false)],
            Change::Set { value, .. } => vec![(value, true)],
            Change::Raise { from, to, stripe, again } => {
                let ends = (from / stripe + 1..=(to - 1) / stripe).map(|number| number * stripe);
                let ends = ends.chain(again.then_some(to));
                let longer = ends.filter(|end| *end > *state).map(|end| (end, false));
                [((*state).max(to), true)].into_iter().chain(longer).collect()
            }
            Change::Get if operation.output.is_none_or(|seen| seen == *state) => vec![(*state, true)],
            Change::Get => Vec::new(),
        }
    }
}

/// Checks the history of a file on several targets, with `stripe` cells in a stripe: first every cell, then the size.
/// Such a history has no appends; `log` checks those.
pub fn check_striped(history: &[Op], stripe: u32) -> Result<(), String> {
    let longest = history.iter().filter_map(|operation| match &operation.input {
        Ask::Write { at, cells, .. } => Some(at + cells),
        Ask::Truncate(cells) => Some(*cells),
        _ => None,
    });
    let cuts: Vec<&Op> = history.iter().filter(|operation| matches!(operation.input, Ask::Truncate(_))).collect();
    let seen = Seen::of(history);
    let history: Vec<&Op> = history.iter().collect();
    let overtaken = |one: &Op| cuts.iter().any(|cut| cut.begun <= one.ended && one.begun <= cut.ended);
    for number in 0..longest.max().unwrap_or(0) {
        let of_cell = history.iter().filter(|one| seen.may_matter(one, number)).filter_map(|operation| {
            let again = matches!(operation.input, Ask::Write { .. }) && overtaken(operation);
            part(operation, |one| of_cell(one, number, again))
        });
        explain(&Number, of_cell.collect()).map_err(|error| format!("cell {number}: {error}"))?;
    }
    let of_size = history.iter().filter(|one| seen.may_lengthen(one, stripe)).filter_map(|operation| {
        let again = overtaken(operation);
        part(operation, |one| of_size(one, stripe.into(), again))
    });
    explain(&Number, of_size.collect()).map_err(|error| format!("size: {error}"))
}

/// The cells and sizes that any client saw. The search may ignore an unanswered write if no client saw any of it: the
/// write only set or raised registers, and a later read would have shown the new value.
struct Seen {
    cells: BTreeSet<Cell>,
    sizes: BTreeSet<Cell>,
}

impl Seen {
    fn of(history: &[Op]) -> Self {
        let (mut cells, mut sizes) = (BTreeSet::new(), BTreeSet::new());
        for operation in history {
            match &operation.output {
                Some(Answer::Cells(seen)) => {
                    cells.extend(seen.iter().copied());
                    sizes.insert(seen.len() as Cell);
                }
                Some(Answer::Size(size)) => drop(sizes.insert(u64::from(*size))),
                Some(Answer::Done) | None => {}
            }
        }
        Self { cells, sizes }
    }

    fn may_matter(&self, operation: &Op, number: u32) -> bool {
        match (&operation.input, &operation.output) {
            (Ask::Write { at, cells, tag }, None) if (*at..at + cells).contains(&number) => {
                self.cells.contains(&stamp::cell(*tag, number - at))
            }
            _ => true,
        }
    }

    fn may_lengthen(&self, operation: &Op, stripe: u32) -> bool {
        match (&operation.input, &operation.output) {
            (Ask::Write { at, cells, .. }, None) => {
                let (from, to, stripe) = (u64::from(*at), u64::from(at + cells), u64::from(stripe));
                let mut ends = (from / stripe + 1..=(to - 1) / stripe).map(|number| number * stripe).chain([to]);
                ends.any(|end| self.sizes.contains(&end))
            }
            _ => true,
        }
    }
}

fn part(whole: &Op, change: impl Fn(&Op) -> Option<(Change, Cell)>) -> Option<Operation<Change, Cell>> {
    let (input, seen) = change(whole)?;
    let output = whole.output.is_some().then_some(seen);
    Some(Operation { worker: whole.worker, begun: whole.begun, ended: whole.ended, input, output })
}

fn of_cell(operation: &Op, number: u32, again: bool) -> Option<(Change, Cell)> {
    match (&operation.input, &operation.output) {
        (Ask::Write { at, cells, tag }, _) if (*at..at + cells).contains(&number) => {
            Some((Change::Set { value: stamp::cell(*tag, number - at), again }, 0))
        }
        (Ask::Truncate(cells), _) if *cells <= number => Some((Change::Cut(0), 0)),
        (Ask::Read, Some(Answer::Cells(seen))) => seen.get(number as usize).map(|cell| (Change::Get, *cell)),
        _ => None,
    }
}

fn of_size(operation: &Op, stripe: Cell, again: bool) -> Option<(Change, Cell)> {
    match (&operation.input, &operation.output) {
        (Ask::Write { at, cells, .. }, _) => {
            let (from, to) = (u64::from(*at), u64::from(at + cells));
            Some((Change::Raise { from, to, stripe, again }, 0))
        }
        (Ask::Truncate(cells), _) => Some((Change::Cut(u64::from(*cells)), 0)),
        (Ask::Read, Some(Answer::Cells(seen))) => Some((Change::Get, seen.len() as u64)),
        (Ask::Size, Some(Answer::Size(size))) => Some((Change::Get, u64::from(*size))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(begun: u64, ended: u64, input: Ask, output: Option<Answer>) -> Op {
        Operation { worker: 0, begun, ended, input, output }
    }

    fn write(begun: u64, ended: u64, at: u32, cells: u32, tag: u32) -> Op {
        op(begun, ended, Ask::Write { at, cells, tag }, Some(Answer::Done))
    }

    fn append(begun: u64, ended: u64, tag: u32) -> Op {
        op(begun, ended, Ask::Append { cells: 2, tag }, Some(Answer::Done))
    }

    fn read(begun: u64, ended: u64, cells: &[Cell]) -> Op {
        op(begun, ended, Ask::Read, Some(Answer::Cells(cells.to_vec())))
    }

    fn cut(begun: u64, ended: u64, cells: u32) -> Op {
        op(begun, ended, Ask::Truncate(cells), Some(Answer::Done))
    }

    fn size(begun: u64, ended: u64, cells: u32) -> Op {
        op(begun, ended, Ask::Size, Some(Answer::Size(cells)))
    }

    fn cells(tag: u32) -> [Cell; 2] {
        [stamp::cell(tag, 0), stamp::cell(tag, 1)]
    }

    fn both(history: &[Op]) -> [bool; 2] {
        [check(history.to_vec()).is_ok(), check_striped(history, 8).is_ok()]
    }

    #[test]
    fn stale_bytes_and_sizes_are_refused() {
        let history = |seen: &[Cell], told| [write(0, 10, 0, 2, 1), read(20, 30, seen), size(20, 30, told)];
        assert_eq!(both(&history(&cells(1), 2)), [true, true]);
        assert_eq!(both(&history(&[0, 0], 2)), [false, false]);
        assert_eq!(both(&history(&cells(1), 0)), [false, false]);
        assert_eq!(both(&history(&cells(1)[..1], 2)), [false, false]);
        let two = |seen: &[Cell]| [write(0, 10, 0, 2, 1), write(11, 20, 0, 2, 2), read(30, 40, seen)];
        assert_eq!(both(&two(&cells(2))), [true, true]);
        assert_eq!(both(&two(&cells(1))), [false, false]);
        assert_eq!(both(&two(&[stamp::cell(2, 0), stamp::cell(1, 1)])), [false, false]);
    }

    #[test]
    fn a_read_never_goes_back() {
        let history = |first: &[Cell], second: &[Cell]| {
            [write(0, 10, 0, 2, 1), write(20, 90, 0, 2, 2), read(30, 40, first), read(50, 60, second)]
        };
        assert_eq!(both(&history(&cells(1), &cells(2))), [true, true]);
        assert_eq!(both(&history(&cells(2), &cells(1))), [false, false]);
    }

    #[test]
    fn on_one_target_a_write_is_seen_whole_and_on_several_each_cell_is() {
        let half = [stamp::cell(1, 0), 0];
        let history = [cut(0, 5, 2), write(10, 50, 0, 2, 1), read(20, 30, &half)];
        assert_eq!(both(&history), [false, true]);
    }

    #[test]
    fn on_several_targets_a_write_lengthens_the_file_stripe_by_stripe() {
        let history = |told, later| [write(0, 50, 3, 20, 1), size(10, 20, told), size(60, 70, later)];
        for told in [0, 8, 16, 23] {
            assert!(check_striped(&history(told, 23), 8).is_ok(), "{told}");
        }
        assert!(check_striped(&history(12, 23), 8).is_err() && check_striped(&history(0, 16), 8).is_err());
        let back = [write(0, 50, 3, 20, 1), size(10, 20, 16), size(30, 40, 8)];
        assert!(check_striped(&back, 8).is_err());
    }

    #[test]
    fn on_several_targets_a_write_that_a_truncate_overtook_may_be_seen_before_and_after() {
        let whole = |write_ended| {
            let start = [write(0, write_ended, 0, 2, 1), read(10, 15, &cells(1)), cut(20, 30, 0)];
            check_striped(&[&start[..], &[cut(31, 32, 2), read(60, 70, &cells(1))]].concat(), 8).is_ok()
        };
        assert!(whole(50) && !whole(18));
        let long = |write_ended| {
            let start = [write(0, write_ended, 0, 9, 1), size(10, 15, 9), cut(20, 30, 0), size(31, 32, 0)];
            check_striped(&[&start[..], &[size(60, 70, 9)]].concat(), 8).is_ok()
        };
        assert!(long(50) && !long(18));
    }

    #[test]
    fn writes_without_an_answer_that_nobody_saw_are_no_riddle() {
        let lost = |n: u32| op(n.into(), u64::MAX, Ask::Write { at: n, cells: 1, tag: n + 1 }, None);
        let mut history: Vec<Op> = (0..200).map(lost).collect();
        history.push(read(300, 310, &[&[0; 99][..], &[stamp::cell(100, 0)]].concat()));
        assert_eq!(check_striped(&history, 8), Ok(()));
        history.push(read(320, 330, &[0; 100]));
        assert!(check_striped(&history, 8).is_err(), "it was seen before");
    }

    #[test]
    fn changes_without_an_answer_are_no_riddle_on_one_target_either() {
        let lost = |n: u32| {
            let input = if n.is_multiple_of(3) {
                Ask::Append { cells: 1 + n % 4, tag: n + 1 }
            } else {
                Ask::Write { at: n % 7, cells: 1 + n % 3, tag: n + 1 }
            };
            op(n.into(), u64::MAX, input, None)
        };
        let mut history: Vec<Op> = (0..12).map(lost).collect();
        history.push(cut(100, 110, 0));
        for round in 1..4u64 {
            history.push(op(200 * round, 200 * round + 1, Ask::Append { cells: 2, tag: 100 }, Some(Answer::Done)));
            history.push(read(200 * round + 10, 200 * round + 20, &cells(100)));
            history.push(cut(200 * round + 30, 200 * round + 40, 0));
        }
        assert_eq!(check(history.clone()), Ok(()));
        history.push(read(5000, 5010, &[0, 0, stamp::cell(1, 0), 0]));
        assert!(check(history).is_err(), "nobody has left zeros before and behind it");
    }

    #[test]
    fn bytes_beyond_a_truncate_never_come_back() {
        let history = |seen: &[Cell]| [write(0, 10, 0, 2, 1), cut(20, 30, 0), cut(40, 50, 2), read(60, 70, seen)];
        assert_eq!(both(&history(&[0, 0])), [true, true]);
        assert_eq!(both(&history(&cells(1))), [false, false]);
    }

    #[test]
    fn no_append_is_lost_or_there_twice_and_none_lies_on_another() {
        let history = |seen: &[Cell]| check(vec![append(0, 10, 1), append(5, 15, 2), read(20, 30, seen)]).is_ok();
        assert!(history(&[cells(1), cells(2)].concat()) && history(&[cells(2), cells(1)].concat()));
        assert!(!history(&cells(1)), "one is lost");
        assert!(!history(&[cells(1), cells(2), cells(2)].concat()), "one is there twice");
        assert!(!history(&[stamp::cell(1, 0), stamp::cell(2, 0), stamp::cell(2, 1)]), "one lies on the other");
        assert!(!history(&[cells(1), [0, 0], cells(2)].concat()), "a hole that nobody left");
    }

    #[test]
    fn an_append_and_the_size_that_it_makes_are_seen_together() {
        let seen = |between: Op| check(vec![append(0, 50, 1), between, read(60, 70, &cells(1))]).is_ok();
        assert!(seen(read(10, 20, &[])) && seen(read(10, 20, &cells(1))) && seen(size(10, 20, 2)));
        assert!(!seen(read(10, 20, &[0, 0])) && !seen(read(10, 20, &[cells(1)[0], 0])), "zeros that nobody wrote");
        let early = [append(0, 50, 1), size(10, 20, 2), read(30, 40, &[]), read(60, 70, &cells(1))];
        assert!(check(early.to_vec()).is_err(), "the size was shown before the bytes");
    }

    #[test]
    fn an_append_that_a_truncate_overtakes_lies_before_it_or_behind() {
        let cut_between =
            |seen: &[Cell]| check(vec![append(0, 5, 7), append(10, 50, 1), cut(20, 30, 0), read(60, 70, seen)]).is_ok();
        assert!(cut_between(&cells(1)) && cut_between(&[]));
        assert!(!cut_between(&[[0, 0], cells(1)].concat()), "at its old place beyond the end");
        let gone = [append(0, 50, 1), cut(20, 30, 0), size(31, 32, 0), read(33, 34, &[0, 0]), read(60, 70, &cells(1))];
        assert!(check(gone.to_vec()).is_err());
    }

    #[test]
    fn a_write_without_an_answer_may_come_late_but_once() {
        let lost = op(0, u64::MAX, Ask::Write { at: 0, cells: 2, tag: 1 }, None);
        let later = |first: &[Cell], second: &[Cell]| {
            both(&[lost.clone(), write(10, 20, 0, 2, 2), read(30, 40, first), read(50, 60, second)])
        };
        assert_eq!(later(&cells(2), &cells(1)), [true, true]);
        assert_eq!(later(&cells(1), &cells(2)), [false, false]);
    }
}
