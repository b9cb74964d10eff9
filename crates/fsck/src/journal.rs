//! Reads the journal by the rules of `docs/format.md`, "Reading a journal": anchor, scan, chain, verdict, redo.
//!
//! Invariant: any bytes give findings, never a failure. The chain is followed as far as it goes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use forebay_proto::{Incarnation, Transno};

use crate::{
    FsckError, FsckErrorKind, FsckResult,
    finding::{Device, Finding, Kind, Place},
    format::{
        anchor::{self, Anchor, Checkpoint, Slot},
        identity::Identity,
        payload::{self, Step},
        record::{self, Found, Owner, Record, RecordType},
    },
    limits,
    media::Media,
};

/// Rows after redo; `None`: deleted.
pub(crate) type Overlay = BTreeMap<Vec<u8>, Option<Bytes>>;

/// The contents of a journal.
pub(crate) struct JournalView {
    pub(crate) anchor: Anchor,
    /// Where the journal continues.
    pub(crate) cut: Checkpoint,
    /// The highest incarnation in it.
    pub(crate) highest_incarnation: Incarnation,
    pub(crate) overlay: Overlay,
    /// Highest transno in the redo.
    pub(crate) transno: Transno,
    pub(crate) clean: bool,
    pub(crate) records: u64,
    pub(crate) transactions: u64,
}

/// A journal's intact records, and the errors of others.
#[derive(Default)]
struct Scan {
    intact: BTreeMap<u64, Record>,
    broken: BTreeMap<u64, (u64, Incarnation, &'static str)>,
    unreadable: BTreeSet<u64>,
}

/// Reads the journal. `named`: the highest durable lsn in run headers of this generation. `None`: there is no usable
/// anchor, which is among the findings.
pub(crate) async fn read(
    media: &Media,
    identity: &Identity,
    named: u64,
    findings: &mut Vec<Finding>,
) -> FsckResult<Option<JournalView>> {
    let Some(anchor) = choose_anchor(media, identity, findings).await? else { return Ok(None) };
    let needed = limits::RING_START.saturating_add(anchor.ring_bytes);
    if needed > media.bytes(Device::Journal) {
        let words = "the journal's device is smaller than the journal";
        let finding = Finding::error(Kind::WrongDevice, Place::Device(Device::Journal, 0), words);
        findings.push(finding.with(needed, media.bytes(Device::Journal)));
        return Ok(None);
    }
    let owner = Owner { uuid: identity.uuid, generation: identity.generation, salt: anchor.salt };
    let scan = scan_ring(media, &owner, anchor.ring_bytes).await?;
    judge(media, anchor, &owner, &scan, named, findings).await.map(Some)
}

async fn choose_anchor(media: &Media, identity: &Identity, findings: &mut Vec<Finding>) -> FsckResult<Option<Anchor>> {
    let mut chosen: Option<Anchor> = None;
    let mut others = Vec::new();
    for slot in 0..2 {
        let place = Place::Device(Device::Journal, slot * limits::SECTOR);
        let name = if slot == 0 { "anchor A" } else { "anchor B" };
        let read = media.read(Device::Journal, slot * limits::SECTOR, limits::SECTOR).await?;
        match read.map(|sector| anchor::decode(&sector, slot)) {
            Err(words) => others.push((place, format!("{name} cannot be read: {words}"))),
            Ok(Slot::Newer(version)) => {
                let words = format!("{name} is of version {version}, by a newer forebay; use that one");
                return Err(FsckError::new(FsckErrorKind::Unsupported, words));
            }
            Ok(Slot::Blank) if slot == 1 => {}
            Ok(Slot::Blank) => others.push((place, format!("{name} is blank"))),
            Ok(Slot::Damaged(what)) => others.push((place, format!("{name} is damaged: {what}"))),
            Ok(Slot::Intact(found)) if found.uuid != identity.uuid => {
                let words = "the journal is another target's";
                findings.push(Finding::error(Kind::WrongDevice, place, words).with(identity.uuid, found.uuid));
            }
            Ok(Slot::Intact(found)) if found.generation != identity.generation => {
                let words = format!("{name} is of generation {}, not {}", found.generation, identity.generation);
                others.push((place, words));
            }
            Ok(Slot::Intact(found)) => {
                if chosen.as_ref().is_none_or(|chosen| chosen.seq < found.seq) {
                    chosen = Some(*found);
                }
            }
        }
    }
    let spare = chosen.is_some();
    let told = others.into_iter().map(|(place, words)| match spare {
        true => Finding::info(Kind::SpareAnchor, place, words),
        false => Finding::error(Kind::Anchor, place, words),
    });
    findings.extend(told);
    Ok(chosen)
}

fn record_bytes_max(ring_bytes: u64) -> u64 {
    limits::RECORD_BYTES.min(ring_bytes / 4 / limits::SECTOR * limits::SECTOR)
}

/// Scans every sector of the ring in order, but skips the inside of intact records.
async fn scan_ring(media: &Media, owner: &Owner, ring_bytes: u64) -> FsckResult<Scan> {
    let mut scan = Scan::default();
    let mut at = 0;
    let mut window_at = 0;
    let mut window = Bytes::new();
    while at < ring_bytes {
        if at < window_at || at >= window_at + window.len() as u64 {
            (window_at, window) = read_window(media, at, limits::JOURNAL_READ_BYTES, ring_bytes, &mut scan).await?;
        }
        let mut found = look(owner, ring_bytes, &window, at - window_at, window_at);
        if let Found::More(bytes) = found {
            let more = limits::JOURNAL_READ_BYTES.max(bytes as u64);
            (window_at, window) = read_window(media, at, more, ring_bytes, &mut scan).await?;
            found = look(owner, ring_bytes, &window, 0, window_at);
        }
        at += take(&mut scan, found, at, ring_bytes)?;
    }
    Ok(scan)
}

fn look(owner: &Owner, ring_bytes: u64, window: &Bytes, from: u64, window_at: u64) -> Found {
    let to_end = window_at + window.len() as u64 >= ring_bytes;
    record::decode(owner, record_bytes_max(ring_bytes), &window[from as usize..], to_end)
}

/// Records what was found, and returns how many bytes it accounts for.
fn take(scan: &mut Scan, found: Found, at: u64, ring_bytes: u64) -> FsckResult<u64> {
    match found {
        Found::Record(record) if record.lsn % ring_bytes == at => {
            scan.intact.insert(at, record);
            return Ok(record.record_bytes);
        }
        Found::Broken { lsn, incarnation, what } if anchor::is_lsn(lsn) && lsn % ring_bytes == at => {
            scan.broken.insert(at, (lsn, incarnation, what));
        }
        Found::Newer(version) => {
            let words = format!("a journal record is of version {version}, by a newer forebay; use that one");
            return Err(FsckError::new(FsckErrorKind::Unsupported, words));
        }
        Found::Record(_) | Found::Broken { .. } | Found::Nothing | Found::More(_) => {}
    }
    Ok(limits::SECTOR)
}

async fn read_window(media: &Media, at: u64, bytes: u64, ring_bytes: u64, scan: &mut Scan) -> FsckResult<(u64, Bytes)> {
    let bytes = bytes.min(ring_bytes - at);
    let (window, bad) = media.read_around(Device::Journal, limits::RING_START + at, bytes).await?;
    scan.unreadable.extend(bad.into_iter().map(|offset| offset - limits::RING_START));
    Ok((at, window))
}

/// The consecutive records from the checkpoint on.
struct Chain {
    redo: Vec<Record>,
    cut: Checkpoint,
    at: Checkpoint,
    last: Option<RecordType>,
    end: String,
}

impl Chain {
    fn walk(from: Checkpoint, ring_bytes: u64, scan: &Scan) -> Self {
        let mut chain = Self { redo: Vec::new(), cut: from, at: from, last: None, end: String::new() };
        let mut whole = 0;
        loop {
            match chain.next(from, ring_bytes, scan) {
                Ok(record) => {
                    chain.at = record.after();
                    chain.last = Some(record.record_type);
                    if matches!(record.record_type, RecordType::Transaction { .. }) {
                        chain.redo.push(record);
                    }
                    if !chain.within_transaction() {
                        (chain.cut, whole) = (chain.at, chain.redo.len());
                    }
                }
                Err(words) => {
                    chain.end = words;
                    break;
                }
            }
        }
        chain.redo.truncate(whole);
        chain
    }

    fn within_transaction(&self) -> bool {
        self.last == Some(RecordType::Transaction { last: false })
    }

    fn next(&self, from: Checkpoint, ring_bytes: u64, scan: &Scan) -> Result<Record, String> {
        let (at, place) = (self.at, self.at.lsn % ring_bytes);
        let Some(record) = scan.intact.get(&place) else {
            return Err(match scan.broken.get(&place) {
                Some((lsn, _, what)) if *lsn == at.lsn => format!("the record there is damaged: {what}"),
                _ if scan.unreadable.contains(&place) => "the device cannot read it".into(),
                _ => "no intact record begins there".into(),
            });
        };
        if at.lsn - from.lsn + record.record_bytes > ring_bytes {
            return Err("the ring has been walked once around".into());
        }
        if record.lsn != at.lsn {
            return Err(format!("a record of lsn {} lies there", record.lsn));
        }
        if record.prev_sum != at.prev_sum {
            return Err(format!(
                "it names {:#x} as the sum of the record before, not {:#x}",
                record.prev_sum, at.prev_sum
            ));
        }
        let opens = record.record_type == RecordType::OpenIncarnation;
        if (opens && record.incarnation <= at.incarnation) || (!opens && record.incarnation != at.incarnation) {
            return Err(format!("it is of incarnation {}, in force is {}", record.incarnation, at.incarnation));
        }
        if self.within_transaction() && !matches!(record.record_type, RecordType::Transaction { .. }) {
            return Err("a transaction is not finished before it".into());
        }
        Ok(*record)
    }
}

async fn judge(
    media: &Media,
    anchor: Anchor,
    owner: &Owner,
    scan: &Scan,
    named: u64,
    findings: &mut Vec<Finding>,
) -> FsckResult<JournalView> {
    let ring_bytes = anchor.ring_bytes;
    let at_lsn = |lsn: u64| Place::Device(Device::Journal, limits::RING_START + lsn % ring_bytes);
    if let Some(newest) =
        scan.intact.values().max_by_key(|record| record.anchor_seq).filter(|r| r.anchor_seq > anchor.seq)
    {
        let words = format!("the newest anchor is gone: the record at lsn {} knew it durable", newest.lsn);
        let finding = Finding::error(Kind::Anchor, Place::Device(Device::Journal, 0), words);
        findings.push(finding.with(newest.anchor_seq, anchor.seq));
    }
    let chain = Chain::walk(anchor.checkpoint, ring_bytes, scan);
    let alive = scan.intact.values().filter(|record| record.incarnation >= chain.at.incarnation);
    let durable = alive.map(|record| record.durable).max().unwrap_or(0).max(named).max(anchor.durable);
    let beyond = |lsn: u64, incarnation: Incarnation| lsn >= chain.at.lsn && incarnation >= chain.at.incarnation;
    let later = scan.intact.values().any(|record| beyond(record.lsn, record.incarnation))
        || scan.broken.values().any(|(lsn, incarnation, _)| beyond(*lsn, *incarnation));
    let torn = chain.cut != chain.at || later;
    if durable > chain.cut.lsn {
        let words = format!("a record that was durable is bad: {}", chain.end);
        let finding = Finding::error(Kind::Journal, at_lsn(chain.at.lsn), words);
        findings.push(finding.with(format!("records up to lsn {durable}"), format!("up to lsn {}", chain.cut.lsn)));
    } else if torn {
        let words = format!("the journal ends in a torn record at lsn {}, which is dropped", chain.at.lsn);
        findings.push(Finding::info(Kind::TornTail, at_lsn(chain.at.lsn), words));
    }
    report_unreadable(scan, findings);
    let highest_incarnation = scan.intact.values().map(|record| record.incarnation).max().unwrap_or_default();
    let clean = !torn && chain.last == Some(RecordType::Attest { clean: true });
    let mut view = JournalView {
        cut: chain.cut,
        highest_incarnation: highest_incarnation.max(anchor.incarnation).max(chain.cut.incarnation),
        overlay: Overlay::new(),
        transno: Transno(0),
        clean,
        records: scan.intact.len() as u64,
        transactions: 0,
        anchor,
    };
    redo(media, owner, &chain.redo, &mut view, findings).await?;
    Ok(view)
}

fn report_unreadable(scan: &Scan, findings: &mut Vec<Finding>) {
    let Some(first) = scan.unreadable.first() else { return };
    let words = format!("{} sectors of the journal cannot be read, from here on", scan.unreadable.len());
    findings.push(Finding::warning(
        Kind::Unreadable,
        Place::Device(Device::Journal, limits::RING_START + first),
        words,
    ));
}

/// Reads the accepted transactions again and applies them to the overlay.
async fn redo(
    media: &Media,
    owner: &Owner,
    records: &[Record],
    view: &mut JournalView,
    findings: &mut Vec<Finding>,
) -> FsckResult<()> {
    let mut payload = BytesMut::new();
    for record in records {
        let offset = limits::RING_START + record.lsn % view.anchor.ring_bytes;
        let bytes = media.read(Device::Journal, offset, record.record_bytes).await?.unwrap_or_default();
        let same = record::decode(owner, limits::RECORD_BYTES, &bytes, true) == Found::Record(*record);
        if !same {
            let words = "the record reads differently from a moment ago";
            findings.push(Finding::error(Kind::Unreadable, Place::Device(Device::Journal, offset), words));
            return Ok(());
        }
        payload.extend_from_slice(&bytes[record::HEADER_BYTES..][..record.payload_bytes as usize]);
        if record.record_type != (RecordType::Transaction { last: true }) {
            continue;
        }
        let whole = payload.split().freeze();
        let Some(transno) = apply(&whole, &mut view.overlay) else {
            let what = payload::decode(&whole).err().map_or("", |error| error.what);
            let words = format!("the transaction that ends at lsn {} cannot be understood: {what}", record.after().lsn);
            findings.push(Finding::error(Kind::Payload, Place::Device(Device::Journal, offset), words));
            return Ok(());
        };
        view.transno = view.transno.max(transno);
        view.transactions += 1;
    }
    Ok(())
}

/// Applies a payload. `None` if it cannot be decoded; then nothing is applied.
fn apply(payload: &Bytes, overlay: &mut Overlay) -> Option<Transno> {
    let mut highest = Transno(0);
    for step in payload::decode(payload).ok()? {
        match step {
            Step::Put(key, value) => drop(overlay.insert(key.to_vec(), Some(payload.slice_ref(value)))),
            Step::Delete(key) => drop(overlay.insert(key.to_vec(), None)),
            Step::Transno(transno) => highest = highest.max(transno),
        }
    }
    Some(highest)
}
