//! The data device's header and the slabs' headers (docs/format.md, "Data device" and "Slab").

use forebay_proto::{DecodeError, Incarnation, Reader, Uuid, crc::crc64};

use super::word64;
use crate::limits::SECTOR;

const DEVICE_MAGIC: &[u8; 8] = b"FBYDATA1";
const SLAB_MAGIC: &[u8; 8] = b"FBYSLAB1";
const VERSION: u32 = 1;

/// The first sector of a data device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHeader {
    /// The target that the device belongs to.
    pub uuid: Uuid,
    /// Slab size.
    pub slab_bytes: u64,
    /// Where slab 0 begins.
    pub first_slab: u64,
    /// Number of slabs.
    pub slab_count: u32,
}

/// The first sector of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabHeader {
    /// The slab's number.
    pub slab: u32,
    /// The epoch of its current opening.
    pub epoch: u64,
    /// The incarnation that opened it.
    pub incarnation: Incarnation,
    /// The header's own sum, which the first run names.
    pub sum: u64,
}

/// What is in the place of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<T> {
    /// A header.
    Intact(T),
    /// All zeros.
    Blank,
    /// A slab of another target.
    Foreign(Uuid),
    /// None of these, with the reason.
    Damaged(&'static str),
}

/// Decodes a data device's first sector.
pub fn decode_device(sector: &[u8]) -> Header<DeviceHeader> {
    let body = match unseal(sector, DEVICE_MAGIC) {
        Ok(body) => body,
        Err(header) => return header.into(),
    };
    let read = || {
        let mut r = Reader::new(&body[16..]);
        let uuid = Uuid(r.array()?);
        Ok::<_, DecodeError>(DeviceHeader { uuid, slab_bytes: r.u64()?, first_slab: r.u64()?, slab_count: r.u32()? })
    };
    read().map_or(Header::Damaged("it is too short"), Header::Intact)
}

/// Decodes a slab's first sector.
pub fn decode_slab(sector: &[u8], target: Uuid) -> Header<SlabHeader> {
    let body = match unseal(sector, SLAB_MAGIC) {
        Ok(body) => body,
        Err(header) => return header.into(),
    };
    let read = || {
        let mut r = Reader::new(&body[12..]);
        let (slab, epoch, incarnation) = (r.u32()?, r.u64()?, Incarnation(r.u32()?));
        r.u32()?;
        Ok::<_, DecodeError>((SlabHeader { slab, epoch, incarnation, sum: sum_of(sector) }, Uuid(r.array()?)))
    };
    match read() {
        Ok((_, owner)) if owner != target => Header::Foreign(owner),
        Ok((header, _)) => Header::Intact(header),
        Err(_) => Header::Damaged("it is too short"),
    }
}

enum Unsealed {
    Blank,
    Damaged(&'static str),
}

impl<T> From<Unsealed> for Header<T> {
    fn from(unsealed: Unsealed) -> Self {
        match unsealed {
            Unsealed::Blank => Self::Blank,
            Unsealed::Damaged(what) => Self::Damaged(what),
        }
    }
}

/// The sector without its sum, if magic, version and sum are right.
fn unseal<'a>(sector: &'a [u8], magic: &[u8; 8]) -> Result<&'a [u8], Unsealed> {
    let Some(sector) = sector.get(..SECTOR as usize) else { return Err(Unsealed::Damaged("it is too short")) };
    if sector.iter().all(|byte| *byte == 0) {
        return Err(Unsealed::Blank);
    }
    let body = &sector[..sector.len() - 8];
    if body[..8] != *magic {
        return Err(Unsealed::Damaged("it has no magic"));
    }
    if crc64(body) != sum_of(sector) {
        return Err(Unsealed::Damaged("its sum does not match"));
    }
    if super::word32(body, 8) != VERSION {
        return Err(Unsealed::Damaged("its version is not known here"));
    }
    Ok(body)
}

fn sum_of(sector: &[u8]) -> u64 {
    word64(sector, SECTOR as usize - 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut sector = vec![0; 4096];
        fields.iter().for_each(|(at, bytes)| sector[*at..at + bytes.len()].copy_from_slice(bytes));
        let sum = crc64(&sector[..4088]);
        sector[4088..].copy_from_slice(&sum.to_le_bytes());
        sector
    }

    #[test]
    fn a_slab_header_made_by_hand_is_read() {
        let sector = sealed(&[(0, b"FBYSLAB1"), (8, &[1]), (12, &[5]), (16, &[9]), (24, &[3]), (32, &[2; 16])]);
        let Header::Intact(header) = decode_slab(&sector, Uuid([2; 16])) else { panic!("it is intact") };
        assert_eq!((header.slab, header.epoch, header.incarnation), (5, 9, Incarnation(3)));
        assert_eq!(decode_slab(&sector, Uuid([3; 16])), Header::Foreign(Uuid([2; 16])));
        for at in 0..4096 {
            let mut rotten = sector.clone();
            rotten[at] ^= 0x10;
            assert!(matches!(decode_slab(&rotten, Uuid([2; 16])), Header::Damaged(_)), "byte {at}");
        }
    }

    #[test]
    fn a_device_header_made_by_hand_is_read() {
        let sector =
            sealed(&[(0, b"FBYDATA1"), (8, &[1]), (16, &[2; 16]), (32, &[0, 0, 16]), (40, &[0, 0, 1]), (48, &[15])]);
        let expected = DeviceHeader { uuid: Uuid([2; 16]), slab_bytes: 1 << 20, first_slab: 1 << 16, slab_count: 15 };
        assert_eq!(decode_device(&sector), Header::Intact(expected));
        assert_eq!(decode_device(&vec![0; 4096]), Header::Blank);
        assert!(matches!(decode_device(&sector[..100]), Header::Damaged(_)));
    }
}
