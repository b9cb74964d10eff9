//! Reading back what a slab says it holds.

use bytes::Bytes;
use forebay_env::{Disk, EnvErrorKind};
use forebay_proto::Uuid;

use crate::{
    StoreResult, limits,
    slab::{
        header::{Geometry, SlabHeader},
        run::RunHeader,
    },
};

/// The header of `slab`, if it is intact.
pub(crate) async fn read_slab_header(
    disk: &Disk,
    geometry: &Geometry,
    target: Uuid,
    slab: u32,
) -> StoreResult<Option<SlabHeader>> {
    match disk.read(geometry.device_offset(slab, 0), limits::SECTOR as usize).await {
        Ok(sector) => Ok(SlabHeader::decode(&sector, target).map(|(h, _)| h).filter(|header| header.slab == slab)),
        Err(error) if error.kind == EnvErrorKind::Medium => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Headers of the runs of opening `epoch` of `slab`, in order. Payload places are turned into places within the slab.
///
/// What is damaged or cannot be read is stepped over, sector by sector: a lost run does not hide those behind it.
pub(crate) async fn scan_runs(
    disk: &Disk,
    geometry: &Geometry,
    target: Uuid,
    slab: u32,
    epoch: u64,
) -> StoreResult<Vec<RunHeader>> {
    // In large reads: a slab that is mostly unwritten would take one for each of its sectors.
    let mut chunks = Vec::new();
    if geometry.slab_bytes <= limits::IMAGE_BYTES {
        for at in (0..geometry.slab_bytes).step_by(limits::READ_BYTES as usize) {
            let bytes = (geometry.slab_bytes - at).min(limits::READ_BYTES) as usize;
            chunks.push(match disk.read(geometry.device_offset(slab, at), bytes).await {
                Ok(bytes) => Some(bytes.freeze()),
                Err(error) if error.kind == EnvErrorKind::Medium => None,
                Err(error) => return Err(error.into()),
            });
        }
    }
    let seen = |at: u64, bytes: usize| {
        let within = (at % limits::READ_BYTES) as usize;
        let chunk: &Bytes = chunks.get((at / limits::READ_BYTES) as usize)?.as_ref()?;
        (within + bytes <= chunk.len()).then(|| chunk.slice(within..within + bytes))
    };
    scan_runs_seen(disk, geometry, target, (slab, epoch), &seen).await
}

/// As [`scan_runs`]; what `seen` knows (of bytes from a place in the slab on) is not read again.
pub(crate) async fn scan_runs_seen(
    disk: &Disk,
    geometry: &Geometry,
    target: Uuid,
    (slab, epoch): (u32, u64),
    seen: &dyn Fn(u64, usize) -> Option<Bytes>,
) -> StoreResult<Vec<RunHeader>> {
    let mut runs = Vec::new();
    let mut at = limits::SECTOR;
    while at < geometry.slab_bytes {
        let run = read_run(disk, geometry, target, slab, at, seen).await?;
        let Some(mut run) = run.filter(|run| run.epoch == epoch) else {
            at += limits::SECTOR;
            continue;
        };
        run.fragments.iter_mut().for_each(|fragment| fragment.payload_at += at as u32);
        at += run.total_bytes;
        runs.push(run);
    }
    Ok(runs)
}

async fn read_run(
    disk: &Disk,
    geometry: &Geometry,
    target: Uuid,
    slab: u32,
    at: u64,
    seen: &dyn Fn(u64, usize) -> Option<Bytes>,
) -> StoreResult<Option<RunHeader>> {
    let read = async |bytes: usize| {
        if let Some(bytes) = seen(at, bytes) {
            return Ok(Some(bytes));
        }
        match disk.read(geometry.device_offset(slab, at), bytes).await {
            Ok(bytes) => Ok(Some(bytes.freeze())),
            Err(error) if error.kind == EnvErrorKind::Medium => Ok(None),
            Err(error) => Err(error),
        }
    };
    let Some(sector) = read(limits::SECTOR as usize).await? else { return Ok(None) };
    let Some(bytes) = RunHeader::peek_header_bytes(&sector, target) else { return Ok(None) };
    if at + bytes as u64 > geometry.slab_bytes {
        return Ok(None);
    }
    let sectors = if bytes == sector.len() { Some(sector) } else { read(bytes).await? };
    let Some((run, _)) = sectors.and_then(|sectors| RunHeader::decode(&sectors, target).ok()) else { return Ok(None) };
    Ok((run.slab == slab && at + run.total_bytes <= geometry.slab_bytes).then_some(run))
}
