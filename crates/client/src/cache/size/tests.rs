use super::*;
use crate::testing::Dice;

#[test]
fn what_another_raised_does_not_cover_a_write() {
    let mut size = KnownSize::new(1, 100);
    size.see(1, 5000);
    assert!(!size.covers(1, 50));
    assert_eq!(size.next_raise(50), 5000);
    size.raised(1, 5000);
    assert!(size.covers(1, 5000) && !size.covers(1, 5001));
}

#[test]
fn a_newer_epoch_voids_what_was_known_and_an_older_one_says_nothing() {
    let mut size = KnownSize::new(1, 0);
    size.raised(1, 9000);
    size.see(2, 10);
    assert_eq!((size.epoch(), size.seen(), size.covers(2, 1)), (2, 10, false));
    size.see(1, 9000);
    size.raised(1, 9000);
    assert_eq!((size.seen(), size.covers(2, 1)), (10, false));
}

#[test]
fn one_raise_serves_all_that_wait() {
    let mut size = KnownSize::new(1, 0);
    size.want(1, 10);
    size.want(1, 30);
    size.want(1, 20);
    let raise = size.next_raise(10);
    size.raised(1, raise);
    assert!(size.covers(1, 30));
}

/// A home that forgets other clients' raises when it restarts and replays this client's.
#[test]
fn a_covered_write_is_within_the_size_after_any_restart() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let (mut size, mut target, mut mine) = (KnownSize::new(0, 0), 0, 0);
        let mut acknowledged = 0;
        for _ in 0..100 {
            match dice.below(4) {
                0 => target += dice.below(100),
                1 => size.see(0, target),
                2 => target = mine,
                _ => {
                    let end = dice.below(3000);
                    if !size.covers(0, end) {
                        let raise = size.next_raise(end);
                        target = target.max(raise);
                        mine = mine.max(raise);
                        size.raised(0, raise);
                    }
                    acknowledged = acknowledged.max(end);
                }
            }
            assert!(target >= acknowledged, "seed {seed}");
        }
    }
}

/// The size as the MDT and the home have it: one truncate epoch after the other, the largest size within each.
struct Truth {
    epoch: u64,
    /// By epoch.
    sizes: Vec<u64>,
    /// To what this client's raises went that were replied, by epoch.
    mine: Vec<u64>,
}

/// What was replied and has not reached the client.
#[derive(Clone, Copy)]
enum Reply {
    Told { epoch: u64, bytes: u64 },
    Raised { epoch: u64, bytes: u64 },
}

#[test]
fn replies_in_any_order_never_show_a_size_that_was_not_there_in_its_truncate_epoch() {
    let (mut covered, mut truncates) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut truth = Truth { epoch: 0, sizes: vec![0], mine: vec![0] };
        let (mut size, mut replies) = (KnownSize::new(0, 0), Vec::new());
        for _ in 0..120 {
            let epoch = truth.epoch as usize;
            match dice.below(8) {
                0 if dice.one_in(3) => {
                    let bytes = dice.below(1000);
                    truth.epoch += 1;
                    truth.sizes.push(bytes);
                    truth.mine.push(0);
                    replies.push(Reply::Told { epoch: truth.epoch, bytes });
                    truncates += 1;
                }
                1 => truth.sizes[epoch] = truth.sizes[epoch].max(dice.below(2000)),
                2 => replies.push(Reply::Told { epoch: truth.epoch, bytes: truth.sizes[epoch] }),
                3 => {
                    // A raise under the epoch that the client knows: one of before a truncate is refused.
                    let end = dice.below(2000);
                    size.want(size.epoch(), end);
                    let bytes = size.next_raise(dice.below(2000));
                    assert!(bytes >= end && bytes >= size.seen(), "seed {seed}: a raise serves all that want it");
                    if size.epoch() == truth.epoch {
                        truth.sizes[epoch] = truth.sizes[epoch].max(bytes);
                        replies.push(Reply::Raised { epoch: truth.epoch, bytes });
                    }
                }
                _ if replies.is_empty() => {}
                _ => match replies.swap_remove(dice.below(replies.len() as u64) as usize) {
                    Reply::Told { epoch, bytes } => size.see(epoch, bytes),
                    Reply::Raised { epoch, bytes } => {
                        size.raised(epoch, bytes);
                        let mine = &mut truth.mine[epoch as usize];
                        *mine = (*mine).max(bytes);
                    }
                },
            }
            let known = size.epoch() as usize;
            assert!(size.epoch() <= truth.epoch, "seed {seed}");
            assert!(size.seen() <= truth.sizes[known], "seed {seed}: {} in epoch {known}", size.seen());
            let end = dice.below(2000);
            if size.covers(size.epoch(), end) {
                covered += u64::from(end > 0);
                assert!(end <= truth.mine[known] && end <= size.seen(), "seed {seed}: no raise to {end} was replied");
            }
            assert!(!size.covers(size.epoch() + 1, 0), "seed {seed}: of an epoch that is not known");
        }
    }
    assert!(covered > 300 && truncates > 300, "{covered}, {truncates}");
}

#[test]
fn an_epoch_that_is_known_never_goes_back_nor_the_size_within_it() {
    for seed in 0..100 {
        let (mut dice, mut size) = (Dice::new(seed), KnownSize::default());
        for _ in 0..100 {
            let before = size;
            let (epoch, bytes) = (dice.below(5), dice.below(100));
            match dice.below(3) {
                0 => size.see(epoch, bytes),
                1 => size.raised(epoch, bytes),
                _ => size.want(epoch, bytes),
            }
            assert!(size.epoch() >= before.epoch(), "seed {seed}");
            if size.epoch() == before.epoch() {
                assert!(size.seen() >= before.seen(), "seed {seed}");
                assert!(size.next_raise(0) >= before.next_raise(0), "seed {seed}: what is wanted is forgotten");
            } else {
                assert_eq!(size, KnownSize::new(epoch, bytes), "seed {seed}: something stays of another epoch");
            }
        }
    }
}

#[test]
fn after_the_end_of_a_session_no_write_is_covered_by_raises_of_before_and_the_size_is_still_known() {
    let mut size = KnownSize::new(3, 50);
    size.raised(3, 500);
    size.want(3, 900);
    assert!(size.covers(3, 500) && size.next_raise(1) == 900);
    size.forget_raises();
    assert!(!size.covers(3, 1));
    assert_eq!((size.epoch(), size.seen(), size.next_raise(1)), (3, 500, 500));
    size.raised(3, 40);
    assert!(size.covers(3, 40) && !size.covers(3, 41));
}
