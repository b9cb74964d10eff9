//! What goes wrong while a history is made: nothing that loses what was acknowledged.

use forebay_env::sim::{NodeId, Sim};

use crate::{
    Cluster, disks,
    faults::{clock_jump, kill_and_boot, random_ms, random_ost, random_server},
};

/// One kind of it; the names stand in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// SIGKILL of an OST, and its return.
    OstKilled,
    /// An OST loses power.
    OstPower,
    /// SIGKILL of the MDT, and its return.
    MdtKilled,
    /// The MDT loses power.
    MdtPower,
    /// All servers lose power at once.
    AllPower,
    /// A server is stopped and continued.
    Paused,
    /// Streams between a client and a server break.
    Reset,
    /// Nothing passes between a client and a server for a while, one way or both.
    Cut,
    /// A client dies; servers live.
    ClientKilled,
    /// A client hears nothing of a server, or of all, for so long that it is given up.
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

/// How often each comes.
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
    /// Draws one.
    pub fn draw(sim: &Sim) -> Self {
        LOT[sim.random_below(LOT.len() as u64) as usize]
    }

    /// Lets it happen, to its end: at servers, or between one and `client`. Who runs the clients sees to theirs.
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
