//! Every bound of the metadata server, with its reason.

use std::time::Duration;

/// Longest symbolic link target.
pub const SYMLINK_BYTES: usize = forebay_proto::limits::SYMLINK_BYTES;
/// Most names with the same 48-bit hash in one directory (15 bits of the cookie).
pub const COLLISIONS: u16 = (1 << 15) - 1;
/// Deepest directory tree that a rename walks up: a longer path means a loop, which is damage.
pub const DEPTH: usize = 1 << 16;
/// Times an operation is started again because rows were paged out or changed under it. Then it fails with EAGAIN.
pub const ATTEMPTS: usize = 10_000;
/// Most entries of one readdir reply.
pub const READDIR_ENTRIES: usize = 4096;
/// Largest readdir reply: below a frame's body, with space for the header.
pub const READDIR_BYTES: usize = 768 << 10;
/// Most names that a statahead lookup returns beside its own: no other request is served meanwhile (a millisecond).
pub const STATAHEAD_NAMES: usize = 256;
/// Scattered rows prefetched at one time: their leaves must fit in the smallest cache.
pub const PREFETCH_ROWS: usize = 8;
/// Fids in one `Destroy`.
pub const DESTROY_BATCH: usize = 1000;
/// Destroys that are logged within this time are sent together.
pub const DESTROY_DELAY: Duration = Duration::from_millis(20);
/// Pause after destroys that failed because a row could not be read.
pub const DESTROY_RETRY: Duration = Duration::from_secs(5);
/// Longest time that a caller who needs their space waits for destroys.
pub const DESTROY_WAIT: Duration = Duration::from_secs(2);
/// How often that caller checks.
pub const DESTROY_POLL: Duration = Duration::from_millis(5);
/// Most fids in the reply to one `ListObjects` of the collection.
pub const COLLECT_BATCH: u32 = 1000;
/// Pause between two steps of the collection.
pub const COLLECT_PAUSE: Duration = Duration::from_millis(5);
/// Rows read by one step of a background scan.
pub const SCAN_ROWS: usize = 1000;
/// How often the OSTs are polled for their free space.
pub const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// An OST that has not replied to a poll for this long gets no new files.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the result of a poll of all OSTs is valid. A poll that does not complete gives no result.
pub const POLLED_LATELY: Duration = Duration::from_secs(12);
/// How long OSTs have to report free space while a caller waits that received ENOSPC.
pub const POLL_FOR_SPACE_TIMEOUT: Duration = Duration::from_millis(500);
/// An OST is slow if its commits take this many times the median of the others: new files avoid it.
pub const SLOW_TIMES: u64 = 5;
/// Below this commit latency no OST is slow: a busy disk takes that long. It also counts as the median where no other
/// OST reports one.
pub const SLOW_COMMIT_US: u64 = 200_000;
/// A slow OST stays slow until its commit latency falls to the bound divided by this.
pub const SLOW_TILL: u64 = 2;
/// Heaviest weight of an OST in the placement wheel.
pub const WEIGHT_MAX: u8 = 16;
/// An OST whose weight moved by less than this keeps its old weight: a new table costs a commit.
pub const WEIGHT_STEP: u8 = 2;
/// An OST with less than 1/this of its space free takes no new files while other OSTs do.
pub const FULL_FRACTION: u64 = 50;
/// An OST with less than this, and less than [`FULL_FRACTION`] of its space, gets no new components even if all others
/// are nearly full.
pub const EXHAUSTED_BYTES: u64 = 64 << 20;
/// Bytes kept free on the MDT so that deletes always succeed: creates fail with ENOSPC below it.
pub const KEEP_FREE_BYTES: u64 = 1 << 20;
/// Bytes kept free beside that for inline data: several hundred small files may arrive before the next check
/// ([`SPACE_INTERVAL`]).
pub const INLINE_SPACE_BYTES: u64 = 4 << 20;
/// Estimated bytes of one more file on the MDT, for statfs.
pub const FILE_ROW_BYTES: u64 = 512;
/// Stripe size if neither the file nor a directory above it sets one.
pub const STRIPE_BYTES: u32 = 1 << 20;
/// Bytes of requests to the OSTs that are in flight or uncommitted.
pub const PINNED_BYTES: u64 = 16 << 20;
/// Pause before a driven request is repeated on an OST that replied with an error.
pub const INSIST_PAUSE: Duration = Duration::from_secs(1);
/// How often the cut of an object that an OST reports as unreadable is repeated, before the truncate counts as stuck.
pub const DAMAGED_ATTEMPTS: u32 = 2;
/// Longest pause before a truncate that an OST could not do is tried again.
pub const STUCK_PAUSE: Duration = Duration::from_secs(60);
/// How long a migration waits until OSTs that the file has left refuse requests under its former layout.
pub const LEFT_FENCES: Duration = Duration::from_secs(2);
/// How long a measurement of the free space on the MDT's device is valid.
pub const SPACE_INTERVAL: Duration = Duration::from_millis(50);
/// How long an operation without space on that device waits for a checkpoint that may free some (a checkpoint on a full
/// device never ends).
pub const FREE_SPACE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it waits: changes of other sessions meanwhile may take the space again.
pub const FREE_SPACE_ATTEMPTS: u32 = 3;
/// How long a client with leased sequences may be without a session before it is fenced and its sequences are scanned.
pub const SEQUENCE_GRACE: Duration = Duration::from_secs(30);
/// Locks of one file: each request scans all of them.
pub const LOCKS_PER_FILE: usize = 16 << 10;
/// Handles of one session: a client's own bound, and the opens that it may have in flight beyond it.
pub const HANDLES: usize = forebay_proto::limits::OPEN_FILES + 1024;
/// Locks of all files: bounds the memory they take.
pub const LOCKS: usize = 1 << 20;
/// Requests of one session that wait here for a lock: they take slots, and the request that releases the lock needs
/// one.
pub const LOCK_WAITS: usize = 16;
/// How long such a request waits. Then the reply has the client try again.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How often an ended session is checked until its rows are gone and its locks are released.
pub const FORGOTTEN_INTERVAL: Duration = Duration::from_millis(20);
/// How often clients without a session are checked against [`SEQUENCE_GRACE`].
pub const SEQUENCE_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Most pools: keeps the placement table small.
pub const POOLS: usize = 64;
/// Leases of all clients: each takes about 200 bytes.
pub const CLIENT_LEASES: usize = 1 << 19;
/// From this number of leases on, only clients below their share get more, and some leases of the client with most are
/// recalled.
pub const CROWDED_LEASES: usize = CLIENT_LEASES / 8 * 7;
/// Leases that are recalled from one client at a time for that.
pub const SHRINK: usize = 1024;
/// How often [`SHRINK`] leases of a client are recalled.
pub const SHRINK_INTERVAL: Duration = Duration::from_millis(50);
/// How long an inode that two clients change gets no lease: it would only be recalled again.
pub const CONTENDED: Duration = Duration::from_millis(500);
/// The same for an inode that one client changes and others read.
pub const SHOWN: Duration = Duration::from_millis(50);
/// Contended inodes remembered before expired ones are purged.
pub const CONTENDED_INODES: usize = 10_000;
/// How long a client that blocks others with buffered data may be silent before it is evicted. Tests: `leases/tests.rs`, and the scenes
/// `write_back`, `delayed_entries` and `range_leases`, which expect that others wait less than 15 s. Longer than `STOP_MS` of
/// `xtask/src/histories/killer.rs`, which stops mounts. glossary.md, posix.md and protocol.md give the value too.
pub const RECALL_TIMEOUT_SILENT: Duration = Duration::from_secs(10);
/// How long a client that sends requests may hold a recalled lease while all servers are well. On the slowest paths it
/// sends its buffered data in less time. Other clients wait this long, or longer by [`RECALL_EXTENSIONS`], for a client that has lost the
/// way to an OST, or is faulty. Tests: `leases/tests.rs`. posix.md and protocol.md give the value too.
pub const RECALL_TIMEOUT: Duration = Duration::from_secs(300);
/// Releasing other leases meanwhile extends that term by at most this many times its length.
pub const RECALL_EXTENSIONS: u32 = 3;
/// An OST, or the MDT, whose commits take this long counts as away.
pub const STUCK_COMMIT: Duration = Duration::from_secs(5);
/// A server that received no request for this long was stopped itself.
pub const STOPPED: Duration = Duration::from_secs(5);
/// Sessions with range claims on one file: each is compared with all others.
pub const CLAIMANTS: usize = 1024;
/// How long a client's poll for recalls waits for one: the reply also renews the leases.
pub const RECALL_WAIT: Duration = Duration::from_millis(600);
/// Files remembered as certainly without objects: each takes about 60 bytes.
pub const EMPTIES: usize = 1 << 18;

/// Longest name of a tenant.
pub const TENANT_NAME: usize = 32;
/// Ranges of users and groups of one tenant.
pub const TENANT_RANGES: usize = 64;
/// Tenants that a cluster has, or had.
pub const TENANTS: usize = 1000;
/// Who is squashed where nothing else is said: nobody.
pub const SQUASHED: u32 = 65_534;
/// How long a key signs capabilities, by default. A capability lasts one to two such times.
pub const CAPABILITY_LIFE: Duration = Duration::from_secs(3600);
/// Longest life of a token for joining: one that is forgotten somewhere should not serve for ever.
pub const TOKEN_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// Tokens that nobody has used.
pub const TOKENS: usize = 1000;
/// A host whose clock is further from the MGS's does not join.
pub const CLOCKS_APART: Duration = Duration::from_secs(10 * 60);
/// Addresses of one target.
pub const ADDRESSES: usize = 16;
