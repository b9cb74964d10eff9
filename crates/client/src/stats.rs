//! What a client has done.

use std::time::Duration;

use crate::Client;

/// Counters since the mount.
#[derive(Clone, Debug, Default)]
pub struct ClientStats {
    /// Bytes read by calls.
    pub read_bytes: u64,
    /// Bytes written by calls.
    pub written_bytes: u64,
    /// Requests sent.
    pub rpcs: u64,
    /// Bytes kept for replay now.
    pub pinned_bytes: u64,
    /// Requests replayed after restarts of targets.
    pub replayed: u64,
    /// The longest a request waited for its reply.
    pub longest_stall: Duration,
}

impl Client {
    /// Counters since the mount.
    pub fn stats(&self) -> ClientStats {
        todo!()
    }
}
