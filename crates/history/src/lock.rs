//! Checks advisory locks: no two conflicting locks are held at once, and no lock is denied without a conflict.
//!
//! The holder of an exclusive lock increments a counter in the file: it reads the number and writes the next one. So
//! the data that a lock protects is checked too: no holder may read a stale number.

use serde::{Deserialize, Serialize};

use crate::{limits, search::Operation};

/// A request: take a lock, hold it for a while, release it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// With flock(2) instead of fcntl(2). The two kinds never conflict.
    pub flock: bool,
    /// First and last range that the lock covers. A flock(2) lock covers all.
    pub ranges: (u32, u32),
    /// An exclusive lock; otherwise shared.
    pub exclusive: bool,
    /// Wait for the lock.
    pub wait: bool,
    /// How long to hold the lock.
    pub hold_us: u32,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Denied: another worker has a conflicting lock.
    Denied,
    /// Granted. It was certainly held between `from` and `until`, and perhaps from the call to the return.
    Held {
        /// When it was granted.
        from: u64,
        /// When it was last used with success, or released.
        until: u64,
        /// The counter value that was written under the lock.
        counted: Option<u64>,
    },
}

type Op = Operation<Ask, Answer>;

/// Number of ranges in a file.
pub const RANGES: u32 = 4;

impl Ask {
    /// The counter that this request increments, if it has one: that of flock(2) (`None`), or that of its range if the
    /// lock covers a single range exclusively.
    pub fn counter(&self) -> Option<Option<u32>> {
        match (self.exclusive, self.flock) {
            (true, true) => Some(None),
            (true, false) => (self.ranges.0 == self.ranges.1).then_some(Some(self.ranges.0)),
            _ => None,
        }
    }
}

fn exclude(a: &Op, b: &Op) -> bool {
    let (one, two) = (&a.input, &b.input);
    let overlap = one.flock || one.ranges.0 <= two.ranges.1 && two.ranges.0 <= one.ranges.1;
    one.flock == two.flock && overlap && (one.exclusive || two.exclusive)
}

fn held(operation: &Op) -> Option<(u64, u64, Option<u64>)> {
    match operation.output {
        Some(Answer::Held { from, until, counted }) => Some((from, until, counted)),
        _ => None,
    }
}

/// Checks all locks on a file.
pub fn check(history: &[Op]) -> Result<(), String> {
    for (number, one) in history.iter().enumerate() {
        for other in &history[number + 1..] {
            two_winners(one, other)?;
        }
        for_something(one, history)?;
    }
    for counter in (0..RANGES).map(Some).chain([None]) {
        counts(&history.iter().filter(|one| one.input.counter() == Some(counter)).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn two_winners(one: &Op, other: &Op) -> Result<(), String> {
    let (Some((from, until, _)), Some((other_from, other_until, _))) = (held(one), held(other)) else { return Ok(()) };
    if exclude(one, other) && from < other_until && other_from < until {
        return Err(format!("two hold what one may hold:\n{one:?}\n{other:?}"));
    }
    Ok(())
}

/// For a denied lock there must be another worker that may have held a conflicting lock at that time.
fn for_something(denied: &Op, history: &[Op]) -> Result<(), String> {
    if denied.output != Some(Answer::Denied) {
        return Ok(());
    }
    let in_the_way = |other: &&Op| {
        let may_hold = other.output != Some(Answer::Denied);
        may_hold && exclude(denied, other) && other.begun <= denied.ended && denied.begun <= other.ended
    };
    let myself = |other: &&Op| !std::ptr::eq(*other, denied);
    match history.iter().filter(myself).find(in_the_way) {
        Some(_) => Ok(()),
        None => Err(format!("denied, and nobody had it: {denied:?}\n{}", around(denied, history))),
    }
}

/// The conflicting operations at about the same time.
fn around(denied: &Op, history: &[Op]) -> String {
    let mut near: Vec<&Op> = history.iter().filter(|other| exclude(denied, other)).collect();
    near.sort_by_key(|other| other.begun);
    let from = near.partition_point(|other| other.begun < denied.begun).saturating_sub(limits::SHOWN / 2);
    near.iter().skip(from).take(limits::SHOWN).map(|other| format!("{other:?}\n")).collect()
}

/// The numbers of one counter only rise, and each occurs once.
fn counts(history: &[&Op]) -> Result<(), String> {
    let mut counted: Vec<(u64, &Op)> = history.iter().filter_map(|one| Some((held(one)?.2?, *one))).collect();
    counted.sort_by_key(|(number, _)| *number);
    for pair in counted.windows(2) {
        let ((first, one), (second, two)) = (pair[0], pair[1]);
        if first == second {
            return Err(format!("two counted to {first}: one began from a stale number\n{one:?}\n{two:?}"));
        }
        if held(two).map(|held| held.1) <= held(one).map(|held| held.0) {
            return Err(format!("{second} was counted before {first}\n{one:?}\n{two:?}"));
        }
    }
    let most = history.iter().filter(|one| one.output != Some(Answer::Denied)).count() as u64;
    match counted.last() {
        Some((last, one)) if *last > most => Err(format!("{most} counted, and came to {last}: {one:?}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(times: (u64, u64), exclusive: bool, ranges: (u32, u32), output: Option<Answer>) -> Op {
        let input = Ask { flock: false, ranges, exclusive, wait: false, hold_us: 0 };
        Operation { worker: 0, begun: times.0, ended: times.1, input, output }
    }

    /// Granted from one after the call to one before the return.
    fn hold(begun: u64, ended: u64, exclusive: bool, counted: Option<u64>) -> Op {
        let output = Answer::Held { from: begun + 1, until: ended - 1, counted };
        op((begun, ended), exclusive, (0, 0), Some(output))
    }

    #[test]
    fn locks_that_exclude_each_other_are_not_held_at_once() {
        assert_eq!(check(&[hold(0, 10, true, Some(1)), hold(11, 20, true, Some(2))]), Ok(()));
        assert_eq!(check(&[hold(0, 10, false, None), hold(5, 20, false, None)]), Ok(()));
        assert!(check(&[hold(0, 10, true, None), hold(5, 20, true, None)]).is_err());
        assert!(check(&[hold(0, 10, true, None), hold(5, 20, false, None)]).is_err());
        let mut elsewhere = hold(5, 20, true, None);
        elsewhere.input.ranges = (1, 2);
        assert_eq!(check(&[hold(0, 10, true, None), elsewhere.clone()]), Ok(()));
        elsewhere.input.ranges = (0, 2);
        assert!(check(&[hold(0, 10, true, None), elsewhere.clone()]).is_err());
        elsewhere.input.flock = true;
        assert_eq!(check(&[hold(0, 10, true, None), elsewhere]), Ok(()));
        let flocks = [(0, 10, (0, 0)), (5, 20, (3, 3))].map(|(begun, ended, ranges)| {
            let mut flock = hold(begun, ended, true, None);
            (flock.input.flock, flock.input.ranges) = (true, ranges);
            flock
        });
        assert!(check(&flocks).is_err());
    }

    #[test]
    fn a_denied_lock_is_explained_only_by_a_holder() {
        let denied = |begun| op((begun, begun + 3), true, (0, 0), Some(Answer::Denied));
        assert_eq!(check(&[hold(0, 10, true, None), denied(9)]), Ok(()));
        assert!(check(&[hold(0, 10, true, None), denied(11)]).is_err());
        assert!(check(&[denied(5), denied(5)]).is_err());
        assert_eq!(check(&[op((0, u64::MAX), true, (0, 0), None), denied(500)]), Ok(()));
    }

    #[test]
    fn a_lock_holder_that_counts_from_a_stale_number_is_an_error() {
        assert!(check(&[hold(0, 10, true, Some(1)), hold(11, 20, true, Some(1))]).is_err());
        assert!(check(&[hold(0, 10, true, Some(2)), hold(11, 20, true, Some(1))]).is_err());
        assert!(check(&[hold(0, 10, true, Some(1)), hold(11, 20, true, Some(3))]).is_err());
        let lost = op((0, u64::MAX), true, (0, 0), None);
        assert_eq!(check(&[lost, hold(0, 10, true, Some(1)), hold(11, 20, true, Some(3))]), Ok(()));
    }
}
