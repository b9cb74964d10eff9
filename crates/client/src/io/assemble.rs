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
mod tests {
    use std::{collections::BTreeMap, slice};

    use forebay_proto::WriteId;

    use super::*;
    use crate::{io::plan::plan, testing::Dice};

    const FID: Fid = Fid { high: 0, low: 99 };

    /// What a server with these object bytes replies, the range cut into data and holes by chance (holes are zeroed).
    fn reply(dice: &mut Dice, object: &mut [u8], asked: &ObjectRange) -> (ReadReply, Bytes) {
        let (mut segments, mut bulk, mut at) = (Vec::new(), Vec::new(), asked.offset);
        let end = asked.offset + asked.length;
        while at < end {
            let length = (1 + dice.below(150_000)).min(end - at);
            let bytes = &mut object[at as usize..(at + length) as usize];
            let write_id = WriteId { client: 5, sequence: dice.below(1000) };
            let data = !dice.one_in(3);
            let mut sums = Vec::new();
            if data {
                bulk.extend_from_slice(bytes);
                sums = crc::blocks(at, length, BLOCK_BYTES)
                    .map(|(o, l)| crc::block_sum(FID, o, write_id, &bytes[(o - at) as usize..(o - at + l) as usize]))
                    .collect();
            } else {
                bytes.fill(0);
            }
            segments.push(ReadSegment { offset: at, length: length as u32, data, write_id, sums });
            at += length;
        }
        (ReadReply { segments, file_bytes: 0, settled: true }, bulk.into())
    }

    #[test]
    fn a_read_put_together_is_what_the_objects_hold() {
        for seed in 0..100 {
            let mut dice = Dice::new(seed);
            let layout = dice.layout();
            let mut objects: BTreeMap<u32, Vec<u8>> =
                layout.osts().into_iter().map(|ost| (ost, dice.bytes(6 << 20))).collect();
            let (offset, length) = (dice.below(1 << 20), dice.below(1 << 20));
            let requests = plan(&layout, offset, length, 3 * BLOCK_BYTES);
            let mut replies = Vec::new();
            for of_one in requests.chunk_by(|a, b| a.ost == b.ost && a.offset < b.offset && b.offset % 3 > 0) {
                let object = objects.get_mut(&of_one[0].ost).unwrap();
                let (mut whole, mut bytes) = (ReadReply { segments: vec![], file_bytes: 0, settled: true }, Vec::new());
                for request in of_one {
                    let (reply, bulk) = reply(&mut dice, object, request);
                    whole.segments.extend(reply.segments);
                    bytes.extend_from_slice(&bulk);
                }
                replies.extend(of_one.iter().zip(object_bytes(FID, of_one, &whole, bytes.into()).unwrap()));
            }
            let cut = length - dice.below(length + 1);
            let read = file_bytes(replies, &layout.gaps(offset, length), cut).concat();
            let mut expected = vec![0; cut as usize];
            for p in layout.pieces(offset, cut) {
                let bytes = &objects[&p.ost][p.object_offset as usize..][..p.length as usize];
                expected[(p.file_offset - offset) as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            assert!(read == expected, "seed {seed}");
        }
    }

    #[test]
    fn a_flipped_bit_of_data_is_damage_at_its_block() {
        let mut dice = Dice::new(1);
        let asked = ObjectRange {
            component: 0,
            stripe: 0,
            ost: 0,
            offset: 70_000,
            length: 200_000,
            ranges: vec![crate::io::plan::FileRange { offset: 70_000, length: 200_000 }],
        };
        let bytes = dice.bytes(200_000);
        let write_id = WriteId { client: 1, sequence: 1 };
        let sums = crate::payload::block_sums(FID, 70_000, write_id, &[bytes.clone().into()]);
        let segment = ReadSegment { offset: 70_000, length: 200_000, data: true, write_id, sums };
        let reply = ReadReply { segments: vec![segment], file_bytes: 0, settled: true };
        assert!(object_bytes(FID, slice::from_ref(&asked), &reply, bytes.clone().into()).is_ok());
        let mut bad = bytes;
        bad[150_000] ^= 1;
        let damage = object_bytes(FID, slice::from_ref(&asked), &reply, bad.into());
        assert_eq!(damage, Err(BadReply::Damaged { offset: 3 * BLOCK_BYTES }));
    }

    #[test]
    fn a_reply_that_does_not_fit_what_was_asked_is_refused() {
        let asked = ObjectRange { component: 0, stripe: 0, ost: 0, offset: 0, length: 10, ranges: Vec::new() };
        let hole = |offset, length| ReadSegment {
            offset,
            length,
            data: false,
            write_id: WriteId::default(),
            sums: Vec::new(),
        };
        for segments in [
            vec![],
            vec![hole(0, 9)],
            vec![hole(1, 9)],
            vec![hole(0, 5), hole(6, 4)],
            vec![hole(0, 0), hole(0, 10)],
            vec![ReadSegment { data: true, ..hole(0, 10) }],
        ] {
            let reply = ReadReply { segments, file_bytes: 0, settled: true };
            assert!(object_bytes(FID, slice::from_ref(&asked), &reply, Bytes::new()).is_err(), "{reply:?}");
        }
        let two = [ObjectRange { length: 4, ..asked.clone() }, ObjectRange { offset: 6, length: 4, ..asked.clone() }];
        let both =
            |segments| object_bytes(FID, &two, &ReadReply { segments, file_bytes: 0, settled: true }, Bytes::new());
        assert!(both(vec![hole(0, 4), hole(6, 3), hole(9, 1)]).is_ok());
        assert!(both(vec![hole(0, 10)]).is_err() && both(vec![hole(0, 4)]).is_err());
        assert!(both(vec![hole(0, 4), hole(4, 2), hole(6, 4)]).is_err() && both(vec![hole(0, 6), hole(6, 4)]).is_err());
        let reply = ReadReply { segments: vec![hole(0, 10)], file_bytes: 0, settled: true };
        assert!(object_bytes(FID, slice::from_ref(&asked), &reply, Bytes::from_static(b"x")).is_err());
    }
}
