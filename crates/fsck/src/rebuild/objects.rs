//! The rows of an OST's objects: those of the checkpoint, with later changes applied.

use std::collections::{BTreeMap, BTreeSet};

use forebay_proto::Fid;

use crate::{
    FsckResult,
    format::extent::Extent,
    journal::Overlay,
    rows::{fid_key, ost::ObjectRow, space},
    table::{Source, Walk},
};

use super::{
    changes::{Changes, Origin, is_there},
    checkpoint::{Base, Before},
    inodes::Inodes,
    object::Object,
    outcome::{Doubt, Outcome},
    store::Store,
};

/// The rows of all objects that differ from the checkpoint, or that their files need changed.
pub(super) async fn rows(store: &Store<'_>, base: &Base, changes: &Changes, inodes: &Inodes) -> FsckResult<Outcome> {
    let ost = store.identity.target.index;
    let mut affected: BTreeSet<Fid> = changes.by_object.keys().copied().collect();
    affected.extend(base.broken.iter().map(Origin::fid));
    affected.extend(incomplete(store, base, inodes).await?);
    let mut before = before(store, base, &affected, inodes, ost).await?;
    affected.extend(before.keys());
    let mut outcome = Outcome::default();
    for fid in affected {
        let before = before.remove(&fid).unwrap_or_default();
        let mut object = Object::of(store, fid, &before, changes).await?;
        for (version, of_version) in changes.by_object.get(&fid).into_iter().flatten() {
            let attested = changes.is_attested(*version);
            outcome.found_bytes += object.apply(store, *version, of_version, attested).await?;
        }
        outcome.objects += 1;
        object.finish(&before, inodes, ost, &mut outcome);
    }
    if outcome.lacking > 0 {
        // The MDT does not know how many bytes a file has that a session could write to.
        let open: Vec<Doubt> = inodes.open_for_writing().map(Doubt::Size).collect();
        outcome.doubts.extend(open);
    }
    Ok(outcome)
}

/// Objects that lack bytes at the checkpoint which their files have.
async fn incomplete(store: &Store<'_>, base: &Base, inodes: &Inodes) -> FsckResult<BTreeSet<Fid>> {
    let mut missing: BTreeMap<Fid, u64> = inodes.dense().collect();
    let overlay = Overlay::new();
    let Store { media, identity, slabs } = *store;
    let source = Source { media, identity, slabs, overlay: &overlay, root: base.root };
    let mut walk = Walk::begin(&source).await?;
    while let Some(row) = walk.next().await? {
        let Some(extent) = row.live.and_then(|value| Extent::decode(&row.key, &value).ok()) else { continue };
        if let Some(left) = missing.get_mut(&extent.fid) {
            let end = extent.end().min(inodes.dense_bytes(extent.fid));
            *left = left.saturating_sub(end.saturating_sub(extent.offset));
        }
    }
    Ok(missing.into_iter().filter(|(_, left)| *left > 0).map(|(fid, _)| fid).collect())
}

/// The checkpoint's rows of these objects, and of those with a truncate that the checkpoint does not know.
async fn before(
    store: &Store<'_>,
    base: &Base,
    affected: &BTreeSet<Fid>,
    inodes: &Inodes,
    ost: u32,
) -> FsckResult<BTreeMap<Fid, Before>> {
    let mut found: BTreeMap<Fid, Before> = BTreeMap::new();
    let overlay = Overlay::new();
    let Store { media, identity, slabs } = *store;
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
    // Extents come before objects, so for an object whose row alone is stale no extents were collected.
    Ok(found)
}

/// True if the row lacks a truncate or a size that the MDT knows of.
fn is_behind(value: &[u8], fid: Fid, inodes: &Inodes, ost: u32) -> bool {
    let (Ok(row), Some(known)) = (ObjectRow::decode(value), inodes.of(fid)) else { return false };
    let epoch = inodes.epoch(known).unwrap_or(row.truncate_epoch);
    epoch > row.truncate_epoch || known.home == ost && epoch == row.truncate_epoch && known.size > row.file_bytes
}
