//! Every bound of this crate, with its reason.

use std::time::Duration;

/// The slot of requests that belong to the connection, not to a slot: Connect, Ping, the steps of recovery.
/// Matched by their sequence alone; never cached, safe to repeat.
pub const CONTROL_SLOT: u16 = u16::MAX;

/// Frames gathered in one write at most (a vectored write takes 1024 parts).
pub const WRITE_FRAMES: usize = 128;
/// A write is not made longer once it has this many bytes.
pub const WRITE_BYTES: usize = 1 << 20;

/// A request that nobody waits for goes with the next one, or after this.
pub const PATIENCE: Duration = Duration::from_millis(1);

/// Slots that are not reserved for calls to come: others get on.
pub const UNRESERVED_SLOTS: usize = 16;

/// [`crate::ask`] gives up on an address after this.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Default of the bytes a client keeps pinned for replay, over all its sessions.
pub const PINNED_BYTES: u64 = 256 << 20;
/// What a pinned request costs besides its body and bulk.
pub const PIN_OVERHEAD_BYTES: u64 = 512;

/// An address that has not answered `Connect` after this is given up for the next one. Shorter than a recovery window.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// First pause after a failed round over the addresses; doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Longest pause between rounds: well below a target's recovery window (2 s), or the client would miss it.
pub const BACKOFF_MAX: Duration = Duration::from_millis(300);
/// Pause when the target itself said that it cannot serve (stopped, lost commits, another cluster's).
pub const BACKOFF_STOPPED: Duration = Duration::from_secs(2);
/// A request refused with RECOVERING is sent again after this.
pub const RECOVERING_PAUSE: Duration = Duration::from_millis(100);

/// Replays in flight at once, of one session.
pub const REPLAYS_IN_FLIGHT: usize = 32;
/// Bytes of replays in flight at once, of one session: the target holds them until their turn.
pub const REPLAY_BYTES_IN_FLIGHT: u64 = 16 << 20;
/// Handles in one Reclaim request (24 bytes each, and some).
pub const RECLAIM_HANDLES: usize = 16 << 10;
/// Locks in one Reclaim request (72 bytes each).
pub const RECLAIM_LOCKS: usize = 8 << 10;

/// How often a session with something under way looks at its clocks.
pub const TICK: Duration = Duration::from_millis(250);
/// Uncommitted pins and no news of last_committed for this long: ping.
pub const COMMIT_NEWS: Duration = Duration::from_secs(1);
/// Nothing sent for this long: ping, so that the target keeps the session.
pub const KEEPALIVE: Duration = Duration::from_secs(5);
/// Something is awaited and nothing came for this long: ping.
pub const SILENCE: Duration = Duration::from_secs(5);
/// A ping not answered for this long: the connection is dead.
pub const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// [`crate::ClientSession::close`] waits this long for an absent target.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// A session that is to end looks this often whether anything of it is left, if nothing wakes it.
pub const DRAIN_PAUSE: Duration = Duration::from_millis(200);
/// Evictions remembered, to answer `committed` for what they lost.
pub const LOSSES: usize = 64;

/// Requests of one connection in execution at once: slots and control requests.
pub const REQUESTS_PER_CONNECTION: usize = forebay_proto::limits::SLOTS as usize * 2;
/// Connections one server keeps at once.
pub const CONNECTIONS: usize = 32 << 10;
/// A connection that has not made itself known after this is closed.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest body of a connection that has not made itself known (it has no bulk at all).
pub const GREETING_BODY_BYTES: u32 = 16 << 10;
