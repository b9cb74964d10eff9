//! Links that are worse than usual for a while.

use std::time::Duration;

use forebay_env::sim::{Link, NodeId};

use crate::{Cluster, faults::random_ms};

/// How a link is worse.
#[derive(Clone, Copy, Debug)]
pub enum Worse {
    /// Far away: 1 to 150 ms each way.
    Far,
    /// Frames are lost and sent again.
    Lossy,
    /// Little passes: 50 kB to 5 MB a second.
    Narrow,
}

/// Makes the link between two machines worse for up to three seconds.
pub async fn worsen(cluster: &Cluster, (a, b): (NodeId, NodeId), how: Worse) {
    let sim = &cluster.sim;
    let link = match how {
        Worse::Far => Link {
            latency: Duration::from_millis(1 + sim.random_below(150)),
            jitter: random_ms(cluster, 30),
            ..Link::default()
        },
        Worse::Lossy => Link { loss: 0.02 + sim.random_below(30) as f64 / 100.0, ..Link::default() },
        Worse::Narrow => Link { bytes_per_s: Some(50_000 + sim.random_below(5_000_000)), ..Link::default() },
    };
    sim.set_link(a, b, link);
    sim.sleep(random_ms(cluster, 3000)).await;
    sim.set_link(a, b, Link::default());
}

/// A client's link to a server, or one between two servers.
pub fn random_pair(cluster: &Cluster, client: NodeId) -> (NodeId, NodeId) {
    let servers = &cluster.servers;
    if cluster.sim.chance(0.3) {
        // Servers speak to each other only where one is the MDT.
        let ost = 1 + cluster.sim.random_below(servers.len() as u64 - 1) as usize;
        return (servers[0].node, servers[ost].node);
    }
    (client, servers[cluster.sim.random_below(servers.len() as u64) as usize].node)
}
