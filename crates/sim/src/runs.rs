//! Reads the runs on a data device according to `docs/format.md`: where file bytes lie, and which of them are current.

use std::ops::Range;

use forebay_env::sim::DiskImage;
use forebay_fsck::format::run::{self, Begin, Fragment, FragmentKind, RunHeader};
use forebay_proto::Uuid;

const SECTOR: u64 = 4096;

/// A run and its location on the device.
pub struct PlacedRun {
    /// Device offset of the header.
    pub at: u64,
    /// The decoded header.
    pub header: RunHeader,
}

impl PlacedRun {
    /// The bytes it occupies on the device.
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + self.header.total_bytes
    }
}

/// All runs of the current epoch of each slab.
pub fn scan(image: &DiskImage, target: Uuid, slab_bytes: u64) -> Vec<PlacedRun> {
    let slabs = (0..).map(|n| SECTOR + n * slab_bytes).take_while(|start| start + slab_bytes <= image.bytes());
    slabs.flat_map(|start| of_slab(image, target, start, slab_bytes)).collect()
}

fn of_slab(image: &DiskImage, target: Uuid, start: u64, slab_bytes: u64) -> Vec<PlacedRun> {
    if image.read(start, 8) == [0; 8] {
        return Vec::new();
    }
    let mut runs: Vec<PlacedRun> = Vec::new();
    let mut at = start + SECTOR;
    let fits = |header: &RunHeader, at: u64| header.total_bytes <= start + slab_bytes - at;
    let end = |runs: &[PlacedRun]| runs.last().map_or(start + SECTOR, |last| last.range().end);
    while at < start + slab_bytes {
        let (last, gap) = (runs.last().map(|last| &last.header), (at - end(&runs)) / SECTOR);
        match header_at(image, target, at) {
            Some(header) if fits(&header, at) && run::belongs(last, &header, gap) => {
                let next = at + header.total_bytes;
                runs.push(PlacedRun { at, header });
                at = next;
            }
            _ => at += SECTOR,
        }
    }
    let newest = runs.iter().map(|run| run.header.epoch).max();
    runs.retain(|run| Some(run.header.epoch) == newest);
    runs
}

/// The header of the run that begins at byte `at`, if there is one.
pub fn header_at(image: &DiskImage, target: Uuid, at: u64) -> Option<RunHeader> {
    match run::peek(&image.read(at, SECTOR as usize), target) {
        Begin::Header(bytes) if at + bytes as u64 <= image.bytes() => run::decode(&image.read(at, bytes)).ok(),
        _ => None,
    }
}

/// The header of the run at the beginning of a write, if it is complete.
pub fn written(bytes: &[u8], target: Uuid) -> Option<RunHeader> {
    match run::peek(bytes, target) {
        Begin::Header(length) => run::decode(bytes.get(..length)?).ok(),
        Begin::Nothing => None,
    }
}

/// True if the run holds file bytes and nothing that a target needs to serve.
pub fn is_of_files(run: &RunHeader) -> bool {
    !run.fragments.is_empty() && run.fragments.iter().all(|fragment| fragment.kind == FragmentKind::Data)
}

/// True if this fragment has the current byte at `offset`: no newer write, truncate or destroy covers it.
pub fn counts(runs: &[PlacedRun], fragment: &Fragment, offset: u64) -> bool {
    let covers = |other: &Fragment| other.offset <= offset && offset - other.offset < other.length;
    let others = runs.iter().flat_map(|run| &run.header.fragments);
    let is_of_files = |other: &Fragment| matches!(other.kind, FragmentKind::Data | FragmentKind::Tombstone(_));
    !others
        .filter(|other| other.fid == fragment.fid && is_of_files(other))
        .any(|other| other.version > fragment.version && covers(other))
}
