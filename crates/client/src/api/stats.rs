//! Counters of a client, and of its sessions.

use std::rc::Rc;

use forebay_rpc::SessionState;

use crate::{Client, ClientStats, session::peers::Peer};

impl Client {
    /// Counters since the mount.
    pub fn stats(&self) -> ClientStats {
        let counts = &self.inner.counters.0;
        let mut stats = ClientStats {
            read_bytes: counts.read_bytes.get(),
            cached_read_bytes: counts.cached_read_bytes.get(),
            read_cache_bytes: self.inner.cache.read.bytes().0,
            written_bytes: counts.written_bytes.get(),
            shares: counts.shares.get(),
            delayed_operations: counts.delayed_operations.get(),
            delayed_entries: self.inner.delayed.queue.borrow().entries().len() as u64,
            pinned_bytes: self.inner.peers.pinned_bytes(),
            longest_stall: counts.longest_stall.get(),
            ..ClientStats::default()
        };
        (stats.cached_inodes, stats.cached_names) = self.inner.mdt.leases.kept();
        let past = self.inner.peers.past();
        (stats.rpcs, stats.replayed, stats.evictions) = (past.replies, past.replays, past.evictions);
        for peer in self.inner.peers.all() {
            let session = peer.session.stats();
            stats.rpcs += session.replies;
            stats.replayed += session.replays;
            stats.evictions += session.evictions;
        }
        stats.mdt_evictions = self.inner.peers.mdt().session.stats().evictions;
        stats
    }

    /// Some target was reached before, and has no session with this client now: it connects, or recovers.
    pub fn is_reconnecting(&self) -> bool {
        let away =
            |peer: &Rc<Peer>| matches!(peer.session.state(), SessionState::Connecting | SessionState::Recovering);
        self.inner.peers.all().iter().any(away)
    }
}
