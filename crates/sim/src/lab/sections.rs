//! The parameters of a described machine, by section: names, units, ranges, and the models they make.

use std::time::Duration;

use forebay_env::sim::{ControllerCache, Heads, Medium, QueueOrder, Solid, TierModel};
use serde::Deserialize;

/// A parameter's name, the parameter, and its range.
pub(super) type Named<'a> = (&'static str, &'a Param, (f64, f64));

/// A parameter and its source.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// In the unit its name says.
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
        /// Machines.
        nodes: (1.0, 2000.0);
        /// OSTs of each.
        osts_per_node: (1.0, 100.0);
        /// OSTs of a node that lie on the same tier.
        osts_per_tier: (1.0, 100.0);
        /// Cores of each.
        cores: (1.0, 1024.0);
    }
    /// The clients.
    Clients {
        /// Machines.
        nodes: (1.0, 10_000.0);
        /// Cores of each.
        cores: (1.0, 1024.0);
        /// Data requests of a client to one OST at any time.
        rpcs_in_flight: (1.0, 64.0);
    }
    /// The processors.
    Cpu {
        /// How many times the measured costs.
        factor: (0.0, 100.0);
    }
    /// The network between clients and servers.
    Network {
        /// Rate of a node's port, each way.
        node_mb_s: (1.0, 1e6);
        /// One way.
        latency_us: (0.0, 1e6);
    }
    /// A server's way to its storage.
    StoragePort {
        /// Rate.
        mb_s: (1.0, 1e6);
        /// One way.
        latency_us: (0.0, 1e6);
    }
    /// Disks whose heads move together, or one disk.
    HeadsTier {
        /// Bytes it holds.
        gib: (1.0, 1e7);
        /// Rate of all its data disks together.
        mb_s: (1.0, 1e6);
        /// Of the platters.
        revolution_ms: (0.1, 100.0);
        /// Seek to the next track.
        seek_track_ms: (0.0, 1000.0);
        /// Over a third of the stroke.
        seek_average_ms: (0.0, 1000.0);
        /// Over all of it.
        seek_full_ms: (0.0, 1000.0);
        /// Lost between writes that follow each other.
        write_turnaround_ms: (0.0, 1000.0);
        /// Lost before a write after a seek.
        write_settle_ms: (0.0, 1000.0);
        /// Bytes over which parity is computed; 0: none.
        stripe_kib: (0.0, 65_536.0);
        /// Commands beyond the queue.
        depth: (1.0, 1024.0);
        /// Longest command that waiting requests are merged to; 0: they are not.
        command_kib: (0.0, 65_536.0);
        /// 1: the queue is an elevator; 0: first come, first served.
        elevator: (0.0, 1.0);
        /// Cache of writes that survives a loss of power; 0: none.
        cache_mib: (0.0, 1e7);
        /// From arrival to completion of a write there.
        cache_latency_us: (0.0, 1e6);
        /// A flush.
        flush_ms: (0.0, 1000.0);
    }
    /// Solid state.
    SolidTier {
        /// Bytes it holds.
        gib: (1.0, 1e7);
        /// Rate of reads.
        read_mb_s: (1.0, 1e6);
        /// Rate of writes.
        write_mb_s: (1.0, 1e6);
        /// Small requests a second.
        iops: (1.0, 1e9);
        /// Of a read, overlapping.
        latency_read_us: (0.0, 1e6);
        /// Of a write, overlapping.
        latency_write_us: (0.0, 1e6);
        /// Commands beyond the queue.
        depth: (1.0, 65_536.0);
        /// A flush.
        flush_ms: (0.0, 1000.0);
    }
    /// Programs that reach all of it through one mount, on the cores of the servers: costs beside those of messages.
    Mount {
        /// Programs.
        programs: (1.0, 1024.0);
        /// CPU of a program for one write(2), kernel included.
        program_write_us: (0.0, 1e6);
        /// And for each of its bytes.
        program_write_byte_ns: (0.0, 1e3);
        /// CPU of a program for one read(2).
        program_read_us: (0.0, 1e6);
        /// And for each of its bytes.
        program_read_byte_ns: (0.0, 1e3);
        /// CPU of the mount for one write of the kernel, before the client has it.
        write_us: (0.0, 1e6);
        /// And for each of its bytes.
        write_byte_ns: (0.0, 1e3);
        /// Beside that for a small write, which the client sends with others.
        gather_us: (0.0, 1e6);
        /// And for each of its bytes.
        gather_byte_ns: (0.0, 1e3);
        /// CPU of the mount for one read of the kernel, when the client has its bytes.
        read_us: (0.0, 1e6);
        /// And for each of its bytes.
        read_byte_ns: (0.0, 1e3);
        /// Beside that for a small read, which the client finds in what it keeps.
        kept_us: (0.0, 1e6);
        /// And for each of its bytes.
        kept_byte_ns: (0.0, 1e3);
        /// From work for a thread that sleeps to its first instruction, on a processor that has nothing to do.
        wake_us: (0.0, 1e6);
        /// CPU of whoever wakes a thread there.
        wake_work_us: (0.0, 1e6);
    }
    /// The metadata server.
    Mds {
        /// Bytes of the MDT.
        mdt_gib: (1.0, 1e6);
        /// Rows that it keeps in memory.
        cache_mib: (1.0, 1e6);
    }
    /// What calls on names cost a client's machine beside their messages (system call, kernel, FUSE and our layer of it), and
    /// how many changes a client of the paper had under way.
    Names {
        /// CPU of a program that makes or takes away.
        change_program_us: (0.0, 1e6);
        /// CPU of the mount's thread for it.
        change_mount_us: (0.0, 1e6);
        /// CPU of a program that looks or opens.
        look_program_us: (0.0, 1e6);
        /// CPU of the mount's thread for it.
        look_mount_us: (0.0, 1e6);
        /// Changes and opens of a client at any time, in the paper's way.
        changes_in_flight: (1.0, 1024.0);
    }
    /// How the baseline was measured.
    Xdd {
        /// Part of the device that random requests go to.
        region: (0.0001, 1.0);
    }
    /// Where journals lie, and what another journal's transactions look like.
    JournalSection {
        /// Bytes of a journal.
        mib: (1.0, 65_536.0);
        /// How far data lie behind it, as a part of the device.
        distance: (0.0, 0.9);
        /// Metadata of a transaction.
        blocks_kib: (0.0, 65_536.0);
        /// Its commit record.
        record_kib: (0.0, 1024.0);
        /// Between transactions that nobody waits for.
        interval_s: (0.01, 3600.0);
    }
}

/// What an OST's bytes, or journals, lie on.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TierSection {
    /// With heads.
    Heads(Box<HeadsTier>),
    /// Without.
    Solid(Box<SolidTier>),
}

impl Param {
    /// As a whole number.
    pub fn count(&self) -> u32 {
        self.value as u32
    }

    /// Milliseconds.
    pub fn ms(&self) -> Duration {
        Duration::from_secs_f64(self.value / 1e3)
    }

    /// Microseconds.
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

    /// Rate of writes.
    pub(super) fn write_mb_s(&self) -> f64 {
        match self {
            Self::Heads(heads) => heads.mb_s.value,
            Self::Solid(solid) => solid.write_mb_s.value,
        }
    }

    /// Of a cache that takes writes at once.
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

    /// The model.
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
