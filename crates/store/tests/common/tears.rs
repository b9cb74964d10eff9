//! Which tears are tried at the points of a history, and which have been tried.
//!
//! At every point with pending writes: all of them lost, a random part of them kept, and the last write torn after some
//! number of sectors. That number cycles, so that every kind of write is torn after each. Every number is tried at
//! swept points, and for each history's first write of a kind and short size. So a write of a rare size is torn
//! everywhere, too.
//!
//! Many tears leave the same bytes: before a flush, the loss of all that is pending does so at each point. A test checks
//! each content of the disks once (`Contents`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use forebay_env::sim::{CrashRecorder, DiskImage, LastWrite, TearChoice};

/// Number of histories, unless the environment says otherwise; the coverage of this many is asserted.
pub const HISTORIES: u64 = 125;
/// For writes of up to this many sectors, every number of sectors kept is tried.
const SHORT: usize = 16;

/// Kind of a write, by its first bytes (docs/format.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Anchor,
    Record,
    /// The second half of a batch of records where the ring wraps, if it begins within a record.
    RestOfRecord,
    /// With the slab's first run behind it.
    SlabHeader,
    Data,
    Tombstones,
    IndexPages,
    Snapshot,
    /// The payload of a run whose header was a write of its own, or its padding.
    Payload,
}

impl Kind {
    fn of(write: &LastWrite) -> Self {
        let head = &write.head;
        let on_journal = write.disk == 1;
        match (&head[..8], &head[8..16]) {
            (_, b"FBanchor") if on_journal => Self::Anchor,
            (_, bytes) if on_journal && bytes.starts_with(b"FBjr") => Self::Record,
            _ if on_journal => Self::RestOfRecord,
            (b"FBYSLAB1", _) => Self::SlabHeader,
            // The kind of the run's first fragment.
            (b"FBYRUN01", _) => match head[100] {
                1 => Self::Data,
                2..=4 => Self::Tombstones,
                5 => Self::IndexPages,
                6 => Self::Snapshot,
                other => panic!("a fragment of kind {other}"),
            },
            _ => Self::Payload,
        }
    }
}

/// Progress of the tears of one history.
#[derive(Default)]
pub struct Round {
    turns: BTreeMap<Kind, usize>,
    /// Kinds, with sizes in sectors, that have been the last write.
    met: BTreeSet<(Kind, usize)>,
}

/// The contents of the disks that the crashes of one history have left, each with what its check found.
pub struct Contents<T>(BTreeMap<Vec<u64>, T>);

impl<T> Default for Contents<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> Contents<T> {
    /// What the check of these contents found; `check` is called for new ones, and `again` calls it for known ones, too.
    pub fn checked(&mut self, images: Vec<DiskImage>, again: bool, check: impl FnOnce(Vec<DiskImage>) -> T) -> T {
        let key: Vec<u64> = images.iter().map(DiskImage::fingerprint).collect();
        match self.0.get(&key) {
            Some(found) if !again => *found,
            _ => {
                let found = check(images);
                self.0.insert(key, found);
                found
            }
        }
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }
}

/// What has been tried.
#[derive(Default)]
pub struct Tally {
    pub points: u64,
    pub crashes: u64,
    /// Different contents that the crashes left.
    pub contents: u64,
    /// By kind and sectors of the last write: how often each number of sectors was kept.
    torn: BTreeMap<(Kind, usize), Vec<u64>>,
}

impl Tally {
    /// The tears to try at this point; ascending points.
    pub fn tears(
        &mut self,
        (recorder, seed): (&mut CrashRecorder, u64),
        point: usize,
        sweep: bool,
        round: &mut Round,
    ) -> Vec<TearChoice> {
        let random = TearChoice::Random(seed ^ (point as u64) << 20);
        let mut tears = vec![TearChoice::AllLost];
        if let Some(last) = recorder.last_write(point) {
            let kind = Kind::of(&last);
            let first = round.met.insert((kind, last.sectors)) && last.sectors <= SHORT;
            let kept = if sweep || first {
                0..=last.sectors
            } else {
                let turn = round.turns.entry(kind).or_insert(seed as usize * 5);
                *turn += 1;
                // Long writes alternate between one of the first sectors and any sector.
                let choices = if turn.is_multiple_of(2) { last.sectors } else { last.sectors.min(SHORT) };
                let kept = (*turn / 2 * 7) % (choices + 1);
                kept..=kept
            };
            let torn = self.torn.entry((kind, last.sectors)).or_insert_with(|| vec![0; last.sectors + 1]);
            kept.clone().for_each(|kept| torn[kept] += 1);
            tears.extend(kept.map(TearChoice::LastTornAtSector));
            tears.push(random);
        }
        self.points += 1;
        self.crashes += tears.len() as u64;
        tears
    }

    fn add(&mut self, other: Self) {
        self.points += other.points;
        self.crashes += other.crashes;
        self.contents += other.contents;
        for (key, counts) in other.torn {
            let torn = self.torn.entry(key).or_insert_with(|| vec![0; counts.len()]);
            torn.iter_mut().zip(counts).for_each(|(a, b)| *a += b);
        }
    }

    /// Panics unless every kind of write was torn at each of its first sectors, and every short one at each sector.
    pub fn assert_covered(&self) {
        let kinds = [Kind::Anchor, Kind::Record, Kind::SlabHeader, Kind::Data, Kind::IndexPages, Kind::Snapshot];
        for kind in kinds {
            let writes = || self.torn.iter().filter(move |((of, _), _)| *of == kind);
            let widest = writes().map(|((_, sectors), _)| *sectors).max();
            let widest = widest.unwrap_or_else(|| panic!("no {kind:?} was ever the last write"));
            for kept in 0..=widest.min(SHORT) {
                let times: u64 = writes().filter_map(|(_, counts)| counts.get(kept)).sum();
                assert!(times >= 10, "{kind:?} was torn after {kept} sectors {times} times");
            }
        }
        for ((kind, sectors), counts) in self.torn.iter().filter(|((_, sectors), _)| *sectors <= SHORT) {
            let missing: Vec<usize> = (0..=*sectors).filter(|kept| counts[*kept] == 0).collect();
            assert!(missing.is_empty(), "{kind:?} of {sectors} sectors was never torn after {missing:?}");
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} points, {} crashes, {} contents", self.points, self.crashes, self.contents)?;
        let mut kinds: BTreeMap<Kind, (usize, u64, usize, usize)> = BTreeMap::new();
        for ((kind, sectors), counts) in &self.torn {
            let (widest, times, tried, possible) = kinds.entry(*kind).or_default();
            *widest = (*widest).max(*sectors);
            *times += counts.iter().sum::<u64>();
            *tried += counts.iter().filter(|count| **count > 0).count();
            *possible += counts.len();
        }
        for (kind, (widest, times, tried, possible)) in kinds {
            writeln!(
                f,
                "  {kind:?}, up to {widest} sectors: torn {times} times, {tried} of {possible} pairs of size and tear"
            )?;
        }
        Ok(())
    }
}

/// The seeds of the histories to try.
pub fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("FOREBAY_CRASH_SEED"), number("FOREBAY_CRASH_HISTORIES")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (1..=count.unwrap_or(HISTORIES)).collect(),
    }
}

/// Tries each seed, on all processors. A history runs on one processor, and does not depend on the others.
#[allow(clippy::disallowed_methods)] // plain threads, each with simulators of its own
pub fn in_threads(seeds: &[u64], each: impl Fn(u64, &mut Tally) + Sync) -> Tally {
    let total = Mutex::new(Tally::default());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut tally = Tally::default();
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(*seed, &mut tally);
                }
                total.lock().expect("no thread failed").add(tally);
            });
        }
    });
    total.into_inner().expect("no thread failed")
}
