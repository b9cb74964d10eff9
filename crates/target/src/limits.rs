//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Default of [`crate::TargetOptions::recovery_window`].
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(2);
/// Default of [`crate::TargetOptions::session_timeout`].
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Default of [`crate::TargetOptions::bulk_bytes`].
pub const BULK_BYTES: u64 = 256 << 20;
/// Longest reply of a modifying request: it is kept as a row of the store's table.
pub const REPLY_ROW_BYTES: usize = 12 << 10;
