//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Default of [`crate::TargetOptions::recovery_window`].
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(2);
/// Default of [`crate::TargetOptions::session_timeout`].
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// A sleep that took so much too long was one of the whole server; as long it reads what came meanwhile.
pub const STOPPED_AT_LEAST: Duration = Duration::from_millis(500);
/// Default of [`crate::TargetOptions::bulk_bytes`].
pub const BULK_BYTES: u64 = 256 << 20;
/// Longest reply of a modifying request: it is kept as a row of the store's table, whose leaves have 16 KiB. (A layout of
/// 2000 stripes with its attributes has a little over 8 KiB.)
pub const REPLY_ROW_BYTES: usize = 12 << 10;
/// Sessions of one target.
pub const SESSIONS: usize = 64 << 10;
/// Bytes of a client's description that are kept.
pub const DESCRIPTION_BYTES: usize = 256;
/// Fenced clients remembered; the oldest is forgotten beyond that (its session is gone all the same).
pub const FENCED: usize = 16 << 10;
/// Ended sessions whose reason is remembered, to be told when their client comes.
pub const ENDED: usize = 4 << 10;
/// Replays executed side by side, where the service takes tickets.
pub const REPLAYS: usize = 64;
/// Times a request is run again because a row was not in memory or the journal was full.
pub const RETRIES: u32 = 1000;
/// Rows loaded at one time at the start.
pub const LOAD_ROWS: usize = 1024;
/// Clients listed in `status`.
pub const STATUS_CLIENTS: usize = 1000;
/// Fewest requests a session may have in flight when bulk memory runs short.
pub const CREDITS_MIN: u16 = 4;
/// How long who ends a session, or closes a target, waits for what was answered before it was applied.
pub const HELD_WAIT: Duration = Duration::from_secs(1);
