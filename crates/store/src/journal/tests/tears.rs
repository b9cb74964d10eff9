//! Torn, reordered and lost writes: what is recovered is a prefix, never a middle.

use bytes::Bytes;

use super::paper::{Dice, Paper, Piece, anchor_pieces, pieces};
use crate::journal::{JournalErrorKind, Lsn, Transaction, limits::SECTOR, ring::Ring};

/// Payload lengths around every edge: empty, the sector, the longest record, several records.
const LENGTHS: [u64; 9] = [10, 0, 4000, 4001, 12_000, 65_440, 65_441, 100_000, 1];

/// A journal three laps old, with a checkpoint at the head: what a write does not reach is a record of an older lap.
fn worn(seed: u64) -> (Paper, Ring) {
    let mut dice = Dice(seed);
    let mut paper = Paper::formatted(64);
    let mut ring = paper.open();
    while ring.head().lsn < Lsn(3 * 64 * SECTOR + seed % 64 * SECTOR) {
        let length = dice.below(9000);
        paper.commit(&mut ring, &dice.bytes(length));
        paper.checkpoint(&mut ring);
    }
    (paper, ring)
}

/// Which pieces of a write reach the medium.
fn tears(count: usize) -> Vec<Vec<bool>> {
    let of = |keep: &dyn Fn(usize) -> bool| (0..count).map(keep).collect::<Vec<bool>>();
    (0..=count).flat_map(|n| [of(&|i| i < n), of(&|i| i >= n), of(&|i| i != n), of(&|i| i == n)]).collect()
}

/// `paper` after each tear of a write, except tears that lose only bytes equal to the earlier ones.
fn torn(paper: &Paper, write: &[Piece]) -> Vec<Paper> {
    let after = |keep: &Vec<bool>| {
        let mut after = paper.clone();
        after.put(&kept(write, keep));
        after
    };
    let whole = after(&vec![true; write.len()]);
    tears(write.len()).iter().map(after).filter(|torn| torn.bytes != whole.bytes).collect()
}

fn kept(pieces: &[Piece], keep: &[bool]) -> Vec<Piece> {
    pieces.iter().zip(keep).filter(|(_, keep)| **keep).map(|(piece, _)| piece.clone()).collect()
}

fn assert_recovers(paper: &Paper, expected: &[Transaction], why: &str) {
    let reading = paper.read().unwrap_or_else(|error| panic!("{why}: {error}"));
    assert_eq!(reading.transactions.len(), expected.len(), "{why}");
    assert!(reading.transactions == expected, "{why}: other payloads");
}

/// commit |X| at every torn sector of every length of transaction
#[test]
fn every_tear_of_the_last_write_leaves_the_transactions_before_it() {
    for seed in [0, 41, 63] {
        let (mut paper, mut ring) = worn(seed);
        let mut dice = Dice(seed + 1000);
        let mut acknowledged = Vec::new();
        for length in LENGTHS {
            let payload = dice.bytes(length);
            if !ring.room_for(length) {
                paper.checkpoint(&mut ring);
                acknowledged.clear();
            }
            let end = ring.append(&payload).unwrap();
            let batch = ring.take_batch().unwrap();
            let whole = pieces(&batch);
            for (n, after) in torn(&paper, &whole).iter().enumerate() {
                assert_recovers(after, &acknowledged, &format!("seed {seed}, {length} bytes, tear {n}"));
            }
            paper.put(&whole);
            ring.complete(batch.end);
            acknowledged.push(Transaction { end, payload: Bytes::from(payload) });
            assert_recovers(&paper, &acknowledged, "whole");
        }
    }
}

/// two commits in flight |X| the later one reaches the medium first
#[test]
fn a_commit_behind_a_torn_commit_is_dropped() {
    let (mut paper, mut ring) = worn(7);
    let acknowledged = [paper.commit(&mut ring, b"acknowledged")];
    ring.append(&[1; 9000]).unwrap();
    let first = pieces(&ring.take_batch().unwrap());
    ring.append(&[2; 9000]).unwrap();
    let second = pieces(&ring.take_batch().unwrap());
    for mut after in torn(&paper, &first) {
        after.put(&second);
        assert_recovers(&after, &acknowledged, "overtaken");
        assert!(after.read().unwrap().verdict.torn_tail);
    }
}

/// checkpoint |X| at every torn sector of the anchor
#[test]
fn every_tear_of_an_anchor_leaves_the_one_before_and_its_redo() {
    let (mut paper, mut ring) = worn(3);
    let acknowledged = [paper.commit(&mut ring, b"one"), paper.commit(&mut ring, &[7; 70_000])];
    let whole = anchor_pieces(&ring);
    for keep in tears(whole.len()) {
        let mut after = paper.clone();
        after.put(&kept(&whole, &keep));
        let reading = after.read().unwrap();
        let redone = if reading.anchor.seq == ring.anchor_seq() { &acknowledged[..] } else { &[] };
        assert!(reading.transactions == redone);
        // Continue: the next anchor takes the torn one's slot.
        let mut ring = after.open();
        after.checkpoint(&mut ring);
        let last = after.commit(&mut ring, b"after");
        assert_recovers(&after, &[last], "after a torn anchor");
    }
}

/// restart |X| at every torn sector of the record that opens the incarnation
#[test]
fn every_tear_of_an_opening_over_a_dead_tail_leaves_the_same_cut() {
    let (mut paper, mut ring) = worn(5);
    let acknowledged = [paper.commit(&mut ring, b"acknowledged")];
    ring.append(&[1; 9000]).unwrap();
    ring.append(&[2; 100]).unwrap();
    let lost_head = pieces(&ring.take_batch().unwrap());
    paper.put(&lost_head[1..]);
    let reading = paper.read().unwrap();
    assert!(reading.verdict.torn_tail);
    let mut opened = reading.ring();
    opened.append_open_incarnation(forebay_proto::Incarnation(2)).unwrap();
    let opening = pieces(&opened.take_batch().unwrap());
    for keep in tears(opening.len()) {
        let mut after = paper.clone();
        after.put(&kept(&opening, &keep));
        assert_recovers(&after, &acknowledged, "torn opening");
    }
}

#[test]
fn a_new_incarnation_hides_an_older_tail_even_where_their_records_meet() {
    let (mut paper, mut ring) = worn(9);
    let kept_commit = paper.commit(&mut ring, b"kept");
    ring.append(&[1; 100]).unwrap();
    ring.append(&[2; 100]).unwrap();
    ring.append(&[3; 100]).unwrap();
    let tail = pieces(&ring.take_batch().unwrap());
    paper.put(&tail[SECTOR as usize / 512..]); // the first of three is lost, the others are whole
    let mut ring = paper.open(); // takes the first one's place, and ends where the second one begins
    assert_recovers(&paper, std::slice::from_ref(&kept_commit), "opened");
    let second = paper.commit(&mut ring, b"new"); // ends where the third one begins
    assert_recovers(&paper, &[kept_commit, second], "committed");
    assert!(!paper.read().unwrap().verdict.torn_tail);
}

#[test]
fn a_transaction_without_its_last_record_is_dropped_unless_it_was_durable() {
    let (mut paper, mut ring) = worn(2);
    let acknowledged = [paper.commit(&mut ring, b"acknowledged")];
    let cut = ring.head().lsn;
    let end = ring.append(&[1; 100_000]).unwrap();
    let whole = pieces(&ring.take_batch().unwrap());
    paper.put(&whole[..16 * SECTOR as usize / 512]);
    assert_recovers(&paper, &acknowledged, "half a transaction");
    assert!(paper.read().unwrap().verdict.torn_tail);
    assert!(paper.read_knowing(cut).is_ok());
    let error = paper.read_knowing(end).err().expect("a durable transaction is gone");
    assert_eq!(error.kind, JournalErrorKind::Corrupt);
}
