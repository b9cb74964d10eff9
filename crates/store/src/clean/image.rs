//! A slab read as a whole: one pass over the device instead of a request for each header and each piece.

use bytes::Bytes;
use forebay_env::EnvErrorKind;

use super::victims::Victim;
use crate::{
    StoreResult,
    core::Core,
    limits,
    slab::{Place, run::RunHeader},
};

/// The bytes of a slab, in chunks; unreadable chunks are missing. Not verified.
pub(super) struct Image {
    victim: Victim,
    chunks: Vec<Option<Bytes>>,
}

impl Image {
    /// The bytes at `place`, if they were read and lie in one chunk.
    pub(super) fn slice(&self, place: Place, length: u64) -> Option<Bytes> {
        if (place.slab, place.epoch) != (self.victim.slab, self.victim.epoch) {
            return None;
        }
        self.at(u64::from(place.at), length)
    }

    fn at(&self, at: u64, length: u64) -> Option<Bytes> {
        let (chunk, within) = ((at / limits::READ_BYTES) as usize, (at % limits::READ_BYTES) as usize);
        let bytes = self.chunks.get(chunk)?.as_ref()?;
        let end = within.checked_add(length as usize)?;
        (end <= bytes.len()).then(|| bytes.slice(within..end))
    }
}

impl Core {
    /// Reads a victim. A very large slab is not read as a whole: its image has no chunks.
    pub(super) async fn read_image(&self, victim: Victim) -> StoreResult<Image> {
        let mut chunks = Vec::new();
        if self.geometry.slab_bytes <= limits::IMAGE_BYTES {
            let read = |at: u64| {
                let disk = self.data.clone();
                let bytes = (self.geometry.slab_bytes - at).min(limits::READ_BYTES) as usize;
                let at = self.geometry.device_offset(victim.slab, at);
                self.env.spawn(async move { disk.read(at, bytes).await })
            };
            let starts = (0..self.geometry.slab_bytes).step_by(limits::READ_BYTES as usize);
            let tasks: Vec<_> = starts.map(read).collect();
            for task in tasks {
                chunks.push(match task.await {
                    Some(Ok(bytes)) => Some(bytes.freeze()),
                    Some(Err(error)) if error.kind != EnvErrorKind::Medium => return Err(error.into()),
                    _ => None,
                });
            }
        }
        Ok(Image { victim, chunks })
    }

    /// Headers of the runs of the victim's opening, in order, as [`crate::scan::scan_runs`] finds them.
    pub(super) async fn runs_of(&self, image: &Image) -> StoreResult<Vec<RunHeader>> {
        let Victim { slab, epoch } = image.victim;
        let look = |at: u64, bytes: usize| image.at(at, bytes as u64);
        crate::scan::scan_runs_seen(&self.data, &self.geometry, self.identity.uuid, (slab, epoch), &look).await
    }
}
