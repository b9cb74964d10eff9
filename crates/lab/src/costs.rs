//! CPU costs measured on a real run: `machines/cpu-costs.toml`.

use std::{collections::BTreeMap, time::Duration};

use forebay_env::sim::{CpuCosts, MessageCost};
use forebay_proto::message::Op;
use serde::Deserialize;

/// The output of `forebay bench cpu-costs --toml`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCosts {
    /// Date of the measurement.
    pub measured: String,
    /// The machine it was measured on.
    pub machine: String,
    /// Costs per byte.
    pub byte: ByteCosts,
    /// Costs per message.
    pub message: BTreeMap<String, Cost>,
}

/// The costs of handling bytes.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ByteCosts {
    /// For copying a byte.
    pub copied_ns: f64,
    /// For checksumming a byte.
    pub summed_ns: f64,
}

/// The cost of a message.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    client_us: f64,
    server_us: f64,
    #[serde(default)]
    client_byte_ns: f64,
    #[serde(default)]
    server_byte_ns: f64,
}

/// The measured messages.
const MESSAGES: [(&str, Op); 10] = [
    ("create", Op::Create),
    ("close", Op::Close),
    ("lookup", Op::Lookup),
    ("getattr", Op::GetAttr),
    ("unlink", Op::Unlink),
    ("open", Op::Open),
    ("mkdir", Op::Make),
    ("rmdir", Op::Rmdir),
    ("write", Op::Write),
    ("read", Op::Read),
];
/// Messages that cost as much as a measured one.
const AS_THESE: [(&str, Op); 4] =
    [("write", Op::WritePieces), ("write", Op::Append), ("write", Op::WriteReserved), ("read", Op::ReadPieces)];

/// Messages that were added after some measurements. Without a measurement each costs as much as the second one, which
/// does at least as much work.
const ALIKE: [(&str, &str); 3] = [("open", "create"), ("mkdir", "create"), ("rmdir", "unlink")];

impl MeasuredCosts {
    /// Parses the file. Errors: a text for the user who supplied it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let costs: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        costs.check()?;
        Ok(costs)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (name, cost) in &self.message {
            let values = [cost.client_us, cost.server_us, cost.client_byte_ns, cost.server_byte_ns];
            if values.iter().any(|value| !value.is_finite() || *value < 0.0) {
                return Err(format!("message.{name} costs less than nothing"));
            }
            if !MESSAGES.iter().any(|(known, _)| known == name) {
                return Err(format!("message.{name} is not one that is measured"));
            }
        }
        let missing = MESSAGES.iter().find(|(name, _)| self.of(name).is_none());
        missing.map_or(Ok(()), |(name, _)| Err(format!("message.{name} is missing")))
    }

    fn of(&self, name: &str) -> Option<&Cost> {
        let alike = || ALIKE.iter().find(|(one, _)| *one == name).map(|(_, other)| *other);
        self.message.get(name).or_else(|| self.message.get(alike()?))
    }

    /// The cost table for the simulator. A message without a measurement costs as much as a getattr.
    pub fn table(&self, factor: f64) -> CpuCosts {
        let cost = |us: f64, byte_ns: f64| MessageCost { fixed: Duration::from_secs_f64(us / 1e6), byte_ns };
        let side = |pick: fn(&Cost) -> (f64, f64)| {
            let of = |(name, op): (&str, Op)| {
                let (us, byte_ns) = pick(self.of(name)?);
                Some((op as u16, cost(us, byte_ns)))
            };
            // A message with bytes at many offsets costs at least as much as one with the same number of bytes at one
            // offset.
            MESSAGES.into_iter().chain(AS_THESE).filter_map(of).collect()
        };
        let other = &self.message["getattr"];
        let costs = CpuCosts {
            client: side(|cost| (cost.client_us, cost.client_byte_ns)),
            server: side(|cost| (cost.server_us, cost.server_byte_ns)),
            other: cost(other.client_us.max(other.server_us), 0.0),
        };
        costs.times(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: &str = include_str!("../../../machines/cpu-costs.toml");

    #[test]
    fn the_committed_costs_are_whole() {
        let costs = MeasuredCosts::parse(COSTS).expect("costs");
        let (once, twice) = (costs.table(1.0), costs.table(2.0));
        let write = Op::Write as u16;
        assert!(once.server[&write].fixed > Duration::ZERO && once.server[&write].byte_ns > 0.0);
        assert_eq!(twice.server[&write].byte_ns, 2.0 * once.server[&write].byte_ns);
    }

    #[test]
    fn an_unmeasured_message_costs_as_much_as_a_similar_one() {
        let (before, from_mkdir) = COSTS.split_once("[message.mkdir]").expect("it was measured");
        let (_, behind) = from_mkdir.split_once("[message.rmdir]").expect("it comes next");
        let without = format!("{before}[message.rmdir]{behind}");
        let with = format!("{without}\n[message.mkdir]\nclient_us = 1.0\nserver_us = 2.0\n");
        let (without, with) = [without, with].map(|text| MeasuredCosts::parse(&text).expect("costs").table(1.0)).into();
        let server = |costs: &CpuCosts, op: Op| costs.server[&(op as u16)].fixed;
        assert_eq!(server(&without, Op::Make), server(&without, Op::Create));
        assert_eq!(server(&with, Op::Make), Duration::from_micros(2));
    }

    #[test]
    fn a_cost_that_is_missing_or_negative_is_refused() {
        let missing = COSTS.replacen("[message.unlink]", "[message.unlinked]", 1);
        assert!(MeasuredCosts::parse(&missing).expect_err("missing").contains("unlinked"));
        let negative = COSTS.replacen("server_us = ", "server_us = -", 1);
        assert!(MeasuredCosts::parse(&negative).expect_err("negative").contains("less than nothing"));
    }
}
