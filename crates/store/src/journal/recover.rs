//! Reading a journal back: anchors, scan, verdict, redo, and the opening of a new incarnation.
//!
//! Invariant: what recovery accepted is flushed before anything is built on it. A process that died leaves bytes that
//! can be read, but that the device has not yet made durable. Before the flush, records that nothing names as durable
//! are rewritten. After a failed flush the device or the kernel may have dropped them, and later flushes succeed
//! without them.
//! Invariant: nothing is appended before the record that opens the new incarnation is durable.
//! Not here: the rules (see `judge`), which are pure.

use std::{collections::VecDeque, ops::Range};

use bytes::{Bytes, BytesMut};
use forebay_env::{AlignedBuf, Bug, Env, EnvError, EnvErrorKind, EnvResult, SECTOR_BYTES, planted};
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
use crate::mirror::Device;

/// A journal that was found intact. Redo [`Recovered::next_transaction`] until `None`, then [`Recovered::open`].
pub struct Recovered {
    /// Where redo starts, and the table's root there.
    pub anchor: Anchor,
    /// Where the journal continues; everything before is recovered.
    pub cut: Lsn,
    /// The highest durable lsn that anything named; at most the cut.
    pub highest_durable: Lsn,
    /// A write had begun beyond the cut; it is dropped. (Known only if a sector that shows it remains.)
    pub torn_tail: bool,
    /// The target was stopped cleanly.
    pub clean: bool,
    /// The incarnation that [`Recovered::open`] opens.
    pub incarnation: Incarnation,
    end: Checkpoint,
    redo: Redo,
    mends: Vec<Mend>,
    /// Accepted records that nothing names as durable.
    in_doubt: Vec<RecordHeader>,
    /// True if no accepted record knew the anchor.
    is_anchor_in_doubt: bool,
    env: Env,
}

/// A range that one copy of a mirrored journal has right, and another may not have.
struct Mend {
    range: Range<u64>,
    from: usize,
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
        disk: impl Into<Device>,
        target: Uuid,
        generation: u32,
        named_durable: Lsn,
    ) -> JournalResult<Recovered> {
        let disk: Device = disk.into();
        let (slots, mut mends) = read_slots(&disk, target, generation).await?;
        let (anchor, owner, geometry) = choose(slots)?;
        refuse_short_device(&disk, geometry)?;
        let (scan, copies) = scan_copies(&disk, &owner, geometry).await?;
        let verdict = judge(&anchor, geometry, &scan, named_durable.max(anchor.durable))?;
        mends.extend(mends_of(&disk, &verdict.chain, geometry, &copies));
        let in_doubt = |header: &&RecordHeader| header.after().lsn > verdict.highest_durable;
        Ok(Recovered {
            cut: verdict.cut.lsn,
            highest_durable: verdict.highest_durable,
            torn_tail: verdict.torn_tail,
            clean: verdict.clean,
            incarnation: Incarnation(verdict.cut.incarnation.max(anchor.incarnation).0 + 1),
            end: verdict.cut,
            redo: Redo::new(disk, owner, geometry, verdict.redo),
            mends,
            in_doubt: verdict.chain.iter().filter(in_doubt).copied().collect(),
            is_anchor_in_doubt: verdict.chain.iter().all(|header| header.anchor_seq < anchor.seq),
            env: env.clone(),
            anchor,
        })
    }
}

impl Recovered {
    /// The next transaction to redo. Errors: `Medium`; `Corrupt` if a record reads differently from a moment ago.
    pub async fn next_transaction(&mut self) -> JournalResult<Option<Transaction>> {
        self.redo.next_transaction().await
    }

    /// Makes what was recovered durable, opens the new incarnation at the cut, and hands over the journal.
    ///
    /// Errors: `Full` if a restart has happened too often without a checkpoint, `Medium`, `FlushFailed`.
    pub async fn open(mut self) -> JournalResult<Journal> {
        assert!(self.redo.rest.is_empty(), "transactions are redone before the journal goes on");
        // A record accepted from one copy must be on the other, too, before anything is built on it.
        for Mend { range, from } in std::mem::take(&mut self.mends) {
            self.redo.disk.mend(range, from).await?;
        }
        if !planted(Bug::RecoveredNotRewritten) {
            self.rewrite_unattested().await?;
        }
        if !planted(Bug::RecoveredNotFlushed) {
            self.redo.disk.flush().await?;
        }
        let (owner, geometry) = (self.redo.owner, self.redo.geometry);
        let mut ring = Ring::new(owner, geometry, self.end, self.anchor.checkpoint.lsn, self.anchor.seq);
        ring.append_open_incarnation(self.incarnation)?;
        let journal = Journal::new(self.env, self.redo.disk, ring);
        journal.write_out().await?;
        Ok(journal)
    }

    /// Rewrites in place what can be read now but may not be durable. If a crash tears these writes, the bytes stay the
    /// same, or they are what would have been a torn tail.
    async fn rewrite_unattested(&mut self) -> JournalResult<()> {
        if self.is_anchor_in_doubt {
            let sector = self.anchor.encode(&self.redo.owner, self.redo.geometry).freeze();
            self.redo.disk.write(Anchor::device_offset(self.anchor.seq), vec![sector]).await?;
        }
        for header in &self.in_doubt {
            let record = self.redo.checked(header).await?;
            self.redo.disk.write(self.redo.geometry.device_offset(header.lsn), vec![record]).await?;
        }
        Ok(())
    }
}

/// Reads the two anchor slots: of each, the best that any copy has.
async fn read_slots(disk: &Device, target: Uuid, generation: u32) -> JournalResult<([Slot; 2], Vec<Mend>)> {
    if disk.bytes() < RING_START {
        return Err(JournalError::new(JournalErrorKind::Foreign, "journal: the device is too small to hold one"));
    }
    let copies = disk.copies();
    let mut slots = [Slot::Blank, Slot::Blank];
    let mut mends = Vec::new();
    for (i, slot) in slots.iter_mut().enumerate() {
        let at = i as u64 * SECTOR;
        let mut found = Vec::new();
        for copy in &copies {
            found.push(match disk.read_copy(*copy, at, SECTOR_BYTES).await {
                Ok(sector) => read_slot(&sector, 1 - i as u64, target, generation),
                Err(error) if is_of_medium(&error, &copies) => Slot::Unreadable(error.message),
                Err(error) => return Err(error.into()),
            });
        }
        let Some(best) = found.iter().max_by_key(|slot| slot.rank()).cloned() else { continue };
        let from = copies.iter().zip(&found).find(|(_, slot)| **slot == best).map(|(copy, _)| *copy);
        let differ = found.iter().any(|slot| *slot != best) || disk.is_being_filled();
        mends.extend(from.filter(|_| differ).map(|from| Mend { range: at..at + SECTOR, from }));
        *slot = best;
    }
    Ok((slots, mends))
}

/// True if the error concerns only this location, or only one copy of several.
fn is_of_medium(error: &EnvError, copies: &[usize]) -> bool {
    error.kind == EnvErrorKind::Medium || copies.len() > 1
}

fn refuse_short_device(disk: &Device, geometry: Geometry) -> JournalResult<()> {
    let (got, expected) = (disk.bytes(), geometry.device_bytes());
    if got >= expected {
        return Ok(());
    }
    let words = format!(
        "journal: its anchor tells of a device of {expected} bytes, this one has {got}: the wrong device, or cut short?"
    );
    Err(JournalError::new(JournalErrorKind::Foreign, words))
}

/// Scans the ring: all copies merged, and each one alone.
async fn scan_copies(disk: &Device, owner: &Owner, geometry: Geometry) -> JournalResult<(Scan, Vec<(usize, Scan)>)> {
    let copies = disk.copies();
    let mut scans = Vec::new();
    for copy in &copies {
        scans.push((*copy, scan_ring(disk, *copy, &copies, owner, geometry).await?));
    }
    let merged = scans.iter().map(|(_, scan)| scan).cloned().reduce(Scan::merge);
    Ok((merged.unwrap_or_default(), scans))
}

async fn scan_ring(
    disk: &Device,
    copy: usize,
    copies: &[usize],
    owner: &Owner,
    geometry: Geometry,
) -> JournalResult<Scan> {
    let mut scan = Scan::default();
    let mut at = 0;
    while at < geometry.ring_bytes() {
        let window_bytes = SCAN_READ_BYTES.min(geometry.ring_bytes() - at);
        let read = async |at: u64, bytes: usize| match disk.read_copy(copy, RING_START + at, bytes).await {
            Err(error) if is_of_medium(&error, copies) => Ok(None),
            other => other.map(Some),
        };
        let window = read_window(read, at, window_bytes, &mut scan).await?;
        at += scan.look(owner, geometry, at, &window);
    }
    Ok(scan)
}

/// Reads a window of the ring. Sectors that the device cannot read become zeros, which are no record.
async fn read_window(
    read: impl AsyncFn(u64, usize) -> EnvResult<Option<AlignedBuf>>,
    at: u64,
    window_bytes: u64,
    scan: &mut Scan,
) -> JournalResult<AlignedBuf> {
    if let Some(window) = read(at, window_bytes as usize).await? {
        return Ok(window);
    }
    let mut window = AlignedBuf::zeroed(window_bytes as usize);
    for (sector, offset) in window.chunks_exact_mut(SECTOR_BYTES).zip((at..).step_by(SECTOR_BYTES)) {
        match read(offset, SECTOR_BYTES).await? {
            Some(bytes) => sector.copy_from_slice(&bytes),
            None => drop(scan.unreadable.insert(offset)),
        }
    }
    Ok(window)
}

/// The accepted records that some copy lacks, or that a copy which is being filled may lack.
fn mends_of(disk: &Device, chain: &[RecordHeader], geometry: Geometry, copies: &[(usize, Scan)]) -> Vec<Mend> {
    let has = |scan: &Scan, header: &RecordHeader| scan.intact.get(&geometry.ring_offset(header.lsn)) == Some(header);
    let everywhere = disk.is_being_filled();
    let of = |header: &RecordHeader| {
        let lacks = copies.iter().any(|(_, scan)| !has(scan, header));
        let (from, _) = copies.iter().find(|(_, scan)| has(scan, header))?;
        let at = geometry.device_offset(header.lsn);
        (everywhere || lacks).then(|| Mend { range: at..at + u64::from(header.record_bytes), from: *from })
    };
    chain.iter().filter_map(of).collect()
}

/// Reads the payloads of the accepted records, in order, a window at a time.
struct Redo {
    disk: Device,
    owner: Owner,
    geometry: Geometry,
    rest: VecDeque<RecordHeader>,
    window_at: u64,
    window: Bytes,
}

impl Redo {
    fn new(disk: Device, owner: Owner, geometry: Geometry, redo: Vec<RecordHeader>) -> Self {
        Self { disk, owner, geometry, rest: redo.into(), window_at: 0, window: Bytes::new() }
    }

    async fn next_transaction(&mut self) -> JournalResult<Option<Transaction>> {
        let mut parts = Vec::new();
        while let Some(header) = self.rest.pop_front() {
            parts.push(self.payload(&header).await?);
            if header.record_type == (RecordType::Transaction { last: true }) {
                let more = self.rest.iter().any(|header| matches!(header.record_type, RecordType::Transaction { .. }));
                if !more && planted(Bug::LastRedoSkipped) {
                    return Ok(None);
                }
                return Ok(Some(Transaction { end: header.after().lsn, payload: join(parts) }));
            }
        }
        assert!(parts.is_empty(), "only whole transactions are redone");
        Ok(None)
    }

    async fn payload(&mut self, header: &RecordHeader) -> JournalResult<Bytes> {
        let record = self.checked(header).await?;
        Ok(record.slice(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize))
    }

    /// Reads the record, and checks that it is the one that was accepted.
    async fn checked(&mut self, header: &RecordHeader) -> JournalResult<Bytes> {
        let mut record = self.record(header).await?;
        let good = |record: &[u8]| decode(&self.owner, self.geometry.record_bytes_max(), record) == Ok(*header);
        if !good(&record) {
            // Another copy of a mirrored journal may have it.
            let (at, bytes) = (self.geometry.device_offset(header.lsn), header.record_bytes as usize);
            record = self.disk.read_checked(at, bytes, good).await?.freeze();
        }
        if !good(&record) {
            let words = format!(
                "journal: the record at lsn {} reads differently from a moment ago; replace the device",
                header.lsn
            );
            return Err(JournalError::new(JournalErrorKind::Corrupt, words));
        }
        Ok(record)
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

    /// Reads as much as is worth reading at once; only the record itself if what follows it cannot be read.
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
