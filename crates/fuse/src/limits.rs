//! Bounds of a mount.

use std::time::Duration;

/// Most bytes of one write or read request of the kernel; also the unit in which appends are atomic.
pub const REQUEST_BYTES: u32 = 1 << 20;
/// Most requests in service. Beyond it the mount reads no more from the kernel, and their programs wait.
pub const OPEN_REQUESTS: usize = 1024;
/// Bytes of one buffer into which requests are read. When less than one request fits into it, its rest stays unused.
/// The buffer stays allocated as long as any of its bytes are pinned.
pub const ARENA_BYTES: usize = 8 << 20;
const _: () =
    assert!(ARENA_BYTES <= forebay_env::limits::POOLED_BYTES_MAX, "larger ones would be mapped anew each time");
/// Most requests that the kernel sends without a waiting process (asynchronous I/O, readahead for page faults).
pub const BACKGROUND_REQUESTS: u16 = 128;
/// How often the mount checks whether a thread that waits for a lock has a pending signal.
pub const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a request waits before a signal can interrupt it. Reachable servers reply sooner.
pub const INTERRUPT_AFTER: Duration = Duration::from_secs(1);
/// Bytes of directory entries requested at once.
pub const DIRECTORY_BYTES: u32 = 64 << 10;
/// `st_blksize`: the buffer size of stdio and cp. Each buffer is one request, so it is larger than a page.
pub const BLOCK_BYTES: u32 = 256 << 10;
/// Unit in which statfs counts.
pub const STATFS_BLOCK_BYTES: u32 = 4096;
/// Most threads remembered as having received ESTALE. Beyond it, some threads receive it twice.
pub const LOST_RACES: usize = 1024;
/// How long the mount holds what such a thread looks up: from its lookup to its next request.
pub const HELD_FOR: Duration = Duration::from_secs(1);
/// Most inodes held at once. Beyond it no more are held.
pub const HELD: usize = 1024;
/// How often a name is looked up if the file it leads to is removed meanwhile.
pub const LOOKUP_ATTEMPTS: u32 = 8;
/// The same where the inode is to be held: that takes a second request, and the thread has lost a race once already.
pub const HOLD_ATTEMPTS: u32 = 64;
/// How long close(2) waits until the MDT has released the locks that end with it. A process that exits cannot be
/// interrupted any more.
pub const UNLOCK_TERM: Duration = Duration::from_secs(2);
/// For a kernel that cannot be made to forget names now: how long after the last name timeout the mount gives it no new
/// ones. A recall that waits for those timeouts is checked again within this time.
pub const QUIET_LONGER: Duration = Duration::from_millis(50);
/// Most inodes that a reply named and the kernel has not referred to since. Beyond it the kernel may not cache their
/// attributes.
pub const NEW_INODES: usize = 1 << 16;
/// Most ranges of a file's pages that are tracked separately. Beyond it neighbours are joined, with the gap between
/// them.
pub const GIVEN_RANGES: usize = 1024;
/// Most threads that make the kernel drop pages.
pub const DROP_THREADS: usize = 4;
/// Most changes that wait at once until the kernel has dropped pages. Further changes get their reply before that. As
/// many reads may wait for such changes. All of them wait for requests of the kernel, which limits how many it has in
/// flight.
pub const SETTLING: usize = 48;
const _: () = assert!(2 * SETTLING < BACKGROUND_REQUESTS as usize, "the kernel would not get through with its own");
