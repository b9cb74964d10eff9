//! Pages that change places instead of being copied: what arrived in an entry of [`super::FuseRing`] moves to where it may stay,
//! and pages that nobody needs any more take their place.
//!
//! The kernel copies to where an entry was registered, always the same addresses. Moving 1 MiB between addresses costs a
//! fraction of copying it.
//!
//! Invariant: a region's addresses are mapped as long as it lives, with pages or without (then they are zeros once touched).

use std::{cell::RefCell, io, ptr::NonNull};

use bytes::Bytes;

use crate::limits::FUSE_RING_SPARE_REGIONS;

thread_local! {
    static SPARES: RefCell<Spares> = RefCell::default();
}

/// Addresses of our own.
pub(super) struct Region {
    at: NonNull<u8>,
    bytes: usize,
}

/// Regions for the next ones, all of one size.
#[derive(Default)]
struct Spares {
    with_pages: Vec<Region>,
    without: Vec<Region>,
}

/// A region whose first bytes somebody keeps.
struct Kept {
    region: Option<Region>,
    len: usize,
}

impl Region {
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, somewhere.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, kind | libc::MAP_NORESERVE, -1, 0) };
        let at =
            NonNull::new(at.cast::<u8>()).filter(|_| at != libc::MAP_FAILED).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: all of the new mapping. A name is to take one small page, not a huge one.
        unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Self { at, bytes })
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped, initialised, and ours.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it the only view.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// The pages go to `to`, in the place of its own; these addresses have none then.
    fn move_to(&mut self, to: &mut Self) -> io::Result<()> {
        assert_eq!(self.bytes, to.bytes, "regions of one size");
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let (from, to, bytes) = (self.at.as_ptr().cast(), to.at.as_ptr().cast::<libc::c_void>(), self.bytes);
        // SAFETY: both are mapped and ours alone, and stay mapped.
        match unsafe { libc::mremap(from, bytes, bytes, how, to) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Its first `len` bytes for whoever keeps them. The same addresses have other pages then, or none.
    pub(super) fn take(&mut self, len: usize) -> io::Result<Bytes> {
        assert!(len <= self.bytes);
        SPARES.with_borrow_mut(|spares| {
            spares.with_pages.retain(|spare| spare.bytes == self.bytes);
            spares.without.retain(|spare| spare.bytes == self.bytes);
            let mut kept = spares.without.pop().map_or_else(|| Self::new(self.bytes), Ok)?;
            self.move_to(&mut kept)?;
            if let Some(mut spare) = spares.with_pages.pop() {
                // Where it fails there are fresh pages.
                let _ = spare.move_to(self);
                spares.without.push(spare);
            }
            Ok(Bytes::from_owner(Kept { region: Some(kept), len }))
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nobody else's.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: the memory is owned and has no interior mutability.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self.region.as_ref().map_or(&[], |region| &region.as_slice()[..self.len])
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let region = self.region.take();
        // Without its spares the thread is ending.
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            let Spares { with_pages, without } = &mut *spares;
            if with_pages.len() + without.len() < FUSE_RING_SPARE_REGIONS {
                with_pages.extend(region);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_stays_what_it_was_while_the_same_addresses_are_used_again() {
        let mut region = Region::new(1 << 20).expect("addresses");
        let at = region.address();
        for round in 0..3 {
            let kept: Vec<Bytes> = (0..2 * FUSE_RING_SPARE_REGIONS)
                .map(|i| {
                    region.as_mut_slice().fill(i as u8 + round);
                    region.take((1 << 20) - i).expect("taken")
                })
                .collect();
            assert_eq!(region.address(), at);
            for (i, bytes) in kept.iter().enumerate() {
                assert!(bytes.len() == (1 << 20) - i && bytes.iter().all(|byte| *byte == i as u8 + round), "{i}");
            }
        }
        SPARES.with_borrow(|spares| {
            assert!(spares.with_pages.len() + spares.without.len() <= FUSE_RING_SPARE_REGIONS);
        });
    }
}
