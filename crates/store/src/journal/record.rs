//! Records of the ring, to bytes and back.
//!
//! Invariant: a record's sum covers all of its sectors, padding too. So a record that was overwritten in part is never
//! taken for intact.

use forebay_env::{AlignedBuf, Bug, SECTOR_BYTES, planted};
use forebay_proto::{DecodeError, Incarnation, Reader, Writer, crc::crc64};

use super::{Checkpoint, Lsn, Owner, geometry::Geometry, limits::RECORD_BYTES_MAX};

const MAGIC: [u8; 4] = *b"FBjr";
const VERSION: u16 = 1;

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 96;

/// The last record of its transaction.
const LAST: u8 = 1;
/// The attest of a clean stop.
const CLEAN: u8 = 2;

/// What a record is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordType {
    /// A transaction's payload, or a part of it.
    Transaction { last: bool },
    /// Only says what is durable.
    Attest { clean: bool },
    /// Raises the incarnation.
    OpenIncarnation,
}

/// All of a record but its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordHeader {
    pub record_type: RecordType,
    pub incarnation: Incarnation,
    pub lsn: Lsn,
    /// A multiple of the sector.
    pub record_bytes: u32,
    pub payload_bytes: u32,
    pub prev_sum: u64,
    /// Everything before it was durable when the record was built.
    pub durable: Lsn,
    /// The newest anchor that was durable then.
    pub anchor_seq: u64,
    /// Checksum of the whole record.
    pub sum: u64,
}

/// Why bytes are not an intact record of this journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadRecord {
    /// No record begins here, or none of this target and generation.
    NotOurs,
    /// A record of this journal began here at this lsn, in this incarnation, but it is not whole.
    Broken { lsn: Lsn, incarnation: Incarnation, what: &'static str },
    /// Whole, but of a newer version.
    Newer { version: u16 },
}

/// Device bytes of a record that carries `payload_bytes`.
pub(super) fn record_bytes(payload_bytes: u64) -> u64 {
    (HEADER_BYTES as u64 + payload_bytes).next_multiple_of(SECTOR_BYTES as u64)
}

impl RecordHeader {
    /// Position of the next record, and what it continues from.
    pub(super) fn after(&self) -> Checkpoint {
        let end = Lsn(self.lsn.0 + u64::from(self.record_bytes));
        Checkpoint { lsn: end, incarnation: self.incarnation, prev_sum: self.sum }
    }

    /// The record's sectors; sets `record_bytes`, `payload_bytes` and `sum`.
    pub(super) fn encode(&mut self, owner: &Owner, payload: &[u8]) -> AlignedBuf {
        let bytes = record_bytes(payload.len() as u64);
        assert!(bytes <= RECORD_BYTES_MAX && self.durable <= self.lsn);
        self.record_bytes = bytes as u32;
        self.payload_bytes = payload.len() as u32;
        let mut record = AlignedBuf::zeroed(bytes as usize);
        let header = self.header_bytes(owner);
        record[..header.len()].copy_from_slice(&header);
        record[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        self.sum = sum(owner, &record);
        record[..8].copy_from_slice(&self.sum.to_le_bytes());
        record
    }

    fn header_bytes(&self, owner: &Owner) -> Vec<u8> {
        let (number, flags) = self.record_type.to_bytes();
        let mut w = Writer::default();
        w.u64(0); // the sum, last
        w.bytes(&MAGIC);
        w.u16(VERSION);
        w.u8(number);
        w.u8(flags);
        w.bytes(&owner.target.0[8..]);
        w.u32(owner.generation);
        w.u32(self.incarnation.0);
        w.u64(self.lsn.0);
        w.u32(self.record_bytes);
        w.u32(self.payload_bytes);
        w.u64(self.prev_sum);
        w.u64(self.durable.0);
        w.u64(self.anchor_seq);
        w.into_vec()
    }
}

impl RecordType {
    fn to_bytes(self) -> (u8, u8) {
        match self {
            Self::Transaction { last } => (1, if last { LAST } else { 0 }),
            Self::Attest { clean } => (2, if clean { CLEAN } else { 0 }),
            Self::OpenIncarnation => (4, 0),
        }
    }

    fn from_bytes(number: u8, flags: u8) -> Option<Self> {
        [true, false]
            .into_iter()
            .flat_map(|yes| [Self::Transaction { last: yes }, Self::Attest { clean: yes }, Self::OpenIncarnation])
            .find(|candidate| candidate.to_bytes() == (number, flags))
    }
}

/// The intact record at the beginning of `bytes`, at most `max_bytes` long; bytes behind it are ignored.
pub(super) fn decode(owner: &Owner, max_bytes: u64, bytes: &[u8]) -> Result<RecordHeader, BadRecord> {
    let fixed = bytes.get(..HEADER_BYTES).ok_or(BadRecord::NotOurs)?;
    if fixed[8..12] != MAGIC || fixed[16..24] != owner.target.0[8..] || fixed[24..28] != owner.generation.to_le_bytes()
    {
        return Err(BadRecord::NotOurs);
    }
    let version = u16::from_le_bytes([fixed[12], fixed[13]]);
    let (incarnation, lsn, length) = read_place(fixed).map_err(|_| BadRecord::NotOurs)?;
    let broken = |what| BadRecord::Broken { lsn, incarnation, what };
    if length == 0 || u64::from(length) > max_bytes || !(length as usize).is_multiple_of(SECTOR_BYTES) {
        return Err(broken("its length is impossible"));
    }
    let record = bytes.get(..length as usize).ok_or(broken("it runs over the ring's end"))?;
    if sum(owner, record).to_le_bytes() != fixed[..8] && !planted(Bug::JournalSumSkipped) {
        return Err(broken("its sum does not match"));
    }
    if version > VERSION {
        return Err(BadRecord::Newer { version });
    }
    decode_header(fixed).map_err(|error| broken(error.what))
}

/// Incarnation, lsn and length, which lie at the same offsets in every version.
fn read_place(fixed: &[u8]) -> Result<(Incarnation, Lsn, u32), DecodeError> {
    let mut r = Reader::new(&fixed[28..]);
    Ok((Incarnation(r.u32()?), Lsn(r.u64()?), r.u32()?))
}

fn decode_header(fixed: &[u8]) -> Result<RecordHeader, DecodeError> {
    let mut r = Reader::new(fixed);
    let sum = r.u64()?;
    let record_type = RecordType::from_bytes(fixed[14], fixed[15]).ok_or(DecodeError::new("its type is unknown"))?;
    r.take(28 - 8)?;
    let header = RecordHeader {
        record_type,
        incarnation: Incarnation(r.u32()?),
        lsn: Lsn(r.u64()?),
        record_bytes: r.u32()?,
        payload_bytes: r.u32()?,
        prev_sum: r.u64()?,
        durable: Lsn(r.u64()?),
        anchor_seq: r.u64()?,
        sum,
    };
    if record_bytes(u64::from(header.payload_bytes)) != u64::from(header.record_bytes) {
        return Err(DecodeError::new("its lengths contradict each other"));
    }
    if header.payload_bytes > 0 && !matches!(record_type, RecordType::Transaction { .. }) {
        return Err(DecodeError::new("its type has no payload"));
    }
    if !Geometry::is_lsn(header.lsn) || !Geometry::is_lsn(header.durable) || header.durable > header.lsn {
        return Err(DecodeError::new("its lsn is impossible"));
    }
    Ok(header)
}

fn sum(owner: &Owner, record: &[u8]) -> u64 {
    crc64(&record[8..]) ^ owner.salt
}

#[cfg(test)]
mod tests {
    use forebay_proto::Uuid;

    use super::*;

    const OWNER: Owner = Owner { target: Uuid(*b"target's 16 byte"), generation: 3, salt: 0x5a17 };

    fn header(record_type: RecordType) -> RecordHeader {
        RecordHeader {
            record_type,
            incarnation: Incarnation(7),
            lsn: Lsn(0x12000),
            record_bytes: 0,
            payload_bytes: 0,
            prev_sum: 0xabcd,
            durable: Lsn(0x11000),
            anchor_seq: 9,
            sum: 0,
        }
    }

    fn golden(record_type: RecordType, payload: &[u8], type_and_flags: [u8; 2], sum: u64) {
        let record = header(record_type).encode(&OWNER, payload);
        let words = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        let halves = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        assert_eq!(record.len(), 4096);
        assert_eq!(
            (&record[8..12], &record[12..14], &record[14..16]),
            (&b"FBjr"[..], &[1, 0][..], &type_and_flags[..])
        );
        assert_eq!((&record[16..24], halves(24), halves(28)), (&b" 16 byte"[..], 3, 7));
        assert_eq!((words(32), halves(40), halves(44)), (0x12000, 4096, payload.len() as u32));
        assert_eq!((words(48), words(56), words(64)), (0xabcd, 0x11000, 9));
        assert_eq!((&record[72..96], &record[96..96 + payload.len()]), (&[0; 24][..], payload));
        assert!(record[96 + payload.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(words(0), sum, "sum is {:#x}", words(0));
    }

    #[test]
    fn bytes_of_a_transaction_record_are_those_of_the_format_page() {
        golden(RecordType::Transaction { last: true }, b"payload", [1, 1], 0x2187_9b71_0e92_4d32);
        golden(RecordType::Transaction { last: false }, b"payload", [1, 0], 0x40b5_455f_6da0_d56f);
    }

    #[test]
    fn bytes_of_an_attest_record_are_those_of_the_format_page() {
        golden(RecordType::Attest { clean: false }, b"", [2, 0], 0x077f_49aa_525b_ee35);
        golden(RecordType::Attest { clean: true }, b"", [2, 2], 0xc51a_f5f6_943e_de8f);
    }

    #[test]
    fn bytes_of_an_open_incarnation_record_are_those_of_the_format_page() {
        golden(RecordType::OpenIncarnation, b"", [4, 0], 0xdaac_46ad_f10a_ffb6);
    }

    #[test]
    fn a_record_reads_back_as_it_was_written_at_every_length() {
        for length in [0, 1, 4000, 4001, 8192, RECORD_BYTES_MAX as usize - HEADER_BYTES] {
            let mut wrote = header(RecordType::Transaction { last: true });
            let mut bytes = wrote.encode(&OWNER, &vec![0xee; length]).to_vec();
            bytes.extend([0xff; 4096]);
            assert_eq!(decode(&OWNER, RECORD_BYTES_MAX, &bytes), Ok(wrote));
            assert_eq!(wrote.after().lsn.0 as usize, 0x12000 + bytes.len() - 4096);
        }
    }

    #[test]
    fn every_flipped_bit_breaks_a_record_even_in_its_padding() {
        let record = header(RecordType::Transaction { last: true }).encode(&OWNER, &[1; 4001]).to_vec();
        for bit in 0..record.len() * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&OWNER, RECORD_BYTES_MAX, &damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_record_of_another_store_generation_or_salt_is_not_intact() {
        let record = header(RecordType::OpenIncarnation).encode(&OWNER, &[]);
        let read = |owner| decode(&owner, RECORD_BYTES_MAX, &record);
        assert_eq!(read(Owner { target: Uuid([1; 16]), ..OWNER }), Err(BadRecord::NotOurs));
        assert_eq!(read(Owner { generation: 4, ..OWNER }), Err(BadRecord::NotOurs));
        assert!(matches!(read(Owner { salt: 0, ..OWNER }), Err(BadRecord::Broken { .. })));
    }

    #[test]
    fn a_newer_version_is_told_only_if_the_sum_holds() {
        let mut record = header(RecordType::OpenIncarnation).encode(&OWNER, &[]).to_vec();
        record[12] = 2;
        assert!(matches!(decode(&OWNER, RECORD_BYTES_MAX, &record), Err(BadRecord::Broken { .. })));
        let whole = sum(&OWNER, &record);
        record[..8].copy_from_slice(&whole.to_le_bytes());
        assert_eq!(decode(&OWNER, RECORD_BYTES_MAX, &record), Err(BadRecord::Newer { version: 2 }));
    }
}
