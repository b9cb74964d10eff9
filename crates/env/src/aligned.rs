//! Buffers that a device takes without a copy.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

use bytes::Bytes;

/// The sector that every store assumes: transfers are multiples of it, at multiples of it, from memory aligned to it.
pub const SECTOR_BYTES: usize = 4096;

/// An owned, zeroed buffer whose memory starts at a multiple of [`SECTOR_BYTES`].
///
/// [`AlignedBuf::freeze`] makes a [`Bytes`] of it without a copy; slices of that at sector multiples stay aligned.
pub struct AlignedBuf {
    memory: NonNull<u8>,
    len: usize,
    capacity: usize,
}

impl AlignedBuf {
    /// `len` zero bytes. Capacity is rounded up to a sector.
    pub fn zeroed(len: usize) -> Self {
        let capacity = len.max(1).next_multiple_of(SECTOR_BYTES);
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a non-zero size.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Self { memory, len, capacity }
    }

    /// A copy of `bytes`, padded with zeros to a multiple of the sector.
    pub fn padded_copy(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len().next_multiple_of(SECTOR_BYTES));
        buf[..bytes.len()].copy_from_slice(bytes);
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

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, SECTOR_BYTES).expect("a buffer's size fits the address space")
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
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.capacity)) }
    }
}

// SAFETY: the memory is owned and has no interior mutability.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

/// True if a device can take `bytes` as they lie in memory: start and length are multiples of the sector.
pub fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES)
}
