//! The journal's anchors (docs/format.md, "Anchor").

use forebay_proto::{DecodeError, Incarnation, Reader, Uuid, Writer, crc::crc64};

use super::{Location, word64};
use crate::limits;

const MAGIC: &[u8; 8] = b"FBanchor";
const VERSION: u32 = 1;
const EXTRA_AT: usize = 512;

/// A position in the journal between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The position.
    pub lsn: u64,
    /// The incarnation at that position.
    pub incarnation: Incarnation,
    /// Sum of the record that ends there.
    pub prev_sum: u64,
}

/// An anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Generation of the target.
    pub generation: u32,
    /// The target.
    pub uuid: Uuid,
    /// Sequence number.
    pub seq: u64,
    /// Included in every record's sum.
    pub salt: u64,
    /// Size of the ring.
    pub ring_bytes: u64,
    /// The incarnation that wrote it.
    pub incarnation: Incarnation,
    /// Where redo starts.
    pub checkpoint: Checkpoint,
    /// Everything before this lsn was durable when the anchor was written.
    pub durable: u64,
    /// The table's root.
    pub root: Option<Location>,
    /// The store's own bytes.
    pub extra: Vec<u8>,
}

/// What is in the slot of an anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// An anchor.
    Intact(Box<Anchor>),
    /// All zeros.
    Blank,
    /// A damaged anchor, with the reason.
    Damaged(&'static str),
    /// Written by a newer program, with its version.
    Newer(u32),
}

/// Decodes the sector of slot A (`slot` 0) or B (1).
pub fn decode(sector: &[u8], slot: u64) -> Slot {
    let Some(sector) = sector.get(..limits::SECTOR as usize) else { return Slot::Damaged("it is too short") };
    if sector.iter().all(|byte| *byte == 0) {
        return Slot::Blank;
    }
    if sector[8..16] != *MAGIC {
        return Slot::Damaged("it has no magic");
    }
    if crc64(&sector[8..]) != word64(sector, 0) {
        return Slot::Damaged("its sum does not match");
    }
    let version = super::word32(sector, 16);
    if version > VERSION {
        return Slot::Newer(version);
    }
    match fields(sector) {
        Ok(anchor) if anchor.seq % 2 == slot => Slot::Damaged("it is the other slot's"),
        Ok(anchor) => Slot::Intact(Box::new(anchor)),
        Err(error) => Slot::Damaged(error.what),
    }
}

fn fields(sector: &[u8]) -> Result<Anchor, DecodeError> {
    let mut r = Reader::new(&sector[20..]);
    let (generation, uuid) = (r.u32()?, Uuid(r.array()?));
    let (seq, salt, ring_bytes) = (r.u64()?, r.u64()?, r.u64()?);
    let (incarnation, of_checkpoint) = (Incarnation(r.u32()?), Incarnation(r.u32()?));
    let checkpoint = Checkpoint { lsn: r.u64()?, incarnation: of_checkpoint, prev_sum: r.u64()? };
    let (durable, flags) = (r.u64()?, r.u32()?);
    let root = Location { slab: r.u32()?, epoch: r.u64()?, at: r.u64()?, bytes: r.u64()?, sum: r.u64()? };
    let extra_bytes = r.u32()? as usize;
    if flags > 1 {
        return Err(DecodeError::new("a flag is not known here"));
    }
    if seq == 0 || !is_lsn(checkpoint.lsn) || !is_lsn(durable) || durable < checkpoint.lsn {
        return Err(DecodeError::new("its number or its lsns are impossible"));
    }
    if !ring_bytes.is_multiple_of(limits::SECTOR) || !(limits::RING_BYTES_MIN..limits::LSN_MAX).contains(&ring_bytes) {
        return Err(DecodeError::new("its ring is impossible"));
    }
    if extra_bytes > limits::ANCHOR_EXTRA_BYTES {
        return Err(DecodeError::new("its own bytes are too many"));
    }
    let extra = sector[EXTRA_AT..EXTRA_AT + extra_bytes].to_vec();
    let root = (flags == 1).then_some(root);
    Ok(Anchor { generation, uuid, seq, salt, ring_bytes, incarnation, checkpoint, durable, root, extra })
}

/// True if a record can begin at this lsn.
pub fn is_lsn(lsn: u64) -> bool {
    lsn.is_multiple_of(limits::SECTOR) && lsn < limits::LSN_MAX
}

impl Anchor {
    /// Device offset of the slot for its sequence number.
    pub fn device_offset(&self) -> u64 {
        if self.seq % 2 == 1 { 0 } else { limits::SECTOR }
    }

    /// Encodes it as a sector; for repair.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(0);
        w.bytes(MAGIC);
        w.u32(VERSION);
        w.u32(self.generation);
        w.bytes(&self.uuid.0);
        w.u64(self.seq);
        w.u64(self.salt);
        w.u64(self.ring_bytes);
        w.u32(self.incarnation.0);
        w.u32(self.checkpoint.incarnation.0);
        w.u64(self.checkpoint.lsn);
        w.u64(self.checkpoint.prev_sum);
        w.u64(self.durable);
        w.u32(u32::from(self.root.is_some()));
        let root = self.root.unwrap_or(Location { slab: 0, epoch: 0, at: 0, bytes: 0, sum: 0 });
        w.u32(root.slab);
        w.u64(root.epoch);
        w.u64(root.at);
        w.u64(root.bytes);
        w.u64(root.sum);
        w.u32(self.extra.len() as u32);
        let mut sector = w.into_vec();
        sector.resize(limits::SECTOR as usize, 0);
        sector[EXTRA_AT..EXTRA_AT + self.extra.len()].copy_from_slice(&self.extra);
        let sum = crc64(&sector[8..]);
        sector[..8].copy_from_slice(&sum.to_le_bytes());
        sector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_hand() -> Vec<u8> {
        let mut sector = vec![0; 4096];
        sector[8..16].copy_from_slice(b"FBanchor");
        sector[16] = 1;
        sector[20] = 3;
        sector[24..40].fill(9);
        sector[40] = 2;
        sector[48] = 0x5a;
        sector[57] = 0x00;
        sector[58] = 0x01; // ring: 64 KiB
        sector[64] = 6;
        sector[68] = 5;
        sector[73] = 0x20; // checkpoint at lsn 0x2000
        sector[80] = 77;
        sector[89] = 0x30;
        sector[96] = 1;
        sector[100] = 4;
        sector[104] = 8;
        sector[113] = 0x10;
        sector[121] = 0x01;
        sector[128] = 42;
        sector[136] = 2;
        sector[512..514].copy_from_slice(b"hi");
        seal(&mut sector);
        sector
    }

    fn seal(sector: &mut [u8]) {
        let sum = crc64(&sector[8..]);
        sector[..8].copy_from_slice(&sum.to_le_bytes());
    }

    #[test]
    fn an_anchor_made_by_hand_is_read() {
        let Slot::Intact(anchor) = decode(&by_hand(), 1) else { panic!("it is intact") };
        assert_eq!((anchor.seq, anchor.generation, anchor.salt, anchor.ring_bytes), (2, 3, 0x5a, 65_536));
        assert_eq!(anchor.checkpoint, Checkpoint { lsn: 0x2000, incarnation: Incarnation(5), prev_sum: 77 });
        assert_eq!((anchor.incarnation, anchor.durable), (Incarnation(6), 0x3000));
        assert_eq!(anchor.root, Some(Location { slab: 4, epoch: 8, at: 0x1000, bytes: 0x100, sum: 42 }));
        assert_eq!(anchor.extra, b"hi");
        assert_eq!(anchor.encode(), by_hand());
    }

    #[test]
    fn damage_and_the_wrong_slot_are_told() {
        assert!(matches!(decode(&by_hand(), 0), Slot::Damaged(_)));
        assert_eq!(decode(&[0; 4096], 0), Slot::Blank);
        for at in 0..4096 {
            let mut rotten = by_hand();
            rotten[at] ^= 1;
            assert!(matches!(decode(&rotten, 1), Slot::Damaged(_)), "byte {at}");
        }
        let mut newer = by_hand();
        newer[16] = 2;
        seal(&mut newer);
        assert_eq!(decode(&newer, 1), Slot::Newer(2));
    }
}
