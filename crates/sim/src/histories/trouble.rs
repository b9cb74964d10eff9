//! The faults while a history is recorded. None of them loses acknowledged changes.

use forebay_env::sim::{NodeId, Sim};

use crate::{
    Cluster, disks,
    faults::{clock_jump, kill_and_boot, random_ms, random_ost, random_server},
};

/// A kind of fault. The names appear in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// An OST gets SIGKILL and restarts.
    OstKilled,
    /// An OST loses power.
    OstPower,
    /// The MDT gets SIGKILL and restarts.
    MdtKilled,
    /// The MDT loses power.
    MdtPower,
    /// All servers lose power at once.
    AllPower,
    /// A server is stopped and continued.
    Paused,
    /// Connections between a client and a server break.
    Reset,
    /// A client and a server are partitioned for a while, in one direction or both.
    Cut,
    /// A client dies; the servers stay up.
    ClientKilled,
    /// A client is cut off from one server, or from all, for so long that it is evicted.
    ClientEvicted,
    /// A disk is slow for a while.
    SlowDisk,
    /// A disk completes nothing for seconds.
    StuckDisk,
    /// A server's clock jumps.
    ClockJump,
    /// A client's clock jumps.
    ClientClockJump,
}

use Trouble::{
    AllPower, ClientClockJump, ClientEvicted, ClientKilled, ClockJump, Cut, MdtKilled, MdtPower, OstKilled, OstPower,
    Paused, Reset, SlowDisk, StuckDisk,
};

/// The kinds to draw from; each occurs as often as it is listed.
const LOT: &[Trouble] = &[
    OstKilled,
    OstKilled,
    OstPower,
    MdtKilled,
    MdtKilled,
    MdtPower,
    AllPower,
    Paused,
    Reset,
    Reset,
    Cut,
    Cut,
    ClientKilled,
    ClientKilled,
    ClientEvicted,
    SlowDisk,
    StuckDisk,
    ClockJump,
    ClientClockJump,
];

impl Trouble {
    /// Draws a kind.
    pub fn draw(sim: &Sim) -> Self {
        LOT[sim.random_below(LOT.len() as u64) as usize]
    }

    /// Causes the fault and waits for its end. It hits servers, or the link between one and `client`. The caller
    /// handles the two kinds that end a client.
    pub async fn happen(self, cluster: &Cluster, client: NodeId) {
        let sim = &cluster.sim;
        let (ost, all) = (random_ost(cluster), 0..cluster.servers.len());
        let server = random_server(cluster);
        let any = cluster.servers[server].node;
        match self {
            OstKilled => kill_and_boot(cluster, ost..ost + 1, false).await,
            OstPower => kill_and_boot(cluster, ost..ost + 1, true).await,
            MdtKilled => kill_and_boot(cluster, 0..1, false).await,
            MdtPower => kill_and_boot(cluster, 0..1, true).await,
            AllPower => kill_and_boot(cluster, all, true).await,
            Paused => {
                sim.pause(any);
                sim.sleep(random_ms(cluster, 2000)).await;
                sim.resume(any);
            }
            Reset if cluster.servers[server].second.is_some() && sim.chance(0.5) => {
                sim.reset_one_connection(client, any)
            }
            Reset => sim.reset_connections(client, any),
            Cut => {
                match sim.random_below(3) {
                    0 => sim.cut(client, any),
                    1 => sim.cut(any, client),
                    _ => sim.cut_both(client, any),
                }
                sim.sleep(random_ms(cluster, 3000)).await;
                sim.heal(client, any);
            }
            SlowDisk => disks::slow(cluster, server).await,
            StuckDisk => disks::stuck(cluster, server).await,
            ClockJump => clock_jump(cluster, any),
            ClientClockJump => clock_jump(cluster, client),
            ClientKilled | ClientEvicted => {}
        }
    }
}
