//! Compares the checkpoint's slab snapshot with the table.

use std::collections::BTreeMap;

use bytes::BytesMut;
use forebay_proto::{Transno, crc::crc64};

use super::Pass;
use crate::{
    FsckResult,
    finding::{Device, Finding, Findings, Kind, Place},
    format::{
        Location,
        extent::Extent,
        snapshot::{Snapshot, decode_pieces},
    },
    table::{Source, check_place, place_of},
};

/// The slab snapshot, and the live bytes of each slab at the checkpoint.
pub(crate) struct SnapshotCheck {
    snapshot: Option<Snapshot>,
    /// The locations of its pieces.
    pub(crate) pieces: Vec<Location>,
    counted: Vec<u64>,
}

/// Reads the snapshot that the anchor names.
pub(crate) async fn load(pass: &Pass<'_>, findings: &mut Findings) -> FsckResult<SnapshotCheck> {
    let counted = vec![0; pass.identity.slab_count() as usize];
    let mut check = SnapshotCheck { snapshot: None, pieces: Vec::new(), counted };
    let anchor = &pass.journal.anchor;
    if anchor.root.is_none() {
        return Ok(check);
    }
    let at_anchor = || Place::Device(Device::Journal, anchor.device_offset());
    match decode_pieces(&anchor.extra) {
        Ok(pieces) => check.pieces = pieces,
        Err(error) => {
            findings.add(Finding::error(Kind::Snapshot, at_anchor(), error.what));
            return Ok(check);
        }
    }
    let Some(bytes) = read_pieces(pass, &check.pieces, findings).await? else { return Ok(check) };
    match Snapshot::decode(&bytes) {
        Ok(snapshot) if snapshot.slabs.len() == check.counted.len() => check.snapshot = Some(snapshot),
        Ok(snapshot) => {
            let finding = Finding::error(Kind::Snapshot, at_anchor(), "the list of slabs has a wrong length");
            findings.add(finding.with(check.counted.len(), snapshot.slabs.len()));
        }
        Err(error) => {
            let words = format!("the list of slabs cannot be understood: {error}");
            findings.add(Finding::error(Kind::Snapshot, at_anchor(), words));
        }
    }
    Ok(check)
}

async fn read_pieces(pass: &Pass<'_>, pieces: &[Location], findings: &mut Findings) -> FsckResult<Option<BytesMut>> {
    let source =
        Source { media: pass.media, identity: pass.identity, slabs: pass.slabs, overlay: pass.overlay(), root: None };
    let mut bytes = BytesMut::new();
    // Version and counts, four bytes for each free slab, 17 for each slab.
    let longest = 25 + 21 * u64::from(pass.identity.slab_count());
    for piece in pieces {
        let wrong = |words: String| Finding::error(Kind::Snapshot, place_of(pass.identity, piece), words);
        if bytes.len() as u64 + piece.bytes > longest {
            findings.add(
                wrong("the list of slabs is longer than it can be".into())
                    .with(longest, bytes.len() as u64 + piece.bytes),
            );
            return Ok(None);
        }
        if let Err(what) = check_place(&source, piece) {
            findings.add(wrong(format!("a piece of the list of slabs is misplaced: {what}")));
            return Ok(None);
        }
        let offset = pass.identity.device_offset(piece.slab, piece.at);
        match pass.media.read(Device::Data, offset, piece.bytes).await? {
            Err(words) => {
                findings.add(wrong(format!("a piece of the list of slabs cannot be read: {words}")));
                return Ok(None);
            }
            Ok(read) if crc64(&read) != piece.sum => {
                let finding = wrong("a piece of the list of slabs does not match its sum".into());
                findings.add(finding.with(format!("{:#x}", piece.sum), format!("{:#x}", crc64(&read))));
                return Ok(None);
            }
            Ok(read) => bytes.extend_from_slice(&read),
        }
    }
    Ok(Some(bytes))
}

impl SnapshotCheck {
    /// Highest transno of the checkpoint.
    pub(crate) fn transno(&self) -> Transno {
        self.snapshot.as_ref().map_or(Transno(0), |snapshot| snapshot.transno)
    }

    /// Counts a row of the checkpoint's table.
    pub(crate) fn count(&mut self, key: &[u8], value: &[u8]) {
        let Some(snapshot) = &self.snapshot else { return };
        let Ok(extent) = Extent::decode(key, value) else { return };
        let slab = extent.slab as usize;
        if snapshot.slabs.get(slab).is_some_and(|row| row.epoch == extent.epoch) {
            self.counted[slab] += extent.weight();
        }
    }

    /// Compares the counts.
    pub(crate) fn finish(&self, pass: &Pass<'_>, findings: &mut Findings) {
        let Some(snapshot) = &self.snapshot else { return };
        for (slab, (row, counted)) in (0..).zip(snapshot.slabs.iter().zip(&self.counted)) {
            if row.data_live != *counted {
                let place = Place::Device(Device::Data, pass.identity.device_offset(slab, 0));
                let words = format!("the checkpoint miscounts what lives in slab {slab}");
                findings.add(Finding::warning(Kind::SlabCount, place, words).with(counted, row.data_live));
            }
        }
        let mut listed = vec![false; snapshot.slabs.len()];
        for slab in &snapshot.free {
            match listed.get_mut(*slab as usize) {
                Some(listed) if !*listed => *listed = true,
                _ => {
                    let words = format!("slab {slab} is listed as free twice, or does not exist");
                    let place = Place::Device(Device::Journal, pass.journal.anchor.device_offset());
                    findings.add(Finding::error(Kind::Snapshot, place, words));
                }
            }
        }
    }

    /// Slabs that were free at the checkpoint, each with the epoch of its last opening.
    pub(crate) fn free(&self) -> BTreeMap<u32, u64> {
        let Some(snapshot) = &self.snapshot else { return BTreeMap::new() };
        let opening = |slab: &u32| Some((*slab, snapshot.slabs.get(*slab as usize)?.epoch));
        snapshot.free.iter().filter_map(opening).collect()
    }
}
