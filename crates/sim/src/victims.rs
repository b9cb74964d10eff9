//! The victims of a fault. They are drawn before the fault comes, so that the states it meets are recorded for them
//! alone.

use std::ops::Range;

use crate::{
    Cluster,
    faults::{Befalls, Kind, random_ost, random_server},
    links::Ends,
};

/// The victims of a fault, as far as its kind leaves a choice. Servers are given by number: the MDT is server 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victims {
    /// An OST.
    pub ost: usize,
    /// Any server.
    pub any: usize,
    /// A client.
    pub client: usize,
    /// A link.
    pub link: Ends,
    /// The servers that die with the client: the MDT, an OST, or all.
    pub with_client: Range<usize>,
}

impl Victims {
    /// Draws victims at random.
    pub fn draw(cluster: &Cluster, clients: usize) -> Self {
        let (ost, any) = (random_ost(cluster), random_server(cluster));
        let client = cluster.sim.random_below(clients as u64) as usize;
        let with_client = match cluster.sim.random_below(3) {
            0 => 0..1,
            1 => ost..ost + 1,
            _ => 0..cluster.servers.len(),
        };
        Self { ost, any, client, link: Ends::draw(cluster), with_client }
    }

    /// The servers that a fault of this kind could hit.
    pub fn candidates(kind: Kind, cluster: &Cluster) -> Range<usize> {
        match kind.befalls() {
            Befalls::Ost => 1..cluster.servers.len(),
            Befalls::Mdt => 0..1,
            Befalls::Client => 0..0,
            Befalls::Any | Befalls::All | Befalls::Link | Befalls::ClientAndServers => 0..cluster.servers.len(),
        }
    }

    /// Makes this server a victim.
    pub fn include(&mut self, server: usize) {
        self.any = server;
        self.ost = if server > 0 { server } else { self.ost };
        self.link = self.link.at(server);
        if !self.with_client.contains(&server) {
            self.with_client = server..server + 1;
        }
    }

    /// The servers that a fault of this kind hits.
    pub fn servers(&self, kind: Kind, cluster: &Cluster) -> Vec<usize> {
        match kind.befalls() {
            Befalls::Ost => vec![self.ost],
            Befalls::Mdt => vec![0],
            Befalls::Any => vec![self.any],
            Befalls::All => (0..cluster.servers.len()).collect(),
            Befalls::Link => self.link.servers(),
            Befalls::ClientAndServers => self.with_client.clone().collect(),
            Befalls::Client => Vec::new(),
        }
    }

    /// True if the fault hits this client, or the client may notice it.
    pub fn concern_client(&self, kind: Kind, client: usize) -> bool {
        let of_one = kind.is_of_one_client() || kind.befalls() == Befalls::Link && matches!(self.link, Ends::Client(_));
        !of_one || client == self.client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn victims() -> Victims {
        Victims { ost: 2, any: 3, client: 1, link: Ends::Client(0), with_client: 0..1 }
    }

    #[test]
    fn an_included_server_is_a_victim_of_every_kind_of_fault_that_applies() {
        for link in [Ends::Client(1), Ends::Servers(2)] {
            for server in 0..4 {
                let mut victims = Victims { link, ..victims() };
                victims.include(server);
                assert!(victims.any == server && victims.link.servers().contains(&server));
                assert!(victims.with_client.contains(&server) && (server == 0 || victims.ost == server));
            }
        }
    }

    #[test]
    fn a_link_between_servers_is_of_no_client_in_particular() {
        let one = victims();
        let between = Victims { link: Ends::Servers(3), ..victims() };
        assert!(!one.concern_client(Kind::LinkFar, 0) && one.concern_client(Kind::LinkFar, 1));
        assert!(between.concern_client(Kind::LinkFar, 0));
        assert!(one.concern_client(Kind::MdtKilled, 0) && !one.concern_client(Kind::Cut, 0));
    }
}
