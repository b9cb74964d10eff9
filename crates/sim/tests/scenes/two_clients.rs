//! A cluster, two clients, and small files in the root.

use std::rc::Rc;

use forebay_client::{Caller, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode};
use forebay_env::sim::{NodeId, Sim};
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

pub fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// A cluster and two clients.
pub struct Scene {
    pub sim: Sim,
    pub cluster: Rc<Cluster>,
    pub nodes: [NodeId; 2],
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        sim.set_trace(std::env::var("FOREBAY_TRACE").is_ok());
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, ClusterOptions::default())));
        cluster.boot_all();
        let nodes = [sim.add_node("maker"), sim.add_node("looker")];
        Self { sim, cluster, nodes }
    }

    pub async fn mounts(&self) -> (Client, Client) {
        (self.mount(0).await, self.mount(1).await)
    }

    pub async fn mount(&self, number: usize) -> Client {
        self.cluster.mount(self.nodes[number], CommitLevel::Data).await.expect("it mounts")
    }

    pub fn mdt(&self) -> NodeId {
        self.cluster.servers[0].node
    }

    /// Crashes all OSTs.
    pub fn stop_osts(&self) {
        self.cluster.servers[1..].iter().for_each(|server| self.sim.crash(server.node));
    }

    pub fn boot_osts(&self) {
        (1..self.cluster.servers.len()).for_each(|server| self.cluster.boot(server));
    }
}

pub async fn begin(client: &Client, name: &[u8]) -> OpenFile {
    let layout = LayoutSpec::inherit();
    let open = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
    client.create(&caller(), Fid::ROOT, name, 0o644, open, layout).await.expect("it is made").1
}

pub async fn make(client: &Client, name: &[u8], bytes: &[u8]) {
    let file = begin(client, name).await;
    client.write(&file, 0, bytes.to_vec()).await.expect("it is written");
    client.close(file).await.expect("it closes");
}

pub async fn open(client: &Client, name: &[u8], mode: OpenMode) -> OpenFile {
    let attr = client.lookup(&caller(), Fid::ROOT, name).await.expect("it is there");
    client.open(&caller(), attr.fid, mode).await.expect("it opens")
}

pub async fn content(client: &Client, name: &[u8]) -> Vec<u8> {
    let file = open(client, name, OpenMode::READ).await;
    let read = client.read(&file, 0, 1 << 20).await.expect("it reads").to_vec();
    client.close(file).await.expect("it closes");
    read
}
