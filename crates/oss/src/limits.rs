//! Every bound of the object storage server, with its reason.

use std::time::Duration;

/// Bytes of the store's table that a server keeps in memory.
pub const TABLE_CACHE_BYTES: u64 = 256 << 20;
/// Longest stretch one read request may ask for; the reply's bulk must fit a frame.
pub const READ_BYTES: u32 = forebay_proto::limits::BULK_BYTES as u32;
/// Bytes of blocks that one request may read from the device, however little of them it asks for. They stay in memory
/// until the reply has left.
pub const READ_BLOCK_BYTES: u64 = 8 << 20;
/// Segments of a reply, about 45 bytes each. With more, the data is sent as one segment per range, so that the reply
/// fits a frame.
pub const READ_SEGMENTS: usize = 4096;
/// Fids whose destroy this server remembers, to refuse a late write (oldest forgotten first).
pub const DESTROYED_FIDS: usize = 65_536;
/// Objects whose layout fence this server remembers (oldest forgotten first).
pub const LAYOUT_FENCES: usize = 65_536;
/// Capability keys that count at one time: the MDT sends three.
pub const CAPABILITY_KEYS: usize = 4;
/// Most fids of one destroy request.
pub const DESTROY_FIDS: usize = 1024;
/// Most objects of one listing.
pub const LIST_OBJECTS: u32 = 4096;
/// Extents looked at in one step of a map: a leaf or two of the index.
pub const MAP_EXTENTS: usize = 256;
/// Bytes of read-ahead cached for all objects together.
pub const READ_AHEAD_BYTES: usize = 64 << 20;
/// Bytes read ahead for one sequential reader.
pub const READ_AHEAD_WINDOW_BYTES: u64 = 8 << 20;
/// A reader that sends no request for this long has stopped half way: its read-ahead may be dropped in favour of
/// others.
pub const READ_AHEAD_ABANDONED: Duration = Duration::from_secs(2);
/// Requests shorter than this start no read-ahead: a whole block has to be read for each.
pub const READ_AHEAD_REQUEST_BYTES_MIN: u64 = 64 << 10;
/// Objects whose access pattern is tracked.
pub const READ_AHEAD_OBJECTS: usize = 1024;
/// How long a request of a newer truncate epoch waits for that truncate to arrive before it is refused with RECOVERING.
pub const TRUNCATE_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// How long the first append reservation of a file may stay open while others wait. Then all of the file are cancelled.
pub const RESERVATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout grows with the append's length at this rate: a client sends at least this fast.
pub const RESERVATION_BYTES_PER_SECOND: u64 = 8 << 20;
/// Interval at which a request that waits for reported appends checks for them.
pub const REPORTED_POLL: Duration = Duration::from_millis(50);
/// Open append reservations of one file; with one more, all are cancelled.
pub const RESERVATIONS_OPEN: usize = 1 << 14;
/// How often an append at the home is retried behind one that failed, before its client has to reserve.
pub const APPEND_TRIES: usize = 16;
/// Files with recent changes, before the lists of all files are purged.
pub const RECENT_FILES: usize = 1024;
/// Recent changes of one file, before its list is purged.
pub const RECENT_OF_FILE: usize = 16;
/// How often a request waits for unacknowledged changes before it goes on.
pub const UNACKNOWLEDGED_RETRIES: usize = 8;
/// Earlier appends listed in the reply to an append: the latest.
pub const APPEND_OFFSETS: usize = 32;
/// Slots with reported appends in one file.
pub const REPORTED_SLOTS: usize = 1 << 14;
/// Files with reported appends.
pub const REPORTED_FILES: usize = 1 << 14;
/// Grants are at most this fraction (1/n) of the free space.
pub const GRANTED_SHARE: u64 = 4;
/// Reserved ranges of one object: their row is written with each write.
pub const RESERVED_RANGES: usize = 32;
/// Bytes of an object that one fallocate request covers where extents may exist: they are read together.
pub const ALLOCATE_BYTES: u64 = 256 << 20;
/// Files whose size sessions watch, counted for each session.
pub const WATCHES: usize = 1 << 14;
/// How long a WatchSize request waits for a larger size.
pub const WATCH_WAIT: Duration = Duration::from_millis(600);
/// How long a request that makes a file larger waits for the size's watchers.
pub const WATCH_TERM: Duration = Duration::from_millis(500);
