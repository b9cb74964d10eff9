//! How long the network takes to the target and back: the least that was measured lately, as much of the rest is queues.

use std::{cell::Cell, time::Duration};

use forebay_env::Time;

use crate::limits;

/// See the module.
#[derive(Default)]
pub(super) struct RoundTrip {
    /// When it was measured last.
    looked: Cell<Option<Time>>,
    /// The least of the current term, and when that began.
    now: Cell<(Time, Duration)>,
    /// The least of the term before.
    before: Cell<Duration>,
}

impl RoundTrip {
    /// Measures it now and then. `None`: the target is in this machine.
    pub fn look(&self, now: Time, measure: impl FnOnce() -> Option<Duration>) {
        if self.looked.get().is_some_and(|looked| now.since(looked) < limits::ROUND_TRIP_PAUSE) {
            return;
        }
        let is_first = self.looked.replace(Some(now)).is_none();
        let measured = measure().unwrap_or_default();
        let (began, least) = self.now.get();
        if is_first {
            self.before.set(measured);
            self.now.set((now, measured));
        } else if now.since(began) >= limits::ROUND_TRIP_TERM {
            self.before.set(least);
            self.now.set((now, measured));
        } else {
            self.now.set((began, least.min(measured)));
        }
    }

    /// The least of this term and the one before: a path that became longer is known after two.
    pub fn get(&self) -> Duration {
        self.now.get().1.min(self.before.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_least_of_two_terms_counts_and_a_longer_path_is_learnt_after_them() {
        let (measured, mut at) = (RoundTrip::default(), Time(0));
        let mut look = |measured: &RoundTrip, ms: u32, times: u32| {
            for _ in 0..times {
                at = at + limits::ROUND_TRIP_PAUSE;
                measured.look(at, || Some(MS * ms));
            }
            measured.get()
        };
        assert_eq!(look(&measured, 19, 1), 19 * MS);
        assert_eq!(look(&measured, 90, 3), 19 * MS, "a queue is no distance");
        assert_eq!(look(&measured, 1, 1), MS);
        let of_term = (limits::ROUND_TRIP_TERM.as_nanos() / limits::ROUND_TRIP_PAUSE.as_nanos()) as u32;
        assert_eq!(look(&measured, 100, of_term), MS);
        assert_eq!(look(&measured, 100, 2 * of_term), 100 * MS);
    }

    #[test]
    fn it_is_measured_rarely_and_is_nothing_within_a_machine() {
        let measured = RoundTrip::default();
        measured.look(Time(5), || None);
        measured.look(Time(6), || panic!("a moment ago it was measured"));
        assert_eq!(measured.get(), Duration::ZERO);
    }
}
