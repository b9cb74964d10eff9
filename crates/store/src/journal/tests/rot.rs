//! Damage: found where the bytes were durable, dropped where they were not, and never a panic.

use super::paper::{Dice, Paper};
use crate::journal::{
    JournalErrorKind, Lsn, Transaction,
    limits::{RING_START, SECTOR},
    ring::Ring,
};

/// Some transactions around the ring's end, all attested.
fn attested() -> (Paper, Ring, Vec<Transaction>) {
    let mut paper = Paper::formatted(16);
    let mut ring = paper.open();
    for i in 0..9 {
        paper.commit(&mut ring, &[i; 50]);
    }
    paper.checkpoint(&mut ring);
    let transactions = [100, 5000, 20_000, 0].map(|length| paper.commit(&mut ring, &vec![length as u8; length]));
    paper.attest(&mut ring);
    (paper, ring, transactions.into())
}

fn device_offset(ring: &Ring, lsn: u64) -> usize {
    ring.geometry().device_offset(Lsn(lsn)) as usize
}

fn kind(paper: &Paper) -> Option<JournalErrorKind> {
    paper.read().err().map(|error| error.kind)
}

#[test]
fn a_flipped_bit_in_any_byte_of_an_attested_record_is_corruption() {
    let (paper, ring, transactions) = attested();
    let mut dice = Dice(1);
    for lsn in ring.tail().0..transactions[3].end.0 {
        let mut rotten = paper.clone();
        rotten.bytes[device_offset(&ring, lsn)] ^= 1 << dice.below(8);
        assert_eq!(kind(&rotten), Some(JournalErrorKind::Corrupt), "lsn {lsn}");
    }
}

#[test]
fn the_words_of_corruption_name_the_record_the_place_and_the_durable_lsn() {
    let (mut paper, ring, transactions) = attested();
    let damaged = transactions[0].end;
    paper.bytes[device_offset(&ring, damaged.0 + 4096)] ^= 1;
    let words = paper.read().err().unwrap().message;
    for part in
        [format!("lsn {damaged} "), format!("before lsn {}", transactions[3].end), "its sum does not match".into()]
    {
        assert!(words.contains(&part), "{words}");
    }
}

#[test]
fn a_flipped_bit_in_the_unattested_tail_drops_the_tail() {
    let (mut paper, mut ring, mut transactions) = attested();
    transactions.push(paper.commit(&mut ring, b"not yet attested"));
    for lsn in transactions[4].end.0 - SECTOR..transactions[4].end.0 {
        let mut rotten = paper.clone();
        rotten.bytes[device_offset(&ring, lsn)] ^= 0x10;
        let reading = rotten.read().unwrap();
        assert!(reading.transactions == transactions[..4], "lsn {lsn}");
    }
    let mut rotten = paper.clone();
    rotten.bytes[device_offset(&ring, transactions[4].end.0 - 1)] ^= 1;
    assert!(rotten.read().unwrap().verdict.torn_tail);
    assert_eq!(rotten.read_knowing(transactions[4].end).err().map(|error| error.kind), Some(JournalErrorKind::Corrupt));
}

#[test]
fn a_lost_write_with_old_valid_content_beneath_is_corruption() {
    let (mut paper, mut ring, _) = attested();
    paper.checkpoint(&mut ring);
    let before = paper.clone();
    paper.commit(&mut ring, b"lost, though acknowledged");
    let lost = device_offset(&ring, ring.head().lsn.0 - SECTOR);
    paper.commit(&mut ring, b"next");
    paper.bytes[lost..lost + SECTOR as usize].copy_from_slice(&before.bytes[lost..lost + SECTOR as usize]);
    assert_eq!(kind(&paper), Some(JournalErrorKind::Corrupt));
}

#[test]
fn a_misdirected_record_is_corruption_at_both_ends() {
    let (mut paper, ring, transactions) = attested();
    let (from, to) = (device_offset(&ring, ring.tail().0), device_offset(&ring, transactions[0].end.0));
    paper.bytes.copy_within(from..from + SECTOR as usize, to);
    assert_eq!(kind(&paper), Some(JournalErrorKind::Corrupt));
}

#[test]
fn a_rotten_newest_anchor_is_corruption_once_a_record_knew_it() {
    let (mut paper, mut ring, transactions) = attested();
    paper.checkpoint(&mut ring); // anchor 3, in A
    let mut rotten = paper.clone();
    rotten.bytes[700] ^= 1;
    assert!(rotten.read().unwrap().transactions == transactions); // no record knew it: it counts as torn
    paper.commit(&mut ring, b"knows anchor 3");
    paper.bytes[700] ^= 1;
    let error = paper.read().err().unwrap();
    assert_eq!(error.kind, JournalErrorKind::Corrupt);
    assert!(error.message.contains("anchor 3 is damaged"), "{error}");
}

#[test]
fn rot_in_the_older_anchor_does_no_harm() {
    let (mut paper, _, transactions) = attested();
    paper.bytes[700] ^= 1; // anchor 1, in A
    assert!(paper.read().unwrap().transactions == transactions);
}

#[test]
fn a_payload_that_looks_like_a_record_is_not_taken_for_one() {
    let (mut paper, mut ring, transactions) = attested();
    // A user would have to store a record for exactly this position, with a sum that is right but for the salt.
    let lsn = ring.head().lsn.0 + SECTOR;
    let (from, length) = (device_offset(&ring, ring.tail().0), SECTOR as usize);
    let mut forged = paper.bytes[from..from + length].to_vec();
    forged[32..40].copy_from_slice(&lsn.to_le_bytes());
    forged[56..64].copy_from_slice(&lsn.to_le_bytes());
    let sum = forebay_proto::crc::crc64(&forged[8..]);
    forged[..8].copy_from_slice(&sum.to_le_bytes());
    let payload = [vec![0; length - 96], forged].concat();
    ring.append(&payload).unwrap();
    let torn = super::paper::pieces(&ring.take_batch().unwrap());
    paper.put(&torn[1..]);
    assert!(paper.read().unwrap().transactions == transactions);
}

#[test]
fn mutated_journals_never_panic_and_never_yield_what_was_not_appended() {
    let (paper, _, transactions) = attested();
    let all = paper.bytes.len() as u64;
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..4000 {
        let mut dice = Dice(seed);
        let mut mutant = paper.clone();
        for _ in 0..1 + dice.below(4) {
            let at = dice.below(all) as usize;
            match dice.below(4) {
                0 => mutant.bytes[at] = dice.below(256) as u8,
                1 => mutant.bytes[RING_START as usize + at / 4096 % 16 * 4096 + at % 96] = dice.below(256) as u8,
                2 => mutant.bytes[at / 512 * 512..][..512].fill(0),
                _ => {
                    mutant.bytes.copy_within(at / 4096 * 4096..at / 4096 * 4096 + 4096, dice.below(18) as usize * 4096)
                }
            }
        }
        let Ok(reading) = mutant.read() else {
            refused += 1;
            continue;
        };
        accepted += 1;
        // If a second anchor is corrupt and no record knew it, the first one's redo remains: more than the newest
        // needs.
        let ours = reading.transactions.iter().filter(|t| t.end.0 > 10 * SECTOR);
        assert!(ours.zip(&transactions).all(|(got, expected)| got == expected), "seed {seed}");
    }
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}

#[test]
fn random_bytes_are_no_journal() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut paper = Paper::formatted(16);
        paper.bytes = (0..paper.bytes.len()).map(|_| dice.below(256) as u8).collect();
        assert_eq!(kind(&paper), Some(JournalErrorKind::Corrupt));
    }
}
