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
mod tests;
