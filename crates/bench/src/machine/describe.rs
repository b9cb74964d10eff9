//! The description in the form that `forebay sim` reads: every parameter with its source.

use std::fmt::Write as _;

use forebay_command::posix;

use super::{device::Device, fuse::Fuse, library::Library};
use crate::{cpu_costs::costs::Costs, line::Line};

/// All results of the measurement.
pub struct Description {
    /// Number of OSTs in the description.
    pub osts: u32,
    /// Programs that run at the same time.
    pub programs: u32,
    /// The device.
    pub device: Device,
    /// The FUSE layer.
    pub fuse: Fuse,
    /// The client library on small requests.
    pub library: Library,
    /// Costs of messages.
    pub costs: Costs,
}

impl Description {
    /// The file's text.
    pub fn to_toml(&self) -> String {
        let measured = "measured by `forebay bench machine`";
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let Device { read_mb_s, write_mb_s, iops, read_latency_us, write_latency_us, flush_ms, .. } = self.device;
        let gib = (self.device.bytes >> 30).max(1);
        let ost_gib = (gib / u64::from(self.osts)).min(16);
        let journal_mib = (ost_gib * 1024 / 64).clamp(16, 1024);
        let mut text = format!(
            "# This machine, as `forebay bench machine` measured it on {}; its device taken for one without heads.\n\n\
             name = \"measured\"\nabout = \"{}\"\n",
            posix::today(),
            posix::machine()
        );
        let mut section = |name: &str, parameters: &[(&str, f64, &str)]| {
            let _ = writeln!(text, "\n[{name}]");
            if name == "tier" {
                text.push_str("kind = \"solid\"\n");
            }
            for (name, value, source) in parameters {
                let value = (value * 1e4).round() / 1e4;
                let _ = writeln!(text, "{name} = {{ value = {value}, source = \"{source}\" }}");
            }
        };
        section(
            "servers",
            &[
                ("nodes", 1.0, "one machine"),
                ("osts_per_node", f64::from(self.osts), "--osts"),
                ("osts_per_tier", f64::from(self.osts), "all lie on the device that was measured"),
                ("cores", cores as f64, "as the kernel has it"),
            ],
        );
        section(
            "clients",
            &[
                ("nodes", 1.0, "one mount"),
                ("cores", cores as f64, "not used: it shares the servers' cores"),
                ("rpcs_in_flight", 8.0, "our default"),
            ],
        );
        section("cpu", &[("factor", 1.0, "costs below are this machine's")]);
        let Fuse { program_write, program_read, write, read, wake_us, wake_work_us } = self.fuse;
        let Library { gather, kept } = self.library;
        let lines = [
            ("program_write", program_write),
            ("program_read", program_read),
            ("write", write),
            ("gather", gather),
            ("read", read),
            ("kept", kept),
        ];
        let named: Vec<(String, f64)> = lines
            .into_iter()
            .flat_map(|(name, Line { us, byte_ns })| [(format!("{name}_us"), us), (format!("{name}_byte_ns"), byte_ns)])
            .chain([("wake_us".to_owned(), wake_us), ("wake_work_us".to_owned(), wake_work_us)])
            .collect();
        let mut mount = vec![("programs", f64::from(self.programs), "-N")];
        mount.extend(named.iter().map(|(name, value)| (name.as_str(), *value, measured)));
        section("mount", &mount);
        section(
            "network",
            &[
                ("node_mb_s", 1e6, "none: Unix sockets, whose bytes are CPU time"),
                ("latency_us", 0.0, "none: see mount.wake_us"),
            ],
        );
        section("port", &[("mb_s", 1e6, "none beside the device"), ("latency_us", 0.0, "in the device's latencies")]);
        section(
            "tier",
            &[
                ("gib", gib as f64, "free room of its file system"),
                ("read_mb_s", read_mb_s, measured),
                ("write_mb_s", write_mb_s, measured),
                ("iops", iops, measured),
                ("latency_read_us", read_latency_us, measured),
                ("latency_write_us", write_latency_us, measured),
                ("depth", 64.0, "assumption: as deep as it was asked to be, and more"),
                ("flush_ms", flush_ms, measured),
            ],
        );
        section(
            "journal",
            &[
                ("mib", journal_mib as f64, "1/64 of the data of an OST of `up`, as our format has it"),
                ("distance", 0.0, "not used: it has no heads"),
                ("blocks_kib", 0.0, "not used"),
                ("record_kib", 0.0, "not used"),
                ("interval_s", 1.0, "our default"),
            ],
        );
        let _ = write!(text, "\n[costs]\n{}", self.costs.values("costs."));
        text
    }
}
