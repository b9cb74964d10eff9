//! Links that degrade for a while.

use std::time::Duration;

use forebay_env::sim::{Link, NodeId};

use crate::{
    Cluster,
    faults::{random_ms, random_ost, random_server},
};

/// How a link degrades.
#[derive(Clone, Copy, Debug)]
pub enum Worse {
    /// High latency: 1 to 150 ms each way.
    Far,
    /// Frames are lost and retransmitted.
    Lossy,
    /// Low bandwidth: 50 kB to 5 MB a second.
    Narrow,
}

/// Degrades the link between two machines for up to three seconds.
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

/// The ends of a link: a client and a server, or two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The chosen client, and a server.
    Client(usize),
    /// The MDT and an OST: no other servers communicate.
    Servers(usize),
}

impl Ends {
    /// Draws a link.
    pub fn draw(cluster: &Cluster) -> Self {
        if cluster.sim.chance(0.3) { Self::Servers(random_ost(cluster)) } else { Self::Client(random_server(cluster)) }
    }

    /// A link of the same kind that ends at `server`.
    pub fn at(self, server: usize) -> Self {
        match self {
            Self::Client(_) => Self::Client(server),
            // The MDT is an end of every such link.
            Self::Servers(ost) => Self::Servers(if server > 0 { server } else { ost }),
        }
    }

    /// The servers at its ends.
    pub fn servers(self) -> Vec<usize> {
        match self {
            Self::Client(server) => vec![server],
            Self::Servers(ost) => vec![0, ost],
        }
    }

    /// The machines at its ends.
    pub fn nodes(self, cluster: &Cluster, client: NodeId) -> (NodeId, NodeId) {
        match self {
            Self::Client(server) => (client, cluster.servers[server].node),
            Self::Servers(ost) => (cluster.servers[0].node, cluster.servers[ost].node),
        }
    }
}
