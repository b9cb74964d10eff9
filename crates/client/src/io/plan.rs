//! Which requests a range of a file becomes. Pure: the I/O stands in `write`, `read` and `allocate`.
//!
//! Consecutive stripes of one object are adjacent in it (`proto::layout`), so a range of the file is one range of each
//! object: few large requests, however small the stripes.

use std::collections::BTreeMap;

use forebay_proto::{Component, Layout, StripePiece, limits::BLOCK_BYTES};

/// A contiguous range of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRange {
    pub offset: u64,
    pub length: u64,
}

/// One request: a contiguous range of one object, and the ranges of the file it consists of, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRange {
    /// Position in the layout's components.
    pub component: usize,
    /// Position in the component's OSTs.
    pub stripe: usize,
    pub ost: u32,
    /// First byte, in the object.
    pub offset: u64,
    pub length: u64,
    /// Their lengths add up to `length`.
    pub ranges: Vec<FileRange>,
}

impl ObjectRange {
    /// End of its last byte in the file.
    pub fn file_end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.offset + range.length)
    }
}

/// Cuts `[offset, offset + length)` into requests of at most `max_rpc_bytes` (a non-zero multiple of 64 KiB).
///
/// Order: by component, then by stripe, then by object offset; what has no OSTs is left out. Requests end at block boundaries (64 KiB of the object) where they can, so
/// that each block has one writer and one sum.
pub(crate) fn plan(layout: &Layout, offset: u64, length: u64, max_rpc_bytes: u64) -> Vec<ObjectRange> {
    assert!(max_rpc_bytes >= BLOCK_BYTES && max_rpc_bytes.is_multiple_of(BLOCK_BYTES), "checked at mount");
    let mut stripes: BTreeMap<(usize, usize), Vec<StripePiece>> = BTreeMap::new();
    for piece in layout.pieces(offset, length) {
        stripes.entry((piece.component, piece.stripe)).or_default().push(piece);
    }
    stripes.into_values().flat_map(|pieces| cut(&pieces, max_rpc_bytes)).collect()
}

/// Bytes of the file that lie one after another in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// First byte of the file.
    pub from: u64,
    /// The one after the last.
    pub to: u64,
    /// Object offset of `from`.
    pub offset: u64,
}

/// The stretch of the home's object that `[offset, offset + length)` lies in. `None`: it is not all there, or is more than one
/// request of `max_rpc_bytes`.
pub(crate) fn stretch_at_home(layout: &Layout, offset: u64, length: u64, max_rpc_bytes: u64) -> Option<Stretch> {
    if length == 0 || length > max_rpc_bytes || layout.first_gap(offset, length).is_some() {
        return None;
    }
    let [piece] = layout.pieces(offset, length)[..] else { return None };
    if piece.ost != layout.home() {
        return None;
    }
    let component = &layout.components[piece.component];
    let (mut from, mut to) = (component.start, component.end);
    if component.osts.len() > 1 {
        let stripe = u64::from(component.stripe_bytes);
        from = from.max(offset / stripe * stripe);
        to = to.min((offset / stripe + 1) * stripe);
    }
    Some(Stretch { from, to, offset: piece.object_offset - (piece.file_offset - from) })
}

/// A contiguous range of one object, however long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeRange {
    pub ost: u32,
    pub offset: u64,
    pub length: u64,
}

/// The ranges of objects that `[offset, offset + length)` of the file touches, one for each component of each object.
pub(crate) fn plan_whole(layout: &Layout, offset: u64, length: u64) -> Vec<WholeRange> {
    let whole = |component: &Component, stripe: usize, ost: u32| {
        let range = component.object_range(stripe, offset, offset + length);
        WholeRange { ost, offset: range.start, length: range.end - range.start }
    };
    let of_component = |(_, component)| {
        let component: &Component = component;
        component.osts.iter().enumerate().map(move |(stripe, ost)| whole(component, stripe, *ost))
    };
    layout.touched(offset, length).flat_map(of_component).filter(|range| range.length > 0).collect()
}

/// Cuts the pieces of one object, adjacent in it, into requests.
fn cut(pieces: &[StripePiece], max_rpc_bytes: u64) -> Vec<ObjectRange> {
    let mut requests: Vec<ObjectRange> = Vec::new();
    let mut left: u64 = pieces.iter().map(|piece| piece.length).sum();
    let mut room = 0;
    for piece in pieces {
        let mut done = 0;
        while done < piece.length {
            if room == 0 {
                let offset = piece.object_offset + done;
                room = request_bytes(offset, left, max_rpc_bytes);
                left -= room;
                let (component, stripe, ost) = (piece.component, piece.stripe, piece.ost);
                requests.push(ObjectRange { component, stripe, ost, offset, length: room, ranges: Vec::new() });
            }
            let length = room.min(piece.length - done);
            let request = requests.last_mut().expect("one was pushed before room was given");
            request.ranges.push(FileRange { offset: piece.file_offset + done, length });
            done += length;
            room -= length;
        }
    }
    requests
}

/// Length of the next request: all that is left, or up to the last block boundary within the limit.
fn request_bytes(offset: u64, left: u64, max_rpc_bytes: u64) -> u64 {
    if left <= max_rpc_bytes { left } else { (offset + max_rpc_bytes) / BLOCK_BYTES * BLOCK_BYTES - offset }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            (stretch_at_home(&plain, 0, 5 << 20, 4 << 20), stretch_at_home(&plain, 0, 0, 4 << 20)),
            (None, None)
        );
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
}
