//! Reading a journal back: anchors, scan, verdict, redo, and the opening of a new incarnation.
//!
//! Invariant: what recovery accepted is flushed before anything is built on it: a process that died leaves bytes that
//! read well and that the device has not yet made durable.
//! Invariant: nothing is appended before the record that opens the new incarnation is durable.
//! Not here: the rules (see `judge`), which are pure.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use forebay_env::{AlignedBuf, Disk, Env, EnvErrorKind, SECTOR_BYTES};
use forebay_proto::{Incarnation, Uuid};

use super::{
    Anchor, Checkpoint, Journal, JournalError, JournalErrorKind, JournalResult, Lsn, Owner,
    anchor::{Slot, choose, read_slot},
    geometry::Geometry,
    judge::judge,
    limits::{REDO_READ_BYTES, RING_START, SCAN_READ_BYTES, SECTOR},
    record::{HEADER_BYTES, RecordHeader, RecordType, decode},
    ring::Ring,
    scan::Scan,
};

/// A journal that was found whole. Redo [`Recovered::next_transaction`] until `None`, then [`Recovered::open`].
pub struct Recovered {
    /// Where redo starts, and the table's root there.
    pub anchor: Anchor,
    /// Where the journal continues; everything before is recovered.
    pub cut: Lsn,
    /// The highest durable lsn that anything named; at most the cut.
    pub highest_durable: Lsn,
    /// Something was begun beyond the cut, and is dropped. (Known only if a sector that shows it is left.)
    pub torn_tail: bool,
    /// The target was stopped cleanly.
    pub clean: bool,
    /// The incarnation that [`Recovered::open`] opens.
    pub incarnation: Incarnation,
    end: Checkpoint,
    redo: Redo,
    env: Env,
}

/// One recovered transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// What [`Journal::append`] returned for it.
    pub end: Lsn,
    /// What [`Journal::append`] was given.
    pub payload: Bytes,
}

impl Journal {
    /// Finds the journal of `target` and `generation` on `disk`, and judges it.
    ///
    /// `named_durable`: the highest durable lsn that the store knows from elsewhere (run headers of this
    /// generation), or 0.
    /// Errors: `Corrupt`, `Foreign`, `Unsupported`, `Medium`: the target must not serve.
    pub async fn recover(
        env: &Env,
        disk: &Disk,
        target: Uuid,
        generation: u32,
        named_durable: Lsn,
    ) -> JournalResult<Recovered> {
        let slots = read_slots(disk, target, generation).await?;
        let (anchor, owner, geometry) = choose(slots)?;
        refuse_short_device(disk, geometry)?;
        let scan = scan_ring(disk, &owner, geometry).await?;
        let verdict = judge(&anchor, geometry, &scan, named_durable.max(anchor.durable))?;
        Ok(Recovered {
            cut: verdict.cut.lsn,
            highest_durable: verdict.highest_durable,
            torn_tail: verdict.torn_tail,
            clean: verdict.clean,
            incarnation: Incarnation(verdict.cut.incarnation.max(anchor.incarnation).0 + 1),
            end: verdict.cut,
            redo: Redo::new(disk.clone(), owner, geometry, verdict.redo),
            env: env.clone(),
            anchor,
        })
    }
}

impl Recovered {
    /// The next transaction to redo. Errors: `Medium`, `Corrupt` if the device reads worse now than a moment ago.
    pub async fn next_transaction(&mut self) -> JournalResult<Option<Transaction>> {
        self.redo.next_transaction().await
    }

    /// Makes what was recovered durable, opens the new incarnation at the cut, and hands over the journal.
    ///
    /// Errors: `Full` if a restart has happened too often without a checkpoint, `Medium`, `FlushFailed`.
    pub async fn open(self) -> JournalResult<Journal> {
        assert!(self.redo.rest.is_empty(), "transactions are redone before the journal goes on");
        self.redo.disk.flush().await?;
        let (owner, geometry) = (self.redo.owner, self.redo.geometry);
        let mut ring = Ring::new(owner, geometry, self.end, self.anchor.checkpoint.lsn, self.anchor.seq);
        ring.append_open_incarnation(self.incarnation)?;
        let journal = Journal::new(self.env, self.redo.disk, ring);
        journal.write_out().await?;
        Ok(journal)
    }
}

async fn read_slots(disk: &Disk, target: Uuid, generation: u32) -> JournalResult<[Slot; 2]> {
    if disk.info().bytes < RING_START {
        return Err(JournalError::new(JournalErrorKind::Foreign, "journal: the device is too small to hold one"));
    }
    let mut slots = [Slot::Blank, Slot::Blank];
    for (i, slot) in slots.iter_mut().enumerate() {
        *slot = match disk.read(i as u64 * SECTOR, SECTOR_BYTES).await {
            Ok(sector) => read_slot(&sector, 1 - i as u64, target, generation),
            Err(error) if error.kind == EnvErrorKind::Medium => Slot::Unreadable(error.message),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(slots)
}

fn refuse_short_device(disk: &Disk, geometry: Geometry) -> JournalResult<()> {
    let (got, expected) = (disk.info().bytes, geometry.device_bytes());
    if got >= expected {
        return Ok(());
    }
    let words = format!(
        "journal: its anchor tells of a device of {expected} bytes, this one has {got}: the wrong device, or cut short?"
    );
    Err(JournalError::new(JournalErrorKind::Foreign, words))
}

async fn scan_ring(disk: &Disk, owner: &Owner, geometry: Geometry) -> JournalResult<Scan> {
    let mut scan = Scan::default();
    let mut at = 0;
    while at < geometry.ring_bytes() {
        let window_bytes = SCAN_READ_BYTES.min(geometry.ring_bytes() - at);
        let window = read_window(disk, at, window_bytes, &mut scan).await?;
        at += scan.look(owner, geometry, at, &window);
    }
    Ok(scan)
}

/// Ring bytes with zeros, which are no record, where the device cannot read.
async fn read_window(disk: &Disk, at: u64, window_bytes: u64, scan: &mut Scan) -> JournalResult<AlignedBuf> {
    match disk.read(RING_START + at, window_bytes as usize).await {
        Err(error) if error.kind == EnvErrorKind::Medium => {}
        other => return Ok(other?),
    }
    let mut window = AlignedBuf::zeroed(window_bytes as usize);
    for (sector, offset) in window.chunks_exact_mut(SECTOR_BYTES).zip((at..).step_by(SECTOR_BYTES)) {
        match disk.read(RING_START + offset, SECTOR_BYTES).await {
            Ok(bytes) => sector.copy_from_slice(&bytes),
            Err(error) if error.kind == EnvErrorKind::Medium => drop(scan.unreadable.insert(offset)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(window)
}

/// Reads the payloads of the accepted records, in order, a window at a time.
struct Redo {
    disk: Disk,
    owner: Owner,
    geometry: Geometry,
    rest: VecDeque<RecordHeader>,
    window_at: u64,
    window: Bytes,
}

impl Redo {
    fn new(disk: Disk, owner: Owner, geometry: Geometry, redo: Vec<RecordHeader>) -> Self {
        Self { disk, owner, geometry, rest: redo.into(), window_at: 0, window: Bytes::new() }
    }

    async fn next_transaction(&mut self) -> JournalResult<Option<Transaction>> {
        let mut parts = Vec::new();
        while let Some(header) = self.rest.pop_front() {
            parts.push(self.payload(&header).await?);
            if header.record_type == (RecordType::Transaction { last: true }) {
                return Ok(Some(Transaction { end: header.after().lsn, payload: join(parts) }));
            }
        }
        assert!(parts.is_empty(), "only whole transactions are redone");
        Ok(None)
    }

    async fn payload(&mut self, header: &RecordHeader) -> JournalResult<Bytes> {
        let record = self.record(header).await?;
        if decode(&self.owner, self.geometry.record_bytes_max(), &record) != Ok(*header) {
            let words = format!(
                "journal: the record at lsn {} reads differently from a moment ago; replace the device",
                header.lsn
            );
            return Err(JournalError::new(JournalErrorKind::Corrupt, words));
        }
        Ok(record.slice(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize))
    }

    async fn record(&mut self, header: &RecordHeader) -> JournalResult<Bytes> {
        let (at, length) = (self.geometry.ring_offset(header.lsn), u64::from(header.record_bytes));
        if at < self.window_at || at + length > self.window_at + self.window.len() as u64 {
            self.window = self.read_ahead(at, length).await?;
            self.window_at = at;
        }
        let from = (at - self.window_at) as usize;
        Ok(self.window.slice(from..from + length as usize))
    }

    /// As much as is worth reading at once; only the record itself if what follows it cannot be read.
    async fn read_ahead(&self, at: u64, length: u64) -> JournalResult<Bytes> {
        let ahead = REDO_READ_BYTES.max(length).min(self.geometry.ring_bytes() - at);
        let long = self.disk.read(RING_START + at, ahead as usize).await;
        let read = match long {
            Err(error) if error.kind == EnvErrorKind::Medium => {
                self.disk.read(RING_START + at, length as usize).await?
            }
            other => other?,
        };
        Ok(read.freeze())
    }
}

fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    whole.freeze()
}
