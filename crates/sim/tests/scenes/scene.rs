//! What scenes share: a simulated cluster with the machines of its clients, and files in its root.
//!
//! Scenes add their own steps to [`Scene`] in their own files.

use std::rc::Rc;

use forebay_client::{Caller, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode};
use forebay_env::sim::{NodeId, Sim};
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

/// Root.
pub fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// A cluster that serves, and a machine for each client.
pub struct Scene {
    pub sim: Sim,
    pub cluster: Rc<Cluster>,
    pub nodes: Vec<NodeId>,
}

impl Scene {
    /// An MDT and three OSTs, and machines of these names.
    pub fn new(seed: u64, clients: &[&str]) -> Self {
        Self::with(seed, ClusterOptions::default(), clients)
    }

    pub fn with(seed: u64, options: ClusterOptions, clients: &[impl AsRef<str>]) -> Self {
        let sim = Sim::new(seed);
        sim.set_trace(std::env::var("FOREBAY_TRACE").is_ok());
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, options)));
        cluster.boot_all();
        let nodes = clients.iter().map(|name| sim.add_node(name.as_ref())).collect();
        Self { sim, cluster, nodes }
    }

    /// A mount of client `number` at level `data`.
    pub async fn mount(&self, number: usize) -> Client {
        self.cluster.mount(self.nodes[number], CommitLevel::Data).await.expect("it mounts")
    }

    /// Mounts of the first two clients.
    pub async fn mounts(&self) -> (Client, Client) {
        (self.mount(0).await, self.mount(1).await)
    }

    pub fn mdt(&self) -> NodeId {
        self.cluster.servers[0].node
    }

    /// The server loses power and restarts.
    pub fn power_cycle(&self, server: usize) {
        self.sim.power_cut(self.cluster.servers[server].node);
        self.cluster.boot(server);
    }

    /// Crashes all OSTs.
    pub fn stop_osts(&self) {
        self.cluster.servers[1..].iter().for_each(|server| self.sim.crash(server.node));
    }

    pub fn boot_osts(&self) {
        (1..self.cluster.servers.len()).for_each(|server| self.cluster.boot(server));
    }
}

/// So many stripes of 64 KiB.
pub fn striped(stripe_count: u32) -> LayoutSpec {
    LayoutSpec { stripe_count, stripe_bytes: 64 << 10, ..LayoutSpec::inherit() }
}

/// One stripe, on this OST.
pub fn on_ost(stripe_index: u32) -> LayoutSpec {
    LayoutSpec { stripe_count: 1, stripe_index, ..LayoutSpec::inherit() }
}

/// A file in the root, made unless it is there, open for reading and writing.
pub async fn create(client: &Client, name: &[u8], layout: LayoutSpec) -> OpenFile {
    create_in(client, Fid::ROOT, name, layout).await
}

/// The same in a directory.
pub async fn create_in(client: &Client, dir: Fid, name: &[u8], layout: LayoutSpec) -> OpenFile {
    let opened = client.create(&caller(), dir, name, 0o644, OpenMode::READ_WRITE, layout).await;
    opened.expect("the file opens").1
}

/// An empty file in the root, truncated if it is there.
pub async fn begin(client: &Client, name: &[u8]) -> OpenFile {
    let open = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
    let opened = client.create(&caller(), Fid::ROOT, name, 0o644, open, LayoutSpec::inherit()).await;
    opened.expect("it is made").1
}

/// A closed file in the root with these bytes.
pub async fn make(client: &Client, name: &[u8], bytes: &[u8]) {
    let file = begin(client, name).await;
    client.write(&file, 0, bytes.to_vec()).await.expect("it is written");
    client.close(file).await.expect("it closes");
}

/// Opens a file in the root by its name.
pub async fn open(client: &Client, name: &[u8], mode: OpenMode) -> OpenFile {
    let attr = client.lookup(&caller(), Fid::ROOT, name).await.expect("it is there");
    client.open(&caller(), attr.fid, mode).await.expect("it opens")
}

/// All bytes of a file in the root, opened for that.
pub async fn content(client: &Client, name: &[u8]) -> Vec<u8> {
    let file = open(client, name, OpenMode::READ).await;
    let read = client.read(&file, 0, 1 << 20).await.expect("it reads").to_vec();
    client.close(file).await.expect("it closes");
    read
}
