//! A journal on paper: the real ring, scan and verdict over a plain vector of bytes, without I/O.

use bytes::Bytes;
use forebay_proto::{Incarnation, Uuid};

use crate::journal::{
    Anchor, Checkpoint, JournalResult, Lsn, Owner, Transaction,
    anchor::{choose, read_slot},
    geometry::Geometry,
    judge::{Verdict, judge},
    limits::{RING_START, SECTOR},
    record::{HEADER_BYTES, RecordType},
    ring::{Batch, Ring},
    scan::Scan,
};

pub const TARGET: Uuid = Uuid(*b"target's 16 byte");
pub const GENERATION: u32 = 3;

/// The unit in which writes tear: a drive's own sector.
pub const TEAR: usize = 512;

/// Pseudo-random numbers of a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub fn bytes(&mut self, length: u64) -> Vec<u8> {
        let word = self.below(u64::MAX).to_le_bytes();
        (0..length as usize).map(|i| word[i % 8].wrapping_add(i as u8)).collect()
    }
}

/// One piece of a write that reaches the medium or does not.
#[derive(Clone)]
pub struct Piece {
    pub at: usize,
    pub bytes: Vec<u8>,
}

/// The device.
#[derive(Clone)]
pub struct Paper {
    pub bytes: Vec<u8>,
}

/// What recovery found on it.
pub struct Reading {
    pub anchor: Anchor,
    pub verdict: Verdict,
    pub transactions: Vec<Transaction>,
    owner: Owner,
    geometry: Geometry,
}

impl Paper {
    pub fn formatted(ring_sectors: u64) -> Self {
        let geometry = Geometry::new(ring_sectors * SECTOR).unwrap();
        let owner = Owner { target: TARGET, generation: GENERATION, salt: 0x5a17 };
        let mut paper = Self { bytes: vec![0; geometry.device_bytes() as usize] };
        let checkpoint = Checkpoint::default();
        let anchor = Anchor {
            seq: 1,
            incarnation: Incarnation(0),
            checkpoint,
            durable: Lsn(0),
            root: None,
            extra: Bytes::new(),
        };
        paper.put(&[Piece { at: 0, bytes: anchor.encode(&owner, geometry).to_vec() }]);
        paper
    }

    pub fn put(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            self.bytes[piece.at..piece.at + piece.bytes.len()].copy_from_slice(&piece.bytes);
        }
    }

    pub fn read(&self) -> JournalResult<Reading> {
        self.read_knowing(Lsn(0))
    }

    pub fn read_knowing(&self, named_durable: Lsn) -> JournalResult<Reading> {
        let sector = SECTOR as usize;
        let slot = |at: usize, parity| read_slot(&self.bytes[at..at + sector], parity, TARGET, GENERATION);
        let (anchor, owner, geometry) = choose([slot(0, 1), slot(sector, 0)])?;
        let mut scan = Scan::default();
        let ring = &self.bytes[RING_START as usize..];
        assert_eq!(scan.look(&owner, geometry, 0, ring), ring.len() as u64);
        let verdict = judge(&anchor, geometry, &scan, named_durable.max(anchor.durable))?;
        let transactions = self.payloads(&verdict, geometry);
        Ok(Reading { anchor, verdict, transactions, owner, geometry })
    }

    fn payloads(&self, verdict: &Verdict, geometry: Geometry) -> Vec<Transaction> {
        let (mut transactions, mut payload) = (Vec::new(), Vec::new());
        for header in &verdict.redo {
            let at = geometry.device_offset(header.lsn) as usize + HEADER_BYTES;
            payload.extend_from_slice(&self.bytes[at..at + header.payload_bytes as usize]);
            if header.record_type == (RecordType::Transaction { last: true }) {
                let payload = Bytes::from(std::mem::take(&mut payload));
                transactions.push(Transaction { end: header.after().lsn, payload });
            }
        }
        transactions
    }

    /// Recovers and opens the next incarnation, durably.
    pub fn open(&mut self) -> Ring {
        let reading = self.read().unwrap();
        let mut ring = reading.ring();
        let next = Incarnation(reading.verdict.cut.incarnation.0 + 1);
        ring.append_open_incarnation(next).unwrap();
        self.write_out(&mut ring);
        ring
    }

    /// Writes what was appended, all of it.
    pub fn write_out(&mut self, ring: &mut Ring) {
        if let Some(batch) = ring.take_batch() {
            self.put(&pieces(&batch));
            ring.complete(batch.end);
        }
    }

    pub fn commit(&mut self, ring: &mut Ring, payload: &[u8]) -> Transaction {
        let end = ring.append(payload).unwrap();
        self.write_out(ring);
        Transaction { end, payload: Bytes::copy_from_slice(payload) }
    }

    pub fn attest(&mut self, ring: &mut Ring) {
        ring.append_attest(false);
        self.write_out(ring);
    }

    /// A durable checkpoint at the head.
    pub fn checkpoint(&mut self, ring: &mut Ring) {
        let pieces = anchor_pieces(ring);
        self.put(&pieces);
        ring.anchored(ring.anchor_seq() + 1, ring.head().lsn);
    }
}

impl Reading {
    /// The ring that continues at the cut.
    pub fn ring(&self) -> Ring {
        let checkpoint = self.anchor.checkpoint.lsn;
        Ring::new(self.owner, self.geometry, self.verdict.cut, checkpoint, self.anchor.seq)
    }
}

/// A batch in the pieces that a power cut may tear it into.
pub fn pieces(batch: &Batch) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for write in &batch.writes {
        let mut at = write.device_offset as usize;
        for part in &write.parts {
            pieces.extend(torn(at, part));
            at += part.len();
        }
    }
    pieces
}

/// The next anchor, for a checkpoint at the head.
pub fn anchor_pieces(ring: &Ring) -> Vec<Piece> {
    let (seq, checkpoint) = (ring.anchor_seq() + 1, ring.head());
    let extra = Bytes::from(vec![seq as u8; 3000]);
    let anchor =
        Anchor { seq, incarnation: checkpoint.incarnation, checkpoint, durable: ring.durable(), root: None, extra };
    torn(Anchor::device_offset(seq) as usize, &anchor.encode(ring.owner(), ring.geometry()))
}

fn torn(at: usize, bytes: &[u8]) -> Vec<Piece> {
    let chunks = bytes.chunks(TEAR).enumerate();
    chunks.map(|(i, chunk)| Piece { at: at + i * TEAR, bytes: chunk.to_vec() }).collect()
}
