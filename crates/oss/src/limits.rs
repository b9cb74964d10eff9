//! Every bound of the object storage server, with its reason.

use std::time::Duration;

/// Longest stretch one read request may ask for; the reply's bulk must fit a frame.
pub const READ_BYTES: u32 = forebay_proto::limits::BULK_BYTES as u32;
/// Blocks that one request has read from the device, however little of them it asks for: they are in memory until the reply has left.
pub const READ_BLOCK_BYTES: u64 = 8 << 20;
/// Stretches that a reply tells apart, about 45 bytes each: beyond that what was read is sent as one, so that the reply fits a frame.
pub const READ_SEGMENTS: usize = 4096;
/// Fids whose destroy this server remembers, to refuse a late write (oldest forgotten first).
pub const DESTROYED_FIDS: usize = 65_536;
/// Most fids of one destroy request.
pub const DESTROY_FIDS: usize = 1024;
/// Most objects of one listing.
pub const LIST_OBJECTS: u32 = 4096;
/// Extents looked at in one step of a map: a leaf or two of the index.
pub const MAP_EXTENTS: usize = 256;
/// Bytes of read-ahead kept for all objects together.
pub const READ_AHEAD_BYTES: usize = 64 << 20;
/// Bytes read ahead of one sequential reader.
pub const READ_AHEAD_WINDOW_BYTES: u64 = 8 << 20;
/// A reader that has not come for so long has stopped half way: what was read ahead of it makes room for others.
pub const READ_AHEAD_ABANDONED: Duration = Duration::from_secs(2);
/// Requests shorter than this are not read ahead of: a block has to be read whole for each.
pub const READ_AHEAD_REQUEST_BYTES_MIN: u64 = 64 << 10;
/// Objects whose reading pattern is remembered.
pub const READ_AHEAD_OBJECTS: usize = 1024;
/// How long a request of a newer truncate epoch waits for that truncate to arrive before it is sent back.
pub const TRUNCATE_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// The first in line at the end of a file may take so long while others wait behind it: then all places there are given anew.
pub const PLACE_PATIENCE: Duration = Duration::from_secs(5);
/// And longer, the longer it is: a client sends at least so much.
pub const PLACE_BYTES_PER_SECOND: u64 = 8 << 20;
/// How long whoever waits for an append to come again waits before it looks by itself.
pub const PLACE_LOOK: Duration = Duration::from_millis(50);
/// Places that are open at the end of one file: with one more all are given anew.
pub const PLACES_OPEN: usize = 1 << 14;
/// So often an append is put behind one that was not made after all, before its client has to ask for a place.
pub const APPEND_TRIES: usize = 16;
/// Files in a list of recent changes, before all are looked through.
pub const RECENT_FILES: usize = 1024;
/// Changes of a file in such a list, before these are.
pub const RECENT_OF_FILE: usize = 16;
/// So often who looks waits for those who have changed something since its last look.
pub const LOOKS: usize = 8;
/// Places before its own that an append is told of: those given last.
pub const APPEND_PLACES: usize = 32;
/// Slots of sessions with places in one file, and files, that clients may tell of after a crash.
pub const PLACES_TOLD: usize = 1 << 14;
/// See [`PLACES_TOLD`].
pub const FILES_TOLD: usize = 1 << 14;
/// One part in so many of the room there is may be granted to clients for what they keep back.
pub const GRANTED_SHARE: u64 = 4;
/// Separate ranges set aside in one object: their row is written with each write.
pub const ASIDE_RANGES: usize = 32;
/// Bytes of an object that one request sets room aside for, where there may be extents in it: they are read together.
pub const ALLOCATE_BYTES: u64 = 256 << 20;
/// Files whose size sessions watch, counted for each session.
pub const WATCHES: usize = 1 << 14;
/// How long a client's question for a larger size waits for one.
pub const WATCH_WAIT: Duration = Duration::from_millis(600);
/// How long who makes a file larger waits for those who watch its size.
pub const WATCH_TERM: Duration = Duration::from_millis(500);
