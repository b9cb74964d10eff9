//! The slab snapshot: what a checkpoint records beside the table, namely the slabs as of its lsn.
//!
//! It is written as pieces (fragments of kind root), which the anchor's extra bytes list. It does not say where index
//! pages lie: the table itself does.

use forebay_proto::{DecodeError, Reader, Transno, Writer};

use crate::table::PageLocation;

const VERSION: u8 = 1;
const SLAB_BYTES: usize = 17;

/// The slabs as of a checkpoint's lsn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Highest transno contained.
    pub transno: Transno,
    /// Slabs with this epoch or a later one were opened after the snapshot.
    pub next_epoch: u64,
    /// Free slabs in the order in which they will be opened.
    pub free: Vec<u32>,
    /// Each slab.
    pub slabs: Vec<SlabRow>,
}

/// State of one slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlabRow {
    /// Epoch of its last opening; 0 = never opened.
    pub epoch: u64,
    /// Weight of the file data in it.
    pub data_live: u64,
    /// True if it may hold tombstones that are still needed.
    pub tombstones: bool,
}

impl Snapshot {
    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u64(self.transno.0);
        w.u64(self.next_epoch);
        w.u32(self.free.len() as u32);
        w.u32(self.slabs.len() as u32);
        self.free.iter().for_each(|slab| w.u32(*slab));
        for slab in &self.slabs {
            w.u64(slab.epoch);
            w.u64(slab.data_live);
            w.u8(u8::from(slab.tombstones));
        }
        w.into_vec()
    }

    /// The snapshot in these bytes. Errors name the field.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("slab snapshot: a version not known here"));
        }
        let (transno, next_epoch) = (Transno(r.u64()?), r.u64()?);
        let (free, slabs) = (r.u32()? as usize, r.u32()? as usize);
        if free > r.remaining() / 4 || slabs > r.remaining() / SLAB_BYTES {
            return Err(DecodeError::new("slab snapshot: claims more slabs than there are bytes"));
        }
        let free = (0..free).map(|_| r.u32()).collect::<Result<_, _>>()?;
        let mut row = || Ok(SlabRow { epoch: r.u64()?, data_live: r.u64()?, tombstones: r.u8()? != 0 });
        let slabs = (0..slabs).map(|_| row()).collect::<Result<_, _>>()?;
        Ok(Self { transno, next_epoch, free, slabs })
    }
}

/// The anchor's extra bytes: where the pieces of the snapshot lie.
pub(crate) fn encode_extra(pieces: &[PageLocation]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u8(VERSION);
    w.u32(pieces.len() as u32);
    for piece in pieces {
        w.u32(piece.slab);
        w.u64(piece.epoch);
        w.u32(piece.offset);
        w.u32(piece.bytes);
        w.u64(piece.sum);
    }
    w.into_vec()
}

/// Reads what [`encode_extra`] wrote. Errors name the field.
pub(crate) fn decode_extra(bytes: &[u8]) -> Result<Vec<PageLocation>, DecodeError> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("anchor: a version not known here"));
    }
    let count = r.u32()? as usize;
    if count > r.remaining() / 28 {
        return Err(DecodeError::new("anchor: claims more pieces than there are bytes"));
    }
    let mut piece = || {
        let (slab, epoch, offset) = (r.u32()?, r.u64()?, r.u32()?);
        Ok(PageLocation { slab, epoch, offset, bytes: r.u32()?, sum: r.u64()? })
    };
    (0..count).map(|_| piece()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_and_its_places_survive_their_bytes() {
        let row = SlabRow { epoch: 3, data_live: 4, tombstones: true };
        let snapshot =
            Snapshot { transno: Transno(9), next_epoch: 77, free: vec![2, 1], slabs: vec![row, SlabRow::default()] };
        let bytes = snapshot.encode();
        assert_eq!(Snapshot::decode(&bytes), Ok(snapshot));
        assert_eq!(bytes.len(), 25 + 8 + 34);
        assert!((0..bytes.len()).all(|end| Snapshot::decode(&bytes[..end]).is_err()));
        let places = vec![PageLocation { slab: 1, epoch: 2, offset: 3, bytes: 4, sum: 5 }];
        assert_eq!(decode_extra(&encode_extra(&places)), Ok(places));
    }
}
