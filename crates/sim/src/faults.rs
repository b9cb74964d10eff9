//! The kinds of faults of a run, drawn from the seed, and how they are caused.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use forebay_env::sim::NodeId;

use crate::{cluster::Cluster, setup::Setup};

/// How long a client is cut off at most while servers recover. It misses a recovery that lasts longer only by chance.
const MISSED: Duration = Duration::from_secs(10);

/// A kind of fault. The names appear in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An OST gets SIGKILL and restarts.
    OstKilled,
    /// An OST loses power: unflushed data is lost or torn.
    OstPower,
    /// The MDT gets SIGKILL and restarts.
    MdtKilled,
    /// The MDT loses power.
    MdtPower,
    /// All servers lose power at once.
    AllPower,
    /// A server is stopped and continued.
    Paused,
    /// Connections between a client and a server break: replies are lost, requests are resent.
    Reset,
    /// A client and a server are partitioned for a while, in one direction or both.
    Cut,
    /// A link has a high latency for a while.
    LinkFar,
    /// A link loses frames.
    LinkLossy,
    /// A link has a low bandwidth for a while.
    LinkNarrow,
    /// A client dies; the servers stay up.
    ClientKilled,
    /// A client and servers die together.
    ClientAndServers,
    /// Servers die and restart while a client is cut off from them, so it misses their recovery.
    MissedRecovery,
    /// A sync of an OST's data fails: the target stops and an operator restarts it.
    OstSyncFails,
    /// The same on the MDT.
    MdtSyncFails,
    /// A sync of an OST's journal fails.
    OstJournalFails,
    /// The same on the MDT.
    MdtJournalFails,
    /// A range of an OST's data device becomes unwritable.
    OstWriteEio,
    /// The same on the MDT.
    MdtWriteEio,
    /// A part of an OST's data device cannot be read for a while.
    OstReadEio,
    /// The same on the MDT.
    MdtReadEio,
    /// File bytes rot on an OST.
    OstRots,
    /// An OST's device acknowledges a write of file bytes and loses it.
    OstLosesWrite,
    /// An OST's device writes file bytes over other file bytes.
    OstMisdirects,
    /// A disk is slow for a while.
    SlowDisk,
    /// A disk completes nothing for seconds.
    StuckDisk,
    /// A server's clock jumps.
    ClockJump,
    /// A client's clock jumps.
    ClientClockJump,
    /// One copy of a mirrored MDT dies; or the operator replaces the dead one.
    CopyDies,
    /// One copy dies, and the MDT loses power at the same moment.
    CopyDiesWithMdt,
    /// Bytes of one copy rot.
    CopyRots,
    /// A part of one copy cannot be read for a while.
    CopyReadEio,
    /// A sync of one copy fails.
    CopySyncFails,
    /// One copy is slow, or stuck for a long time.
    CopyLags,
}

/// The victims of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Befalls {
    /// An OST.
    Ost,
    /// The MDT.
    Mdt,
    /// Any server.
    Any,
    /// All servers; or a client, in a way that all servers notice.
    All,
    /// The two ends of a link.
    Link,
    /// A client, and servers that die with it or without it.
    ClientAndServers,
    /// A client, without any server noticing.
    Client,
}

impl Kind {
    /// The victims of this kind.
    pub fn befalls(self) -> Befalls {
        match self {
            Kind::OstKilled
            | Kind::OstPower
            | Kind::OstSyncFails
            | Kind::OstJournalFails
            | Kind::OstWriteEio
            | Kind::OstReadEio
            | Kind::OstRots
            | Kind::OstLosesWrite
            | Kind::OstMisdirects => Befalls::Ost,
            Kind::Paused | Kind::Reset | Kind::Cut | Kind::SlowDisk | Kind::StuckDisk | Kind::ClockJump => Befalls::Any,
            Kind::AllPower | Kind::ClientKilled => Befalls::All,
            Kind::LinkFar | Kind::LinkLossy | Kind::LinkNarrow => Befalls::Link,
            Kind::ClientAndServers | Kind::MissedRecovery => Befalls::ClientAndServers,
            Kind::ClientClockJump => Befalls::Client,
            _ => Befalls::Mdt,
        }
    }

    /// True for a device failure.
    pub fn is_of_devices(self) -> bool {
        MEDIUM.contains(&self) || ROT.contains(&self)
    }

    /// True for a kind that occurs only in a small part of the runs.
    pub fn is_of_few_runs(self) -> bool {
        ROT.contains(&self) || EVICTIONS.contains(&self)
    }

    /// True if the fault affects one client and not all.
    pub fn is_of_one_client(self) -> bool {
        matches!(
            self,
            Kind::Reset
                | Kind::Cut
                | Kind::ClientKilled
                | Kind::MissedRecovery
                | Kind::ClientAndServers
                | Kind::ClientClockJump
        )
    }
}

/// The kinds that occur in every run.
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
    Kind::LinkFar,
    Kind::LinkLossy,
    Kind::LinkNarrow,
    Kind::ClientKilled,
    Kind::ClientAndServers,
    Kind::SlowDisk,
    Kind::StuckDisk,
    Kind::ClockJump,
    Kind::ClientClockJump,
];

/// Additional kinds in runs with failing devices.
const MEDIUM: &[Kind] = &[
    Kind::OstSyncFails,
    Kind::MdtSyncFails,
    Kind::OstJournalFails,
    Kind::MdtJournalFails,
    Kind::OstWriteEio,
    Kind::MdtWriteEio,
    Kind::OstReadEio,
    Kind::MdtReadEio,
];

/// Additional kinds in runs with devices that corrupt data.
const ROT: &[Kind] = &[Kind::OstRots, Kind::OstLosesWrite, Kind::OstMisdirects];

/// Additional kinds in runs with a short recovery window.
const EVICTIONS: &[Kind] = &[Kind::MissedRecovery; 3];

/// Additional kinds in runs with a mirrored MDT.
const MIRROR: &[Kind] = &[
    Kind::CopyDies,
    Kind::CopyDies,
    Kind::CopyDies,
    Kind::CopyDiesWithMdt,
    Kind::CopyRots,
    Kind::CopyRots,
    Kind::CopyReadEio,
    Kind::CopySyncFails,
    Kind::CopyLags,
    Kind::MdtKilled,
    Kind::MdtPower,
];

/// All kinds of runs without a mirrored MDT.
pub fn kinds() -> BTreeSet<Kind> {
    [USUAL, MEDIUM, ROT, EVICTIONS].concat().into_iter().collect()
}

/// Draws one of the kinds that occur in every run.
pub fn draw_usual(cluster: &Cluster) -> Kind {
    USUAL[cluster.sim.random_below(USUAL.len() as u64) as usize]
}

/// Draws one of the kinds of this run.
pub fn draw(cluster: &Cluster, setup: &Setup) -> Kind {
    let more = match cluster.options.mdt_mirror {
        true => MIRROR,
        false if setup.failing => MEDIUM,
        false if setup.rotting => ROT,
        false if setup.evicting => EVICTIONS,
        false => &[],
    };
    let which = cluster.sim.random_below((USUAL.len() + more.len()) as u64) as usize;
    USUAL.get(which).copied().unwrap_or_else(|| more[which - USUAL.len()])
}

/// A random OST, as a server number: the MDT is server 0.
pub fn random_ost(cluster: &Cluster) -> usize {
    1 + cluster.sim.random_below(u64::from(cluster.options.osts)) as usize
}

/// A random server.
pub fn random_server(cluster: &Cluster) -> usize {
    cluster.sim.random_below(cluster.servers.len() as u64) as usize
}

/// Kills servers, by SIGKILL or power loss, waits a little and restarts them.
pub async fn kill_and_boot(cluster: &Cluster, servers: Range<usize>, power: bool) {
    cluster.deaths.set(cluster.deaths.get() + 1);
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

/// Kills servers and restarts them. A client is cut off from them until they serve, and a little longer.
pub async fn miss_recovery(cluster: &Cluster, client: NodeId, servers: Range<usize>) {
    let sim = &cluster.sim;
    let nodes = || cluster.servers[servers.clone()].iter().map(|server| server.node);
    nodes().for_each(|node| sim.cut_both(client, node));
    kill_and_boot(cluster, servers.clone(), sim.chance(0.5)).await;
    let end = sim.now() + MISSED;
    while sim.now() < end && !servers.clone().all(|server| cluster.serves(server)) {
        sim.sleep(Duration::from_millis(10)).await;
    }
    sim.sleep(random_ms(cluster, 500)).await;
    nodes().for_each(|node| sim.heal(client, node));
}

/// Moves a machine's clock by up to an hour, forward or back; in a quarter of the cases by up to ten years.
pub fn clock_jump(cluster: &Cluster, node: NodeId) {
    let hours = if cluster.sim.chance(0.25) { 20 * 365 * 24 } else { 2 };
    let seconds = cluster.sim.random_below(hours * 3600) as i64 - hours as i64 * 1800;
    cluster.sim.clock_jump(node, seconds * 1_000_000_000);
}

/// A random time below `most` milliseconds.
pub fn random_ms(cluster: &Cluster, most: u64) -> Duration {
    Duration::from_micros(cluster.sim.random_below(most * 1000))
}

/// How often each kind happened.
pub type Counts = BTreeMap<Kind, u64>;
