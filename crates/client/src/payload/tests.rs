use super::*;
use crate::{io::plan::plan, testing::Dice};

fn in_parts(dice: &mut Dice, bytes: &[u8]) -> Payload {
    let mut parts = Vec::new();
    let mut rest = Bytes::copy_from_slice(bytes);
    while !rest.is_empty() {
        parts.push(rest.split_to(dice.below(rest.len() as u64 + 1) as usize));
    }
    parts.into()
}

#[test]
fn gathered_requests_put_together_are_the_payload() {
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let layout = dice.layout();
        let origin = dice.below(1 << 20);
        let length = 1 + dice.below(1 << 20) as usize;
        let bytes = dice.bytes(length);
        let payload = in_parts(&mut dice, &bytes);
        let mut back = vec![0; length];
        if layout.first_gap(origin, length as u64).is_some() {
            continue;
        }
        for request in plan(&layout, origin, length as u64, 2 * BLOCK_BYTES) {
            let mut gathered = payload.gather(origin, &request.ranges).concat();
            for range in &request.ranges {
                let at = (range.offset - origin) as usize;
                let tail = gathered.split_off(range.length as usize);
                back[at..at + gathered.len()].copy_from_slice(&gathered);
                gathered = tail;
            }
        }
        assert_eq!(back, bytes, "seed {seed}");
    }
}

#[test]
fn sums_do_not_depend_on_how_the_bytes_are_cut_into_parts() {
    let (fid, write_id) = (Fid { high: 0, low: 77 }, WriteId { client: 3, sequence: 9 });
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let offset = dice.below(1 << 20);
        let length = 1 + dice.below(300_000) as usize;
        let bytes = dice.bytes(length);
        let expected: Vec<u64> = crc::blocks(offset, bytes.len() as u64, BLOCK_BYTES)
            .map(|(block, length)| {
                let at = (block - offset) as usize;
                crc::block_sum(fid, block, write_id, &bytes[at..at + length as usize])
            })
            .collect();
        let payload = in_parts(&mut dice, &bytes);
        assert_eq!(block_sums(fid, offset, write_id, &payload.0), expected, "seed {seed}");
        let whole = crc::block_sum(fid, 0, write_id, &bytes);
        assert_eq!(whole_sum(fid, write_id, &payload.0), whole, "seed {seed}");
    }
}

#[test]
fn what_is_left_after_the_first_bytes_is_the_rest_in_as_many_steps_as_one_likes() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let length = dice.below(200) as usize;
        let bytes = dice.bytes(length);
        let (mut payload, mut done) = (in_parts(&mut dice, &bytes), 0);
        loop {
            assert_eq!(payload.parts().concat(), bytes[done..], "seed {seed}: behind {done}");
            assert_eq!((payload.len(), payload.is_empty()), (length - done, done == length), "seed {seed}");
            if done == length {
                break;
            }
            let next = 1 + dice.below((length - done) as u64) as usize;
            payload = payload.skip(next);
            done += next;
        }
    }
}

#[test]
#[should_panic = "no more than there is"]
fn no_more_is_gathered_than_there_is() {
    let payload = Payload::from(vec![1, 2, 3]);
    payload.gather(10, &[FileRange { offset: 11, length: 3 }]);
}

#[test]
fn gathered_bytes_are_those_of_their_ranges_in_the_order_in_which_they_are_asked_for() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let (origin, bytes) = (dice.below(1000), dice.bytes(300));
        let payload = in_parts(&mut dice, &bytes);
        let mut ranges = Vec::new();
        for _ in 0..dice.below(6) {
            let start = dice.below(300);
            ranges.push(FileRange { offset: origin + start, length: dice.below(301 - start) });
        }
        let of = |range: &FileRange| &bytes[(range.offset - origin) as usize..][..range.length as usize];
        let expected: Vec<u8> = ranges.iter().flat_map(of).copied().collect();
        assert_eq!(payload.gather(origin, &ranges).concat(), expected, "seed {seed}: {ranges:?}");
    }
}
