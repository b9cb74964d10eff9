//! Labels: two sectors behind the bytes of each copy of a part, written in turn, that say what the copy is.
//!
//! Invariant: label `seq` lies in the first sector if odd, in the second if even; so a torn write leaves the previous
//! one.
//! Not here: which of two copies counts (see `judge`).

use forebay_env::AlignedBuf;
use forebay_proto::{DecodeError, Reader, Uuid, Writer, crc::crc64};

use crate::limits::{MIRROR_LABEL_BYTES, SECTOR};

const MAGIC: [u8; 8] = *b"FBmirror";
const VERSION: u32 = 1;

/// Which part of a store is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Slabs.
    Data,
    /// Anchors and records.
    Journal,
}

impl Part {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Journal => "journal",
        }
    }
}

/// State of a copy, as of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It holds every byte that was ever called durable.
    Member,
    /// It holds them up to the position; the rest is being copied.
    Syncing,
    /// Prepared to become a copy: its contents do not count.
    New,
    /// Left behind: writes were called durable without it.
    Out,
}

/// What the label of a copy says of it and of its mate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The target.
    pub target: Uuid,
    /// The part.
    pub part: Part,
    /// Counts this copy's labels, from 1.
    pub seq: u64,
    /// Counts the changes of which copies hold everything.
    pub epoch: u64,
    /// Id of this copy: random, new each time a copy is made.
    pub copy: u64,
    /// State of this copy.
    pub standing: Standing,
    /// Id of the other copy; 0 = there is none yet.
    pub mate: u64,
    /// State of the other copy.
    pub mate_standing: Standing,
    /// Bytes that the copy being filled holds.
    pub position: u64,
    /// Bytes of the part, which are those before the first label.
    pub bytes: u64,
}

impl Label {
    /// Where it lies.
    pub(crate) fn offset(&self) -> u64 {
        self.bytes + if self.seq % 2 == 1 { 0 } else { SECTOR }
    }

    /// Its sector.
    pub(crate) fn encode(&self) -> AlignedBuf {
        let mut w = Writer::default();
        w.u64(0); // the sum, last
        w.bytes(&MAGIC);
        w.u32(VERSION);
        w.u32(match self.part {
            Part::Data => 1,
            Part::Journal => 2,
        });
        w.bytes(&self.target.0);
        w.u64(self.seq);
        w.u64(self.epoch);
        w.u64(self.copy);
        w.u64(self.mate);
        w.u32(number(self.standing));
        w.u32(number(self.mate_standing));
        w.u64(self.position);
        w.u64(self.bytes);
        let mut sector = AlignedBuf::padded_copy(&w.into_vec());
        let sum = crc64(&sector[8..]);
        sector[..8].copy_from_slice(&sum.to_le_bytes());
        sector
    }

    /// The label in `sector`, if there is an intact one. The caller checks whose it is.
    pub(crate) fn decode(sector: &[u8]) -> Option<Self> {
        let body = sector.get(8..SECTOR as usize)?;
        (crc64(body).to_le_bytes() == sector[..8]).then_some(())?;
        Self::fields(&mut Reader::new(body)).ok()
    }

    fn fields(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if r.array::<8>()? != MAGIC || r.u32()? != VERSION {
            return Err(DecodeError::new("no mirror label of this version"));
        }
        let part = match r.u32()? {
            1 => Part::Data,
            2 => Part::Journal,
            _ => return Err(DecodeError::new("part")),
        };
        let target = Uuid(r.array()?);
        let (seq, epoch, copy, mate) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let (standing, mate_standing) = (standing(r.u32()?)?, standing(r.u32()?)?);
        let (position, bytes) = (r.u64()?, r.u64()?);
        Ok(Self { target, part, seq, epoch, copy, standing, mate, mate_standing, position, bytes })
    }

    /// The newer label of the two sectors behind a part of `bytes` bytes.
    pub(crate) fn newest(sectors: &[u8], bytes: u64) -> Option<Self> {
        let found = sectors.chunks(SECTOR as usize).zip([1, 0]);
        let found = found.filter_map(|(sector, parity)| Self::decode(sector).filter(|label| label.seq % 2 == parity));
        found.filter(|label| label.bytes == bytes).max_by_key(|label| label.seq)
    }
}

/// Bytes of both sectors.
pub(crate) const BYTES: u64 = MIRROR_LABEL_BYTES;

fn number(standing: Standing) -> u32 {
    match standing {
        Standing::Member => 1,
        Standing::Syncing => 2,
        Standing::New => 3,
        Standing::Out => 4,
    }
}

fn standing(number: u32) -> Result<Standing, DecodeError> {
    Ok(match number {
        1 => Standing::Member,
        2 => Standing::Syncing,
        3 => Standing::New,
        4 => Standing::Out,
        _ => return Err(DecodeError::new("standing")),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A copy in sync with its mate.
    pub(crate) fn sample() -> Label {
        Label {
            target: Uuid(*b"target's 16 byte"),
            part: Part::Journal,
            seq: 5,
            epoch: 3,
            copy: 0xa,
            standing: Standing::Member,
            mate: 0xb,
            mate_standing: Standing::Member,
            position: 0,
            bytes: 1 << 20,
        }
    }

    #[test]
    fn bytes_of_a_label_are_those_of_the_format_page() {
        let label = Label { mate_standing: Standing::Syncing, position: 0x3000, ..sample() };
        let sector = label.encode();
        let words = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().expect("eight bytes"));
        let halves = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((sector.len(), words(0), &sector[8..16]), (4096, crc64(&sector[8..]), &b"FBmirror"[..]));
        assert_eq!(words(0), 0x201c_2706_5e0c_e1fd);
        assert_eq!((halves(16), halves(20), &sector[24..40]), (1, 2, &b"target's 16 byte"[..]));
        assert_eq!((words(40), words(48), words(56), words(64)), (5, 3, 0xa, 0xb));
        assert_eq!((halves(72), halves(76), words(80), words(88)), (1, 2, 0x3000, 1 << 20));
        assert!(sector[96..].iter().all(|byte| *byte == 0));
        assert_eq!(Label::decode(&sector), Some(label));
    }

    #[test]
    fn every_flipped_bit_makes_a_label_bad() {
        let sector = sample().encode();
        for bit in 0..sector.len() * 8 {
            let mut damaged = sector.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Label::decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn the_newer_label_counts_and_one_may_be_torn_or_in_the_others_place() {
        let (older, newer) = (Label { seq: 4, ..sample() }, sample());
        let sectors = |first: &[u8], second: &[u8]| Label::newest(&[first, second].concat(), 1 << 20).map(|l| l.seq);
        assert_eq!(sectors(&newer.encode(), &older.encode()), Some(5));
        assert_eq!(sectors(&[0; 4096], &older.encode()), Some(4));
        assert_eq!(sectors(&older.encode(), &newer.encode()), None);
        assert_eq!(Label::newest(&[newer.encode().to_vec(), vec![0; 4096]].concat(), 2 << 20), None, "another size");
    }
}
