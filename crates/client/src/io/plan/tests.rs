use std::iter;

use super::*;
use crate::testing::Dice;

fn one_piece(blocks: u64) -> RequestLimits {
    RequestLimits { bytes: blocks * BLOCK_BYTES, pieces: 1 }
}

/// A file of a few stripes, and limits, by chance.
fn some_case(dice: &mut Dice) -> (Layout, RequestLimits) {
    let pieces = if dice.one_in(2) { 1 } else { 1 + dice.below(20) as usize };
    (dice.layout(), RequestLimits { pieces, ..one_piece(1 + dice.below(8)) })
}

/// Up to 40 ranges of a few MiB of the file, in order, apart, or touching.
fn some_ranges(dice: &mut Dice) -> Vec<Range<u64>> {
    let (count, long) = (1 + dice.below(40), 1 + dice.below(300_000));
    let mut end = dice.below(1 << 20);
    (0..count)
        .map(|_| {
            let start = end + if dice.one_in(4) { 0 } else { dice.below(200_000) };
            end = start + 1 + dice.below(long);
            start..end
        })
        .collect()
}

/// Where each byte of the file lies, byte by byte. `None`: it has no OST.
fn place(layout: &Layout, at: u64) -> Option<(u32, u64)> {
    layout.pieces(at, 1).first().map(|piece| (piece.ost, piece.object_offset))
}

/// Bytes at which to look: the ends, and some between.
fn probes(dice: &mut Dice, range: &Range<u64>) -> Vec<u64> {
    let length = range.end - range.start;
    let inside = (0..20).map(|_| range.start + dice.below(length));
    inside.chain([range.start, range.end - 1]).collect()
}

#[test]
fn planned_requests_have_every_byte_once_where_the_layout_puts_it() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let ((layout, limits), ranges) = (some_case(&mut dice), some_ranges(&mut dice));
        let mut planned: Vec<Range<u64>> = Vec::new();
        for request in plan(&layout, ranges.clone(), limits) {
            for piece in &request.pieces {
                let mut at = piece.offset;
                for range in &piece.ranges {
                    for byte in probes(&mut dice, range) {
                        let expected = Some((request.ost, at + (byte - range.start)));
                        assert_eq!(place(&layout, byte), expected, "seed {seed}: {byte}");
                    }
                    at += range.end - range.start;
                }
                assert_eq!(at, piece.offset + piece.length, "seed {seed}");
            }
            planned.extend(request.ranges().cloned());
        }
        planned.sort_by_key(|range| range.start);
        assert!(planned.windows(2).all(|two| two[0].end <= two[1].start), "seed {seed}: a byte twice");
        for byte in ranges.iter().flat_map(|range| probes(&mut dice, range)) {
            let is_planned = planned.iter().any(|range| range.contains(&byte));
            assert_eq!(is_planned, place(&layout, byte).is_some(), "seed {seed}: {byte}");
        }
        let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let gaps = ranges.iter().flat_map(|range| layout.gaps(range.start, range.end - range.start));
        let gaps: u64 = gaps.map(|(_, length)| length).sum();
        assert_eq!(bytes(&planned) + gaps, bytes(&ranges), "seed {seed}");
    }
}

#[test]
fn planned_requests_keep_the_limits_and_their_pieces_are_apart() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let ((layout, limits), ranges) = (some_case(&mut dice), some_ranges(&mut dice));
        for request in plan(&layout, ranges, limits) {
            assert_eq!(request.bytes, request.pieces.iter().map(|piece| piece.length).sum::<u64>(), "seed {seed}");
            assert!(request.bytes <= limits.bytes && request.pieces.len() <= limits.pieces, "seed {seed}");
            let apart = |two: &[ObjectRange]| two[0].offset + two[0].length < two[1].offset;
            assert!(request.pieces.windows(2).all(apart), "seed {seed}");
            let (start, end) = (request.file_start(), request.file_end());
            assert!(request.ranges().all(|range| start <= range.start && range.end <= end), "seed {seed}");
            assert!(request.ranges().any(|range| range.start == start), "seed {seed}");
            assert!(request.ranges().any(|range| range.end == end), "seed {seed}");
        }
    }
}

#[test]
fn requests_for_one_range_of_a_stripe_are_adjacent_and_end_at_blocks() {
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let layout = Layout::plain(1, (1 + dice.below(4) as u32) << 16, (0..1 + dice.below(5) as u32).collect());
        let (start, limits) = (dice.below(3 << 20), one_piece(1 + dice.below(8)));
        let requests = plan(&layout, iter::once(start..start + dice.below(2 << 20)), limits);
        for two in requests.windows(2).filter(|two| two[0].ost == two[1].ost) {
            let (first, second) = (&two[0].pieces[0], &two[1].pieces[0]);
            assert_eq!(first.offset + first.length, second.offset, "seed {seed}");
            assert!(second.offset.is_multiple_of(BLOCK_BYTES), "seed {seed}");
        }
    }
}

#[test]
fn planned_writes_carry_the_bytes_of_their_ranges_and_their_sums() {
    let (fid, write_id) = (Fid { high: 0, low: 7 }, WriteId { client: 1, sequence: 2 });
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let ((layout, limits), ranges) = (some_case(&mut dice), some_ranges(&mut dice));
        let run = |range: &Range<u64>, dice: &mut Dice| {
            let bytes = dice.bytes((range.end - range.start) as usize);
            let parts = bytes.chunks(1 + dice.below(200_000) as usize).map(Bytes::copy_from_slice).collect();
            Run { offset: range.start, parts }
        };
        let runs: Vec<Run> = ranges.iter().map(|range| run(range, &mut dice)).collect();
        for write in plan_write(&layout, &runs, limits.bytes as u32) {
            let (mut bytes, mut sums) = (Vec::new(), Vec::new());
            for piece in &write.pieces {
                let of_piece: Vec<u8> = piece.ranges.iter().flat_map(|range| bytes_of(&runs, range)).collect();
                for (block, length) in forebay_proto::crc::blocks(piece.offset, piece.length, BLOCK_BYTES) {
                    let block_bytes = &of_piece[(block - piece.offset) as usize..][..length as usize];
                    sums.push(forebay_proto::crc::block_sum(fid, block, write_id, block_bytes));
                }
                bytes.extend(of_piece);
            }
            assert!(write.parts.concat() == bytes && write.sums(fid, write_id) == sums, "seed {seed}");
        }
    }
}

/// The bytes of a range that lies in one of `runs`.
fn bytes_of(runs: &[Run], range: &Range<u64>) -> Vec<u8> {
    let run = runs.iter().find(|run| run.offset <= range.start && range.end <= run.end()).expect("it is theirs");
    run.parts.concat()[(range.start - run.offset) as usize..(range.end - run.offset) as usize].to_vec()
}

/// Records of programs in turn: each OST gets one request for what it has of them.
#[test]
fn ranges_far_apart_go_in_few_requests() {
    let layout = Layout::plain(4, 1 << 20, vec![3, 1, 4, 2]);
    let records = (0..200).map(|i| i * 188_032..i * 188_032 + 47_008);
    let requests = plan(&layout, records, RequestLimits { bytes: 1 << 20, pieces: 24 });
    assert!(requests.len() <= 200 * 47_008 / (1 << 20) + 2 * 4, "{}", requests.len());
}

#[test]
fn ranges_that_touch_in_an_object_are_one_piece() {
    let layout = Layout::plain(1, 64 << 10, vec![0, 1]);
    let ranges = [60_000..65_536, 131_072..140_000, 150_000..160_000];
    let requests = plan(&layout, ranges, RequestLimits { bytes: 1 << 20, pieces: 24 });
    let [request] = &requests[..] else { panic!("{requests:?}") };
    let pieces: Vec<(u64, u64)> = request.pieces.iter().map(|piece| (piece.offset, piece.length)).collect();
    assert_eq!(pieces, [(60_000, 14_464), (84_464, 10_000)]);
}

#[test]
fn what_lies_at_home_is_told_with_where_that_ends() {
    let plain = Layout::plain(1, 1 << 20, vec![3]);
    let all = Stretch { from: 0, to: u64::MAX, offset: 0 };
    assert_eq!(stretch_at_home(&plain, 70_000, 3 << 20, 4 << 20), Some(all));
    assert_eq!((stretch_at_home(&plain, 0, 5 << 20, 4 << 20), stretch_at_home(&plain, 0, 0, 4 << 20)), (None, None));
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let (layout, offset, length) = (dice.layout(), dice.below(3 << 20), dice.below(2 << 20));
        let limits = one_piece(1 + dice.below(8));
        let requests = plan(&layout, iter::once(offset..offset + length), limits);
        let is_whole = layout.first_gap(offset, length).is_none();
        let at_home =
            requests.len() == 1 && requests[0].ost == layout.home() && requests[0].pieces[0].ranges.len() == 1;
        let found = stretch_at_home(&layout, offset, length, limits.bytes);
        if let Some(Stretch { from, to, offset: object }) = found {
            assert!(at_home && is_whole && from <= offset && offset + length <= to, "seed {seed}");
            assert_eq!(object + (offset - from), requests[0].pieces[0].offset, "seed {seed}");
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
    let requests = plan(&layout, iter::once(0..4 << 20), one_piece(16));
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|request| request.bytes == 1 << 20 && request.ranges().count() == 16));
}

#[test]
fn a_range_that_fits_one_request_is_not_cut_for_alignment() {
    let layout = Layout::plain(1, 1 << 20, vec![3]);
    assert_eq!(plan(&layout, iter::once(1000..1000 + (1 << 20)), one_piece(16)).len(), 1);
    assert_eq!(plan(&layout, iter::once(1000..1000), one_piece(16)), []);
}

#[test]
fn whole_ranges_are_the_sum_of_the_requests_to_each_object() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let (layout, offset, length) = (dice.layout(), dice.below(3 << 20), dice.below(2 << 20));
        let mut expected: BTreeMap<(usize, usize), WholeRange> = BTreeMap::new();
        for StripePiece { component, stripe, ost, object_offset, length, .. } in layout.pieces(offset, length) {
            let whole = WholeRange { ost, offset: object_offset, length: 0 };
            expected.entry((component, stripe)).or_insert(whole).length += length;
        }
        let expected: Vec<WholeRange> = expected.into_values().collect();
        assert_eq!(plan_whole(&layout, offset, length), expected, "seed {seed}");
    }
}

#[test]
fn each_byte_goes_to_the_ost_and_the_place_in_its_object_that_the_layout_says() {
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let (layout, limits) = some_case(&mut dice);
        let (offset, length) = (dice.below(1 << 20), 1 + dice.below(1 << 21));
        let requests = plan(&layout, iter::once(offset..offset + length), limits);
        for _ in 0..50 {
            let at = offset + dice.below(length);
            assert_eq!(planned_place(&requests, at), place(&layout, at), "seed {seed}: byte {at}");
        }
        let end = requests.iter().map(ObjectRequest::file_end).max();
        let last = layout.pieces(offset, length).iter().map(|piece| piece.file_offset + piece.length).max();
        assert_eq!(end, last, "seed {seed}");
    }
}

/// Where `requests` take a byte of the file to, or find it.
fn planned_place(requests: &[ObjectRequest], at: u64) -> Option<(u32, u64)> {
    let pieces = requests.iter().flat_map(|request| request.pieces.iter().map(|piece| (request.ost, piece)));
    for (ost, piece) in pieces {
        let mut place = piece.offset;
        for range in &piece.ranges {
            if range.contains(&at) {
                return Some((ost, place + (at - range.start)));
            }
            place += range.end - range.start;
        }
    }
    None
}
