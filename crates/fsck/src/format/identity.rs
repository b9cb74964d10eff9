//! The identity file (docs/format.md, "Identity").

use forebay_proto::{DecodeError, Reader, TargetId, TargetKind, Uuid, crc::crc64};

use super::word64;
use crate::limits;

const MAGIC: &[u8; 8] = b"FBYIDENT";
/// Incompatible feature bit: the target has two copies.
const MIRRORED: u64 = 1;
const VERSION: u32 = 1;
const BYTES: usize = 512;

/// What a target's directory says about the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: Uuid,
    /// The target.
    pub uuid: Uuid,
    /// Its kind and index.
    pub target: TargetId,
    /// Slab size.
    pub slab_bytes: u64,
    /// Size of the device's full stripe.
    pub stripe_bytes: u64,
    /// Size of the data device.
    pub data_bytes: u64,
    /// Size of the journal.
    pub journal_bytes: u64,
    /// Raised by each repair.
    pub generation: u32,
    /// Compatible features.
    pub compat: u64,
    /// Read-only-compatible features. This program knows none: where there are any, it only reads.
    pub ro_compat: u64,
    /// Incompatible features.
    pub incompat: u64,
}

/// Why the bytes are not a valid identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoIdentity {
    /// Not an identity file.
    Foreign,
    /// Another format version, or unknown features.
    Unsupported(String),
    /// Damaged, with the reason.
    Damaged(&'static str),
}

impl Identity {
    /// True if the target has two copies.
    pub fn is_mirrored(&self) -> bool {
        self.incompat & MIRRORED != 0
    }

    /// Decodes the file.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoIdentity> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(NoIdentity::Foreign);
        }
        let version = super::word32(bytes, 8);
        if version != VERSION {
            return Err(NoIdentity::Unsupported(format!("format version {version}, this program reads {VERSION}")));
        }
        if bytes.len() != BYTES {
            return Err(NoIdentity::Damaged("it is not 512 bytes long"));
        }
        if crc64(&bytes[..BYTES - 8]) != word64(bytes, BYTES - 8) {
            return Err(NoIdentity::Damaged("its sum does not match"));
        }
        let identity = Self::fields(&bytes[16..]).map_err(|error| NoIdentity::Damaged(error.what))?;
        let unknown = identity.incompat & !MIRRORED;
        if unknown != 0 {
            return Err(NoIdentity::Unsupported(format!("features {unknown:#x}, which this program does not know")));
        }
        identity.check().map_err(NoIdentity::Damaged)?;
        Ok(identity)
    }

    fn fields(body: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let (compat, ro_compat, incompat) = (r.u64()?, r.u64()?, r.u64()?);
        let (cluster, uuid) = (Uuid(r.array()?), Uuid(r.array()?));
        let kind = match r.u32()? {
            1 => TargetKind::Mdt,
            2 => TargetKind::Ost,
            _ => return Err(DecodeError::new("its kind is neither MDT (1) nor OST (2)")),
        };
        let target = TargetId { kind, index: r.u32()? };
        let (slab_bytes, stripe_bytes) = (r.u64()?, r.u64()?);
        let (sector, generation) = (r.u32()?, r.u32()?);
        if u64::from(sector) != limits::SECTOR {
            return Err(DecodeError::new("its sector is not 4096"));
        }
        let (data_bytes, journal_bytes) = (r.u64()?, r.u64()?);
        Ok(Self {
            cluster,
            uuid,
            target,
            slab_bytes,
            stripe_bytes,
            data_bytes,
            journal_bytes,
            generation,
            compat,
            ro_compat,
            incompat,
        })
    }

    fn check(&self) -> Result<(), &'static str> {
        let sectors = |bytes: u64| bytes != 0 && bytes.is_multiple_of(limits::SECTOR);
        if !sectors(self.slab_bytes) || !limits::SLAB_BYTES.contains(&self.slab_bytes) {
            return Err("its slab size is impossible");
        }
        if !sectors(self.stripe_bytes) || !self.slab_bytes.is_multiple_of(self.stripe_bytes) {
            return Err("its full stripe is impossible");
        }
        if self.data_bytes < self.first_slab() || self.slabs_wide() == 0 || self.slabs_wide() > u64::from(u32::MAX / 2)
        {
            return Err("its data device's size is impossible");
        }
        if !sectors(self.journal_bytes) || self.journal_bytes < limits::RING_START + limits::RING_BYTES_MIN {
            return Err("its journal's size is impossible");
        }
        Ok(())
    }

    /// Offset of slab 0: the first full stripe behind the device header.
    pub fn first_slab(&self) -> u64 {
        limits::SECTOR.next_multiple_of(self.stripe_bytes)
    }

    fn slabs_wide(&self) -> u64 {
        self.data_bytes.saturating_sub(self.first_slab()) / self.slab_bytes
    }

    /// Number of slabs.
    pub fn slab_count(&self) -> u32 {
        self.slabs_wide() as u32
    }

    /// Device offset of byte `at` of `slab`.
    pub fn device_offset(&self, slab: u32, at: u64) -> u64 {
        self.first_slab() + u64::from(slab) * self.slab_bytes + at
    }

    /// The bytes of the file with another generation.
    pub fn with_generation(bytes: &[u8], generation: u32) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[100..104].copy_from_slice(&generation.to_le_bytes());
        let sum = crc64(&bytes[..BYTES - 8]);
        bytes[BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Made by hand from the format page.
    pub(crate) fn sample() -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(b"FBYIDENT");
        bytes[8] = 1;
        bytes[12..14].copy_from_slice(&[0, 2]);
        bytes[40..56].fill(1);
        bytes[56..72].fill(2);
        bytes[72] = 2;
        bytes[76] = 3;
        bytes[80..88].copy_from_slice(&(1u64 << 20).to_le_bytes());
        bytes[88..96].copy_from_slice(&(64u64 << 10).to_le_bytes());
        bytes[96..100].copy_from_slice(&4096u32.to_le_bytes());
        bytes[100] = 7;
        bytes[104..112].copy_from_slice(&(16u64 << 20).to_le_bytes());
        bytes[112..120].copy_from_slice(&(1u64 << 20).to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    fn seal(bytes: &mut [u8]) {
        let sum = crc64(&bytes[..504]);
        bytes[504..].copy_from_slice(&sum.to_le_bytes());
    }

    #[test]
    fn an_identity_made_by_hand_is_read() {
        let identity = Identity::decode(&sample()).unwrap();
        assert_eq!((identity.target, identity.generation), (TargetId::ost(3), 7));
        assert_eq!((identity.cluster, identity.uuid), (Uuid([1; 16]), Uuid([2; 16])));
        assert_eq!((identity.first_slab(), identity.slab_count()), (64 << 10, 15));
        assert_eq!(identity.device_offset(2, 5), (64 << 10) + (2 << 20) + 5);
    }

    #[test]
    fn foreign_damaged_and_unsupported_identities_are_told_apart() {
        assert_eq!(Identity::decode(b"hello"), Err(NoIdentity::Foreign));
        assert!(matches!(Identity::decode(&sample()[..100]), Err(NoIdentity::Damaged(_))));
        for at in 16..512 {
            let mut bytes = sample();
            bytes[at] ^= 1;
            assert!(matches!(Identity::decode(&bytes), Err(NoIdentity::Damaged(_))), "byte {at}");
        }
        let mut featured = sample();
        featured[32] = 4;
        seal(&mut featured);
        assert!(matches!(Identity::decode(&featured), Err(NoIdentity::Unsupported(_))));
        let mut readable = sample();
        readable[24] = 4;
        seal(&mut readable);
        assert_eq!(Identity::decode(&readable).map(|identity| identity.ro_compat), Ok(4));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (at, value) in [(80, 5u64), (80, 1 << 40), (88, 0), (104, 4096), (112, 4096)] {
            let mut bytes = sample();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            seal(&mut bytes);
            assert!(matches!(Identity::decode(&bytes), Err(NoIdentity::Damaged(_))), "{at} {value}");
        }
    }

    #[test]
    fn another_generation_leaves_the_rest() {
        let next = Identity::decode(&Identity::with_generation(&sample(), 8)).unwrap();
        assert_eq!(Identity { generation: 7, ..next }, Identity::decode(&sample()).unwrap());
    }
}
