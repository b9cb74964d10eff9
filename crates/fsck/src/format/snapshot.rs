//! The slab snapshot of a checkpoint (docs/format.md, "Slab snapshot"), and the anchor's list of its pieces.

use forebay_proto::{DecodeError, Reader, Transno};

use super::Location;

const VERSION: u8 = 1;
const SLAB_BYTES: usize = 17;
const PIECE_BYTES: usize = 28;

/// The slabs at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Highest transno in the checkpoint.
    pub transno: Transno,
    /// Slabs with this epoch or a later one were opened afterwards.
    pub next_epoch: u64,
    /// Free slabs in the order in which they will be used.
    pub free: Vec<u32>,
    /// Each slab.
    pub slabs: Vec<SlabRow>,
}

/// One slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabRow {
    /// Epoch of its last opening; 0: never opened.
    pub epoch: u64,
    /// Live bytes of file data in it.
    pub data_live: u64,
    /// True if it may hold tombstones that are still needed.
    pub tombstones: bool,
}

impl Snapshot {
    /// Decodes the concatenated pieces.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("its version is not known here"));
        }
        let (transno, next_epoch) = (Transno(r.u64()?), r.u64()?);
        let (free, slabs) = (r.u32()? as usize, r.u32()? as usize);
        if free > r.remaining() / 4 || slabs > r.remaining() / SLAB_BYTES {
            return Err(DecodeError::new("it claims more slabs than there are bytes"));
        }
        let free = (0..free).map(|_| r.u32()).collect::<Result<_, _>>()?;
        let mut row = || Ok(SlabRow { epoch: r.u64()?, data_live: r.u64()?, tombstones: r.u8()? != 0 });
        let slabs = (0..slabs).map(|_| row()).collect::<Result<_, _>>()?;
        Ok(Self { transno, next_epoch, free, slabs })
    }
}

/// The locations of the pieces, from the anchor's own bytes.
pub fn decode_pieces(extra: &[u8]) -> Result<Vec<Location>, DecodeError> {
    let mut r = Reader::new(extra);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("the list of its pieces is of a version not known here"));
    }
    let count = r.u32()? as usize;
    if count > r.remaining() / PIECE_BYTES {
        return Err(DecodeError::new("the list of its pieces is cut short"));
    }
    let mut piece = || {
        let (slab, epoch, at) = (r.u32()?, r.u64()?, u64::from(r.u32()?));
        Ok(Location { slab, epoch, at, bytes: u64::from(r.u32()?), sum: r.u64()? })
    };
    (0..count).map(|_| piece()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_made_by_hand_is_read() {
        let mut bytes = vec![1, 9, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
        bytes.extend([3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1]);
        let slabs = vec![SlabRow { epoch: 3, data_live: 4, tombstones: true }];
        let expected = Snapshot { transno: Transno(9), next_epoch: 77, free: vec![2], slabs };
        assert_eq!(Snapshot::decode(&bytes), Ok(expected));
        (0..bytes.len()).for_each(|end| assert!(Snapshot::decode(&bytes[..end]).is_err()));
    }

    #[test]
    fn pieces_made_by_hand_are_read() {
        let mut bytes = vec![1, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        bytes.extend(5u64.to_le_bytes());
        assert_eq!(decode_pieces(&bytes), Ok(vec![Location { slab: 1, epoch: 2, at: 3, bytes: 4, sum: 5 }]));
        assert!(decode_pieces(&[1, 255, 255, 255, 255]).is_err() && decode_pieces(&[]).is_err());
    }
}
