use super::*;
use crate::testing::Dice;

#[test]
fn fids_are_taken_once_each_and_the_next_sequence_follows() {
    let mut leases = Leases::default();
    let last = (1 << FID_SEQUENCE_BITS) - 1;
    leases.leases.push(Lease { mdt_index: 0, sequence: FidSequence(5), next: last });
    leases.leases.push(Lease { mdt_index: 0, sequence: FidSequence(8), next: 1 });
    assert_eq!(leases.take(), Some(Fid::new(0, FidSequence(5), last)));
    assert_eq!(leases.take(), Some(Fid::new(0, FidSequence(8), 1)));
    assert_eq!(leases.take(), Some(Fid::new(0, FidSequence(8), 2)));
}

#[test]
fn another_sequence_is_asked_for_before_the_last_is_used_up() {
    let mut leases = Leases::default();
    assert!(leases.is_low() && leases.take().is_none());
    leases.leases.push(Lease { mdt_index: 0, sequence: FidSequence(5), next: 1 });
    assert!(!leases.is_low());
    leases.leases[0].next = (1 << FID_SEQUENCE_BITS) - limits::FIDS_LEFT;
    assert!(leases.is_low() && leases.take().is_some());
}

#[test]
fn no_fid_is_taken_twice_however_sequences_are_leased_and_forgotten() {
    let bits = 1 << FID_SEQUENCE_BITS;
    for seed in 0..100 {
        let (mut dice, fids) = (Dice::new(seed), Fids::default());
        let (mut sequence, mut last, mut taken) = (1, None, 0);
        for _ in 0..400 {
            match dice.below(40) {
                0 => fids.forget(),
                1 | 2 => {
                    // Sequences rise at the MDT, which gives each to one client. Of most, only the last few fids are left.
                    let next = if dice.one_in(4) { 1 } else { bits - 1 - dice.below(30) as u32 };
                    let lease = Lease { mdt_index: 0, sequence: FidSequence(sequence), next };
                    fids.leases.borrow_mut().leases.push(lease);
                    sequence += 1;
                }
                _ => {
                    let left: u32 = fids.leases.borrow().leases.iter().map(Lease::left).sum();
                    let fid = fids.leases.borrow_mut().take();
                    assert_eq!(fid.is_none(), left == 0, "seed {seed}: {left} left");
                    // Each is higher than all before: the oldest sequence goes first.
                    assert!(fid.is_none() || fid > last, "seed {seed}: {fid:?} after {last:?}");
                    last = last.max(fid);
                    taken += u64::from(fid.is_some());
                    let now: u32 = fids.leases.borrow().leases.iter().map(Lease::left).sum();
                    assert_eq!(now, left.saturating_sub(1), "seed {seed}");
                    assert_eq!(fids.leases.borrow().is_low(), now <= limits::FIDS_LEFT, "seed {seed}");
                }
            }
        }
        assert!(taken > 0, "seed {seed}");
    }
}

#[test]
fn all_fids_of_a_sequence_are_used_but_the_first_and_none_of_another() {
    let mut leases = Leases::default();
    leases.leases.push(Lease { mdt_index: 3, sequence: FidSequence(9), next: 1 });
    let mut expected = 1;
    while let Some(fid) = leases.take() {
        assert_eq!(fid, Fid::new(3, FidSequence(9), expected));
        expected += 1;
    }
    assert_eq!(expected, 1 << FID_SEQUENCE_BITS);
    assert!(leases.leases.is_empty() && leases.take().is_none());
}

#[test]
fn fids_that_were_leased_before_the_session_ended_are_not_used_after_it() {
    let fids = Fids::default();
    for sequence in [5, 6] {
        let lease = Lease { mdt_index: 0, sequence: FidSequence(sequence), next: 1 };
        fids.leases.borrow_mut().leases.push(lease);
    }
    assert!(fids.leases.borrow_mut().take().is_some());
    fids.forget();
    assert_eq!(fids.leases.borrow_mut().take(), None);
}
