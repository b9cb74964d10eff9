//! The two copies of a mirrored target: which of them are current, and how they differ.
//!
//! Each copy is checked separately, like any target. Damage of only one copy is not damage of the target.
//!
//! Invariant: a repair writes to every current copy; otherwise only one of them would be repaired.

use forebay_env::{Disk, Env, EnvErrorKind, FileLock, OpenDisk};

use crate::{
    FsckError, FsckErrorKind, FsckResult, Report,
    examined::Examined,
    finding::{Device, Finding, Findings, Kind, Place, Severity},
    format::{
        identity::Identity,
        label::{self, Label, Standing},
    },
    limits::SECTOR,
    media::{Media, join, part_path, resolve_journal, take_lock},
};

/// The location of one copy of a part.
struct Spot {
    path: String,
    /// The copy with its label, or why there is none.
    found: Result<(Disk, Label), String>,
}

/// Both copies of both parts.
pub(crate) struct Halves {
    data: [Spot; 2],
    journal: [Spot; 2],
    pub(crate) dirs: [String; 2],
    locks: Vec<FileLock>,
}

impl Halves {
    /// Opens the existing copies and takes the locks of both directories.
    pub(crate) async fn open(env: &Env, dir: &str, writable: bool, identity: &Identity) -> FsckResult<Self> {
        let mut locks = Vec::from_iter(take_lock(env, dir, writable)?);
        let other = match env.read_file(&join(dir, "mirror.path")) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
            Err(error) => {
                let words = format!("{dir} does not say where its other copy is: {}", error.message);
                return Err(FsckError::new(FsckErrorKind::Io, words));
            }
        };
        match take_lock(env, &other, writable) {
            Ok(lock) => locks.extend(lock),
            Err(error) if error.kind == FsckErrorKind::InUse => return Err(error),
            // The directory is missing, and so are its copies.
            Err(_) => {}
        }
        let dirs = [dir.to_owned(), other];
        let mut spots = Vec::new();
        for (part, bytes) in [("data", identity.data_bytes), ("journal", identity.journal_bytes)] {
            for dir in &dirs {
                let path = part_path(env, dir, part);
                let found = look(env, &path, part, bytes, identity, writable).await;
                spots.push(Spot { path, found });
            }
        }
        let mut next = || spots.remove(0);
        let (data, journal) = ([next(), next()], [next(), next()]);
        Ok(Self { data, journal, dirs, locks })
    }

    /// The views to check: one, or two that differ in at least one device. Empty if nothing can be checked.
    pub(crate) fn views(&self) -> Vec<Media> {
        let (data, journal) = (current(&self.data), current(&self.journal));
        let count = if data.is_empty() || journal.is_empty() { 0 } else { data.len().max(journal.len()) };
        let disk = |spots: &[Spot; 2], which: usize| spots[which].found.as_ref().ok().map(|(disk, _)| disk.clone());
        let view = |number: usize| {
            let (data_at, journal_at) = (data[number.min(data.len() - 1)], journal[number.min(journal.len() - 1)]);
            let journals = journal.iter().filter_map(|which| disk(&self.journal, *which)).collect();
            Some(Media::of_disks(disk(&self.data, data_at)?, disk(&self.journal, journal_at)?, journals))
        };
        (0..count).filter_map(view).collect()
    }

    /// The locks, for the caller that continues with the devices.
    pub(crate) fn into_locks(self) -> Vec<FileLock> {
        self.locks
    }

    /// Adds the findings about the copies themselves.
    pub(crate) fn findings(&self, findings: &mut Findings) {
        for (device, spots) in [(Device::Data, &self.data), (Device::Journal, &self.journal)] {
            let place = || Place::Device(device, 0);
            let current = current(spots);
            if went_apart(spots) {
                let words = "both copies went on alone, each without the other: they hold different bytes";
                findings.add(Finding::error(Kind::Mirror, place(), words));
                continue;
            }
            for (number, spot) in spots.iter().enumerate().filter(|(number, _)| !current.contains(number)) {
                let words = match &spot.found {
                    Err(words) => format!("{} is no copy: {words}", spot.path),
                    Ok((_, label)) => format!("{} does not hold everything: {}", spot.path, describe(label.standing)),
                };
                let alone = spots[1 - number].found.as_ref().is_ok_and(|(_, l)| l.mate_standing == Standing::Member);
                let alone = if alone { "; the other one cannot know whether it was left behind" } else { "" };
                findings.add(Finding::warning(Kind::Mirror, place(), format!("{words}{alone}")));
            }
        }
    }
}

fn describe(standing: Standing) -> &'static str {
    match standing {
        Standing::Member => "the other one went on without it",
        Standing::Syncing => "it is being filled",
        Standing::New => "it is new",
        Standing::Out => "it was left behind",
    }
}

fn went_apart(spots: &[Spot; 2]) -> bool {
    let alone = |spot: &Spot| {
        spot.found.as_ref().is_ok_and(|(_, l)| l.standing == Standing::Member && l.mate_standing == Standing::Out)
    };
    spots.iter().all(alone)
}

/// The current copies according to their labels. If the copies diverged, only the first.
fn current(spots: &[Spot; 2]) -> Vec<usize> {
    let label = |which: usize| spots[which].found.as_ref().ok().map(|(_, label)| *label);
    let holds_all = |which: usize| label(which).is_some_and(|label| label.standing == Standing::Member);
    let behind = |which: usize| match (label(which), label(1 - which)) {
        // The later one continued without this one, or replaced it.
        (Some(own), Some(other)) => other.standing == Standing::Member && other.epoch > own.epoch,
        _ => false,
    };
    let current: Vec<usize> = (0..2).filter(|which| holds_all(*which) && !behind(*which)).collect();
    if went_apart(spots) { current.into_iter().take(1).collect() } else { current }
}

async fn look(
    env: &Env,
    path: &str,
    part: &str,
    bytes: u64,
    identity: &Identity,
    writable: bool,
) -> Result<(Disk, Label), String> {
    let mut options = OpenDisk { read_only: !writable, ..OpenDisk::default() };
    if part == "journal" {
        options = resolve_journal(env, path, identity.uuid, options).await.map_err(|error| error.message)?;
    }
    let disk = env.open_disk(path, options).await.map_err(|error| match error.kind {
        EnvErrorKind::NotFound => "it does not exist".to_owned(),
        _ => error.message,
    })?;
    if disk.info().bytes < bytes.saturating_add(2 * SECTOR) {
        return Err("it is too short".into());
    }
    let sectors = disk.read(bytes, 2 * SECTOR as usize).await.map_err(|error| error.message)?;
    let number = if part == "data" { 1 } else { 2 };
    match label::decode(&sectors, bytes) {
        None => Err("it has no intact label".into()),
        Some(label) if label.target != identity.uuid || label.part != number => {
            Err("it is of another target or part".into())
        }
        Some(label) => Ok((disk, label)),
    }
}

/// Merges the reports of two views: damage that only one copy has becomes a warning.
pub(crate) fn together(mut views: Vec<Examined>, findings: &mut Findings) -> Option<Examined> {
    let errors = |examined: &Examined| examined.report.count(Severity::Error);
    if views.len() < 2 {
        return views.pop();
    }
    let (second, first) = (views.pop()?, views.pop()?);
    let (mut main, other) = if errors(&first) <= errors(&second) { (first, second) } else { (second, first) };
    compare_ends(&main, &other, findings);
    let has = |report: &Report, finding: &Finding| {
        report.findings.iter().any(|f| (f.kind, &f.place, &f.what) == (finding.kind, &finding.place, &finding.what))
    };
    for finding in other.report.findings.iter().filter(|f| f.severity == Severity::Error) {
        if !has(&main.report, finding) {
            let words = format!("in one copy only: {}: {}", finding.kind, finding.what);
            findings.add(Finding::warning(Kind::Mirror, finding.place.clone(), words));
        }
    }
    let only_here: Vec<usize> =
        main.report.findings.iter().enumerate().filter(|(_, f)| !has(&other.report, f)).map(|(n, _)| n).collect();
    main.report.soften(&only_here);
    Some(main)
}

/// After a crash one copy may end later than the other; after a clean stop neither does.
fn compare_ends(main: &Examined, other: &Examined, findings: &mut Findings) {
    let (Some(a), Some(b)) = (&main.journal, &other.journal) else { return };
    let end = |view: &crate::journal::JournalView| (view.anchor.seq, view.cut.lsn, view.transno);
    if end(a) == end(b) {
        return;
    }
    let words = format!(
        "the copies end in different places: anchor {} and lsn {:#x}, anchor {} and lsn {:#x}",
        a.anchor.seq, a.cut.lsn, b.anchor.seq, b.cut.lsn
    );
    // After a crash during the last record of a clean stop only one copy may have that record.
    let severity = if main.report.clean_stop && other.report.clean_stop { Severity::Error } else { Severity::Info };
    findings.add(Finding::new(severity, Kind::Mirror, Place::Device(Device::Journal, 0), words));
}
