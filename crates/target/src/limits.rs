//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Default of [`crate::TargetOptions::recovery_window`].
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(2);
/// Default of [`crate::TargetOptions::session_timeout`].
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// A sleep that overruns by this much means that the whole server was stopped. The server then spends the same time
/// reading the requests that arrived meanwhile.
pub const STOPPED_AT_LEAST: Duration = Duration::from_millis(500);
/// Default of [`crate::TargetOptions::bulk_bytes`].
pub const BULK_BYTES: u64 = 256 << 20;
/// Longest reply of a modifying request. The reply is stored as a row of the table, whose leaves are 16 KiB. (A layout
/// of 2000 stripes with its attributes has a little over 8 KiB.)
pub const REPLY_ROW_BYTES: usize = 12 << 10;
/// Sessions of one target.
pub const SESSIONS: usize = 64 << 10;
/// Bytes of a client's description that are stored.
pub const DESCRIPTION_BYTES: usize = 256;
/// Fenced clients that are remembered. Beyond that the oldest fence is removed; its session has ended anyway.
pub const FENCED: usize = 16 << 10;
/// Ended sessions whose reason is remembered, for when their client reconnects.
pub const ENDED: usize = 4 << 10;
/// Replays executed concurrently, where the service takes tickets.
pub const REPLAYS: usize = 64;
/// Times a request is run again because a row was not in memory or the journal was full.
pub const RETRIES: u32 = 1000;
/// Rows loaded per scan at startup.
pub const LOAD_ROWS: usize = 1024;
/// Clients listed in `status`.
pub const STATUS_CLIENTS: usize = 1000;
/// Fewest requests a session may have in flight when bulk memory runs short.
pub const CREDITS_MIN: u16 = 4;
/// How long an eviction, or the close of a target, waits for changes that were acknowledged before they were applied.
pub const HELD_WAIT: Duration = Duration::from_secs(1);
