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

/// A small reply with a hole between data, and what is asked for.
fn small(dice: &mut Dice) -> (ObjectRange, ReadReply, Vec<u8>, Vec<u8>) {
    let asked = ObjectRange { component: 0, stripe: 0, ost: 0, offset: 65_500, length: 90, ranges: Vec::new() };
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
            sums = crate::payload::block_sums(FID, at, write_id, &[Bytes::copy_from_slice(bytes)]);
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
        assert_eq!(read(&reply, &bulk).expect("it is good")[0].concat(), expected, "seed {seed}");
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
            Ok(parts) => assert_eq!(parts[0].concat(), expected, "seed {seed}: wrong in way {what}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1500, "{refused}");
}
