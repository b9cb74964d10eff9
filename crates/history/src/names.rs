//! Checks a few names in one directory, and the files that they name.
//!
//! A link takes two steps, as in every file system: it looks up the file of the old name, then adds the new name to
//! that file.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::search::{Object, Operation};

/// Index of a name.
pub type Name = u32;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// open(2) with O_CREAT and O_EXCL.
    Create(Name),
    /// link(2).
    Link(Name, Name),
    /// rename(2).
    Rename(Name, Name),
    /// renameat2(2) with RENAME_NOREPLACE.
    Move(Name, Name),
    /// renameat2(2) with RENAME_EXCHANGE.
    Exchange(Name, Name),
    /// unlink(2).
    Unlink(Name),
    /// A lookup: which file a name refers to.
    Look(Name),
    /// The link count of a file, by its inode number.
    Links(u64),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Success.
    Done,
    /// The inode number of the file that was created or found.
    File(u64),
    /// ENOENT.
    Absent,
    /// EEXIST.
    Exists,
    /// The link count.
    Count(u32),
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// A file whose inode number some answer reported.
    Known(u64),
    /// A file created by the operation with this index, which was never answered.
    Made(usize),
}

/// The file of each name, and the files that unfinished links have looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    names: Vec<Option<File>>,
    found: BTreeMap<usize, File>,
}

impl State {
    fn at(&self, name: Name) -> Option<File> {
        self.names[name as usize]
    }

    fn with(&self, name: Name, file: Option<File>) -> Self {
        let mut after = self.clone();
        after.names[name as usize] = file;
        after
    }

    fn links(&self, file: File) -> u32 {
        self.names.iter().filter(|named| **named == Some(file)).count() as u32
    }

    /// The same state, now that the inode number of `made` is known.
    fn knowing(&self, made: File, number: u64) -> Self {
        let mut after = self.clone();
        let all = after.names.iter_mut().flatten().chain(after.found.values_mut());
        all.filter(|file| **file == made).for_each(|file| *file = File::Known(number));
        after
    }
}

/// The names in a directory.
pub struct Names {
    count: u32,
    /// Inode numbers that creates reported. A file from an unanswered create has a different one.
    told: BTreeSet<u64>,
}

type Op = Operation<Ask, Answer>;

impl Names {
    /// A directory with `count` names, none of them in use yet, and the history to check on it.
    pub fn new(count: u32, history: &[Op]) -> Self {
        let made = history.iter().filter(|operation| matches!(operation.input, Ask::Create(_)));
        let told = made.filter_map(|create| if let Some(Answer::File(n)) = create.output { Some(n) } else { None });
        Self { count, told: told.collect() }
    }

    /// The state if `file` has the inode number `told`: unchanged, or with the number now known. `None` if it cannot
    /// have it.
    fn matching(&self, state: &State, file: File, told: u64) -> Option<State> {
        match file {
            File::Known(number) => (number == told).then(|| state.clone()),
            File::Made(_) if self.told.contains(&told) => None,
            File::Made(_) => Some(state.knowing(file, told)),
        }
    }
}

/// The state after the operation, if `answer` is the one that was recorded.
fn answered(operation: &Op, answer: &Answer, state: State) -> Vec<(State, bool)> {
    let fits = operation.output.as_ref().is_none_or(|given| given == answer);
    if fits { vec![(state, true)] } else { Vec::new() }
}

impl Object for Names {
    type State = State;
    type Input = Ask;
    type Output = Answer;

    fn initial(&self) -> State {
        State { names: vec![None; self.count as usize], found: BTreeMap::new() }
    }

    fn only_looks(&self, operation: &Op) -> bool {
        let refused = matches!(operation.output, Some(Answer::Absent | Answer::Exists));
        refused || matches!(operation.input, Ask::Look(_) | Ask::Links(_))
    }

    fn steps(&self, state: &State, which: usize, operation: &Op) -> Vec<(State, bool)> {
        let same = || state.clone();
        match operation.input {
            Ask::Create(name) => match (state.at(name), &operation.output) {
                (Some(_), _) => answered(operation, &Answer::Exists, same()),
                (None, Some(Answer::File(number))) => vec![(state.with(name, Some(File::Known(*number))), true)],
                (None, None) => vec![(state.with(name, Some(File::Made(which))), true)],
                _ => Vec::new(),
            },
            Ask::Look(name) => match (state.at(name), &operation.output) {
                (None, _) => answered(operation, &Answer::Absent, same()),
                (Some(file), Some(Answer::File(number))) => {
                    self.matching(state, file, *number).map(|after| (after, true)).into_iter().collect()
                }
                _ => Vec::new(),
            },
            Ask::Unlink(name) => match state.at(name) {
                None => answered(operation, &Answer::Absent, same()),
                Some(_) => answered(operation, &Answer::Done, state.with(name, None)),
            },
            Ask::Rename(from, to) => match state.at(from) {
                None => answered(operation, &Answer::Absent, same()),
                // Two names of one file: rename does nothing.
                file if file == state.at(to) => answered(operation, &Answer::Done, same()),
                file => answered(operation, &Answer::Done, state.with(from, None).with(to, file)),
            },
            Ask::Move(from, to) => match (state.at(from), state.at(to)) {
                (None, None) => answered(operation, &Answer::Absent, same()),
                (None, Some(_)) => [Answer::Absent, Answer::Exists]
                    .iter()
                    .flat_map(|answer| answered(operation, answer, same()))
                    .collect(),
                (Some(_), Some(_)) => answered(operation, &Answer::Exists, same()),
                (file, None) => answered(operation, &Answer::Done, state.with(from, None).with(to, file)),
            },
            Ask::Exchange(from, to) => match (state.at(from), state.at(to)) {
                (Some(a), Some(b)) => answered(operation, &Answer::Done, state.with(from, Some(b)).with(to, Some(a))),
                _ => answered(operation, &Answer::Absent, same()),
            },
            Ask::Link(from, to) => link(state, which, operation, from, to),
            Ask::Links(number) => links(state, operation, number),
        }
    }
}

fn link(state: &State, which: usize, operation: &Op, from: Name, to: Name) -> Vec<(State, bool)> {
    let mut after = state.clone();
    let Some(file) = after.found.remove(&which) else {
        return match state.at(from) {
            None => answered(operation, &Answer::Absent, state.clone()),
            Some(file) => {
                after.found.insert(which, file);
                vec![(after, false)]
            }
        };
    };
    let mut ways = Vec::new();
    if state.links(file) == 0 {
        ways.extend(answered(operation, &Answer::Absent, after.clone()));
    }
    if state.at(to).is_some() {
        ways.extend(answered(operation, &Answer::Exists, after));
    } else if state.links(file) > 0 {
        ways.extend(answered(operation, &Answer::Done, after.with(to, Some(file))));
    }
    ways
}

fn links(state: &State, operation: &Op, number: u64) -> Vec<(State, bool)> {
    let count = state.links(File::Known(number));
    let answers = if count == 0 { vec![Answer::Absent, Answer::Count(0)] } else { vec![Answer::Count(count)] };
    answers.iter().flat_map(|answer| answered(operation, answer, state.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::explain;

    /// Checks sequential operations, except where their times overlap: (begun, ended, request, answer).
    fn check(operations: &[(u64, u64, Ask, Option<Answer>)]) -> Result<(), String> {
        let history: Vec<Op> = operations
            .iter()
            .map(|(begun, ended, input, output)| {
                let (input, output) = (input.clone(), output.clone());
                Operation { worker: 0, begun: *begun, ended: *ended, input, output }
            })
            .collect();
        explain(&Names::new(4, &history), history)
    }

    const NEVER: u64 = u64::MAX;

    #[test]
    fn a_name_has_one_winner() {
        let create = |n| (0, 10, Ask::Create(0), Some(Answer::File(n)));
        assert!(check(&[create(1), (0, 10, Ask::Create(0), Some(Answer::Exists))]).is_ok());
        assert!(check(&[create(1), create(2)]).is_err(), "two creates of one name");
        let claim = |to| (20, 30, Ask::Rename(0, to), Some(Answer::Done));
        assert!(check(&[create(1), claim(1), (20, 30, Ask::Rename(0, 2), Some(Answer::Absent))]).is_ok());
        assert!(check(&[create(1), claim(1), claim(2)]).is_err(), "two renames of one name");
        let unlink = (20, 30, Ask::Unlink(0), Some(Answer::Done));
        assert!(check(&[create(1), unlink.clone(), unlink]).is_err(), "two unlinks of one name");
        assert!(check(&[create(1), claim(1), (20, 30, Ask::Unlink(0), Some(Answer::Done))]).is_err());
        let publish = |from| (20, 30, Ask::Move(from, 3), Some(Answer::Done));
        let two = [create(1), (0, 10, Ask::Create(1), Some(Answer::File(2)))];
        assert!(check(&[two[0].clone(), two[1].clone(), publish(0)]).is_ok());
        assert!(check(&[two[0].clone(), two[1].clone(), publish(0), publish(1)]).is_err(), "two of one target");
    }

    #[test]
    fn a_stale_name_is_refused() {
        let create = (0, 10, Ask::Create(0), Some(Answer::File(1)));
        let look = |begun, answer| (begun, begun + 1, Ask::Look(0), Some(answer));
        let unlink = (20, 30, Ask::Unlink(0), Some(Answer::Done));
        let history = |begun, answer| check(&[create.clone(), unlink.clone(), look(begun, answer)]);
        assert!(history(15, Answer::File(1)).is_ok() && history(25, Answer::File(1)).is_ok());
        assert!(history(25, Answer::Absent).is_ok() && history(35, Answer::Absent).is_ok());
        assert!(history(35, Answer::File(1)).is_err(), "a name that is gone");
        assert!(history(15, Answer::Absent).is_err(), "a name that is there");
        assert!(history(15, Answer::File(2)).is_err(), "another file's");
    }

    #[test]
    fn a_create_without_an_answer_may_have_made_a_file_that_later_looks_name() {
        let create = (0, NEVER, Ask::Create(0), None);
        let look = |begun, n| (begun, begun + 1, Ask::Look(0), Some(Answer::File(n)));
        assert!(check(&[create.clone(), look(5, 9), look(7, 9)]).is_ok());
        assert!(check(&[create.clone(), look(5, 9), look(7, 8)]).is_err(), "one file has one number");
        let other = (0, 3, Ask::Create(1), Some(Answer::File(9)));
        assert!(check(&[create, other, look(5, 9)]).is_err(), "that is another file");
    }

    #[test]
    fn links_are_counted_and_a_rename_over_another_name_of_the_file_does_nothing() {
        let start = [
            (0, 1, Ask::Create(0), Some(Answer::File(1))),
            (2, 3, Ask::Link(0, 1), Some(Answer::Done)),
            (4, 5, Ask::Rename(0, 1), Some(Answer::Done)),
        ];
        let count = |n| [&start[..], &[(6, 7, Ask::Links(1), Some(Answer::Count(n)))]].concat();
        assert!(check(&count(2)).is_ok() && check(&count(1)).is_err());
    }

    #[test]
    fn a_link_resolves_the_file_before_the_new_name_appears() {
        // Between the two steps of the link another operation removes the old name, but not the file.
        let history = [
            (0, 1, Ask::Create(0), Some(Answer::File(1))),
            (2, 3, Ask::Link(0, 1), Some(Answer::Done)),
            (10, 40, Ask::Link(0, 2), Some(Answer::Done)),
            (20, 25, Ask::Unlink(0), Some(Answer::Done)),
            (26, 27, Ask::Look(2), Some(Answer::Absent)),
            (50, 51, Ask::Look(2), Some(Answer::File(1))),
        ];
        assert!(check(&history).is_ok());
        let mut late = history.clone();
        late[2].0 = 26;
        assert!(check(&late).is_err());
    }

    #[test]
    fn an_exchange_needs_both() {
        let start = [
            (0, 1, Ask::Create(0), Some(Answer::File(1))),
            (0, 1, Ask::Create(1), Some(Answer::File(2))),
            (2, 3, Ask::Exchange(0, 1), Some(Answer::Done)),
        ];
        let look = |n| [&start[..], &[(4, 5, Ask::Look(0), Some(Answer::File(n)))]].concat();
        assert!(check(&look(2)).is_ok() && check(&look(1)).is_err());
        assert!(check(&[(2, 3, Ask::Exchange(0, 1), Some(Answer::Done))]).is_err());
    }
}
