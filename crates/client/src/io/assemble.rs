//! Replies of reads to bytes of the file: verified, holes filled, put in order, cut at the end of the file. Pure.

use std::collections::VecDeque;

use bytes::Bytes;
use forebay_proto::{
    Fid, crc,
    limits::BLOCK_BYTES,
    message::{ReadReply, ReadSegment},
};

use crate::io::plan::ObjectRange;

/// Zeros, for holes.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// What is wrong with a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadReply {
    /// The bytes at this object offset do not match the sum their writer made.
    Damaged { offset: u64 },
    /// It does not cover what was asked for.
    Malformed(&'static str),
}

/// The bytes of one request's reply, for each range asked for, in the order of the object, holes as zeros; every block verified.
pub(crate) fn object_bytes(
    fid: Fid,
    asked: &[ObjectRange],
    reply: &ReadReply,
    mut bulk: Bytes,
) -> Result<Vec<Vec<Bytes>>, BadReply> {
    let mut segments = reply.segments.iter();
    let mut all = Vec::with_capacity(asked.len());
    for asked in asked {
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
        all.push(parts);
    }
    if segments.next().is_some() || !bulk.is_empty() {
        return Err(BadReply::Malformed("it has more than was asked for"));
    }
    Ok(all)
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

/// The range of the file that `replies` and `holes` (start and length) cover, in the order of the file, cut to `bytes`.
pub(crate) fn file_bytes(replies: Vec<(&ObjectRange, Vec<Bytes>)>, holes: &[(u64, u64)], bytes: u64) -> Vec<Bytes> {
    let mut pieces: Vec<(u64, Vec<Bytes>)> = Vec::new();
    for (offset, length) in holes {
        let mut zeros = Vec::new();
        push_zeros(&mut zeros, *length);
        pieces.push((*offset, zeros));
    }
    for (request, parts) in replies {
        let mut parts = VecDeque::from(parts);
        for range in &request.ranges {
            pieces.push((range.offset, take(&mut parts, range.length as usize)));
        }
    }
    pieces.sort_by_key(|(offset, _)| *offset);
    let mut all: VecDeque<Bytes> = pieces.into_iter().flat_map(|(_, parts)| parts).collect();
    take(&mut all, bytes as usize)
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

#[cfg(test)]
mod tests;
