//! Replies of reads to bytes of the file: verified, holes filled, put in order, cut at the end of the file. Pure.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;
use forebay_proto::{
    Fid, crc,
    limits::BLOCK_BYTES,
    message::{ReadReply, ReadSegment},
};

use crate::io::plan::ObjectRange;

/// Zeros, for holes.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Bytes of the file.
pub(crate) struct Read {
    /// One after another.
    pub parts: Vec<Bytes>,
    /// All of them are committed.
    pub settled: bool,
}

/// Bytes of a range of the file, as its OST has replied them.
pub(crate) struct ReadPiece {
    pub range: Range<u64>,
    pub parts: Vec<Bytes>,
    /// How long the file is, if the home replied; else the largest number.
    pub file_bytes: u64,
    /// They are committed.
    pub settled: bool,
}

/// Bytes of a range of the file, one after another.
pub(crate) type RangeBytes = (Range<u64>, Vec<Bytes>);

/// What is wrong with a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadReply {
    /// The bytes at this object offset do not match the sum their writer made.
    Damaged { offset: u64 },
    /// It does not cover the requested range.
    Malformed(&'static str),
}

/// The bytes of one request's reply, for each requested range of the file, holes as zeros; every block verified.
pub(crate) fn object_bytes(
    fid: Fid,
    asked: &[ObjectRange],
    reply: &ReadReply,
    mut bulk: Bytes,
) -> Result<Vec<RangeBytes>, BadReply> {
    let mut segments = reply.segments.iter();
    let mut all = Vec::with_capacity(asked.len());
    for asked in asked {
        let mut parts = VecDeque::from(piece_bytes(fid, asked, &mut segments, &mut bulk)?);
        let ranges = asked.ranges.iter();
        all.extend(ranges.map(|range| (range.clone(), take(&mut parts, (range.end - range.start) as usize))));
    }
    if segments.next().is_some() || !bulk.is_empty() {
        return Err(BadReply::Malformed("it has more than was asked for"));
    }
    Ok(all)
}

/// The bytes of one piece, taken off the front of a reply.
fn piece_bytes<'a>(
    fid: Fid,
    asked: &ObjectRange,
    segments: &mut impl Iterator<Item = &'a ReadSegment>,
    bulk: &mut Bytes,
) -> Result<Vec<Bytes>, BadReply> {
    let mut parts = Vec::new();
    let (mut at, end) = (asked.offset, asked.offset + asked.length);
    while at < end {
        let segment = segments.next().ok_or(BadReply::Malformed("its segments do not cover what was asked for"))?;
        if segment.offset != at || segment.length == 0 || u64::from(segment.length) > end - at {
            return Err(BadReply::Malformed("its segments do not follow each other in what was asked for"));
        }
        at += u64::from(segment.length);
        if !segment.data {
            push_zeros(&mut parts, u64::from(segment.length));
            continue;
        }
        if bulk.len() < segment.length as usize {
            return Err(BadReply::Malformed("its bulk is shorter than its segments"));
        }
        let data = bulk.split_to(segment.length as usize);
        verify(fid, segment, &data)?;
        parts.push(data);
    }
    Ok(parts)
}

fn verify(fid: Fid, segment: &ReadSegment, data: &[u8]) -> Result<(), BadReply> {
    let mut sums = segment.sums.iter();
    for (offset, length) in crc::blocks(segment.offset, data.len() as u64, BLOCK_BYTES) {
        let sum = *sums.next().ok_or(BadReply::Malformed("it has fewer sums than blocks"))?;
        let at = (offset - segment.offset) as usize;
        if crc::block_sum(fid, offset, segment.write_id, &data[at..at + length as usize]) != sum {
            return Err(BadReply::Damaged { offset });
        }
    }
    Ok(())
}

fn push_zeros(parts: &mut Vec<Bytes>, mut length: u64) {
    while length > 0 {
        let step = length.min(ZEROS.len() as u64);
        parts.push(Bytes::from_static(&ZEROS[..step as usize]));
        length -= step;
    }
}

/// What was read of `range` of the file, of which `pieces` are all that has OSTs, in order: the rest are holes. It ends where the
/// first piece saw the end of the file.
pub(crate) fn put_together(range: &Range<u64>, pieces: Vec<ReadPiece>) -> Read {
    let ends = pieces.iter().filter(|piece| piece.file_bytes < piece.range.end).map(|piece| piece.file_bytes);
    let end = ends.fold(range.end, u64::min);
    let settled = !range.is_empty() && pieces.iter().all(|piece| piece.settled);
    let (mut parts, mut at) = (Vec::new(), range.start);
    for piece in pieces {
        push_zeros(&mut parts, piece.range.start - at);
        at = piece.range.end;
        parts.extend(piece.parts);
    }
    push_zeros(&mut parts, range.end - at);
    truncate(&mut parts, end.saturating_sub(range.start) as usize);
    Read { parts, settled }
}

/// The first `length` bytes of `parts`.
fn take(parts: &mut VecDeque<Bytes>, mut length: usize) -> Vec<Bytes> {
    let mut taken = Vec::new();
    while length > 0 {
        let mut part = parts.pop_front().expect("replies cover what was asked for");
        if part.len() > length {
            parts.push_front(part.split_off(length));
        }
        length -= part.len();
        taken.push(part);
    }
    taken
}

/// Drops all but the first `length` bytes.
fn truncate(parts: &mut Vec<Bytes>, mut length: usize) {
    parts.retain_mut(|part| {
        part.truncate(length);
        length -= part.len();
        !part.is_empty()
    });
}

#[cfg(test)]
mod tests;
