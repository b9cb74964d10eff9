//! The disks of a run: normal, failing, or too small.

use std::time::Duration;

use forebay_client::CommitLevel;
use forebay_env::sim::{DiskModel, Sim};
use forebay_proto::TargetKind;

use crate::{
    cluster::{Cluster, ClusterOptions, data_path},
    stop::Excuses,
};

/// Write latency of the devices in [`slow_down`].
const SLOW_WRITE: Duration = Duration::from_millis(15);

/// As in `forebay up`: either all clients are there at once, or none will come.
const SHORT_WINDOW: Duration = Duration::from_secs(2);

/// Number of slabs of an OST that is too small.
const SMALL_OST_SLABS: u64 = 22;

/// The properties of a run, drawn from the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Devices fail.
    pub failing: bool,
    /// File bytes on OSTs rot, and writes are lost or misdirected.
    pub rotting: bool,
    /// The recovery window is so short that a client may miss it.
    pub evicting: bool,
    /// OSTs are too small for their files.
    pub small_osts: bool,
    /// The MDT is too small for its attributes.
    pub small_mdt: bool,
    /// Journals have the smallest size that works.
    pub small_journals: bool,
    /// The OSTs' data devices are slow, so that much is in flight when a fault comes.
    pub slow_osts: bool,
}

impl Setup {
    /// Draws the setup of a run.
    pub fn draw(sim: &Sim, small_metadata: bool) -> Self {
        let failing = sim.chance(0.3);
        let small = !failing && sim.chance(0.5);
        let part = || small && sim.chance(0.5);
        let (small_osts, small_mdt, small_journals) = (part(), part(), part() || failing && sim.chance(0.3));
        let (small_mdt, small_journals) = (small_mdt && small_metadata, small_journals && small_metadata);
        let rotting = !failing && !small && sim.chance(0.4);
        let evicting = !failing && !small && !rotting && sim.chance(0.4);
        Self { failing, rotting, evicting, small_osts, small_mdt, small_journals, slow_osts: sim.chance(0.3) }
    }

    /// The errors that servers may return.
    pub fn excuses(&self) -> Excuses {
        Excuses { eio: self.failing, evicted: self.evicting, full: self.small_osts || self.small_mdt }
    }

    /// True if clients buffer no writes: then the servers have everything that was acknowledged, whichever client dies.
    pub fn writes_through(&self, sim: &Sim) -> bool {
        self.failing || self.small_osts || self.small_mdt || self.small_journals || sim.seed().is_multiple_of(3)
    }

    /// The options of the cluster.
    pub fn options(&self, sim: &Sim) -> ClusterOptions {
        let mut options = ClusterOptions::default();
        if self.writes_through(sim) {
            options.write_back_bytes = 0;
        }
        if self.evicting {
            options.recovery_window = SHORT_WINDOW;
        }
        if self.small_osts {
            (options.ost_bytes, options.slab_bytes) = (SMALL_OST_SLABS * (256 << 10), 256 << 10);
        }
        if self.small_mdt {
            (options.mdt_bytes, options.mdt_slab_bytes) = (17 * (256 << 10), 256 << 10);
        }
        if self.small_journals {
            options.journal_bytes = 256 << 10;
        }
        if self.failing && sim.chance(0.5) {
            options.mdt_cache_bytes = Some(256 << 10);
        }
        options
    }
}

/// Makes a write to an OST's data device take as long as on a disk that has to seek.
pub fn slow_down(cluster: &Cluster) {
    let model = DiskModel { latency_write: SLOW_WRITE, ..DiskModel::default() };
    for server in cluster.servers.iter().filter(|server| server.target.kind == TargetKind::Ost) {
        cluster.sim.set_disk_model(server.node, &data_path(), model);
    }
}

/// Draws the commit level of a client.
pub fn draw_level(sim: &Sim) -> CommitLevel {
    match sim.random_below(4) {
        0 => CommitLevel::Commit,
        1 => CommitLevel::Memory,
        _ => CommitLevel::Data,
    }
}
