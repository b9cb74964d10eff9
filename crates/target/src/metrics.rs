//! Counters of a target, as plain values that may leave its shard: for `status` and for monitoring.

use std::{cell::Ref, rc::Rc};

use forebay_env::Address;
use forebay_proto::{Histogram, TargetId};
use forebay_rpc::Traffic;
use forebay_store::{DeviceStats, Space, StoreStats};

use crate::{Target, TargetState, core::Core};

/// Sizes of client requests: one sample per executed request, in bytes of file data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Reads.
    pub reads: Histogram,
    /// Writes, including replayed ones.
    pub writes: Histogram,
}

/// What went over an address that a target listens at, as frames, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkMetrics {
    /// The address.
    pub address: String,
    /// To clients.
    pub sent_bytes: u64,
    /// From clients.
    pub received_bytes: u64,
}

/// Counters of a target since it was started, and its gauges.
#[derive(Clone, Debug)]
pub struct TargetMetrics {
    /// The target.
    pub target: TargetId,
    /// Its state.
    pub state: TargetState,
    /// Requests executed, without replays.
    pub requests: u64,
    /// Requests that clients sent again, after a lost connection or a restart.
    pub resends: u64,
    /// Requests run again because a row was not in memory or the journal was full.
    pub reruns: u64,
    /// Requests replayed by clients that were known before the start.
    pub replays: u64,
    /// Clients evicted.
    pub evictions: u64,
    /// Sessions.
    pub sessions: u64,
    /// Those whose client is connected.
    pub sessions_connected: u64,
    /// Bytes that clients pin until they are committed here.
    pub pinned_bytes: u64,
    /// Bytes of requests in memory now, and their bound.
    pub bulk_bytes: (u64, u64),
    /// What went over each address.
    pub networks: Vec<NetworkMetrics>,
    /// Sizes of requests for file data.
    pub asked: Asked,
    /// Sizes of requests to the devices.
    pub devices: Vec<DeviceStats>,
    /// Space by use.
    pub space: Space,
    /// What the store counts: commits, journal.
    pub store: StoreStats,
}

impl Core {
    /// The target listens at `address`: the counters of what goes over it.
    pub(crate) fn listens_at(&self, address: Address) -> Rc<Traffic> {
        let traffic = Rc::<Traffic>::default();
        self.networks.borrow_mut().push((address, traffic.clone()));
        traffic
    }

    pub(crate) fn network_metrics(&self) -> Vec<NetworkMetrics> {
        let networks = self.networks.borrow();
        let metrics = networks.iter().map(|(address, traffic)| NetworkMetrics {
            address: address.to_string(),
            sent_bytes: traffic.sent_bytes.get(),
            received_bytes: traffic.received_bytes.get(),
        });
        metrics.collect()
    }

    pub(crate) fn asked(&self) -> Ref<'_, Asked> {
        self.asked.borrow()
    }

    /// Over all sessions.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.sessions.borrow().values().map(|session| session.pinned.bytes(&self.store)).sum()
    }
}

impl Target {
    /// A read of `bytes` was executed for a client.
    pub fn note_read(&self, bytes: u64) {
        self.core().asked.borrow_mut().reads.record(bytes);
    }

    /// A write of `bytes` was executed for a client.
    pub fn note_write(&self, bytes: u64) {
        self.core().asked.borrow_mut().writes.record(bytes);
    }

    /// Current values of all counters and gauges.
    pub fn metrics(&self) -> TargetMetrics {
        let core = self.core();
        let counters = core.counters.get();
        let sessions = core.sessions.borrow();
        TargetMetrics {
            target: self.id(),
            state: self.state(),
            requests: counters.requests,
            resends: counters.resends,
            reruns: counters.reruns,
            replays: core.recovery.borrow().replayed,
            evictions: counters.evictions,
            sessions: sessions.len() as u64,
            sessions_connected: sessions.values().filter(|session| session.is_connected()).count() as u64,
            pinned_bytes: core.pinned_bytes(),
            bulk_bytes: (core.gate.used_bytes(), core.gate.limit_bytes()),
            networks: core.network_metrics(),
            asked: core.asked().clone(),
            devices: core.store.devices(),
            space: core.store.space(),
            store: core.store.stats(),
        }
    }
}
