//! The medians in the form that the laboratory reads: a fixed cost per message, and a cost per byte.
//!
//! A data message costs its fixed part and its bytes. Both follow from the requests of 64 KiB and 1 MiB, which differ
//! only in their bytes. A small write costs more, as it is packed and shares a run. That is a row of the report, and
//! not part of the laboratory's costs.

use std::fmt::Write as _;

use forebay_command::{posix, summary::median};

use super::{load::Measured, primitives::Primitives};
use crate::line::Line;

/// Fixed microseconds per message, and nanoseconds per byte.
struct Cost {
    message: &'static str,
    client_us: f64,
    server_us: f64,
    client_byte_ns: f64,
    server_byte_ns: f64,
}

/// All costs.
pub struct Costs {
    costs: Vec<Cost>,
    copied_ns: f64,
    summed_ns: f64,
}

impl Costs {
    /// Computed from all repetitions.
    pub fn of(rounds: &[Vec<Measured>], primitives: &[Primitives]) -> Self {
        let names =
            ["create", "close", "lookup", "getattr", "open", "unlink", "mkdir", "rmdir"].into_iter().map(|message| {
                let (client_us, server_us) = medians(rounds, message);
                Cost { message, client_us, server_us, client_byte_ns: 0.0, server_byte_ns: 0.0 }
            });
        let data = ["write", "read"].into_iter().map(|message| {
            let (few, many) = (64u64 << 10, 1u64 << 20);
            let less = medians(rounds, &format!("{message} {} KiB", few >> 10));
            let more = medians(rounds, &format!("{message} {} KiB", many >> 10));
            let [client, server] =
                [(less.0, more.0), (less.1, more.1)].map(|(less, more)| Line::through((few, less), (many, more)));
            Cost {
                message,
                client_us: client.us,
                server_us: server.us,
                client_byte_ns: client.byte_ns,
                server_byte_ns: server.byte_ns,
            }
        });
        let costs = names.chain(data).collect();
        let copied_ns = median(primitives.iter().map(|p| p.copied_ns));
        let summed_ns = median(primitives.iter().map(|p| p.summed_ns));
        Self { costs, copied_ns, summed_ns }
    }

    /// The client's cost of a message.
    pub fn client(&self, message: &str) -> Line {
        let cost = self.costs.iter().find(|cost| cost.message == message);
        cost.map_or(Line { us: 0.0, byte_ns: 0.0 }, |cost| Line { us: cost.client_us, byte_ns: cost.client_byte_ns })
    }

    /// The file's text.
    pub fn to_toml(&self) -> String {
        format!(
            "# CPU costs for the laboratory, measured by `forebay bench cpu-costs DIR --toml FILE`.\n\
             # Fixed microseconds per message at the client and at the server, and nanoseconds per byte of its data.\n{}",
            self.values("")
        )
    }

    /// The same as tables below `prefix` (`costs.`, or nothing).
    pub fn values(&self, prefix: &str) -> String {
        let (machine, measured) = (posix::machine(), posix::today());
        let mut text = format!(
            "measured = \"{measured}\"\nmachine = \"{machine}\"\n\n\
             [{prefix}byte]\n# By themselves; both are part of the bytes of write and read below.\n\
             copied_ns = {:.4}\nsummed_ns = {:.4}\n",
            self.copied_ns, self.summed_ns
        );
        for cost in &self.costs {
            let Cost { message, client_us, server_us, client_byte_ns, server_byte_ns } = cost;
            let _ =
                write!(text, "\n[{prefix}message.{message}]\nclient_us = {client_us:.2}\nserver_us = {server_us:.2}\n");
            if *client_byte_ns > 0.0 || *server_byte_ns > 0.0 {
                let _ = writeln!(text, "client_byte_ns = {client_byte_ns:.4}\nserver_byte_ns = {server_byte_ns:.4}");
            }
        }
        text
    }
}

fn medians(rounds: &[Vec<Measured>], message: &str) -> (f64, f64) {
    let of = |pick: fn(&Measured) -> f64| median(rounds.iter().flatten().filter(|m| m.message == message).map(pick));
    (of(|m| m.client_us), of(|m| m.server_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_toml() {
        let cost = Cost { message: "write", client_us: 1.0, server_us: 2.0, client_byte_ns: 0.1, server_byte_ns: 0.2 };
        let text = Costs { costs: vec![cost], copied_ns: 0.05, summed_ns: 0.02 }.to_toml();
        let value: toml::Table = toml::from_str(&text).expect("TOML");
        assert_eq!(value["message"]["write"]["server_us"].as_float(), Some(2.0));
    }
}
