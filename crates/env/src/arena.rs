//! Memory handed out piece by piece: input of unknown length stays where it was received.
//!
//! Invariant: a byte belongs to one piece, or to the arena.

use std::{ptr::NonNull, sync::Arc};

use bytes::Bytes;

use crate::{AlignedBuf, SECTOR_BYTES};

/// Hands out pieces of chunks; a chunk lives as long as its last piece.
pub struct Arena {
    chunk: Arc<Chunk>,
    used: usize,
    chunk_bytes: usize,
}

/// One contiguous block of memory.
struct Chunk {
    memory: NonNull<u8>,
    bytes: usize,
    /// Owns `memory`; never accessed.
    _owner: AlignedBuf,
}

// SAFETY: each holder of a chunk touches only its own bytes (see the module's invariant).
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

/// Bytes of a chunk that were handed out.
struct Piece {
    chunk: Arc<Chunk>,
    at: usize,
    len: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: within the chunk, initialised, and not written any more.
        unsafe { std::slice::from_raw_parts(self.chunk.memory.as_ptr().add(self.at), self.len) }
    }
}

impl Chunk {
    fn new(bytes: usize) -> Arc<Self> {
        let mut owner = AlignedBuf::to_be_filled(bytes);
        let memory = NonNull::new(owner.as_mut_ptr()).expect("a buffer is somewhere");
        Arc::new(Self { memory, bytes, _owner: owner })
    }
}

impl Arena {
    /// An arena whose chunks have `chunk_bytes`.
    pub fn new(chunk_bytes: usize) -> Self {
        Self { chunk: Chunk::new(chunk_bytes), used: 0, chunk_bytes }
    }

    /// `len` bytes that belong to no piece, of any content, in memory that a device can transfer.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        if Arc::get_mut(&mut self.chunk).is_some() {
            self.used = 0;
        }
        if self.chunk.bytes - self.used < len {
            self.chunk = Chunk::new(self.chunk_bytes.max(len));
            self.used = 0;
        }
        // SAFETY: within the chunk, initialised, and behind all pieces handed out; `&mut self` makes it the only view.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.memory.as_ptr().add(self.used), len) }
    }

    /// The first `len` bytes of the last [`Arena::room`], with their current content. Pieces dropped meanwhile do not
    /// matter.
    pub fn last(&self, len: usize) -> &[u8] {
        assert!(len <= self.chunk.bytes - self.used, "no more than there was room for");
        // SAFETY: within the chunk, initialised, and behind all pieces handed out.
        unsafe { std::slice::from_raw_parts(self.chunk.memory.as_ptr().add(self.used), len) }
    }

    /// Hands out the first `len` bytes of the last [`Arena::room`], with their current content.
    pub fn take(&mut self, len: usize) -> Bytes {
        assert!(len <= self.chunk.bytes - self.used, "no more than there was room for");
        let piece = Piece { chunk: self.chunk.clone(), at: self.used, len };
        self.used = (self.used + len).next_multiple_of(SECTOR_BYTES).min(self.chunk.bytes);
        Bytes::from_owner(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_stay_what_they_were_and_begin_at_sectors() {
        let mut arena = Arena::new(1 << 20);
        let mut pieces = Vec::new();
        for i in 0..200u8 {
            let len = 1 + usize::from(i) * 977;
            arena.room(300_000)[..len].fill(i);
            pieces.push(arena.take(len));
        }
        for (i, piece) in pieces.iter().enumerate() {
            assert!((piece.as_ptr() as usize).is_multiple_of(SECTOR_BYTES));
            assert!(piece.len() == 1 + i * 977 && piece.iter().all(|byte| usize::from(*byte) == i));
        }
    }

    #[test]
    fn bytes_in_the_last_room_stay_when_all_pieces_of_the_arena_are_dropped() {
        let mut arena = Arena::new(1 << 20);
        arena.room(8192)[..8192].fill(1);
        let piece = arena.take(8192);
        arena.room(8192)[..100].fill(2);
        drop(piece);
        assert!(arena.last(100).iter().all(|byte| *byte == 2));
        assert!(arena.take(100).iter().all(|byte| *byte == 2));
    }

    #[test]
    fn a_chunk_without_pieces_is_used_from_its_beginning() {
        let mut arena = Arena::new(1 << 20);
        let first = arena.room(1 << 20).as_ptr();
        drop(arena.take(700_000));
        assert_eq!(arena.room(1 << 20).as_ptr(), first);
        let kept = arena.take(700_000);
        assert_ne!(arena.room(1 << 20).as_ptr(), first);
        drop(kept);
    }
}
