//! The rows of an OST's objects, as of the checkpoint and with what has happened since.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use bytes::Bytes;
use forebay_proto::{Fid, Transno};

use crate::{
    FsckResult,
    format::{extent, extent::Extent, identity::Identity},
    journal::Overlay,
    media::Media,
    rows::{fid_key, ost::ObjectRow, space},
    slabs::Slabs,
    table::{Source, Walk},
};

use super::{
    changes::{Change, Changes, Origin, Removal, is_there, is_whole},
    checkpoint::Base,
    inodes::Inodes,
};

/// What cannot be vouched for.
pub(super) enum Doubt {
    /// These bytes were being written when the target ended; they are not whole, and what was there before is.
    Torn(Fid, Range<u64>),
    /// These bytes are not what was written, in a slab whose header is damaged: they were dead already, or are lost.
    Damaged(Fid, Range<u64>),
    /// The file was open, and may be longer than its row says.
    Size(Fid),
}

/// The rows that change, and what may be missing.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) rows: Overlay,
    pub(super) doubts: Vec<Doubt>,
    pub(super) objects: u64,
    /// Bytes written since the checkpoint that are found again.
    pub(super) found_bytes: u64,
}

/// An object's rows as of the checkpoint.
#[derive(Default)]
struct Before {
    row: Option<Bytes>,
    extents: BTreeMap<u64, Extent>,
    /// Where those begin whose bytes lie elsewhere now, or nowhere.
    moved: BTreeSet<u64>,
}

/// The rows of all objects that are not as the checkpoint has them.
pub(super) async fn rows(
    (media, identity, slabs): (&Media, &Identity, &Slabs),
    base: &Base,
    changes: &Changes,
    inodes: &Inodes,
) -> FsckResult<Outcome> {
    let mut affected: BTreeSet<Fid> = changes.by_object.keys().copied().collect();
    affected.extend(base.broken.iter().map(Origin::fid));
    let mut before = before((media, identity, slabs), base, &affected, inodes, identity.target.index).await?;
    affected.extend(before.keys());
    let mut outcome = Outcome::default();
    for fid in affected {
        let before = before.remove(&fid).unwrap_or_default();
        let mut object = Object::of(fid, &before, slabs, changes, &mut outcome.doubts);
        for (version, changes) in changes.by_object.get(&fid).into_iter().flatten() {
            object.transno = object.transno.max(*version);
            for change in changes {
                match change {
                    Change::Removed(range, removal) => object.remove(range, *removal),
                    Change::Written(extent) if is_whole(media, identity, extent).await? => {
                        outcome.found_bytes += extent.length;
                        object.write(extent);
                    }
                    Change::Written(extent) => outcome.doubts.push(Doubt::Torn(fid, extent.offset..extent.end())),
                }
            }
        }
        outcome.objects += 1;
        object.finish(&before, inodes, identity.target.index, &mut outcome);
    }
    Ok(outcome)
}

/// What the checkpoint says of these objects, and of those whose truncate it does not know.
async fn before(
    (media, identity, slabs): (&Media, &Identity, &Slabs),
    base: &Base,
    affected: &BTreeSet<Fid>,
    inodes: &Inodes,
    ost: u32,
) -> FsckResult<BTreeMap<Fid, Before>> {
    let mut found: BTreeMap<Fid, Before> = BTreeMap::new();
    let overlay = Overlay::new();
    let source = Source { media, identity, slabs, overlay: &overlay, root: base.root };
    let mut walk = Walk::begin(&source).await?;
    while let Some(row) = walk.next().await? {
        let Some(value) = row.live else { continue };
        if let Ok(extent) = Extent::decode(&row.key, &value) {
            if affected.contains(&extent.fid) {
                let object = found.entry(extent.fid).or_default();
                if !is_there((media, identity, slabs), &extent).await? {
                    object.moved.insert(extent.offset);
                }
                object.extents.insert(extent.offset, extent);
            }
        } else if let Some(fid) = fid_key(&row.key).filter(|_| row.key[0] == space::OBJECT) {
            let is_stale = || is_behind(&value, fid, inodes, ost);
            if affected.contains(&fid) || is_stale() {
                found.entry(fid).or_default().row = Some(value);
            }
        }
    }
    // Extents come before objects: of an object whose row alone is stale none were kept.
    Ok(found)
}

/// A truncate or a size that the MDT knows of has not reached the row.
fn is_behind(value: &[u8], fid: Fid, inodes: &Inodes, ost: u32) -> bool {
    let (Ok(row), Some(known)) = (ObjectRow::decode(value), inodes.of(fid)) else { return false };
    let epoch = inodes.epoch(known).unwrap_or(row.truncate_epoch);
    epoch > row.truncate_epoch || known.home == ost && epoch == row.truncate_epoch && known.size > row.file_bytes
}

/// An object while its changes are applied.
struct Object {
    fid: Fid,
    /// It is to have a row.
    exists: bool,
    destroyed: bool,
    bytes: u64,
    transno: Transno,
    extents: BTreeMap<u64, Extent>,
}

impl Object {
    /// As of the checkpoint, with its bytes where they lie now.
    fn of(fid: Fid, before: &Before, slabs: &Slabs, changes: &Changes, doubts: &mut Vec<Doubt>) -> Self {
        let row = before.row.as_ref().and_then(|value| ObjectRow::decode(value).ok());
        let mut object = Self {
            fid,
            exists: row.is_some(),
            destroyed: false,
            bytes: row.as_ref().map_or(0, |row| row.object_bytes),
            transno: row.as_ref().map_or(Transno(0), |row| row.transno),
            extents: BTreeMap::new(),
        };
        for extent in before.extents.values() {
            if !before.moved.contains(&extent.offset) {
                object.lay(extent.clone());
                continue;
            }
            // What is found nowhere was dead when its slab was used again: nothing that lives is overwritten. Whether it was used
            // again a damaged header does not tell.
            let copies = changes.copies.get(&Origin::of(extent));
            if copies.is_none() && slabs.is_of(extent.slab, extent.epoch).is_none() {
                doubts.push(Doubt::Damaged(fid, extent.offset..extent.end()));
            }
            for copy in copies.into_iter().flatten() {
                if let Some(part) = copy.within(&(extent.offset..extent.end())) {
                    object.lay(part);
                }
            }
        }
        object
    }

    fn write(&mut self, extent: &Extent) {
        (self.exists, self.destroyed) = (true, false);
        self.bytes = self.bytes.max(extent.end());
        self.lay(extent.clone());
    }

    fn remove(&mut self, range: &Range<u64>, removal: Removal) {
        self.clear(range);
        match removal {
            Removal::Truncate => self.bytes = self.bytes.min(range.start),
            Removal::Punch => {}
            Removal::Destroy => (self.exists, self.destroyed, self.bytes) = (false, true, 0),
        }
    }

    /// Lays an extent over what is there.
    fn lay(&mut self, extent: Extent) {
        self.clear(&(extent.offset..extent.end()));
        self.extents.insert(extent.offset, extent);
    }

    fn clear(&mut self, range: &Range<u64>) {
        let first = self.extents.range(..range.start).next_back().map(|(at, _)| *at);
        let within = self.extents.range(range.clone()).map(|(at, _)| *at);
        let touched: Vec<u64> = first.into_iter().chain(within).collect();
        for at in touched {
            let Some(old) = self.extents.remove(&at) else { continue };
            for kept in [0..range.start, range.end..u64::MAX] {
                if let Some(part) = old.within(&kept) {
                    self.extents.insert(part.offset, part);
                }
            }
        }
    }

    /// Notes the rows that differ from those of the checkpoint.
    fn finish(self, before: &Before, inodes: &Inodes, ost: u32, outcome: &mut Outcome) {
        let kept = self.extents.values().map(|extent| (extent.key(), extent.encode()));
        let now: BTreeMap<Vec<u8>, Vec<u8>> = if self.destroyed { BTreeMap::new() } else { kept.collect() };
        for (offset, old) in &before.extents {
            let key = extent_key(self.fid, *offset);
            match now.get(&key) {
                None => {
                    outcome.rows.insert(key, None);
                }
                Some(value) if *value == old.encode() => {}
                Some(value) => {
                    outcome.rows.insert(key, Some(value.clone().into()));
                }
            }
        }
        let new = now.into_iter().filter(|(key, _)| {
            let offset = extent::parse_key(key).map_or(0, |(_, offset)| offset);
            !before.extents.contains_key(&offset)
        });
        outcome.rows.extend(new.map(|(key, value)| (key, Some(value.into()))));
        let key = [&[space::OBJECT][..], &self.fid.to_key()].concat();
        let value = self.exists.then(|| Bytes::from(self.row(before, inodes, ost, &mut outcome.doubts)));
        if value != before.row {
            outcome.rows.insert(key, value);
        }
    }

    fn row(&self, before: &Before, inodes: &Inodes, ost: u32, doubts: &mut Vec<Doubt>) -> Vec<u8> {
        let old = before.row.as_ref().and_then(|value| ObjectRow::decode(value).ok());
        let end = self.extents.values().next_back().map_or(0, Extent::end);
        let bytes = self.bytes.max(end);
        let (mut file_bytes, mut epoch) = old.as_ref().map_or((0, 0), |row| (row.file_bytes, row.truncate_epoch));
        if let Some(known) = inodes.of(self.fid) {
            if let Some(arrived) = inodes.epoch(known).filter(|arrived| *arrived > epoch) {
                (epoch, file_bytes) = (arrived, 0);
            }
            if known.home == ost {
                // A file is as long as the MDT knows, and as its bytes here.
                let told = if epoch == known.truncate_epoch { known.size } else { 0 };
                file_bytes = file_bytes.max(told).max(bytes);
                if known.striped && inodes.is_open(known) {
                    doubts.push(Doubt::Size(self.fid));
                }
            }
        }
        ObjectRow::rebuilt(before.row.as_deref(), [bytes, file_bytes, epoch], self.transno)
    }
}

fn extent_key(fid: Fid, offset: u64) -> Vec<u8> {
    [&[extent::SPACE][..], &fid.to_key(), &offset.to_be_bytes()].concat()
}
