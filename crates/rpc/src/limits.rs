//! Every bound of this crate, with its reason.

use std::time::Duration;

/// The slot of requests that belong to the connection, not to a slot: Connect, Ping, the steps of recovery.
/// Matched by their sequence alone; never cached, safe to repeat.
pub const CONTROL_SLOT: u16 = u16::MAX;

/// [`crate::ask`] gives up on an address after this.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Default of the bytes a client keeps pinned for replay, over all its sessions.
pub const PINNED_BYTES: u64 = 256 << 20;
