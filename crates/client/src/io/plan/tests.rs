use super::*;
use crate::testing::Dice;

/// A file of a few stripes, a range of it and a request size, by chance.
fn some_case(dice: &mut Dice) -> (Layout, u64, u64, u64) {
    let layout = dice.layout();
    let offset = dice.below(3 << 20);
    let length = dice.below(2 << 20);
    (layout, offset, length, (1 + dice.below(8)) * BLOCK_BYTES)
}

#[test]
fn requests_cover_every_byte_of_the_range_once_and_where_the_layout_puts_it() {
    for seed in 0..500 {
        let (layout, offset, length, max) = some_case(&mut Dice::new(seed));
        let mut ranges = Vec::new();
        for request in plan(&layout, offset, length, max) {
            let mut at = request.offset;
            for range in &request.ranges {
                let component = &layout.components[request.component];
                assert_eq!(component.file_offset(request.stripe, at), range.offset, "seed {seed}");
                assert_eq!(component.osts[request.stripe], request.ost, "seed {seed}");
                at += range.length;
                ranges.push(*range);
            }
            assert_eq!(at, request.offset + request.length, "seed {seed}");
        }
        let gaps = layout.gaps(offset, length).into_iter();
        ranges.extend(gaps.map(|(offset, length)| FileRange { offset, length }));
        ranges.sort_by_key(|range| range.offset);
        let mut at = offset;
        for range in ranges {
            assert_eq!(range.offset, at, "seed {seed}");
            assert!(range.length > 0, "seed {seed}");
            at += range.length;
        }
        assert_eq!(at, offset + length, "seed {seed}");
    }
}

#[test]
fn requests_of_one_object_are_adjacent_within_the_limit_and_end_at_blocks() {
    for seed in 0..500 {
        let (layout, offset, length, max) = some_case(&mut Dice::new(seed));
        let requests = plan(&layout, offset, length, max);
        for request in &requests {
            assert!(request.length <= max, "seed {seed}");
        }
        let place = |request: &ObjectRange| (request.component, request.stripe);
        for pair in requests.windows(2).filter(|pair| place(&pair[0]) == place(&pair[1])) {
            assert_eq!(pair[0].offset + pair[0].length, pair[1].offset, "seed {seed}");
            assert!(pair[1].offset.is_multiple_of(BLOCK_BYTES), "seed {seed}");
        }
    }
}

#[test]
fn what_lies_at_home_is_told_with_where_that_ends() {
    let plain = Layout::plain(1, 1 << 20, vec![3]);
    let all = Stretch { from: 0, to: u64::MAX, offset: 0 };
    assert_eq!(stretch_at_home(&plain, 70_000, 3 << 20, 4 << 20), Some(all));
    assert_eq!((stretch_at_home(&plain, 0, 5 << 20, 4 << 20), stretch_at_home(&plain, 0, 0, 4 << 20)), (None, None));
    for seed in 0..500 {
        let (layout, offset, length, max) = some_case(&mut Dice::new(seed));
        let requests = plan(&layout, offset, length, max);
        let is_whole = layout.first_gap(offset, length).is_none();
        let at_home = requests.len() == 1 && requests[0].ost == layout.home() && requests[0].ranges.len() == 1;
        let found = stretch_at_home(&layout, offset, length, max);
        if let Some(Stretch { from, to, offset: object }) = found {
            assert!(at_home && is_whole && from <= offset && offset + length <= to, "seed {seed}");
            assert_eq!(object + (offset - from), requests[0].offset, "seed {seed}");
            let last = layout.pieces(to.min(1 << 40) - 1, 1)[0];
            assert_eq!(object + (to.min(1 << 40) - 1 - from), last.object_offset, "seed {seed}");
            assert_eq!(last.ost, layout.home(), "seed {seed}");
        } else {
            assert!(!at_home || !is_whole, "seed {seed}");
        }
    }
}

#[test]
fn small_stripes_make_large_requests() {
    let layout = Layout::plain(1, 64 << 10, vec![0, 1]);
    let requests = plan(&layout, 0, 4 << 20, 1 << 20);
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|request| request.length == 1 << 20 && request.ranges.len() == 16));
}

#[test]
fn a_range_that_fits_one_request_is_not_cut_for_alignment() {
    let layout = Layout::plain(1, 1 << 20, vec![3]);
    assert_eq!(plan(&layout, 1000, 1 << 20, 1 << 20).len(), 1);
    assert_eq!(plan(&layout, 1000, 0, 1 << 20), []);
}

#[test]
fn whole_ranges_are_the_sum_of_the_requests_to_each_object() {
    for seed in 0..200 {
        let (layout, offset, length, max) = some_case(&mut Dice::new(seed));
        let mut sums: BTreeMap<(usize, usize), WholeRange> = BTreeMap::new();
        for ObjectRange { component, stripe, ost, offset, length, .. } in plan(&layout, offset, length, max) {
            let range = sums.entry((component, stripe)).or_insert(WholeRange { ost, offset, length: 0 });
            range.length += length;
        }
        let expected: Vec<WholeRange> = sums.into_values().collect();
        assert_eq!(plan_whole(&layout, offset, length), expected, "seed {seed}");
    }
}

#[test]
fn each_byte_goes_to_the_ost_and_the_place_in_its_object_that_the_layout_says() {
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let layout = dice.layout();
        let (offset, length) = (dice.below(1 << 20), 1 + dice.below(1 << 21));
        let requests = plan(&layout, offset, length, BLOCK_BYTES * (1 + dice.below(4)));
        for _ in 0..50 {
            let at = offset + dice.below(length);
            let found = requests.iter().find_map(|request| {
                let mut place = request.offset;
                request.ranges.iter().find_map(|range| {
                    let is_here = (range.offset..range.offset + range.length).contains(&at);
                    let place_here = place + at.saturating_sub(range.offset);
                    place += range.length;
                    is_here.then_some((request.ost, place_here))
                })
            });
            let expected = layout.pieces(at, 1).first().map(|piece| (piece.ost, piece.object_offset));
            assert_eq!(found, expected, "seed {seed}: byte {at}");
        }
        let end = requests.iter().map(ObjectRange::file_end).max();
        let last = layout.pieces(offset, length).iter().map(|piece| piece.file_offset + piece.length).max();
        assert_eq!(end, last, "seed {seed}");
    }
}
