//! Log lines about connections and requests that are refused.
//!
//! Invariant: there is at most one line in `limits::REFUSAL_LOG`, whatever clients do: they cannot fill a disk with log.
//! Refusals without a line of their own are counted, and the next line says how many they were.

use std::{cell::RefCell, rc::Rc, time::Duration};

use forebay_env::{Env, Time};

use crate::limits;

/// The refusals of one listener, or of one server.
#[derive(Default)]
pub struct Refusals {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// The next line may be written then.
    next_line: Time,
    unsaid: u64,
    /// The words of the last one that is unsaid.
    last: String,
}

/// What becomes of a refusal.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It has its own line.
    Said(String),
    /// It is the first one that is counted: the line about these is due after this time.
    DueIn(Duration),
    /// It is counted with others.
    Counted,
}

impl Refusals {
    /// Logs that a connection was refused, at once or with others.
    pub fn say(self: &Rc<Self>, env: &Env, words: String) {
        match self.note(env.now(), words) {
            Fate::Said(line) => env.log(&line),
            Fate::DueIn(wait) => {
                let (refusals, env2) = (self.clone(), env.clone());
                env.spawn(async move {
                    env2.sleep(wait).await;
                    env2.log(&refusals.sum_up(env2.now()));
                });
            }
            Fate::Counted => {}
        }
    }

    fn note(&self, now: Time, words: String) -> Fate {
        let mut state = self.state.borrow_mut();
        if state.unsaid == 0 && now >= state.next_line {
            state.next_line = now + limits::REFUSAL_LOG;
            return Fate::Said(words);
        }
        (state.unsaid, state.last) = (state.unsaid + 1, words);
        match state.unsaid {
            1 => Fate::DueIn(state.next_line.since(now)),
            _ => Fate::Counted,
        }
    }

    /// The line about those that were counted.
    fn sum_up(&self, now: Time) -> String {
        let mut state = self.state.borrow_mut();
        state.next_line = now + limits::REFUSAL_LOG;
        let last = std::mem::take(&mut state.last);
        match std::mem::take(&mut state.unsaid) {
            1 => last,
            unsaid => format!("{unsaid} more connections were refused; the last: {last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_one_line_a_second_that_counts_them() {
        let refusals = Refusals::default();
        let at = |ms: u64| Time(0) + Duration::from_secs(100) + Duration::from_millis(ms);
        let note = |ms, words: &str| refusals.note(at(ms), words.into());
        assert_eq!(note(0, "a"), Fate::Said("a".into()));
        assert_eq!(note(200, "b"), Fate::DueIn(Duration::from_millis(800)));
        assert!((0..1000).all(|_| note(300, "c") == Fate::Counted));
        // The line is late: a busy shard. Whatever comes before it is counted with the others.
        assert_eq!(note(1400, "d"), Fate::Counted);
        assert_eq!(refusals.sum_up(at(1500)), "1002 more connections were refused; the last: d");
        assert_eq!(note(1600, "e"), Fate::DueIn(Duration::from_millis(900)));
        assert_eq!(refusals.sum_up(at(2500)), "e");
        assert_eq!(note(9000, "f"), Fate::Said("f".into()));
    }
}
