//! Bounds of the client.

use std::time::Duration;

use forebay_proto::limits::{LEASE_CLIENT_TERM, LEASE_TERM};

/// Bytes pinned for replay, by default; writers wait beyond it.
pub const PIN_BYTES: u64 = 512 << 20;
/// Data in one request, by default.
pub const RPC_BYTES: u32 = 1 << 20;
/// Data requests in flight to one OST, by default.
pub const RPCS_IN_FLIGHT: usize = 8;
/// Most bytes of one call of read, write or append.
pub const CALL_BYTES: usize = 1 << 30;
/// Fids left in the leased sequence when the next one is asked for.
pub const FIDS_AHEAD: u32 = 1 << 17;
/// Most bytes that one call of copy_file_range copies: so often a program that copies more has a chance to be interrupted.
pub const COPY_BYTES: u64 = 64 << 20;
/// Bytes it reads, then writes, at a time.
pub const COPY_STEP_BYTES: u64 = 4 << 20;
/// Attempts at a request whose truncate epoch or layout generation was stale.
pub const STALE_ATTEMPTS: u32 = 100;
/// Times that one call asks for OSTs: as often as it may meet another full one.
pub const EXTENSIONS: u32 = 16;
/// Times that one write or fallocate waits for the space of deleted files.
pub const ROOM_ATTEMPTS: u32 = 4;
/// How long one waits for room that was granted to mounts.
pub const GRANTS_RETURN: Duration = Duration::from_secs(4);
/// How often it looks for it.
pub const GRANTS_LOOK: Duration = Duration::from_millis(100);
/// How long it waits at most for names that are taken away on its own mount.
pub const ROOM_WAIT: Duration = Duration::from_secs(1);
/// Pause while a handle that the MDT lost is opened again.
pub const REOPEN_PAUSE: Duration = Duration::from_millis(100);
/// So often an append asks the home for the end of the file that it has guessed wrong, before it asks for a place.
pub const APPEND_GUESSES: usize = 4;
/// Of no more OSTs is it asked whether all have room, for the first bytes of files that are still being made.
pub const EARLY_OSTS: usize = 64;
/// So long a file that was made without a lease on its data waits for its first bytes.
pub const EARLY_TERM: Duration = Duration::from_secs(5);
/// Bytes that are kept back, by default; writers wait beyond it.
pub const WRITE_BACK_BYTES: u64 = 32 << 20;
/// Longer writes are not kept back: they are worth a request of their own.
pub const BUFFERED_WRITE_BYTES: usize = 256 << 10;
/// How long something is kept back.
pub const BUFFER_AGE: Duration = Duration::from_millis(50);
/// What of an OST's grant nobody counted on for so long is given back.
pub const GRANT_TERM: Duration = Duration::from_secs(1);
/// An OST that granted less than it was asked for is not asked again before.
pub const GRANT_PAUSE: Duration = Duration::from_millis(100);
/// What a piece of a write uses up of a grant beside its bytes: more than twice what an extent and its sums take.
pub const PIECE_ROOM_BYTES: u64 = 256;
/// How often a lease on the data of a file that is written to, and has none, is asked for.
pub const ASK_FOR_DATA_PAUSE: Duration = Duration::from_secs(1);
/// Writes in even steps after which the next are expected to go on so.
pub const TRACK_WRITES: u64 = 4;
/// A handle through which nothing was written for this long is not expected to write.
pub const TRACK_TERM: Duration = Duration::from_secs(1);
/// How long the other handles of a file that may write have to begin, before what is expected of one is claimed.
pub const TRACK_WAIT: Duration = Duration::from_millis(200);
/// How soon a claim is repeated that was not granted; twice as long each time, up to [`CLAIM_POLL_MOST`].
pub const CLAIM_POLL: Duration = Duration::from_millis(20);
/// See [`CLAIM_POLL`].
pub const CLAIM_POLL_MOST: Duration = Duration::from_secs(1);
/// How long nothing is claimed after a share ended; twice as long each time, up to [`CLAIM_PAUSE_MOST`], unless it was calm
/// for [`CLAIM_CALM`] times as long before.
pub const CLAIM_PAUSE: Duration = Duration::from_secs(1);
/// See [`CLAIM_PAUSE`].
pub const CLAIM_PAUSE_MOST: Duration = Duration::from_secs(16);
/// See [`CLAIM_PAUSE`].
pub const CLAIM_CALM: u32 = 4;
/// What is kept back of a shared file is sent when there is so much of it: enough for large requests to each of its OSTs.
pub const SHARE_SEND_BYTES: usize = 4 << 20;
/// How long close(2) waits for what was kept back; it may be on the way for longer.
pub const FLUSH_TERM: Duration = Duration::from_secs(2);
/// Bytes of files that were read, and are kept under leases, by default.
pub const READ_CACHE_BYTES: u64 = 64 << 20;
/// How often a lease on a file that is read, and has none, is asked for: there is none for a moment after others changed it.
pub const ASK_FOR_LEASE_PAUSE: Duration = Duration::from_millis(250);
/// Longer reads are not kept: they are worth requests of their own.
pub const CACHED_READ_BYTES: u64 = 256 << 10;
/// Times that one read looks at what is kept, and waits for what is on its way, before it asks the OSTs itself.
pub const KEPT_READ_ATTEMPTS: u32 = 8;
/// How far ahead a reader is read at first; twice as far with each read that goes on, up to [`READ_AHEAD_BYTES`].
pub const READ_AHEAD_BYTES_LEAST: u64 = 128 << 10;
/// See [`READ_AHEAD_BYTES_LEAST`].
pub const READ_AHEAD_BYTES: u64 = 2 << 20;
/// Of a reader in even steps of at most this, and [`DENSE_ALONE`] times what it reads, all bytes in between are read too: requests cost
/// more than bytes.
pub const DENSE_STEP_BYTES: u64 = 256 << 10;
/// See [`DENSE_STEP_BYTES`].
pub const DENSE_ALONE: u64 = 2;
/// The same while others read the file too: they may want what lies in between.
pub const DENSE_SHARED: u64 = 4;
/// The same of any reader in steps of at most this.
pub const DENSE_STEP_LEAST: u64 = 64 << 10;
/// What is fetched for who reads here and there is a multiple of this.
pub const KEPT_UNIT_BYTES: u64 = 4 << 10;
/// What is fetched before it is asked for is given up after this time: its OST may be away.
pub const READ_AHEAD_TERM: Duration = Duration::from_secs(2);
/// Most steps that a reader in larger ones is read ahead: fewer if they come to more than twice [`READ_AHEAD_BYTES`].
pub const READ_AHEAD_STEPS: u64 = 128;
/// So many are read ahead, however long they are, of who went on so often.
pub const READ_AHEAD_STEPS_LEAST: u32 = 8;
/// Reads that are fetched with one request: an OST may need a seek for each.
pub const READ_PIECES: usize = 24;
/// What is fetched ahead of a reader in large steps is at most this part of what is kept.
pub const STEPS_SHARE: u64 = 8;
/// After such a request failed, or took too long, none is made for the file for this long.
pub const NO_STEPS_PAUSE: Duration = Duration::from_secs(5);
/// A reader that has not read for this long is not in the group of those that read the same file.
pub const COMPANY_TERM: Duration = Duration::from_millis(100);
/// Readers of one file that are looked at to keep them together.
pub const COMPANY_READERS: usize = 64;
/// Bytes that are fetched before they are asked for, of all files at a time.
pub const READ_AHEAD_COMING_BYTES: u64 = 16 << 20;
/// After something was read that is not committed yet, nothing more of the file is fetched to be kept for this long.
pub const UNSETTLED_PAUSE: Duration = Duration::from_millis(100);
/// Reads of a range whose bytes do not match their sums before they are reported as damaged.
pub const READ_ATTEMPTS: u32 = 2;
/// Pause before a lock is asked for again, where the MDT keeps no more waiting requests.
pub const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Symbolic links followed while a path is resolved, as Linux does.
pub const SYMLINKS: u32 = 40;
/// Names and attributes asked for at once while a directory is walked.
pub const READDIR_BYTES: u32 = 256 << 10;
/// Bytes asked for at once when a whole file is read.
pub const WHOLE_FILE_STEP: usize = 32 << 20;
/// Who looks at a name of a directory this long after it was listed looks at its other names too.
pub const LISTED_TERM: Duration = Duration::from_secs(10);
/// Directories that are remembered as listed.
pub const LISTED: usize = 64;
/// Names that come with the first of these; twice as many with each that was not among them, up to [`STATAHEAD_NAMES`].
pub const NAMES_AHEAD_LEAST: u32 = 8;
/// See [`NAMES_AHEAD_LEAST`].
pub const STATAHEAD_NAMES: u32 = 256;
/// How long names are looked up by themselves after one that brought no others: somebody else works with them just now.
pub const NAMES_BUSY: Duration = Duration::from_millis(50);
/// A request that changes a name takes no more, beside the names in it.
pub const CHANGE_BYTES: usize = 512;
/// Directories, and files that nobody has open, whose losses are remembered until an fsync reports them.
pub const UNTOLD_LOSSES: usize = 100_000;
/// Inodes kept under leases.
pub const CACHED_INODES: usize = 1 << 17;
/// Names kept under leases.
pub const CACHED_NAMES: usize = 1 << 19;
/// What an inode that is kept takes of memory, about, and a name.
pub const CACHED_INODE_BYTES: u64 = 512;
/// See [`CACHED_INODE_BYTES`].
pub const CACHED_NAME_BYTES: u64 = 128;
/// Leases that nobody has wanted for this long are returned: who is idle asks nothing.
pub const CACHE_IDLE: Duration = Duration::from_secs(10);
/// Leases returned at a time.
pub const RETURNED: usize = 10_000;
/// Pause before recalls are asked for again while the MDT is away.
pub const RECALLS_PAUSE: Duration = Duration::from_millis(20);
/// Pause before something is said again that may not have been heard.
pub const HEARING_PAUSE: Duration = Duration::from_millis(1);
/// The kernel counts how long it may believe an answer from when a thread takes it; it is told of a recall this much longer:
/// as much as the MDT waits for beyond a client's own term.
pub const KERNEL_DELAY: Duration = LEASE_TERM.saturating_sub(LEASE_CLIENT_TERM);
/// Files whose size is watched at once; beyond it a kernel learns of a larger size when it asks.
pub const WATCHES: usize = 1024;
/// How long a recall, or an open, waits until an OST knows that a size is watched.
pub const WATCH_BEGIN: Duration = Duration::from_millis(500);
/// Pause before an OST that is away, or recovers, is asked again.
pub const WATCH_AGAIN: Duration = Duration::from_millis(50);
/// The same while a recall, or an open, waits.
pub const WATCH_RETRY: Duration = Duration::from_millis(5);
/// Larger sizes in a row that nobody made use of, before who makes the file larger is not made to wait any more, for a
/// [`WATCH_PAUSE`].
pub const WATCH_UNUSED: u32 = 16;
/// See [`WATCH_UNUSED`].
pub const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// How long what was read, and stays open, may wait until the MDT is told: at most one request for a file in so long.
pub const ACCESS_TERM: Duration = Duration::from_secs(60);
/// Access times of files and directories that the MDT is not told yet; of more none is told.
pub const ACCESSES: usize = 64 << 10;
/// Of a directory none is noted beside so many: a walk through many directories leaves space for files.
pub const ACCESSES_WITH_DIRECTORIES: usize = 16 << 10;
/// Pause between requests for a newer map, while a target cannot be reached.
pub const MAP_PAUSE: Duration = Duration::from_secs(1);
