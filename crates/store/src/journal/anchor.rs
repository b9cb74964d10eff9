//! Anchors: two sectors, written in turn, that say where redo starts and where the table's root page was then.
//!
//! Invariant: anchor `seq` lies in slot A if odd, in slot B if even; so a torn write leaves the previous anchor.
//! Not here: whether the anchor found is the newest that ever existed (see `judge`: records name the newest they knew).

use bytes::Bytes;
use forebay_env::{AlignedBuf, Bug, SECTOR_BYTES, planted};
use forebay_proto::{DecodeError, Incarnation, Reader, Uuid, Writer, crc::crc64};

use super::{
    Checkpoint, JournalError, JournalErrorKind, JournalResult, Lsn, Owner,
    geometry::Geometry,
    limits::{EXTRA_BYTES_MAX, SECTOR},
};

const MAGIC: [u8; 8] = *b"FBanchor";
const VERSION: u32 = 1;
const HAS_ROOT: u32 = 1;
const EXTRA_AT: usize = 512;

/// Where the table's root page lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootLocation {
    /// Its slab.
    pub slab: u32,
    /// The slab's epoch: tells the page from contents of a later opening of the slab.
    pub epoch: u64,
    /// Byte offset in the slab.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// CRC-64/NVME of those bytes.
    pub sum: u64,
}

/// What a checkpoint records in the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// Counts anchors, from 1.
    pub seq: u64,
    /// The incarnation that wrote it.
    pub incarnation: Incarnation,
    /// Where redo starts.
    pub checkpoint: Checkpoint,
    /// Everything before this was durable when the anchor was written.
    pub durable: Lsn,
    /// The table's root as of the checkpoint; `None` = an empty table.
    pub root: Option<RootLocation>,
    /// The store's own bytes, at most [`EXTRA_BYTES_MAX`].
    pub extra: Bytes,
}

/// Contents of one of the two slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    Valid { anchor: Anchor, owner: Owner, geometry: Geometry },
    Blank,
    Bad(&'static str),
    Unreadable(String),
    Foreign(Uuid),
    OtherGeneration(u32),
    Newer(u32),
}

impl Anchor {
    /// Where it lies on the device.
    pub(super) fn device_offset(seq: u64) -> u64 {
        if seq % 2 == 1 { 0 } else { SECTOR }
    }

    /// Its sector.
    pub(super) fn encode(&self, owner: &Owner, geometry: Geometry) -> AlignedBuf {
        assert!(self.extra.len() <= EXTRA_BYTES_MAX, "an anchor has room for {EXTRA_BYTES_MAX} bytes of the store");
        let mut w = Writer::default();
        w.u64(0); // the sum, last
        w.bytes(&MAGIC);
        w.u32(VERSION);
        w.u32(owner.generation);
        w.bytes(&owner.target.0);
        w.u64(self.seq);
        w.u64(owner.salt);
        w.u64(geometry.ring_bytes());
        w.u32(self.incarnation.0);
        w.u32(self.checkpoint.incarnation.0);
        w.u64(self.checkpoint.lsn.0);
        w.u64(self.checkpoint.prev_sum);
        w.u64(self.durable.0);
        encode_root(&mut w, self.root);
        w.u32(u32::try_from(self.extra.len()).expect("bounded above"));
        let mut sector = AlignedBuf::padded_copy(&w.into_vec());
        sector[EXTRA_AT..EXTRA_AT + self.extra.len()].copy_from_slice(&self.extra);
        let sum = crc64(&sector[8..]);
        sector[..8].copy_from_slice(&sum.to_le_bytes());
        sector
    }
}

/// The target whose anchor this is, if it is intact.
pub(super) fn owner(sector: &[u8]) -> Option<Uuid> {
    let intact =
        sector.len() == SECTOR_BYTES && sector[8..16] == MAGIC && crc64(&sector[8..]).to_le_bytes() == sector[..8];
    intact.then(|| Uuid(sector[24..40].try_into().expect("16 bytes")))
}

/// True if the sector is blank, or begins with an anchor of `target`, whole or torn.
pub(super) fn is_begun(sector: &[u8], target: Uuid) -> bool {
    sector.iter().all(|byte| *byte == 0)
        || sector.len() == SECTOR_BYTES && sector[8..16] == MAGIC && sector[24..40] == target.0
}

/// What `sector`, read from the slot for anchors of parity `seq_parity`, holds for this owner.
pub(super) fn read_slot(sector: &[u8], seq_parity: u64, target: Uuid, generation: u32) -> Slot {
    if sector.iter().all(|byte| *byte == 0) {
        return Slot::Blank;
    }
    if sector.len() != SECTOR_BYTES || sector[8..16] != MAGIC {
        return Slot::Bad("no anchor's magic");
    }
    if crc64(&sector[8..]).to_le_bytes() != sector[..8] && !planted(Bug::AnchorSumSkipped) {
        return Slot::Bad("the sum does not match");
    }
    match decode(sector, target, generation) {
        Ok(Slot::Valid { anchor, .. }) if anchor.seq % 2 != seq_parity => Slot::Bad("in the other anchor's place"),
        Ok(slot) => slot,
        Err(error) => Slot::Bad(error.what),
    }
}

impl Slot {
    /// Orders two copies of one slot: the higher one tells more.
    pub(super) fn rank(&self) -> (u32, u64) {
        match self {
            Self::Newer(_) => (5, 0),
            Self::Valid { anchor, .. } => (4, anchor.seq),
            Self::Foreign(_) | Self::OtherGeneration(_) => (3, 0),
            Self::Unreadable(_) => (2, 0),
            Self::Bad(_) => (1, 0),
            Self::Blank => (0, 0),
        }
    }
}

/// Chooses the anchor to start from.
pub(super) fn choose(slots: [Slot; 2]) -> JournalResult<(Anchor, Owner, Geometry)> {
    use JournalErrorKind::{Corrupt, Foreign, Medium, Unsupported};
    let refuse = |kind, words: String| Err(JournalError::new(kind, format!("journal: {words}")));
    let found = format!("anchor A: {}; anchor B: {}", describe(&slots[0]), describe(&slots[1]));
    if slots.iter().any(|slot| matches!(slot, Slot::Newer(_))) {
        return refuse(Unsupported, format!("written by a newer forebay ({found}); start that one"));
    }
    let newest = slots.iter().filter(|slot| seq(slot) > 0).max_by_key(|slot| seq(slot));
    if let Some(Slot::Valid { anchor, owner, geometry }) = newest {
        return Ok((anchor.clone(), *owner, *geometry));
    }
    if slots.iter().any(|slot| matches!(slot, Slot::Foreign(_) | Slot::OtherGeneration(_))) {
        return refuse(Foreign, format!("this device holds another journal ({found}); give the target its own device"));
    }
    if slots.iter().any(|slot| matches!(slot, Slot::Unreadable(_))) {
        return refuse(
            Medium,
            format!("no anchor can be read ({found}): bring back a copy on another device; `forebay fsck` tells more"),
        );
    }
    let advice = "if this is the right device, bring back a copy of its content; `forebay fsck` tells more";
    refuse(Corrupt, format!("no intact anchor ({found}); {advice}"))
}

fn seq(slot: &Slot) -> u64 {
    if let Slot::Valid { anchor, .. } = slot { anchor.seq } else { 0 }
}

fn describe(slot: &Slot) -> String {
    match slot {
        Slot::Valid { anchor, .. } => format!("number {}", anchor.seq),
        Slot::Blank => "blank".into(),
        Slot::Bad(what) => format!("damaged: {what}"),
        Slot::Unreadable(words) => format!("unreadable: {words}"),
        Slot::Foreign(target) => format!("of target {target}"),
        Slot::OtherGeneration(generation) => format!("of generation {generation}"),
        Slot::Newer(version) => format!("version {version}"),
    }
}

fn decode(sector: &[u8], target: Uuid, generation: u32) -> Result<Slot, DecodeError> {
    let mut r = Reader::new(&sector[16..]);
    let version = r.u32()?;
    if version > VERSION {
        return Ok(Slot::Newer(version));
    }
    let found_generation = r.u32()?;
    let found_target = Uuid(r.array()?);
    if found_target != target {
        return Ok(Slot::Foreign(found_target));
    }
    if found_generation != generation {
        return Ok(Slot::OtherGeneration(found_generation));
    }
    decode_body(&mut r, sector, target, generation)
}

fn decode_body(r: &mut Reader<'_>, sector: &[u8], target: Uuid, generation: u32) -> Result<Slot, DecodeError> {
    let seq = r.u64()?;
    let owner = Owner { target, generation, salt: r.u64()? };
    let geometry = Geometry::new(r.u64()?).ok_or(DecodeError::new("ring bytes"))?;
    let incarnation = Incarnation(r.u32()?);
    let of_checkpoint = Incarnation(r.u32()?);
    let checkpoint = Checkpoint { lsn: Lsn(r.u64()?), incarnation: of_checkpoint, prev_sum: r.u64()? };
    let durable = Lsn(r.u64()?);
    let root = decode_root(r)?;
    let extra_bytes = r.u32()? as usize;
    if seq == 0 || !Geometry::is_lsn(checkpoint.lsn) || !Geometry::is_lsn(durable) || durable < checkpoint.lsn {
        return Err(DecodeError::new("sequence or lsn"));
    }
    if extra_bytes > EXTRA_BYTES_MAX {
        return Err(DecodeError::new("length of the store's bytes"));
    }
    let extra = Bytes::copy_from_slice(&sector[EXTRA_AT..EXTRA_AT + extra_bytes]);
    Ok(Slot::Valid { anchor: Anchor { seq, incarnation, checkpoint, durable, root, extra }, owner, geometry })
}

fn encode_root(w: &mut Writer, root: Option<RootLocation>) {
    let has_root = if root.is_some() { HAS_ROOT } else { 0 };
    let root = root.unwrap_or(RootLocation { slab: 0, epoch: 0, offset: 0, bytes: 0, sum: 0 });
    w.u32(has_root);
    w.u32(root.slab);
    w.u64(root.epoch);
    w.u64(root.offset);
    w.u64(root.bytes);
    w.u64(root.sum);
}

fn decode_root(r: &mut Reader<'_>) -> Result<Option<RootLocation>, DecodeError> {
    let flags = r.u32()?;
    if flags & !HAS_ROOT != 0 {
        return Err(DecodeError::new("unknown flag"));
    }
    let root = RootLocation { slab: r.u32()?, epoch: r.u64()?, offset: r.u64()?, bytes: r.u64()?, sum: r.u64()? };
    Ok((flags == HAS_ROOT).then_some(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Uuid = Uuid(*b"target's 16 byte");
    const OWNER: Owner = Owner { target: TARGET, generation: 3, salt: 0x5a17 };

    fn geometry() -> Geometry {
        Geometry::new(64 << 12).unwrap()
    }

    fn anchor() -> Anchor {
        Anchor {
            seq: 5,
            incarnation: Incarnation(7),
            checkpoint: Checkpoint { lsn: Lsn(0x3000), incarnation: Incarnation(6), prev_sum: 0xabcd },
            durable: Lsn(0x5000),
            root: Some(RootLocation { slab: 1, epoch: 2, offset: 0x3000, bytes: 0x4000, sum: 5 }),
            extra: Bytes::from_static(b"store"),
        }
    }

    fn slot(anchor: &Anchor) -> Slot {
        Slot::Valid { anchor: anchor.clone(), owner: OWNER, geometry: geometry() }
    }

    #[test]
    fn bytes_of_an_anchor_are_those_of_the_format_page() {
        let sector = anchor().encode(&OWNER, geometry());
        let words = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().unwrap());
        let halves = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().unwrap());
        assert_eq!(sector.len(), 4096);
        assert_eq!((words(0), &sector[8..16]), (0xd82c_8474_0f0c_760a, &b"FBanchor"[..]));
        assert_eq!((halves(16), halves(20), &sector[24..40]), (1, 3, &b"target's 16 byte"[..]));
        assert_eq!((words(40), words(48), words(56)), (5, 0x5a17, 64 << 12));
        assert_eq!((halves(64), halves(68), words(72), words(80), words(88)), (7, 6, 0x3000, 0xabcd, 0x5000));
        assert_eq!(
            (halves(96), halves(100), words(104), words(112), words(120), words(128)),
            (1, 1, 2, 0x3000, 0x4000, 5)
        );
        assert_eq!((halves(136), &sector[512..517]), (5, &b"store"[..]));
        assert!(sector[140..512].iter().chain(&sector[517..]).all(|byte| *byte == 0));
    }

    #[test]
    fn an_anchor_reads_back_as_it_was_written() {
        for anchor in [anchor(), Anchor { root: None, extra: Bytes::from(vec![7; EXTRA_BYTES_MAX]), ..anchor() }] {
            assert_eq!(read_slot(&anchor.encode(&OWNER, geometry()), 1, TARGET, 3), slot(&anchor));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_tear_makes_an_anchor_bad() {
        let sector = anchor().encode(&OWNER, geometry());
        for bit in 0..sector.len() * 8 {
            let mut damaged = sector.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read_slot(&damaged, 1, TARGET, 3), Slot::Bad(_)), "bit {bit}");
        }
        let older = Anchor { seq: 3, extra: Bytes::from_static(b"before"), ..anchor() }.encode(&OWNER, geometry());
        let torn = [&sector[..512], &older[512..]].concat();
        assert!(matches!(read_slot(&torn, 1, TARGET, 3), Slot::Bad(_)));
    }

    #[test]
    fn anchors_of_others_are_told_apart() {
        let sector = anchor().encode(&OWNER, geometry());
        assert_eq!(read_slot(&sector, 1, Uuid([9; 16]), 3), Slot::Foreign(TARGET));
        assert_eq!(read_slot(&sector, 1, TARGET, 4), Slot::OtherGeneration(3));
        assert_eq!(read_slot(&sector, 0, TARGET, 3), Slot::Bad("in the other anchor's place"));
        let mut newer = sector.to_vec();
        newer[16] = 2;
        let sum = crc64(&newer[8..]);
        newer[..8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(read_slot(&newer, 1, TARGET, 3), Slot::Newer(2));
    }

    #[test]
    fn the_newest_intact_anchor_is_chosen_and_one_may_be_torn() {
        let (older, newer) = (Anchor { seq: 4, ..anchor() }, anchor());
        assert_eq!(choose([slot(&newer), slot(&older)]).unwrap().0.seq, 5);
        assert_eq!(choose([Slot::Bad("torn"), slot(&older)]).unwrap().0.seq, 4);
        assert_eq!(choose([slot(&newer), Slot::Blank]).unwrap().0.seq, 5);
    }

    #[test]
    fn without_an_anchor_of_ours_the_reason_is_told() {
        let kind = |slots| choose(slots).unwrap_err().kind;
        assert_eq!(kind([Slot::Bad("torn"), Slot::Bad("torn")]), JournalErrorKind::Corrupt);
        assert_eq!(kind([Slot::Blank, Slot::Blank]), JournalErrorKind::Corrupt);
        assert_eq!(kind([Slot::Foreign(TARGET), Slot::Blank]), JournalErrorKind::Foreign);
        assert_eq!(kind([Slot::OtherGeneration(1), Slot::Blank]), JournalErrorKind::Foreign);
        assert_eq!(kind([slot(&anchor()), Slot::Newer(2)]), JournalErrorKind::Unsupported);
        assert_eq!(kind([Slot::Unreadable("EIO".into()), Slot::Blank]), JournalErrorKind::Medium);
    }
}
