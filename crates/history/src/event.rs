//! The events recorded in a run, and the verdict over all of them.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    file, lock, log, names,
    search::{Operation, explain},
};

/// Stripe size of the files on several targets.
pub const STRIPE_BYTES: u32 = 64 << 10;

/// What kind of object the workers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Names in one directory: some that all workers use, then one private name per worker.
    Names {
        /// How many names all workers use.
        contested: u32,
        /// Number of workers, each with one private name.
        workers: u32,
    },
    /// A file on one target.
    Small,
    /// A file on several targets.
    Striped,
    /// A file on several targets. Workers mostly write interleaved records to it.
    Shared,
    /// A file on several targets that is only appended to.
    Log,
    /// A file that is locked.
    Locks,
}

/// A request, and its answer if there was one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// On a name.
    Name(names::Ask, Option<names::Answer>),
    /// On a file's bytes.
    Bytes(file::Ask, Option<file::Answer>),
    /// On a log.
    Log(log::Ask, Option<log::Answer>),
    /// On a lock.
    Lock(lock::Ask, Option<lock::Answer>),
}

impl Kind {
    /// The usual objects of a round with this many workers.
    pub fn usual(workers: u32) -> Vec<Self> {
        let names = |contested| Self::Names { contested, workers };
        vec![names(2), names(4), Self::Small, Self::Small, Self::Striped, Self::Log, Self::Locks, Self::Shared]
    }
}

impl Ask {
    /// The operations that show the whole final state of an object. For a file with locks they take every lock.
    pub fn all(kind: Kind) -> Vec<Self> {
        match kind {
            Kind::Names { contested, workers } => {
                (0..contested + workers).map(|name| Self::Name(names::Ask::Links(name.into()), None)).collect()
            }
            Kind::Small | Kind::Striped | Kind::Shared => {
                vec![Self::Bytes(file::Ask::Read, None), Self::Bytes(file::Ask::Size, None)]
            }
            Kind::Log => {
                let read = log::Ask::Read { from: 0, cells: 1 << 16 };
                vec![Self::Log(read, None), Self::Log(log::Ask::Size, None)]
            }
            Kind::Locks => {
                let each = (0..lock::RANGES).map(|range| (false, (range, range))).chain([(true, (0, 0))]);
                let alone = |(flock, ranges)| lock::Ask { flock, ranges, exclusive: true, wait: true, hold_us: 0 };
                each.map(|what| Self::Lock(alone(what), None)).collect()
            }
        }
    }
}

/// One operation as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Index of the object.
    pub object: u32,
    /// Number of the worker.
    pub worker: u32,
    /// Time of the call, in nanoseconds. All workers use one clock.
    pub begun: u64,
    /// Time of the return; `u64::MAX` if the call never returned.
    pub ended: u64,
    /// The request and its answer.
    pub ask: Ask,
}

/// What a good history contained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of operations.
    pub operations: u64,
    /// Operations that were never answered.
    pub unanswered: u64,
    /// Operations that lost a race: EEXIST, ENOENT, a denied lock.
    pub lost: u64,
    /// Operations that overlapped an earlier one on the same object.
    pub beside: u64,
    /// Number of operations by kind.
    pub asked: BTreeMap<String, u64>,
}

impl Summary {
    /// Adds the numbers of another summary.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.unanswered += other.unanswered;
        self.lost += other.lost;
        self.beside += other.beside;
        for (what, count) in &other.asked {
            *self.asked.entry(what.clone()).or_default() += count;
        }
    }

    fn count(&mut self, event: &Event) {
        let (what, answered, lost) = match &event.ask {
            Ask::Name(ask, answer) => (first_word(ask), answer.is_some(), is_lost(answer.as_ref())),
            Ask::Bytes(ask, answer) => (first_word(ask), answer.is_some(), false),
            Ask::Log(ask, answer) => (format!("Log{}", first_word(ask)), answer.is_some(), false),
            Ask::Lock(_, answer) => ("Lock".into(), answer.is_some(), *answer == Some(lock::Answer::Denied)),
        };
        self.operations += 1;
        self.unanswered += u64::from(!answered);
        self.lost += u64::from(lost);
        *self.asked.entry(what).or_default() += 1;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, unanswered, lost, beside, asked } = self;
        write!(
            f,
            "{operations} operations, {beside} beside others, {lost} lost to others, {unanswered} unanswered; {asked:?}"
        )
    }
}

fn is_lost(answer: Option<&names::Answer>) -> bool {
    matches!(answer, Some(names::Answer::Absent | names::Answer::Exists))
}

fn first_word(ask: &impl fmt::Debug) -> String {
    format!("{ask:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Checks a whole history. Errors: the object, and what is wrong with it.
pub fn judge(kinds: &[Kind], events: &[Event]) -> Result<Summary, String> {
    let mut summary = Summary::default();
    for (number, kind) in kinds.iter().enumerate() {
        let mut of_object: Vec<&Event> = events.iter().filter(|event| event.object as usize == number).collect();
        of_object.sort_by_key(|event| event.begun);
        object(*kind, &of_object).map_err(|error| format!("{kind:?} (object {number}): {error}"))?;
        of_object.iter().for_each(|event| summary.count(event));
        summary.beside += beside(&of_object);
    }
    Ok(summary)
}

fn object(kind: Kind, events: &[&Event]) -> Result<(), String> {
    macro_rules! of {
        ($variant:path) => {
            events
                .iter()
                .filter_map(|event| {
                    let $variant(input, output) = event.ask.clone() else { return None };
                    let Event { worker, begun, ended, .. } = **event;
                    let ended = if output.is_some() { ended } else { u64::MAX };
                    Some(Operation { worker, begun, ended, input, output })
                })
                .collect::<Vec<_>>()
        };
    }
    match kind {
        Kind::Names { contested, workers } => {
            let history = of!(Ask::Name);
            explain(&names::Names::new(contested + workers, &history), history)
        }
        Kind::Small => file::check(of!(Ask::Bytes)),
        Kind::Striped | Kind::Shared => file::check_striped(&of!(Ask::Bytes), STRIPE_BYTES / kind.cell_bytes() as u32),
        Kind::Log => log::check(&of!(Ask::Log)),
        Kind::Locks => lock::check(&of!(Ask::Lock)),
    }
}

/// Counts the operations that were called before an earlier one had returned.
fn beside(sorted: &[&Event]) -> u64 {
    let mut last_end = 0;
    let mut count = 0;
    for event in sorted {
        count += u64::from(event.begun < last_end);
        last_end = last_end.max(if event.ended == u64::MAX { event.begun } else { event.ended });
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(object: u32, begun: u64, ask: Ask) -> Event {
        Event { object, worker: 1, begun, ended: begun + 5, ask }
    }

    #[test]
    fn each_object_is_judged_by_its_own_rules_and_counted() {
        let kinds = [Kind::Names { contested: 1, workers: 0 }, Kind::Small];
        let good = vec![
            event(0, 10, Ask::Name(names::Ask::Create(0), Some(names::Answer::File(4)))),
            event(0, 12, Ask::Name(names::Ask::Create(0), Some(names::Answer::Exists))),
            event(1, 10, Ask::Bytes(file::Ask::Size, Some(file::Answer::Size(0)))),
            event(1, 20, Ask::Bytes(file::Ask::Truncate(3), None)),
            event(1, 90, Ask::Bytes(file::Ask::Size, Some(file::Answer::Size(3)))),
        ];
        let summary = judge(&kinds, &good).expect("a good history");
        let Summary { operations, unanswered, lost, beside, .. } = summary;
        assert_eq!((operations, unanswered, lost, beside), (5, 1, 1, 1));
        let mut bad = good.clone();
        bad[4].ask = Ask::Bytes(file::Ask::Size, Some(file::Answer::Size(1)));
        assert!(judge(&kinds, &bad).expect_err("a wrong size").contains("object 1"));
        bad[4] = event(0, 90, Ask::Name(names::Ask::Look(0), Some(names::Answer::Absent)));
        assert!(judge(&kinds, &bad).expect_err("a lost name").contains("object 0"));
    }
}
