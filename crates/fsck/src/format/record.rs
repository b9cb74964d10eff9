//! The journal's records (docs/format.md, "Record").

use forebay_proto::{DecodeError, Incarnation, Reader, Uuid, Writer, crc::crc64};

use super::{
    anchor::{Checkpoint, is_lsn},
    word32, word64,
};
use crate::limits;

const MAGIC: &[u8; 4] = b"FBjr";
const VERSION: u16 = 1;
/// Size of the header before the payload.
pub const HEADER_BYTES: usize = 96;

/// The target whose records are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The target.
    pub uuid: Uuid,
    /// The target's generation.
    pub generation: u32,
    /// The salt in the target's anchors.
    pub salt: u64,
}

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// A transaction, or a part of it.
    Transaction {
        /// True for the last part.
        last: bool,
    },
    /// Attests which lsn was durable.
    Attest {
        /// Written at a clean stop.
        clean: bool,
    },
    /// Starts a new incarnation.
    OpenIncarnation,
}

/// A record without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record's type.
    pub record_type: RecordType,
    /// The incarnation that wrote it.
    pub incarnation: Incarnation,
    /// Its position.
    pub lsn: u64,
    /// Its length in bytes, whole sectors.
    pub record_bytes: u64,
    /// Bytes of payload among them.
    pub payload_bytes: u64,
    /// Sum of the previous record.
    pub prev_sum: u64,
    /// The lsn that was durable.
    pub durable: u64,
    /// Sequence number of the newest durable anchor.
    pub anchor_seq: u64,
    /// Its own sum.
    pub sum: u64,
}

/// What begins at a sector of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An intact record.
    Record(Record),
    /// No record of this target.
    Nothing,
    /// A damaged record of this target, with the position that it claims.
    Broken {
        /// The lsn it claims.
        lsn: u64,
        /// The incarnation it claims.
        incarnation: Incarnation,
        /// What is wrong.
        what: &'static str,
    },
    /// The decoder needs more bytes: this many in total.
    More(usize),
    /// Written by a newer program, with its version.
    Newer(u16),
}

/// Decodes the record at the beginning of `bytes`. Records are at most `max_bytes` long. `to_end`: nothing follows
/// `bytes`.
pub fn decode(owner: &Owner, max_bytes: u64, bytes: &[u8], to_end: bool) -> Found {
    let Some(fixed) = bytes.get(..HEADER_BYTES) else { return Found::Nothing };
    if fixed[8..12] != *MAGIC || fixed[16..24] != owner.uuid.0[8..] || word32(fixed, 24) != owner.generation {
        return Found::Nothing;
    }
    let (lsn, length) = (word64(fixed, 32), word32(fixed, 40) as usize);
    let incarnation = Incarnation(word32(fixed, 28));
    let broken = |what| Found::Broken { lsn, incarnation, what };
    if length == 0 || length as u64 > max_bytes || !(length as u64).is_multiple_of(limits::SECTOR) {
        return broken("its length is impossible");
    }
    let Some(record) = bytes.get(..length) else {
        return if to_end { broken("it runs over the ring's end") } else { Found::More(length) };
    };
    if crc64(&record[8..]) ^ owner.salt != word64(fixed, 0) {
        return broken("its sum does not match");
    }
    let version = u16::from_le_bytes([fixed[12], fixed[13]]);
    if version > VERSION {
        return Found::Newer(version);
    }
    fields(fixed).map_or_else(|error| broken(error.what), Found::Record)
}

fn fields(fixed: &[u8]) -> Result<Record, DecodeError> {
    let record_type = match (fixed[14], fixed[15]) {
        (1, last @ 0..=1) => RecordType::Transaction { last: last == 1 },
        (2, 0) => RecordType::Attest { clean: false },
        (2, 2) => RecordType::Attest { clean: true },
        (4, 0) => RecordType::OpenIncarnation,
        _ => return Err(DecodeError::new("its type or flags are not known here")),
    };
    let mut r = Reader::new(&fixed[28..]);
    let (incarnation, lsn) = (Incarnation(r.u32()?), r.u64()?);
    let (record_bytes, payload_bytes) = (u64::from(r.u32()?), u64::from(r.u32()?));
    let (prev_sum, durable, anchor_seq) = (r.u64()?, r.u64()?, r.u64()?);
    if (HEADER_BYTES as u64 + payload_bytes).next_multiple_of(limits::SECTOR) != record_bytes {
        return Err(DecodeError::new("its lengths contradict each other"));
    }
    if payload_bytes > 0 && !matches!(record_type, RecordType::Transaction { .. }) {
        return Err(DecodeError::new("its type has no payload"));
    }
    if !is_lsn(lsn) || !is_lsn(durable) || durable > lsn {
        return Err(DecodeError::new("its lsns are impossible"));
    }
    let sum = word64(fixed, 0);
    Ok(Record { record_type, incarnation, lsn, record_bytes, payload_bytes, prev_sum, durable, anchor_seq, sum })
}

impl Record {
    /// The position behind it.
    pub fn after(&self) -> Checkpoint {
        let lsn = self.lsn.saturating_add(self.record_bytes);
        Checkpoint { lsn, incarnation: self.incarnation, prev_sum: self.sum }
    }

    /// Encodes a transaction record as sectors, and computes its sum; for repair.
    pub fn encode_transaction(&self, owner: &Owner, last: bool, payload: &[u8]) -> (Vec<u8>, u64) {
        let mut w = Writer::default();
        w.u64(0);
        w.bytes(MAGIC);
        w.u16(VERSION);
        w.u8(1);
        w.u8(u8::from(last));
        w.bytes(&owner.uuid.0[8..]);
        w.u32(owner.generation);
        w.u32(self.incarnation.0);
        w.u64(self.lsn);
        w.u32(self.record_bytes as u32);
        w.u32(payload.len() as u32);
        w.u64(self.prev_sum);
        w.u64(self.durable);
        w.u64(self.anchor_seq);
        let mut bytes = w.into_vec();
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(payload);
        bytes.resize(self.record_bytes as usize, 0);
        let sum = crc64(&bytes[8..]) ^ owner.salt;
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        (bytes, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { uuid: Uuid([9; 16]), generation: 3, salt: 0x5a };

    fn by_hand(record_type: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; (96 + payload.len()).next_multiple_of(4096)];
        bytes[8..12].copy_from_slice(b"FBjr");
        bytes[12] = 1;
        (bytes[14], bytes[15]) = (record_type, flags);
        bytes[16..24].fill(9);
        bytes[24] = 3;
        bytes[28] = 5;
        bytes[33] = 0x40;
        let length = bytes.len() as u32;
        bytes[40..44].copy_from_slice(&length.to_le_bytes());
        bytes[44..48].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes[48] = 66;
        bytes[57] = 0x30;
        bytes[64] = 2;
        bytes[96..96 + payload.len()].copy_from_slice(payload);
        let sum = crc64(&bytes[8..]) ^ 0x5a;
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_record_made_by_hand_is_read() {
        let bytes = by_hand(1, 1, &[7; 5000]);
        let Found::Record(record) = decode(&OWNER, 1 << 20, &bytes, true) else { panic!("it is intact") };
        assert_eq!(record.record_type, RecordType::Transaction { last: true });
        assert_eq!((record.lsn, record.record_bytes, record.payload_bytes), (0x4000, 8192, 5000));
        assert_eq!((record.prev_sum, record.durable, record.anchor_seq), (66, 0x3000, 2));
        assert_eq!(record.after().lsn, 0x6000);
        assert_eq!(record.encode_transaction(&OWNER, true, &[7; 5000]).0, bytes);
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let bytes = by_hand(2, 2, &[]);
        for at in 0..4096 {
            let mut rotten = bytes.clone();
            rotten[at] ^= 1;
            assert!(!matches!(decode(&OWNER, 1 << 20, &rotten, true), Found::Record(_)), "byte {at}");
        }
    }

    #[test]
    fn journal_records_of_another_owner_and_short_ones_are_recognised() {
        let bytes = by_hand(1, 0, &[1; 5000]);
        assert_eq!(decode(&OWNER, 1 << 20, &bytes[..4096], false), Found::More(8192));
        assert!(matches!(decode(&OWNER, 1 << 20, &bytes[..4096], true), Found::Broken { lsn: 0x4000, .. }));
        assert!(matches!(decode(&OWNER, 4096, &bytes, true), Found::Broken { .. }));
        assert_eq!(decode(&Owner { generation: 4, ..OWNER }, 1 << 20, &bytes, true), Found::Nothing);
        assert!(matches!(decode(&OWNER, 1 << 20, &by_hand(3, 0, &[]), true), Found::Broken { .. }));
        assert!(matches!(decode(&OWNER, 1 << 20, &by_hand(4, 0, &[1]), true), Found::Broken { .. }));
    }
}
