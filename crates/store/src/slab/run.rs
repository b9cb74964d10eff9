//! Runs: what is appended to a slab at one time.
//!
//! A run is a header (a multiple of 4096 bytes, sealed by a sum) with a descriptor of each fragment, then the payload,
//! padded to 4096. Headers are chained within a slab by their sums, so a lost run is noticed by its successor.
//!
//! Not here: the payload's own sums, which the descriptors carry and readers check.

use forebay_env::{AlignedBuf, Bug, planted};
use forebay_proto::{DecodeError, Fid, Incarnation, Reader, Transno, Uuid, WriteId, Writer, crc};

use crate::limits;

/// First bytes of a run.
pub(crate) const MAGIC: [u8; 8] = *b"FBYRUN01";
/// Version of the run header.
pub(crate) const VERSION: u32 = 1;
/// Bytes before the descriptors.
pub(crate) const FIXED_BYTES: usize = 96;
/// Bytes of a descriptor without its sums.
pub(crate) const DESCRIPTOR_BYTES: usize = 84;
/// Largest header a decoder accepts.
pub(crate) const HEADER_BYTES_MAX: u32 = 1 << 20;
const SUM_AT: usize = 80;

/// What a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentKind {
    /// Bytes of an object.
    Data,
    /// The object ends at `offset` (tombstone).
    Truncate,
    /// `length` bytes from `offset` on are gone (tombstone).
    Punch,
    /// The object is gone (tombstone).
    Destroy,
    /// A page of the table; `fid.low` is its number.
    IndexPage,
    /// The root of a checkpoint, or a part of it at `offset`.
    Root,
}

impl FragmentKind {
    fn code(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Truncate => 2,
            Self::Punch => 3,
            Self::Destroy => 4,
            Self::IndexPage => 5,
            Self::Root => 6,
            // 7 is reserved for members of parity groups.
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Data, Self::Truncate, Self::Punch, Self::Destroy, Self::IndexPage, Self::Root]
            .into_iter()
            .find(|kind| kind.code() == code)
    }

    /// True for fragments without payload that record a removal.
    pub(crate) fn is_tombstone(self) -> bool {
        matches!(self, Self::Truncate | Self::Punch | Self::Destroy)
    }
}

/// One fragment, as its run's header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// What it is.
    pub kind: FragmentKind,
    /// The object, or a page's number.
    pub fid: Fid,
    /// First byte within the object.
    pub offset: u64,
    /// Bytes of the object; tombstones: bytes that are gone (`u64::MAX` = to the end).
    pub length: u64,
    /// Chosen by the writer.
    pub write_id: WriteId,
    /// Given by the target; orders overlaps.
    pub version: Transno,
    /// Layout generation of the write.
    pub generation: u32,
    /// First byte of its payload, from the run's first byte.
    pub payload_at: u32,
    /// Tombstones: the epoch of the slab it was first written to. It is needed while a slab with an older epoch exists.
    pub origin_epoch: u64,
    /// Sum of each block of the payload.
    pub sums: Vec<u64>,
}

impl Descriptor {
    /// Bytes of the descriptor in the header.
    pub(crate) fn encoded_bytes(&self) -> usize {
        DESCRIPTOR_BYTES + 8 * self.sums.len()
    }

    /// Bytes of payload.
    pub(crate) fn payload_bytes(&self) -> u64 {
        if self.kind.is_tombstone() { 0 } else { self.length }
    }

    fn encode(&self, w: &mut Writer) {
        w.prefixed(|w| {
            w.u8(self.kind.code());
            w.u8(0); // flags
            w.u16(0);
            w.u64(self.fid.high);
            w.u64(self.fid.low);
            w.u64(self.offset);
            w.u64(self.length);
            w.u64(self.write_id.client);
            w.u64(self.write_id.sequence);
            w.u64(self.version.0);
            w.u32(self.generation);
            w.u32(self.payload_at);
            w.u64(self.origin_epoch);
            w.u32(self.sums.len() as u32);
            self.sums.iter().for_each(|sum| w.u64(*sum));
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut r = r.prefixed()?;
        let kind =
            FragmentKind::from_code(r.u8()?).ok_or(DecodeError::new("run: a kind of fragment not known here"))?;
        let (_flags, _zero) = (r.u8()?, r.u16()?);
        let mut fragment = Self {
            kind,
            fid: Fid { high: r.u64()?, low: r.u64()? },
            offset: r.u64()?,
            length: r.u64()?,
            write_id: WriteId { client: r.u64()?, sequence: r.u64()? },
            version: Transno(r.u64()?),
            generation: r.u32()?,
            payload_at: r.u32()?,
            origin_epoch: r.u64()?,
            sums: Vec::new(),
        };
        let count = r.u32()? as usize;
        if count > r.remaining() / 8 {
            return Err(DecodeError::new("run: a fragment claims more sums than there are bytes"));
        }
        fragment.sums = (0..count).map(|_| r.u64()).collect::<Result<_, _>>()?;
        Ok(fragment)
    }
}

/// The header of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunHeader {
    /// Header and payload, padding included.
    pub total_bytes: u64,
    /// Slab it lies in.
    pub slab: u32,
    /// The epoch of that slab's opening.
    pub epoch: u64,
    /// Counts the runs of the slab, from 0.
    pub number: u32,
    /// Sum of the previous run's header, or of the slab's.
    pub prev_sum: u64,
    /// The incarnation that wrote it.
    pub incarnation: Incarnation,
    /// The target's generation at that time: lsns of another generation are of another journal.
    pub generation: u32,
    /// Journal position known durable when it was written.
    pub durable_lsn: u64,
    /// Embedded bytes of journal records up to here have been moved to slabs.
    pub moved_lsn: u64,
    /// The highest transno of this incarnation known durable when it was built: see [`committed`].
    pub committed: u32,
    /// What it holds, in the order of the payload.
    pub fragments: Vec<Descriptor>,
}

/// Bytes a header takes whose descriptors take `descriptor_bytes`.
pub(crate) fn header_bytes(descriptor_bytes: usize) -> usize {
    (FIXED_BYTES + descriptor_bytes).next_multiple_of(limits::SECTOR as usize)
}

/// How a run's header names `transno` as committed: by its counter, if transno and run are of one incarnation; else 0.
/// A counter that does not fit counts as the highest that does.
pub(crate) fn committed(transno: Transno, incarnation: Incarnation) -> u32 {
    if transno.incarnation() == incarnation { u32::try_from(transno.counter()).unwrap_or(u32::MAX) } else { 0 }
}

impl RunHeader {
    /// Bytes of the header.
    pub(crate) fn header_bytes(&self) -> usize {
        header_bytes(self.fragments.iter().map(Descriptor::encoded_bytes).sum())
    }

    /// The header's bytes and their sum.
    pub(crate) fn encode(&self, target: Uuid) -> (AlignedBuf, u64) {
        let mut w = Writer::default();
        w.bytes(&MAGIC);
        w.u32(VERSION);
        w.u32(self.header_bytes() as u32);
        w.u64(self.total_bytes);
        w.bytes(&target.0[8..]);
        w.u32(self.slab);
        w.u32(self.number);
        w.u64(self.epoch);
        w.u64(self.prev_sum);
        w.u32(self.incarnation.0);
        w.u32(self.fragments.len() as u32);
        w.u64(self.durable_lsn);
        w.u64(self.moved_lsn);
        w.u64(0); // the sum's place
        w.u32(self.generation);
        w.u32(self.committed);
        self.fragments.iter().for_each(|fragment| fragment.encode(&mut w));
        let mut buf = AlignedBuf::padded_copy(&w.into_vec());
        let sum = crc::crc64(&buf);
        buf[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        (buf, sum)
    }

    /// Bytes of the header that begins with `sector`, if a run of this target seems to begin there.
    pub(crate) fn peek_header_bytes(sector: &[u8], target: Uuid) -> Option<usize> {
        let mut r = Reader::new(sector);
        let ours = r.array::<8>().ok()? == MAGIC && r.u32().ok()? == VERSION;
        let bytes = r.u32().ok()?;
        r.u64().ok()?;
        let ours = ours && r.take(8).ok()? == &target.0[8..];
        let fits = bytes != 0 && bytes <= HEADER_BYTES_MAX && u64::from(bytes).is_multiple_of(limits::SECTOR);
        (ours && fits).then_some(bytes as usize)
    }

    /// The header in exactly these bytes and its sum. Errors name the field.
    pub(crate) fn decode(bytes: &[u8], target: Uuid) -> Result<(Self, u64), DecodeError> {
        if Self::peek_header_bytes(bytes, target) != Some(bytes.len()) {
            return Err(DecodeError::new("run: no run of this target begins here"));
        }
        let stored = u64::from_le_bytes(bytes[SUM_AT..SUM_AT + 8].try_into().expect("eight bytes"));
        let mut zeroed = bytes.to_vec();
        zeroed[SUM_AT..SUM_AT + 8].fill(0);
        if crc::crc64(&zeroed) != stored && !planted(Bug::RunHeaderSumSkipped) {
            return Err(DecodeError::new("run: the header's sum does not match"));
        }
        let mut r = Reader::new(&bytes[16..]);
        let total_bytes = r.u64()?;
        r.take(8)?;
        let (slab, number) = (r.u32()?, r.u32()?);
        let (epoch, prev_sum) = (r.u64()?, r.u64()?);
        let (incarnation, count) = (Incarnation(r.u32()?), r.u32()?);
        let (durable_lsn, moved_lsn) = (r.u64()?, r.u64()?);
        r.u64()?;
        let (generation, committed) = (r.u32()?, r.u32()?);
        if count as usize > r.remaining() / DESCRIPTOR_BYTES {
            return Err(DecodeError::new("run: claims more fragments than its header holds"));
        }
        let fragments = (0..count).map(|_| Descriptor::decode(&mut r)).collect::<Result<_, _>>()?;
        let header = Self {
            total_bytes,
            slab,
            epoch,
            number,
            prev_sum,
            incarnation,
            generation,
            durable_lsn,
            moved_lsn,
            committed,
            fragments,
        };
        header.check_lengths(bytes.len() as u64)?;
        Ok((header, stored))
    }

    fn check_lengths(&self, header_bytes: u64) -> Result<(), DecodeError> {
        let fits = |f: &Descriptor| {
            f.payload_bytes() == 0 && u64::from(f.payload_at) <= self.total_bytes
                || u64::from(f.payload_at) >= header_bytes
                    && f.payload_bytes().checked_add(u64::from(f.payload_at)).is_some_and(|end| end <= self.total_bytes)
        };
        if self.total_bytes < header_bytes || !self.total_bytes.is_multiple_of(limits::SECTOR) {
            return Err(DecodeError::new("run: its length is not possible"));
        }
        if !self.fragments.iter().all(fits) {
            return Err(DecodeError::new("run: a fragment's payload lies outside of it"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RunHeader {
        let data = Descriptor {
            kind: FragmentKind::Data,
            fid: Fid { high: 1, low: 2 },
            offset: 65_536,
            length: 5000,
            write_id: WriteId { client: 3, sequence: 4 },
            version: Transno(5),
            generation: 6,
            payload_at: 4096,
            origin_epoch: 0,
            sums: vec![0x1122_3344_5566_7788],
        };
        let gone = Descriptor {
            kind: FragmentKind::Punch,
            length: 1 << 40,
            payload_at: 0,
            origin_epoch: 9,
            sums: Vec::new(),
            ..data.clone()
        };
        RunHeader {
            total_bytes: 4096 + 8192,
            slab: 7,
            epoch: 8,
            number: 9,
            prev_sum: 10,
            incarnation: Incarnation(11),
            generation: 13,
            durable_lsn: 12 << 12,
            moved_lsn: 12 << 12,
            committed: 0x0102_0304,
            fragments: vec![data, gone],
        }
    }

    const TARGET: Uuid = Uuid([7; 16]);

    #[test]
    fn a_run_header_survives_its_bytes() {
        let (bytes, sum) = sample().encode(TARGET);
        assert_eq!(bytes.len(), 4096);
        assert_eq!(RunHeader::decode(&bytes, TARGET).unwrap(), (sample(), sum));
    }

    #[test]
    fn a_run_header_has_the_bytes_of_the_format_page() {
        let (bytes, sum) = sample().encode(TARGET);
        assert_eq!(&bytes[..16], b"FBYRUN01\x01\0\0\0\0\x10\0\0");
        assert_eq!(bytes[16..32], [0, 0x30, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(bytes[32..48], [7, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[48..64], [10, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[64..80], [0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[80..88], sum.to_le_bytes());
        assert_eq!(bytes[88..96], [13, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(bytes[96..104], [88, 0, 0, 0, 1, 0, 0, 0]); // length of the first descriptor, kind
        assert_eq!(bytes[180..188], 0x1122_3344_5566_7788u64.to_le_bytes());
    }

    #[test]
    fn a_transno_is_named_as_committed_by_runs_of_its_own_incarnation() {
        let transno = |counter| Transno::new(Incarnation(3), counter);
        assert_eq!(committed(transno(70_000), Incarnation(3)), 70_000);
        assert_eq!(committed(transno(70_000), Incarnation(4)), 0);
        assert_eq!(committed(transno(1 << 33), Incarnation(3)), u32::MAX);
    }

    #[test]
    fn every_damaged_byte_of_a_header_is_found() {
        let (bytes, _) = sample().encode(TARGET);
        for at in (0..300).chain([4095]) {
            let mut rotten = bytes.to_vec();
            rotten[at] ^= 0x40;
            assert!(RunHeader::decode(&rotten, TARGET).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_payload_outside_of_its_run_is_refused() {
        let mut header = sample();
        header.fragments[0].length = 9000;
        assert!(RunHeader::decode(&header.encode(TARGET).0, TARGET).is_err());
        header.fragments[0].length = u64::MAX;
        assert!(RunHeader::decode(&header.encode(TARGET).0, TARGET).is_err());
        let mut header = sample();
        header.fragments[1].payload_at = u32::MAX;
        assert!(RunHeader::decode(&header.encode(TARGET).0, TARGET).is_err(), "of a tombstone, too");
    }

    #[test]
    fn anothers_run_is_not_ours() {
        let (bytes, _) = sample().encode(TARGET);
        assert!(RunHeader::decode(&bytes, Uuid([8; 16])).is_err());
    }
}
