//! One object while its changes are applied, version after version: where its bytes are, and which of them are in
//! doubt.
//!
//! A block that does not match its sum either rotted, or its write was interrupted by the end of the target. A later
//! run that knows of the write's commit tells which.
//!
//! Invariant: if written bytes are not found, reads of them fail or the file ends before them. They never become zeros.
//! Invariant: earlier bytes stay readable if no run attests the write that would have replaced them.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{Fid, Transno};

use crate::{
    FsckResult,
    format::extent::{self, Extent},
    rows::{ost::ObjectRow, space},
};

use super::{
    changes::{Change, Changes, Origin, Removal, parts},
    checkpoint::Before,
    inodes::Inodes,
    outcome::{Doubt, Outcome},
    store::Store,
};

/// The state of an extent's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sound,
    /// Not what was written, and known to have been durable.
    Rotten,
    /// Not what was written, and it is unknown whether the write ever completed.
    Doubtful,
    /// Nowhere.
    Lost,
}

#[derive(Clone)]
struct Laid {
    extent: Extent,
    state: State,
}

/// An object under reconstruction.
pub(super) struct Object {
    fid: Fid,
    /// True if it gets a row.
    exists: bool,
    bytes: u64,
    transno: Transno,
    laid: BTreeMap<u64, Laid>,
    /// Ranges that show older bytes than were written.
    older: Vec<Range<u64>>,
}

impl Object {
    /// The object at the checkpoint, with its bytes where they are now.
    pub(super) async fn of(store: &Store<'_>, fid: Fid, before: &Before, changes: &Changes) -> FsckResult<Self> {
        let row = before.row.as_ref().and_then(|value| ObjectRow::decode(value).ok());
        let mut object = Self {
            fid,
            exists: row.is_some(),
            bytes: row.as_ref().map_or(0, |row| row.object_bytes),
            transno: row.as_ref().map_or(Transno(0), |row| row.transno),
            laid: BTreeMap::new(),
            older: Vec::new(),
        };
        for extent in before.extents.values() {
            if before.moved.contains(&extent.offset) {
                object.lay_moved(store, extent, changes).await?;
            } else {
                object.lay(extent.clone(), State::Sound);
            }
        }
        Ok(object)
    }

    /// Places an extent that is not where the checkpoint says: from its copies elsewhere, or from its old location if
    /// the slab's header is damaged and the bytes match. If the extent was dead when its slab was reused, a later
    /// change replaces or removes it; otherwise what is not found is lost.
    async fn lay_moved(&mut self, store: &Store<'_>, extent: &Extent, changes: &Changes) -> FsckResult<()> {
        let range = extent.offset..extent.end();
        Extent::lost(self.fid, range.clone()).for_each(|lost| self.lay(lost, State::Lost));
        let here = store.slabs.is_of(extent.slab, extent.epoch).is_none().then_some(extent);
        let copies = changes.copies.get(&Origin::of(extent)).into_iter().flatten();
        for copy in here.into_iter().chain(copies).filter_map(|copy| copy.within(&range)) {
            for (part, sound) in parts(store.media, store.identity, &copy).await? {
                if sound {
                    self.lay(part, State::Sound);
                }
            }
        }
        Ok(())
    }

    /// Applies all changes of one version and returns the number of bytes found. If a fragment exists twice, one of
    /// them may be bad.
    pub(super) async fn apply(
        &mut self,
        store: &Store<'_>,
        version: Transno,
        changes: &[Change],
        attested: bool,
    ) -> FsckResult<u64> {
        self.transno = self.transno.max(version);
        let (mut found, mut sound) = (0, Vec::new());
        for change in changes {
            match change {
                Change::Removed(range, removal) => sound.push(Err((range, removal))),
                Change::Written(extent) => {
                    for (part, is_sound) in parts(store.media, store.identity, extent).await? {
                        match (is_sound, attested) {
                            (true, _) => sound.push(Ok(part)),
                            (false, _) if planted(Bug::RotTakenForTorn) => {}
                            (false, true) => self.write(part, State::Rotten),
                            (false, false) => self.write_beneath(part),
                        }
                    }
                }
            }
        }
        for change in sound {
            match change {
                Ok(part) => {
                    found += part.length;
                    self.write(part, State::Sound);
                }
                Err((range, removal)) => self.remove(range, *removal),
            }
        }
        Ok(found)
    }

    fn write(&mut self, part: Extent, state: State) {
        (self.exists, self.bytes) = (true, self.bytes.max(part.end()));
        self.lay(part, state);
    }

    /// Places a write that may never have completed: earlier bytes stay, and reads fail where there were none.
    fn write_beneath(&mut self, part: Extent) {
        let range = part.offset..part.end();
        let covered: Vec<Range<u64>> = self.within(&range).map(|laid| laid.offset..laid.end()).collect();
        for hole in without(&range, &covered) {
            if let Some(extent) = part.within(&hole) {
                self.laid.insert(extent.offset, Laid { extent, state: State::Doubtful });
            }
        }
        let clipped = covered.into_iter().map(|old| old.start.max(range.start)..old.end.min(range.end));
        self.older.extend(clipped);
    }

    fn remove(&mut self, range: &Range<u64>, removal: Removal) {
        self.clear(range);
        match removal {
            Removal::Truncate => self.bytes = self.bytes.min(range.start),
            Removal::Punch => {}
            Removal::Destroy => (self.exists, self.bytes) = (false, 0),
        }
    }

    /// Places an extent over what is there.
    fn lay(&mut self, extent: Extent, state: State) {
        self.clear(&(extent.offset..extent.end()));
        self.laid.insert(extent.offset, Laid { extent, state });
    }

    fn clear(&mut self, range: &Range<u64>) {
        let touched: Vec<u64> = self.within(range).map(|extent| extent.offset).collect();
        for at in touched {
            let Some(Laid { extent, state }) = self.laid.remove(&at) else { continue };
            for kept in [0..range.start, range.end..u64::MAX] {
                if let Some(part) = extent.within(&kept) {
                    self.laid.insert(part.offset, Laid { extent: part, state });
                }
            }
        }
        let older = std::mem::take(&mut self.older);
        self.older = older.iter().flat_map(|old| without(old, std::slice::from_ref(range))).collect();
    }

    /// Extents that overlap a range, in order.
    fn within(&self, range: &Range<u64>) -> impl Iterator<Item = &Extent> {
        let first = self.laid.range(..range.start).next_back().filter(|(_, laid)| laid.extent.end() > range.start);
        first.into_iter().chain(self.laid.range(range.clone())).map(|(_, laid)| &laid.extent)
    }

    /// Ranges in this state; adjacent ones are merged.
    fn ranges(&self, state: impl Fn(State) -> bool) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for Laid { extent, .. } in self.laid.values().filter(|laid| state(laid.state)) {
            match ranges.last_mut().filter(|last| last.end == extent.offset) {
                Some(last) => last.end = extent.end(),
                None => ranges.push(extent.offset..extent.end()),
            }
        }
        ranges
    }

    /// Reconciles what was found with what the MDT knows of the file.
    fn settle(&mut self, inodes: &Inodes, outcome: &mut Outcome) {
        let (fid, known, dense) = (self.fid, inodes.object_bytes(self.fid), inodes.dense_bytes(self.fid));
        // Nothing is missing of a file that is gone, nor behind the end of a file that no session could write to.
        let needed = match inodes.of(fid) {
            None if inodes.are_known() => 0,
            Some(file) if !inodes.is_written(file) => known.unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        for lost in self.ranges(|state| state == State::Lost).iter().filter(|lost| lost.end > needed) {
            self.clear(&(lost.start.max(needed)..lost.end));
        }
        let lacking = without(&(0..dense), &self.ranges(|_| true));
        outcome.lacking += u64::from(!lacking.is_empty());
        for hole in lacking {
            Extent::lost(fid, hole).for_each(|lost| self.lay(lost, State::Lost));
        }
        let doubts = &mut outcome.doubts;
        // The object ends where its row or the MDT says, not with a write that may never have completed.
        let reach = self.bytes.max(known.unwrap_or(0));
        for range in self.ranges(|state| state == State::Doubtful).iter().filter(|range| range.end > reach) {
            let beyond = range.start.max(reach)..range.end;
            self.clear(&beyond);
            doubts.push(Doubt::Ended(fid, beyond));
        }
        self.exists |= !self.laid.is_empty();
        let rotten = self.ranges(|state| matches!(state, State::Rotten | State::Doubtful));
        let lost = self.ranges(|state| state == State::Lost);
        let unreadable: Vec<Range<u64>> = rotten.iter().chain(&lost).cloned().collect();
        let older = self.older.iter().flat_map(|old| without(old, &unreadable));
        doubts.extend(older.map(|range| Doubt::Older(fid, range)));
        doubts.extend(rotten.into_iter().map(|range| Doubt::Rotten(fid, range)));
        doubts.extend(lost.into_iter().map(|range| Doubt::Lost(fid, range)));
    }

    /// Records the rows that differ from those of the checkpoint.
    pub(super) fn finish(mut self, before: &Before, inodes: &Inodes, ost: u32, outcome: &mut Outcome) {
        self.settle(inodes, outcome);
        let now: BTreeMap<Vec<u8>, Vec<u8>> =
            self.laid.values().map(|laid| (laid.extent.key(), laid.extent.encode())).collect();
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
        let end = self.laid.values().next_back().map_or(0, |laid| laid.extent.end());
        let bytes = self.bytes.max(end);
        let (mut file_bytes, mut epoch) = old.as_ref().map_or((0, 0), |row| (row.file_bytes, row.truncate_epoch));
        if let Some(known) = inodes.of(self.fid) {
            if let Some(arrived) = inodes.epoch(known).filter(|arrived| *arrived > epoch) {
                (epoch, file_bytes) = (arrived, 0);
            }
            if known.home == ost {
                // The file's size is the larger of what the MDT knows and of its bytes here.
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

/// The parts of `range` that no range in `taken` covers; `taken` is in order.
fn without(range: &Range<u64>, taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut at, mut left) = (range.start, Vec::new());
    for taken in taken.iter().filter(|taken| taken.start < range.end && taken.end > range.start) {
        if taken.start > at {
            left.push(at..taken.start);
        }
        at = at.max(taken.end);
    }
    if at < range.end {
        left.push(at..range.end);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtracting_covered_ranges_leaves_the_uncovered_parts() {
        let left = |from: u64, to, taken: &[(u64, u64)]| {
            let taken: Vec<Range<u64>> = taken.iter().map(|(from, to)| *from..*to).collect();
            without(&(from..to), &taken).iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(left(0, 10, &[]), [(0, 10)]);
        assert_eq!(left(0, 10, &[(2, 3), (5, 20)]), [(0, 2), (3, 5)]);
        assert_eq!(left(5, 10, &[(0, 6), (9, 10), (30, 40)]), [(6, 9)]);
        assert_eq!(left(5, 10, &[(0, 20)]), []);
    }
}
