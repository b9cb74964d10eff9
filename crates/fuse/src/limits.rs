//! Bounds of a mount.

use std::time::Duration;

/// Most bytes of one write or read of the kernel; also the unit in which appends are atomic.
pub const REQUEST_BYTES: u32 = 1 << 20;
/// Requests being served; beyond it no more are read from the kernel, and their programs wait.
pub const OPEN_REQUESTS: usize = 1024;
/// Memory that requests are read to, at a time: what is left of it is of no use when less than a request fits. It is there as long as
/// any byte of it is pinned.
pub const ARENA_BYTES: usize = 8 << 20;
const _: () =
    assert!(ARENA_BYTES <= forebay_env::limits::POOLED_BYTES_MAX, "larger ones would be mapped anew each time");
/// Requests the kernel sends without a process waiting (asynchronous I/O, page faults ahead).
pub const BACKGROUND_REQUESTS: u16 = 128;
/// How often a thread that waits for a lock is asked whether it has a signal to see to.
pub const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a thread that only looks waits before a signal that asks it to end counts: servers that are there answer sooner.
pub const INTERRUPT_AFTER: Duration = Duration::from_secs(1);
/// Names asked for at once from a directory.
pub const DIRECTORY_BYTES: u32 = 64 << 10;
/// `st_blksize`: what stdio and cp take as their buffer. Every buffer is a request, so larger than a page.
pub const BLOCK_BYTES: u32 = 256 << 10;
/// Unit in which statfs counts.
pub const STATFS_BLOCK_BYTES: u32 = 4096;
/// Threads that were told to look again, at most: more of them at once, and some are told so twice.
pub const LOST_RACES: usize = 1024;
/// How long what such a thread looks up is held: between its lookup and what it asks next.
pub const HELD_FOR: Duration = Duration::from_secs(1);
/// What is held at once, at most; beyond it nothing more is.
pub const HELD: usize = 1024;
/// How often a name is looked up whose file goes meanwhile.
pub const LOOKUP_ATTEMPTS: u32 = 8;
/// The same where what is found is to be held: that takes another question, and the thread has lost once.
pub const HOLD_ATTEMPTS: u32 = 64;
/// How long close(2) waits for the MDT to hear of locks that go with it: a process that ends cannot be interrupted any more.
pub const UNLOCK_TERM: Duration = Duration::from_secs(2);
/// How much longer than it may believe any name the kernel is told none, where it cannot be made to forget them: a recall that
/// waits for that is looked at again meanwhile.
pub const QUIET_LONGER: Duration = Duration::from_millis(50);
/// Inodes the kernel was told of and has not shown to have; beyond it attributes are told for the moment only.
pub const NEW_INODES: usize = 1 << 16;
/// Ranges of a file's pages that the kernel may have, and that are told apart; more of them are joined with what lies between.
pub const GIVEN_RANGES: usize = 1024;
/// Threads that have the kernel drop pages.
pub const DROP_THREADS: usize = 4;
/// Changes that wait at once until the kernel has dropped pages; beyond it they are answered before. And reads that wait for
/// those. What they wait for are requests of the kernel's, of which only so many are let through.
pub const SETTLING: usize = 48;
const _: () = assert!(2 * SETTLING < BACKGROUND_REQUESTS as usize, "the kernel would not get through with its own");
