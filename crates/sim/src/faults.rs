//! What goes wrong in a run, drawn from the seed.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use forebay_env::sim::Fault;

use crate::cluster::{Cluster, STORE_DIR};

/// One kind of fault; the names stand in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SIGKILL of an OST, and its return.
    OstKilled,
    /// An OST loses power: what was not flushed is lost or torn.
    OstPower,
    /// SIGKILL of the MDT, and its return.
    MdtKilled,
    /// The MDT loses power.
    MdtPower,
    /// All servers lose power at once.
    AllPower,
    /// A server is stopped and continued.
    Paused,
    /// Streams between a client and a server break: replies are lost, requests resent.
    Reset,
    /// Nothing passes between a client and a server for a while, one way or both.
    Cut,
    /// A client dies; servers live.
    ClientKilled,
    /// A client and servers die together.
    ClientAndServers,
    /// A flush of an OST fails: the target stops; an operator restarts it.
    FlushFails,
    /// A stretch of an OST's data device cannot be written any more.
    WriteEio,
    /// Disks are slow for a while.
    SlowDisk,
    /// Clocks jump.
    ClockJump,
}

/// Kinds of every run.
const USUAL: &[Kind] = &[
    Kind::OstKilled,
    Kind::OstKilled,
    Kind::OstPower,
    Kind::OstPower,
    Kind::MdtKilled,
    Kind::MdtKilled,
    Kind::MdtPower,
    Kind::MdtPower,
    Kind::AllPower,
    Kind::Paused,
    Kind::Reset,
    Kind::Reset,
    Kind::Cut,
    Kind::ClientKilled,
    Kind::ClientAndServers,
    Kind::SlowDisk,
    Kind::ClockJump,
];

/// Kinds of runs on devices that fail, besides.
const MEDIUM: &[Kind] = &[Kind::FlushFails, Kind::WriteEio];

/// Draws a fault.
pub fn draw(cluster: &Cluster, medium: bool) -> Kind {
    let count = USUAL.len() + if medium { MEDIUM.len() * 2 } else { 0 };
    let which = cluster.sim.random_below(count as u64) as usize;
    USUAL.get(which).copied().unwrap_or_else(|| MEDIUM[(which - USUAL.len()) % MEDIUM.len()])
}

/// A server's number: the MDT is 0.
pub fn random_ost(cluster: &Cluster) -> usize {
    1 + cluster.sim.random_below(u64::from(cluster.options.osts)) as usize
}

/// Any server.
pub fn random_server(cluster: &Cluster) -> usize {
    cluster.sim.random_below(cluster.servers.len() as u64) as usize
}

/// Kills servers, waits a little, starts them again.
pub async fn kill_and_boot(cluster: &Cluster, servers: Range<usize>, power: bool) {
    for server in &cluster.servers[servers.clone()] {
        if power {
            cluster.sim.power_cut(server.node);
        } else {
            cluster.sim.crash(server.node);
        }
    }
    cluster.sim.sleep(random_ms(cluster, 400)).await;
    for server in servers {
        if !cluster.sim.is_running(cluster.servers[server].node) {
            cluster.boot(server);
        }
    }
}

/// Up to this many milliseconds.
pub fn random_ms(cluster: &Cluster, most: u64) -> Duration {
    Duration::from_micros(cluster.sim.random_below(most * 1000))
}

/// The data disk of a server.
pub fn data_path() -> String {
    format!("{STORE_DIR}/data")
}

/// A stretch of a few slabs of an OST's data that cannot be written any more.
pub fn bad_stretch(cluster: &Cluster, server: usize) -> Fault {
    let slab = cluster.options.slab_bytes;
    let slabs = cluster.options.ost_bytes / slab;
    let first = 2 + cluster.sim.random_below(slabs - 4);
    let _ = server;
    let start = first * slab + 4096 * cluster.sim.random_below(slab / 4096);
    Fault::WriteEio { range: start..start + slab / 2 }
}

/// How often each kind happened.
pub type Counts = BTreeMap<Kind, u64>;
