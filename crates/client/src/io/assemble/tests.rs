use std::{collections::BTreeMap, iter, slice};

use forebay_proto::{WriteId, message::Piece};

use super::*;
use crate::{
    io::plan::{RequestLimits, plan},
    testing::Dice,
};

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
        let (start, mut pieces) = (dice.below(1 << 20), Vec::new());
        let range = start..start + dice.below(1 << 20);
        let limits = RequestLimits { bytes: 3 * BLOCK_BYTES, pieces: 1 + dice.below(3) as usize };
        let end = range.end - dice.below(range.end - start + 1);
        for request in plan(&layout, [range.clone()], limits) {
            let object = objects.get_mut(&request.ost).unwrap();
            let (mut whole, mut bytes) = (ReadReply { segments: vec![], file_bytes: 0, settled: true }, Vec::new());
            for piece in &request.pieces {
                let (reply, bulk) = reply(&mut dice, object, piece);
                whole.segments.extend(reply.segments);
                bytes.extend_from_slice(&bulk);
            }
            let read = object_bytes(FID, &request.pieces, &whole, bytes.into()).unwrap();
            let file_bytes = if range.end > end { end } else { u64::MAX };
            let piece = |(range, parts)| ReadPiece { range, parts, file_bytes, settled: true };
            pieces.extend(read.into_iter().map(piece));
        }
        pieces.sort_by_key(|piece| piece.range.start);
        let end = if pieces.iter().any(|piece| piece.range.end > end) { end } else { range.end };
        let read = put_together(&range, pieces).parts.concat();
        let mut expected = vec![0; (end - start) as usize];
        for p in layout.pieces(start, end - start) {
            let bytes = &objects[&p.ost][p.object_offset as usize..][..p.length as usize];
            expected[(p.file_offset - start) as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        assert!(read == expected, "seed {seed}");
    }
}

fn ending(range: Range<u64>, pieces: &[(u64, u64, u64)]) -> u64 {
    let piece = |(offset, length, file_bytes): &(u64, u64, u64)| ReadPiece {
        range: *offset..offset + length,
        parts: vec![vec![1; *length as usize].into()],
        file_bytes: *file_bytes,
        settled: true,
    };
    let read = put_together(&range, pieces.iter().map(piece).collect());
    range.start + read.parts.iter().map(Bytes::len).sum::<usize>() as u64
}

#[test]
fn a_read_ends_where_the_first_reply_saw_the_end() {
    let pieces = |first, second| [(0, 65_536, first), (65_536, 134_464, second)];
    assert_eq!(ending(0..200_000, &pieces(300_000, 300_000)), 200_000);
    assert_eq!(ending(0..200_000, &pieces(100_000, 100_000)), 100_000);
    // The file grew while it was read: bytes after the first end seen are not known to be whole.
    assert_eq!(ending(0..200_000, &pieces(65_000, 300_000)), 65_000);
    assert_eq!(ending(0..200_000, &pieces(0, u64::MAX)), 0);
    // Another OST does not know the size.
    assert_eq!(ending(65_536..200_000, &[(65_536, 134_464, u64::MAX)]), 200_000);
}

#[test]
fn a_flipped_bit_of_data_is_damage_at_its_block() {
    let mut dice = Dice::new(1);
    let asked = ObjectRange { offset: 70_000, length: 200_000, ranges: iter::once(70_000..270_000).collect() };
    let bytes = dice.bytes(200_000);
    let write_id = WriteId { client: 1, sequence: 1 };
    let sums = crate::payload::block_sums(FID, write_id, [asked.piece()], &[bytes.clone().into()]);
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
    let asked = ObjectRange { offset: 0, length: 10, ranges: Vec::new() };
    let hole =
        |offset, length| ReadSegment { offset, length, data: false, write_id: WriteId::default(), sums: Vec::new() };
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
    let both = |segments| object_bytes(FID, &two, &ReadReply { segments, file_bytes: 0, settled: true }, Bytes::new());
    assert!(both(vec![hole(0, 4), hole(6, 3), hole(9, 1)]).is_ok());
    assert!(both(vec![hole(0, 10)]).is_err() && both(vec![hole(0, 4)]).is_err());
    assert!(both(vec![hole(0, 4), hole(4, 2), hole(6, 4)]).is_err() && both(vec![hole(0, 6), hole(6, 4)]).is_err());
    let reply = ReadReply { segments: vec![hole(0, 10)], file_bytes: 0, settled: true };
    assert!(object_bytes(FID, slice::from_ref(&asked), &reply, Bytes::from_static(b"x")).is_err());
}

/// A small reply with a hole between data, and the requested range.
fn small(dice: &mut Dice) -> (ObjectRange, ReadReply, Vec<u8>, Vec<u8>) {
    let asked = ObjectRange { offset: 65_500, length: 90, ranges: iter::once(500..590).collect() };
    let mut object = vec![0; 65_600];
    object[65_500..].copy_from_slice(&dice.bytes(100));
    let (mut segments, mut bulk, mut at) = (Vec::new(), Vec::new(), asked.offset);
    while at < asked.offset + asked.length {
        let length = (1 + dice.below(50)).min(asked.offset + asked.length - at);
        let (data, write_id) = (!dice.one_in(3), WriteId { client: 5, sequence: dice.below(9) });
        let bytes = &mut object[at as usize..][..length as usize];
        let mut sums = Vec::new();
        if data {
            bulk.extend_from_slice(bytes);
            let piece = Piece { offset: at, length: length as u32 };
            sums = crate::payload::block_sums(FID, write_id, [piece], &[Bytes::copy_from_slice(bytes)]);
        } else {
            bytes.fill(0);
        }
        segments.push(ReadSegment { offset: at, length: length as u32, data, write_id, sums });
        at += length;
    }
    let expected = object[65_500..65_590].to_vec();
    (asked, ReadReply { segments, file_bytes: 0, settled: true }, bulk, expected)
}

#[test]
fn whatever_is_wrong_with_a_reply_other_bytes_than_were_written_are_never_taken() {
    let mut refused = 0;
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let (asked, mut reply, mut bulk, expected) = small(&mut dice);
        let read = |reply: &ReadReply, bulk: &[u8]| {
            object_bytes(FID, slice::from_ref(&asked), reply, Bytes::copy_from_slice(bulk))
        };
        assert_eq!(read(&reply, &bulk).expect("it is good")[0].1.concat(), expected, "seed {seed}");
        let segment = dice.below(reply.segments.len() as u64) as usize;
        let byte = dice.below(bulk.len().max(1) as u64) as usize;
        let what = dice.below(8);
        match what {
            0 if !bulk.is_empty() => bulk[byte] ^= 1 << dice.below(8),
            1 => drop(bulk.pop()),
            2 => bulk.push(0),
            3 => drop(reply.segments.remove(segment)),
            4 => reply.segments[segment].offset ^= 1 << dice.below(17),
            5 => reply.segments[segment].length ^= 1 << dice.below(8),
            6 => drop(reply.segments[segment].sums.pop()),
            _ => reply.segments[segment].write_id.sequence ^= 1,
        }
        match read(&reply, &bulk) {
            Ok(read) => assert_eq!(read[0].1.concat(), expected, "seed {seed}: wrong in way {what}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1500, "{refused}");
}
