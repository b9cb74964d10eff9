//! What goes wrong in a run, drawn from the seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use forebay_env::sim::NodeId;

use crate::{cluster::Cluster, setup::Setup};

/// A client misses a recovery that lasts longer than this only by chance.
const MISSED: Duration = Duration::from_secs(10);

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
    /// A link is long for a while.
    LinkFar,
    /// A link loses frames.
    LinkLossy,
    /// A link lets little pass.
    LinkNarrow,
    /// A client dies; servers live.
    ClientKilled,
    /// A client and servers die together.
    ClientAndServers,
    /// Servers die and come back while a client hears nothing of them: it misses their recovery.
    MissedRecovery,
    /// A sync of an OST's data fails: the target stops; an operator restarts it.
    OstSyncFails,
    /// The same of the MDT.
    MdtSyncFails,
    /// A sync of an OST's journal fails.
    OstJournalFails,
    /// The same of the MDT.
    MdtJournalFails,
    /// A stretch of an OST's data device cannot be written any more.
    OstWriteEio,
    /// The same of the MDT.
    MdtWriteEio,
    /// A part of an OST's data device cannot be read for a while.
    OstReadEio,
    /// The same of the MDT.
    MdtReadEio,
    /// Bytes of files rot on an OST.
    OstRots,
    /// An OST's device acknowledges a write of such and forgets it.
    OstLosesWrite,
    /// It stores one where others lie.
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
    /// The same, and the MDT loses power at that moment.
    CopyDiesWithMdt,
    /// Bytes of one copy rot.
    CopyRots,
    /// A part of one copy cannot be read for a while.
    CopyReadEio,
    /// A sync of one copy fails.
    CopySyncFails,
    /// One copy is slow, or stuck for long.
    CopyLags,
}

/// Whom a fault befalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Befalls {
    /// An OST.
    Ost,
    /// The MDT.
    Mdt,
    /// Any server.
    Any,
    /// All servers; or a client, which all of them notice.
    All,
    /// The ends of a link.
    Link,
    /// A client, and servers that die with it, or without it.
    ClientAndServers,
    /// A client, and no server notices.
    Client,
}

impl Kind {
    /// See [`Befalls`].
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

    /// A device fails.
    pub fn is_of_devices(self) -> bool {
        MEDIUM.contains(&self) || ROT.contains(&self)
    }

    /// It comes only in runs of which there are few.
    pub fn is_of_few_runs(self) -> bool {
        ROT.contains(&self) || EVICTIONS.contains(&self)
    }

    /// It befalls one client, and not all.
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

/// Kinds of runs on devices that fail, besides.
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

/// Kinds of runs on devices that lie, besides.
const ROT: &[Kind] = &[Kind::OstRots, Kind::OstLosesWrite, Kind::OstMisdirects];

/// Kinds of runs with a short recovery window, besides.
const EVICTIONS: &[Kind] = &[Kind::MissedRecovery; 3];

/// Kinds of runs with an MDT on two devices, besides.
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

/// All kinds of runs whose MDT is kept once.
pub fn kinds() -> BTreeSet<Kind> {
    [USUAL, MEDIUM, ROT, EVICTIONS].concat().into_iter().collect()
}

/// Draws a fault that comes in every run.
pub fn draw_usual(cluster: &Cluster) -> Kind {
    USUAL[cluster.sim.random_below(USUAL.len() as u64) as usize]
}

/// Draws a fault.
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

/// Kills servers and starts them again; until they serve, and a little longer, a client hears nothing of them.
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

/// A machine's clock is up to an hour earlier or later from now on; in every fourth case up to ten years.
pub fn clock_jump(cluster: &Cluster, node: NodeId) {
    let hours = if cluster.sim.chance(0.25) { 20 * 365 * 24 } else { 2 };
    let seconds = cluster.sim.random_below(hours * 3600) as i64 - hours as i64 * 1800;
    cluster.sim.clock_jump(node, seconds * 1_000_000_000);
}

/// Up to this many milliseconds.
pub fn random_ms(cluster: &Cluster, most: u64) -> Duration {
    Duration::from_micros(cluster.sim.random_below(most * 1000))
}

/// How often each kind happened.
pub type Counts = BTreeMap<Kind, u64>;
