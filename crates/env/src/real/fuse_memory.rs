//! Memory of one entry of [`super::FuseRing`]: a page of headers, then space for a payload.
//!
//! The kernel learns both addresses once, when the entry is registered. It copies to them when a request arrives, and
//! from them when its reply is sent. Pages that were never copied to take no memory.
//!
//! Invariant: nothing here is read or changed while the kernel owns the entry; [`super::FuseRing`] ensures that.

use std::{
    io::{self, IoSlice},
    ptr::NonNull,
};

use crate::{Arena, SECTOR_BYTES};

/// `struct fuse_uring_req_header`: a header, the operation's fixed part, and the fields to reply to an entry.
pub const FUSE_HEAD_BYTES: usize = 288;
/// Offset of an operation's fixed part, which has as much space as the header before it.
pub const FUSE_OPERATION_AT: usize = 128;
/// Offset of `struct fuse_uring_ent_in_out`: flags, commit id, bytes of the payload.
const ENTRY_AT: usize = 256;
const COMMIT_ID_AT: usize = ENTRY_AT + 8;
const PAYLOAD_BYTES_AT: usize = ENTRY_AT + 16;
/// `struct fuse_out_header`.
const ANSWER_BYTES: usize = 16;

pub(super) struct EntryMemory {
    at: NonNull<u8>,
    payload_bytes: usize,
    /// The addresses in the form that the kernel expects.
    vectors: Box<[libc::iovec; 2]>,
}

/// The headers that the kernel wrote for a request.
#[derive(Clone, Copy)]
pub struct FuseHead(pub(super) [u8; FUSE_HEAD_BYTES]);

impl From<[u8; FUSE_HEAD_BYTES]> for FuseHead {
    fn from(bytes: [u8; FUSE_HEAD_BYTES]) -> Self {
        Self(bytes)
    }
}

impl FuseHead {
    /// The request's header, and what follows it up to the fixed part.
    pub fn header(&self) -> &[u8] {
        &self.0[..FUSE_OPERATION_AT]
    }

    /// The operation's fixed part, `len` bytes; None if it cannot be that long.
    pub fn operation(&self, len: usize) -> Option<&[u8]> {
        self.0[FUSE_OPERATION_AT..ENTRY_AT].get(..len)
    }

    /// Length of the payload, as the kernel reports it.
    pub fn payload_bytes(&self) -> usize {
        u32::from_ne_bytes(self.0[PAYLOAD_BYTES_AT..][..4].try_into().expect("four bytes")) as usize
    }

    pub(super) fn commit_id(&self) -> u64 {
        u64::from_ne_bytes(self.0[COMMIT_ID_AT..][..8].try_into().expect("eight bytes"))
    }
}

impl EntryMemory {
    pub(super) fn new(payload_bytes: usize) -> io::Result<Self> {
        let bytes = SECTOR_BYTES + payload_bytes;
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at any address.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, kind | libc::MAP_NORESERVE, -1, 0) };
        let at =
            NonNull::new(at.cast::<u8>()).filter(|_| at != libc::MAP_FAILED).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: all of the new mapping. A small request takes one small page, not a huge one.
        unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        // SAFETY: within the mapping.
        let payload = unsafe { at.add(SECTOR_BYTES) };
        let vectors = Box::new([
            libc::iovec { iov_base: at.as_ptr().cast(), iov_len: FUSE_HEAD_BYTES },
            libc::iovec { iov_base: payload.as_ptr().cast(), iov_len: payload_bytes },
        ]);
        Ok(Self { at, payload_bytes, vectors })
    }

    pub(super) fn vectors(&self) -> &[libc::iovec; 2] {
        &self.vectors
    }

    pub(super) fn head(&self) -> FuseHead {
        // SAFETY: within the mapping, which is initialised and not written now (see the module's invariant).
        FuseHead(unsafe { self.at.cast::<[u8; FUSE_HEAD_BYTES]>().read() })
    }

    /// The first `len` bytes of the payload; None if it cannot be that long.
    fn payload(&self, len: usize) -> Option<&[u8]> {
        // SAFETY: as above.
        (len <= self.payload_bytes)
            .then(|| unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(SECTOR_BYTES), len) })
    }

    /// Appends the payload to `to`. False, and nothing is appended, if it cannot be that long.
    pub(super) fn read(&self, len: usize, to: &mut Vec<u8>) -> bool {
        self.payload(len).map(|payload| to.extend_from_slice(payload)).is_some()
    }

    /// Copies the payload to the next free memory of `to`.
    pub(super) fn read_to_arena(&self, len: usize, to: &mut Arena) -> bool {
        self.payload(len).map(|payload| to.room(len)[..len].copy_from_slice(payload)).is_some()
    }

    /// Writes a reply: its header, and what follows that. False, and nothing is written, if it does not fit.
    pub(super) fn write(&mut self, header: &[u8], parts: &[IoSlice<'_>]) -> bool {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if header.len() != ANSWER_BYTES || bytes > self.payload_bytes {
            return false;
        }
        // SAFETY: within the mapping; `&mut self` makes this our only view, and the kernel does not access it now.
        let head = unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), FUSE_HEAD_BYTES) };
        head[..ANSWER_BYTES].copy_from_slice(header);
        head[PAYLOAD_BYTES_AT..][..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
        // SAFETY: as above.
        let payload = unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().add(SECTOR_BYTES), bytes) };
        let mut at = 0;
        for part in parts {
            payload[at..][..part.len()].copy_from_slice(part);
            at += part.len();
        }
        true
    }
}

impl Drop for EntryMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nobody else's.
        unsafe { libc::munmap(self.at.as_ptr().cast(), SECTOR_BYTES + self.payload_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_the_memory_are_refused() {
        let mut memory = EntryMemory::new(8192).expect("memory");
        let (mut bytes, mut arena) = (vec![7], Arena::new(1 << 16));
        for len in [8193, usize::MAX] {
            assert!(!memory.read(len, &mut bytes) && !memory.read_to_arena(len, &mut arena) && bytes == [7]);
        }
        assert!(memory.read(8192, &mut bytes) && bytes.len() == 8193);
        let large = vec![1; 8192];
        assert!(!memory.write(&[9; 16], &[IoSlice::new(&large), IoSlice::new(&[1])]));
        assert!(!memory.write(&[9; 15], &[]));
        assert_eq!(memory.head().0, [0; FUSE_HEAD_BYTES], "what was refused left no trace");
        assert!(memory.write(&[9; 16], &[IoSlice::new(&large)]));
    }

    #[test]
    fn an_answer_lies_where_the_kernel_looks() {
        let mut memory = EntryMemory::new(8192).expect("memory");
        assert!(memory.write(&[9; 16], &[IoSlice::new(&[1, 2]), IoSlice::new(&[3])]));
        let head = memory.head();
        assert_eq!((&head.0[..16], head.payload_bytes()), (&[9; 16][..], 3));
        assert_eq!(head.0[272..276], 3u32.to_ne_bytes());
        assert_eq!(memory.payload(4), Some(&[1, 2, 3, 0][..]));
    }

    #[test]
    fn a_request_lies_where_the_kernel_puts_it() {
        let mut bytes = [0; FUSE_HEAD_BYTES];
        bytes[..4].copy_from_slice(&77u32.to_ne_bytes());
        bytes[128..132].fill(5);
        bytes[264..272].copy_from_slice(&u64::MAX.to_ne_bytes());
        bytes[272..276].copy_from_slice(&u32::MAX.to_ne_bytes());
        let head = FuseHead(bytes);
        assert_eq!((head.header()[0], head.header().len()), (77, 128));
        assert_eq!((head.commit_id(), head.payload_bytes()), (u64::MAX, u32::MAX as usize));
        assert_eq!(head.operation(5), Some(&[5, 5, 5, 5, 0][..]));
        assert!(head.operation(128).is_some() && head.operation(129).is_none());
    }
}
