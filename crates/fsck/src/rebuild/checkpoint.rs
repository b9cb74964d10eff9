//! Finds the last checkpoint without the anchor that named it: its pages are still in the slabs.
//!
//! Invariant: a root is valid only if every page that it reaches is intact, and so is the slab snapshot written after
//! it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use bytes::{Bytes, BytesMut};
use forebay_proto::{Incarnation, Transno, Writer, crc::crc64};

use crate::{
    FsckResult,
    finding::{Device, Kind},
    format::{
        Location,
        device::Header,
        extent::{self, Extent},
        identity::Identity,
        run::FragmentKind,
        snapshot::Snapshot,
    },
    journal::Overlay,
    media::Media,
    slabs::{FoundRun, Slabs, Survey, scan_slab},
    table::{Source, Walk},
};

use super::changes::{Broken, Origin, is_there};

/// When something was written: the epoch of its slab, the number of its run, its offset in the slab.
type Order = (u64, u32, u64);

/// Traces of checkpoints that a scan of all slabs finds.
#[derive(Default)]
pub(super) struct Traces {
    roots: BTreeMap<Order, Location>,
    /// Pieces of slab snapshots: the offset in the snapshot, and the location on the device.
    pieces: BTreeMap<Order, (u64, Location)>,
    /// The highest durable lsn that any run names, of any generation.
    pub(super) named: u64,
    /// The highest incarnation in slabs and runs.
    pub(super) incarnation: Incarnation,
    pub(super) runs: u64,
}

/// The table to build on.
pub(super) struct Base {
    /// `None`: there is no complete checkpoint.
    pub(super) root: Option<Location>,
    /// The anchor's own bytes: the list of snapshot pieces.
    pub(super) extra: Vec<u8>,
    /// It contains every change up to this transno.
    pub(super) transno: Transno,
    /// Extents whose bytes have moved since, or are gone.
    pub(super) broken: Broken,
}

/// An object's rows at the checkpoint.
#[derive(Default)]
pub(super) struct Before {
    pub(super) row: Option<Bytes>,
    pub(super) extents: BTreeMap<u64, Extent>,
    /// Offsets of the extents whose bytes are elsewhere now, or nowhere.
    pub(super) moved: BTreeSet<u64>,
}

impl Traces {
    pub(super) async fn find(media: &Media, identity: &Identity, slabs: &Slabs) -> FsckResult<Self> {
        let mut traces = Self { incarnation: slabs.highest_incarnation(), ..Self::default() };
        for (slab, state) in (0..).zip(&slabs.states) {
            if !matches!(state, Header::Intact(_) | Header::Damaged(_)) {
                continue;
            }
            let mut survey = Survey { mend: true, ..Survey::default() };
            for FoundRun { at, run, .. } in scan_slab(media, identity, slab, *state, &mut survey).await? {
                traces.named = traces.named.max(run.durable_lsn);
                traces.incarnation = traces.incarnation.max(run.incarnation);
                traces.runs += 1;
                for fragment in &run.fragments {
                    let at = at + u64::from(fragment.payload_at);
                    let [sum] = fragment.sums[..] else { continue };
                    let location = Location { slab, epoch: run.epoch, at, bytes: fragment.length, sum };
                    let order = (run.epoch, run.number, at);
                    match fragment.kind {
                        FragmentKind::IndexPage if fragment.fid.low == 0 => {
                            traces.roots.insert(order, location);
                        }
                        FragmentKind::Root => {
                            traces.pieces.insert(order, (fragment.offset, location));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(traces)
    }

    /// The newest complete checkpoint.
    pub(super) async fn newest(&self, media: &Media, identity: &Identity, slabs: &Slabs) -> FsckResult<Base> {
        let mut until = Bound::Unbounded;
        for (order, root) in self.roots.iter().rev() {
            let pieces = self.pieces.range((Bound::Excluded(*order), until));
            // If two pieces have the same offset, the write of the first one failed.
            let pieces: BTreeMap<u64, Location> = pieces.map(|(_, (at, location))| (*at, *location)).collect();
            let pieces: Vec<Location> = pieces.into_values().collect();
            until = Bound::Excluded(*order);
            let Some(snapshot) = snapshot(media, identity, &pieces).await? else { continue };
            let Some(broken) = walk(media, identity, slabs, *root).await? else { continue };
            return Ok(Base { root: Some(*root), extra: list(&pieces), transno: snapshot.transno, broken });
        }
        // No checkpoint was ever completed, or it is damaged. The slabs then have all changes from the beginning on.
        Ok(Base { root: None, extra: Vec::new(), transno: Transno(0), broken: Broken::default() })
    }
}

/// The slab snapshot in these pieces, if it is complete.
async fn snapshot(media: &Media, identity: &Identity, pieces: &[Location]) -> FsckResult<Option<Snapshot>> {
    let longest = 25 + 21 * u64::from(identity.slab_count());
    if pieces.is_empty() || pieces.iter().map(|piece| piece.bytes).sum::<u64>() > longest {
        return Ok(None);
    }
    let mut bytes = BytesMut::new();
    for piece in pieces {
        match media.read(Device::Data, identity.device_offset(piece.slab, piece.at), piece.bytes).await? {
            Ok(read) if crc64(&read) == piece.sum => bytes.extend_from_slice(&read),
            _ => return Ok(None),
        }
    }
    let whole = Snapshot::decode(&bytes).ok();
    Ok(whole.filter(|snapshot| snapshot.slabs.len() == identity.slab_count() as usize))
}

/// Walks the whole table and returns the extents that point to something else now. `None` if a page is missing.
async fn walk(media: &Media, identity: &Identity, slabs: &Slabs, root: Location) -> FsckResult<Option<Broken>> {
    let overlay = Overlay::new();
    let source = Source { media, identity, slabs, overlay: &overlay, root: Some(root) };
    let mut walk = Walk::begin(&source).await?;
    let mut broken = Broken::default();
    while let Some(row) = walk.next().await? {
        if is_damaged(&walk) {
            return Ok(None);
        }
        let Some(value) = row.live.filter(|_| row.key.first() == Some(&extent::SPACE)) else { continue };
        let Ok(extent) = extent::Extent::decode(&row.key, &value) else { return Ok(None) };
        if !is_there((media, identity, slabs), &extent).await? {
            broken.insert(Origin::of(&extent));
        }
    }
    Ok((!is_damaged(&walk)).then_some(broken))
}

/// If only a slab's header is damaged, the page's own sum still proves it intact.
fn is_damaged(walk: &Walk<'_>) -> bool {
    walk.incomplete || walk.findings.iter().any(|finding| finding.kind != Kind::SlabHeader)
}

/// Encodes the anchor's own bytes: the locations of the pieces.
fn list(pieces: &[Location]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u8(1);
    w.u32(pieces.len() as u32);
    for piece in pieces {
        w.u32(piece.slab);
        w.u64(piece.epoch);
        w.u32(piece.at as u32);
        w.u32(piece.bytes as u32);
        w.u64(piece.sum);
    }
    w.into_vec()
}
