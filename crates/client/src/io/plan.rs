//! Which requests a read or a write becomes. Pure: `read`, `write` and `append` execute.
//!
//! Consecutive stripes of one object are adjacent in it (`proto::layout`), so a range of the file is one range of each
//! object: few large requests, however small the stripes. What several ranges have in one object goes together.
//!
//! Not here: parity, which is not built. A kind of layout with parity gets an arm in [`plan`], and computes its bytes in [`plan_write`],
//! where all bytes of a call are at hand. [`stretch_at_home`], [`plan_whole`] and most of `proto::Layout` assume stripes without asking
//! the kind.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use forebay_proto::{
    Component, Fid, Layout, LayoutKind, StripePiece, WriteId,
    limits::{BLOCK_BYTES, OBJECT_PIECES},
    message::Piece,
};

use crate::payload::{Run, block_sums, slice_into};

/// A contiguous range of one object, and the ranges of the file it consists of, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRange {
    /// First byte, in the object.
    pub offset: u64,
    pub length: u64,
    /// Their lengths add up to `length`.
    pub ranges: Vec<Range<u64>>,
}

impl ObjectRange {
    /// As a message names it.
    pub fn piece(&self) -> Piece {
        Piece { offset: self.offset, length: self.length as u32 }
    }
}

/// One request: pieces of one object, in its order and apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRequest {
    pub ost: u32,
    pub pieces: Vec<ObjectRange>,
    /// Of all pieces.
    pub bytes: u64,
    /// What is written, those of one piece behind those of the one before; a read has none.
    pub parts: Vec<Bytes>,
}

/// What one request may have at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// A non-zero multiple of 64 KiB.
    pub bytes: u64,
    pub pieces: usize,
}

impl ObjectRequest {
    /// The ranges of the file it is for.
    pub fn ranges(&self) -> impl Iterator<Item = &Range<u64>> {
        self.pieces.iter().flat_map(|piece| &piece.ranges)
    }

    /// Its first byte in the file.
    pub fn file_start(&self) -> u64 {
        self.ranges().map(|range| range.start).min().unwrap_or(0)
    }

    /// End of its last byte in the file.
    pub fn file_end(&self) -> u64 {
        self.ranges().map(|range| range.end).max().unwrap_or(0)
    }

    /// The sums of the blocks that are written, piece by piece.
    pub fn sums(&self, fid: Fid, write_id: WriteId) -> Vec<u64> {
        block_sums(fid, write_id, self.pieces.iter().map(ObjectRange::piece), &self.parts)
    }

    /// Its bytes, of `runs`, which are in order.
    fn bytes_of(&self, runs: &[Run]) -> Vec<Bytes> {
        let mut parts = Vec::with_capacity(self.pieces.iter().map(|piece| piece.ranges.len()).sum());
        for range in self.ranges() {
            let run = &runs[runs.partition_point(|run| run.offset <= range.start) - 1];
            let (start, length) = (range.start - run.offset, range.end - range.start);
            slice_into(&run.parts, start as usize, length as usize, &mut parts);
        }
        parts
    }

    fn takes(&self, range: &ObjectRange, limits: RequestLimits) -> bool {
        let follows = self.pieces.last().is_some_and(|last| last.offset + last.length <= range.offset);
        follows && self.bytes + range.length <= limits.bytes && self.pieces.len() < limits.pieces
    }

    fn add(&mut self, range: ObjectRange) {
        self.bytes += range.length;
        match self.pieces.last_mut().filter(|last| last.offset + last.length == range.offset) {
            Some(last) => {
                last.length += range.length;
                last.ranges.extend(range.ranges);
            }
            None => self.pieces.push(range),
        }
    }
}

/// The requests that write `runs`, which are in order and apart. The bytes are not copied.
pub(crate) fn plan_write(layout: &Layout, runs: &[Run], max_rpc_bytes: u32) -> Vec<ObjectRequest> {
    // The requests of a single run stay apart: each may find room where another finds none.
    let pieces = if runs.len() == 1 { 1 } else { OBJECT_PIECES };
    let limits = RequestLimits { bytes: max_rpc_bytes.into(), pieces };
    let mut requests = plan(layout, runs.iter().map(|run| run.offset..run.end()), limits);
    requests.iter_mut().for_each(|request| request.parts = request.bytes_of(runs));
    requests
}

/// The requests for `ranges` of the file, which are in order and apart; what has no OSTs is left out.
///
/// Requests end at block boundaries (64 KiB of the object) where they can, so that each block has one writer and one sum.
pub(crate) fn plan(
    layout: &Layout,
    ranges: impl IntoIterator<Item = Range<u64>>,
    limits: RequestLimits,
) -> Vec<ObjectRequest> {
    assert!(limits.bytes >= BLOCK_BYTES && limits.bytes.is_multiple_of(BLOCK_BYTES), "checked at mount");
    let mut plan = Plan { limits, requests: Vec::new(), last: BTreeMap::new() };
    for range in ranges {
        match layout.kind() {
            LayoutKind::Striped(_) => plan.add_striped(layout, range),
        }
    }
    plan.requests
}

/// A plan that is being made.
struct Plan {
    limits: RequestLimits,
    requests: Vec<ObjectRequest>,
    /// Position of the last request to each OST.
    last: BTreeMap<u32, usize>,
}

impl Plan {
    /// By component, then by stripe, then by object offset.
    fn add_striped(&mut self, layout: &Layout, range: Range<u64>) {
        let mut pieces = layout.pieces(range.start, range.end - range.start);
        let stripe = |piece: &StripePiece| (piece.component, piece.stripe);
        pieces.sort_by_key(stripe);
        for of_object in pieces.chunk_by(|a, b| stripe(a) == stripe(b)) {
            cut(of_object, self.limits.bytes).into_iter().for_each(|range| self.add(of_object[0].ost, range));
        }
    }

    fn add(&mut self, ost: u32, range: ObjectRange) {
        let last = self.last.get(&ost).map(|at| &mut self.requests[*at]);
        match last.filter(|last| last.takes(&range, self.limits)) {
            Some(last) => last.add(range),
            None => {
                self.last.insert(ost, self.requests.len());
                self.requests.push(ObjectRequest { ost, bytes: range.length, pieces: vec![range], parts: Vec::new() });
            }
        }
    }
}

/// Cuts the pieces of one object, adjacent in it, into ranges of at most `max_rpc_bytes`.
fn cut(pieces: &[StripePiece], max_rpc_bytes: u64) -> Vec<ObjectRange> {
    let mut cuts: Vec<ObjectRange> = Vec::new();
    let mut left: u64 = pieces.iter().map(|piece| piece.length).sum();
    let mut room = 0;
    for piece in pieces {
        let mut done = 0;
        while done < piece.length {
            if room == 0 {
                let offset = piece.object_offset + done;
                room = request_bytes(offset, left, max_rpc_bytes);
                left -= room;
                cuts.push(ObjectRange { offset, length: room, ranges: Vec::new() });
            }
            let length = room.min(piece.length - done);
            let cut = cuts.last_mut().expect("one was pushed before room was given");
            cut.ranges.push(piece.file_offset + done..piece.file_offset + done + length);
            done += length;
            room -= length;
        }
    }
    cuts
}

/// Length of the next request: all that is left, or up to the last block boundary within the limit.
fn request_bytes(offset: u64, left: u64, max_rpc_bytes: u64) -> u64 {
    if left <= max_rpc_bytes { left } else { (offset + max_rpc_bytes) / BLOCK_BYTES * BLOCK_BYTES - offset }
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

#[cfg(test)]
mod tests;
