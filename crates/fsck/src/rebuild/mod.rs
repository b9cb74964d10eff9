//! Rebuilds the journal of a target that lost it, from the last checkpoint's pages and from the runs and
//! tombstones written after it.
//!
//! Invariant: it writes no byte of the data device. The target has no journal, as before, until the identity is
//! replaced, which is one step. So an interrupted rebuild can start again at any point.
//! Invariant: synced data is in the slabs. Everything that may be missing is listed.
//! Not here: an MDT. Its names since the checkpoint are only in its journal (`format mdt --mirror` keeps two).

mod changes;
mod checkpoint;
mod inodes;
mod object;
mod objects;
mod outcome;
mod paths;
mod store;

use std::collections::BTreeMap;

use forebay_env::{AlignedBuf, Disk, Env, EnvErrorKind, OpenDisk};
use forebay_proto::{Fid, Incarnation, TargetKind, Transno};

use crate::{
    FsckError, FsckErrorKind, FsckResult, RepairOptions, Report, check, cluster,
    finding::{Finding, Findings, Kind, Place},
    format::{
        anchor::{Anchor, Checkpoint},
        identity::Identity,
        payload::{self, Step},
        record::Owner,
    },
    journal::Overlay,
    limits::{self, SECTOR},
    lost::Lost,
    media::{Media, join, part_path, resolve_journal, take_lock},
    repair::Plan,
    slabs::{LostRun, Slabs},
};

use changes::Changes;
use checkpoint::{Base, Traces};
use inodes::{Inodes, Mdt};
use outcome::{Doubt, Outcome};
use store::Store;

/// Rebuilds the lost journal. The report is that of a check afterwards, and lists what may be missing.
pub(crate) async fn rebuild(env: &Env, dir: &str, options: &RepairOptions, lost: Lost) -> FsckResult<Report> {
    let Lost { identity, identity_file, why } = lost;
    let lock = take_lock(env, dir, true)?;
    let media = data_alone(env, dir, &identity).await?;
    let mdt = mdt(env, options, &identity).await?;
    let inodes = match &mdt {
        Some(mdt) => Inodes::read(mdt, &identity).await?,
        None => Inodes::default(),
    };
    let slabs = Slabs::read(&media, &identity).await?;
    let traces = Traces::find(&media, &identity, &slabs).await?;
    let base = traces.newest(&media, &identity, &slabs).await?;
    let changes = Changes::find(&media, &identity, &slabs, base.transno, &base.broken).await?;
    let store = Store { media: &media, identity: &identity, slabs: &slabs };
    let outcome = objects::rows(&store, &base, &changes, &inodes).await?;
    let plan = plan(env, &identity, &traces, &base, &outcome.rows)?;
    write(env, dir, &identity, &plan).await?;
    env.write_file(&join(dir, "identity"), &Identity::with_generation(&identity_file, plan.anchor.generation))?;
    drop((lock, media));
    let mut report = check::examine(env, dir, &options.check, false).await?.report;
    let mut findings = Findings::default();
    tell(&why, &base, &outcome, &mut findings);
    let paths = match &mdt {
        Some(mdt) => {
            paths::find(mdt, &outcome.doubts.iter().filter_map(|doubt| inodes.file_of(doubt.object())).collect())
                .await?
        }
        None => BTreeMap::new(),
    };
    let path = |object: Fid| paths.get(&inodes.file_of(object)?).map(String::as_str);
    outcome.doubts.iter().for_each(|doubt| list(doubt, path(doubt.object()), options.check.verify_data, &mut findings));
    if outcome.lacking > 0 {
        findings.add(cluster::lacks(identity.target, outcome.lacking));
    }
    findings.extend(changes.lost_runs.iter().map(|lost| missing(&identity, lost)));
    report.take(findings);
    Ok(report)
}

fn cannot(words: impl Into<String>) -> FsckError {
    FsckError::new(FsckErrorKind::CannotRepair, words)
}

/// The data device alone, as there is no journal.
async fn data_alone(env: &Env, dir: &str, identity: &Identity) -> FsckResult<Media> {
    let path = part_path(env, dir, "data");
    let data = env.open_disk(&path, OpenDisk { read_only: true, ..OpenDisk::default() }).await?;
    let media = Media::of_disks(data.clone(), data, Vec::new());
    let mut findings = Findings::default();
    let ours = check::check_data_device(identity, &media, &mut Report::default(), &mut findings).await?;
    match findings.list.first() {
        Some(finding) if !ours || media.bytes(crate::Device::Data) < identity.data_bytes => {
            Err(cannot(format!("{path}: {}; nothing was changed", finding.what)))
        }
        _ if media.bytes(crate::Device::Data) < identity.data_bytes => {
            Err(cannot(format!("{path} is smaller than the target's data; nothing was changed")))
        }
        _ => Ok(media),
    }
}

/// The MDT to read files from. `None` for a store whose rows belong to no server.
async fn mdt(env: &Env, options: &RepairOptions, identity: &Identity) -> FsckResult<Option<Mdt>> {
    match (&options.mdt, identity.target.kind) {
        (_, TargetKind::Mdt) => Err(cannot(format!(
            "{} has lost its journal, and names that were made or changed since the last checkpoint are nowhere else: it \
             cannot be rebuilt. Nothing was changed. Bring the journal back, or restore the target from a copy; `forebay \
             format mdt --mirror` keeps two",
            identity.target
        ))),
        (Some(mdt), _) => Mdt::open(env, mdt, identity).await.map(Some),
        (None, _) if !options.check.rows => Ok(None),
        (None, _) => Err(cannot(format!(
            "{} has lost its journal; to make a new one fsck needs to know what the MDT knows of its files. Nothing was \
             changed: give the MDT's directory too, or that of the whole cluster",
            identity.target
        ))),
    }
}

/// What to write: the rows as one transaction of the next generation, and the anchor for it.
fn plan(env: &Env, identity: &Identity, traces: &Traces, base: &Base, rows: &Overlay) -> FsckResult<Plan> {
    let ring_bytes = (identity.journal_bytes - limits::RING_START) / SECTOR * SECTOR;
    let generation = identity.generation.checked_add(1).ok_or_else(|| cannot("generations are used up"))?;
    let incarnation = traces.incarnation.0.checked_add(limits::INCARNATIONS_UNSEEN);
    let incarnation =
        Incarnation(incarnation.filter(|n| *n < 1 << 24).ok_or_else(|| cannot("incarnations are used up"))?);
    let lsn = traces.named.next_multiple_of(SECTOR).saturating_add(ring_bytes);
    let begin = Checkpoint { lsn, incarnation, prev_sum: 0 };
    let owner = Owner { uuid: identity.uuid, generation, salt: env.random_u64() };
    let anchor = Anchor {
        generation,
        uuid: identity.uuid,
        seq: 1,
        salt: owner.salt,
        ring_bytes,
        incarnation,
        checkpoint: begin,
        durable: lsn,
        root: base.root,
        extra: base.extra.clone(),
    };
    let mut plan = Plan { records: Vec::new(), anchor };
    let end = plan.cut(&owner, begin, 1, ring_bytes, &payload_of(rows, incarnation));
    plan.anchor.durable = end;
    let used = end - lsn;
    if used + ring_bytes / 16 > ring_bytes {
        return Err(cannot(format!(
            "what the slabs tell takes {used} bytes in the journal, which has {ring_bytes}: too many for this version; \
             nothing was changed"
        )));
    }
    Ok(plan)
}

/// The payload marks all transnos of older incarnations as used, so no transno of the lost journal is assigned again.
fn payload_of(rows: &Overlay, incarnation: Incarnation) -> Vec<u8> {
    let last = Transno::new(Incarnation(incarnation.0 - 1), (1 << Transno::COUNTER_BITS) - 1);
    let steps = rows.iter().map(|(key, value)| value.as_ref().map_or(Step::Delete(key), |value| Step::Put(key, value)));
    payload::encode(&steps.chain([Step::Transno(last)]).collect::<Vec<_>>())
}

/// Writes the journal: first it clears the anchors, then it writes the records, then the anchor.
async fn write(env: &Env, dir: &str, identity: &Identity, plan: &Plan) -> FsckResult<()> {
    let journal = open_journal(env, dir, identity).await?;
    let blank = AlignedBuf::zeroed(limits::RING_START as usize);
    journal.write(0, vec![blank.freeze()]).await?;
    journal.flush().await?;
    plan.write(&Media::of_disks(journal.clone(), journal.clone(), vec![journal])).await
}

/// Opens the journal; creates it if it is in the target's own directory.
async fn open_journal(env: &Env, dir: &str, identity: &Identity) -> FsckResult<Disk> {
    let path = part_path(env, dir, "journal");
    let own = path == join(dir, "journal");
    let mut options = resolve_journal(env, &path, identity.uuid, OpenDisk::default()).await?;
    let make = OpenDisk { create_bytes: Some(identity.journal_bytes), prewrite: true, ..options };
    if own {
        options = make;
    }
    let disk = match env.open_disk(&path, options).await {
        // Our own file, but empty.
        Err(error) if own && error.kind == EnvErrorKind::InvalidInput => {
            env.remove_file(&path)?;
            env.open_disk(&path, make).await?
        }
        Err(error) if error.kind == EnvErrorKind::NotFound => {
            return Err(cannot(format!(
                "{path} does not exist: if its device is only away, bring it back; if the journal is lost, say where the \
                 new one is to be: `forebay fsck --repair --journal PATH {dir}`. Nothing was changed"
            )));
        }
        opened => opened?,
    };
    match disk.info().bytes < identity.journal_bytes {
        false => Ok(disk),
        true if own && disk.info().bytes > 0 => {
            drop(disk);
            env.remove_file(&path)?;
            Ok(env.open_disk(&path, make).await?)
        }
        true => Err(cannot(format!(
            "{path} has {} bytes, and the journal needs {}; nothing was changed",
            disk.info().bytes,
            identity.journal_bytes
        ))),
    }
}

fn tell(why: &str, base: &Base, outcome: &Outcome, findings: &mut Findings) {
    let from = if base.root.is_some() { "the last checkpoint" } else { "the beginning" };
    let words = format!(
        "{why}; a new journal was made from {from} and from what was written after it: {} objects, {} bytes of file data, \
         each block of which matches its sum. Modification times since then are lost",
        outcome.objects, outcome.found_bytes
    );
    findings.add(Finding { repaired: true, ..Finding::error(Kind::JournalLost, Place::Target, words) });
}

/// Adds one line to the list of what may be missing. `verified`: the preceding check has read all data.
fn list(doubt: &Doubt, path: Option<&str>, verified: bool, findings: &mut Findings) {
    let words = doubt.in_words() + &path.map_or(String::new(), |path| format!("; the file is {path}"));
    let place = Place::Row([&[crate::rows::space::OBJECT][..], &doubt.object().to_key()].concat());
    if matches!(doubt, Doubt::Rotten(..)) && !verified {
        findings.add(Finding::error(Kind::Data, place.clone(), words.clone()));
    }
    findings.add(Finding::info(Kind::MayBeMissing, place, words));
}

/// A missing run. It is unknown which files it changed, and where.
fn missing(identity: &Identity, lost: &LostRun) -> Finding {
    let bytes = lost.bytes.map_or("unknown".to_owned(), |bytes| bytes.to_string());
    let words = format!(
        "a run of slab {} cannot be read (bytes: {bytes}): either the target ended while it was written, or its header is damaged. \
         Files that were changed just then may show older bytes, or bytes that were removed",
        lost.slab
    );
    let place = Place::Device(crate::Device::Data, identity.device_offset(lost.slab, lost.at));
    Finding::info(Kind::MayBeMissing, place, words)
}
