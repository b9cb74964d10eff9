//! How the disks of a run are: usual, failing, or too small.

use std::time::Duration;

use forebay_client::CommitLevel;
use forebay_env::sim::{DiskModel, Sim};
use forebay_proto::TargetKind;

use crate::{
    cluster::{Cluster, ClusterOptions},
    disks::data_path,
    stop::Excuses,
};

/// See [`slow_down`].
const SLOW_WRITE: Duration = Duration::from_millis(15);

/// As `forebay up` has it, for all clients are there at once or never.
const SHORT_WINDOW: Duration = Duration::from_secs(2);

/// Slabs of an OST that is too small.
const SMALL_OST_SLABS: u64 = 22;

/// Drawn from the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Disks fail.
    pub failing: bool,
    /// Bytes of files rot where they lie on OSTs, writes are lost, or go elsewhere.
    pub rotting: bool,
    /// Targets wait so short after a restart that a client may miss it.
    pub evicting: bool,
    /// OSTs are too small for their files.
    pub small_osts: bool,
    /// The MDT is too small for its attributes.
    pub small_mdt: bool,
    /// Journals are as small as will do.
    pub small_journals: bool,
    /// The data of OSTs is on devices that take their time: much is under way when something happens.
    pub slow_osts: bool,
}

impl Setup {
    /// Of a run.
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

    /// What servers may answer.
    pub fn excuses(&self) -> Excuses {
        Excuses { eio: self.failing, evicted: self.evicting, full: self.small_osts || self.small_mdt }
    }

    /// Clients keep nothing back: what was acknowledged is with the servers, whoever dies.
    pub fn writes_through(&self, sim: &Sim) -> bool {
        self.failing || self.small_osts || self.small_mdt || self.small_journals || sim.seed().is_multiple_of(3)
    }

    /// The cluster.
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

/// Has the OSTs' data on devices that take as long for a write as a disk that has to seek.
pub fn slow_down(cluster: &Cluster) {
    let model = DiskModel { latency_write: SLOW_WRITE, ..DiskModel::default() };
    for server in cluster.servers.iter().filter(|server| server.target.kind == TargetKind::Ost) {
        cluster.sim.set_disk_model(server.node, &data_path(), model);
    }
}

/// The commit level of a client.
pub fn draw_level(sim: &Sim) -> CommitLevel {
    match sim.random_below(4) {
        0 => CommitLevel::Commit,
        1 => CommitLevel::Memory,
        _ => CommitLevel::Data,
    }
}
