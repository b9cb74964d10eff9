//! Extents: rows of the table that say where an object's bytes lie, and the arithmetic of overlaps.
//!
//! An extent is a piece of a placed fragment. It keeps the location, the geometry and the sums of the *whole blocks*
//! that it was cut from (its cover), so that a cut piece can still be verified. Extents of an object never overlap.
//!
//! Adjacent extents are not merged: each keeps the write id, version and sums of its own fragment.

use std::ops::Range;

use forebay_proto::{DecodeError, Fid, Reader, Transno, WriteId, Writer, crc, limits::BLOCK_BYTES};

use crate::{limits, slab::Place};

/// First byte of an extent's key.
pub(crate) const SPACE: u8 = 0x01;
/// Bytes of an extent's key.
pub(crate) const KEY_BYTES: usize = 25;
const VALUE_VERSION: u8 = 1;

/// Bytes `offset..offset + length` of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte within the object.
    pub offset: u64,
    /// Bytes; at most [`limits::EXTENT_BYTES`].
    pub length: u64,
    /// Bytes of the cover before `offset`.
    pub lead: u32,
    /// Bytes of the cover after the end.
    pub tail: u32,
    /// Where the cover's first byte lies.
    pub place: Place,
    /// Chosen by the writer; seeds the sums.
    pub write_id: WriteId,
    /// Given by the target.
    pub version: Transno,
    /// Layout generation of the write.
    pub generation: u32,
    /// Sum of each block of the cover.
    pub sums: Vec<u64>,
}

/// What happens to a row of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The extent at this offset is deleted.
    Delete(u64),
    /// This extent is put at its offset.
    Put(Extent),
}

/// Key of the extent of `fid` at `offset`.
pub(crate) fn key(fid: Fid, offset: u64) -> [u8; KEY_BYTES] {
    let mut key = [SPACE; KEY_BYTES];
    key[1..17].copy_from_slice(&fid.to_key());
    key[17..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// Fid and offset of an extent's key.
pub(crate) fn parse_key(key: &[u8]) -> Option<(Fid, u64)> {
    if key.len() != KEY_BYTES || key[0] != SPACE {
        return None;
    }
    Some((Fid::from_key(&key[1..17])?, u64::from_be_bytes(key[17..].try_into().ok()?)))
}

impl Extent {
    /// First byte behind it.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The whole blocks it was cut from, as a range of the object.
    pub(crate) fn cover(&self) -> Range<u64> {
        self.offset - u64::from(self.lead)..self.end() + u64::from(self.tail)
    }

    /// Blocks of the cover: (offset, length) in order of the sums.
    pub(crate) fn cover_blocks(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let cover = self.cover();
        crc::blocks(cover.start, cover.end - cover.start, BLOCK_BYTES)
    }

    /// The weight that it adds to its slab: its bytes, and its descriptor when the cleaner moves it.
    pub(crate) fn weight(&self) -> u64 {
        weight(self.length, self.sums.len())
    }

    /// The piece `range` of it, with the whole blocks that piece needs. `range` must lie within it, and not be empty.
    pub(crate) fn cut(&self, range: Range<u64>) -> Extent {
        assert!(
            self.offset <= range.start && range.start < range.end && range.end <= self.end(),
            "cut outside of an extent"
        );
        let cover = self.cover();
        let start = (range.start / BLOCK_BYTES * BLOCK_BYTES).max(cover.start);
        let end = range.end.next_multiple_of(BLOCK_BYTES).min(cover.end);
        let skipped = crc::blocks(cover.start, start - cover.start, BLOCK_BYTES).count();
        let kept = crc::blocks(start, end - start, BLOCK_BYTES).count();
        Extent {
            offset: range.start,
            length: range.end - range.start,
            lead: (range.start - start) as u32,
            tail: (end - range.end) as u32,
            place: Place { at: self.place.at + (start - cover.start) as u32, ..self.place },
            sums: self.sums[skipped..skipped + kept].to_vec(),
            ..*self
        }
    }

    /// The row's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VALUE_VERSION);
        w.u8(0); // flags
        w.u32(self.length as u32);
        w.u32(self.lead);
        w.u32(self.tail);
        w.u32(self.place.slab);
        w.u32(self.place.at);
        w.u64(self.place.epoch);
        w.u64(self.write_id.client);
        w.u64(self.write_id.sequence);
        w.u64(self.version.0);
        w.u32(self.generation);
        self.sums.iter().for_each(|sum| w.u64(*sum));
        w.into_vec()
    }

    /// The extent in a row at `offset`. Errors name the field.
    pub(crate) fn decode(offset: u64, value: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(value);
        if r.u8()? != VALUE_VERSION {
            return Err(DecodeError::new("extent: a version not known here"));
        }
        r.u8()?;
        let (length, lead, tail) = (u64::from(r.u32()?), r.u32()?, r.u32()?);
        let (slab, at, epoch) = (r.u32()?, r.u32()?, r.u64()?);
        let write_id = WriteId { client: r.u64()?, sequence: r.u64()? };
        let (version, generation) = (Transno(r.u64()?), r.u32()?);
        let sums = (0..r.remaining() / 8).map(|_| r.u64()).collect::<Result<_, _>>()?;
        let place = Place { slab, epoch, at };
        let extent = Self { offset, length, lead, tail, place, write_id, version, generation, sums };
        let sane = length != 0
            && length <= limits::EXTENT_BYTES
            && u64::from(lead) < BLOCK_BYTES
            && u64::from(tail) < BLOCK_BYTES
            && u64::from(lead) <= offset
            && offset.checked_add(length + u64::from(tail)).is_some();
        if !sane || extent.cover_blocks().count() != extent.sums.len() {
            return Err(DecodeError::new("extent: its lengths and sums do not fit together"));
        }
        Ok(extent)
    }
}

/// The weight that `length` live bytes with `sums` blocks add to their slab.
pub(crate) fn weight(length: u64, sums: usize) -> u64 {
    length + limits::EXTENT_OVERHEAD_BYTES + 8 * sums as u64
}

/// Location and weight of a row, if it is an extent.
pub(crate) fn row_weight(key: &[u8], value: &[u8]) -> Option<(Place, u64)> {
    let (_, offset) = parse_key(key)?;
    let extent = Extent::decode(offset, value).ok()?;
    Some((extent.place, extent.weight()))
}

/// Removes `range` from `existing`, the extents that overlap it: the parts outside of it stay.
pub(crate) fn plan_remove(existing: &[Extent], range: Range<u64>) -> Vec<Change> {
    let mut changes = Vec::new();
    for extent in existing {
        if extent.end() <= range.start || extent.offset >= range.end {
            continue;
        }
        if extent.offset < range.start {
            changes.push(Change::Put(extent.cut(extent.offset..range.start)));
        } else {
            changes.push(Change::Delete(extent.offset));
        }
        if extent.end() > range.end {
            changes.push(Change::Put(extent.cut(range.end..extent.end())));
        }
    }
    changes
}

/// Lays `new` over `existing`, the extents that overlap it.
pub(crate) fn plan_insert(existing: &[Extent], new: Extent) -> Vec<Change> {
    let mut changes = plan_remove(existing, new.offset..new.end());
    changes.push(Change::Put(new));
    changes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A generator good enough for tests: the same numbers for the same seed.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % n
        }
    }

    fn fragment(number: u64, offset: u64, length: u64) -> Extent {
        let blocks = crc::blocks(offset, length, BLOCK_BYTES);
        Extent {
            offset,
            length,
            lead: 0,
            tail: 0,
            place: Place { slab: number as u32, epoch: 1, at: 4096 },
            write_id: WriteId { client: 1, sequence: number },
            version: Transno(number),
            generation: 1,
            sums: blocks.map(|(at, _)| number << 32 | at).collect(),
        }
    }

    fn apply(index: &mut BTreeMap<u64, Extent>, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Delete(offset) => assert!(index.remove(&offset).is_some()),
                Change::Put(extent) => drop(index.insert(extent.offset, extent)),
            }
        }
    }

    fn overlapping(index: &BTreeMap<u64, Extent>, range: Range<u64>) -> Vec<Extent> {
        let from = range.start.saturating_sub(limits::EXTENT_BYTES - 1);
        index.range(from..range.end).map(|(_, e)| e.clone()).filter(|e| e.end() > range.start).collect()
    }

    #[test]
    fn random_inserts_and_removals_equal_a_model_of_single_bytes() {
        const UNIT: u64 = 1000; // so that nothing lies at block boundaries by accident
        for seed in 0..60 {
            let mut chance = Chance(seed);
            let mut model = vec![0u64; 600];
            let mut index = BTreeMap::new();
            for number in 1..80 {
                let start = chance.below(599);
                let end = start + 1 + chance.below((600 - start).min(300));
                let removes = chance.below(5) == 0;
                model[start as usize..end as usize].fill(if removes { 0 } else { number });
                let (range, existing) = (start * UNIT..end * UNIT, overlapping(&index, start * UNIT..end * UNIT));
                let changes = match removes {
                    true => plan_remove(&existing, range),
                    false => plan_insert(&existing, fragment(number, range.start, range.end - range.start)),
                };
                apply(&mut index, changes);
                check(&index, &model, UNIT, seed);
            }
        }
    }

    fn check(index: &BTreeMap<u64, Extent>, model: &[u64], unit: u64, seed: u64) {
        let mut seen = vec![0; model.len()];
        let mut end = 0;
        for extent in index.values() {
            assert!(extent.offset >= end, "seed {seed}: extents overlap");
            end = extent.end();
            seen[(extent.offset / unit) as usize..(end / unit) as usize].fill(extent.version.0);
            let blocks: Vec<u64> = extent.cover_blocks().map(|(at, _)| extent.version.0 << 32 | at).collect();
            assert_eq!(extent.sums, blocks, "seed {seed}: sums are not those of the cover");
            assert_eq!(Extent::decode(extent.offset, &extent.encode()).as_ref(), Ok(extent));
        }
        assert_eq!(seen, model, "seed {seed}");
    }

    #[test]
    fn a_cut_piece_points_at_the_first_whole_block_it_needs() {
        let whole = fragment(1, 1000, 200_000);
        let piece = whole.cut(140_000..141_000);
        assert_eq!(piece.cover(), 131_072..196_608);
        assert_eq!(piece.place.at, 4096 + 131_072 - 1000);
        assert_eq!(piece.sums, [1 << 32 | 131_072]);
        assert_eq!(whole.cut(1000..1001).cover(), 1000..65_536);
        assert_eq!(whole.cut(1000..201_000), whole);
    }

    #[test]
    fn keys_are_ordered_as_fids_and_offsets_and_can_be_read_back() {
        let (a, b) = (Fid { high: 0, low: 255 }, Fid { high: 0, low: 256 });
        assert!(key(a, u64::MAX) < key(b, 0));
        assert!(key(a, 255) < key(a, 256));
        assert_eq!(parse_key(&key(b, 77)), Some((b, 77)));
    }

    #[test]
    fn an_extent_has_the_bytes_of_the_format_page() {
        let bytes = fragment(0x0a0b, 65_536, 100).encode();
        let mut expected = vec![1, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b, 0x0a, 0, 0, 0, 16, 0, 0];
        expected.extend([1, 0, 0, 0, 0, 0, 0, 0]); // epoch
        expected.extend([1, 0, 0, 0, 0, 0, 0, 0, 0x0b, 0x0a, 0, 0, 0, 0, 0, 0]); // write id
        expected.extend([0x0b, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]); // version, generation
        expected.extend((0x0a0bu64 << 32 | 65_536).to_le_bytes());
        assert_eq!(bytes, expected);
    }

    #[test]
    fn nonsense_rows_are_refused() {
        let good = fragment(1, 65_536, 100).encode();
        assert!(Extent::decode(65_536, &good[..good.len() - 8]).is_err());
        assert!(Extent::decode(65_536, &good[..20]).is_err());
        assert!(Extent::decode(65_536, &[2; 66]).is_err());
        let mut empty = good;
        empty[2] = 0;
        assert!(Extent::decode(65_536, &empty).is_err());
    }
}
