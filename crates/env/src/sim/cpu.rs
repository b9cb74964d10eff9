//! CPU cost of messages on a simulated machine.
//!
//! Not here: the origin of the numbers (`forebay bench cpu-costs`), and the cores that they are charged to (see `env`).

use std::{collections::BTreeMap, time::Duration};

use crate::Side;

/// The cost of a message at one side: a fixed part, and a part per byte of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MessageCost {
    /// The fixed part.
    pub fixed: Duration,
    /// Nanoseconds per byte.
    pub byte_ns: f64,
}

/// Cost of messages, by the number of their operation.
#[derive(Clone, Debug, Default)]
pub struct CpuCosts {
    /// At the client.
    pub client: BTreeMap<u16, MessageCost>,
    /// At the server.
    pub server: BTreeMap<u16, MessageCost>,
    /// Cost of an operation that was not measured, at either side.
    pub other: MessageCost,
}

impl CpuCosts {
    /// All costs multiplied by `factor`: for a slower machine, or to find out whether CPUs matter.
    pub fn times(&self, factor: f64) -> Self {
        let scale =
            |cost: &MessageCost| MessageCost { fixed: cost.fixed.mul_f64(factor), byte_ns: cost.byte_ns * factor };
        let all = |costs: &BTreeMap<u16, MessageCost>| costs.iter().map(|(op, cost)| (*op, scale(cost))).collect();
        Self { client: all(&self.client), server: all(&self.server), other: scale(&self.other) }
    }

    fn of(&self, side: Side, op: u16) -> MessageCost {
        let costs = match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        };
        costs.get(&op).copied().unwrap_or(self.other)
    }

    pub(crate) fn message(&self, side: Side, op: u16, bytes: usize) -> Duration {
        self.of(side, op).fixed + self.bytes(side, op, bytes)
    }

    pub(crate) fn bytes(&self, side: Side, op: u16, bytes: usize) -> Duration {
        let ns = self.of(side, op).byte_ns * bytes as f64;
        Duration::from_nanos(ns as u64)
    }
}
