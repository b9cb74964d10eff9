//! Bounds of the client.

use std::time::Duration;

use forebay_proto::limits::{LEASE_CLIENT_TERM, LEASE_TERM};

/// Bytes pinned for replay, by default; writers wait beyond it.
pub const PIN_BYTES: u64 = 512 << 20;
/// Data in one request, by default.
pub const RPC_BYTES: u32 = 1 << 20;
/// Data requests in flight to one OST at any distance, by default.
pub const RPCS_IN_FLIGHT: usize = 8;
/// Data requests in flight to one OST at most: the other slots of the session are for other requests.
pub const RPCS_IN_FLIGHT_MOST: usize = forebay_proto::limits::SLOTS as usize - 16;
/// For a far target there may be so many times more requests in flight than it serves in a round trip.
pub const WINDOW_GAIN: f64 = 1.5;
/// Over such times the rate of requests is measured.
pub const RATE_INTERVAL: Duration = Duration::from_millis(50);
/// And the highest of this time counts.
pub const RATE_TERM: Duration = Duration::from_secs(3);
/// Most bytes of one call of read, write or append.
pub const CALL_BYTES: usize = 1 << 30;
/// Fids left in the leased sequence when the next sequence is requested.
pub const FIDS_LEFT: u32 = 1 << 17;
/// Most bytes that one call of copy_file_range copies, so that a program that copies more can be interrupted.
pub const COPY_BYTES: u64 = 64 << 20;
/// Bytes that it reads, then writes, at a time.
pub const COPY_STEP_BYTES: u64 = 4 << 20;
/// Attempts at a request whose truncate epoch or layout generation was stale.
pub const STALE_ATTEMPTS: u32 = 100;
/// Times that one call requests other OSTs: it may meet as many full ones.
pub const EXTENSIONS: u32 = 16;
/// Times that one write or fallocate waits for the space of deleted files.
pub const SPACE_ATTEMPTS: u32 = 4;
/// How long it waits for space that was granted to mounts.
pub const GRANTS_WAIT: Duration = Duration::from_secs(4);
/// How often it looks for that.
pub const GRANTS_POLL: Duration = Duration::from_millis(100);
/// How long it waits at most for delayed unlinks of its own mount.
pub const UNLINKS_WAIT: Duration = Duration::from_secs(1);
/// Pause while a handle that the MDT lost is opened again.
pub const REOPEN_PAUSE: Duration = Duration::from_millis(100);
/// Times that an append guesses the end of the file at its home before it reserves an offset.
pub const APPEND_GUESSES: usize = 4;
/// How long an operation that could be delayed waits for a slot before it is sent like others.
pub const SLOT_WAIT: Duration = Duration::from_millis(200);
/// Bytes of writes that a file takes while its create is pending.
pub const PENDING_CREATE_BYTES: u64 = 1 << 20;
/// With more OSTs, writes to a file whose create is pending are not buffered: all of them would have to grant space.
pub const PENDING_CREATE_OSTS: usize = 64;
/// How long such writes may take to be sent after the create came back without a lease on the data.
pub const PENDING_CREATE_FLUSH: Duration = Duration::from_secs(5);
/// Bytes buffered by write-back, by default; writers wait beyond it.
pub const WRITE_BACK_BYTES: u64 = 32 << 20;
/// Writes up to this length are gathered with others into one request.
pub const BUFFERED_WRITE_BYTES: usize = 256 << 10;
/// Longer writes are not buffered: they have enough requests in flight by themselves.
pub const WRITE_BEHIND_BYTES: usize = 4 << 20;
/// A write above [`BUFFERED_WRITE_BYTES`] is buffered only if it takes at most this part of what may be buffered.
pub const WRITE_BEHIND_SHARE: u64 = 8;
/// Longer writes are buffered while no more is than the file's OSTs take in this time at the rate that they reached, or
/// [`WRITE_BEHIND_LEAST`]: whoever recalls the lease waits for it.
pub const WRITE_BEHIND_TERM: Duration = Duration::from_secs(1);
/// See [`WRITE_BEHIND_TERM`].
pub const WRITE_BEHIND_LEAST: u64 = 8 << 20;
/// How long a write is buffered.
pub const BUFFER_AGE: Duration = Duration::from_millis(50);
/// Files of which capabilities are remembered.
pub const CAPABILITIES: usize = 1 << 16;
/// Pause before the MDT is asked again for a capability; it doubles each time.
pub const CAPABILITY_PAUSE: Duration = Duration::from_millis(20);
/// And its largest value.
pub const CAPABILITY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Granted space that no buffered write needed for so long is returned to the OST.
pub const GRANT_TERM: Duration = Duration::from_secs(1);
/// Pause before the next request to an OST that granted less than was requested.
pub const GRANT_PAUSE: Duration = Duration::from_millis(100);
/// Granted space that a piece of a write needs beside its bytes: more than twice what an extent and its sums take.
pub const PIECE_SPACE_BYTES: u64 = 256;
/// Pause before the next request for a data-write lease, for a file that is written to.
pub const ASK_FOR_DATA_PAUSE: Duration = Duration::from_secs(1);
/// Writes in even steps after which the next are expected to continue them.
pub const TRACK_WRITES: u64 = 4;
/// A handle that has not written for this long is not expected to write.
pub const TRACK_TERM: Duration = Duration::from_secs(1);
/// How long a file's other writing handles have to begin before ranges are claimed for one.
pub const TRACK_WAIT: Duration = Duration::from_millis(200);
/// Pause before a refused claim is repeated; twice as long each time, up to [`CLAIM_POLL_MOST`].
pub const CLAIM_POLL: Duration = Duration::from_millis(20);
/// See [`CLAIM_POLL`].
pub const CLAIM_POLL_MOST: Duration = Duration::from_secs(1);
/// Pause without claims after a byte-range write lease was recalled; twice as long each time, up to [`CLAIM_PAUSE_MOST`], unless it
/// was held for [`CLAIM_CALM`] times as long before.
pub const CLAIM_PAUSE: Duration = Duration::from_secs(1);
/// See [`CLAIM_PAUSE`].
pub const CLAIM_PAUSE_MOST: Duration = Duration::from_secs(16);
/// See [`CLAIM_PAUSE`].
pub const CLAIM_CALM: u32 = 4;
/// Buffered bytes of a file under byte-range write leases that are sent at once: enough for large requests to each of its OSTs.
pub const RANGES_SEND_BYTES: usize = 4 << 20;
/// How long close(2) waits for buffered writes; sending them may take longer.
pub const CLOSE_FLUSH: Duration = Duration::from_secs(2);
/// Bytes of files that are cached under leases, by default.
pub const READ_CACHE_BYTES: u64 = 64 << 20;
/// Pause before the next request for an inode lease, for a file that is read: after a change by others none is granted
/// for a moment.
pub const ASK_FOR_LEASE_PAUSE: Duration = Duration::from_millis(250);
/// Longer reads are streamed: the cache holds only what is prefetched for them, and until it was read.
pub const CACHED_READ_BYTES: u64 = 256 << 10;
/// Nothing is prefetched for still longer reads: they have enough requests in flight by themselves.
pub const STREAMED_READ_BYTES: u64 = 4 << 20;
/// Times that one read looks at the cache, and waits for what is in flight, before it sends requests to the OSTs
/// itself.
pub const CACHED_READ_ATTEMPTS: u32 = 8;
/// First prefetch for a sequential reader, or twice what it reads; twice as much with each read that continues, up to [`PREFETCH_BYTES`].
pub const PREFETCH_BYTES_LEAST: u64 = 128 << 10;
/// See [`PREFETCH_BYTES_LEAST`]. Beyond it the prefetch grows while the reader waits for it all the same.
pub const PREFETCH_BYTES: u64 = 2 << 20;
/// The most that is prefetched for one reader is this part of the cache.
pub const PREFETCH_SHARE: u64 = 4;
/// And what an OST brings within this time at the rate that it reached, if that is more than [`PREFETCH_BYTES`].
pub const PREFETCH_SOON: Duration = Duration::from_millis(500);
/// For a reader in even steps of at most this, and [`DENSE_ALONE`] times what it reads, the bytes in between are read too: requests
/// cost more than bytes.
pub const DENSE_STEP_BYTES: u64 = 256 << 10;
/// See [`DENSE_STEP_BYTES`].
pub const DENSE_ALONE: u64 = 2;
/// The same while others read the file too: they may want what lies in between.
pub const DENSE_SHARED: u64 = 4;
/// The same for any reader in steps of at most this.
pub const DENSE_STEP_LEAST: u64 = 64 << 10;
/// For random reads, what is fetched is a multiple of this.
pub const READ_UNIT_BYTES: u64 = 4 << 10;
/// A prefetch is given up after this time: its OST may be away.
pub const PREFETCH_TERM: Duration = Duration::from_secs(2);
/// What a reader of large pieces waits for is read without the cache after this time.
pub const FETCH_TERM: Duration = Duration::from_secs(10);
/// Most steps that are prefetched for a reader in larger steps: fewer if they come to more than twice [`PREFETCH_BYTES`].
pub const PREFETCH_STEPS: u64 = 128;
/// After so many steps, so many are prefetched, however long they are.
pub const PREFETCH_STEPS_LEAST: u32 = 8;
/// Reads that are fetched with one request: an OST may need a seek for each.
pub const READ_PIECES: usize = 24;
/// Prefetch for readers in large steps takes at most this part of the cache.
pub const STEPS_SHARE: u64 = 8;
/// Pause after such a prefetch failed, or took too long.
pub const NO_STEPS_PAUSE: Duration = Duration::from_secs(5);
/// A reader that has not read for this long is not in the group of those that read the same file.
pub const READER_GROUP_TERM: Duration = Duration::from_millis(100);
/// Readers of one file that are looked at to keep them together.
pub const READER_GROUP: usize = 64;
/// Prefetched bytes in flight, of all files.
pub const PREFETCH_IN_FLIGHT_BYTES: u64 = 32 << 20;
/// Stripes shorter than this are prefetched with their neighbours on other OSTs.
pub const STRIPE_ALONE_BYTES: u32 = 512 << 10;
/// Of so many OSTs at most.
pub const ACROSS_OSTS: usize = 4;
/// After a read returned bytes that are not committed, nothing of the file is fetched into the cache for this long.
pub const UNCOMMITTED_PAUSE: Duration = Duration::from_millis(100);
/// Reads of a range whose bytes do not match their sums before they are reported as damaged.
pub const READ_ATTEMPTS: u32 = 2;
/// Pause before the next request for a lock, where the MDT queues no more requests.
pub const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Symbolic links followed while a path is resolved, as Linux does.
pub const SYMLINKS: u32 = 40;
/// Bytes of names and attributes in one request while a directory is walked.
pub const READDIR_BYTES: u32 = 256 << 10;
/// Bytes requested at once when a whole file is read.
pub const WHOLE_FILE_STEP: usize = 32 << 20;
/// Whoever looks at a name of a directory this long after it was listed is expected to look at its other names too.
pub const LISTED_TERM: Duration = Duration::from_secs(10);
/// Directories that are remembered as listed.
pub const LISTED: usize = 64;
/// Names that come with the first lookup of statahead; twice as many each time, up to [`STATAHEAD_NAMES`].
pub const STATAHEAD_NAMES_LEAST: u32 = 8;
/// See [`STATAHEAD_NAMES_LEAST`].
pub const STATAHEAD_NAMES: u32 = 256;
/// Pause of statahead after a lookup that brought no other names: somebody else works with them just now.
pub const STATAHEAD_PAUSE: Duration = Duration::from_millis(50);
/// Most bytes of a request that changes a name, beside the names in it.
pub const CHANGE_BYTES: usize = 512;
/// Directories, and files that nobody has open, whose losses are remembered until an fsync reports them.
pub const UNREPORTED_LOSSES: usize = 100_000;
/// Inodes cached under leases.
pub const CACHED_INODES: usize = 1 << 17;
/// Names cached under leases.
pub const CACHED_NAMES: usize = 1 << 19;
/// Memory of a cached inode, about, and of a cached name.
pub const CACHED_INODE_BYTES: u64 = 512;
/// See [`CACHED_INODE_BYTES`].
pub const CACHED_NAME_BYTES: u64 = 128;
/// Leases that nobody has used for this long are returned.
pub const CACHE_IDLE: Duration = Duration::from_secs(10);
/// Leases returned with one request.
pub const RETURNED_LEASES: usize = 10_000;
/// Pause before the next poll for recalls while the MDT is away.
pub const RECALLS_PAUSE: Duration = Duration::from_millis(20);
/// Pause before the kernel is notified again, if it may not have been.
pub const NOTIFY_PAUSE: Duration = Duration::from_millis(1);
/// The kernel counts the validity of an attribute from when a thread takes the reply. It is notified of a recall for this much
/// longer: as long as the MDT waits beyond a client's own term.
pub const KERNEL_DELAY: Duration = LEASE_TERM.saturating_sub(LEASE_CLIENT_TERM);
/// Files whose size is watched at once; beyond it a kernel learns of a larger size at its next request.
pub const WATCHES: usize = 1024;
/// How long a recall, or an open, waits until an OST knows that a size is watched.
pub const WATCH_BEGIN: Duration = Duration::from_millis(500);
/// Pause before the next request to an OST that is away, or recovers.
pub const WATCH_AGAIN: Duration = Duration::from_millis(50);
/// The same while a recall, or an open, waits.
pub const WATCH_RETRY: Duration = Duration::from_millis(5);
/// After so many larger sizes in a row that nobody used, writers do not wait for this mount, for a [`WATCH_PAUSE`].
pub const WATCH_UNUSED: u32 = 16;
/// See [`WATCH_UNUSED`].
pub const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// How long the access time of an open file may be delayed: at most one request for a file in so long.
pub const ACCESS_TERM: Duration = Duration::from_secs(60);
/// Access times of files and directories that are delayed; of more, none is sent.
pub const ACCESSES: usize = 64 << 10;
/// Beyond so many, none of a directory is delayed: a walk through many directories leaves space for files.
pub const ACCESSES_WITH_DIRECTORIES: usize = 16 << 10;
/// Pause between requests for a newer map, while a target cannot be reached.
pub const MAP_PAUSE: Duration = Duration::from_secs(1);
