//! The oracle: the possible names and files of one worker.
//!
//! While its mount lives, the names are what the worker made of them. After the mount's death they are the result of
//! some number of the worker's first operations, including at least all certain ones, as one MDT commits in order.

use std::collections::{BTreeMap, BTreeSet};

use forebay_proto::message::CommitLevel;

use super::file::{FileModel, Write};
use crate::figures::Outcome;

/// Directories per worker: name `n` is in directory `n % DIRS`.
pub const DIRS: u32 = 2;
/// The mount may buffer writes up to this length for a moment (docs/promises.md, P3).
const KEPT_BACK: u64 = 256 << 10;

/// Delayed directory operations are sent after a millisecond or two, not after 50 ms like writes. So they are in doubt
/// only if they were acknowledged this much later: of the second that writes get on a busy machine they get 200 ms.
const NAMES_SOONER_MS: u64 = 800;

/// A change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Name, file.
    Create(u32, u32),
    /// From, to.
    Rename(u32, u32),
    /// Name.
    Unlink(u32),
}

/// The file of each name.
pub type Names = BTreeMap<u32, u32>;

/// What a worker may believe after a death.
#[derive(Clone, Copy, Debug, Default)]
pub struct Death {
    /// Only the mount died: everything that the servers had is there.
    pub alone: bool,
    /// In that case: everything acknowledged before this time was sent (CLOCK_MONOTONIC, ms).
    pub sent_before_ms: u64,
    /// The mount's level. At `commit` acknowledged changes are certain, whoever died. At `memory` they are as certain
    /// as at `data`: the servers have them as long as they live, and a mount that lives has them when servers die.
    pub level: CommitLevel,
}

/// The worker's model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// The certain names.
    pub base: Names,
    /// Changes since then, with the time of their acknowledgement (CLOCK_MONOTONIC, ms).
    pub changes: Vec<(Change, Option<u64>)>,
    /// Number of these changes that are certain.
    pub certain: usize,
    /// The names while the mount lives.
    pub names: Names,
    /// All files that may exist.
    pub files: BTreeMap<u32, FileModel>,
    /// The next file's number.
    pub next_file: u64,
    /// The next write's number.
    pub next_write: u32,
}

/// Applies a change to the names.
fn changed(names: &mut Names, change: Change) {
    match change {
        Change::Create(name, file) => drop(names.insert(name, file)),
        Change::Rename(from, to) => {
            let file = names.remove(&from).expect("a name that is there is renamed");
            names.insert(to, file);
        }
        Change::Unlink(name) => drop(names.remove(&name)),
    }
}

impl Model {
    /// Enters a change that is about to begin.
    pub fn begin(&mut self, change: Change) {
        changed(&mut self.names, change);
        self.changes.push((change, None));
    }

    /// Enters the acknowledgement of the last change.
    pub fn acked(&mut self, at_ms: u64) {
        if let Some((_, acked)) = self.changes.last_mut() {
            *acked = Some(at_ms);
        }
    }

    /// Enters the sync of a directory.
    pub fn dir_synced(&mut self, dir: u32) {
        let of_dir = |name: u32| name % DIRS == dir;
        let touches = |change: &Change| match *change {
            Change::Create(name, _) | Change::Unlink(name) => of_dir(name),
            Change::Rename(from, to) => of_dir(from) || of_dir(to),
        };
        self.synced_up_to(self.changes.iter().rposition(|(change, _)| touches(change)));
    }

    /// Enters the sync of a file: its bytes and its first name are certain.
    pub fn file_synced(&mut self, file: u32) {
        self.files.get_mut(&file).expect("the file is known").settle();
        let made = |(change, _): &(Change, Option<u64>)| matches!(change, Change::Create(_, of) if *of == file);
        self.synced_up_to(self.changes.iter().rposition(made));
    }

    fn synced_up_to(&mut self, last: Option<usize>) {
        self.certain = self.certain.max(last.map_or(0, |last| last + 1));
        if self.certain == self.changes.len() {
            self.base = self.names.clone();
            self.changes.clear();
            self.certain = 0;
            self.forget_files();
        }
    }

    /// Forgets files that no name refers to any more.
    fn forget_files(&mut self) {
        let named: BTreeSet<u32> = self.names.values().copied().collect();
        self.files.retain(|file, _| named.contains(file));
    }

    /// Updates the model after the mount's death. Returns the number of unsynced changes that are certain nevertheless.
    pub fn died(&mut self, death: Death) -> u64 {
        let synced = self.certain;
        if death.level == CommitLevel::Commit {
            let acked = self.changes.iter().take_while(|(_, acked)| acked.is_some()).count();
            self.certain = self.certain.max(acked);
        } else if death.alone {
            let made = |acked: Option<u64>| acked.is_some_and(|at| at < death.sent_before_ms + NAMES_SOONER_MS);
            let acked = self.changes.iter().take_while(|(_, acked)| made(*acked)).count();
            self.certain = self.certain.max(acked);
        }
        let mut unsynced = (self.certain - synced) as u64;
        for write in self.files.values_mut().flat_map(|file| &mut file.writes) {
            write.certain = write.acked_ms.is_some_and(|at| write.synced || is_kept(write, at, death));
            unsynced += u64::from(write.certain && !write.synced);
        }
        unsynced
    }

    /// Checks the names that were found, with their inode numbers. Returns the names they stand for.
    pub fn check_names(&self, found: &BTreeMap<u32, u64>) -> Outcome<Names> {
        let mut names = self.base.clone();
        let mut fits = None;
        for made in 0..=self.changes.len() {
            if made >= self.certain && self.are(&names, found) {
                fits = Some(names.clone());
            }
            if let Some((change, _)) = self.changes.get(made) {
                changed(&mut names, *change);
            }
        }
        fits.ok_or_else(|| {
            format!(
                "names (with their inodes) {found:?}: certain were {:?}, then came {:?} of which {} are certain; inodes of the \
                 files: {:?}",
                self.base,
                self.changes,
                self.certain,
                self.files.iter().map(|(file, model)| (*file, model.ino)).collect::<Vec<_>>(),
            )
        })
    }

    /// True if these are the names of these files.
    pub fn are(&self, names: &Names, found: &BTreeMap<u32, u64>) -> bool {
        let is = |((name, file), (seen, ino)): ((&u32, &u32), (&u32, &u64))| {
            name == seen && self.files.get(file).is_some_and(|file| file.ino.is_none_or(|known| known == *ino))
        };
        names.len() == found.len() && names.iter().zip(found).all(is)
    }
}

fn is_kept(write: &Write, acked_ms: u64, death: Death) -> bool {
    if death.level == CommitLevel::Commit {
        return true;
    }
    let is_kept_back = write.range.end - write.range.start <= KEPT_BACK;
    death.alone && (!is_kept_back || acked_ms < death.sent_before_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let mut model = Model::default();
        for (name, file, ino) in [(0, 1, Some(11)), (1, 2, Some(12)), (2, 3, None)] {
            model.files.insert(file, FileModel { ino, ..FileModel::default() });
            model.begin(Change::Create(name, file));
            model.acked(u64::from(name));
        }
        model.begin(Change::Rename(0, 3));
        model.acked(3);
        model.begin(Change::Unlink(1));
        model
    }

    fn found(names: &[(u32, u64)]) -> BTreeMap<u32, u64> {
        names.iter().copied().collect()
    }

    #[test]
    fn names_are_those_after_some_of_the_first_changes_and_all_that_are_certain() {
        let mut model = model();
        model.dir_synced(0);
        assert_eq!(model.certain, 4, "the rename from directory 0 to directory 1 came last");
        model.died(Death::default());
        model.check_names(&found(&[(1, 12), (2, 77), (3, 11)])).expect("the unlink was lost");
        model.check_names(&found(&[(2, 77), (3, 11)])).expect("it was not");
        for wrong in [&[(0, 11), (1, 12), (2, 77)][..], &[(1, 11), (2, 77), (3, 12)], &[(3, 11)]] {
            model.check_names(&found(wrong)).expect_err("not what was certain");
        }
    }

    #[test]
    fn a_file_is_synced_with_its_first_name_and_what_came_before() {
        let mut model = model();
        model.file_synced(2);
        assert_eq!(model.certain, 2);
        model.check_names(&found(&[(0, 11), (1, 12)])).expect("two creates");
        model.check_names(&found(&[(0, 11)])).expect_err("one is missing");
        let mut alone = self::model();
        let mut late = alone.clone();
        late.changes.iter_mut().filter_map(|(_, acked)| acked.as_mut()).for_each(|at| *at += NAMES_SOONER_MS);
        std::mem::swap(&mut alone, &mut late);
        alone.died(Death { alone: true, sent_before_ms: 3, level: CommitLevel::Data });
        assert_eq!(alone.certain, 3, "the last may have been answered before the MDT was asked");
        alone.died(Death { alone: true, sent_before_ms: 4, level: CommitLevel::Data });
        assert_eq!(alone.certain, 4, "all that were acknowledged");
        let all = (alone.names.clone(), alone.changes.len());
        alone.dir_synced(1);
        assert_eq!((all.1, alone.changes.len(), &alone.base), (5, 0, &all.0));
        assert!(!alone.files.contains_key(&2), "nothing leads to it any more");
    }

    #[test]
    fn names_that_were_acknowledged_at_level_commit_are_there_whoever_died() {
        let mut model = model();
        assert_eq!(model.died(Death { level: CommitLevel::Commit, ..Death::default() }), 4);
        for right in [&[(1, 12), (2, 77), (3, 11)][..], &[(2, 77), (3, 11)]] {
            model.check_names(&found(right)).expect("the unlink was not acknowledged");
        }
        model.check_names(&found(&[(0, 11), (1, 12), (2, 77)])).expect_err("the rename was");
    }

    #[test]
    fn small_writes_of_a_mount_that_died_alone_are_certain_after_a_while_and_long_ones_at_once() {
        let mut file = FileModel::default();
        for (seq, bytes, at, synced) in
            [(1, 4096, 10, false), (2, 4096, 90, false), (3, 1 << 20, 90, false), (4, 8, 90, true)]
        {
            file.begin(Write { seq, range: 0..bytes, synced, certain: false, acked_ms: Some(at) });
        }
        file.begin(Write { seq: 5, range: 0..1 << 20, synced: true, certain: false, acked_ms: None });
        let mut model = Model { files: BTreeMap::from([(1, file)]), ..Model::default() };
        let mut certain = |death: Death, unsynced| {
            assert_eq!(model.died(death), unsynced);
            model.files[&1].writes.iter().map(|write| write.certain).collect::<Vec<_>>()
        };
        for level in [CommitLevel::Data, CommitLevel::Memory] {
            let alone = Death { alone: true, sent_before_ms: 50, level };
            assert_eq!(certain(alone, 2), [true, false, true, true, false]);
            assert_eq!(certain(Death { level, ..Death::default() }, 0), [false, false, false, true, false]);
        }
        let together = Death { level: CommitLevel::Commit, ..Death::default() };
        assert_eq!(certain(together, 3), [true, true, true, true, false], "all that was acknowledged");
    }
}
