//! A disk's volatile cache: what a power cut may lose, and how.
//!
//! Invariant: a write that a flush covered is in every image that a power cut can leave; of the other writes, any part
//! may be.
//! The device and the crash recorder use the same cache, so that they agree about every point of a disk's history.

use std::collections::BTreeMap;

use super::{
    chance::Chance,
    image::{DiskImage, Page, StoredWrite},
};
use crate::limits::SIM_DISK_CACHE_BYTES;

/// What a power cut does to unflushed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TearChoice {
    /// All are lost.
    AllLost,
    /// All are kept.
    AllKept,
    /// All are kept except the last submitted write, of which only this many 512-byte sectors are kept.
    LastTornAtSector(usize),
    /// By this seed: all lost, all kept, each write kept or lost, or each 512-byte sector kept or lost.
    Random(u64),
}

/// A write's position in the cache's order. A completed write moves to the end of the order.
pub(crate) type CacheKey = u64;

/// The durable image, and the writes after it.
#[derive(Clone)]
pub(crate) struct WriteCache {
    durable: DiskImage,
    pending: BTreeMap<CacheKey, Pending>,
    next_key: CacheKey,
    pending_bytes: usize,
}

#[derive(Clone)]
struct Pending {
    write: StoredWrite,
    /// Order of submission over all disks.
    stamp: u64,
    completed: bool,
    /// Durable already, but behind a write to the same bytes that is not.
    kept: bool,
}

impl WriteCache {
    pub(crate) fn new(durable: DiskImage) -> Self {
        Self { durable, pending: BTreeMap::new(), next_key: 0, pending_bytes: 0 }
    }

    pub(crate) fn submit(&mut self, write: StoredWrite, stamp: u64) -> CacheKey {
        self.pending_bytes += write.len();
        self.push(Pending { write, stamp, completed: false, kept: false })
    }

    /// The write is acknowledged; returns its new key.
    pub(crate) fn complete(&mut self, key: CacheKey) -> CacheKey {
        let Some(pending) = self.pending.remove(&key) else { return key };
        let key = self.push(Pending { completed: true, ..pending });
        self.destage_overflow();
        key
    }

    /// The write never reached the disk.
    pub(crate) fn forget(&mut self, key: CacheKey) {
        if let Some(pending) = self.pending.remove(&key) {
            self.pending_bytes -= pending.write.len();
        }
    }

    /// What a flush that begins now covers: completed writes below this key.
    pub(crate) fn flush_point(&self) -> CacheKey {
        self.next_key
    }

    pub(crate) fn flush(&mut self, point: CacheKey) {
        self.pending.range_mut(..point).filter(|(_, p)| p.completed).for_each(|(_, p)| p.kept = true);
        self.settle();
    }

    /// Only this write becomes durable.
    pub(crate) fn keep(&mut self, key: CacheKey) {
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.kept = true;
        }
        self.settle();
    }

    /// Writes submitted and not completed, by key.
    pub(crate) fn in_flight(&self) -> Vec<(CacheKey, StoredWrite)> {
        self.pending.iter().filter(|(_, p)| !p.completed).map(|(key, p)| (*key, p.write.clone())).collect()
    }

    /// Completed writes that no flush covered, by key.
    pub(crate) fn unflushed(&self) -> Vec<CacheKey> {
        self.pending.iter().filter(|(_, p)| p.completed && !p.kept).map(|(key, _)| *key).collect()
    }

    /// The last submitted write that a power cut may lose, with its stamp.
    pub(crate) fn last(&self) -> Option<(u64, &StoredWrite)> {
        self.pending.values().filter(|p| !p.kept).map(|p| (p.stamp, &p.write)).max_by_key(|(stamp, _)| *stamp)
    }

    /// Flips bits of the byte stored at `offset`, durable or not.
    pub(crate) fn rot(&mut self, offset: u64, bits: u8) {
        let byte = self.durable.read(offset, 1)[0] ^ bits;
        self.durable.write(offset, &[byte]);
        let covers = |p: &&mut Pending| p.write.offset <= offset && offset < p.write.end();
        for pending in self.pending.values_mut().filter(covers) {
            let at = (offset - pending.write.offset) as usize;
            let page = &mut pending.write.pages[at / super::image::PAGE_BYTES];
            let mut bytes = page.bytes().to_vec();
            bytes[at % super::image::PAGE_BYTES] ^= bits;
            *page = Page::new(bytes.into());
        }
    }

    /// The content of the disk after a power cut. `last` is the stamp of the write that `LastTornAtSector` tears.
    pub(crate) fn after_power_cut(&self, tear: TearChoice, last: Option<u64>, chance: &Chance) -> DiskImage {
        let mode = match tear {
            TearChoice::Random(_) => chance.below(4),
            _ => 0,
        };
        let mut image = self.durable.clone();
        for pending in self.pending.values() {
            let write = &pending.write;
            match tear {
                _ if pending.kept => image.apply(write),
                TearChoice::AllLost => {}
                TearChoice::LastTornAtSector(sectors) if Some(pending.stamp) == last => {
                    let mut left = sectors;
                    image.apply_sectors(write, || {
                        let keep = left > 0;
                        left = left.saturating_sub(1);
                        keep
                    });
                }
                TearChoice::AllKept | TearChoice::LastTornAtSector(_) => image.apply(write),
                TearChoice::Random(_) => match mode {
                    0 => {}
                    1 => image.apply(write),
                    2 if chance.chance(0.5) => image.apply(write),
                    2 => {}
                    _ => image.apply_sectors(write, || chance.chance(0.5)),
                },
            }
        }
        image
    }

    fn push(&mut self, pending: Pending) -> CacheKey {
        let key = self.next_key;
        self.next_key += 1;
        self.pending.insert(key, pending);
        key
    }

    /// Moves kept writes to the durable image, but none past an overlapping write that is not kept.
    fn settle(&mut self) {
        let mut blockers: Vec<&StoredWrite> = Vec::new();
        let mut settled = Vec::new();
        for (key, pending) in &self.pending {
            if pending.kept && !blockers.iter().any(|blocker| blocker.overlaps(&pending.write)) {
                settled.push(*key);
            } else {
                blockers.push(&pending.write);
            }
        }
        for key in settled {
            let pending = self.pending.remove(&key).expect("settled keys are pending");
            self.pending_bytes -= pending.write.len();
            self.durable.apply(&pending.write);
        }
    }

    fn destage_overflow(&mut self) {
        let mut excess = self.pending_bytes.saturating_sub(SIM_DISK_CACHE_BYTES);
        if excess == 0 {
            return;
        }
        // A quarter at once, so that the scan of the cache is rare.
        excess += SIM_DISK_CACHE_BYTES / 4;
        for pending in self.pending.values_mut().filter(|p| p.completed) {
            pending.kept = true;
            excess = excess.saturating_sub(pending.write.len());
            if excess == 0 {
                break;
            }
        }
        self.settle();
    }
}
