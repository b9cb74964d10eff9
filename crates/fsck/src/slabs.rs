//! Slabs: their headers, their runs, and a window of fragments to compare the table's rows with.
//!
//! Invariant: bounded memory: a window holds what fits [`limits::WINDOW_BYTES`], at least one slab.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use forebay_proto::Incarnation;

use crate::{
    FsckResult,
    finding::{Device, Finding, Kind, Place},
    format::{
        device::{self, Header, SlabHeader},
        identity::Identity,
        run::{self, Begin, Fragment, FragmentKind, RunHeader},
        word64,
    },
    limits::{self, SECTOR},
    media::Media,
};

/// What is at a slab's beginning.
pub(crate) type SlabState = Header<SlabHeader>;

/// The headers of all slabs.
pub(crate) struct Slabs {
    pub(crate) states: Vec<SlabState>,
}

/// The runs of some slabs, for comparison.
#[derive(Default)]
pub(crate) struct Window {
    /// The slabs in the window.
    pub(crate) slabs: Range<u32>,
    /// Fragments with payload, by slab and offset in it.
    fragments: BTreeMap<(u32, u32), Fragment>,
    bytes: usize,
}

/// Other results of a scan of slabs.
#[derive(Default)]
pub(crate) struct Survey {
    /// Highest durable lsn in runs of this generation.
    pub(crate) named: u64,
    /// Number of runs.
    pub(crate) runs: u64,
    pub(crate) findings: Vec<Finding>,
    /// If set, a header with a single wrong byte is corrected.
    pub(crate) mend: bool,
    /// Where runs are missing.
    pub(crate) lost_runs: Vec<LostRun>,
}

/// A gap between two runs, or behind the last one, where an unreadable run was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostRun {
    pub(crate) slab: u32,
    pub(crate) at: u64,
    /// Bytes up to the next run. `None`: it was the last run.
    pub(crate) bytes: Option<u64>,
}

impl Slabs {
    /// Reads all headers.
    pub(crate) async fn read(media: &Media, identity: &Identity) -> FsckResult<Self> {
        let mut states = Vec::new();
        for slab in 0..identity.slab_count() {
            let offset = identity.device_offset(slab, 0);
            let state = match media.read(Device::Data, offset, SECTOR).await? {
                Ok(sector) => device::decode_slab(&sector, identity.uuid),
                Err(_) => Header::Damaged("the device cannot read it"),
            };
            states.push(match state {
                Header::Intact(header) if header.slab != slab => Header::Damaged("it is another slab's"),
                state => state,
            });
        }
        Ok(Self { states })
    }

    /// The slab's epoch, if its header is intact.
    pub(crate) fn epoch(&self, slab: u32) -> Option<u64> {
        match self.states.get(slab as usize)? {
            Header::Intact(header) => Some(header.epoch),
            _ => None,
        }
    }

    /// True if the slab still has what was written in `epoch`. `None` if its header, which would tell, is damaged.
    pub(crate) fn is_of(&self, slab: u32, epoch: u64) -> Option<bool> {
        match self.states.get(slab as usize) {
            Some(Header::Intact(header)) => Some(header.epoch == epoch),
            Some(Header::Damaged(_)) => None,
            _ => Some(false),
        }
    }

    /// The highest incarnation that opened a slab.
    pub(crate) fn highest_incarnation(&self) -> Incarnation {
        let opened = self.states.iter().filter_map(|state| match state {
            Header::Intact(header) => Some(header.incarnation),
            _ => None,
        });
        opened.max().unwrap_or_default()
    }

    /// Number of slabs with an intact header.
    pub(crate) fn opened(&self) -> u64 {
        self.states.iter().filter(|state| matches!(state, Header::Intact(_))).count() as u64
    }

    /// Checks that epochs are unique.
    pub(crate) fn check_epochs(&self, identity: &Identity) -> Vec<Finding> {
        let mut by_epoch: BTreeMap<u64, u32> = BTreeMap::new();
        let mut findings = Vec::new();
        for (slab, state) in (0..).zip(&self.states) {
            let Header::Intact(header) = state else { continue };
            if let Some(other) = by_epoch.insert(header.epoch, slab) {
                let words = format!("slabs {other} and {slab} have the same epoch {}", header.epoch);
                let place = Place::Device(Device::Data, identity.device_offset(slab, 0));
                findings.push(Finding::error(Kind::SlabEpoch, place, words));
            }
        }
        findings
    }
}

impl Window {
    /// Fills a window from slab `from` on, as far as memory allows.
    pub(crate) async fn fill(
        media: &Media,
        identity: &Identity,
        slabs: &Slabs,
        from: u32,
        survey: &mut Survey,
    ) -> FsckResult<Self> {
        let mut window = Self { slabs: from..from, ..Self::default() };
        while window.slabs.end < identity.slab_count() && window.bytes < limits::WINDOW_BYTES {
            let slab = window.slabs.end;
            window.slabs.end += 1;
            let state = slabs.states[slab as usize];
            if !matches!(state, Header::Intact(_) | Header::Damaged(_)) {
                continue;
            }
            let runs = scan_slab(media, identity, slab, state, survey).await?;
            let (strays, runs): (Vec<_>, Vec<_>) = runs.into_iter().partition(|found| found.is_stray);
            check_chain(identity, slab, state, &runs, survey);
            window.take(slab, runs, strays);
        }
        Ok(window)
    }

    fn take(&mut self, slab: u32, runs: Vec<FoundRun>, strays: Vec<FoundRun>) {
        let places: Vec<Range<u64>> = runs.iter().map(FoundRun::range).collect();
        for FoundRun { at, run, is_stray } in runs.into_iter().chain(strays) {
            for fragment in run.fragments.into_iter().filter(|f| f.payload_bytes() > 0) {
                let begin = at + u64::from(fragment.payload_at);
                let end = begin + fragment.payload_bytes();
                // A misplaced run's fragments do not count where they overlap those of other runs.
                if is_stray && places.iter().any(|place| begin < place.end && place.start < end) {
                    continue;
                }
                self.bytes += 160 + 8 * fragment.sums.len();
                self.fragments.insert((slab, begin as u32), fragment);
            }
        }
    }

    /// The fragment that holds byte `at` of a slab, and the offset of its payload.
    pub(crate) fn fragment_at(&self, slab: u32, at: u64) -> Option<(u64, &Fragment)> {
        let at = u32::try_from(at).ok()?;
        let ((_, begin), fragment) = self.fragments.range((slab, 0)..=(slab, at)).next_back()?;
        (u64::from(at - begin) < fragment.payload_bytes()).then_some((u64::from(*begin), fragment))
    }

    /// True if exactly this page or snapshot piece is there.
    pub(crate) fn holds(&self, slab: u32, at: u64, kind: FragmentKind, page: u64, bytes: u64, sum: u64) -> bool {
        let found = u32::try_from(at).ok().and_then(|at| self.fragments.get(&(slab, at)));
        found.is_some_and(|f| f.kind == kind && f.fid.low == page && f.length == bytes && f.sums == [sum])
    }
}

/// A run and its offset in the slab.
pub(crate) struct FoundRun {
    pub(crate) at: u64,
    pub(crate) run: RunHeader,
    /// A misplaced run, written over another one: its header is right, except for how far it extends here.
    pub(crate) is_stray: bool,
}

impl FoundRun {
    fn range(&self) -> Range<u64> {
        self.at..self.at + self.run.total_bytes
    }
}

/// The sector behind the last run.
#[derive(Default)]
struct Tail {
    /// It is not all zeros.
    written: bool,
    /// It is the damaged header of a run of this epoch.
    damaged: bool,
}

/// The runs of a slab's current epoch. Damaged parts are skipped sector by sector.
pub(crate) async fn scan_slab(
    media: &Media,
    identity: &Identity,
    slab: u32,
    state: SlabState,
    survey: &mut Survey,
) -> FsckResult<Vec<FoundRun>> {
    let epoch = if let Header::Intact(header) = state { Some(header.epoch) } else { None };
    let mut reader = SlabReader { media, identity, slab, at: 0, bytes: Bytes::new(), unreadable: 0 };
    let mut runs: Vec<FoundRun> = Vec::new();
    let (mut at, mut end) = (SECTOR, SECTOR);
    // The sector behind the last run, and whether the slab has anything of an older epoch.
    let (mut tail, mut used_before) = (Tail::default(), false);
    while at < identity.slab_bytes {
        let mut sector = reader.bytes(at, SECTOR).await?;
        if at == end {
            tail = Tail { written: sector.iter().any(|byte| *byte != 0), damaged: false };
        }
        if survey.mend
            && at == end
            && let Some(mended) = run::mended(&sector, identity.uuid)
        {
            sector = mended;
        }
        let Begin::Header(bytes) = run::peek(&sector, identity.uuid) else {
            at += SECTOR;
            continue;
        };
        let ours = epoch.is_none_or(|epoch| word64(&sector, 40) == epoch);
        let fits = at + bytes as u64 <= identity.slab_bytes;
        used_before |= !ours;
        let decoded = match ours && fits {
            true if bytes as u64 == SECTOR => run::decode(&sector),
            true => {
                let header = reader.bytes(at, bytes as u64).await?;
                let mended = if survey.mend { run::mended(&header, identity.uuid) } else { None };
                run::decode(&mended.unwrap_or(header))
            }
            false => {
                at += SECTOR;
                continue;
            }
        };
        match decoded {
            Ok(run) if run.slab == slab && run.total_bytes <= identity.slab_bytes - at => {
                let last = runs.iter().rev().find(|found| !found.is_stray);
                let is_stray = !run::belongs(last.map(|found| &found.run), &run, (at - end) / SECTOR);
                let bytes = run.total_bytes;
                if is_stray {
                    let place = Place::Device(Device::Data, identity.device_offset(slab, at));
                    let words = format!("run {} of slab {slab} lies at the place of another", run.number);
                    survey.findings.push(Finding::info(Kind::Mismatch, place, words));
                }
                if !is_stray && at > end && epoch.is_some() {
                    survey.lost_runs.push(LostRun { slab, at: end, bytes: Some(at - end) });
                }
                runs.push(FoundRun { at, run, is_stray });
                at += if is_stray { SECTOR } else { bytes };
                end = if is_stray { end } else { at };
            }
            other => {
                tail.damaged |= at == end;
                let what = other.err().map_or("it is another slab's", |error| error.what);
                let place = Place::Device(Device::Data, identity.device_offset(slab, at));
                survey.findings.push(Finding::info(Kind::TornRun, place, format!("a run's header is damaged: {what}")));
                at += SECTOR;
            }
        }
    }
    if epoch.is_some() && end < identity.slab_bytes && (tail.damaged || tail.written && !used_before) {
        survey.lost_runs.push(LostRun { slab, at: end, bytes: None });
    }
    if reader.unreadable > 0 {
        let place = Place::Device(Device::Data, identity.device_offset(slab, 0));
        let words = format!("{} sectors of slab {slab} cannot be read", reader.unreadable);
        survey.findings.push(Finding::warning(Kind::Unreadable, place, words));
    }
    if epoch.is_none() {
        // Without a slab header the newest epoch among its runs is the slab's.
        let newest = runs.iter().map(|found| found.run.epoch).max();
        runs.retain(|found| Some(found.run.epoch) == newest);
    }
    let ours = runs.iter().map(|found| &found.run).filter(|run| run.generation == identity.generation);
    survey.named = ours.map(|run| run.durable_lsn).fold(survey.named, u64::max);
    survey.runs += runs.len() as u64;
    Ok(runs)
}

/// Each run names the previous one. Missing runs may be due to a crash.
fn check_chain(identity: &Identity, slab: u32, state: SlabState, runs: &[FoundRun], survey: &mut Survey) {
    let mut before = if let Header::Intact(header) = state { Some((u64::from(u32::MAX), header.sum)) } else { None };
    for FoundRun { at, run, .. } in runs {
        let follows = before.filter(|(number, _)| (number + 1) as u32 == run.number);
        if let Some((_, sum)) = follows.filter(|(_, sum)| *sum != run.prev_sum) {
            let place = Place::Device(Device::Data, identity.device_offset(slab, *at));
            let words = format!("run {} of slab {slab} names another run before it", run.number);
            let expected = format!("{sum:#x}");
            let finding = Finding::error(Kind::Mismatch, place, words);
            survey.findings.push(finding.with(expected, format!("{:#x}", run.prev_sum)));
        }
        before = Some((u64::from(run.number), run.sum));
    }
}

/// Reads a slab piece by piece.
struct SlabReader<'a> {
    media: &'a Media,
    identity: &'a Identity,
    slab: u32,
    at: u64,
    bytes: Bytes,
    unreadable: usize,
}

impl SlabReader<'_> {
    /// Whole sectors of the slab, up to its end. Unreadable sectors are zeros.
    async fn bytes(&mut self, at: u64, length: u64) -> FsckResult<Bytes> {
        let end = self.at + self.bytes.len() as u64;
        if at < self.at || at + length > end {
            let want = limits::SLAB_READ_BYTES.max(length).min(self.identity.slab_bytes - at);
            let offset = self.identity.device_offset(self.slab, at);
            let (bytes, bad) = self.media.read_around(Device::Data, offset, want).await?;
            self.unreadable += bad.len();
            (self.at, self.bytes) = (at, bytes);
        }
        let from = (at - self.at) as usize;
        Ok(self.bytes.slice(from..from + length as usize))
    }
}
