//! How a file's bytes map to objects.
//!
//! The objects of one file all carry the file's fid; an object is told from the others by the OST it lies on. An object's
//! offsets are dense: stripe after stripe of its own, without the holes of the other stripes (as in Lustre).

use crate::{Decode, DecodeError, Encode, Reader, Writer, limits};

/// Round-robin striping over `osts`, for all of the file; later kinds of layout get another tag.
///
/// Invariant: `stripe_bytes` is a non-zero multiple of 64 KiB; `osts` holds 1 to 2000 distinct indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Raised whenever the layout changes; targets refuse older ones.
    pub generation: u32,
    /// Bytes of one stripe.
    pub stripe_bytes: u32,
    /// OST of each stripe, in order; the first one keeps the file's size.
    pub osts: Vec<u32>,
}

/// A piece of a file that lies in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripePiece {
    /// Position in [`Layout::osts`].
    pub stripe: usize,
    /// The OST's index.
    pub ost: u32,
    /// Where the piece begins in the object.
    pub object_offset: u64,
    /// Where the piece begins in the file.
    pub file_offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Layout {
    /// Checks the invariant.
    pub fn validate(&self) -> Result<(), DecodeError> {
        if self.stripe_bytes == 0 || !self.stripe_bytes.is_multiple_of(limits::STRIPE_BYTES_MIN) {
            return Err(DecodeError::new("layout: the stripe size is not a multiple of 64 KiB"));
        }
        if self.osts.is_empty() || self.osts.len() > limits::STRIPES {
            return Err(DecodeError::new("layout: the stripe count is not between 1 and 2000"));
        }
        let mut ordered = self.osts.clone();
        ordered.sort_unstable();
        if !ordered.is_sorted_by(|a, b| a < b) {
            return Err(DecodeError::new("layout: two stripes lie on one OST, where they would be one object"));
        }
        Ok(())
    }

    /// Cuts `[offset, offset + length)` at stripe boundaries, in file order; pieces that are adjacent in the same object
    /// (stripe count 1) come as one.
    pub fn pieces(&self, offset: u64, length: u64) -> Vec<StripePiece> {
        let (size, count) = (u64::from(self.stripe_bytes), self.osts.len() as u64);
        if count == 1 {
            let whole =
                StripePiece { stripe: 0, ost: self.osts[0], object_offset: offset, file_offset: offset, length };
            return if length == 0 { Vec::new() } else { vec![whole] };
        }
        crate::crc::blocks(offset, length, size)
            .map(|(file_offset, length)| {
                let number = file_offset / size;
                let stripe = (number % count) as usize;
                let object_offset = number / count * size + file_offset % size;
                StripePiece { stripe, ost: self.osts[stripe], object_offset, file_offset, length }
            })
            .collect()
    }

    /// Where byte `object_offset` of stripe `stripe` lies in the file.
    pub fn file_offset(&self, stripe: usize, object_offset: u64) -> u64 {
        let (size, count) = (u64::from(self.stripe_bytes), self.osts.len() as u64);
        (object_offset / size * count + stripe as u64) * size + object_offset % size
    }

    /// Size of stripe `stripe`'s object when the file is `file_bytes` long.
    pub fn object_bytes(&self, stripe: usize, file_bytes: u64) -> u64 {
        let (size, count) = (u64::from(self.stripe_bytes), self.osts.len() as u64);
        let rounds = file_bytes / (size * count) * size;
        let rest = file_bytes % (size * count);
        rounds + rest.saturating_sub(stripe as u64 * size).min(size)
    }
}

const PLAIN: u8 = 1;

impl Encode for Layout {
    fn encode(&self, w: &mut Writer) {
        w.prefixed(|w| {
            w.u8(PLAIN);
            w.u32(self.generation);
            w.u32(self.stripe_bytes);
            self.osts.encode(w);
        });
    }
}

impl Decode for Layout {
    const BYTES_MIN: usize = 4 + 1 + 4 + 4 + 4;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut body = r.prefixed()?;
        if body.u8()? != PLAIN {
            return Err(DecodeError::new("layout: a kind this version does not know"));
        }
        let layout = Self { generation: body.u32()?, stripe_bytes: body.u32()?, osts: Vec::decode(&mut body)? };
        layout.validate()?;
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(count: u32) -> Layout {
        Layout { generation: 1, stripe_bytes: 64 << 10, osts: (10..10 + count).collect() }
    }

    #[test]
    fn pieces_cover_the_range_once_and_map_back() {
        let layout = layout(3);
        let pieces = layout.pieces(100_000, 500_000);
        let mut at = 100_000;
        for piece in &pieces {
            assert_eq!(piece.file_offset, at);
            assert_eq!(layout.file_offset(piece.stripe, piece.object_offset), at);
            assert_eq!(piece.ost, 10 + piece.stripe as u32);
            at += piece.length;
        }
        assert_eq!(at, 600_000);
    }

    #[test]
    fn object_sizes_add_up_to_the_file_and_end_where_its_last_byte_lies() {
        let layout = layout(4);
        for bytes in [0, 1, 65_536, 65_537, 262_144, 262_145, 1_000_000] {
            let sizes: Vec<u64> = (0..4).map(|stripe| layout.object_bytes(stripe, bytes)).collect();
            assert_eq!(sizes.iter().sum::<u64>(), bytes, "{sizes:?}");
            if let Some(last) = bytes.checked_sub(1) {
                let piece = layout.pieces(last, 1)[0];
                assert_eq!(sizes[piece.stripe], piece.object_offset + 1);
            }
        }
    }

    #[test]
    fn a_layout_survives_its_bytes_and_a_bad_one_is_refused() {
        let good = layout(2);
        assert_eq!(Layout::from_bytes(&good.to_bytes()), Ok(good.clone()));
        let bad = Layout { stripe_bytes: 1000, ..good.clone() };
        assert!(Layout::from_bytes(&bad.to_bytes()).is_err());
        let twice = Layout { osts: vec![3, 4, 3], ..good };
        assert!(Layout::from_bytes(&twice.to_bytes()).is_err());
    }
}
