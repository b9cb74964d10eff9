//! Every bound of this crate, with its reason.

use std::time::Duration;

/// How often a session measures the round trip to its target, at most.
pub const ROUND_TRIP_PAUSE: Duration = Duration::from_millis(50);
/// The least that was measured counts for this long, and for as long again.
pub const ROUND_TRIP_TERM: Duration = Duration::from_secs(5);
/// The slot number of requests that belong to the connection, not to a slot: Connect, Ping, the steps of recovery.
/// Replies are matched by sequence alone. They are never cached, and the requests are safe to repeat.
pub const CONTROL_SLOT: u16 = u16::MAX;

/// Most frames that one write combines (a vectored write takes 1024 parts).
pub const WRITE_FRAMES: usize = 128;
/// A write takes no more frames once it has this many bytes.
pub const WRITE_BYTES: usize = 1 << 20;

/// A request without a waiting caller is sent with the next one, or after this time.
pub const TIMEOUT: Duration = Duration::from_millis(1);

/// Slots that reservations leave free for other calls.
pub const UNRESERVED_SLOTS: usize = 16;

/// [`crate::ask`] gives up on an address after this.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that a set of sessions pins for replay, where its owner names no bound. (A mount does: 512 MiB.)
pub const PINNED_BYTES: u64 = 256 << 20;
/// Budget that a pinned request takes besides its body and bulk.
pub const PIN_OVERHEAD_BYTES: u64 = 512;

/// An address that has not replied to `Connect` after this is given up for the next one. Shorter than a recovery
/// window.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same while there is another address to try.
pub const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(1);
/// First pause after a failed round over the addresses; doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Longest pause between rounds. Well below a target's recovery window (2 s): with a longer pause the client would miss
/// it.
pub const BACKOFF_MAX: Duration = Duration::from_millis(300);
/// Rounds in a row in which only other targets answer, after which a session that was never connected is refused. With
/// the pauses between them more than a second, in which a newer map can arrive.
pub const ROUNDS_AT_OTHERS: u32 = 7;
/// Pause when the target itself reported that it cannot serve (stopped, lost commits), and the longest one when another
/// target answers.
pub const BACKOFF_STOPPED: Duration = Duration::from_secs(2);
/// A request refused with RECOVERING is sent again after this.
pub const RECOVERING_PAUSE: Duration = Duration::from_millis(100);

/// Replays of one session in flight at once.
pub const REPLAYS_IN_FLIGHT: usize = 32;
/// Bytes of one session's replays in flight at once: the target holds them until their turn.
pub const REPLAY_BYTES_IN_FLIGHT: u64 = 16 << 20;
/// Handles in one Reclaim request (a little over 24 bytes each).
pub const RECLAIM_HANDLES: usize = 16 << 10;
/// Locks in one Reclaim request (72 bytes each).
pub const RECLAIM_LOCKS: usize = 8 << 10;

/// How often a session with requests in flight checks its timers.
pub const TICK: Duration = Duration::from_millis(250);
/// Interval after which a session with uncommitted pins and no newer last_committed pings.
pub const COMMIT_NEWS: Duration = Duration::from_secs(1);
/// Interval after which a session that has sent nothing pings, so that the target keeps the session.
pub const KEEPALIVE: Duration = Duration::from_secs(5);
/// Interval after which a session that awaits a reply and received nothing pings.
pub const SILENCE: Duration = Duration::from_secs(5);
/// A ping without a reply for this long: the connection is dead.
pub const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// [`crate::ClientSession::close`] waits this long for an absent target.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a session that is to end checks whether any request of it is left, if nothing wakes it.
pub const DRAIN_PAUSE: Duration = Duration::from_millis(200);
/// Evictions that are remembered, so that `committed` can report their lost changes.
pub const LOSSES: usize = 64;

/// Requests of one connection in execution at once: slots and control requests.
pub const REQUESTS_PER_CONNECTION: usize = forebay_proto::limits::SLOTS as usize * 2;
/// Streams of one connection, by different addresses.
pub const RAILS: usize = 8;
/// A frame that has not come by its stream for so long, while later ones have come by others: its stream is dead.
pub const RAIL_STALL: Duration = Duration::from_secs(3);
/// So many times [`RAIL_STALL`] a stream may take for the rest of a frame.
pub const RAIL_STALLS_IN_FRAME: u32 = 4;
/// A stream that is open for so long works: the next pause is the first again.
pub const RAIL_WORKS: Duration = Duration::from_secs(60);
/// First pause after a failed attempt to reach a further address, or after its stream broke; doubles up to [`RAIL_PAUSE_MAX`].
pub const RAIL_PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
pub const RAIL_PAUSE_MAX: Duration = Duration::from_secs(30);
/// An address at which nothing answered is tried after the others for this long.
pub const SHUNNED: Duration = Duration::from_secs(60);
/// Connections that one server keeps open at once.
pub const CONNECTIONS: usize = 32 << 10;
/// Connections of one server that may be in their TLS handshake at once; a new one displaces the oldest. One takes some
/// 100 KiB.
pub const HANDSHAKES: usize = 512;
/// A listener logs refused connections at most once in this time, with their number.
pub const REFUSAL_LOG: Duration = Duration::from_secs(1);
/// A connection without a session is closed when its next header, or the rest of that request, takes longer than this.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest body of a request on a connection without a session (it may have no bulk at all).
pub const GREETING_BODY_BYTES: u32 = 16 << 10;

/// How often a node looks whether its certificate is due for renewal.
pub const RENEWAL_LOOK: Duration = Duration::from_secs(3600);
/// Longest pause between two attempts to renew it.
pub const RENEWAL_PAUSE: Duration = Duration::from_secs(3600);
