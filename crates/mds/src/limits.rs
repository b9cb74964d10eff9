//! Every bound of the metadata server, with its reason.

use std::time::Duration;

/// Longest symbolic link target.
pub const SYMLINK_BYTES: usize = forebay_proto::limits::SYMLINK_BYTES;
/// Most names of one 48-bit hash in one directory (15 bits of the cookie).
pub const COLLISIONS: u16 = (1 << 15) - 1;
/// Deepest directory tree a rename walks up: a longer way means a loop, that is, damage.
pub const DEPTH: usize = 1 << 16;
/// Times an operation is begun anew because rows were paged out or changed under it, before it answers EAGAIN.
pub const ATTEMPTS: usize = 10_000;
/// Most entries of one readdir reply.
pub const READDIR_ENTRIES: usize = 4096;
/// Largest readdir reply: below a frame's body with room for the header.
pub const READDIR_BYTES: usize = 768 << 10;
/// Most names that a lookup brings beside its own: nothing else is served meanwhile (a millisecond).
pub const NAMES_AHEAD: usize = 256;
/// Scattered rows brought to memory at one time: their leaves must fit in the smallest cache.
pub const PREFETCH_ROWS: usize = 8;
/// Fids in one `Destroy`.
pub const DESTROY_BATCH: usize = 1000;
/// Destroys that become ready within this time go together.
pub const DESTROY_DELAY: Duration = Duration::from_millis(20);
/// Pause after destroys that failed, as a row could not be read.
pub const DESTROY_RETRY: Duration = Duration::from_secs(5);
/// Longest that somebody who wants their room waits for destroys.
pub const DESTROY_WAIT: Duration = Duration::from_secs(2);
/// How often such a one looks.
pub const DESTROY_POLL: Duration = Duration::from_millis(5);
/// Fids asked for by one `ListObjects` of the collection.
pub const COLLECT_BATCH: u32 = 1000;
/// Pause between two steps of the collection.
pub const COLLECT_PAUSE: Duration = Duration::from_millis(5);
/// Rows read by one step of a background scan.
pub const SCAN_ROWS: usize = 1000;
/// How often the OSTs are asked for their free space.
pub const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// An OST that has not answered a poll for this long is passed over by placement.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// What a round of it told counts for so long: one that does not come to its end tells nothing.
pub const POLLED_LATELY: Duration = Duration::from_secs(12);
/// How long OSTs have to tell whether they have room, while somebody waits who was told that there is none.
pub const ROOM_TIMEOUT: Duration = Duration::from_millis(500);
/// An OST whose commits take so many times as long as those of most is slow: new files avoid it.
pub const SLOW_TIMES: u64 = 5;
/// Unless they take no longer than this: with so much, a disk is busy. So much is usual where no other OST tells.
pub const SLOW_COMMIT_US: u64 = 200_000;
/// A slow one stays so until its commits take no longer than this part of what made it slow.
pub const SLOW_TILL: u64 = 2;
/// Heaviest weight of an OST in the placement wheel.
pub const WEIGHT_MAX: u8 = 16;
/// An OST whose weight moved by less than this keeps its old one: a new table costs a commit.
pub const WEIGHT_STEP: u8 = 2;
/// An OST with less than 1/this of its space free takes no new files while others do.
pub const FULL_FRACTION: u64 = 50;
/// An OST with less than this, and [`FULL_FRACTION`] of it, is not grown onto even where all others are nearly full.
pub const EXHAUSTED_BYTES: u64 = 64 << 20;
/// Bytes kept free on the MDT so that deleting always works: creates answer ENOSPC below it.
pub const KEEP_FREE_BYTES: u64 = 1 << 20;
/// Kept free beside that where bytes of small files come: some hundred may, before it is looked again ([`ROOM_INTERVAL`]).
pub const INLINE_ROOM_BYTES: u64 = 4 << 20;
/// Estimated bytes of one more file on the MDT, for statfs.
pub const FILE_ROW_BYTES: u64 = 512;
/// Stripe size where neither the file nor a directory above says one.
pub const STRIPE_BYTES: u32 = 1 << 20;
/// Bytes of requests to the OSTs in flight or uncommitted.
pub const PINNED_BYTES: u64 = 16 << 20;
/// Pause before an OST that answered a driven request with an error is asked again.
pub const INSIST_PAUSE: Duration = Duration::from_secs(1);
/// How often an OST that says that it cannot read an object is asked again to cut it, before the file is given up for now.
pub const DAMAGED_ATTEMPTS: u32 = 2;
/// Longest pause before a truncate that an OST cannot do is tried again.
pub const STUCK_PAUSE: Duration = Duration::from_secs(60);
/// How long an answer about the room on the MDT's device is believed.
pub const ROOM_INTERVAL: Duration = Duration::from_millis(50);
/// How long who finds no room on it waits for the checkpoint that may give some (one on a device without room has no end).
pub const MAKE_ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it does: what others change meanwhile is in the way again.
pub const MAKE_ROOM_TIMES: u32 = 3;
/// How long a client with leased sequences may be without a session before it is fenced and they are looked through.
pub const LEASE_GRACE: Duration = Duration::from_secs(30);
/// Locks of one file: each request looks through all of them.
pub const LOCKS_PER_FILE: usize = 16 << 10;
/// Handles of one session: a client's own bound, and what it may have under way beyond it.
pub const HANDLES: usize = forebay_proto::limits::OPEN_FILES + 1024;
/// Locks of all files, for the memory they take.
pub const LOCKS: usize = 1 << 20;
/// Requests of one session that wait here for a lock: they take slots, and the request that lets go needs one.
pub const LOCK_WAITS: usize = 16;
/// How long such a request waits before its client is told to ask again.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How often a session that ended is looked at, until its rows are gone and its locks are let go of.
pub const FORGOTTEN_INTERVAL: Duration = Duration::from_millis(20);
/// How often that is looked at.
pub const LEASE_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Most pools: the table they are part of stays small.
pub const POOLS: usize = 64;
/// Leases of all clients: each takes about 200 bytes.
pub const CLIENT_LEASES: usize = 1 << 19;
/// Leases of all clients from which on only those who have less than their share get any, and others are asked for some.
pub const CROWDED_LEASES: usize = CLIENT_LEASES / 8 * 7;
/// Leases that one client is asked for at a time so that others can have some, and how often somebody is.
pub const SHRINK: usize = 1024;
/// See [`SHRINK`].
pub const SHRINK_INTERVAL: Duration = Duration::from_millis(50);
/// How long an inode that two clients change is not leased: it would only be recalled again.
pub const CONTENDED: Duration = Duration::from_millis(500);
/// The same of one that a client changes and others look at.
pub const SHOWN: Duration = Duration::from_millis(50);
/// Contended inodes remembered before it is looked for those that are no more, to forget them.
pub const CONTENDED_INODES: usize = 10_000;
/// How long a client that holds up others with data it keeps back may be silent before it is evicted.
pub const DATA_TERM: Duration = Duration::from_secs(10);
/// How long one that is heard may keep what others wait for while all servers are well: it sends what it keeps back in less on the
/// slowest of paths, and others wait for so long at most for one that has lost the way to an OST, or is in error.
pub const HEARD_TERM: Duration = Duration::from_secs(300);
/// How many times as long at most, if it gives other things back meanwhile.
pub const HEARD_TERMS: u32 = 3;
/// An OST, or the MDT, whose commits take this long is no better than one that is away.
pub const STUCK_COMMIT: Duration = Duration::from_secs(5);
/// Who heard of nobody for so long was stopped itself.
pub const STOPPED: Duration = Duration::from_secs(5);
/// Sessions with claims on one file: each is compared with all others.
pub const CLAIMANTS: usize = 1024;
/// How long a client's question for recalls waits for one: its answer also keeps the leases alive.
pub const RECALL_WAIT: Duration = Duration::from_millis(600);
/// Files kept in mind of which it is certain that they have no objects: each takes about 60 bytes.
pub const EMPTIES: usize = 1 << 18;
