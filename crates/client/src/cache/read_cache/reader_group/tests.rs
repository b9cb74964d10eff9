use std::{collections::BTreeMap, time::Duration};

use super::*;
use crate::testing::Dice;

const KEPT: u64 = 1000;

#[test]
fn who_is_ahead_by_a_part_of_what_is_kept_leads() {
    let (reader_group, now) = (ReaderGroup::default(), Time(0));
    assert!(!reader_group.leads(1, Some(5000), KEPT, now), "alone");
    assert!(!reader_group.leads(2, Some(4000), KEPT, now), "it is behind");
    assert!(reader_group.leads(1, Some(5000), KEPT, now), "also ahead of who finds nothing any more");
    assert!(
        !reader_group.leads(2, Some(4900), KEPT, now) && !reader_group.leads(1, Some(5100), KEPT, now),
        "they are together again"
    );
    assert!(!reader_group.leads(1, Some(6900), KEPT, now), "too far to be in the group");
}

#[test]
fn who_reads_here_and_there_is_there_but_leads_nobody_and_is_not_led() {
    let (reader_group, now) = (ReaderGroup::default(), Time(0));
    assert!(!reader_group.leads(1, Some(5000), KEPT, now) && !reader_group.has_others(1, now));
    assert!(!reader_group.leads(2, None, KEPT, now));
    assert!(reader_group.has_others(1, now) && !reader_group.leads(1, Some(5400), KEPT, now));
    assert!(!reader_group.has_others(1, now + limits::READER_GROUP_TERM));
}

#[test]
fn who_has_stopped_is_no_company() {
    let reader_group = ReaderGroup::default();
    reader_group.leads(1, Some(100), KEPT, Time(0));
    assert!(reader_group.leads(2, Some(600), KEPT, Time(0) + (limits::READER_GROUP_TERM - Duration::from_nanos(1))));
    assert!(!reader_group.leads(2, Some(600), KEPT, Time(0) + limits::READER_GROUP_TERM));
}

#[test]
fn it_is_bounded_and_room_is_made_by_those_that_have_stopped() {
    let reader_group = ReaderGroup::default();
    let many = limits::READER_GROUP as u64 + 5;
    assert!((0..many).all(|handle| !reader_group.leads(handle, Some(0), KEPT, Time(0))));
    assert_eq!(reader_group.0.borrow().len(), limits::READER_GROUP);
    reader_group.leads(many, Some(0), KEPT, Time(0) + limits::READER_GROUP_TERM);
    assert_eq!(reader_group.0.borrow().len(), 1);
}

#[test]
fn who_leads_and_who_is_there_is_as_a_list_of_all_readers_has_it() {
    let mut led = 0;
    for seed in 0..200 {
        let (mut dice, reader_group) = (Dice::new(seed), ReaderGroup::default());
        let mut readers: BTreeMap<u64, (Option<u64>, Time)> = BTreeMap::new();
        let mut now = Time(0);
        for _ in 0..100 {
            now = now + limits::READER_GROUP_TERM * dice.below(4) as u32 / 8;
            let handle = dice.below(6);
            let at = (!dice.one_in(5)).then(|| dice.below(3000));
            let others = || readers.iter().filter(|(other, _)| **other != handle);
            let is_there = |seen: Time| now.since(seen) < limits::READER_GROUP_TERM;
            let has_others = others().any(|(_, (_, seen))| is_there(*seen));
            assert_eq!(reader_group.has_others(handle, now), has_others, "seed {seed}");
            let is_behind = |other: Option<u64>| match (at, other) {
                (Some(at), Some(other)) => at >= other + KEPT / 4 && at < other + 2 * KEPT,
                _ => false,
            };
            let leads = others().any(|(_, (other, seen))| is_there(*seen) && is_behind(*other));
            assert_eq!(reader_group.leads(handle, at, KEPT, now), leads, "seed {seed}: {handle} at {at:?}");
            led += u64::from(leads);
            readers.insert(handle, (at, now));
        }
    }
    assert!(led > 2000, "{led}");
}
