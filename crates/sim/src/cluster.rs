//! A cluster on simulated machines: one node per server and one per client.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use forebay_client::{Client, ClientResult, CommitLevel, MountOptions};
use forebay_env::{
    Address, Env,
    sim::{NodeId, Sim},
};
use forebay_keys::{Authority, NODE_LIFE};
use forebay_mds::{Mds, MdsOptions};
use forebay_oss::Oss;
use forebay_proto::{
    TargetId, TargetKind, Uuid,
    message::{ClusterMap, MapTarget},
};
use forebay_store::{FormatOptions, MirrorPlace, OpenOptions, Store};
use forebay_target::{Target, TargetOptions, TargetState};

/// Short, so that keys of capabilities end in the middle of things.
const CAPABILITY_LIFE: Duration = Duration::from_secs(5);

/// Directory of a server's store on its node.
pub const STORE_DIR: &str = "/store";

/// Directory of the second copy of a mirrored MDT, on a disk of its own.
pub const MIRROR_DIR: &str = "/mirror";

/// Path of a server's data disk.
pub fn data_path() -> String {
    format!("{STORE_DIR}/data")
}

/// Path of a server's journal.
pub fn journal_path() -> String {
    format!("{STORE_DIR}/journal")
}

/// How a cluster is built.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Number of OSTs.
    pub osts: u32,
    /// Data bytes of an OST.
    pub ost_bytes: u64,
    /// Data bytes of the MDT.
    pub mdt_bytes: u64,
    /// Bytes of rows that the MDT keeps in memory; `None`: all rows.
    pub mdt_cache_bytes: Option<u64>,
    /// Slab size of the MDT.
    pub mdt_slab_bytes: u64,
    /// Slab size of an OST.
    pub slab_bytes: u64,
    /// Journal size of every target.
    pub journal_bytes: u64,
    /// Recovery window of all targets.
    pub recovery_window: Duration,
    /// Time between commits.
    pub commit_interval: Duration,
    /// True if the MDT is mirrored.
    pub mdt_mirror: bool,
    /// Most bytes of small writes that each client buffers.
    pub write_back_bytes: u64,
    /// OSTs listen at a second address too, as in another network.
    pub second_network: bool,
    /// How long certificates are valid that the MGS signs.
    pub certificate_life: Duration,
}

/// Of this an eighth is more than the longest write of a workload.
const LARGE_WRITE_BACK_BYTES: u64 = 8 << 20;

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            osts: 3,
            ost_bytes: 64 << 20,
            mdt_bytes: 48 << 20,
            mdt_cache_bytes: None,
            mdt_slab_bytes: 1 << 20,
            slab_bytes: 1 << 20,
            journal_bytes: 2 << 20,
            recovery_window: Duration::from_secs(20),
            commit_interval: Duration::from_millis(300),
            mdt_mirror: false,
            write_back_bytes: 512 << 10,
            second_network: false,
            certificate_life: NODE_LIFE,
        }
    }
}

impl ClusterOptions {
    /// Data bytes of a server; the MDT is server 0.
    pub fn data_bytes(&self, server: usize) -> u64 {
        if server == 0 { self.mdt_bytes } else { self.ost_bytes }
    }

    /// With a second network for one seed in three; for every other one a larger buffer for clients that buffer any write.
    pub fn for_seed(self, seed: u64) -> Self {
        let is_large = self.write_back_bytes > 0 && !seed.is_multiple_of(2);
        let write_back_bytes = if is_large { LARGE_WRITE_BACK_BYTES } else { self.write_back_bytes };
        Self { second_network: seed.is_multiple_of(3), write_back_bytes, ..self }
    }

    fn server(&self, target: TargetId, node: NodeId) -> Server {
        let has_second = self.second_network && target.kind == TargetKind::Ost;
        let second = has_second.then(|| Address::Mem(format!("{target}-second")));
        Server { target, node, address: Address::Mem(target.to_string()), second }
    }

    /// Slab size of a server.
    pub fn slab_bytes(&self, server: usize) -> u64 {
        if server == 0 { self.mdt_slab_bytes } else { self.slab_bytes }
    }
}

/// The served targets, by server number.
pub type Targets = Rc<RefCell<BTreeMap<usize, Target>>>;

/// One server's machine.
#[derive(Clone, Debug)]
pub struct Server {
    /// The target it serves.
    pub target: TargetId,
    /// Its node.
    pub node: NodeId,
    /// The address it listens on.
    pub address: Address,
    /// A second one.
    pub second: Option<Address>,
}

impl Server {
    fn addresses(&self) -> impl Iterator<Item = &Address> {
        std::iter::once(&self.address).chain(&self.second)
    }
}

/// A formatted cluster; [`Cluster::boot`] starts its servers.
pub struct Cluster {
    /// The simulated world.
    pub sim: Sim,
    /// The options it was built with.
    pub options: ClusterOptions,
    /// MDT first, then the OSTs.
    pub servers: Vec<Server>,
    /// The served targets, by server. The entry of a dead server stays until its next start.
    pub targets: Targets,
    /// Server starts that failed without an injected cause. They are shown when a run fails.
    pub troubles: Rc<RefCell<Vec<String>>>,
    /// Servers whose disks are unreadable at the moment: these may refuse to start.
    pub ailing: Rc<RefCell<BTreeSet<usize>>>,
    /// Number of server deaths.
    pub deaths: Rc<Cell<u64>>,
    /// The copy of a mirrored MDT whose disks are dead, as far as the operator knows.
    pub dead_copy: Rc<Cell<Option<usize>>>,
    /// The current map, which the MGS serves.
    map: Rc<RefCell<ClusterMap>>,
    /// With it, the MGS takes hosts that join.
    authority: Rc<RefCell<Option<Arc<Authority>>>>,
}

impl Cluster {
    /// Adds the nodes and formats the stores. Nothing runs yet.
    pub async fn format(sim: &Sim, options: ClusterOptions) -> Cluster {
        let uuid = Uuid::from_random(sim.random_u64(), sim.random_u64());
        let targets = std::iter::once(TargetId::mdt(0)).chain((0..options.osts).map(TargetId::ost));
        let mut servers = Vec::new();
        for target in targets {
            let node = sim.add_node(&target.to_string());
            let number = servers.len();
            let format = FormatOptions {
                slab_bytes: options.slab_bytes(number),
                journal_bytes: options.journal_bytes,
                stripe_bytes: 64 << 10,
                mirror: (options.mdt_mirror && number == 0)
                    .then(|| MirrorPlace { dir: MIRROR_DIR.into(), ..MirrorPlace::default() }),
                ..FormatOptions::new(uuid, target, options.data_bytes(number))
            };
            Store::format(&sim.env(node), STORE_DIR, &format).await.expect("a new store is formatted");
            sim.crash(node);
            servers.push(options.server(target, node));
        }
        let (targets, troubles, ailing, deaths, dead_copy, authority) = Default::default();
        let targets_of_map = servers.iter().map(listed).collect();
        let map = Rc::new(RefCell::new(ClusterMap { cluster: uuid, epoch: 1, targets: targets_of_map }));
        Cluster { sim: sim.clone(), options, servers, targets, troubles, ailing, deaths, dead_copy, map, authority }
    }

    /// The cluster map for clients and the MDT.
    pub fn map(&self) -> ClusterMap {
        self.map.borrow().clone()
    }

    /// From its next start on, the MGS takes hosts that join.
    pub fn set_authority(&self, authority: Arc<Authority>) {
        self.authority.replace(Some(authority));
    }

    /// Adds a server of a new OST on `node`, which the map does not name, with an empty store. Returns its number.
    pub async fn add_server(&mut self, node: NodeId, target: TargetId) -> usize {
        let number = self.servers.len();
        let format = FormatOptions {
            slab_bytes: self.options.slab_bytes(number),
            journal_bytes: self.options.journal_bytes,
            stripe_bytes: 64 << 10,
            ..FormatOptions::new(self.map().cluster, target, self.options.data_bytes(number))
        };
        Store::format(&self.sim.env(node), STORE_DIR, &format).await.expect("a new store is formatted");
        self.sim.crash(node);
        self.servers.push(self.options.server(target, node));
        number
    }

    /// From its next start on, a server listens at `address`. The MGS serves a newer map at once.
    pub fn move_to(&mut self, number: usize, address: Address) {
        self.servers[number].address = address;
        let mut map = self.map.borrow_mut();
        map.epoch += 1;
        map.targets[number] = listed(&self.servers[number]);
    }

    /// The MGS serves a newer map at once, without this server.
    pub fn leave_out(&self, number: usize) {
        let mut map = self.map.borrow_mut();
        map.epoch += 1;
        map.targets.retain(|target| target.id != self.servers[number].target);
    }

    /// Starts a server; it runs until [`Sim::crash`] or [`Sim::power_cut`] of its node.
    pub fn boot(&self, number: usize) {
        let server = self.servers[number].clone();
        let (map, options, troubles) = (self.map.clone(), self.options.clone(), self.troubles.clone());
        let authority = self.authority.borrow().clone();
        let (targets, ailing) = (self.targets.clone(), self.ailing.clone());
        targets.borrow_mut().remove(&number);
        let word = number == 0 && self.dead_copy.get().is_some();
        self.sim.start(server.node, move |env| async move {
            let serving = |target: &Target| drop(targets.borrow_mut().insert(number, target.clone()));
            if word {
                // The remaining copy cannot know that the other one is dead, and not ahead of it. The operator knows.
                drop(Store::mirror_alone(&env, STORE_DIR).await);
            }
            if let Err(trouble) = serve(&env, &server, (map, authority), &options, serving).await {
                env.log(&format!("{} does not start: {trouble}", server.target));
                if ailing.borrow().contains(&number) {
                    return;
                }
                troubles.borrow_mut().push(format!("{} at {:?}: {trouble}", server.target, env.now()));
            }
        });
    }

    /// True if every server runs and has recovered: then they have everything that clients were acknowledged.
    pub fn is_serving(&self) -> bool {
        (0..self.servers.len()).all(|number| self.serves(number))
    }

    /// True if a server runs and has recovered.
    pub fn serves(&self, number: usize) -> bool {
        let state = self.targets.borrow().get(&number).map(Target::state);
        self.sim.is_running(self.servers[number].node) && state == Some(TargetState::Serving)
    }

    /// Starts all servers that are down.
    pub fn boot_all(&self) {
        for (number, server) in self.servers.iter().enumerate() {
            if !self.sim.is_running(server.node) {
                self.boot(number);
            }
        }
    }

    /// Mounts on a client's node.
    pub async fn mount(&self, node: NodeId, level: CommitLevel) -> ClientResult<Client> {
        Client::mount(&self.sim.env(node), self.mount_options(node, level)).await
    }

    /// Mount options of a client on `node`. Requests and pins are small, so that runs reach their limits.
    pub fn mount_options(&self, node: NodeId, level: CommitLevel) -> MountOptions {
        MountOptions {
            level,
            description: format!("client {node:?}"),
            pin_bytes: 8 << 20,
            max_rpc_bytes: 128 << 10,
            write_back_bytes: self.options.write_back_bytes,
            ..MountOptions::new(vec![self.servers[0].address.clone()])
        }
    }
}

/// A server as the map names it.
fn listed(server: &Server) -> MapTarget {
    MapTarget {
        id: server.target,
        uuid: Uuid::default(),
        addresses: server.addresses().map(Address::to_string).collect(),
    }
}

async fn serve(
    env: &Env,
    server: &Server,
    (map, authority): (Rc<RefCell<ClusterMap>>, Option<Arc<Authority>>),
    options: &ClusterOptions,
    serving: impl FnOnce(&Target),
) -> Result<(), String> {
    let open = OpenOptions {
        cache_bytes: if server.target.kind == TargetKind::Ost { Some(4 << 20) } else { options.mdt_cache_bytes },
        commit_interval: options.commit_interval,
        ..OpenOptions::default()
    };
    let store = Store::open(env, STORE_DIR, &open).await.map_err(|e| e.to_string())?;
    let listener = env.listen(&server.address).await.map_err(|e| e.to_string())?;
    let second = match &server.second {
        Some(address) => Some(env.listen(address).await.map_err(|e| e.to_string())?),
        None => None,
    };
    let target_options = TargetOptions {
        recovery_window: options.recovery_window,
        map: Some({
            let map = map.clone();
            Rc::new(move || map.borrow().clone())
        }),
        ..TargetOptions::default()
    };
    let target = match server.target.kind {
        TargetKind::Mdt => {
            let map = map.borrow().clone();
            let osts = map.targets.iter().filter(|t| t.id.kind == TargetKind::Ost);
            let addresses = |t: &MapTarget| t.addresses.iter().filter_map(|a| a.parse().ok()).collect();
            let osts = osts.map(|t| (t.id.index, addresses(t))).collect();
            let mds_options = MdsOptions {
                target: target_options,
                authority: authority.clone(),
                capability_life: CAPABILITY_LIFE,
                certificate_life: options.certificate_life,
                ..MdsOptions::new(map.cluster, osts)
            };
            let (_mds, target) = Mds::start(env, store, mds_options).await.map_err(|e| e.to_string())?;
            target
        }
        TargetKind::Ost => {
            let (_oss, target) = Oss::start(env, store, target_options).await.map_err(|e| e.to_string())?;
            target
        }
    };
    serving(&target);
    if let Some(listener) = second {
        let target = target.clone();
        drop(env.spawn(async move { target.serve(listener).await }));
    }
    let is_mgs = server.target.kind == TargetKind::Mdt && authority.is_some();
    let listener = if is_mgs { listener.for_anybody() } else { listener };
    target.serve(listener).await;
    Ok(())
}
