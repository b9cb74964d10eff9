//! Links: how long a message takes from node to node, and cuts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{NodeId, chance::Chance, executor::nanos};
use crate::limits::{SIM_IDLE_TIMEOUT, SIM_RETRANSMIT};

/// One direction of a path between two nodes.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Time from the last byte's departure to its arrival.
    pub latency: Duration,
    /// Up to this much more, by chance.
    pub jitter: Duration,
    /// Rate shared by all streams of this direction; `None`: infinite.
    pub bytes_per_s: Option<u64>,
    /// Probability that a message is lost and sent again after a retransmission timeout; the stream stays reliable.
    pub loss: f64,
}

impl Link {
    /// The link from a node to itself.
    pub const LOOPBACK: Link =
        Link { latency: Duration::from_micros(5), jitter: Duration::ZERO, bytes_per_s: None, loss: 0.0 };
}

impl Default for Link {
    /// A quiet local network.
    fn default() -> Self {
        Self { latency: Duration::from_micros(50), jitter: Duration::from_micros(10), bytes_per_s: None, loss: 0.0 }
    }
}

/// A node's port to the network: its rate, and when each of its directions is free.
struct Nic {
    bytes_per_s: u64,
    out_free_at: u64,
    in_free_at: u64,
}

/// All links of the world, by direction.
pub(crate) struct Links {
    default: Link,
    own: BTreeMap<(NodeId, NodeId), Link>,
    free_at: BTreeMap<(NodeId, NodeId), u64>,
    nics: BTreeMap<NodeId, Nic>,
    cuts: BTreeSet<(NodeId, NodeId)>,
    pub(crate) idle_timeout: Duration,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            default: Link::default(),
            own: BTreeMap::new(),
            free_at: BTreeMap::new(),
            nics: BTreeMap::new(),
            cuts: BTreeSet::new(),
            idle_timeout: SIM_IDLE_TIMEOUT,
        }
    }
}

impl Links {
    pub(crate) fn set_default(&mut self, link: Link) {
        self.default = link;
    }

    pub(crate) fn set(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.own.insert((from, to), link);
    }

    pub(crate) fn set_nic(&mut self, node: NodeId, bytes_per_s: u64) {
        self.nics.insert(node, Nic { bytes_per_s, out_free_at: 0, in_free_at: 0 });
    }

    /// When `len` bytes that begin to leave at `now` have passed both nodes' ports. The bytes stream: both ports
    /// transfer them at the same time.
    fn through_nics(&mut self, from: NodeId, to: NodeId, now: u64, len: usize) -> u64 {
        if from == to {
            return now;
        }
        let mut end = now;
        if let Some(nic) = self.nics.get_mut(&from) {
            nic.out_free_at = nic.out_free_at.max(now).saturating_add(transfer_ns(len, nic.bytes_per_s));
            end = nic.out_free_at;
        }
        if let Some(nic) = self.nics.get_mut(&to) {
            let takes = transfer_ns(len, nic.bytes_per_s);
            let begin = end.saturating_sub(takes).max(now);
            nic.in_free_at = nic.in_free_at.max(begin).saturating_add(takes);
            end = end.max(nic.in_free_at);
        }
        end
    }

    pub(crate) fn get(&self, from: NodeId, to: NodeId) -> Link {
        match self.own.get(&(from, to)) {
            Some(link) => *link,
            None if from == to => Link::LOOPBACK,
            None => self.default,
        }
    }

    /// The link of a message to an unknown address.
    pub(crate) fn to_nowhere(&self) -> Link {
        self.default
    }

    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    pub(crate) fn heal(&mut self, from: NodeId, to: NodeId) {
        self.cuts.remove(&(from, to));
    }

    pub(crate) fn heal_all(&mut self) {
        self.cuts.clear();
    }

    pub(crate) fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.contains(&(from, to))
    }

    /// When a message of `len` bytes sent at `now` arrives; takes its share of the link.
    pub(crate) fn arrival(&mut self, from: NodeId, to: NodeId, now: u64, len: usize, chance: &Chance) -> u64 {
        let link = self.get(from, to);
        let mut departure = now;
        if let Some(rate) = link.bytes_per_s {
            let free_at = self.free_at.entry((from, to)).or_default();
            departure = now.max(*free_at).saturating_add(transfer_ns(len, rate));
            *free_at = departure;
        }
        let departure = self.through_nics(from, to, departure, len);
        let mut arrival = departure.saturating_add(nanos(link.latency));
        if !link.jitter.is_zero() {
            arrival = arrival.saturating_add(chance.below(nanos(link.jitter) + 1));
        }
        while chance.chance(link.loss.min(0.99)) {
            arrival = arrival.saturating_add(nanos(SIM_RETRANSMIT.max(link.latency * 2)));
        }
        arrival
    }
}

/// Nanoseconds that `len` bytes take at `bytes_per_s`.
pub(crate) fn transfer_ns(len: usize, bytes_per_s: u64) -> u64 {
    let ns = len as u128 * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
