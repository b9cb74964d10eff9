//! Bounds of a mount.

use std::time::Duration;

/// Most bytes of one write or read of the kernel; also the unit in which appends are atomic.
pub const REQUEST_BYTES: u32 = 1 << 20;
/// Requests waiting for the shard; the threads that read from the kernel wait beyond it.
pub const WAITING_REQUESTS: usize = 1024;
/// Requests the kernel sends without a process waiting (asynchronous I/O, page faults ahead).
pub const BACKGROUND_REQUESTS: u16 = 128;
/// Threads that read from the kernel, by default.
pub const THREADS: usize = 2;
/// How long the kernel may believe attributes and entries: not at all, there are no leases yet.
pub const TTL: Duration = Duration::ZERO;
/// Names asked for at once from a directory.
pub const DIRECTORY_BYTES: u32 = 64 << 10;
/// `st_blksize`: what stdio and cp take as their buffer. Every buffer is a request, so larger than a page.
pub const BLOCK_BYTES: u32 = 256 << 10;
/// Unit in which statfs counts.
pub const STATFS_BLOCK_BYTES: u32 = 4096;
