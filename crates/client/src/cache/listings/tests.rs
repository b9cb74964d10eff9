use std::time::Duration;

use super::*;
use crate::testing::Dice;

const DIR: Fid = Fid { high: 0, low: 7 };

fn at(ms: u64) -> Time {
    Time(0) + Duration::from_millis(ms)
}

/// Looks until no more come; how many each brought.
fn looks(listings: &Listings, now: Time) -> Vec<u32> {
    let mut brought = Vec::new();
    while let Some(names) = listings.begin(DIR, now) {
        assert_eq!(listings.begin(DIR, now), None, "one at a time");
        listings.brought(DIR, names as usize, true, now);
        brought.push(names);
    }
    brought
}

#[test]
fn ever_more_names_come_but_none_more_than_were_listed() {
    let listings = Listings::default();
    assert_eq!(looks(&listings, at(0)), [], "nothing was listed");
    listings.listed(DIR, true, 600, at(0));
    listings.listed(DIR, false, 400, at(0));
    let brought = looks(&listings, at(1));
    assert_eq!(brought[..7], [8, 16, 32, 64, 128, 256, 256]);
    assert_eq!(brought.iter().sum::<u32>() as usize + brought.len(), 1000);
    listings.listed(DIR, true, 10, at(2));
    assert_eq!(looks(&listings, at(2)), [8], "another listing");
}

#[test]
fn a_listing_is_forgotten_and_one_whose_names_are_busy_left_alone_for_a_while() {
    let listings = Listings::default();
    listings.listed(DIR, true, 1000, at(0));
    assert_eq!(listings.begin(DIR, at(1)), Some(8));
    listings.brought(DIR, 20, false, at(2));
    assert_eq!(listings.begin(DIR, at(3)), None);
    let later = at(2) + limits::STATAHEAD_PAUSE;
    assert_eq!(listings.begin(DIR, later), Some(8));
    listings.brought(DIR, 8, true, later);
    assert_eq!(listings.begin(DIR, later + limits::LISTED_TERM), None);
    for low in 0..=limits::LISTED as u64 {
        listings.listed(Fid { high: 1, low }, true, 5, at(low));
    }
    assert_eq!(listings.0.borrow().len(), limits::LISTED);
    assert_eq!(listings.begin(Fid { high: 1, low: 0 }, at(100)), None, "the oldest went");
}

fn dir(low: u64) -> Fid {
    Fid { high: 2, low }
}

#[test]
fn no_directory_brings_more_names_than_were_listed_of_it_whatever_is_asked() {
    let mut brought_in_all = 0;
    for seed in 0..200 {
        let (mut dice, listings) = (Dice::new(seed), Listings::default());
        // Of each directory: names that were listed and not requested, and how many are on their way.
        let mut left = [0_u64; 5];
        let mut coming: [Option<u32>; 5] = [None; 5];
        let mut now = 0;
        for _ in 0..200 {
            now += dice.below(20);
            let of = dice.below(5) as usize;
            match dice.below(10) {
                0..2 => {
                    let (first, names) = (dice.one_in(2), dice.below(300));
                    listings.listed(dir(of as u64), first, names as usize, at(now));
                    left[of] = if first { names } else { left[of] + names };
                }
                2..4 => {
                    if let Some(names) = coming[of].take() {
                        let came = dice.below(u64::from(names) + 1);
                        listings.brought(dir(of as u64), came as usize, dice.one_in(2), at(now));
                        left[of] = left[of].saturating_sub(1 + came);
                    }
                }
                _ => {
                    let Some(names) = listings.begin(dir(of as u64), at(now)) else {
                        if left[of] <= 1 {
                            // It is forgotten, and with it that some are on their way.
                            (left[of], coming[of]) = (0, None);
                        }
                        continue;
                    };
                    assert_eq!(coming[of], None, "seed {seed}: two at a time");
                    assert!((1..=limits::STATAHEAD_NAMES).contains(&names), "seed {seed}: {names}");
                    assert!(u64::from(names) < left[of], "seed {seed}: {names} of {} names", left[of]);
                    coming[of] = Some(names);
                    brought_in_all += 1;
                }
            }
        }
    }
    assert!(brought_in_all > 500, "{brought_in_all}");
}

#[test]
fn directories_that_are_remembered_as_listed_are_bounded_and_the_one_used_last_is_among_them() {
    for seed in 0..20 {
        let (mut dice, listings) = (Dice::new(seed), Listings::default());
        for now in 0..500 {
            let of = dice.below(200);
            listings.listed(dir(of), dice.one_in(2), 10, at(now));
            assert!(listings.0.borrow().len() <= limits::LISTED, "seed {seed}");
            assert!(listings.0.borrow().contains_key(&dir(of)), "seed {seed}: it was listed just now");
        }
        assert_eq!(listings.0.borrow().len(), limits::LISTED, "seed {seed}");
    }
}

#[test]
fn a_new_listing_while_names_are_on_their_way_asks_for_none_before_they_came() {
    let listings = Listings::default();
    listings.listed(DIR, true, 100, at(0));
    assert_eq!(listings.begin(DIR, at(1)), Some(limits::STATAHEAD_NAMES_LEAST));
    listings.listed(DIR, true, 50, at(2));
    assert_eq!(listings.begin(DIR, at(3)), None);
    listings.brought(DIR, 8, true, at(4));
    assert_eq!(listings.begin(DIR, at(5)), Some(limits::STATAHEAD_NAMES_LEAST), "it begins with few again");
    listings.brought(dir(77), 8, true, at(5));
    assert_eq!(listings.begin(dir(77), at(5)), None, "it was not listed");
}

#[test]
fn a_directory_with_one_name_left_brings_nothing_with_it() {
    for names in 0..2 {
        let listings = Listings::default();
        listings.listed(DIR, true, names, at(0));
        assert_eq!(listings.begin(DIR, at(0)), None, "{names}");
    }
    let listings = Listings::default();
    listings.listed(DIR, true, 2, at(0));
    assert_eq!(listings.begin(DIR, at(0)), Some(1), "the other one");
}
