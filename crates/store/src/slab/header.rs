//! The header of the device and the header of a slab.
//!
//! Both fill one sector and end in its checksum. A slab header is written once, when the slab is opened; its epoch
//! tells the runs of this opening from stale ones.

use forebay_env::AlignedBuf;
use forebay_proto::{Incarnation, Reader, Uuid, Writer, crc::crc64};

use crate::{Identity, StoreError, StoreErrorKind, StoreResult, limits::SECTOR};

/// First bytes of a data device.
pub(crate) const DEVICE_MAGIC: [u8; 8] = *b"FBYDATA1";
/// First bytes of a slab.
pub(crate) const SLAB_MAGIC: [u8; 8] = *b"FBYSLAB1";
/// Version of both headers.
pub(crate) const VERSION: u32 = 1;

/// How the device is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Number of slabs.
    pub slab_count: u32,
    /// Where slab 0 begins.
    pub first_slab: u64,
    /// Bytes of a full stripe.
    pub stripe_bytes: u64,
}

impl Geometry {
    /// Slabs begin at the first full stripe after the device header.
    pub(crate) fn of(identity: &Identity) -> Self {
        let first_slab = SECTOR.next_multiple_of(identity.stripe_bytes);
        let slab_count = identity.data_bytes.saturating_sub(first_slab) / identity.slab_bytes;
        Self {
            slab_bytes: identity.slab_bytes,
            slab_count: u32::try_from(slab_count).unwrap_or(u32::MAX),
            first_slab,
            stripe_bytes: identity.stripe_bytes,
        }
    }

    /// Device offset of byte `at` of `slab`.
    pub(crate) fn device_offset(&self, slab: u32, at: u64) -> u64 {
        self.first_slab + u64::from(slab) * self.slab_bytes + at
    }
}

/// The header of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabHeader {
    /// Its number.
    pub slab: u32,
    /// The epoch of its opening: unique and rising over all slabs and incarnations of the store.
    pub epoch: u64,
    /// The incarnation that opened it.
    pub incarnation: Incarnation,
}

/// The device header's sector.
pub(crate) fn encode_device(identity: &Identity) -> AlignedBuf {
    let geometry = Geometry::of(identity);
    sealed(|w| {
        w.bytes(&DEVICE_MAGIC);
        w.u32(VERSION);
        w.u32(identity.generation);
        w.bytes(&identity.uuid.0);
        w.u64(geometry.slab_bytes);
        w.u64(geometry.first_slab);
        w.u32(geometry.slab_count);
        w.u32(0);
    })
}

/// Refuses a device that is not this target's.
pub(crate) fn check_device(sector: &[u8], identity: &Identity) -> StoreResult<()> {
    let foreign = |what: String| Err(StoreError::new(StoreErrorKind::Foreign, what));
    let Some(body) = unsealed(sector) else {
        return foreign(format!(
            "the data device of {} has no intact Forebay header: is it the right device?",
            identity.target
        ));
    };
    if body[..8] != DEVICE_MAGIC {
        return foreign(format!(
            "the data device of {} is not a Forebay data device: is it the right one?",
            identity.target
        ));
    }
    if body[8..12] != VERSION.to_le_bytes() {
        return Err(StoreError::new(
            StoreErrorKind::Unsupported,
            format!(
                "the data device of {} has a header of another version; use the release that wrote it",
                identity.target
            ),
        ));
    }
    if body[16..32] != identity.uuid.0 {
        return foreign(format!(
            "the data device belongs to another target than {} ({})",
            identity.target, identity.uuid
        ));
    }
    if encode_device(identity)[32..56] != body[32..56] {
        return foreign(format!("the data device of {} is divided otherwise than its identity says", identity.target));
    }
    Ok(())
}

impl SlabHeader {
    /// The header's sector.
    pub(crate) fn encode(&self, target: Uuid) -> AlignedBuf {
        sealed(|w| {
            w.bytes(&SLAB_MAGIC);
            w.u32(VERSION);
            w.u32(self.slab);
            w.u64(self.epoch);
            w.u32(self.incarnation.0);
            w.u32(0);
            w.bytes(&target.0);
        })
    }

    /// The header in a slab's first sector, and its sum. None: never opened, foreign or damaged.
    pub(crate) fn decode(sector: &[u8], target: Uuid) -> Option<(Self, u64)> {
        let body = unsealed(sector)?;
        let mut r = Reader::new(body);
        let known = r.array::<8>().ok()? == SLAB_MAGIC && r.u32().ok()? == VERSION;
        let header = Self { slab: r.u32().ok()?, epoch: r.u64().ok()?, incarnation: Incarnation(r.u32().ok()?) };
        r.u32().ok()?;
        let ours = r.array::<16>().ok()? == target.0;
        (known && ours).then(|| (header, sum_of(sector)))
    }
}

/// The sum stored in a sealed sector.
pub(crate) fn sum_of(sector: &[u8]) -> u64 {
    let end = SECTOR as usize;
    u64::from_le_bytes(sector[end - 8..end].try_into().expect("eight bytes"))
}

fn sealed(body: impl FnOnce(&mut Writer)) -> AlignedBuf {
    let mut w = Writer::default();
    body(&mut w);
    let mut sector = AlignedBuf::padded_copy(&w.into_vec());
    let end = SECTOR as usize - 8;
    let sum = crc64(&sector[..end]);
    sector[end..].copy_from_slice(&sum.to_le_bytes());
    sector
}

fn unsealed(sector: &[u8]) -> Option<&[u8]> {
    let sector = sector.get(..SECTOR as usize)?;
    let body = &sector[..sector.len() - 8];
    (crc64(body) == sum_of(sector)).then_some(body)
}
