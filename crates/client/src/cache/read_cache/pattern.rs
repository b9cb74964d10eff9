//! What a reader is expected to read next: sequential, in even steps, forwards or backwards. Pure.

use std::ops::Range;

use crate::limits;

/// How one handle is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pattern {
    last: Range<u64>,
    /// From the beginning of one read to that of the next.
    step: i64,
    /// Reads that went on as the one before.
    streak: u32,
    /// How often the largest prefetch has doubled.
    grown: u32,
    /// No further doubling before this offset.
    grows_from: u64,
}

/// What is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// Nothing is known.
    Nothing,
    /// All bytes of a range: what follows the read, or what lies before it.
    Window(Range<u64>),
    /// Reads that lie far apart, the next one first.
    Steps(Vec<Range<u64>>),
}

impl Pattern {
    /// Takes note of a read; returns what is expected after it. The first read at the beginning of a file counts as one
    /// that goes on.
    /// `shared`: others read the file just now, and may want what lies in between.
    pub fn note(&mut self, range: &Range<u64>, shared: bool) -> Ahead {
        let step = range.start.wrapping_sub(self.last.start) as i64;
        let goes_on = range.start == self.last.end;
        self.streak = match goes_on || step == self.step {
            true if step != 0 || goes_on => self.streak.saturating_add(1),
            _ => 0,
        };
        if self.streak == 0 {
            (self.grown, self.grows_from) = (0, 0);
        }
        (self.step, self.last) = (step, range.clone());
        let window = |streak| self.window(streak, range.end - range.start);
        // All that lies in between costs less than a request for each read.
        let times = if shared { limits::DENSE_SHARED } else { limits::DENSE_ALONE };
        let dense = limits::DENSE_STEP_BYTES.min(times * (range.end - range.start)).max(limits::DENSE_STEP_LEAST);
        let near = step.unsigned_abs() <= dense;
        match self.streak {
            0 => Ahead::Nothing,
            streak if goes_on => Ahead::Window(range.end..range.end.saturating_add(window(streak))),
            // One step proves nothing yet.
            1 => Ahead::Nothing,
            streak if near && step > 0 => Ahead::Window(range.end..range.end.saturating_add(window(streak - 1))),
            streak if near => Ahead::Window(range.start.saturating_sub(window(streak - 1))..range.start),
            streak => {
                // The next ones are fetched when half of these have been read.
                let count = 2 * window(streak - 1) / (range.end - range.start).max(1);
                let least = u64::from(streak.min(limits::PREFETCH_STEPS_LEAST));
                Ahead::Steps(steps(range, step, count.clamp(least, limits::PREFETCH_STEPS)))
            }
        }
    }

    /// The reader that went on at `at` waits for what was prefetched for it. If as much as usual was, it will be twice as much, up to
    /// `most` bytes, when the reader has come through that.
    pub fn waited(&mut self, at: u64, most: u64) {
        let length = self.last.end - self.last.start;
        let now = self.window(self.streak, length);
        if now == self.largest(length) && 2 * now <= most && at >= self.grows_from {
            self.grown += 1;
            self.grows_from = at.saturating_add(2 * now);
        }
    }

    /// How far ahead a reader is read that went on so often, each time by `length`.
    fn window(&self, streak: u32, length: u64) -> u64 {
        let first = limits::PREFETCH_BYTES_LEAST.max(if length > limits::CACHED_READ_BYTES { 2 * length } else { 0 });
        (first << streak.saturating_sub(1).min(16)).min(self.largest(length))
    }

    fn largest(&self, length: u64) -> u64 {
        limits::PREFETCH_BYTES.max(2 * length) << self.grown
    }
}

impl Ahead {
    /// What follows the read is expected next.
    pub fn follows(&self, read: &Range<u64>) -> bool {
        matches!(self, Self::Window(window) if window.start >= read.end)
    }
}

fn steps(range: &Range<u64>, step: i64, count: u64) -> Vec<Range<u64>> {
    let place = |number: u64| {
        let start = range.start.checked_add_signed(step.checked_mul(number as i64)?)?;
        Some(start..start.checked_add(range.end - range.start)?)
    };
    (1..=count).map_while(place).collect()
}

/// The whole units of `unit_bytes` that a range touches, up to `end`.
pub(crate) fn units(range: &Range<u64>, unit_bytes: u64, end: u64) -> Range<u64> {
    let start = range.start - range.start % unit_bytes;
    start..range.end.checked_next_multiple_of(unit_bytes).unwrap_or(u64::MAX).min(end).max(start)
}

#[cfg(test)]
mod tests;
