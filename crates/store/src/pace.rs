//! Recent commit latency, and the age of commits and writes that do not complete: what tells a slow disk from others.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use forebay_env::Time;

use crate::limits;

/// Times of commits and of writes of file data.
#[derive(Default)]
pub(crate) struct Pace(RefCell<Times>);

#[derive(Default)]
struct Times {
    /// Start times of the commits and writes in progress, with how many began at each.
    under_way: BTreeMap<Time, u32>,
    /// Moving average of commit latency (the latest weighs a quarter), and when the latest commit ended.
    usual: Option<(Duration, Time)>,
}

impl Pace {
    pub(crate) fn begin(&self, now: Time) {
        *self.0.borrow_mut().under_way.entry(now).or_default() += 1;
    }

    /// Removes a commit or write that began at `began` without recording a latency: a commit with no changes, or a
    /// write.
    pub(crate) fn forget(&self, began: Time) {
        self.0.borrow_mut().remove(began);
    }

    /// A write of file data, in progress until the guard is dropped. Needed because no commit shows a write that never
    /// completes.
    pub(crate) fn write(&self, now: Time) -> Write<'_> {
        self.begin(now);
        Write { pace: self, began: now }
    }

    pub(crate) fn end(&self, began: Time, now: Time) {
        let mut times = self.0.borrow_mut();
        times.remove(began);
        let took = now.since(began);
        let usual = match times.usual {
            Some((usual, at)) if now.since(at) < limits::PACE_TERM => (usual * 3 + took) / 4,
            _ => took,
        };
        times.usual = Some((usual, now));
    }

    /// Commit latency: the recent average, or the age of the oldest commit or write in progress if that is larger.
    /// Zero: no recent commit, and nothing in progress.
    pub(crate) fn get(&self, now: Time) -> Duration {
        let times = self.0.borrow();
        let usual =
            times.usual.filter(|(_, at)| now.since(*at) < limits::PACE_TERM).map_or(Duration::ZERO, |(usual, _)| usual);
        let age = times.under_way.keys().next().map_or(Duration::ZERO, |began| now.since(*began));
        usual.max(age)
    }
}

impl Times {
    fn remove(&mut self, began: Time) {
        if let Some(count) = self.under_way.get_mut(&began) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&began);
            }
        }
    }
}

/// A write in progress.
pub(crate) struct Write<'a> {
    pace: &'a Pace,
    began: Time,
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.pace.forget(self.began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn the_latest_writes_count_most_and_idle_time_forgets_them() {
        let (pace, ms) = (Pace::default(), Duration::from_millis);
        assert_eq!(pace.get(at(5)), ms(0));
        for n in 0..10 {
            pace.begin(at(n * 100));
            pace.end(at(n * 100), at(n * 100 + 8));
        }
        assert_eq!(pace.get(at(1000)), ms(8));
        pace.begin(at(1000));
        pace.end(at(1000), at(1040));
        assert_eq!(pace.get(at(1040)), ms(16), "one that took long is no slow disk");
        assert_eq!(pace.get(at(1040) + limits::PACE_TERM), ms(0));
    }

    #[test]
    fn a_write_that_does_not_end_counts_by_its_age() {
        let pace = Pace::default();
        pace.begin(at(0));
        pace.begin(at(50));
        assert_eq!(pace.get(at(3000)), Duration::from_secs(3));
        pace.forget(at(0));
        let (one, other) = (pace.write(at(10)), pace.write(at(10)));
        drop(one);
        assert_eq!(pace.get(at(3050)), Duration::from_millis(3040));
        drop(other);
        assert_eq!(pace.get(at(3050)), Duration::from_secs(3));
    }
}
