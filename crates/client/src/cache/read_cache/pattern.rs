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
    /// Takes note of a read; tells what is expected after it. The first read at the beginning of a file counts as one that goes on.
    /// `shared`: others read the file just now, and may want what lies in between.
    pub fn note(&mut self, range: &Range<u64>, shared: bool) -> Ahead {
        let step = range.start.wrapping_sub(self.last.start) as i64;
        let goes_on = range.start == self.last.end;
        self.streak = match goes_on || step == self.step {
            true if step != 0 || goes_on => self.streak.saturating_add(1),
            _ => 0,
        };
        (self.step, self.last) = (step, range.clone());
        // All that lies in between costs less than to ask for each read.
        let times = if shared { limits::DENSE_SHARED } else { limits::DENSE_ALONE };
        let dense = limits::DENSE_STEP_BYTES.min(times * (range.end - range.start)).max(limits::DENSE_STEP_LEAST);
        let near = step.unsigned_abs() <= dense;
        match self.streak {
            0 => Ahead::Nothing,
            streak if goes_on => Ahead::Window(range.end..range.end.saturating_add(window(streak))),
            // One step says nothing yet.
            1 => Ahead::Nothing,
            streak if near && step > 0 => Ahead::Window(range.end..range.end.saturating_add(window(streak - 1))),
            streak if near => Ahead::Window(range.start.saturating_sub(window(streak - 1))..range.start),
            streak => {
                // The next ones are asked for when half of these have been read.
                let count = 2 * window(streak - 1) / (range.end - range.start).max(1);
                let least = u64::from(streak.min(limits::READ_AHEAD_STEPS_LEAST));
                Ahead::Steps(steps(range, step, count.clamp(least, limits::READ_AHEAD_STEPS)))
            }
        }
    }
}

/// How far ahead a reader is read that went on so often.
fn window(streak: u32) -> u64 {
    (limits::READ_AHEAD_BYTES_LEAST << streak.saturating_sub(1).min(16)).min(limits::READ_AHEAD_BYTES)
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
mod tests {
    use super::*;

    fn last(reads: impl IntoIterator<Item = Range<u64>>) -> Ahead {
        expected(reads, false)
    }

    fn expected(reads: impl IntoIterator<Item = Range<u64>>, shared: bool) -> Ahead {
        let mut pattern = Pattern::default();
        reads.into_iter().map(|range| pattern.note(&range, shared)).last().expect("reads")
    }

    #[test]
    fn who_reads_on_is_read_ahead_further_each_time_up_to_the_bound() {
        let read = |number: u64| 5000 * number..5000 * (number + 1);
        assert_eq!(last((0..1).map(read)), Ahead::Window(5000..5000 + limits::READ_AHEAD_BYTES_LEAST));
        assert_eq!(last((0..2).map(read)), Ahead::Window(10_000..10_000 + 2 * limits::READ_AHEAD_BYTES_LEAST));
        assert_eq!(last((0..90).map(read)), Ahead::Window(450_000..450_000 + limits::READ_AHEAD_BYTES));
        assert_eq!(Pattern::default().note(&(7000..7100), false), Ahead::Nothing);
        assert_eq!(last([7000..7100, 7100..9000]), Ahead::Window(9000..9000 + limits::READ_AHEAD_BYTES_LEAST));
    }

    #[test]
    fn even_steps_are_known_after_three_reads() {
        let record = |number: u64| 188_032 * number + 47_008..188_032 * number + 94_016;
        assert_eq!(last((0..2).map(record)), Ahead::Nothing);
        let (end, least) = (record(3).end, limits::READ_AHEAD_BYTES_LEAST);
        assert_eq!(expected((0..4).map(record), true), Ahead::Window(end..end + least), "others may want the rest");
        assert_eq!(last((0..4).map(record)), Ahead::Steps((4..9).map(record).collect()));
        let Ahead::Steps(steps) = last((0..50).map(record)) else { panic!("they are far apart") };
        assert_eq!(steps.len() as u64, 2 * limits::READ_AHEAD_BYTES / 47_008);
        let every_other = |number: u64| 8192 * number..8192 * number + 4096;
        let end = every_other(3).end;
        assert_eq!(last((0..4).map(every_other)), Ahead::Window(end..end + least));
        let far = |number: u64| (number << 20) + 5..(number << 20) + 4101;
        assert_eq!(last((1..5).map(far)), Ahead::Steps((5..69).map(far).collect()));
        let many = last((1..50).map(far));
        assert!(matches!(many, Ahead::Steps(steps) if steps.len() as u64 == limits::READ_AHEAD_STEPS));
    }

    #[test]
    fn who_reads_backwards_is_read_ahead_before_the_read() {
        let read = |number: u64| 4096 * (1000 - number)..4096 * (1001 - number);
        let least = limits::READ_AHEAD_BYTES_LEAST;
        assert_eq!(last((0..4).map(read)), Ahead::Window(read(3).start - least..read(3).start));
        assert_eq!(last((999..1001).map(read)), Ahead::Nothing);
        let far = |number: u64| (10 - number) << 20..((10 - number) << 20) + 10;
        let Ahead::Steps(steps) = last((0..10).map(far)) else { panic!("they are far apart") };
        assert_eq!((steps.len(), steps[0].clone()), (1, 0..10), "nothing lies before the file");
    }

    #[test]
    fn reads_of_one_place_and_reads_anywhere_promise_nothing() {
        assert_eq!(last([100..200, 100..200, 100..200, 100..200]), Ahead::Nothing);
        assert_eq!(last([100..200, 9000..9100, 50..150, 70_000..70_100]), Ahead::Nothing);
        assert_eq!(last([u64::MAX - 10..u64::MAX, 5..6, u64::MAX - 10..u64::MAX]), Ahead::Nothing);
    }

    #[test]
    fn units_are_whole_but_at_the_end_of_the_file() {
        assert_eq!(units(&(70_000..70_001), 65_536, 1 << 30), 65_536..131_072);
        assert_eq!(units(&(70_000..70_001), 65_536, 100_000), 65_536..100_000);
        assert_eq!(units(&(0..65_536), 65_536, 1 << 30), 0..65_536);
        assert_eq!(units(&(70_000..70_001), 65_536, 10), 65_536..65_536);
    }
}
