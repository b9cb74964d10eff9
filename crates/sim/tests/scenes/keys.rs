//! Clusters whose connections need keys, and nodes without the right ones.

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_client::{Client, ClientResult, CommitLevel, LayoutSpec, OpenMode};
use forebay_env::{
    Network,
    sim::{NodeId, Sim},
};
use forebay_keys::{Authority, Role};
use forebay_proto::{Fid, Uuid};
use forebay_rpc::{ClientSession, PinBudget, SessionOptions};
use forebay_sim::{Cluster, ClusterOptions, tls};

use crate::scene::caller;

/// A cluster that serves over TLS, and its authority.
struct Site {
    sim: Sim,
    cluster: Cluster,
    authority: Authority,
}

impl Site {
    async fn of(sim: &Sim) -> Self {
        let sim = sim.clone();
        let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        let site = Self { sim, cluster, authority: Authority::make(Uuid([1; 16])).expect("an authority") };
        for (number, server) in site.cluster.servers.iter().enumerate() {
            let role = if number == 0 { Role::Mds } else { Role::Ost };
            site.give(server.node, &site.authority, role, &format!("server{number}"));
        }
        site.cluster.boot_all();
        site
    }

    fn give(&self, node: NodeId, authority: &Authority, role: Role, name: &str) {
        let keys = tls::keys_of(authority, role, name).expect("keys");
        self.sim.set_network(node, Network::Keys(Arc::new(keys)));
    }

    /// A machine with a key of the cluster.
    fn node(&self, role: Role, name: &str) -> NodeId {
        let node = self.sim.add_node(name);
        self.give(node, &self.authority, role, name);
        node
    }

    /// A mount, or why there is none within ten seconds.
    async fn mount(&self, node: NodeId) -> ClientResult<Client> {
        let mount = self.cluster.mount(node, CommitLevel::Data);
        self.sim.env(node).timeout(Duration::from_secs(10), mount).await.expect("it mounts, or fails at once")
    }
}

/// write |power, OST| |power, MDT| read
#[test]
fn a_cluster_with_keys_replays_after_power_cuts_and_returns_what_was_written() {
    let sim = Sim::new(1);
    sim.block_on(async {
        let site = Site::of(&sim).await;
        let client = site.mount(site.node(Role::Client, "n1")).await.expect("it mounts");
        let layout = LayoutSpec { stripe_count: 2, ..LayoutSpec::inherit() };
        let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
        let file = made.expect("it is made").1;
        let bytes: Bytes = (0..700_000_u32).map(|at| (at * 31 + at / 251) as u8).collect();
        client.write(&file, 0, bytes.clone()).await.expect("it writes");
        for server in [1, 0, 2] {
            sim.power_cut(site.cluster.servers[server].node);
            site.cluster.boot(server);
            sim.sleep(Duration::from_secs(3)).await;
        }
        client.fsync(&file, false).await.expect("synced");
        assert!(client.read(&file, 0, 700_000).await.expect("it reads")[..] == bytes[..]);
        let reader = site.mount(site.node(Role::Client, "n2")).await.expect("it mounts");
        let read = reader.read_file(&caller(), "f").await.expect("it reads");
        assert!(read[..] == bytes[..]);
        assert_eq!(client.stats().evictions, 0);
    });
}

#[test]
fn a_node_with_another_clusters_key_or_none_is_refused_at_once_and_told_why() {
    let sim = Sim::new(2);
    sim.block_on(async {
        let site = Site::of(&sim).await;
        let other = Authority::make(Uuid([2; 16])).expect("an authority");
        let stranger = site.sim.add_node("stranger");
        site.give(stranger, &other, Role::Client, "n1");
        let error = site.mount(stranger).await.err().expect("it is refused");
        assert!(error.message.contains("another cluster"), "{error}");
        let keyless = site.sim.add_node("keyless");
        let mount = site.cluster.mount(keyless, CommitLevel::Data);
        let mounted = site.sim.env(keyless).timeout(Duration::from_secs(10), mount).await;
        assert!(!matches!(mounted, Ok(Ok(_))), "a client without keys has mounted");
    });
}

/// The node of an OST answers at the MDT's address.
#[test]
fn an_ost_cannot_pose_as_the_mdt() {
    let sim = Sim::new(3);
    sim.block_on(async {
        let site = Site::of(&sim).await;
        let mdt = site.cluster.servers[0].node;
        site.sim.crash(mdt);
        site.give(mdt, &site.authority, Role::Ost, "server1");
        site.cluster.boot(0);
        site.sim.sleep(Duration::from_secs(3)).await;
        let error = site.mount(site.node(Role::Client, "n1")).await.err().expect("it is refused");
        assert!(error.message.contains("may not"), "{error}");
    });
}

/// A node that knows the number of another node's client.
#[test]
fn a_node_cannot_take_over_the_session_of_another() {
    let sim = Sim::new(4);
    sim.block_on(async {
        let site = Site::of(&sim).await;
        let ost = &site.cluster.servers[1];
        let session = |node: NodeId| {
            let options = SessionOptions {
                cluster: Uuid::default(),
                target: ost.target,
                resolve: Rc::new(vec![ost.address.clone()]),
                client: Uuid([0x5a; 16]),
                description: "client".into(),
                pins: PinBudget::new(1 << 20),
            };
            ClientSession::start(&site.sim.env(node), options)
        };
        let (owner, thief) = (site.node(Role::Client, "n1"), site.node(Role::Client, "n2"));
        let owners = session(owner);
        owners.ready().await.expect("it is its own");
        let stolen = session(thief);
        let ready = site.sim.env(thief).timeout(Duration::from_secs(10), stolen.ready()).await;
        let error = ready.expect("it is told").expect_err("it is another's");
        assert!(error.to_string().contains("belongs to") && error.to_string().contains("n1"), "{error}");
        owners.ready().await.expect("the owner goes on");
    });
}
