//! Searches for an order that explains a history: the algorithm of Wing and Gong, with Lowe's cache of visited states.
//!
//! An object has a state and defines what each operation may do to it. Some operations take several steps that others
//! may see in between: a write to several targets extends a file stripe by stripe. The object models this with steps
//! that do not complete the operation.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write},
};

use crate::limits;

/// One operation in a history.
#[derive(Clone, Debug)]
pub struct Operation<I, O> {
    /// Number of the worker.
    pub worker: u32,
    /// Time of the call, in nanoseconds.
    pub begun: u64,
    /// Time of the return; `u64::MAX` if the call never returned.
    pub ended: u64,
    /// The request.
    pub input: I,
    /// The answer. `None`: there was no answer, and the operation may have taken effect at any time after its call, or
    /// never.
    pub output: Option<O>,
}

/// The object that the operations act on, with its sequential specification.
pub trait Object {
    /// The state of the object.
    type State: Clone + Ord + Debug;
    /// The requests.
    type Input: Debug;
    /// The answers.
    type Output: Debug;

    /// The state before all operations.
    fn initial(&self) -> Self::State;

    /// True if the operation, with its recorded answer, leaves every state unchanged.
    fn only_looks(&self, operation: &Operation<Self::Input, Self::Output>) -> bool;

    /// All steps from `state` that the operation with index `which` may take and that agree with its answer. True marks
    /// a step that completes the operation.
    fn steps(
        &self,
        state: &Self::State,
        which: usize,
        operation: &Operation<Self::Input, Self::Output>,
    ) -> Vec<(Self::State, bool)>;
}

type History<M> = [Operation<<M as Object>::Input, <M as Object>::Output>];

/// A set of operations, by index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Done(Vec<u64>);

impl Done {
    fn has(&self, which: usize) -> bool {
        self.0[which / 64] & (1 << (which % 64)) != 0
    }

    fn with(&self, which: usize) -> Self {
        let mut more = self.clone();
        more.0[which / 64] |= 1 << (which % 64);
        more
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn both(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, two)| one & two).collect())
    }
}

/// The visited states. The key is the set of completed answered operations and the state; the value is a list of sets
/// of completed unanswered operations. An unanswered operation is optional, so a smaller set can reach everything that
/// a larger one can.
struct Tried<S> {
    unanswered: Done,
    sets: BTreeMap<(Done, S), Vec<Done>>,
    count: usize,
}

impl<S: Clone + Ord> Tried<S> {
    /// False if everything reachable from here is also reachable from a visited state.
    fn is_new(&mut self, done: &Done, state: &S) -> bool {
        let optional = done.both(&self.unanswered);
        let answered = Done(done.0.iter().zip(&optional.0).map(|(all, some)| all & !some).collect());
        let sets = self.sets.entry((answered, state.clone())).or_default();
        if sets.iter().any(|tried| tried.both(&optional) == *tried) {
            return false;
        }
        sets.retain(|tried| optional.both(tried) != optional);
        sets.push(optional);
        self.count += 1;
        true
    }
}

/// Finds an order that explains every answer. Errors: a text about the longest order it found.
pub fn explain<M: Object>(object: &M, mut history: Vec<Operation<M::Input, M::Output>>) -> Result<(), String> {
    history.sort_by_key(|operation| (operation.begun, operation.ended));
    let nothing = Done(vec![0; history.len() / 64 + 1]);
    let unanswered = history.iter().enumerate().filter(|(_, operation)| operation.output.is_none());
    let unanswered = unanswered.fold(nothing.clone(), |all, (which, _)| all.with(which));
    let mut tried = Tried { unanswered, sets: BTreeMap::new(), count: 0 };
    let mut open = vec![(nothing.clone(), object.initial())];
    let mut furthest = (nothing, object.initial());
    while let Some((done, state)) = open.pop() {
        if history.iter().enumerate().all(|(which, operation)| operation.output.is_none() || done.has(which)) {
            return Ok(());
        }
        if tried.count >= limits::STATES {
            return Err(format!("undecided after {} states; {}", tried.count, describe(&history, &furthest)));
        }
        if !tried.is_new(&done, &state) {
            continue;
        }
        if done.count() > furthest.0.count() {
            furthest = (done.clone(), state.clone());
        }
        open.extend(ways_on(object, &history, &done, &state));
    }
    Err(describe(&history, &furthest))
}

/// All next states, the likeliest last.
fn ways_on<M: Object>(object: &M, history: &History<M>, done: &Done, state: &M::State) -> Vec<(Done, M::State)> {
    let mut candidates = next(history, done);
    // An operation that returned first most likely took effect first. An unanswered one most likely had no effect.
    candidates.sort_by_key(|which| std::cmp::Reverse(history[*which].ended));
    let mut ways = Vec::new();
    for which in candidates {
        for (after, is_last) in object.steps(state, which, &history[which]) {
            if is_last && after == *state && history[which].output.is_some() && object.only_looks(&history[which]) {
                // A read with the right answer: other operations do not notice it, so taking it now excludes no order.
                return vec![(done.with(which), after)];
            }
            ways.push((if is_last { done.with(which) } else { done.clone() }, after));
        }
    }
    ways
}

/// The operations that may be next: no incomplete operation returned before their call. A worker runs one operation at
/// a time.
fn next<I, O>(history: &[Operation<I, O>], done: &Done) -> Vec<usize> {
    let mut first_end = u64::MAX;
    let mut candidates = Vec::new();
    for (which, operation) in history.iter().enumerate().filter(|(which, _)| !done.has(*which)) {
        if operation.begun > first_end {
            break;
        }
        candidates.push(which);
        if operation.output.is_some() {
            first_end = first_end.min(operation.ended);
        }
    }
    let waits_for = |which: usize, other: usize| {
        let (one, before) = (&history[which], &history[other]);
        // Operations answered from a cache may take no time. Then they keep the order of the history.
        other < which && one.worker == before.worker && before.output.is_some() && before.ended <= one.begun
    };
    let all = candidates.clone();
    candidates.retain(|which| history[*which].begun <= first_end && !all.iter().any(|other| waits_for(*which, *other)));
    candidates
}

fn describe<I: Debug, O: Debug, S: Debug>(history: &[Operation<I, O>], furthest: &(Done, S)) -> String {
    let (done, state) = furthest;
    let mut text =
        format!("no order explains it; {} of {} operations fit, then {state:?}\n", done.count(), history.len());
    let stuck = (0..history.len()).find(|which| !done.has(*which) && history[*which].output.is_some()).unwrap_or(0);
    let from = stuck.saturating_sub(limits::SHOWN / 2);
    for (which, one) in history.iter().enumerate().skip(from).take(limits::SHOWN) {
        let mark = if done.has(which) { ' ' } else { '?' };
        let ended = if one.ended == u64::MAX { "never".into() } else { micros(one.ended) };
        let said = one.output.as_ref().map_or("not answered".into(), |output| format!("{output:?}"));
        let (worker, begun, input) = (one.worker, micros(one.begun), &one.input);
        let _ = writeln!(text, "{mark} {which:4} w{worker:<3} {begun:>14} .. {ended:>14}  {input:?} -> {said}");
    }
    text
}

fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register: a number that is set and read.
    struct Register;

    #[derive(Clone, Debug)]
    enum Ask {
        Set(u32),
        Get,
    }

    impl Object for Register {
        type State = u32;
        type Input = Ask;
        type Output = u32;

        fn initial(&self) -> u32 {
            0
        }

        fn only_looks(&self, operation: &Operation<Ask, u32>) -> bool {
            matches!(operation.input, Ask::Get)
        }

        fn steps(&self, state: &u32, _: usize, operation: &Operation<Ask, u32>) -> Vec<(u32, bool)> {
            match operation.input {
                Ask::Set(value) => vec![(value, true)],
                Ask::Get if operation.output.is_none_or(|seen| seen == *state) => vec![(*state, true)],
                Ask::Get => Vec::new(),
            }
        }
    }

    fn operation(begun: u64, ended: u64, input: Ask, output: Option<u32>) -> Operation<Ask, u32> {
        Operation { worker: begun as u32, begun, ended, input, output }
    }

    fn check(operations: Vec<Operation<Ask, u32>>) -> Result<(), String> {
        explain(&Register, operations)
    }

    #[test]
    fn a_read_may_see_either_side_of_a_write_beside_it_but_not_go_back() {
        let write = || operation(10, 50, Ask::Set(1), Some(0));
        let read = |begun, ended, seen| operation(begun, ended, Ask::Get, Some(seen));
        assert_eq!(check(vec![write(), read(20, 30, 0), read(31, 40, 1)]), Ok(()));
        assert_eq!(check(vec![write(), read(20, 30, 1), read(25, 40, 0)]), Ok(()));
        assert!(check(vec![write(), read(20, 30, 1), read(31, 40, 0)]).is_err());
        assert!(check(vec![write(), read(51, 60, 0)]).is_err());
        assert!(check(vec![write(), read(1, 9, 1)]).is_err());
    }

    #[test]
    fn an_operation_without_answer_takes_effect_at_any_later_time_or_never() {
        let write = || operation(10, u64::MAX, Ask::Set(1), None);
        let read = |begun, seen| operation(begun, begun + 5, Ask::Get, Some(seen));
        assert_eq!(check(vec![write(), read(100, 0), read(200, 1)]), Ok(()));
        assert_eq!(check(vec![write(), read(100, 0), read(200, 0)]), Ok(()));
        assert!(check(vec![write(), read(100, 1), read(200, 0)]).is_err());
        assert!(check(vec![write(), read(1, 1)]).is_err());
    }

    #[test]
    fn long_histories_of_many_at_once_are_decided() {
        let mut operations = Vec::new();
        for n in 0..400u64 {
            operations.push(operation(n * 10, n * 10 + 45, Ask::Set(n as u32 + 1), Some(0)));
            operations.push(operation(n * 10 + 46, n * 10 + 48, Ask::Get, Some(n as u32 + 1)));
        }
        assert_eq!(check(operations), Ok(()));
    }

    #[test]
    fn two_points_that_touch_may_be_in_either_order() {
        let (write, read) = (operation(10, 20, Ask::Set(1), Some(0)), operation(20, 30, Ask::Get, Some(0)));
        assert_eq!(check(vec![write.clone(), read.clone()]), Ok(()));
        let mut by_the_same = read;
        by_the_same.worker = write.worker;
        assert!(check(vec![write, by_the_same]).is_err());
    }

    #[test]
    fn a_change_that_changes_nothing_now_may_be_meant_for_later() {
        let set = |begun, ended, value| operation(begun, ended, Ask::Set(value), Some(0));
        let read = operation(60, 70, Ask::Get, Some(0));
        assert_eq!(check(vec![set(10, 50, 0), set(20, 40, 1), read]), Ok(()));
    }
}
