//! What the MDT receives for attributes to set, and what a file is like afterwards.

use super::*;
use crate::testing::{Dice, attr};

const CALLER: Caller = Caller { uid: 7, gid: 8, groups: Vec::new() };

fn some_time(dice: &mut Dice) -> Option<SetTime> {
    [None, Some(SetTime::Now), Some(SetTime::At(dice.below(1000) as i64))][dice.below(3) as usize]
}

/// Some of the attributes, no size, and no set-id bits.
fn some_changes(dice: &mut Dice) -> SetAttributes {
    let mut some = |most: u64| (!dice.one_in(3)).then(|| dice.below(most) as u32);
    let (mode, uid, gid) = (some(0o2000).map(|mode| mode & 0o1777), some(100), some(100));
    SetAttributes { mode, uid, gid, size: None, atime: some_time(dice), mtime: some_time(dice) }
}

fn some_attr(dice: &mut Dice) -> Attr {
    let mode = mode::S_IFREG | dice.below(0o2000) as u32;
    let mut time = || dice.below(1000) as i64;
    Attr { mode, atime_ns: time(), mtime_ns: time(), ctime_ns: time(), size: 77, uid: 1, gid: 2, ..attr(8) }
}

#[test]
fn a_request_has_exactly_the_attributes_that_are_to_be_set() {
    let times = [None, Some(SetTime::Now), Some(SetTime::At(55))];
    for bits in 0..16_u32 {
        for (atime, mtime) in times.into_iter().flat_map(|atime| times.map(|mtime| (atime, mtime))) {
            let has = |bit: u32| bits & bit != 0;
            let set = SetAttributes {
                mode: has(set_attr::MODE).then_some(0o640),
                uid: has(set_attr::UID).then_some(11),
                gid: has(set_attr::GID).then_some(12),
                size: has(set_attr::SIZE).then_some(13),
                atime,
                mtime,
            };
            let request = set.request(&CALLER, attr(8).fid, 9);
            let given = |time: Option<SetTime>, given: u32, now: u32| match time {
                None => 0,
                Some(SetTime::Now) => now,
                Some(SetTime::At(_)) => given,
            };
            let mask = bits
                | given(atime, set_attr::ATIME, set_attr::ATIME_NOW)
                | given(mtime, set_attr::MTIME, set_attr::MTIME_NOW);
            let ns = |time: Option<SetTime>| if time == Some(SetTime::At(55)) { 55 } else { 0 };
            let if_has = |bit: u32, value: u32| if has(bit) { value } else { 0 };
            let expected = SetAttr {
                caller: CALLER,
                fid: attr(8).fid,
                mask,
                mode: if_has(set_attr::MODE, 0o640),
                uid: if_has(set_attr::UID, 11),
                gid: if_has(set_attr::GID, 12),
                size: if_has(set_attr::SIZE, 13).into(),
                atime_ns: ns(atime),
                mtime_ns: ns(mtime),
                handle: 9,
                at_ns: 0,
            };
            assert_eq!(request, expected, "{set:?}");
        }
    }
}

#[test]
fn attributes_that_are_set_together_leave_a_file_as_if_they_were_set_one_after_another() {
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let before = some_attr(&mut dice);
        let (mut joined, mut one_by_one) = (SetAttributes::default(), before.clone());
        let mut now = 2000;
        for _ in 0..1 + dice.below(5) {
            now += dice.below(3) as i64;
            let changes = some_changes(&mut dice);
            joined.then(&changes.at(now));
            one_by_one = changes.applied(one_by_one, now).expect("it depends on nothing else");
        }
        let together = joined.applied(before, now).expect("it depends on nothing else");
        let but_ctime = |attr: &Attr| Attr { ctime_ns: 0, ..attr.clone() };
        assert_eq!(but_ctime(&together), but_ctime(&one_by_one), "seed {seed}: {joined:?}");
    }
}

#[test]
fn what_is_not_set_stays_as_it_was_and_the_change_time_always_moves_on() {
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let (before, changes, now) = (some_attr(&mut dice), some_changes(&mut dice), dice.below(1000) as i64);
        let after = changes.applied(before.clone(), now).expect("it depends on nothing else");
        assert!(after.ctime_ns > before.ctime_ns && after.ctime_ns >= now, "seed {seed}");
        assert_eq!(after.mode & mode::S_IFMT, mode::S_IFREG, "seed {seed}: the type");
        assert_eq!(after.mode & 0o7777, changes.mode.unwrap_or(before.mode & 0o7777), "seed {seed}");
        assert_eq!((after.uid, after.gid), (changes.uid.unwrap_or(1), changes.gid.unwrap_or(2)), "seed {seed}");
        let time = |set: Option<SetTime>, before: i64| match set {
            None => before,
            Some(SetTime::Now) => now,
            Some(SetTime::At(ns)) => ns,
        };
        let times = (time(changes.atime, before.atime_ns), time(changes.mtime, before.mtime_ns));
        assert_eq!((after.atime_ns, after.mtime_ns), times, "seed {seed}");
        let Attr { mode, uid, gid, atime_ns, mtime_ns, ctime_ns, .. } = after.clone();
        assert_eq!(after, Attr { mode, uid, gid, atime_ns, mtime_ns, ctime_ns, ..before }, "seed {seed}: the rest");
    }
}

#[test]
fn what_depends_on_more_than_the_attributes_is_left_to_the_mdt() {
    let plain = || attr(8);
    let with_mode = |mode: u32| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    let owner = SetAttributes { uid: Some(5), ..SetAttributes::default() };
    let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert!(with_mode(0o1777).applied(plain(), 1).is_some() && owner.applied(plain(), 1).is_some());
    assert_eq!(size.applied(plain(), 1), None, "a truncate");
    for bits in [0o4000, 0o2000, 0o6000] {
        assert_eq!(with_mode(0o755 | bits).applied(plain(), 1), None, "set-id bits may be refused");
        let set_id = Attr { mode: 0o100_755 | bits, ..plain() };
        assert_eq!(owner.applied(set_id, 1), None, "another owner takes set-id bits away");
    }
    let has_acl = Attr { flags: attr_flags::XATTRS, ..plain() };
    assert_eq!(with_mode(0o600).applied(has_acl.clone(), 1), None, "an ACL has a mask");
    assert!(owner.applied(has_acl, 1).is_some());
    let last = Attr { ctime_ns: i64::MAX, ..plain() };
    assert_eq!(owner.applied(last, 1).map(|attr| attr.ctime_ns), Some(i64::MAX));
}

#[test]
fn only_times_of_now_are_given_by_this_clock() {
    let set =
        SetAttributes { atime: Some(SetTime::Now), mtime: Some(SetTime::At(5)), uid: Some(3), ..Default::default() };
    let expected = SetAttributes { atime: Some(SetTime::At(99)), ..set.clone() };
    assert_eq!((set.at(99), SetAttributes::default().at(99)), (expected, SetAttributes::default()));
}
