//! What messages cost a simulated machine's CPUs.
//!
//! Not here: where the numbers come from (`forebay bench cpu-costs`), and the cores they are charged to (see `env`).

use std::{collections::BTreeMap, time::Duration};

use crate::Side;

/// What a message costs one side: so much, and so much per byte of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MessageCost {
    /// Without its bytes.
    pub fixed: Duration,
    /// Nanoseconds per byte.
    pub byte_ns: f64,
}

/// What messages cost, by the number of their operation.
#[derive(Clone, Debug, Default)]
pub struct CpuCosts {
    /// At the client.
    pub client: BTreeMap<u16, MessageCost>,
    /// At the server.
    pub server: BTreeMap<u16, MessageCost>,
    /// Of an operation that was not measured, at either side.
    pub other: MessageCost,
}

impl CpuCosts {
    /// All costs `factor` times as high: a slower machine, or the question whether CPUs matter.
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
