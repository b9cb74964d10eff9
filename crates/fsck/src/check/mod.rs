//! Checks one target from its identity to its rows.
//!
//! Order: identity and headers tell which target the devices belong to. The runs in the slabs tell what was durable.
//! The journal tells where redo starts and ends. The table is walked once for each window of slabs that fits into
//! memory.

mod extents;
mod mdt;
mod ost;
mod snapshot;
mod target;

use bytes::Bytes;
use forebay_env::Env;
use forebay_proto::{TargetKind, Transno};

use crate::{
    CheckOptions, FsckError, FsckErrorKind, FsckResult, Report,
    examined::{Examined, KeyedFix},
    finding::{Device, Finding, Findings, Kind, Place},
    format::{
        device::{self, Header},
        extent,
        identity::{Identity, NoIdentity},
    },
    halves::{self, Halves},
    journal::{self, JournalView, Overlay},
    limits::SECTOR,
    lost::lost,
    media::{self, Media},
    report::Inventory,
    rows::space,
    slabs::{Slabs, Survey, Window},
    table::{Source, TableRow, Walk},
};

use extents::Extents;

/// Checks the target in `dir`.
pub(crate) async fn examine(env: &Env, dir: &str, options: &CheckOptions, writable: bool) -> FsckResult<Examined> {
    let identity_file = media::read_identity(env, dir)?;
    let mut findings = Findings::default();
    let mut examined = match read_identity(&identity_file, dir, &mut findings)? {
        None => Examined::new(dir, identity_file),
        Some(identity) if identity.is_mirrored() => {
            let halves = Halves::open(env, dir, writable, &identity).await?;
            halves.findings(&mut findings);
            let mut views = Vec::new();
            for media in halves.views() {
                views.push(examine_media(dir, &identity_file, &identity, media, options).await?);
            }
            let mut examined = halves::together(views, &mut findings).unwrap_or_else(|| {
                let words = "no copy holds everything: nothing can be checked";
                findings.add(Finding::error(Kind::Mirror, Place::Target, words));
                Examined { identity: Some(identity), ..Examined::new(dir, identity_file) }
            });
            examined.twin_dir = Some(halves.dirs[1].clone());
            if let Some(media) = &mut examined.media {
                media.keep(halves.into_locks());
            }
            examined
        }
        Some(identity) => match lost(env, dir).await? {
            Some(lost) => {
                let _lock = media::take_lock(env, dir, writable)?;
                findings.add(Finding::error(Kind::JournalLost, Place::Device(Device::Journal, 0), lost.why));
                let mut examined = Examined::new(dir, identity_file);
                examined.report.identity = Some((identity.cluster, identity.uuid, identity.target));
                examined.report.incomplete = true;
                examined
            }
            None => {
                let media = Media::open(env, dir, identity.uuid, writable).await?;
                examine_media(dir, &identity_file, &identity, media, options).await?
            }
        },
    };
    examined.report.take(findings);
    Ok(examined)
}

/// Checks the target on these devices.
async fn examine_media(
    dir: &str,
    identity_file: &[u8],
    identity: &Identity,
    media: Media,
    options: &CheckOptions,
) -> FsckResult<Examined> {
    let mut examined = Examined::new(dir, identity_file.to_vec());
    let mut findings = Findings::default();
    examined.report.identity = Some((identity.cluster, identity.uuid, identity.target));
    if media.bytes(Device::Data) < identity.data_bytes {
        let words = "the data device is smaller than the target";
        let finding = Finding::error(Kind::WrongDevice, Place::Device(Device::Data, 0), words);
        findings.add(finding.with(identity.data_bytes, media.bytes(Device::Data)));
    }
    // An absurd size in the identity must cost neither memory nor time: it is reported, and limited to the device's
    // size.
    let identity = Identity { data_bytes: identity.data_bytes.min(media.bytes(Device::Data)), ..*identity };
    check_target(&mut examined, &identity, &media, options, &mut findings).await?;
    (examined.identity, examined.media) = (Some(identity), Some(media));
    examined.report.take(findings);
    Ok(examined)
}

fn read_identity(bytes: &[u8], dir: &str, findings: &mut Findings) -> FsckResult<Option<Identity>> {
    match Identity::decode(bytes) {
        Ok(identity) => Ok(Some(identity)),
        Err(NoIdentity::Foreign) => {
            findings.add(Finding::error(Kind::Identity, Place::Identity, "it is not the file of a Forebay target"));
            Ok(None)
        }
        Err(NoIdentity::Damaged(what)) => {
            findings.add(Finding::error(Kind::Identity, Place::Identity, format!("it is damaged: {what}")));
            Ok(None)
        }
        Err(NoIdentity::Unsupported(what)) => {
            Err(FsckError::new(FsckErrorKind::Unsupported, format!("{dir} has {what}; use the release that wrote it")))
        }
    }
}

async fn check_target(
    examined: &mut Examined,
    identity: &Identity,
    media: &Media,
    options: &CheckOptions,
    findings: &mut Findings,
) -> FsckResult<()> {
    if !check_data_device(identity, media, &mut examined.report, findings).await? {
        return Ok(());
    }
    let slabs = Slabs::read(media, identity).await?;
    findings.extend(slabs.check_epochs(identity));
    let mut survey = Survey::default();
    let mut window = Window::fill(media, identity, &slabs, 0, &mut survey).await?;
    let whole = window.slabs.end == identity.slab_count();
    let mut from = window.slabs.end;
    while from < identity.slab_count() {
        from = Window::fill(media, identity, &slabs, from, &mut survey).await?.slabs.end;
    }
    let mut told = Vec::new();
    let journal = journal::read(media, identity, survey.named, &mut told).await?;
    note_foreign_journal(media, identity, &mut examined.report).await?;
    findings.extend(told);
    findings.extend(survey.findings);
    let stats = &mut examined.report.stats;
    (stats.slabs, stats.runs) = (slabs.opened(), survey.runs);
    if let Some(journal) = &journal {
        (stats.records, stats.transactions) = (journal.records, journal.transactions);
        examined.report.clean_stop = journal.clean;
        let pass = Pass { identity, media, slabs: &slabs, journal, options };
        let snapshot = snapshot::load(&pass, findings).await?;
        let mut checker = Checker::new(&pass, snapshot);
        checker.pass(&pass, &window, true, findings, &mut examined.report).await?;
        while !whole && window.slabs.end < identity.slab_count() {
            let mut again = Survey::default();
            window = Window::fill(media, identity, &slabs, window.slabs.end, &mut again).await?;
            checker.pass(&pass, &window, false, findings, &mut examined.report).await?;
        }
        examined.fixes = checker.finish(&pass, findings, &mut examined.report);
    } else {
        examined.report.incomplete = true;
    }
    (examined.slabs, examined.journal) = (Some(slabs), journal);
    Ok(())
}

/// True if the data device belongs to this target and can be scanned.
pub(crate) async fn check_data_device(
    identity: &Identity,
    media: &Media,
    report: &mut Report,
    findings: &mut Findings,
) -> FsckResult<bool> {
    let place = Place::Device(Device::Data, 0);
    let bytes = media.bytes(Device::Journal);
    if bytes < identity.journal_bytes {
        let words = "the journal's device is smaller than the target's journal";
        let place = Place::Device(Device::Journal, 0);
        findings.add(Finding::error(Kind::WrongDevice, place, words).with(identity.journal_bytes, bytes));
    }
    let sector = media.read(Device::Data, 0, SECTOR).await?;
    let header = sector.map_or(Header::Damaged("the device cannot read it"), |sector| device::decode_device(&sector));
    let header = match header {
        Header::Intact(header) => header,
        Header::Blank | Header::Foreign(_) => {
            findings.add(Finding::error(Kind::DeviceHeader, place, "the data device has no header"));
            return Ok(true);
        }
        Header::Damaged(what) => {
            let words = format!("the data device's header is damaged: {what}");
            findings.add(Finding::error(Kind::DeviceHeader, place, words));
            return Ok(true);
        }
    };
    if header.uuid != identity.uuid {
        report.foreign.push((Device::Data, header.uuid));
        report.incomplete = true;
        let words = format!("the data device is another target's, not {}'s", identity.target);
        findings.add(Finding::error(Kind::WrongDevice, place, words).with(identity.uuid, header.uuid));
        return Ok(false);
    }
    let divided = (header.slab_bytes, header.first_slab, header.slab_count);
    let expected = (identity.slab_bytes, identity.first_slab(), identity.slab_count());
    if divided != expected {
        let words = "the data device is divided otherwise than the identity says (slab bytes, first slab, slabs)";
        let finding = Finding::error(Kind::WrongDevice, place, words);
        findings.add(finding.with(format!("{expected:?}"), format!("{divided:?}")));
    }
    Ok(true)
}

/// Records the owner of the journal, if it is another target.
async fn note_foreign_journal(media: &Media, identity: &Identity, report: &mut Report) -> FsckResult<()> {
    use crate::format::anchor::{Slot, decode};
    for slot in 0..2 {
        let Ok(sector) = media.read(Device::Journal, slot * SECTOR, SECTOR).await? else { continue };
        if let Slot::Intact(anchor) = decode(&sector, slot)
            && anchor.uuid != identity.uuid
        {
            report.foreign.push((Device::Journal, anchor.uuid));
            return Ok(());
        }
    }
    Ok(())
}

/// What every pass over the table needs.
pub(crate) struct Pass<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) media: &'a Media,
    pub(crate) slabs: &'a Slabs,
    pub(crate) journal: &'a JournalView,
    pub(crate) options: &'a CheckOptions,
}

impl Pass<'_> {
    pub(crate) fn overlay(&self) -> &Overlay {
        &self.journal.overlay
    }
}

/// Collects the results of all passes.
struct Checker {
    snapshot: snapshot::SnapshotCheck,
    extents: Extents,
    target: target::TargetCheck,
    rows: Rows,
    last_transno: Transno,
    incomplete: bool,
}

/// The checks that depend on the target's kind.
enum Rows {
    Mdt(Box<mdt::MdtCheck>),
    Ost(ost::OstCheck),
}

impl Checker {
    fn new(pass: &Pass<'_>, snapshot: snapshot::SnapshotCheck) -> Self {
        let last_transno = snapshot.transno().max(pass.journal.transno);
        let rows = match pass.identity.target.kind {
            TargetKind::Mdt => Rows::Mdt(Box::default()),
            TargetKind::Ost => Rows::Ost(ost::OstCheck::default()),
        };
        let (extents, target) = (Extents::new(last_transno, snapshot.free()), target::TargetCheck::new(last_transno));
        Self { snapshot, extents, target, rows, last_transno, incomplete: false }
    }

    /// Walks the table once. The first pass checks the rows; each pass compares the extents in the window with the
    /// runs.
    async fn pass(
        &mut self,
        pass: &Pass<'_>,
        window: &Window,
        first: bool,
        findings: &mut Findings,
        report: &mut Report,
    ) -> FsckResult<()> {
        let source = Source {
            media: pass.media,
            identity: pass.identity,
            slabs: pass.slabs,
            overlay: pass.overlay(),
            root: pass.journal.anchor.root,
        };
        report.stats.passes += 1;
        let mut walk = Walk::begin(&source).await?;
        self.extents.begin(pass, window, &self.snapshot.pieces, first, findings);
        loop {
            let row = walk.next().await?;
            let pages = std::mem::take(&mut walk.pages);
            report.stats.pages += if first { pages.len() as u64 } else { 0 };
            pages.iter().for_each(|page| self.extents.page(pass, window, page, findings));
            let told = std::mem::take(&mut walk.findings);
            if first {
                findings.extend(told);
            }
            let Some(row) = row else { break };
            if row.key.first() == Some(&extent::SPACE) {
                self.extent_row(pass, window, first, &row, findings, report).await?;
            } else if first && let Some(value) = &row.live {
                report.stats.rows += 1;
                self.other_row(pass, &row.key, value, findings);
            }
        }
        self.incomplete |= walk.incomplete;
        self.extents.end(pass, findings);
        Ok(())
    }

    async fn extent_row(
        &mut self,
        pass: &Pass<'_>,
        window: &Window,
        first: bool,
        row: &TableRow,
        findings: &mut Findings,
        report: &mut Report,
    ) -> FsckResult<()> {
        if first && let Some(base) = &row.base {
            self.snapshot.count(&row.key, base);
        }
        let Some(value) = &row.live else { return Ok(()) };
        report.stats.rows += u64::from(first);
        self.extents.row(pass, window, first, &row.key, value, findings, &mut report.stats).await
    }

    fn other_row(&mut self, pass: &Pass<'_>, key: &[u8], value: &Bytes, findings: &mut Findings) {
        let kind = key.first().copied().unwrap_or(0);
        if kind >= space::SESSION && !pass.options.rows {
            return;
        }
        match (kind, &mut self.rows) {
            (space::BAD_SLAB, _) => {
                let slab = key.get(1..).and_then(|n| n.try_into().ok()).map(u32::from_be_bytes);
                if slab.is_none_or(|slab| slab >= pass.identity.slab_count()) {
                    findings.add(Finding::error(Kind::Row, Place::row(key), "it names no slab"));
                }
            }
            (space::SESSION..=space::FENCE, _) => self.target.row(pass, key, value, findings),
            (space::SUPERBLOCK..=space::MEMBER, Rows::Mdt(mdt)) => {
                mdt.row(key, value, self.last_transno, self.target.sessions(), findings);
            }
            (space::CAPABILITY_KEYS, Rows::Ost(_)) => {
                if let Err(error) = crate::rows::ost::check_capability_keys(key, value) {
                    findings.add(Finding::error(Kind::Row, Place::row(key), error.what));
                }
            }
            (space::OBJECT, Rows::Ost(ost)) => ost.row(key, value, self.last_transno, findings),
            _ => {
                let words = format!("rows of kind {kind:#04x} have no place in {}", pass.identity.target);
                findings.add(Finding::error(Kind::UnknownRow, Place::row(key), words));
            }
        }
    }

    /// Checks that need the whole table.
    fn finish(self, pass: &Pass<'_>, findings: &mut Findings, report: &mut Report) -> Vec<KeyedFix> {
        report.incomplete |= self.incomplete;
        if !self.incomplete {
            self.snapshot.finish(pass, findings);
        }
        if !pass.options.rows {
            return Vec::new();
        }
        match self.rows {
            Rows::Mdt(mdt) => {
                let (inventory, fixes) = mdt.finish(self.incomplete, findings, &mut report.stats);
                report.inventory = Inventory::Mdt(inventory);
                fixes
            }
            Rows::Ost(ost) => {
                report.stats.files = ost.count();
                let (objects, fixes) = ost.finish(self.extents.ends(), self.incomplete, findings);
                report.inventory = Inventory::Ost(objects);
                report.object_bytes = self.extents.ends().iter().map(|object| (object.fid, object.bytes)).collect();
                fixes
            }
        }
    }
}
