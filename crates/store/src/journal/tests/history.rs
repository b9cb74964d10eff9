//! Long histories by seed: commits, checkpoints, crashes and restarts over many laps, against a list of what was
//! appended and acknowledged.

use bytes::Bytes;

use super::paper::{Dice, Paper, Piece, anchor_pieces, pieces};
use crate::journal::{Lsn, Transaction, limits::SECTOR, ring::Ring};

struct Life {
    dice: Dice,
    paper: Paper,
    ring: Ring,
    /// Everything appended and not lost in a crash, from the beginning.
    appended: Vec<Transaction>,
    /// Writes in flight: pieces, and the batch's end.
    in_flight: Vec<(Vec<Piece>, Lsn)>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut paper = Paper::formatted(16 + dice.below(30));
        let ring = paper.open();
        Self { dice, paper, ring, appended: Vec::new(), in_flight: Vec::new() }
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..8 => self.append(),
            8..11 => self.take_batch(),
            11..15 => self.complete_one(),
            15..17 => self.checkpoint(),
            17 => self.ring.append_attest(false),
            18 => self.crash(),
            _ => self.restart_often(),
        }
    }

    fn append(&mut self) {
        let most = [100, 5000, 30_000][self.dice.below(3) as usize];
        let length = self.dice.below(most);
        let payload = self.dice.bytes(length);
        if !self.ring.room_for(length) {
            return self.checkpoint();
        }
        let end = self.ring.append(&payload).unwrap();
        self.appended.push(Transaction { end, payload: Bytes::from(payload) });
    }

    fn take_batch(&mut self) {
        if let Some(batch) = self.ring.take_batch() {
            self.in_flight.push((pieces(&batch), batch.end));
        }
    }

    /// Completes any write in flight, not only the oldest.
    fn complete_one(&mut self) {
        if !self.in_flight.is_empty() {
            let one = self.dice.below(self.in_flight.len() as u64) as usize;
            let (pieces, end) = self.in_flight.remove(one);
            self.paper.put(&pieces);
            self.ring.complete(end);
        }
    }

    fn write_all(&mut self) {
        self.take_batch();
        while !self.in_flight.is_empty() {
            self.complete_one();
        }
    }

    fn checkpoint(&mut self) {
        self.write_all();
        if self.dice.below(4) == 0 {
            let torn = anchor_pieces(&self.ring);
            let some = self.dice.below(torn.len() as u64) as usize;
            self.paper.put(&torn[..some]);
            return self.crash();
        }
        self.paper.checkpoint(&mut self.ring);
    }

    /// Crashes: writes in flight reach the medium in part.
    fn crash(&mut self) {
        self.take_batch();
        for (pieces, _) in std::mem::take(&mut self.in_flight) {
            let fate = self.dice.below(4);
            for piece in pieces {
                if fate == 0 || (fate < 3 && self.dice.below(4) > 0) {
                    self.paper.put(&[piece]);
                }
            }
        }
        self.restart();
    }

    fn restart(&mut self) {
        let reading = self.paper.read().expect("nothing durable was damaged");
        self.check(&reading.transactions, reading.anchor.checkpoint.lsn);
        let (cut, highest) = (reading.verdict.cut.lsn, reading.verdict.highest_durable);
        assert!(highest <= cut && self.ring.durable() <= cut);
        self.appended.retain(|transaction| transaction.end <= cut);
        self.ring = self.paper.open();
        if self.ring.free_bytes() < 4 * SECTOR {
            self.paper.checkpoint(&mut self.ring); // as the store does soon after a restart
        }
    }

    /// Crashes soon after a start, some before the first commit.
    fn restart_often(&mut self) {
        for _ in 0..self.dice.below(3) {
            self.crash();
        }
    }

    /// Recovery must return a prefix of what was appended since the anchor's checkpoint, with all that was
    /// acknowledged.
    fn check(&self, recovered: &[Transaction], checkpoint: Lsn) {
        let since = self.appended.iter().position(|t| t.end > checkpoint).unwrap_or(self.appended.len());
        let expected = &self.appended[since..];
        assert!(expected.starts_with(recovered), "{} recovered of {}", recovered.len(), expected.len());
        let lost = &expected[recovered.len()..];
        assert!(lost.iter().all(|transaction| transaction.end > self.ring.durable()));
    }
}

#[test]
fn every_history_recovers_to_a_prefix_with_all_that_was_acknowledged() {
    let mut laps = 0;
    for seed in 0..300 {
        let mut life = Life::new(seed);
        for step in 0..250 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| life.step()));
            assert!(result.is_ok(), "seed {seed}, step {step}");
        }
        laps += life.ring.head().lsn.0 / life.ring.geometry().ring_bytes();
    }
    assert!(laps > 1000, "{laps} laps");
}

#[test]
fn a_thousand_laps_stay_readable() {
    let mut paper = Paper::formatted(16);
    let mut ring = paper.open();
    let mut dice = Dice(11);
    while ring.head().lsn < Lsn(1000 * 16 * SECTOR) {
        let length = dice.below(40_000);
        if !ring.room_for(length) {
            paper.checkpoint(&mut ring);
        }
        let last = if ring.room_for(length) { Some(paper.commit(&mut ring, &dice.bytes(length))) } else { None };
        let reading = paper.read().unwrap();
        assert_eq!(reading.transactions.last().filter(|_| last.is_some()), last.as_ref());
        assert_eq!(reading.verdict.cut, ring.head());
    }
}

#[test]
fn a_ring_filled_to_the_brim_recovers_whole_and_can_be_opened() {
    let mut paper = Paper::formatted(16);
    let mut ring = paper.open();
    paper.checkpoint(&mut ring);
    let mut transactions = Vec::new();
    while ring.room_for(0) {
        transactions.push(paper.commit(&mut ring, b"x"));
    }
    for _ in 0..4 {
        assert!(paper.read().unwrap().transactions == transactions);
        ring = paper.open();
    }
    assert!(paper.read().unwrap().transactions == transactions);
    assert_eq!(ring.used_bytes(), ring.geometry().ring_bytes());
    paper.checkpoint(&mut ring);
    let last = paper.commit(&mut ring, &[1; 40_000]);
    assert!(paper.read().unwrap().transactions == [last]);
}

#[test]
fn clean_is_said_only_of_a_clean_stop() {
    let mut paper = Paper::formatted(16);
    let mut ring = paper.open();
    paper.commit(&mut ring, b"x");
    assert!(!paper.read().unwrap().verdict.clean);
    ring.append_attest(true);
    paper.write_out(&mut ring);
    assert!(paper.read().unwrap().verdict.clean);
    paper.commit(&mut ring, b"y");
    assert!(!paper.read().unwrap().verdict.clean);
}
