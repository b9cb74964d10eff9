use super::*;
use crate::testing::Dice;

fn in_parts(dice: &mut Dice, bytes: &[u8]) -> Payload {
    let mut parts = Vec::new();
    let mut rest = Bytes::copy_from_slice(bytes);
    while !rest.is_empty() {
        parts.push(rest.split_to(dice.below(rest.len() as u64 + 1) as usize));
    }
    parts.into()
}

#[test]
fn a_part_of_a_run_has_its_bytes_and_its_offset() {
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let length = 1 + dice.below(100_000) as usize;
        let bytes = dice.bytes(length);
        let (end, start) = (1 + dice.below(length as u64) as usize, dice.below(length as u64) as usize);
        let cut = in_parts(&mut dice, &bytes).into_run(500, end);
        assert_eq!((cut.offset, cut.parts.concat()), (500, bytes[..end].to_vec()), "seed {seed}");
        let rest = cut.skip(start.min(end));
        assert_eq!(rest.parts.concat(), bytes[start.min(end)..end], "seed {seed}");
        assert_eq!((rest.offset, rest.end()), (500 + start.min(end) as u64, 500 + end as u64), "seed {seed}");
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
        let piece = Piece { offset, length: length as u32 };
        assert_eq!(block_sums(fid, write_id, [piece], &payload.0), expected, "seed {seed}");
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
        let (mut run, mut done) = (in_parts(&mut dice, &bytes).into_run(700, length), 0);
        loop {
            assert_eq!(run.parts.concat(), bytes[done..], "seed {seed}: behind {done}");
            let ends = (run.offset, run.len(), run.end());
            assert_eq!(ends, (700 + done as u64, length - done, 700 + length as u64), "seed {seed}");
            if done == length {
                break;
            }
            let next = 1 + dice.below((length - done) as u64) as usize;
            run = run.skip(next);
            done += next;
        }
    }
}

#[test]
#[should_panic = "no more than there is"]
fn no_more_is_taken_of_a_run_than_there_is() {
    let run = Payload::from(vec![1, 2, 3]).into_run(10, 3);
    slice_into(&run.parts, 1, 3, &mut Vec::new());
}

#[test]
fn slices_of_a_run_are_its_bytes_in_the_order_in_which_they_are_asked_for() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let bytes = dice.bytes(300);
        let run = in_parts(&mut dice, &bytes).into_run(dice.below(1000), 300);
        let (mut sliced, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..dice.below(6) {
            let start = dice.below(300) as usize;
            let length = dice.below(301 - start as u64) as usize;
            slice_into(&run.parts, start, length, &mut sliced);
            expected.extend_from_slice(&bytes[start..start + length]);
        }
        assert_eq!(sliced.concat(), expected, "seed {seed}");
    }
}
