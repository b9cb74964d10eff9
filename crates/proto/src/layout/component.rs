//! One component: round-robin striping over OSTs of `[start, end)`.
//!
//! Stripes are counted from byte 0 of the file, so a component that begins in the middle of a stripe does not move the
//! other stripes. Within an object the bytes of a component are dense, stripe after stripe. They begin at the first 64
//! KiB boundary at or after `start`; those of the stripe that contains `start` begin at `start`. So no byte has a
//! larger offset in its object than in its file, and components never overlap.

use super::FOR_EVER;
use crate::{DecodeError, limits, wire_struct};

wire_struct! {
    /// See the module.
    pub struct Component {
        /// First byte.
        pub start: u64,
        /// The byte after the last; u64::MAX: no end.
        pub end: u64,
        /// Bytes of one stripe: a non-zero multiple of 64 KiB.
        pub stripe_bytes: u32,
        /// Requested number of stripes; u32::MAX = over all OSTs.
        pub stripe_count: u32,
        /// Requested first OST; u32::MAX = the server chooses.
        pub stripe_index: u32,
        /// Requested pool; empty = any OST.
        pub pool: String,
        /// OST of each stripe, distinct; empty: they have not been chosen yet.
        pub osts: Vec<u32>,
    }
}

/// A piece of a file that lies in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripePiece {
    /// Position in [`super::Layout::components`].
    pub component: usize,
    /// Position in [`Component::osts`].
    pub stripe: usize,
    /// The OST's index.
    pub ost: u32,
    /// Offset of the piece in the object.
    pub object_offset: u64,
    /// Offset of the piece in the file.
    pub file_offset: u64,
    /// Length in bytes.
    pub length: u64,
}

impl Component {
    /// A component for all of a file, striped over `osts`.
    pub fn plain(stripe_bytes: u32, osts: Vec<u32>) -> Self {
        let (stripe_count, stripe_index, pool) = (osts.len() as u32, u32::MAX, String::new());
        Self { start: 0, end: FOR_EVER, stripe_bytes, stripe_count, stripe_index, pool, osts }
    }

    pub(super) fn validate(&self) -> Result<(), DecodeError> {
        if self.stripe_bytes == 0 || !self.stripe_bytes.is_multiple_of(limits::STRIPE_BYTES_MIN) {
            return Err(DecodeError::new("layout: the stripe size is not a multiple of 64 KiB"));
        }
        if self.osts.len() > limits::STRIPES || self.pool.len() > limits::POOL_NAME_BYTES {
            return Err(DecodeError::new("layout: more than 2000 stripes, or a pool's name of more than 15 bytes"));
        }
        if self.start >= self.end || self.start > limits::FILE_BYTES {
            return Err(DecodeError::new("layout: a component holds nothing"));
        }
        let mut ordered = self.osts.clone();
        ordered.sort_unstable();
        if !ordered.is_sorted_by(|a, b| a < b) {
            return Err(DecodeError::new("layout: two stripes lie on one OST, where they would be one object"));
        }
        Ok(())
    }

    /// Whether its OSTs have been chosen.
    pub fn has_osts(&self) -> bool {
        !self.osts.is_empty()
    }

    /// Appends the pieces of `[offset, offset + length)` that lie in this component, the layout's `number`th.
    pub(super) fn add_pieces(&self, number: usize, offset: u64, length: u64, pieces: &mut Vec<StripePiece>) {
        let end = offset.saturating_add(length).min(self.end);
        let from = offset.max(self.start);
        let mut add = |stripe: usize, file_offset, length| {
            let object_offset = self.object_offset(stripe, file_offset);
            pieces.push(StripePiece {
                component: number,
                stripe,
                ost: self.osts[stripe],
                object_offset,
                file_offset,
                length,
            });
        };
        if self.osts.len() == 1 {
            return add(0, from, end - from);
        }
        let (size, count) = (u64::from(self.stripe_bytes), self.osts.len() as u64);
        crate::crc::blocks(from, end - from, size)
            .for_each(|(file_offset, length)| add((file_offset / size % count) as usize, file_offset, length));
    }

    /// Object offset of byte `file_offset`, which lies in stripe `stripe`.
    fn object_offset(&self, stripe: usize, file_offset: u64) -> u64 {
        let (size, count) = (u64::from(self.stripe_bytes), self.osts.len() as u64);
        self.shift(stripe) + file_offset / size / count * size + file_offset % size
    }

    /// File offset of byte `object_offset` of stripe `stripe`.
    pub fn file_offset(&self, stripe: usize, object_offset: u64) -> u64 {
        let (size, count) = (u64::from(self.stripe_bytes), self.osts.len() as u64);
        let dense = object_offset - self.shift(stripe);
        (dense / size * count + stripe as u64) * size + dense % size
    }

    /// Object range of the bytes of `[from, to)` that lie in stripe `stripe`; empty if there are none.
    pub fn object_range(&self, stripe: usize, from: u64, to: u64) -> std::ops::Range<u64> {
        let place = |offset: u64| self.shift(stripe).saturating_add(self.dense(stripe, offset));
        let (from, to) = (from.max(self.start), to.min(self.end));
        if from >= to { place(from)..place(from) } else { place(from)..place(to) }
    }

    /// End of this component's bytes in the object of stripe `stripe` when the file is `file_bytes` long; 0 if there
    /// are none.
    pub(super) fn object_end(&self, stripe: usize, file_bytes: u64) -> u64 {
        let range = self.object_range(stripe, 0, file_bytes);
        if range.is_empty() { 0 } else { range.end }
    }

    /// Number of bytes before `offset` of the file that would lie in stripe `stripe` if the component began at 0.
    fn dense(&self, stripe: usize, offset: u64) -> u64 {
        let (size, count) = (u64::from(self.stripe_bytes), self.osts.len() as u64);
        let rounds = offset / (size * count) * size;
        let rest = offset % (size * count);
        rounds + rest.saturating_sub(stripe as u64 * size).min(size)
    }

    /// Added to the dense offset, so that the component's bytes begin at its start.
    fn shift(&self, stripe: usize) -> u64 {
        (self.start - self.dense(stripe, self.start)).next_multiple_of(limits::STRIPE_BYTES_MIN.into())
    }
}
