//! Checks a file that only appends change. There is one direct rule for each promise, so a history may have any number
//! of operations.
//!
//! Every record carries its tag, so a read shows where each append lies. The rules:
//! - No append is lost, torn or duplicated, and no two overlap.
//! - Answered appends lie in the order of time.
//! - No read or size shows less than an earlier one did, or less than was acknowledged before its call.
//! - Nothing is longer than all appends together.
//! - No read shows zeros, as nobody wrote any. The file is exactly as long as its bytes, also while appends are in
//!   flight and where one was lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{search::Operation, stamp::Cell};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// write(2) on O_APPEND.
    Append {
        /// Number of cells.
        cells: u32,
        /// Tag of this append.
        tag: u32,
    },
    /// A read of some cells.
    Read {
        /// First cell.
        from: u64,
        /// Number of cells requested.
        cells: u32,
    },
    /// st_size.
    Size,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Success, with the cell where the append lies, if the answer says so.
    At(Option<u64>),
    /// The cells that were read. If there are fewer than requested, the file ends there.
    Cells(Vec<Cell>),
    /// The size in cells.
    Size(u64),
}

type Op = Operation<Ask, Answer>;

/// An append and where it lies.
struct Append<'a> {
    operation: &'a Op,
    tag: u32,
    cells: u64,
    at: Option<u64>,
}

impl Append<'_> {
    fn is_answered(&self) -> bool {
        self.operation.output.is_some()
    }

    fn end(&self) -> Option<u64> {
        Some(self.at? + self.cells)
    }
}

/// By a minimum size of the file: the time at which a client first knew of it.
type Seen = BTreeMap<u64, u64>;

/// Checks the history of a log. It must end with a read of the whole file.
pub fn check(history: &[Op]) -> Result<(), String> {
    let mut appends = appends(history)?;
    for operation in history {
        place(&mut appends, operation)?;
    }
    let mut placed: Vec<&Append<'_>> = appends.values().filter(|append| append.at.is_some()).collect();
    placed.sort_by_key(|append| append.at);
    if let Some(lost) = appends.values().find(|append| append.is_answered() && append.at.is_none()) {
        return Err(format!("append {} was acknowledged and is nowhere: {:?}", lost.tag, lost.operation));
    }
    apart(&placed)?;
    in_order(&placed)?;
    whole(history, &appends, &placed)
}

fn appends(history: &[Op]) -> Result<BTreeMap<u32, Append<'_>>, String> {
    let mut appends = BTreeMap::new();
    for operation in history {
        let Ask::Append { cells, tag } = operation.input else { continue };
        let at = if let Some(Answer::At(at)) = operation.output { at } else { None };
        let append = Append { operation, tag, cells: cells.into(), at };
        if appends.insert(tag, append).is_some() {
            return Err(format!("tag {tag} was used twice: the history is not one"));
        }
    }
    Ok(appends)
}

/// Records where the appends lie that a read shows.
fn place(appends: &mut BTreeMap<u32, Append<'_>>, read: &Op) -> Result<(), String> {
    let (Ask::Read { from, .. }, Some(Answer::Cells(cells))) = (&read.input, &read.output) else { return Ok(()) };
    for (number, cell) in cells.iter().enumerate().filter(|(_, cell)| **cell != 0) {
        let (tag, index, place) = ((cell >> 32) as u32, cell & 0xffff_ffff, from + number as u64);
        let Some(append) = appends.get_mut(&tag).filter(|append| index < append.cells) else {
            return Err(format!(
                "cell {place} has what nobody appended: tag {tag}, cell {index} of it: {}",
                short(read)
            ));
        };
        let Some(at) = place.checked_sub(index).filter(|at| append.at.is_none_or(|known| known == *at)) else {
            return Err(format!("append {tag} lies twice: from {:?} and around {place}: {}", append.at, short(read)));
        };
        if append.operation.begun > read.ended {
            return Err(format!("append {tag} was read before it was asked for: {}", short(read)));
        }
        append.at = Some(at);
    }
    Ok(())
}

fn apart(placed: &[&Append<'_>]) -> Result<(), String> {
    for pair in placed.windows(2) {
        if pair[0].end() > pair[1].at {
            return Err(format!(
                "append {} from {:?} lies on {} from {:?}",
                pair[0].tag, pair[0].at, pair[1].tag, pair[1].at
            ));
        }
    }
    Ok(())
}

/// An append that was called after another had returned must lie behind it.
fn in_order(placed: &[&Append<'_>]) -> Result<(), String> {
    // Walk from the end of the file: an append may not have returned before the call of one in front of it.
    let mut earliest: Option<&Append<'_>> = None;
    for append in placed.iter().rev() {
        if let Some(behind) = earliest.filter(|behind| behind.operation.ended < append.operation.begun) {
            return Err(format!(
                "append {} at {:?} was answered at {} and lies behind {} at {:?}, asked for at {}",
                behind.tag, behind.at, behind.operation.ended, append.tag, append.at, append.operation.begun
            ));
        }
        if append.is_answered() && earliest.is_none_or(|known| append.operation.ended < known.operation.ended) {
            earliest = Some(append);
        }
    }
    Ok(())
}

/// Every read and size shows what was acknowledged or shown before its call, and no read shows zeros.
fn whole(history: &[Op], appends: &BTreeMap<u32, Append<'_>>, placed: &[&Append<'_>]) -> Result<(), String> {
    let sizes = sizes(history, placed);
    for operation in history {
        let most: u64 =
            appends.values().filter(|one| one.operation.begun <= operation.ended).map(|one| one.cells).sum();
        let least = sizes.iter().filter(|(_, since)| **since < operation.begun).map(|(size, _)| *size).max();
        let (least, told) = (least.unwrap_or(0), end_told(operation, most));
        if let Some(end) = told.filter(|end| *end < least || *end > most) {
            return Err(format!("the file has {least} to {most} cells, and not {end}: {}", short(operation)));
        }
        let (Ask::Read { from, .. }, Some(Answer::Cells(cells))) = (&operation.input, &operation.output) else {
            continue;
        };
        if let Some((place, _)) = (*from..).zip(cells).find(|(_, cell)| **cell == 0) {
            return Err(format!("cell {place} is within the file and is read as zeros: {}", short(operation)));
        }
    }
    Ok(())
}

/// The end of the file according to an answer. An empty read that begins behind the end shows only a bound: the lower
/// of its start and `most`.
fn end_told(operation: &Op, most: u64) -> Option<u64> {
    match (&operation.input, &operation.output) {
        (Ask::Size, Some(Answer::Size(size))) => Some(*size),
        (Ask::Read { from, cells }, Some(Answer::Cells(seen))) if seen.len() < *cells as usize => {
            let end = from + seen.len() as u64;
            Some(if seen.is_empty() { end.min(most) } else { end })
        }
        _ => None,
    }
}

/// When clients first knew that the file has at least a certain size.
fn sizes(history: &[Op], placed: &[&Append<'_>]) -> Seen {
    let mut seen = Seen::new();
    for append in placed.iter().filter(|append| append.is_answered()) {
        note(&mut seen, append.end().unwrap_or(0), append.operation.ended);
    }
    for operation in history {
        let end = match (&operation.input, &operation.output) {
            (Ask::Read { from, .. }, Some(Answer::Cells(cells))) if !cells.is_empty() => from + cells.len() as u64,
            (_, Some(Answer::Size(size))) => *size,
            _ => continue,
        };
        note(&mut seen, end, operation.ended);
    }
    seen
}

fn note(seen: &mut Seen, what: u64, since: u64) {
    let known = seen.entry(what).or_insert(since);
    *known = since.min(*known);
}

fn short(operation: &Op) -> String {
    let cells = if let Some(Answer::Cells(cells)) = &operation.output { cells.len() } else { 0 };
    let Operation { worker, begun, ended, input, .. } = operation;
    format!("worker {worker}, {begun} to {ended}: {input:?} gave {cells} cells")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::cell;

    fn append(begun: u64, ended: u64, tag: u32) -> Op {
        let output = (ended != u64::MAX).then_some(Answer::At(None));
        Operation { worker: tag, begun, ended, input: Ask::Append { cells: 2, tag }, output }
    }

    fn read(begun: u64, ended: u64, cells: &[Cell]) -> Op {
        let input = Ask::Read { from: 0, cells: 100 };
        Operation { worker: 0, begun, ended, input, output: Some(Answer::Cells(cells.to_vec())) }
    }

    fn size(begun: u64, ended: u64, cells: u64) -> Op {
        Operation { worker: 0, begun, ended, input: Ask::Size, output: Some(Answer::Size(cells)) }
    }

    fn records(tags: &[u32]) -> Vec<Cell> {
        tags.iter().flat_map(|tag| if *tag == 0 { [0, 0] } else { [cell(*tag, 0), cell(*tag, 1)] }).collect()
    }

    fn refused(history: &[Op], because: &str) {
        let error = check(history).expect_err("a wrong history");
        assert!(error.contains(because), "{error}");
    }

    #[test]
    fn appends_beside_each_other_lie_in_any_order_and_later_ones_behind() {
        let beside = |order: &[u32]| check(&[append(0, 20, 1), append(10, 30, 2), read(40, 50, &records(order))]);
        assert_eq!((beside(&[1, 2]), beside(&[2, 1])), (Ok(()), Ok(())));
        let after = [append(0, 20, 1), append(21, 30, 2), read(40, 50, &records(&[2, 1]))];
        refused(&after, "lies behind");
    }

    #[test]
    fn a_lost_append_is_refused() {
        refused(&[append(0, 20, 1), append(10, 30, 2), read(40, 50, &records(&[1]))], "is nowhere");
        refused(&[append(0, 20, 1), read(30, 35, &records(&[0])), read(40, 50, &records(&[1]))], "read as zeros");
        let never = [append(0, u64::MAX, 1), append(10, 30, 2), read(40, 50, &records(&[2]))];
        assert_eq!(check(&never), Ok(()));
        let zeros = [append(0, u64::MAX, 1), append(10, 30, 2), read(40, 50, &records(&[0, 2]))];
        refused(&zeros, "read as zeros");
    }

    #[test]
    fn an_append_that_is_there_twice_is_refused() {
        refused(&[append(0, 20, 1), read(30, 40, &records(&[1, 1]))], "lies twice");
        refused(&[append(0, 20, 1), append(0, 20, 2), read(30, 40, &records(&[1, 0, 2]))], "cells, and not");
    }

    #[test]
    fn an_append_on_another_or_torn_is_refused() {
        let on = [cell(1, 0), cell(2, 0), cell(2, 1)];
        refused(&[append(0, 20, 1), append(0, 20, 2), read(30, 40, &on)], "lies on");
        refused(&[append(0, 20, 1), read(30, 40, &[cell(1, 0), 0])], "read as zeros");
        refused(&[append(0, 20, 1), read(30, 40, &[cell(1, 0), cell(1, 1), cell(9, 0)])], "nobody appended");
    }

    #[test]
    fn a_read_or_a_size_that_shows_less_than_before_is_refused() {
        let two = [append(0, 20, 1), append(30, 90, 2)];
        let with = |more: &[Op]| [&two[..], more, &[read(95, 99, &records(&[1, 2]))]].concat();
        let seen = records(&[1, 2]);
        refused(&with(&[read(40, 50, &seen), read(60, 70, &records(&[1]))]), "cells, and not");
        refused(&with(&[read(40, 50, &seen), read(60, 70, &records(&[1, 0]))]), "read as zeros");
        refused(&with(&[read(40, 50, &seen), size(60, 70, 2)]), "cells, and not");
        refused(&with(&[size(40, 50, 4), size(60, 70, 2)]), "cells, and not");
        refused(&with(&[size(25, 28, 0)]), "cells, and not");
        refused(&with(&[size(25, 28, 4)]), "cells, and not");
        let behind = |from| Operation { input: Ask::Read { from, cells: 5 }, ..read(60, 70, &[]) };
        refused(&with(&[behind(1)]), "cells, and not");
        assert_eq!(check(&with(&[behind(2)])), Ok(()));
        assert_eq!(check(&with(&[read(40, 50, &seen), read(45, 70, &records(&[1]))])), Ok(()));
        refused(&with(&[size(40, 50, 4), read(60, 70, &records(&[1, 0]))]), "read as zeros");
    }

    #[test]
    fn an_append_that_is_read_before_it_is_asked_for_is_refused() {
        refused(&[read(1, 5, &records(&[1])), append(10, 20, 1)], "before it was asked for");
    }
}
