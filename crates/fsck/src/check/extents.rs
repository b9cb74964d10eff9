//! Compares extents and pages with the runs that hold them.
//!
//! An extent must point into a written slab, to whole blocks of one data fragment. The fragment's descriptor must have
//! the same object, offset, write id, version, generation and sums. No two live items share bytes.

use std::collections::BTreeMap;

use forebay_proto::{Fid, Transno, crc, limits::BLOCK_BYTES};

use super::{Pass, ost::ObjectEnd};
use crate::{
    FsckResult,
    finding::{Device, Finding, Findings, Kind, Place},
    format::{
        Location,
        extent::Extent,
        run::{Fragment, FragmentKind},
    },
    limits,
    report::Stats,
    slabs::Window,
    table::{LivePage, describe_epoch, place_of},
};

/// A range of a slab with live data.
struct Live {
    slab: u32,
    from: u64,
    to: u64,
    owner: Owner,
}

#[derive(Clone, Copy)]
enum Owner {
    Extent(Fid, u64),
    Page(u64),
    Snapshot,
}

/// The check of all extents and pages.
pub(crate) struct Extents {
    last_transno: Transno,
    ends: Vec<ObjectEnd>,
    last: Option<(Fid, u64)>,
    live: Vec<Live>,
    /// Epochs of the slabs that were free at the checkpoint.
    free: BTreeMap<u32, u64>,
}

impl Extents {
    pub(crate) fn new(last_transno: Transno, free: BTreeMap<u32, u64>) -> Self {
        Self { last_transno, ends: Vec::new(), last: None, live: Vec::new(), free }
    }

    /// Starts a pass. The pieces of the slab snapshot are live, too.
    pub(crate) fn begin(
        &mut self,
        pass: &Pass<'_>,
        window: &Window,
        pieces: &[Location],
        first: bool,
        findings: &mut Findings,
    ) {
        self.last = None;
        let mut offset = 0;
        for piece in pieces {
            if window.slabs.contains(&piece.slab) {
                if !window.holds(piece.slab, piece.at, FragmentKind::Root, 0, piece.bytes, piece.sum) {
                    let words = format!("no run holds the piece at {offset} of the list of slabs");
                    findings.add(Finding::error(Kind::Mismatch, place_of(pass.identity, piece), words));
                }
                self.lives(piece.slab, piece.at, piece.bytes, Owner::Snapshot);
            }
            if first && pass.slabs.epoch(piece.slab) != Some(piece.epoch) {
                let words = "the list of slabs lies in a slab that is not in the opening it names";
                let finding = Finding::error(Kind::SlabHeader, place_of(pass.identity, piece), words);
                findings.add(finding.with(format!("epoch {}", piece.epoch), describe_epoch(pass.slabs, piece.slab)));
            }
            offset += piece.bytes;
        }
    }

    fn lives(&mut self, slab: u32, at: u64, bytes: u64, owner: Owner) {
        self.live.push(Live { slab, from: at, to: at.saturating_add(bytes), owner });
    }

    /// Checks a page of the table.
    pub(crate) fn page(&mut self, pass: &Pass<'_>, window: &Window, page: &LivePage, findings: &mut Findings) {
        let LivePage { page, location } = page;
        if !window.slabs.contains(&location.slab) {
            return;
        }
        if !window.holds(location.slab, location.at, FragmentKind::IndexPage, *page, location.bytes, location.sum) {
            let words = format!("no run holds page {page}");
            findings.add(Finding::error(Kind::Mismatch, place_of(pass.identity, location), words));
        }
        if self.free.get(&location.slab) == Some(&location.epoch) {
            let words = format!("page {page} lies in slab {}, which is listed as free", location.slab);
            findings.add(Finding::error(Kind::FreeSlab, place_of(pass.identity, location), words));
        }
        self.lives(location.slab, location.at, location.bytes, Owner::Page(*page));
    }

    /// Checks a row in the extents' key space.
    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn row(
        &mut self,
        pass: &Pass<'_>,
        window: &Window,
        first: bool,
        key: &[u8],
        value: &[u8],
        findings: &mut Findings,
        stats: &mut Stats,
    ) -> FsckResult<()> {
        let extent = match Extent::decode(key, value) {
            Ok(extent) => extent,
            Err(error) => {
                if first {
                    findings.add(Finding::error(Kind::Extent, Place::row(key), error.what));
                }
                return Ok(());
            }
        };
        if first {
            stats.extents += 1;
            stats.data_bytes += extent.length;
            self.check_alone(pass, key, &extent, findings);
        }
        if extent.is_lost() {
            return Ok(());
        }
        if window.slabs.contains(&extent.slab) {
            self.check_place(pass, window, key, &extent, findings);
            if pass.options.verify_data {
                verify(pass, key, &extent, findings, stats).await?;
            }
        }
        Ok(())
    }

    /// Checks that do not read the device.
    fn check_alone(&mut self, pass: &Pass<'_>, key: &[u8], extent: &Extent, findings: &mut Findings) {
        let place = || Place::row(key);
        if let Some((fid, end)) = self.last.filter(|(fid, end)| *fid == extent.fid && *end > extent.offset) {
            let words = format!("it overlaps the extent before it, of the same object {fid}");
            findings.add(
                Finding::error(Kind::ExtentOverlap, place(), words)
                    .with(format!("an offset from {end} on"), extent.offset),
            );
        }
        self.last = Some((extent.fid, extent.end()));
        match self.ends.last_mut() {
            Some(last) if last.fid == extent.fid => {
                last.end = last.end.max(extent.end());
                last.bytes = last.bytes.saturating_add(extent.length);
            }
            _ => self.ends.push(ObjectEnd { fid: extent.fid, end: extent.end(), bytes: extent.length }),
        }
        if extent.version > self.last_transno {
            let words = "an extent is ahead of the target's transnos";
            findings.add(Finding::error(Kind::Ahead, place(), words).with(self.last_transno, extent.version));
        }
        if extent.is_lost() {
            let words = format!("object bytes {} to {} are lost: reads of them fail", extent.offset, extent.end());
            findings.add(Finding::error(Kind::LostBytes, place(), words));
            return;
        }
        let cover = extent.cover();
        let within = extent.at >= limits::SECTOR && extent.at + (cover.end - cover.start) <= pass.identity.slab_bytes;
        if extent.slab >= pass.identity.slab_count() || !within {
            let words = format!("it points to byte {} of slab {}, which does not exist", extent.at, extent.slab);
            findings.add(Finding::error(Kind::ExtentPlace, place(), words));
        } else if pass.slabs.epoch(extent.slab) != Some(extent.epoch) {
            let words = format!("it points to slab {}, which is not in the opening it names", extent.slab);
            let finding = Finding::error(Kind::SlabHeader, place(), words);
            findings.add(finding.with(format!("epoch {}", extent.epoch), describe_epoch(pass.slabs, extent.slab)));
        }
    }

    /// Checks against the runs of its slab.
    fn check_place(&mut self, pass: &Pass<'_>, window: &Window, key: &[u8], extent: &Extent, findings: &mut Findings) {
        let owner = Owner::Extent(extent.fid, extent.offset);
        self.lives(extent.slab, extent.at + extent.lead, extent.length, owner);
        if self.free.get(&extent.slab) == Some(&extent.epoch) {
            let words = format!("it lies in slab {}, which is listed as free", extent.slab);
            findings.add(Finding::error(Kind::FreeSlab, Place::row(key), words));
        }
        let device = Place::Device(Device::Data, pass.identity.device_offset(extent.slab, extent.at));
        match window.fragment_at(extent.slab, extent.at) {
            None => {
                let words = format!("no run of slab {} holds its bytes, at {device}", extent.slab);
                findings.add(Finding::error(Kind::Mismatch, Place::row(key), words));
            }
            Some((begins_at, fragment)) => {
                if let Err((what, expected, got)) = compare(extent, begins_at, fragment) {
                    let words = format!("its run, at {device}, tells another {what}");
                    findings.add(Finding::error(Kind::Mismatch, Place::row(key), words).with(expected, got));
                }
            }
        }
    }

    /// Ends a pass: no live ranges may overlap.
    pub(crate) fn end(&mut self, pass: &Pass<'_>, findings: &mut Findings) {
        self.live.sort_unstable_by_key(|live| (live.slab, live.from, live.to));
        let mut furthest: Option<&Live> = None;
        for live in &self.live {
            let before = furthest.filter(|before| before.slab == live.slab);
            if let Some(before) = before.filter(|before| before.to > live.from) {
                let place = Place::Device(
                    Device::Data,
                    pass.identity.device_offset(live.slab.min(pass.identity.slab_count()), live.from),
                );
                let words = format!("{} and {} live in the same bytes", before.owner.words(), live.owner.words());
                findings.add(Finding::error(Kind::SharedBytes, place, words));
            }
            if before.is_none_or(|before| before.to < live.to) {
                furthest = Some(live);
            }
        }
        self.live.clear();
    }

    /// Where each object's extents end.
    pub(crate) fn ends(&self) -> &[ObjectEnd] {
        &self.ends
    }
}

impl Owner {
    fn words(self) -> String {
        match self {
            Self::Extent(fid, offset) => format!("the extent of {fid} at {offset}"),
            Self::Page(page) => format!("page {page}"),
            Self::Snapshot => "the list of slabs".into(),
        }
    }
}

/// The first difference, with the extent's and the fragment's value.
fn compare(extent: &Extent, begins_at: u64, fragment: &Fragment) -> Result<(), (&'static str, String, String)> {
    let differ = |what, a: String, b: String| if a == b { Ok(()) } else { Err((what, a, b)) };
    if fragment.kind != FragmentKind::Data {
        return differ("kind of fragment", "data".into(), format!("{:?}", fragment.kind));
    }
    differ("object", extent.fid.to_string(), fragment.fid.to_string())?;
    let cover = extent.cover();
    let starts_at = fragment.offset.saturating_add(extent.at - begins_at);
    differ("offset", cover.start.to_string(), starts_at.to_string())?;
    differ("write id", format!("{:?}", extent.write_id), format!("{:?}", fragment.write_id))?;
    differ("version", extent.version.to_string(), fragment.version.to_string())?;
    differ("layout generation", extent.generation.to_string(), fragment.generation.to_string())?;
    let end = fragment.offset.saturating_add(fragment.length);
    let edge = |at: u64, whole: u64| at == whole || at.is_multiple_of(BLOCK_BYTES);
    if cover.end > end || !edge(cover.start, fragment.offset) || !edge(cover.end, end) {
        return Err(("range", format!("{cover:?}"), format!("{:?}", fragment.offset..end)));
    }
    let skipped = crc::blocks(fragment.offset, cover.start - fragment.offset, BLOCK_BYTES).count();
    let sums = fragment.sums.get(skipped..skipped + extent.sums.len()).unwrap_or_default();
    differ("sum", format!("{:x?}", extent.sums), format!("{sums:x?}"))
}

/// Reads the extent's whole blocks and verifies their sums.
async fn verify(
    pass: &Pass<'_>,
    key: &[u8],
    extent: &Extent,
    findings: &mut Findings,
    stats: &mut Stats,
) -> FsckResult<()> {
    let cover = extent.cover();
    let offset = pass.identity.device_offset(extent.slab, extent.at);
    let bytes = match pass.media.read(Device::Data, offset, cover.end - cover.start).await? {
        Ok(bytes) => bytes,
        Err(words) => {
            let words = format!("its bytes, at data device offset {offset}, cannot be read: {words}");
            findings.add(Finding::error(Kind::Data, Place::row(key), words));
            return Ok(());
        }
    };
    for ((at, length), sum) in extent.blocks().zip(&extent.sums) {
        let from = (at - cover.start) as usize;
        let got = crc::block_sum(extent.fid, at, extent.write_id, &bytes[from..from + length as usize]);
        if got != *sum {
            let words = format!(
                "object bytes {at} to {}, at data device offset {}, do not match their sum",
                at + length,
                offset + from as u64
            );
            let finding = Finding::error(Kind::Data, Place::row(key), words);
            findings.add(finding.with(format!("{sum:#x}"), format!("{got:#x}")));
        }
        stats.verified_bytes += length;
    }
    Ok(())
}
