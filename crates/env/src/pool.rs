//! Memory of large buffers, kept for the next ones of the same thread: the system would clear every page of it anew.
//!
//! Invariant: all memory handed out is initialised.
//! Invariant: a thread keeps at most [`limits::POOL_BYTES`] that nobody uses.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    cell::RefCell,
    collections::BTreeMap,
    ptr::NonNull,
};

use crate::{SECTOR_BYTES, limits};

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { free: BTreeMap::new(), free_bytes: 0 }) };
}

/// Free memory by capacity, the latest used on top: it may still be in a cache.
struct Pool {
    free: BTreeMap<usize, Vec<NonNull<u8>>>,
    free_bytes: usize,
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (capacity, list) in std::mem::take(&mut self.free) {
            // SAFETY: allocated in `take` with this capacity, and nobody else's.
            list.into_iter().for_each(|memory| unsafe { dealloc(memory.as_ptr(), layout(capacity)) });
        }
    }
}

/// Memory for `len` bytes, and its capacity; zeros if asked, else whatever was there.
pub(crate) fn take(len: usize, zeroed: bool) -> (NonNull<u8>, usize) {
    let capacity = capacity(len);
    let kept = POOL.try_with(|pool| pool.borrow_mut().take(capacity)).ok().flatten();
    if let Some(memory) = kept {
        if zeroed {
            // SAFETY: `capacity` bytes are ours, and no fewer than `len`.
            unsafe { memory.as_ptr().write_bytes(0, len) };
        }
        return (memory, capacity);
    }
    // SAFETY: the layout has a non-zero size.
    let memory = unsafe { alloc_zeroed(layout(capacity)) };
    let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout(capacity)) };
    (memory, capacity)
}

/// Takes memory back.
///
/// # Safety
///
/// It came from [`take`] with this capacity, and nobody uses it any more.
pub(crate) unsafe fn give_back(memory: NonNull<u8>, capacity: usize) {
    let kept = POOL.try_with(|pool| pool.borrow_mut().keep(memory, capacity)).unwrap_or(false);
    if !kept {
        // SAFETY: the caller's promise.
        unsafe { dealloc(memory.as_ptr(), layout(capacity)) }
    }
}

impl Pool {
    fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        let memory = self.free.get_mut(&capacity)?.pop()?;
        self.free_bytes -= capacity;
        Some(memory)
    }

    fn keep(&mut self, memory: NonNull<u8>, capacity: usize) -> bool {
        let keeps = (limits::POOLED_BYTES_MIN..=limits::POOLED_BYTES_MAX).contains(&capacity)
            && self.free_bytes + capacity <= limits::POOL_BYTES;
        if keeps {
            self.free.entry(capacity).or_default().push(memory);
            self.free_bytes += capacity;
        }
        keeps
    }
}

/// Whole sectors; of larger ones only four sizes between a power of two and the next, so that they fit again.
fn capacity(len: usize) -> usize {
    let sectors = len.max(1).next_multiple_of(SECTOR_BYTES);
    let step = (1 << sectors.ilog2()) / 4;
    sectors.next_multiple_of(step.max(SECTOR_BYTES))
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, SECTOR_BYTES).expect("a buffer's size fits the address space")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_whole_sectors_and_at_most_a_quarter_too_large() {
        for len in [1, 4096, 4097, 20_000, 47_008, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 3 << 20] {
            let capacity = capacity(len);
            assert!(capacity >= len && capacity.is_multiple_of(SECTOR_BYTES), "{len}");
            assert!(capacity <= len.next_multiple_of(SECTOR_BYTES) * 5 / 4, "{len}: {capacity}");
        }
    }

    #[test]
    fn memory_given_back_is_handed_out_again_up_to_a_bound() {
        let (memory, capacity) = take(1 << 20, false);
        // SAFETY: just taken, and used no more.
        unsafe { give_back(memory, capacity) };
        assert_eq!(take(1 << 20, false).0, memory);
        // SAFETY: as above.
        unsafe { give_back(memory, capacity) };
        let many: Vec<_> = (0..limits::POOL_BYTES / (1 << 20) + 5).map(|_| take(1 << 20, false)).collect();
        // SAFETY: as above, each once.
        many.into_iter().for_each(|(memory, capacity)| unsafe { give_back(memory, capacity) });
        POOL.with_borrow(|pool| assert!(pool.free_bytes <= limits::POOL_BYTES));
    }
}
