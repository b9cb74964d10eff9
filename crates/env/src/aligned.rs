//! Buffers that a device can transfer without a copy.
//!
//! Invariant: all memory here is initialised, if only with the content of an earlier buffer.

use std::{
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

use bytes::Bytes;

use crate::pool;

/// The sector that every store assumes: transfers are multiples of it, at multiples of it, from memory aligned to it.
pub const SECTOR_BYTES: usize = 4096;

/// An owned buffer whose memory starts at a multiple of [`SECTOR_BYTES`]; the memory of large ones is reused.
///
/// [`AlignedBuf::freeze`] makes a [`Bytes`] of it without a copy; slices of that at sector multiples stay aligned.
pub struct AlignedBuf {
    memory: NonNull<u8>,
    len: usize,
    capacity: usize,
}

impl AlignedBuf {
    /// `len` zero bytes. Capacity is rounded up to whole sectors at least.
    pub fn zeroed(len: usize) -> Self {
        let (memory, capacity) = pool::take(len, true);
        Self { memory, len, capacity }
    }

    /// `len` bytes of any content, for callers that fill them all before they are read.
    pub fn to_be_filled(len: usize) -> Self {
        let (memory, capacity) = pool::take(len, false);
        Self { memory, len, capacity }
    }

    /// A copy of `bytes`, padded with zeros to a multiple of the sector.
    pub fn padded_copy(bytes: &[u8]) -> Self {
        let mut buf = Self::to_be_filled(bytes.len().next_multiple_of(SECTOR_BYTES));
        buf[..bytes.len()].copy_from_slice(bytes);
        buf[bytes.len()..].fill(0);
        buf
    }

    /// Shortens to `len` bytes; longer is a bug.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len);
        self.len = len;
    }

    /// The same memory as shared, immutable bytes.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `memory` holds `capacity >= len` initialised bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes it the only view.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: taken from the pool with this capacity; it is not used any more.
        unsafe { pool::give_back(self.memory, self.capacity) }
    }
}

// SAFETY: the memory is owned and has no interior mutability.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

/// True if a device can transfer `bytes` without a copy: start and length are multiples of the sector.
pub fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zeroed_buffer_is_zero_also_where_the_memory_was_used_before() {
        for len in [1, 5000, 100_000, 1 << 20, (5 << 20) + 1] {
            let mut buf = AlignedBuf::to_be_filled(len);
            buf.fill(7);
            drop(buf);
            let buf = AlignedBuf::zeroed(len);
            assert!(buf.len() == len && buf.iter().all(|byte| *byte == 0), "{len}");
        }
    }

    #[test]
    fn a_padded_copy_ends_in_zeros() {
        drop(AlignedBuf::padded_copy(&[9; 100_000]));
        let copy = AlignedBuf::padded_copy(&[1; 99_000]);
        assert_eq!(copy.len() % SECTOR_BYTES, 0);
        assert!(copy[..99_000].iter().all(|byte| *byte == 1) && copy[99_000..].iter().all(|byte| *byte == 0));
    }
}
