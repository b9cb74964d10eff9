use super::*;
use crate::testing::Dice;

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
    assert_eq!(last((0..1).map(read)), Ahead::Window(5000..5000 + limits::PREFETCH_BYTES_LEAST));
    assert_eq!(last((0..2).map(read)), Ahead::Window(10_000..10_000 + 2 * limits::PREFETCH_BYTES_LEAST));
    assert_eq!(last((0..90).map(read)), Ahead::Window(450_000..450_000 + limits::PREFETCH_BYTES));
    assert_eq!(Pattern::default().note(&(7000..7100), false), Ahead::Nothing);
    assert_eq!(last([7000..7100, 7100..9000]), Ahead::Window(9000..9000 + limits::PREFETCH_BYTES_LEAST));
}

#[test]
fn even_steps_are_known_after_three_reads() {
    let record = |number: u64| 188_032 * number + 47_008..188_032 * number + 94_016;
    assert_eq!(last((0..2).map(record)), Ahead::Nothing);
    let (end, least) = (record(3).end, limits::PREFETCH_BYTES_LEAST);
    assert_eq!(expected((0..4).map(record), true), Ahead::Window(end..end + least), "others may want the rest");
    assert_eq!(last((0..4).map(record)), Ahead::Steps((4..9).map(record).collect()));
    let Ahead::Steps(steps) = last((0..50).map(record)) else { panic!("they are far apart") };
    assert_eq!(steps.len() as u64, 2 * limits::PREFETCH_BYTES / 47_008);
    let every_other = |number: u64| 8192 * number..8192 * number + 4096;
    let end = every_other(3).end;
    assert_eq!(last((0..4).map(every_other)), Ahead::Window(end..end + least));
    let far = |number: u64| (number << 20) + 5..(number << 20) + 4101;
    assert_eq!(last((1..5).map(far)), Ahead::Steps((5..69).map(far).collect()));
    let many = last((1..50).map(far));
    assert!(matches!(many, Ahead::Steps(steps) if steps.len() as u64 == limits::PREFETCH_STEPS));
}

#[test]
fn who_reads_backwards_is_read_ahead_before_the_read() {
    let read = |number: u64| 4096 * (1000 - number)..4096 * (1001 - number);
    let least = limits::PREFETCH_BYTES_LEAST;
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

#[test]
fn what_is_read_ahead_is_bounded_and_lies_beside_what_was_read_whatever_is_read() {
    let (mut windows, mut far) = (0, 0);
    for seed in 0..300 {
        let (mut dice, mut pattern) = (Dice::new(seed), Pattern::default());
        let (mut start, mut length, mut step, mut before) = (dice.below(1 << 30), 4096, 4096, 0);
        for _ in 0..100 {
            if dice.one_in(10) {
                let bits = [4, 12, 18][dice.below(3) as usize];
                length = 1 + dice.below(1 << bits);
                let scale = 1 << [13, 18, 22][dice.below(3) as usize];
                step = [length as i64, dice.below(scale) as i64, -(dice.below(scale) as i64)][dice.below(3) as usize];
                if dice.one_in(10) {
                    start = [0, u64::MAX - (1 << 20)][dice.below(2) as usize];
                }
            }
            let range = start..start.saturating_add(length);
            let made = start.wrapping_sub(before) as i64;
            before = start;
            match pattern.note(&range, dice.one_in(4)) {
                Ahead::Nothing => {}
                Ahead::Window(window) => {
                    windows += 1;
                    assert!(window.end - window.start <= limits::PREFETCH_BYTES, "seed {seed}: {window:?}");
                    let is_beside = window.start == range.end || window.end == range.start;
                    assert!(is_beside, "seed {seed}: {window:?} after {range:?}");
                }
                Ahead::Steps(steps) => {
                    far += 1;
                    assert!(steps.len() as u64 <= limits::PREFETCH_STEPS, "seed {seed}");
                    for (number, next) in (1..).zip(steps) {
                        let expected = range.start.checked_add_signed(made * number).expect("it is in the file");
                        assert_eq!(next, expected..expected + (range.end - range.start), "seed {seed}: step {number}");
                    }
                }
            }
            start = start.checked_add_signed(step).unwrap_or(1 << 29);
        }
    }
    assert!(windows > 3000 && far > 3000, "{windows}, {far}");
}

#[test]
fn units_cover_what_is_read_and_less_than_one_more_on_each_side() {
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let unit = 1 << dice.below(17);
        let (start, end) = (dice.below(1 << 20), dice.below(1 << 21));
        let range = start..start + 1 + dice.below(1 << 18);
        let Range { start: from, end: to } = units(&range, unit, end);
        assert!(from.is_multiple_of(unit) && from <= start && start - from < unit, "seed {seed}");
        assert!(to <= end || to == from, "seed {seed}: beyond the end");
        assert!(to >= range.end.min(end) && to < range.end + unit, "seed {seed}: {range:?} in {from}..{to}");
        assert!(to.is_multiple_of(unit) || to == end, "seed {seed}");
    }
}
