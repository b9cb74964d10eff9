//! Repairs what is safe to repair: counters, link and entry counts, orphan rows; leaks on request.
//!
//! It writes the journal's redo and the changes as transactions of the *next generation*, behind everything in the
//! journal. Then it writes an anchor of that generation over the older anchor, and then the identity with the new
//! generation. Sessions of the previous generation are void from then on (DESIGN 5.7).
//!
//! Invariant: the target stays as it was until the identity is replaced, which is one step. So an interrupted repair
//! can start again at any point. No byte that the old generation needs is overwritten: its older anchor is not needed
//! while the newer one is intact, which repair requires.
//! Invariant: nothing is dropped that a report did not name.
//! Not here: damage that cannot be repaired from the table alone. It is refused with a message.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_env::{AlignedBuf, Env};
use forebay_proto::{Incarnation, Transno};

use crate::{
    CheckOptions, FsckError, FsckErrorKind, FsckResult, Report, check,
    examined::{Examined, Fix, KeyedFix},
    finding::{Finding, Kind, Severity},
    format::{
        anchor::{Anchor, Checkpoint, Slot},
        identity::Identity,
        payload::{self, Step},
        record::{self, Owner, Record, RecordType},
    },
    journal::{JournalView, Overlay},
    limits::{self, SECTOR},
    media::{self, Media, join},
    rows::mdt::Inode,
    slabs::Slabs,
    table::{Source, Walk},
};

/// Options of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Options of the check before it.
    pub check: CheckOptions,
    /// Free extents that belong to no object. Their bytes are lost then.
    pub remove_leaks: bool,
    /// Directory of the cluster's MDT. It is needed to rebuild an OST that lost its journal.
    pub mdt: Option<String>,
}

/// Kinds of errors after which the table, or what it is built on, cannot be trusted. Repair changes nothing on top of
/// these.
const FOUNDATIONS: &[Kind] = &[
    Kind::Identity,
    Kind::WrongDevice,
    Kind::Anchor,
    Kind::Journal,
    Kind::Payload,
    Kind::Unreadable,
    Kind::Snapshot,
    Kind::Page,
    Kind::PageOrder,
    Kind::SlabEpoch,
    Kind::FreeSlab,
    Kind::SharedBytes,
    Kind::Row,
    Kind::UnknownRow,
];

/// Checks the target in `dir`, which has its journal, and repairs what it can.
pub(crate) async fn repair(env: &Env, dir: &str, options: &RepairOptions) -> FsckResult<Report> {
    let mut examined = check::examine(env, dir, &options.check, true).await?;
    let fixes = chosen(std::mem::take(&mut examined.fixes), options);
    if fixes.is_empty() {
        return Ok(examined.report);
    }
    refuse_deep_damage(&examined.report)?;
    let Examined { mut report, identity, identity_file, media, slabs, journal, twin_dir, .. } = examined;
    let (Some(identity), Some(media), Some(slabs), Some(journal)) = (identity, media, slabs, journal) else {
        return Err(cannot("the target could not be read far enough"));
    };
    let edits = edits(&media, &identity, &slabs, &journal, &fixes).await?;
    let mended: Vec<Kind> = fixes.iter().map(|(_, _, kind)| *kind).collect();
    let plan = Plan::new(&identity, &slabs, &journal, &edits)?;
    plan.write(&media).await?;
    let file = Identity::with_generation(&identity_file, plan.anchor.generation);
    // Each directory of a mirrored target names the generation; the higher one counts.
    if let Some(twin) = twin_dir.filter(|twin| env.read_file(&join(twin, "identity")).is_ok()) {
        env.write_file(&join(&twin, "identity"), &file)?;
    }
    env.write_file(&join(dir, "identity"), &file)?;
    for finding in report.findings.iter_mut().filter(|finding| mended.contains(&finding.kind)) {
        finding.repaired = is_mended(finding, &fixes);
    }
    Ok(report)
}

/// Refuses a target with features that this program does not know how to write.
pub(crate) fn refuse_what_may_only_be_read(env: &Env, dir: &str) -> FsckResult<()> {
    match Identity::decode(&media::read_identity(env, dir)?) {
        Ok(identity) if identity.ro_compat != 0 => {
            let bits = identity.ro_compat;
            let words =
                format!("{dir} has features {bits:#x}, with which this program may only read it; repair it with");
            Err(FsckError::new(FsckErrorKind::Unsupported, format!("{words} the release that wrote it")))
        }
        _ => Ok(()),
    }
}

fn cannot(words: impl Into<String>) -> FsckError {
    FsckError::new(FsckErrorKind::CannotRepair, words)
}

fn chosen(fixes: Vec<KeyedFix>, options: &RepairOptions) -> Vec<KeyedFix> {
    fixes.into_iter().filter(|(_, _, kind)| *kind != Kind::ObjectMissing || options.remove_leaks).collect()
}

/// The first finding that repair cannot build on.
fn deep_damage(report: &Report) -> Option<&Finding> {
    report.findings.iter().find(|f| f.severity == Severity::Error && FOUNDATIONS.contains(&f.kind))
}

impl Report {
    /// True if [`crate::repair`] would change nothing, because what it would build on is damaged.
    pub fn is_beyond_repair(&self) -> bool {
        deep_damage(self).is_some()
    }
}

pub(crate) fn refuse_deep_damage(report: &Report) -> FsckResult<()> {
    let Some(finding) = deep_damage(report) else { return Ok(()) };
    Err(cannot(format!(
        "{}: damage that cannot be mended yet: {}: {}. Nothing was changed; restore the target from redundant copies, or \
         copy off what can still be read (rebuilding a table from the slabs is to come; a journal that is not there at all \
         is made anew)",
        finding.target, finding.place, finding.what
    )))
}

/// True if the finding's row was repaired. For leaks: the extents of the object that the finding names.
fn is_mended(finding: &Finding, fixes: &[KeyedFix]) -> bool {
    let crate::Place::Row(key) = &finding.place else { return false };
    fixes.iter().any(|(row, _, kind)| {
        *kind == finding.kind && (row == key || row.get(1..) == key.get(1..)) && finding.severity > Severity::Info
    })
}

/// The changed rows: each fix applied to its current row.
async fn edits(
    media: &Media,
    identity: &Identity,
    slabs: &Slabs,
    journal: &JournalView,
    fixes: &[KeyedFix],
) -> FsckResult<Overlay> {
    let mut by_row: BTreeMap<&[u8], Vec<&Fix>> = BTreeMap::new();
    for (key, fix, _) in fixes {
        by_row.entry(key).or_default().push(fix);
    }
    let mut edits = Overlay::new();
    for (key, fixes) in &by_row {
        if let [Fix::Value(value)] = fixes[..] {
            edits.insert(key.to_vec(), Some(Bytes::from(value.clone())));
        }
    }
    let root = journal.anchor.root;
    let source = Source { media, identity, slabs, overlay: &journal.overlay, root };
    let mut walk = Walk::begin(&source).await?;
    while let Some(row) = walk.next().await? {
        let Some(value) = row.live else { continue };
        // A fix for extents names the object: the first 17 bytes of the key.
        let key = if row.key.first() == Some(&1) { row.key.get(..17).unwrap_or(&row.key) } else { &row.key[..] };
        for fix in by_row.get(key).into_iter().flatten() {
            let current = edits.get(&row.key).cloned().flatten().unwrap_or_else(|| value.clone());
            let changed = match fix {
                Fix::Nlink(nlink) => Inode::with_nlink(&current, *nlink).map(Some),
                Fix::Entries(entries) => Inode::with_entries(&current, *entries).map(Some),
                Fix::Value(value) => Ok(Some(value.clone())),
                Fix::Delete => Ok(None),
            };
            let changed = changed.map_err(|error| cannot(format!("a row to be mended cannot be read: {error}")))?;
            edits.insert(row.key.clone(), changed.map(Bytes::from));
        }
    }
    Ok(edits)
}

/// The bytes to write with their offsets, and the anchor that makes them valid.
pub(crate) struct Plan {
    /// Journal offset and bytes.
    pub(crate) records: Vec<(u64, Vec<u8>)>,
    pub(crate) anchor: Anchor,
}

impl Plan {
    /// Redo and edits as one transaction of the next generation, behind everything in the journal.
    fn new(identity: &Identity, slabs: &Slabs, journal: &JournalView, edits: &Overlay) -> FsckResult<Self> {
        let old = &journal.anchor;
        let ring_bytes = old.ring_bytes;
        let generation = identity.generation.checked_add(1).ok_or_else(|| cannot("generations are used up"))?;
        let highest = slabs.highest_incarnation().max(journal.highest_incarnation);
        let incarnation = Incarnation(highest.0.checked_add(1).ok_or_else(|| cannot("incarnations are used up"))?);
        let payload = payload_of(journal, edits);
        let owner = Owner { uuid: identity.uuid, generation, salt: old.salt };
        let begin = Checkpoint { lsn: journal.cut.lsn, incarnation, prev_sum: journal.cut.prev_sum };
        let seq = old.seq + 1;
        let mut plan = Self { records: Vec::new(), anchor: old.clone() };
        let end = plan.cut(&owner, begin, seq, ring_bytes, &payload);
        let used = end.saturating_sub(old.checkpoint.lsn);
        // Leave space for the incarnation records of later restarts.
        if used + ring_bytes / 16 > ring_bytes {
            return Err(cannot(format!(
                "the journal has no room for a repair ({used} of {ring_bytes} bytes): start and stop the target once, \
                 which empties it, then repair"
            )));
        }
        plan.anchor = Anchor { generation, seq, incarnation, checkpoint: begin, durable: end, ..old.clone() };
        Ok(plan)
    }

    /// Splits the payload into records from `begin` on. Returns the lsn behind the last one.
    pub(crate) fn cut(&mut self, owner: &Owner, begin: Checkpoint, seq: u64, ring_bytes: u64, payload: &[u8]) -> u64 {
        let longest = limits::RECORD_BYTES.min(ring_bytes / 4 / SECTOR * SECTOR);
        let (mut at, mut prev_sum, mut rest) = (begin.lsn, begin.prev_sum, payload);
        loop {
            let room = longest.min(ring_bytes - at % ring_bytes) as usize - record::HEADER_BYTES;
            let (part, after) = rest.split_at(room.min(rest.len()));
            let last = after.is_empty();
            let record = Record {
                record_type: RecordType::Transaction { last },
                incarnation: begin.incarnation,
                lsn: at,
                record_bytes: ((record::HEADER_BYTES + part.len()) as u64).next_multiple_of(SECTOR),
                payload_bytes: part.len() as u64,
                prev_sum,
                durable: begin.lsn,
                anchor_seq: seq - 1,
                sum: 0,
            };
            let (bytes, sum) = record.encode_transaction(owner, last, part);
            self.records.push((limits::RING_START + at % ring_bytes, bytes));
            (at, prev_sum, rest) = (at + record.record_bytes, sum, after);
            if last {
                return at;
            }
        }
    }

    pub(crate) async fn write(&self, media: &Media) -> FsckResult<()> {
        for disk in media.journals() {
            for (offset, bytes) in &self.records {
                disk.write(*offset, vec![AlignedBuf::padded_copy(bytes).freeze()]).await?;
            }
            disk.flush().await?;
        }
        let sector = self.anchor.encode();
        debug_assert!(matches!(crate::format::anchor::decode(&sector, 1 - self.anchor.seq % 2), Slot::Intact(_)));
        for disk in media.journals() {
            disk.write(self.anchor.device_offset(), vec![AlignedBuf::padded_copy(&sector).freeze()]).await?;
            disk.flush().await?;
        }
        Ok(())
    }
}

fn payload_of(journal: &JournalView, edits: &Overlay) -> Vec<u8> {
    let mut rows: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
    for (key, value) in journal.overlay.iter().chain(edits) {
        rows.insert(key, value.as_deref());
    }
    let mut steps: Vec<Step<'_>> =
        rows.into_iter().map(|(key, value)| value.map_or(Step::Delete(key), |value| Step::Put(key, value))).collect();
    if journal.transno != Transno(0) {
        steps.push(Step::Transno(journal.transno));
    }
    payload::encode(&steps)
}
