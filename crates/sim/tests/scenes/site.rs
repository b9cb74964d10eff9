//! A simulated cluster with an authority, and machines with keys.

use std::{sync::Arc, time::Duration};

use forebay_client::{Client, CommitLevel};
use forebay_env::{
    Network,
    sim::{NodeId, Sim},
};
use forebay_keys::{Authority, Keys, NodeKey, Role};
use forebay_proto::{Errno, ErrorReply, Uuid, message::*};
use forebay_rpc::RpcError;
use forebay_sim::{Cluster, ClusterOptions, tls};

const UUID: Uuid = Uuid([1; 16]);

/// A cluster whose MGS takes hosts that join.
pub struct Site {
    pub sim: Sim,
    pub cluster: Cluster,
    pub authority: Arc<Authority>,
}

impl Site {
    pub async fn of(sim: &Sim) -> Self {
        Self::with(sim, ClusterOptions::default()).await
    }

    pub async fn with(sim: &Sim, options: ClusterOptions) -> Self {
        let cluster = Cluster::format(sim, ClusterOptions { osts: 2, ..options }).await;
        let authority = Arc::new(Authority::make(UUID).expect("an authority"));
        cluster.set_authority(authority.clone());
        let site = Self { sim: sim.clone(), cluster, authority };
        (0..3).for_each(|number| site.boot(number));
        site
    }

    /// Starts a server as a new process: it knows nothing of bans.
    pub fn boot(&self, number: usize) {
        let role = if number == 0 { Role::Mds } else { Role::Ost };
        self.give(self.cluster.servers[number].node, role, &format!("server{number}"));
        self.cluster.boot(number);
    }

    pub fn give(&self, node: NodeId, role: Role, name: &str) {
        let keys = tls::keys_of(&self.authority, role, name).expect("keys");
        self.sim.set_network(node, Network::Keys(Arc::new(keys)));
    }

    pub fn node(&self, role: Role, name: &str) -> NodeId {
        let node = self.sim.add_node(name);
        self.give(node, role, name);
        node
    }

    pub async fn ask<O: Operation>(&self, node: NodeId, request: &O) -> Result<O::Reply, ErrorReply> {
        let addresses = [self.cluster.servers[0].address.clone()];
        loop {
            match forebay_rpc::ask(&self.sim.env(node), &addresses, request).await {
                Ok(reply) => return Ok(reply),
                Err(RpcError::Reply(error)) if error.errno == Errno::RECOVERING => {}
                Err(RpcError::Reply(error)) => return Err(error),
                Err(RpcError::Protocol(words)) => return Err(ErrorReply::new(Errno::EPROTO, words)),
                Err(_) => {}
            }
            self.sim.sleep(Duration::from_millis(100)).await;
        }
    }

    pub async fn token(&self, admin: NodeId, role: &str, tenant: &str) -> NewTokenReply {
        let request = NewToken { role: role.into(), ttl_s: 3600, tenant: tenant.into() };
        self.ask(admin, &request).await.expect("a token")
    }

    /// A machine that knows a token, and has no certificate.
    pub fn newcomer(&self, name: &str, token: &NewTokenReply) -> NodeId {
        let node = self.sim.add_node(name);
        let key = forebay_keys::PublicKey(token.authority[..].try_into().expect("a key"));
        let keys = Keys::to_join(token.cluster, &key).expect("keys");
        self.sim.set_network(node, Network::Keys(Arc::new(keys)));
        node
    }

    pub fn join_request(&self, node: NodeId, name: &str, token: &NewTokenReply, key: &NodeKey) -> Join {
        let (secret, key) = (token.secret.clone(), key.public_key().to_vec().into());
        Join { secret, name: name.into(), key, osts: 1, unix_ns: self.sim.env(node).unix_time().0 }
    }

    pub async fn mount(&self, node: NodeId) -> Client {
        let mount = self.cluster.mount(node, CommitLevel::Data);
        let mounted = self.sim.env(node).timeout(Duration::from_secs(20), mount).await;
        mounted.expect("it mounts in time").expect("it mounts")
    }

    /// A machine that has joined as a client of this tenant.
    pub async fn join_for(&self, admin: NodeId, tenant: &str, name: &str) -> NodeId {
        let token = self.token(admin, "client", tenant).await;
        let node = self.newcomer(name, &token);
        let key = NodeKey::make().expect("a key");
        let request = Join { osts: 0, ..self.join_request(node, name, &token, &key) };
        let joined = self.ask(node, &request).await.expect("it joins");
        let (root, own) = (joined.authority.to_vec().into(), joined.certificate.to_vec().into());
        let keys = Keys::new(&root, own, &key).expect("keys");
        self.sim.set_network(node, Network::Keys(Arc::new(keys)));
        node
    }
}
