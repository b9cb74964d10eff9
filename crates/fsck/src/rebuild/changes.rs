//! Changes of file data after a checkpoint, from the runs: fragments and tombstones in the order of versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use forebay_proto::{Fid, Incarnation, Transno, crc};

use crate::{
    FsckResult,
    finding::Device,
    format::{
        device::Header,
        extent::Extent,
        identity::Identity,
        run::{Fragment, FragmentKind},
    },
    media::Media,
    slabs::{FoundRun, LostRun, Slabs, Survey, scan_slab},
};

/// The write that some bytes come from. It stays the same wherever the bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    fid: Fid,
    client: u64,
    sequence: u64,
    version: Transno,
}

/// Origins of extents that are not where the checkpoint says.
pub(super) type Broken = BTreeSet<Origin>;

/// A change of one object after the checkpoint.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// These bytes were written.
    Written(Extent),
    /// The bytes in this range were removed.
    Removed(Range<u64>, Removal),
}

/// How bytes were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    Truncate,
    Punch,
    Destroy,
}

/// All changes found in the slabs.
#[derive(Default)]
pub(super) struct Changes {
    /// By object, then by version. The order within a version is arbitrary.
    pub(super) by_object: BTreeMap<Fid, BTreeMap<Transno, Vec<Change>>>,
    /// Where bytes are that have moved since the checkpoint.
    pub(super) copies: BTreeMap<Origin, Vec<Extent>>,
    pub(super) highest: Transno,
    /// By incarnation: counter of the highest transno that any run knew to be durable when it was built.
    committed: BTreeMap<Incarnation, u64>,
    /// Where runs are missing that may be newer than the checkpoint.
    pub(super) lost_runs: Vec<LostRun>,
}

impl Origin {
    pub(super) fn of(extent: &Extent) -> Self {
        let Extent { fid, write_id, version, .. } = *extent;
        Self { fid, client: write_id.client, sequence: write_id.sequence, version }
    }

    pub(super) fn fid(&self) -> Fid {
        self.fid
    }
}

impl Changes {
    /// Scans all slabs for changes after the checkpoint, and for copies of moved bytes.
    pub(super) async fn find(
        media: &Media,
        identity: &Identity,
        slabs: &Slabs,
        after: Transno,
        broken: &Broken,
    ) -> FsckResult<Self> {
        let mut changes = Self::default();
        for (slab, state) in (0..).zip(&slabs.states) {
            if !matches!(state, Header::Intact(_) | Header::Damaged(_)) {
                continue;
            }
            let mut survey = Survey { mend: true, ..Survey::default() };
            let runs = scan_slab(media, identity, slab, *state, &mut survey).await?;
            changes.lost_runs.extend(survey.lost_runs.into_iter().filter(|lost| may_be_newer(lost, &runs, after)));
            for FoundRun { at, run, .. } in runs {
                let named = changes.committed.entry(run.incarnation).or_default();
                *named = (*named).max(run.committed.into());
                for fragment in run.fragments {
                    changes.take(slab, run.epoch, at, fragment, after, broken);
                }
            }
        }
        Ok(changes)
    }

    /// True if a later run knew that the change was committed: then it was complete on the device.
    pub(super) fn is_attested(&self, version: Transno) -> bool {
        self.committed.get(&version.incarnation()).is_some_and(|committed| version.counter() <= *committed)
    }

    fn take(&mut self, slab: u32, epoch: u64, run_at: u64, fragment: Fragment, after: Transno, broken: &Broken) {
        let (fid, version, offset) = (fragment.fid, fragment.version, fragment.offset);
        let end = offset.saturating_add(fragment.length);
        let change = match fragment.kind {
            FragmentKind::Data => {
                let at = run_at + u64::from(fragment.payload_at);
                let Some(extent) = extent_of(slab, epoch, at, fragment) else { return };
                let origin = Origin::of(&extent);
                if broken.contains(&origin) {
                    self.copies.entry(origin).or_default().push(extent.clone());
                }
                Change::Written(extent)
            }
            FragmentKind::Tombstone(2) => Change::Removed(offset..u64::MAX, Removal::Truncate),
            FragmentKind::Tombstone(3) => Change::Removed(offset..end, Removal::Punch),
            FragmentKind::Tombstone(_) => Change::Removed(0..u64::MAX, Removal::Destroy),
            FragmentKind::IndexPage | FragmentKind::Root => return,
        };
        self.highest = self.highest.max(version);
        if version > after {
            self.by_object.entry(fid).or_default().entry(version).or_default().push(change);
        }
    }
}

/// True if a missing run may have held changes after the checkpoint. False in a slab with index pages, or if a later
/// run there is older.
fn may_be_newer(lost: &LostRun, runs: &[FoundRun], after: Transno) -> bool {
    let is_index = |found: &FoundRun| {
        found.run.fragments.iter().any(|f| matches!(f.kind, FragmentKind::IndexPage | FragmentKind::Root))
    };
    let next = runs.iter().find(|found| !found.is_stray && found.at > lost.at);
    let newest = next.and_then(|found| found.run.fragments.iter().map(|fragment| fragment.version).max());
    !runs.iter().any(is_index) && newest.is_none_or(|newest| newest > after)
}

/// The extent of a whole fragment, if that is possible.
fn extent_of(slab: u32, epoch: u64, at: u64, fragment: Fragment) -> Option<Extent> {
    let Fragment { fid, offset, length, write_id, version, generation, sums, .. } = fragment;
    let extent = Extent { fid, offset, length, lead: 0, tail: 0, slab, epoch, at, write_id, version, generation, sums };
    // Decode it as every reader will.
    Extent::decode(&extent.key(), &extent.encode()).ok()
}

/// True if the extent's bytes are where it says. If the slab's header is damaged, the bytes themselves are checked.
pub(super) async fn is_there(
    (media, identity, slabs): (&Media, &Identity, &Slabs),
    extent: &Extent,
) -> FsckResult<bool> {
    match slabs.is_of(extent.slab, extent.epoch) {
        Some(is) => Ok(is),
        None => is_whole(media, identity, extent).await,
    }
}

/// True if all blocks of the extent's cover match their sums.
pub(super) async fn is_whole(media: &Media, identity: &Identity, extent: &Extent) -> FsckResult<bool> {
    Ok(parts(media, identity, extent).await?.iter().all(|(_, sound)| *sound))
}

/// Splits the extent into parts whose blocks match their sums and parts whose blocks do not.
pub(super) async fn parts(media: &Media, identity: &Identity, extent: &Extent) -> FsckResult<Vec<(Extent, bool)>> {
    let mut ranges: Vec<(Range<u64>, bool)> = Vec::new();
    let cover = extent.cover();
    let begins_at = identity.device_offset(extent.slab, extent.at);
    let whole = media.read(Device::Data, begins_at, cover.end - cover.start).await?;
    for ((at, length), sum) in extent.blocks().zip(&extent.sums) {
        let from = at - cover.start;
        let block = match &whole {
            Ok(bytes) => Ok(bytes.slice(from as usize..(from + length) as usize)),
            // An unreadable sector costs one block.
            Err(_) => media.read(Device::Data, begins_at + from, length).await?,
        };
        let sound = block.is_ok_and(|block| crc::block_sum(extent.fid, at, extent.write_id, &block) == *sum);
        match ranges.last_mut() {
            Some((range, last)) if *last == sound => range.end = at + length,
            _ => ranges.push((at..at + length, sound)),
        }
    }
    Ok(ranges.into_iter().filter_map(|(range, sound)| Some((extent.within(&range)?, sound))).collect())
}
