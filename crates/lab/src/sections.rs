//! The parameters of a described machine by section: names, units and ranges, and the models built from them.

use std::time::Duration;

use forebay_env::sim::{ControllerCache, Heads, Medium, QueueOrder, Solid, TierModel};
use serde::Deserialize;

/// A parameter's name, the parameter, and its range.
pub(super) type Named<'a> = (&'static str, &'a Param, (f64, f64));

/// A parameter and its source.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// In the unit that its name gives.
    pub value: f64,
    /// A section of a paper, `calibrated on ROW`, a measurement, or `assumption: ...`.
    pub source: String,
}

macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $range:expr;)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, PartialEq)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$field_doc])* pub $field: Param,)* }

        impl $name {
            pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Param> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)*
                    _ => None,
                }
            }

            /// Every parameter: name, value, range.
            pub(super) fn each(&self) -> Vec<Named<'_>> {
                vec![$((stringify!($field), &self.$field, $range),)*]
            }
        }
    )*};
}

sections! {
    /// The servers.
    Servers {
        /// Number of nodes.
        nodes: (1.0, 2000.0);
        /// OSTs per node.
        osts_per_node: (1.0, 100.0);
        /// OSTs of a node that share a tier.
        osts_per_tier: (1.0, 100.0);
        /// Cores per node.
        cores: (1.0, 1024.0);
    }
    /// The clients.
    Clients {
        /// Number of nodes.
        nodes: (1.0, 10_000.0);
        /// Cores per node.
        cores: (1.0, 1024.0);
        /// Data requests that a client has in flight to one OST.
        rpcs_in_flight: (1.0, 64.0);
    }
    /// The processors.
    Cpu {
        /// Multiplier for the measured costs.
        factor: (0.0, 100.0);
    }
    /// The network between clients and servers.
    Network {
        /// Bandwidth of a node's port in each direction.
        node_mb_s: (1.0, 1e6);
        /// Latency in one direction.
        latency_us: (0.0, 1e6);
    }
    /// The link from a server to its storage.
    StoragePort {
        /// Bandwidth.
        mb_s: (1.0, 1e6);
        /// Latency in one direction.
        latency_us: (0.0, 1e6);
    }
    /// Disks whose heads move together, or one disk.
    HeadsTier {
        /// Capacity.
        gib: (1.0, 1e7);
        /// Rate of all its data disks together.
        mb_s: (1.0, 1e6);
        /// Time of a revolution of the platters.
        revolution_ms: (0.1, 100.0);
        /// Time of a seek to the next track.
        seek_track_ms: (0.0, 1000.0);
        /// Time of a seek over a third of the stroke.
        seek_average_ms: (0.0, 1000.0);
        /// Time of a seek over the full stroke.
        seek_full_ms: (0.0, 1000.0);
        /// Time lost between consecutive writes.
        write_turnaround_ms: (0.0, 1000.0);
        /// Time lost before a write after a seek.
        write_settle_ms: (0.0, 1000.0);
        /// Size of a parity stripe; 0: no parity.
        stripe_kib: (0.0, 65_536.0);
        /// Commands in flight at the device; others wait in the queue.
        depth: (1.0, 1024.0);
        /// Longest command that queued requests are merged into; 0: no merging.
        command_kib: (0.0, 65_536.0);
        /// 1: the queue is an elevator; 0: first come, first served.
        elevator: (0.0, 1.0);
        /// Write cache that survives a power cut; 0: none.
        cache_mib: (0.0, 1e7);
        /// Time from the arrival of a write at the cache to its completion.
        cache_latency_us: (0.0, 1e6);
        /// Time of a flush.
        flush_ms: (0.0, 1000.0);
    }
    /// A solid-state device.
    SolidTier {
        /// Capacity.
        gib: (1.0, 1e7);
        /// Rate of reads.
        read_mb_s: (1.0, 1e6);
        /// Rate of writes.
        write_mb_s: (1.0, 1e6);
        /// Small requests per second.
        iops: (1.0, 1e9);
        /// Latency of a read; several overlap.
        latency_read_us: (0.0, 1e6);
        /// Latency of a write; several overlap.
        latency_write_us: (0.0, 1e6);
        /// Commands in flight at the device; others wait in the queue.
        depth: (1.0, 65_536.0);
        /// Time of a flush.
        flush_ms: (0.0, 1000.0);
    }
    /// Programs that use the file system through one mount, on the servers' cores. The costs are additional to those of
    /// messages.
    Mount {
        /// Number of programs.
        programs: (1.0, 1024.0);
        /// CPU time of a program for one write(2), including the kernel.
        program_write_us: (0.0, 1e6);
        /// Additional time per byte.
        program_write_byte_ns: (0.0, 1e3);
        /// CPU time of a program for one read(2).
        program_read_us: (0.0, 1e6);
        /// Additional time per byte.
        program_read_byte_ns: (0.0, 1e3);
        /// CPU time of the mount for one kernel write, before the client has it.
        write_us: (0.0, 1e6);
        /// Additional time per byte.
        write_byte_ns: (0.0, 1e3);
        /// Additional time for a small write, which the client coalesces with others.
        gather_us: (0.0, 1e6);
        /// Additional time per byte of such a write.
        gather_byte_ns: (0.0, 1e3);
        /// CPU time of the mount for one kernel read, once the client has its bytes.
        read_us: (0.0, 1e6);
        /// Additional time per byte.
        read_byte_ns: (0.0, 1e3);
        /// Additional time for a small read that the client serves from its cache.
        kept_us: (0.0, 1e6);
        /// Additional time per byte of such a read.
        kept_byte_ns: (0.0, 1e3);
        /// Time from work for a sleeping thread to its first instruction, on an idle processor.
        wake_us: (0.0, 1e6);
        /// CPU time of the thread that wakes another on an idle processor.
        wake_work_us: (0.0, 1e6);
    }
    /// The metadata server.
    Mds {
        /// Capacity of the MDT.
        mdt_gib: (1.0, 1e6);
        /// Rows that it keeps in memory.
        cache_mib: (1.0, 1e6);
    }
    /// What name operations cost a client node besides their messages: system call, kernel, FUSE and our FUSE layer.
    /// Also the number of changes that a client in the paper has in flight.
    Names {
        /// CPU time of a program for a create or remove.
        change_program_us: (0.0, 1e6);
        /// CPU time of the mount's thread for it.
        change_mount_us: (0.0, 1e6);
        /// CPU time of a program for a lookup or open.
        look_program_us: (0.0, 1e6);
        /// CPU time of the mount's thread for it.
        look_mount_us: (0.0, 1e6);
        /// Changes and opens that a client has in flight in the paper's mode.
        changes_in_flight: (1.0, 1024.0);
    }
    /// How the baseline was measured.
    Xdd {
        /// Fraction of the device that random requests cover.
        region: (0.0001, 1.0);
    }
    /// Where journals are, and the shape of another journal's transactions.
    JournalSection {
        /// Size of a journal.
        mib: (1.0, 65_536.0);
        /// Distance of the data behind the journal, as a fraction of the device.
        distance: (0.0, 0.9);
        /// Metadata blocks of a transaction.
        blocks_kib: (0.0, 65_536.0);
        /// The commit record.
        record_kib: (0.0, 1024.0);
        /// Time between commits that no request waits for.
        interval_s: (0.01, 3600.0);
    }
}

/// A device for an OST's data, or for journals.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TierSection {
    /// A device with heads.
    Heads(Box<HeadsTier>),
    /// A solid-state device.
    Solid(Box<SolidTier>),
}

impl Param {
    /// The value as a whole number.
    pub fn count(&self) -> u32 {
        self.value as u32
    }

    /// A duration given in milliseconds.
    pub fn ms(&self) -> Duration {
        Duration::from_secs_f64(self.value / 1e3)
    }

    /// A duration given in microseconds.
    pub fn us(&self) -> Duration {
        Duration::from_secs_f64(self.value / 1e6)
    }

    /// MB/s as bytes a second.
    pub fn mb_s(&self) -> u64 {
        (self.value * 1e6) as u64
    }

    /// KiB as bytes.
    pub fn kib(&self) -> u64 {
        (self.value * 1024.0) as u64
    }

    /// MiB as bytes.
    pub fn mib(&self) -> u64 {
        (self.value * 1024.0 * 1024.0) as u64
    }
}

impl TierSection {
    pub(super) fn each(&self) -> Vec<Named<'_>> {
        match self {
            Self::Heads(heads) => heads.each(),
            Self::Solid(solid) => solid.each(),
        }
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Param> {
        match self {
            Self::Heads(heads) => heads.get_mut(name),
            Self::Solid(solid) => solid.get_mut(name),
        }
    }

    pub(super) fn gib(&self) -> f64 {
        match self {
            Self::Heads(heads) => heads.gib.value,
            Self::Solid(solid) => solid.gib.value,
        }
    }

    /// The rate of writes in MB/s.
    pub(super) fn write_mb_s(&self) -> f64 {
        match self {
            Self::Heads(heads) => heads.mb_s.value,
            Self::Solid(solid) => solid.write_mb_s.value,
        }
    }

    /// Size of the write cache.
    pub(super) fn cache_bytes(&self) -> u64 {
        match self {
            Self::Heads(heads) => heads.cache_mib.mib(),
            Self::Solid(_) => 0,
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let Self::Heads(heads) = self else { return Ok(()) };
        let (track, average, full) = (&heads.seek_track_ms, &heads.seek_average_ms, &heads.seek_full_ms);
        if track.value > average.value || average.value > full.value {
            return Err(format!(
                "seek times of {} ms to the next track, {} ms on average and {} ms over all: they have to grow",
                track.value, average.value, full.value
            ));
        }
        if heads.stripe_kib.value % 4.0 != 0.0 {
            return Err(format!("stripe_kib = {}: use a multiple of 4", heads.stripe_kib.value));
        }
        Ok(())
    }

    /// The model of the device.
    pub fn model(&self) -> TierModel {
        match self {
            Self::Heads(heads) => heads.model(),
            Self::Solid(solid) => solid.model(),
        }
    }
}

impl HeadsTier {
    fn model(&self) -> TierModel {
        let cache = ControllerCache { bytes: self.cache_mib.mib(), latency: self.cache_latency_us.us() };
        let heads = Heads {
            bytes_per_s: self.mb_s.mb_s(),
            seek_track: self.seek_track_ms.ms(),
            seek_average: self.seek_average_ms.ms(),
            seek_full: self.seek_full_ms.ms(),
            revolution: self.revolution_ms.ms(),
            write_turnaround: self.write_turnaround_ms.ms(),
            write_settle: self.write_settle_ms.ms(),
            stripe_bytes: self.stripe_kib.kib(),
        };
        TierModel {
            bytes: (self.gib.value * (1u64 << 30) as f64) as u64,
            medium: Medium::Heads(heads),
            depth: self.depth.count() as usize,
            command_bytes: self.command_kib.kib(),
            order: if self.elevator.value > 0.5 { QueueOrder::Elevator } else { QueueOrder::Arrival },
            cache: (cache.bytes > 0).then_some(cache),
            flush: self.flush_ms.ms(),
        }
    }
}

impl SolidTier {
    fn model(&self) -> TierModel {
        let solid = Solid {
            read_bytes_per_s: self.read_mb_s.mb_s(),
            write_bytes_per_s: self.write_mb_s.mb_s(),
            request: Duration::from_secs_f64(1.0 / self.iops.value),
            latency_read: self.latency_read_us.us(),
            latency_write: self.latency_write_us.us(),
        };
        TierModel {
            bytes: (self.gib.value * (1u64 << 30) as f64) as u64,
            medium: Medium::Solid(solid),
            depth: self.depth.count() as usize,
            command_bytes: 0,
            order: QueueOrder::Arrival,
            cache: None,
            flush: self.flush_ms.ms(),
        }
    }
}
