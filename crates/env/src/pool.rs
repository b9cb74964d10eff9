//! Memory of large buffers, kept for reuse by the same thread: the system would clear every page of new memory.
//!
//! Buffers are cut from huge pages, where the system has them. A device takes 1 MiB of a huge page as one piece of
//! memory. Of small pages it takes 256 pieces, more than many devices accept in one request.
//!
//! Invariant: all memory handed out is initialised.
//! Invariant: a thread keeps at most [`limits::POOL_BYTES`] of unused memory.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    cell::RefCell,
    collections::BTreeMap,
    ptr::NonNull,
};

use crate::{SECTOR_BYTES, limits};

/// The size on x86-64 and most other machines; a wrong guess costs only speed.
const HUGE_PAGE_BYTES: usize = 2 << 20;

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { free: BTreeMap::new(), free_bytes: 0 }) };
}

/// Free memory by capacity, the most recently used on top: it may still be in a cache.
struct Pool {
    free: BTreeMap<usize, Vec<NonNull<u8>>>,
    free_bytes: usize,
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (capacity, list) in std::mem::take(&mut self.free) {
            // SAFETY: allocated in `take` with this capacity, and nobody else's.
            list.into_iter().for_each(|memory| unsafe { release(memory, capacity) });
        }
    }
}

/// Memory for `len` bytes, and its capacity; zeros if asked, otherwise any content.
pub(crate) fn take(len: usize, zeroed: bool) -> (NonNull<u8>, usize) {
    let capacity = capacity(len);
    let kept = POOL.try_with(|pool| pool.borrow_mut().take(capacity)).ok().flatten();
    if let Some(memory) = kept {
        if zeroed {
            // SAFETY: `capacity` bytes are ours, and at least `len`.
            unsafe { memory.as_ptr().write_bytes(0, len) };
        }
        return (memory, capacity);
    }
    (fresh(capacity), capacity)
}

/// Zeros from the system. The rest of what was mapped with them goes to the pool.
fn fresh(capacity: usize) -> NonNull<u8> {
    if !is_mapped(capacity) {
        let layout = layout(capacity);
        // SAFETY: the layout has a non-zero size.
        return NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
    }
    let count = (limits::MAPPED_AT_ONCE_BYTES / capacity).max(1);
    let region = map(capacity * count);
    for piece in (1..count).rev() {
        // SAFETY: within the region.
        let memory = unsafe { region.byte_add(piece * capacity) };
        // Memory that was never used displaces none that was.
        let kept = POOL.try_with(|pool| pool.borrow_mut().keep_where_there_is_room(memory, capacity)).unwrap_or(false);
        if !kept {
            // SAFETY: nobody else's, and used by nobody.
            unsafe { release(memory, capacity) };
        }
    }
    region
}

/// Maps `bytes`, in huge pages where possible.
fn map(bytes: usize) -> NonNull<u8> {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at any address.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes + HUGE_PAGE_BYTES, protection, kind, -1, 0) };
    if mapped == libc::MAP_FAILED {
        handle_alloc_error(layout(bytes));
    }
    let before = mapped.align_offset(HUGE_PAGE_BYTES);
    let memory = mapped.wrapping_byte_add(before);
    // SAFETY: all within the new mapping, and nobody else's. A failure costs address space, or speed.
    unsafe {
        if before > 0 {
            libc::munmap(mapped, before);
        }
        libc::munmap(memory.wrapping_byte_add(bytes), HUGE_PAGE_BYTES - before);
        libc::madvise(memory, bytes, libc::MADV_HUGEPAGE);
    }
    NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout(bytes)))
}

/// Returns memory to the system.
///
/// # Safety
///
/// It came from [`fresh`] with this capacity, and is not used any more.
unsafe fn release(memory: NonNull<u8>, capacity: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match is_mapped(capacity) {
            true => drop(libc::munmap(memory.as_ptr().cast(), capacity)),
            false => dealloc(memory.as_ptr(), layout(capacity)),
        }
    }
}

fn is_pooled(capacity: usize) -> bool {
    (limits::POOLED_BYTES_MIN..=limits::POOLED_BYTES_MAX).contains(&capacity)
}

/// True of memory that is mapped separately: part of a huge page, or several.
fn is_mapped(capacity: usize) -> bool {
    capacity >= limits::MAPPED_BYTES_MIN
}

/// Takes memory back into the pool.
///
/// # Safety
///
/// It came from [`take`] with this capacity, and is not used any more.
pub(crate) unsafe fn give_back(memory: NonNull<u8>, capacity: usize) {
    let kept = POOL.try_with(|pool| pool.borrow_mut().keep(memory, capacity)).unwrap_or(false);
    if !kept {
        // SAFETY: the caller's promise.
        unsafe { release(memory, capacity) }
    }
}

impl Pool {
    fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        let memory = self.free.get_mut(&capacity)?.pop()?;
        self.free_bytes -= capacity;
        Some(memory)
    }

    /// Releases free memory of other sizes, which are not in use now, for `capacity` bytes.
    fn make_room(&mut self, capacity: usize) {
        for (other, list) in self.free.iter_mut().filter(|(other, _)| **other != capacity) {
            while self.free_bytes + capacity > limits::POOL_BYTES
                && let Some(memory) = list.pop()
            {
                self.free_bytes -= other;
                // SAFETY: from `fresh` with this capacity, and nobody else's.
                unsafe { release(memory, *other) };
            }
        }
    }

    fn keep(&mut self, memory: NonNull<u8>, capacity: usize) -> bool {
        if is_pooled(capacity) && self.free_bytes + capacity > limits::POOL_BYTES {
            self.make_room(capacity);
        }
        self.keep_where_there_is_room(memory, capacity)
    }

    fn keep_where_there_is_room(&mut self, memory: NonNull<u8>, capacity: usize) -> bool {
        let keeps = is_pooled(capacity) && self.free_bytes + capacity <= limits::POOL_BYTES;
        if keeps {
            self.free.entry(capacity).or_default().push(memory);
            self.free_bytes += capacity;
        }
        keeps
    }
}

/// Whole sectors. Larger capacities have only four sizes between two powers of two, so that buffers are reusable.
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
        let (other, capacity) = take(4 << 20, false);
        // SAFETY: as above.
        unsafe { give_back(other, capacity) };
        assert_eq!(take(4 << 20, false).0, other, "what is used now takes the place of what was used before");
        // SAFETY: as above.
        unsafe { give_back(other, capacity) };
    }

    #[test]
    fn mapped_memory_is_zero_and_all_ours() {
        for capacity in [256 << 10, 1 << 20, 5 << 18, 2 << 20, 7 << 19, 8 << 20, 20 << 20] {
            let count = 2 * (limits::MAPPED_AT_ONCE_BYTES / capacity).max(1) + 1;
            let taken: Vec<_> = (0..count).map(|_| take(capacity, false)).collect();
            for (number, (memory, length)) in taken.iter().enumerate() {
                assert_eq!(*length, capacity);
                // SAFETY: `capacity` bytes, ours until they are given back.
                let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), capacity) };
                assert!(bytes.iter().all(|byte| *byte == 0), "nobody else wrote there");
                bytes.fill(number as u8 + 1);
            }
            // SAFETY: each once, and used no more.
            taken.into_iter().for_each(|(memory, capacity)| unsafe { give_back(memory, capacity) });
        }
    }

    #[test]
    fn memory_of_one_mapping_is_given_back_to_the_system_piece_by_piece() {
        let capacity = 1 << 20;
        let region = map(3 * capacity);
        assert!((region.as_ptr() as usize).is_multiple_of(HUGE_PAGE_BYTES));
        // SAFETY: three pieces, used no more once they are released.
        unsafe {
            region.write_bytes(1, 3 * capacity);
            release(region.byte_add(capacity), capacity);
            assert_eq!((region.read(), region.byte_add(3 * capacity - 1).read()), (1, 1));
            release(region, capacity);
            release(region.byte_add(2 * capacity), capacity);
        }
    }
}
