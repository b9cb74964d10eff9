//! Counts the memory that this thread allocates.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Bytes of memory for each byte of input: a list's member takes at most this many times its fewest bytes on the wire.
const MEMORY_PER_BYTE: usize = 9;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + layout.size());
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`, and the memory came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `decode`, which must not allocate more memory in all than is allowed for `input` bytes.
pub fn within_proportion<T>(input: usize, decode: impl FnOnce() -> T) -> T {
    let before = ASKED.get();
    let value = decode();
    let asked = ASKED.get() - before;
    assert!(asked <= input * MEMORY_PER_BYTE, "{asked} bytes of memory for {input} bytes of input");
    value
}
