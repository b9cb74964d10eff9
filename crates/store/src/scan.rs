//! Scanning a slab for the runs that its run headers describe.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_env::{AlignedBuf, Bug, EnvError, EnvErrorKind, EnvResult, planted};
use forebay_proto::Uuid;

use crate::{
    StoreResult, limits,
    mirror::Device,
    slab::{
        header::{Geometry, SlabHeader},
        run::RunHeader,
    },
};

/// Where to read: a copy of the data device.
#[derive(Clone, Copy)]
struct Source<'a> {
    device: &'a Device,
    geometry: &'a Geometry,
    target: Uuid,
    /// None: any copy that can be read.
    copy: Option<usize>,
}

impl Source<'_> {
    /// None where it cannot be read.
    async fn read(&self, slab: u32, at: u64, bytes: usize) -> EnvResult<Option<AlignedBuf>> {
        let offset = self.geometry.device_offset(slab, at);
        let read = match self.copy {
            None => self.device.read(offset, bytes).await,
            Some(copy) => self.device.read_copy(copy, offset, bytes).await,
        };
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if self.is_of_medium(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if the error concerns only this location or this copy.
    fn is_of_medium(&self, error: &EnvError) -> bool {
        error.kind == EnvErrorKind::Medium || self.copy.is_some()
    }
}

/// The copies to scan, one by one; a single device has no choice.
fn each_copy(device: &Device) -> Vec<Option<usize>> {
    let copies = device.copies();
    if copies.len() < 2 { vec![None] } else { copies.into_iter().map(Some).collect() }
}

/// The header of `slab`, if it is intact; of several copies, the newest opening that any of them has.
pub(crate) async fn read_slab_header(
    device: &Device,
    geometry: &Geometry,
    target: Uuid,
    slab: u32,
) -> StoreResult<Option<SlabHeader>> {
    let mut newest: Option<SlabHeader> = None;
    for copy in each_copy(device) {
        let source = Source { device, geometry, target, copy };
        let Some(sector) = source.read(slab, 0, limits::SECTOR as usize).await? else { continue };
        let header = SlabHeader::decode(&sector, target).map(|(header, _)| header).filter(|h| h.slab == slab);
        newest = newest.into_iter().chain(header).max_by_key(|header| header.epoch);
    }
    Ok(newest)
}

/// Headers of the runs of opening `epoch` of `slab`, in order: all that any copy has. Payload offsets are turned into
/// offsets within the slab.
///
/// Damaged or unreadable sectors are skipped one by one. So a lost run does not hide those behind it, nor does a
/// misplaced run (one at the location of another).
pub(crate) async fn scan_runs(
    device: &Device,
    geometry: &Geometry,
    target: Uuid,
    slab: u32,
    epoch: u64,
) -> StoreResult<Vec<RunHeader>> {
    let (mut runs, mut strays) = (BTreeMap::new(), BTreeMap::new());
    for copy in each_copy(device) {
        let found = scan_copy(Source { device, geometry, target, copy }, slab, epoch).await?;
        runs.extend(found.runs.into_iter().map(|run| (run.number, run)));
        strays.extend(found.strays.into_iter().map(|run| (run.number, run)));
    }
    strays.extend(runs);
    Ok(strays.into_values().collect())
}

/// What a scan of a slab found.
#[derive(Default)]
struct Found {
    /// In order.
    runs: Vec<RunHeader>,
    /// Misplaced runs, written at the locations of others. What they say of themselves is true, but not how far they
    /// extend there.
    strays: Vec<RunHeader>,
}

async fn scan_copy(source: Source<'_>, slab: u32, epoch: u64) -> StoreResult<Found> {
    let geometry = source.geometry;
    // In large reads: one read for each sector of a mostly unwritten slab would be slow.
    let mut chunks = Vec::new();
    if geometry.slab_bytes <= limits::IMAGE_BYTES {
        for at in (0..geometry.slab_bytes).step_by(limits::READ_BYTES as usize) {
            let bytes = (geometry.slab_bytes - at).min(limits::READ_BYTES) as usize;
            chunks.push(source.read(slab, at, bytes).await?.map(AlignedBuf::freeze));
        }
    }
    let seen = |at: u64, bytes: usize| {
        let within = (at % limits::READ_BYTES) as usize;
        let chunk: &Bytes = chunks.get((at / limits::READ_BYTES) as usize)?.as_ref()?;
        (within + bytes <= chunk.len()).then(|| chunk.slice(within..within + bytes))
    };
    scan_seen(source, (slab, epoch), &seen).await
}

/// As [`scan_runs`], but bytes that `seen` returns (from an offset in the slab on) are not read again. Several copies
/// are all read.
pub(crate) async fn scan_runs_seen(
    device: &Device,
    geometry: &Geometry,
    target: Uuid,
    (slab, epoch): (u32, u64),
    seen: &dyn Fn(u64, usize) -> Option<Bytes>,
) -> StoreResult<Vec<RunHeader>> {
    if device.copies().len() > 1 {
        return scan_runs(device, geometry, target, slab, epoch).await;
    }
    let Found { runs, mut strays } =
        scan_seen(Source { device, geometry, target, copy: None }, (slab, epoch), seen).await?;
    strays.retain(|stray| runs.iter().all(|run| run.number != stray.number));
    let mut all = [strays, runs].concat();
    all.sort_by_key(|run| run.number);
    Ok(all)
}

async fn scan_seen(
    source: Source<'_>,
    (slab, epoch): (u32, u64),
    seen: &dyn Fn(u64, usize) -> Option<Bytes>,
) -> StoreResult<Found> {
    let mut found = Found::default();
    let (mut at, mut end) = (limits::SECTOR, limits::SECTOR);
    while at < source.geometry.slab_bytes {
        let run = read_run(source, slab, at, seen).await?;
        let Some(mut run) = run.filter(|run| run.epoch == epoch || planted(Bug::RunPlaceUnchecked)) else {
            at += limits::SECTOR;
            continue;
        };
        run.fragments.iter_mut().for_each(|fragment| fragment.payload_at += at as u32);
        if belongs(found.runs.last(), run.number, (at - end) / limits::SECTOR) {
            at += run.total_bytes;
            end = at;
            found.runs.push(run);
        } else {
            at += limits::SECTOR;
            found.strays.push(run);
        }
    }
    Ok(found)
}

/// Whether run `number` can lie this many sectors behind the `last` one. Runs touch, and each lost run in between took
/// a sector or more. A run that cannot was written to the location of another. Its length would hide the runs behind
/// that location.
fn belongs(last: Option<&RunHeader>, number: u32, gap: u64) -> bool {
    let next = last.map_or(0, |last| u64::from(last.number) + 1);
    let lost = u64::from(number).checked_sub(next);
    planted(Bug::MisplacedRunTrusted) || lost.is_some_and(|lost| (lost > 0) == (gap > 0) && lost <= gap)
}

async fn read_run(
    source: Source<'_>,
    slab: u32,
    at: u64,
    seen: &dyn Fn(u64, usize) -> Option<Bytes>,
) -> StoreResult<Option<RunHeader>> {
    let (geometry, target) = (source.geometry, source.target);
    let read = async |bytes: usize| match seen(at, bytes) {
        Some(bytes) => Ok(Some(bytes)),
        None => source.read(slab, at, bytes).await.map(|read| read.map(AlignedBuf::freeze)),
    };
    let Some(sector) = read(limits::SECTOR as usize).await? else { return Ok(None) };
    let Some(bytes) = RunHeader::peek_header_bytes(&sector, target) else { return Ok(None) };
    if at + bytes as u64 > geometry.slab_bytes {
        return Ok(None);
    }
    let sectors = if bytes == sector.len() { Some(sector) } else { read(bytes).await? };
    let Some((run, _)) = sectors.and_then(|sectors| RunHeader::decode(&sectors, target).ok()) else { return Ok(None) };
    // File data of an earlier opening is examined, too, and may look like a run.
    let is_here = run.slab == slab || planted(Bug::RunPlaceUnchecked);
    Ok((is_here && run.total_bytes <= geometry.slab_bytes - at).then_some(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_env::{OpenDisk, sim::Sim};
    use forebay_proto::Incarnation;

    const TARGET: Uuid = Uuid([7; 16]);
    const SLAB: u32 = 1;
    const EPOCH: u64 = 8;

    /// A run that consists of its header only.
    fn run(slab: u32, epoch: u64, number: u32) -> Bytes {
        long_run(slab, epoch, number, limits::SECTOR)
    }

    /// The header of a longer run.
    fn long_run(slab: u32, epoch: u64, number: u32, total_bytes: u64) -> Bytes {
        let header = RunHeader {
            total_bytes,
            slab,
            epoch,
            number,
            prev_sum: 0,
            incarnation: Incarnation(1),
            generation: 1,
            durable_lsn: 0,
            moved_lsn: 0,
            committed: 0,
            fragments: Vec::new(),
        };
        header.encode(TARGET).0.freeze()
    }

    /// Both are intact: a run written to the wrong slab, and one of the earlier opening that remains because a write
    /// was lost.
    #[test]
    fn runs_of_another_slab_or_of_an_earlier_opening_are_stepped_over() {
        let sim = Sim::new(1);
        let env = sim.env(sim.add_node("a"));
        sim.block_on(async {
            let slab_bytes = 16 * limits::SECTOR;
            let geometry =
                Geometry { slab_bytes, slab_count: 2, first_slab: limits::SECTOR, stripe_bytes: limits::SECTOR };
            let create_bytes = Some(limits::SECTOR + 2 * slab_bytes);
            let disk = env.open_disk("/data", OpenDisk { create_bytes, ..OpenDisk::default() }).await.expect("a disk");
            let device = Device::from(disk);
            let runs = [(SLAB, EPOCH, 0), (SLAB - 1, EPOCH, 1), (SLAB, EPOCH - 1, 2), (SLAB, EPOCH, 3)];
            let parts = runs.map(|(slab, epoch, number)| run(slab, epoch, number)).to_vec();
            device.write(geometry.device_offset(SLAB, limits::SECTOR), parts).await.expect("written");
            let found = scan_runs(&device, &geometry, TARGET, SLAB, EPOCH).await.expect("read");
            assert_eq!(found.iter().map(|run| run.number).collect::<Vec<_>>(), [0, 3]);
        });
    }

    /// A write that went to the location of an earlier run of its own slab: its header is intact, and claims more than
    /// lies there.
    #[test]
    fn a_misplaced_run_hides_no_run_behind_its_place() {
        let sim = Sim::new(1);
        let env = sim.env(sim.add_node("a"));
        sim.block_on(async {
            let slab_bytes = 16 * limits::SECTOR;
            let geometry =
                Geometry { slab_bytes, slab_count: 2, first_slab: limits::SECTOR, stripe_bytes: limits::SECTOR };
            let create_bytes = Some(limits::SECTOR + 2 * slab_bytes);
            let disk = env.open_disk("/data", OpenDisk { create_bytes, ..OpenDisk::default() }).await.expect("a disk");
            let device = Device::from(disk);
            // The number of each run, and the sectors that its header claims. Run 1 belongs in the second location. The
            // misplaced run is reported, too.
            for (stray, expected) in [(4, &[0, 2, 3, 4][..]), (0, &[0, 2, 3])] {
                let numbers = [(0, 1), (stray, 6), (2, 1), (3, 1)];
                let parts = numbers.map(|(number, sectors)| long_run(SLAB, EPOCH, number, sectors * limits::SECTOR));
                device.write(geometry.device_offset(SLAB, limits::SECTOR), parts.to_vec()).await.expect("written");
                let found = scan_runs(&device, &geometry, TARGET, SLAB, EPOCH).await.expect("read");
                assert_eq!(found.iter().map(|run| run.number).collect::<Vec<_>>(), expected, "{stray} for 1");
            }
        });
    }

    #[test]
    fn runs_touch_and_each_that_is_lost_had_a_place() {
        let (_, last) = RunHeader::decode(&run(SLAB, EPOCH, 7), TARGET).map(|(run, sum)| (sum, run)).expect("a header");
        let allowed = |last: Option<&RunHeader>, gap: u64| -> Vec<u32> {
            (0..20).filter(|number| belongs(last, *number, gap)).collect()
        };
        assert_eq!(allowed(None, 0), [0]);
        assert_eq!(allowed(None, 2), [1, 2]);
        assert_eq!(allowed(Some(&last), 0), [8]);
        assert_eq!(allowed(Some(&last), 1), [9], "8 would touch");
        assert_eq!(allowed(Some(&last), 3), [9, 10, 11]);
    }
}
