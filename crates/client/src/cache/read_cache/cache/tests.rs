use super::*;
use crate::testing::Dice;

const FILE: Fid = Fid { high: 0, low: 5 };

fn bytes_of(contents: &[u8], range: &Range<u64>) -> Vec<Bytes> {
    let bytes = &contents[range.start as usize..range.end as usize];
    bytes.chunks(3).map(Bytes::copy_from_slice).collect()
}

/// The whole range, everything missing fetched from `contents`.
fn read(cache: &ReadCache, lease: LeaseNumber, contents: &[u8], range: &Range<u64>) -> Vec<u8> {
    loop {
        match cache.find(FILE, lease, range) {
            Found::Here(parts) => return parts.concat(),
            Found::Coming(_) => panic!("nobody else fetches"),
            Found::Missing(gap) => {
                let arrival = cache.begin(FILE, lease, &gap).expect("it is missing");
                let parts = bytes_of(contents, &arrival.range);
                arrival.keep(parts, false);
            }
        }
    }
}

#[test]
fn what_is_read_is_what_the_file_holds_whatever_was_kept_and_changed_before() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let (cache, mut contents, mut lease) = (ReadCache::default(), dice.bytes(400), 1);
        for _ in 0..200 {
            let start = dice.below(399);
            let range = start..start + 1 + dice.below(400 - start - 1).min(60);
            match dice.below(10) {
                0 => {
                    contents[range.start as usize..range.end as usize].fill(dice.below(256) as u8);
                    cache.changed(FILE, range);
                }
                1 => {
                    lease += 1;
                    contents = dice.bytes(400);
                }
                2 => cache.bound(dice.below(60_000)),
                _ => {
                    let expected = &contents[range.start as usize..range.end as usize];
                    assert_eq!(read(&cache, lease, &contents, &range), expected, "seed {seed}");
                }
            }
            let inner = cache.0.borrow();
            let kept = inner.files.values().flat_map(|kept| &kept.stretches);
            assert_eq!(inner.bytes, kept.map(|(start, stretch)| cost(stretch.end - start)).sum::<u64>());
            assert_eq!(inner.coming, 0);
            assert!(inner.order.len() <= 2 * inner.here + SPARE_PLACES + 1, "seed {seed}");
        }
    }
}

#[test]
fn what_shares_a_buffer_has_no_second_chance() {
    let cache = ReadCache::default();
    for (start, shares) in [(0, false), (100, true), (200, true), (300, false)] {
        let arrival = cache.begin(FILE, 1, &(start..start + 100)).expect("it is missing");
        arrival.keep(vec![Bytes::from(vec![1; 100])], shares);
    }
    // The second half of what is read here would hold the buffer of both.
    assert!(matches!(cache.find(FILE, 1, &(0..10)), Found::Here(_)));
    assert!(matches!(cache.find(FILE, 1, &(200..210)), Found::Here(_)));
    cache.bound(2 * cost(100));
    let is_here = |start: u64| matches!(cache.find(FILE, 1, &(start..start + 10)), Found::Here(_));
    assert_eq!([0, 100, 200, 300].map(is_here), [true, false, false, true]);
}

#[test]
fn what_changes_on_its_way_is_not_kept() {
    let cache = ReadCache::default();
    let arrival = cache.begin(FILE, 1, &(0..100)).expect("it is missing");
    assert!(matches!(cache.find(FILE, 1, &(10..20)), Found::Coming(_)));
    cache.changed(FILE, 99..100);
    assert!(!arrival.is_wanted());
    arrival.keep(vec![Bytes::from(vec![1; 100])], false);
    assert!(matches!(cache.find(FILE, 1, &(10..20)), Found::Missing(gap) if gap == (10..20)));
    assert_eq!(cache.bytes(), (0, 0));
}

#[test]
fn while_bytes_are_changed_nothing_of_them_is_fetched_to_be_kept() {
    let cache = ReadCache::default();
    let first = cache.changing(FILE, 50..60);
    let second = cache.changing(FILE, 55..70);
    assert!(cache.begin(FILE, 1, &(0..100)).is_none());
    assert_eq!(read(&cache, 1, &[7; 100], &(0..50)), [7; 50]);
    drop(first);
    assert!(cache.begin(FILE, 1, &(50..100)).is_none());
    drop(second);
    assert_eq!(read(&cache, 1, &[8; 100], &(50..100)), [8; 50]);
    let inner = cache.0.borrow();
    assert!(inner.changing.is_empty());
}

#[test]
fn a_fetch_that_is_given_up_leaves_nothing_to_wait_for() {
    let cache = ReadCache::default();
    drop(cache.begin(FILE, 1, &(0..100)));
    assert!(matches!(cache.find(FILE, 1, &(10..20)), Found::Missing(_)));
    assert_eq!(cache.bytes(), (0, 0));
}

#[test]
fn what_came_under_another_lease_is_forgotten_also_on_its_way() {
    let cache = ReadCache::default();
    read(&cache, 1, &[7; 100], &(0..50));
    let arrival = cache.begin(FILE, 1, &(50..100)).expect("it is missing");
    assert!(matches!(cache.find(FILE, 2, &(0..10)), Found::Missing(_)));
    arrival.keep(vec![Bytes::from(vec![1; 50])], false);
    assert!(matches!(cache.find(FILE, 2, &(60..70)), Found::Missing(_)));
    assert_eq!(cache.bytes(), (0, 0));
}

#[test]
fn what_is_wanted_again_and_again_stays() {
    let cache = ReadCache::default();
    for start in 0..10 {
        read(&cache, 1, &[7; 100], &(10 * start..10 * start + 10));
        read(&cache, 1, &[7; 100], &(0..10));
        cache.bound(5 * cost(10));
    }
    assert!(matches!(cache.find(FILE, 1, &(0..10)), Found::Here(_)));
    assert!(matches!(cache.find(FILE, 1, &(10..20)), Found::Missing(_)));
}

#[test]
fn only_what_is_missing_is_fetched() {
    let cache = ReadCache::default();
    read(&cache, 1, &[7; 100], &(20..40));
    assert_eq!(cache.first_gap(FILE, 1, &(0..100)), Some(0..20));
    assert_eq!(cache.first_gap(FILE, 1, &(25..100)), Some(40..100));
    assert_eq!(cache.first_gap(FILE, 1, &(25..40)), None);
    assert_eq!(cache.begin(FILE, 1, &(25..60)).map(|arrival| arrival.range.clone()), Some(40..60));
}

/// A file at the servers, and fetches of it on their way.
struct File {
    contents: Vec<u8>,
    lease: LeaseNumber,
    /// With the lease under which each was begun, and the bytes as they were read.
    fetches: Vec<(Arrival, LeaseNumber, Vec<u8>)>,
    changes: Vec<(Changing, Range<u64>)>,
}

fn some_range(dice: &mut Dice) -> Range<u64> {
    let start = dice.below(299);
    start..start + 1 + dice.below((300 - start - 1).clamp(1, 50))
}

#[test]
fn with_many_fetches_and_changes_under_way_only_bytes_of_the_file_as_it_is_are_found() {
    let (mut found, mut refused) = (0, 0);
    for seed in 0..150 {
        let (mut dice, cache) = (Dice::new(seed), ReadCache::default());
        let mut files: Vec<File> = (0..3)
            .map(|_| File { contents: dice.bytes(300), lease: 1, fetches: Vec::new(), changes: Vec::new() })
            .collect();
        for _ in 0..300 {
            let of = dice.below(3) as usize;
            let (fid, range) = (Fid { high: 1, low: of as u64 }, some_range(&mut dice));
            let file = &mut files[of];
            match dice.below(16) {
                0..4 => {
                    let Some(arrival) = cache.begin(fid, file.lease, &range) else {
                        refused += 1;
                        continue;
                    };
                    let asked = &arrival.range;
                    assert!(
                        range.start <= asked.start && asked.end <= range.end,
                        "seed {seed}: {asked:?} of {range:?}"
                    );
                    // The servers read it at some time while it is on its way: now.
                    let bytes = file.contents[asked.start as usize..asked.end as usize].to_vec();
                    file.fetches.push((arrival, file.lease, bytes));
                }
                4..8 if !file.fetches.is_empty() => {
                    let (arrival, ..) = &file.fetches[0];
                    let shares = arrival.range.start.is_multiple_of(2);
                    let (arrival, _, bytes) = file.fetches.swap_remove(dice.below(file.fetches.len() as u64) as usize);
                    match dice.one_in(5) {
                        true => drop(arrival),
                        false => arrival.keep(bytes.chunks(7).map(Bytes::copy_from_slice).collect(), shares),
                    }
                }
                8 if dice.one_in(3) => {
                    let changing = cache.changing(fid, range.clone());
                    file.changes.push((changing, range));
                }
                9 if !file.changes.is_empty() => {
                    let at = dice.below(file.changes.len() as u64) as usize;
                    // The bytes change at some time while the change is under way, or more than once.
                    let changed = file.changes[at].1.clone();
                    file.contents[changed.start as usize..changed.end as usize].fill(dice.below(256) as u8);
                    if dice.one_in(2) {
                        file.changes.swap_remove(at);
                    }
                }
                10 if dice.one_in(4) && file.changes.is_empty() => {
                    // Another client changed it after it had recalled the lease.
                    file.lease += 1;
                    file.contents = dice.bytes(300);
                    let is_old = |(_, lease, _): &(Arrival, LeaseNumber, Vec<u8>)| *lease < file.lease;
                    assert!(file.fetches.iter().all(is_old));
                }
                11 => {
                    let most = dice.below(40_000);
                    cache.bound(most);
                    assert!(cache.bytes().0 <= most, "seed {seed}");
                }
                _ => match cache.find(fid, file.lease, &range) {
                    Found::Here(parts) => {
                        let expected = &file.contents[range.start as usize..range.end as usize];
                        assert_eq!(parts.concat(), expected, "seed {seed}: {range:?} of {fid}");
                        found += 1;
                    }
                    Found::Coming(_) => {
                        let is_coming = |(arrival, lease, _): &(Arrival, LeaseNumber, Vec<u8>)| {
                            let meets = arrival.range.start < range.end && range.start < arrival.range.end;
                            *lease == file.lease && meets && arrival.is_wanted()
                        };
                        assert!(file.fetches.iter().any(is_coming), "seed {seed}: nobody fetches {range:?}");
                    }
                    Found::Missing(gap) => {
                        assert!(range.start <= gap.start && gap.end <= range.end && !gap.is_empty(), "seed {seed}");
                        assert_eq!(cache.first_gap(fid, file.lease, &gap), Some(gap.clone()), "seed {seed}: {gap:?}");
                    }
                },
            }
            check_account(&cache, &files, seed);
        }
    }
    assert!(found > 500 && refused > 500, "{found}, {refused}");
}

/// Bytes that are here and on their way are counted as they are, and nothing overlaps.
fn check_account(cache: &ReadCache, files: &[File], seed: u64) {
    let wanted = files.iter().flat_map(|file| &file.fetches).filter(|(arrival, ..)| arrival.is_wanted());
    let coming: u64 = wanted.map(|(arrival, ..)| arrival.range.end - arrival.range.start).sum();
    let inner = cache.0.borrow();
    let (mut bytes, mut here) = (0, 0);
    for kept in inner.files.values() {
        assert!(!kept.stretches.is_empty(), "seed {seed}: a file of which nothing is kept is kept");
        let mut end = 0;
        for (start, stretch) in &kept.stretches {
            assert!(end <= *start && *start < stretch.end, "seed {seed}: {start} lies in another stretch");
            end = stretch.end;
            if let Body::Here { parts, .. } = &stretch.body {
                let length: usize = parts.iter().map(Bytes::len).sum();
                assert_eq!(length as u64, stretch.end - start, "seed {seed}");
                (bytes, here) = (bytes + cost(stretch.end - start), here + 1);
            }
        }
    }
    assert_eq!((inner.bytes, inner.coming, inner.here), (bytes, coming, here), "seed {seed}");
}

#[test]
fn a_fetch_that_was_begun_before_a_change_and_ends_after_it_brings_nothing() {
    let cache = ReadCache::default();
    let arrival = cache.begin(FILE, 1, &(0..100)).expect("it is missing");
    let other = cache.begin(FILE, 1, &(100..200)).expect("it is missing");
    let changing = cache.changing(FILE, 40..60);
    assert!(!arrival.is_wanted() && other.is_wanted());
    drop(changing);
    // Somebody fetches it again meanwhile.
    let again = cache.begin(FILE, 1, &(0..100)).expect("it is missing");
    arrival.keep(vec![Bytes::from(vec![1; 100])], false);
    assert!(matches!(cache.find(FILE, 1, &(0..10)), Found::Coming(_)), "what is there is the later one");
    again.keep(vec![Bytes::from(vec![2; 100])], false);
    assert!(matches!(cache.find(FILE, 1, &(0..10)), Found::Here(parts) if parts.concat() == [2; 10]));
}

#[test]
fn places_of_stretches_that_are_gone_are_forgotten() {
    let cache = ReadCache::default();
    for number in 0..1000 {
        read(&cache, 1, &[number as u8; 100], &(0..100));
        cache.changed(FILE, 5..6);
        let inner = cache.0.borrow();
        assert!(inner.order.len() <= SPARE_PLACES + 2, "{number}: {}", inner.order.len());
        assert!(inner.files.is_empty(), "{number}");
    }
}

#[test]
fn a_change_takes_away_what_holds_one_of_its_bytes_and_no_neighbour() {
    for (change, left) in [
        (0..10, [false, true, true]),
        (9..11, [false, false, true]),
        (10..20, [true, false, true]),
        (0..30, [false, false, false]),
        (30..99, [true, true, true]),
        (19..20, [true, false, true]),
    ] {
        let cache = ReadCache::default();
        [0..10, 10..20, 20..30].iter().for_each(|range| drop(read(&cache, 1, &[7; 30], range)));
        cache.changed(FILE, change.clone());
        let is_here = |start: u64| matches!(cache.find(FILE, 1, &(start..start + 10)), Found::Here(_));
        assert_eq!([0, 10, 20].map(is_here), left, "{change:?}");
    }
}
