//! What a client has done.

use std::{cell::Cell, rc::Rc, time::Duration};

/// Counters since the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Bytes read by calls.
    pub read_bytes: u64,
    /// Of these, bytes that were cached before a program requested them.
    pub cached_read_bytes: u64,
    /// Bytes of files kept under leases now.
    pub read_cache_bytes: u64,
    /// Bytes written by calls.
    pub written_bytes: u64,
    /// Requests that were replied.
    pub rpcs: u64,
    /// Bytes kept for replay now.
    pub pinned_bytes: u64,
    /// Requests replayed after restarts of targets.
    pub replayed: u64,
    /// Times a target ended this client's session.
    pub evictions: u64,
    /// Of these, times that it was the MDT.
    pub mdt_evictions: u64,
    /// The longest a request waited for its reply.
    pub longest_stall: Duration,
    /// Inodes kept under leases now.
    pub cached_inodes: u64,
    /// Names kept under leases now.
    pub cached_names: u64,
    /// Changes of names that were acknowledged before they were sent to the MDT.
    pub delayed_operations: u64,
    /// Of these, those the MDT has not made yet.
    pub delayed_entries: u64,
    /// Times that this client was granted a byte-range write lease.
    pub shares: u64,
}

/// Counts; all clones are one.
#[derive(Clone, Default)]
pub(crate) struct Counters(pub Rc<Counts>);

#[derive(Default)]
pub(crate) struct Counts {
    pub read_bytes: Cell<u64>,
    pub cached_read_bytes: Cell<u64>,
    pub written_bytes: Cell<u64>,
    pub longest_stall: Cell<Duration>,
    pub shares: Cell<u64>,
    pub delayed_operations: Cell<u64>,
}

impl Counters {
    pub fn read(&self, bytes: usize) {
        self.0.read_bytes.set(self.0.read_bytes.get() + bytes as u64);
    }

    pub fn read_kept(&self, bytes: usize) {
        self.0.cached_read_bytes.set(self.0.cached_read_bytes.get() + bytes as u64);
    }

    pub fn written(&self, bytes: usize) {
        self.0.written_bytes.set(self.0.written_bytes.get() + bytes as u64);
    }

    pub fn delayed_operations(&self) {
        self.0.delayed_operations.set(self.0.delayed_operations.get() + 1);
    }

    pub fn shared(&self) {
        self.0.shares.set(self.0.shares.get() + 1);
    }

    pub fn waited(&self, duration: Duration) {
        let longest = &self.0.longest_stall;
        longest.set(duration.max(longest.get()));
    }
}
