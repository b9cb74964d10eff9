use super::*;
use crate::testing::Dice;

fn track(writes: &[(u64, u64)]) -> Option<Pieces> {
    let mut track = Track::new(writes[0].0, writes[0].1, Time(0));
    writes[1..].iter().for_each(|(offset, length)| track.note(*offset, *length, Time(0)));
    track.expected()
}

#[test]
fn what_comes_again_and_again_is_expected() {
    let expected = Pieces::endless(7, 10, 30);
    assert_eq!(track(&[(7, 10), (37, 10), (67, 10)]), None);
    assert_eq!(track(&[(7, 10), (37, 10), (67, 10), (97, 10)]), expected);
    assert_eq!(track(&[(0, 5), (7, 10), (37, 10), (67, 10), (97, 10), (127, 10)]), expected);
}

#[test]
fn nothing_is_expected_of_what_changes_goes_back_or_has_no_gaps() {
    for writes in [
        [(7, 10), (37, 10), (67, 10), (97, 9)],
        [(7, 10), (37, 10), (67, 10), (98, 10)],
        [(97, 10), (67, 10), (37, 10), (7, 10)],
        [(7, 10), (17, 10), (27, 10), (37, 10)],
        [(7, 10), (7, 10), (7, 10), (7, 10)],
        [(0, 10), (5, 10), (10, 10), (15, 10)],
    ] {
        assert_eq!(track(&writes), None, "{writes:?}");
    }
}

/// Runs of even writes, with some that do not fit between them.
#[test]
fn what_is_expected_goes_on_as_the_last_writes_and_even_writes_are_found_after_at_most_five() {
    let mut found = 0;
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut writes: Vec<(u64, u64)> = vec![(dice.below(100), 1 + dice.below(4))];
        let mut track = Track::new(writes[0].0, writes[0].1, Time(0));
        let (mut length, mut step) = (1, 3);
        for now in 1..120 {
            if dice.one_in(8) {
                (length, step) = (1 + dice.below(4), dice.below(9));
            }
            let (last, _) = writes[writes.len() - 1];
            let offset = if dice.one_in(12) { dice.below(500) } else { last + step };
            writes.push((offset, length));
            track.note(offset, length, Time(now));
            assert_eq!(track.at, Time(now), "seed {seed}");
            let is_even = |last: &[(u64, u64)]| {
                let steps: Vec<i64> = last.windows(2).map(|two| two[1].0 as i64 - two[0].0 as i64).collect();
                let same = steps.iter().all(|step| *step == steps[0]) && last.iter().all(|write| write.1 == length);
                same && steps[0] > length as i64
            };
            match track.expected() {
                Some(pieces) => {
                    found += 1;
                    assert!(is_even(&writes[writes.len() - 4..]), "seed {seed}: {writes:?}");
                    let next = 2 * offset - writes[writes.len() - 2].0;
                    assert!(pieces.covers(next, length) && pieces.covers(offset, length), "seed {seed}");
                    assert!(!pieces.covers(next, length + 1) && !pieces.covers(next - 1, length), "seed {seed}");
                }
                None => {
                    let is_missed = writes.len() >= 5 && is_even(&writes[writes.len() - 5..]);
                    assert!(!is_missed, "seed {seed}: {writes:?}");
                }
            }
        }
    }
    assert!(found > 1000, "{found}");
}
