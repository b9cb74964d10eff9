//! Extents (docs/format.md, "Rows of the store"): where the bytes of an object are.

use std::ops::Range;

use forebay_proto::{DecodeError, Fid, Reader, Transno, WriteId, Writer, crc, limits::BLOCK_BYTES};

use crate::limits;

/// First byte of an extent's key.
pub const SPACE: u8 = 0x01;
const KEY_BYTES: usize = 25;
const VERSION: u8 = 1;
/// The slab number in an extent of lost bytes. No slab has it.
pub const NOWHERE: u32 = u32::MAX;

/// Bytes of an object in a part of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The object.
    pub fid: Fid,
    /// First byte within the object.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Bytes of the cover before `offset`. The cover is the range of whole blocks that the extent was cut from.
    pub lead: u64,
    /// Bytes of the cover after the end.
    pub tail: u64,
    /// The slab.
    pub slab: u32,
    /// The slab's epoch.
    pub epoch: u64,
    /// Offset of the cover in the slab.
    pub at: u64,
    /// Chosen by the writer.
    pub write_id: WriteId,
    /// Assigned by the target.
    pub version: Transno,
    /// Layout generation.
    pub generation: u32,
    /// The sum of each block of the cover.
    pub sums: Vec<u64>,
}

impl Extent {
    /// Decodes a row.
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

    /// Extents for lost bytes, as many as needed: reads of them fail. For repair.
    pub fn lost(fid: Fid, range: Range<u64>) -> impl Iterator<Item = Self> {
        crc::blocks(range.start, range.end - range.start, limits::EXTENT_BYTES).map(move |(offset, length)| {
            let sums = crc::blocks(offset, length, BLOCK_BYTES).map(|_| 0).collect();
            let (slab, epoch, at) = (NOWHERE, 0, 0);
            let (write_id, version, generation) = (WriteId::default(), Transno(0), 0);
            Self { fid, offset, length, lead: 0, tail: 0, slab, epoch, at, write_id, version, generation, sums }
        })
    }

    /// True if its bytes are lost.
    pub fn is_lost(&self) -> bool {
        self.slab == NOWHERE
    }

    /// Encodes the row's value; for repair.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u8(0);
        [self.length, self.lead, self.tail].iter().for_each(|bytes| w.u32(*bytes as u32));
        w.u32(self.slab);
        w.u32(self.at as u32);
        [self.epoch, self.write_id.client, self.write_id.sequence, self.version.0].iter().for_each(|word| w.u64(*word));
        w.u32(self.generation);
        self.sums.iter().for_each(|sum| w.u64(*sum));
        w.into_vec()
    }

    /// Encodes the row's key; for repair.
    pub fn key(&self) -> Vec<u8> {
        [&[SPACE][..], &self.fid.to_key(), &self.offset.to_be_bytes()].concat()
    }

    /// The part within `range`, with the whole blocks that it needs; for repair.
    pub fn within(&self, range: &Range<u64>) -> Option<Self> {
        let (start, end) = (self.offset.max(range.start), self.end().min(range.end));
        if start >= end {
            return None;
        }
        let blocks: Vec<(u64, u64)> = self.blocks().collect();
        let needed = |(at, length): &(u64, u64)| *at < end && at + length > start;
        let first = blocks.iter().position(needed)?;
        let count = blocks[first..].iter().take_while(|block| needed(block)).count();
        let (from, (last, bytes)) = (blocks[first].0, blocks[first + count - 1]);
        Some(Self {
            offset: start,
            length: end - start,
            lead: start - from,
            tail: last + bytes - end,
            at: self.at + (from - self.cover().start),
            sums: self.sums[first..first + count].to_vec(),
            ..self.clone()
        })
    }

    /// The cover, as a range of the object.
    pub fn cover(&self) -> Range<u64> {
        self.offset - self.lead..self.end() + self.tail
    }

    /// The blocks of the cover: offset and length, in the order of the sums.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let cover = self.cover();
        crc::blocks(cover.start, cover.end - cover.start, BLOCK_BYTES)
    }

    /// Offset of the first byte behind it.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// What it adds to its slab's live bytes.
    pub fn weight(&self) -> u64 {
        self.length + limits::EXTENT_OVERHEAD_BYTES + 8 * self.sums.len() as u64
    }
}

/// Fid and offset in an extent's key.
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
    fn an_extent_is_written_as_it_is_read_and_cut_at_blocks() {
        let (offset, length) = (70_000, 200_000);
        let sums: Vec<u64> = (0..4).collect();
        let whole = Extent::decode(&key(offset), &value(length, 70_000 - 65_536, 3, &sums)).unwrap();
        assert_eq!((whole.key(), whole.encode()), (key(offset), value(length, 70_000 - 65_536, 3, &sums)));
        for range in
            [0..u64::MAX, 70_000..70_001, 131_071..131_073, 131_072..196_608, 269_999..270_000, 100_000..250_000]
        {
            let part = whole.within(&range).unwrap();
            let again = Extent::decode(&part.key(), &part.encode()).unwrap();
            assert_eq!(again, part, "{range:?}");
            let skipped = part.cover().start - whole.cover().start;
            assert_eq!(part.at, whole.at + skipped);
            assert_eq!(part.sums, sums[(skipped.div_ceil(65_536)) as usize..][..part.sums.len()]);
        }
        assert_eq!((whole.within(&(0..70_000)), whole.within(&(270_000..280_000))), (None, None));
    }

    #[test]
    fn lost_bytes_are_extents_that_lie_nowhere() {
        let fid = Fid { high: 1, low: 2 };
        let lost: Vec<Extent> = Extent::lost(fid, 100..(9 << 20) + 1).collect();
        assert_eq!(lost.iter().map(|extent| extent.length).sum::<u64>(), (9 << 20) - 99);
        for extent in &lost {
            assert!(extent.is_lost() && extent.length <= limits::EXTENT_BYTES);
            assert_eq!(Extent::decode(&extent.key(), &extent.encode()).as_ref(), Ok(extent));
        }
        // The bytes on disk: docs/format.md, "What repair writes".
        let value = Extent::lost(fid, 0..10).next().unwrap().encode();
        let expected = [&[1, 0, 10][..], &[0; 11], &[255; 4], &[0; 48]].concat();
        assert_eq!(value, expected);
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
