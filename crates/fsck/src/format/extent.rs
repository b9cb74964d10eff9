//! Extents (docs/format.md, "Rows of the store"): which bytes of an object lie where.

use std::ops::Range;

use forebay_proto::{DecodeError, Fid, Reader, Transno, WriteId, crc, limits::BLOCK_BYTES};

use crate::limits;

/// First byte of an extent's key.
pub const SPACE: u8 = 0x01;
const KEY_BYTES: usize = 25;
const VERSION: u8 = 1;

/// Bytes of an object, cut from a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The object.
    pub fid: Fid,
    /// First byte within the object.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes of the cover (the whole blocks it was cut from) before `offset`.
    pub lead: u64,
    /// Bytes of the cover after the end.
    pub tail: u64,
    /// Slab.
    pub slab: u32,
    /// That slab's opening.
    pub epoch: u64,
    /// Where in the slab the cover begins.
    pub at: u64,
    /// Chosen by the writer.
    pub write_id: WriteId,
    /// Given by the target.
    pub version: Transno,
    /// Layout generation.
    pub generation: u32,
    /// Sum of each block of the cover.
    pub sums: Vec<u64>,
}

impl Extent {
    /// The extent of a row.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, DecodeError> {
        let (fid, offset) = parse_key(key).ok_or(DecodeError::new("its key has a wrong length"))?;
        let mut r = Reader::new(value);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("its version is not known here"));
        }
        r.u8()?;
        let (length, lead, tail) = (u64::from(r.u32()?), u64::from(r.u32()?), u64::from(r.u32()?));
        let (slab, at, epoch) = (r.u32()?, u64::from(r.u32()?), r.u64()?);
        let write_id = WriteId { client: r.u64()?, sequence: r.u64()? };
        let (version, generation) = (Transno(r.u64()?), r.u32()?);
        if !r.remaining().is_multiple_of(8) {
            return Err(DecodeError::new("its sums are cut short"));
        }
        let sums = (0..r.remaining() / 8).map(|_| r.u64()).collect::<Result<_, _>>()?;
        let extent = Self { fid, offset, length, lead, tail, slab, epoch, at, write_id, version, generation, sums };
        extent.check()?;
        Ok(extent)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let possible = self.length != 0
            && self.length <= limits::EXTENT_BYTES
            && self.lead < BLOCK_BYTES
            && self.tail < BLOCK_BYTES
            && self.lead <= self.offset
            && self.offset.checked_add(self.length + self.tail).is_some_and(|end| end < u64::MAX - BLOCK_BYTES);
        if !possible || self.blocks().count() != self.sums.len() {
            return Err(DecodeError::new("its lengths and sums do not fit together"));
        }
        Ok(())
    }

    /// The whole blocks, as a range of the object.
    pub fn cover(&self) -> Range<u64> {
        self.offset - self.lead..self.end() + self.tail
    }

    /// The whole blocks: offset and length, in the order of the sums.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let cover = self.cover();
        crc::blocks(cover.start, cover.end - cover.start, BLOCK_BYTES)
    }

    /// First byte behind it.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// What it counts in its slab.
    pub fn weight(&self) -> u64 {
        self.length + limits::EXTENT_OVERHEAD_BYTES + 8 * self.sums.len() as u64
    }
}

/// Fid and offset of an extent's key.
pub fn parse_key(key: &[u8]) -> Option<(Fid, u64)> {
    if key.len() != KEY_BYTES || key[0] != SPACE {
        return None;
    }
    Some((Fid::from_key(&key[1..17])?, u64::from_be_bytes(key[17..].try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(offset: u64) -> Vec<u8> {
        let fid = Fid { high: 1, low: 2 };
        [&[1][..], &fid.to_key(), &offset.to_be_bytes()].concat()
    }

    fn value(length: u32, lead: u32, tail: u32, sums: &[u64]) -> Vec<u8> {
        let mut out = vec![1, 0];
        [length, lead, tail, 7, 4096].iter().for_each(|word| out.extend(word.to_le_bytes()));
        [9u64, 3, 4, 5].iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(6u32.to_le_bytes());
        sums.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
        out
    }

    #[test]
    fn an_extent_made_by_hand_is_read() {
        let extent = Extent::decode(&key(70_000), &value(100, 70_000 - 65_536, 5, &[11])).unwrap();
        assert_eq!((extent.fid, extent.offset, extent.end()), (Fid { high: 1, low: 2 }, 70_000, 70_100));
        assert_eq!((extent.slab, extent.at, extent.epoch), (7, 4096, 9));
        assert_eq!((extent.write_id, extent.version), (WriteId { client: 3, sequence: 4 }, Transno(5)));
        assert_eq!((extent.cover(), extent.weight()), (65_536..70_105, 100 + 96 + 8));
    }

    #[test]
    fn extents_that_break_the_rules_are_refused() {
        for bad in [
            value(0, 0, 0, &[]),
            value(100, 65_536, 0, &[1]),
            value(100, 0, 65_536, &[1]),
            value(100, 0, 0, &[]),
            value(100, 0, 0, &[1, 2]),
            value((4 << 20) + 1, 0, 0, &[1; 65]),
            value(100, 0, 0, &[1])[..60].to_vec(),
        ] {
            assert!(Extent::decode(&key(65_536), &bad).is_err());
        }
        assert!(Extent::decode(&key(u64::MAX - 50), &value(100, 0, 0, &[1])).is_err());
        assert!(Extent::decode(&key(1)[..20], &value(100, 0, 0, &[1])).is_err());
    }
}
