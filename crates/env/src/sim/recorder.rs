//! The crash-point recorder: the content of disks after a power cut at every point of their history.
//!
//! It replays the log of the recorded disks into caches like those of the devices (see `write_cache`).

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    NodeId,
    chance::Chance,
    image::{DiskImage, SECTOR_512, StoredWrite},
    write_cache::{CacheKey, TearChoice, WriteCache},
};

/// The log of all recorded disks, in one order.
#[derive(Default)]
pub(crate) struct Recording {
    wanted: BTreeSet<(NodeId, String)>,
    disks: Vec<RecordedDisk>,
    log: Vec<Record>,
    stamps: u64,
}

struct RecordedDisk {
    node: NodeId,
    path: String,
    base: WriteCache,
}

#[derive(Clone)]
struct Record {
    disk: usize,
    step: Step,
}

/// A step in the history of a disk's cache.
#[derive(Clone)]
pub(crate) enum Step {
    Submit { write: StoredWrite, stamp: u64 },
    Complete(CacheKey),
    Forget(CacheKey),
    Flush(CacheKey),
    Keep(CacheKey),
    Replace(DiskImage),
}

impl Recording {
    /// The disk at this path is recorded from its creation on.
    pub(crate) fn want(&mut self, node: NodeId, path: &str) {
        self.wanted.insert((node, path.to_string()));
    }

    pub(crate) fn is_wanted(&self, node: NodeId, path: &str) -> bool {
        self.wanted.contains(&(node, path.to_string()))
    }

    /// Begins to record a disk whose cache is `base`; returns its number in the log.
    pub(crate) fn begin(&mut self, node: NodeId, path: &str, base: WriteCache) -> usize {
        self.disks.push(RecordedDisk { node, path: path.to_string(), base });
        self.disks.len() - 1
    }

    pub(crate) fn add(&mut self, disk: usize, step: Step) {
        self.log.push(Record { disk, step });
    }

    /// The next position in the order of submissions over all disks.
    pub(crate) fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    pub(crate) fn recorder(&self, node: NodeId, paths: &[&str]) -> CrashRecorder {
        let number = |path: &&str| {
            let found = self.disks.iter().rposition(|disk| disk.node == node && disk.path == **path);
            found.unwrap_or_else(|| panic!("disk {path} was not recorded; call record_disk before its first write"))
        };
        let numbers: Vec<usize> = paths.iter().map(number).collect();
        let renumber = |record: &Record| {
            let disk = numbers.iter().position(|&number| number == record.disk)?;
            Some(Record { disk, step: record.step.clone() })
        };
        let log: Vec<Record> = self.log.iter().filter_map(renumber).collect();
        let bases: Vec<WriteCache> = numbers.iter().map(|&number| self.disks[number].base.clone()).collect();
        let points = log.iter().enumerate().filter(|(_, record)| record.step.is_point()).map(|(i, _)| i + 1);
        let points = std::iter::once(0).chain(points).collect();
        let paths = paths.iter().map(|path| path.to_string()).collect();
        CrashRecorder { paths, cursor: Cursor { done: 0, caches: bases.clone() }, bases, log, points }
    }
}

impl Step {
    /// True if tests crash right after this step.
    fn is_point(&self) -> bool {
        matches!(self, Self::Submit { .. } | Self::Flush(_) | Self::Keep(_))
    }

    fn replay(&self, cache: &mut WriteCache) {
        match self {
            Self::Submit { write, stamp } => drop(cache.submit(write.clone(), *stamp)),
            Self::Complete(key) => drop(cache.complete(*key)),
            Self::Forget(key) => cache.forget(*key),
            Self::Flush(point) => cache.flush(*point),
            Self::Keep(key) => cache.keep(*key),
            Self::Replace(image) => *cache = WriteCache::new(image.clone()),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Submit { write, .. } => format!("write of {} bytes at {}", write.len(), write.offset),
            Self::Flush(_) => "completed flush".into(),
            Self::Keep(_) => "completed durable write".into(),
            Self::Complete(_) => "completed write".into(),
            Self::Forget(_) => "lost write".into(),
            Self::Replace(_) => "replacement of the contents".into(),
        }
    }
}

/// The content of recorded disks after a power cut at any point of their history.
pub struct CrashRecorder {
    paths: Vec<String>,
    bases: Vec<WriteCache>,
    log: Vec<Record>,
    /// For each point, how many records came before it.
    points: Vec<usize>,
    cursor: Cursor,
}

/// The last submitted write that a power cut may lose: the one that [`TearChoice::LastTornAtSector`] tears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWrite {
    /// Index of its disk in the given paths.
    pub disk: usize,
    /// Its offset.
    pub offset: u64,
    /// Its length in 512-byte sectors.
    pub sectors: usize,
    /// Its first 4096 bytes.
    pub head: Bytes,
}

/// The caches after the first `done` records.
struct Cursor {
    done: usize,
    caches: Vec<WriteCache>,
}

impl CrashRecorder {
    /// Number of points. Point 0 is before everything. Point `n` is right after the n-th submitted write or completed
    /// flush (or durable write) of the recorded disks, in their common order.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// A description of the event just before `point`, for the message of a failing test.
    pub fn describe(&self, point: usize) -> String {
        match self.points[point].checked_sub(1) {
            None => "point 0: before the first write".into(),
            Some(i) => {
                let record = &self.log[i];
                format!("point {point}: after the {} on {}", record.step.describe(), self.paths[record.disk])
            }
        }
    }

    /// Contents of the disks, in the order of the given paths, after a power cut at `point`. Ascending points are fast.
    pub fn image(&mut self, point: usize, tear: TearChoice) -> Vec<DiskImage> {
        self.seek(self.points[point]);
        let last = self.cursor.caches.iter().filter_map(WriteCache::last).map(|(stamp, _)| stamp).max();
        let chance = Chance::new(if let TearChoice::Random(seed) = tear { seed } else { 0 }, point as u64);
        self.cursor.caches.iter().map(|cache| cache.after_power_cut(tear, last, &chance)).collect()
    }

    /// The write that is torn by [`TearChoice::LastTornAtSector`] at `point`. None: no write is pending there, so every
    /// choice has the same result.
    pub fn last_write(&mut self, point: usize) -> Option<LastWrite> {
        self.seek(self.points[point]);
        let caches = self.cursor.caches.iter().enumerate();
        let lasts = caches.filter_map(|(disk, cache)| cache.last().map(|(stamp, write)| (stamp, disk, write)));
        let (_, disk, write) = lasts.max_by_key(|(stamp, ..)| *stamp)?;
        let head = write.pages.first()?.bytes().clone();
        Some(LastWrite { disk, offset: write.offset, sectors: write.len() / SECTOR_512, head })
    }

    fn seek(&mut self, records: usize) {
        if records < self.cursor.done {
            self.cursor = Cursor { done: 0, caches: self.bases.clone() };
        }
        for record in &self.log[self.cursor.done..records] {
            record.step.replay(&mut self.cursor.caches[record.disk]);
        }
        self.cursor.done = records;
    }
}
