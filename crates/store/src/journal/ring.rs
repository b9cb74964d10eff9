//! The open ring: appended records, space left, the next write, and the durable position.
//!
//! Invariant: from the last checkpoint to the head lies at most the ring less its reserve (restarts may use the
//! reserve).
//! Invariant: `durable` moves only over a prefix of the batches, whatever order they complete in.
//! Not here: I/O. The writer writes what [`Ring::take_batch`] hands out and reports it with [`Ring::complete`].

use std::collections::VecDeque;

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::Incarnation;

use super::{
    Checkpoint, JournalError, JournalErrorKind, JournalResult, Lsn, Owner,
    geometry::Geometry,
    limits::SECTOR,
    record::{RecordHeader, RecordType},
};

/// Bytes for one contiguous range of the device.
#[derive(Debug)]
pub(super) struct RingWrite {
    pub device_offset: u64,
    pub parts: Vec<Bytes>,
}

/// Everything that was appended since the batch before.
#[derive(Debug)]
pub(super) struct Batch {
    pub end: Lsn,
    /// One, or two where the ring wraps.
    pub writes: Vec<RingWrite>,
}

/// The state of an open ring. No I/O.
pub(super) struct Ring {
    owner: Owner,
    geometry: Geometry,
    head: Checkpoint,
    tail: Lsn,
    durable: Lsn,
    anchor_seq: u64,
    last: Option<RecordType>,
    pending: Vec<Bytes>,
    pending_from: Lsn,
    in_flight: VecDeque<InFlight>,
}

struct InFlight {
    end: Lsn,
    complete: bool,
}

impl Ring {
    /// A ring that continues at `head`; everything before is durable. `tail` is the anchor's checkpoint.
    pub(super) fn new(owner: Owner, geometry: Geometry, head: Checkpoint, tail: Lsn, anchor_seq: u64) -> Self {
        Self {
            owner,
            geometry,
            head,
            tail,
            durable: head.lsn,
            anchor_seq,
            last: None,
            pending: Vec::new(),
            pending_from: head.lsn,
            in_flight: VecDeque::new(),
        }
    }

    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn head(&self) -> Checkpoint {
        self.head
    }

    pub(super) fn tail(&self) -> Lsn {
        self.tail
    }

    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    pub(super) fn anchor_seq(&self) -> u64 {
        self.anchor_seq
    }

    /// Ring bytes from the checkpoint to the head.
    pub(super) fn used_bytes(&self) -> u64 {
        self.head.lsn.0 - self.tail.0
    }

    /// Ring bytes that transactions may still take before the next checkpoint.
    pub(super) fn free_bytes(&self) -> u64 {
        (self.geometry.ring_bytes() - self.geometry.reserve_bytes()).saturating_sub(self.used_bytes())
    }

    /// True if a transaction of `payload_bytes` can be appended now.
    pub(super) fn room_for(&self, payload_bytes: u64) -> bool {
        payload_bytes <= self.free_bytes()
            && self.geometry.transaction_bytes(self.head.lsn, payload_bytes) <= self.free_bytes()
    }

    /// Appends a transaction and returns its end.
    pub(super) fn append(&mut self, payload: &[u8]) -> JournalResult<Lsn> {
        if !self.room_for(payload.len() as u64) {
            return Err(self.full(payload.len() as u64, self.free_bytes()));
        }
        let parts = self.geometry.cut(self.head.lsn, payload.len() as u64);
        let mut rest = payload;
        for (i, bytes) in parts.iter().enumerate() {
            let (part, after) = rest.split_at(*bytes as usize);
            self.push(RecordType::Transaction { last: i + 1 == parts.len() }, part);
            rest = after;
        }
        Ok(self.head.lsn)
    }

    /// Appends an attest, unless the last record already says the same, or there is no space for it.
    pub(super) fn append_attest(&mut self, clean: bool) {
        let said = match self.last {
            Some(RecordType::Attest { clean: said_clean }) => said_clean || !clean,
            _ => false,
        };
        if !said && self.room_for(0) {
            self.push(RecordType::Attest { clean }, &[]);
        }
    }

    /// Appends the record that raises the incarnation; it may use the reserve.
    pub(super) fn append_open_incarnation(&mut self, incarnation: Incarnation) -> JournalResult<()> {
        assert!(incarnation > self.head.incarnation, "an incarnation is opened once");
        let free = self.geometry.ring_bytes() - self.used_bytes();
        if free < SECTOR {
            return Err(self.full(0, free));
        }
        self.head.incarnation = incarnation;
        self.push(RecordType::OpenIncarnation, &[]);
        Ok(())
    }

    /// Takes everything appended since the last batch; `None` if there is nothing.
    pub(super) fn take_batch(&mut self) -> Option<Batch> {
        let mut writes: Vec<RingWrite> = Vec::new();
        let mut at = self.pending_from;
        for record in self.pending.drain(..) {
            let next = Lsn(at.0 + record.len() as u64);
            match writes.last_mut() {
                Some(write) if self.geometry.ring_offset(at) != 0 => write.parts.push(record),
                _ => writes.push(RingWrite { device_offset: self.geometry.device_offset(at), parts: vec![record] }),
            }
            at = next;
        }
        if writes.is_empty() {
            return None;
        }
        self.pending_from = at;
        self.in_flight.push_back(InFlight { end: at, complete: false });
        Some(Batch { end: at, writes })
    }

    /// The batch that ends at `end` is on the medium.
    pub(super) fn complete(&mut self, end: Lsn) {
        let Some(batch) = self.in_flight.iter_mut().find(|batch| batch.end == end) else {
            assert!(planted(Bug::DurableOverAHole), "a batch completes once");
            return;
        };
        batch.complete = true;
        let is_next = |front: &InFlight| front.complete || (planted(Bug::DurableOverAHole) && front.end < end);
        while self.in_flight.front().is_some_and(is_next) {
            self.durable = self.in_flight.pop_front().expect("there is a front").end;
        }
    }

    /// Anchor `seq`, whose redo starts at `tail`, is durable: the ring before `tail` is free.
    pub(super) fn anchored(&mut self, seq: u64, tail: Lsn) {
        assert!(seq == self.anchor_seq + 1 && tail >= self.tail && tail <= self.durable);
        (self.anchor_seq, self.tail) = (seq, tail);
    }

    fn push(&mut self, record_type: RecordType, payload: &[u8]) {
        let mut header = RecordHeader {
            record_type,
            incarnation: self.head.incarnation,
            lsn: self.head.lsn,
            record_bytes: 0,
            payload_bytes: 0,
            prev_sum: self.head.prev_sum,
            durable: self.durable,
            anchor_seq: self.anchor_seq,
            sum: 0,
        };
        let record = header.encode(&self.owner, payload);
        self.pending.push(record.freeze());
        self.head = header.after();
        self.last = Some(record_type);
        assert!(self.used_bytes() <= self.geometry.ring_bytes(), "the head never passes the tail");
    }

    fn full(&self, payload_bytes: u64, free_bytes: u64) -> JournalError {
        let words = format!(
            "the journal is full: {payload_bytes} bytes asked for, {free_bytes} bytes of the ring free (checkpoint \
             at {}, head at {}, ring of {} bytes); a checkpoint has to complete first",
            self.tail,
            self.head.lsn,
            self.geometry.ring_bytes()
        );
        JournalError::new(JournalErrorKind::Full, words)
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::Uuid;

    use super::{super::limits::RING_START, *};

    const OWNER: Owner = Owner { target: Uuid([1; 16]), generation: 1, salt: 1 };

    fn ring(sectors: u64) -> Ring {
        Ring::new(OWNER, Geometry::new(sectors * SECTOR).unwrap(), Checkpoint::default(), Lsn(0), 1)
    }

    fn end_of_batch(ring: &mut Ring) -> Lsn {
        ring.take_batch().unwrap().end
    }

    #[test]
    fn a_batch_is_one_write_and_two_where_the_ring_wraps() {
        let mut ring = ring(16);
        for _ in 0..11 {
            ring.append(b"x").unwrap();
        }
        let batch = ring.take_batch().unwrap();
        assert_eq!(
            (batch.writes.len(), batch.writes[0].device_offset, batch.writes[0].parts.len()),
            (1, RING_START, 11)
        );
        ring.complete(batch.end);
        ring.anchored(2, batch.end);
        ring.append(&[7; 4 * SECTOR as usize]).unwrap();
        ring.append(b"y").unwrap();
        let batch = ring.take_batch().unwrap();
        let places: Vec<u64> = batch.writes.iter().map(|write| write.device_offset).collect();
        assert_eq!(places, [RING_START + 11 * SECTOR, RING_START]);
        assert!(ring.take_batch().is_none());
    }

    #[test]
    fn durable_moves_only_over_a_prefix_of_the_batches() {
        let mut ring = ring(16);
        ring.append(b"a").unwrap();
        let first = end_of_batch(&mut ring);
        ring.append(b"b").unwrap();
        let second = end_of_batch(&mut ring);
        ring.complete(second);
        assert_eq!(ring.durable(), Lsn(0));
        ring.complete(first);
        assert_eq!(ring.durable(), second);
    }

    #[test]
    fn a_full_ring_takes_no_transaction_but_the_records_of_restarts() {
        let mut ring = ring(16);
        while ring.room_for(1) {
            ring.append(b"x").unwrap();
        }
        assert_eq!(ring.free_bytes(), 0);
        assert_eq!(ring.append(b"x").unwrap_err().kind, JournalErrorKind::Full);
        ring.append_attest(true);
        assert_eq!(ring.head().lsn, Lsn(12 * SECTOR));
        for incarnation in 1..=4 {
            ring.append_open_incarnation(Incarnation(incarnation)).unwrap();
        }
        assert_eq!(ring.append_open_incarnation(Incarnation(5)).unwrap_err().kind, JournalErrorKind::Full);
    }

    #[test]
    fn room_is_exact_and_huge_payloads_have_none() {
        let ring = ring(16);
        let most = (0..).take_while(|bytes| ring.room_for(*bytes)).last().unwrap();
        assert_eq!(most, 12 * SECTOR - 3 * 96);
        assert!(!ring.room_for(u64::MAX));
    }

    #[test]
    fn an_attest_is_not_repeated_unless_it_turns_clean() {
        let mut ring = ring(16);
        ring.append_attest(false);
        ring.append_attest(false);
        assert_eq!(ring.head().lsn, Lsn(SECTOR));
        ring.append_attest(true);
        ring.append_attest(false);
        assert_eq!(ring.head().lsn, Lsn(2 * SECTOR));
    }
}
