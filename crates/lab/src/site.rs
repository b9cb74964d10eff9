//! A described machine that runs the real servers in one mode.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use forebay_env::{
    Address, Env,
    sim::{
        BulkJournal, CpuCosts, JournalShape, Link, NodeId, Placement, Port, Processors, Sim, Tier, TierStats, Waking,
    },
};
use forebay_mds::MdsOptions;
use forebay_oss::Oss;
use forebay_proto::{
    TargetId, Uuid,
    message::{ClusterMap, MapTarget},
};
use forebay_store::{FormatOptions, OpenOptions, Store};
use forebay_target::TargetOptions;

use super::{
    JournalPlace, Machine, Mode,
    payload::TRANSFER_BYTES,
    room::Room,
    sections::{Mds, Mount, TierSection},
    window::Window,
};

/// Rows that an OST keeps in memory.
const OST_CACHE_BYTES: u64 = 256 << 20;
/// Bytes of the MDT, which is on a separate device.
const MDT_BYTES: u64 = 4 << 30;

/// Where the MDT is.
#[derive(Clone, Copy)]
pub enum MdtPlace<'a> {
    /// There is none.
    Nowhere,
    /// On a device that takes no time; if all runs on one machine, on the OSTs' device.
    Aside,
    /// On this device, which nothing else uses, with the machine's journal and the mode's transactions.
    On(&'a TierSection, &'a Mds),
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Acknowledged 10^6 bytes a second.
    pub mb_s: f64,
    /// Statistics of all OST tiers together in the window.
    pub tiers: TierStats,
    /// Length of the window times the number of tiers, in seconds.
    pub tier_seconds: f64,
    /// Groups of transactions committed in the window.
    pub commits: u64,
    /// Writes acknowledged in the window.
    pub writes: u64,
}

/// One OST.
pub struct Ost {
    /// The address it listens on.
    pub address: Address,
    /// The node of its server.
    pub node: NodeId,
    store: Store,
}

/// A machine with its servers.
pub struct Site {
    /// The simulated world.
    pub sim: Sim,
    /// All OSTs.
    pub osts: Vec<Ost>,
    /// The devices of the OSTs.
    tiers: Vec<Tier>,
    /// The device of the MDT, if it takes time and nothing else uses it.
    mdt_tier: Option<Tier>,
    /// The processors of all threads, if all runs on one machine.
    processors: Option<Processors>,
    /// The MDT's address, if there is an MDT.
    pub mgs: Address,
    /// UUID of the cluster.
    pub uuid: Uuid,
    costs: Rc<CpuCosts>,
}

/// Counts acknowledged bytes within a window.
#[derive(Clone, Default)]
pub struct Meter {
    bytes: Rc<Cell<u64>>,
    writes: Rc<Cell<u64>>,
}

impl Meter {
    /// Counts an acknowledged write.
    pub fn replied(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.writes.set(self.writes.get() + 1);
    }
}

impl Site {
    /// Adds the nodes, formats the OSTs and serves them, and the MDT if there is one.
    pub async fn build(
        sim: &Sim,
        machine: &Machine,
        mode: Mode,
        costs: &CpuCosts,
        mdt: MdtPlace<'_>,
    ) -> Result<Self, String> {
        let network = &machine.network;
        sim.set_default_link(Link { latency: network.latency_us.us(), jitter: Duration::ZERO, ..Link::default() });
        let mut site = Self {
            sim: sim.clone(),
            osts: Vec::new(),
            tiers: Vec::new(),
            mdt_tier: None,
            processors: machine.mount.as_ref().map(|_| Processors::new(machine.servers.cores.count() as usize)),
            mgs: Address::Mem(TargetId::mdt(0).to_string()),
            uuid: Uuid::from_random(sim.random_u64(), sim.random_u64()),
            costs: Rc::new(costs.clone()),
        };
        let journals = Journals::new(sim, machine, mode);
        for server in 0..machine.servers.nodes.count() {
            let mut node = site.add_node(machine, &format!("oss{server}"), machine.servers.cores.count());
            let port = Port::new(machine.port.mb_s.mb_s(), machine.port.latency_us.us());
            let tiers = machine.servers.osts_per_node.count() / machine.osts_per_tier();
            let first_tier = site.tiers.len();
            for number in 0..u64::from(tiers) {
                site.tiers.push(Tier::new(sim, machine.tier.model(), first_tier as u64 + number));
            }
            let room = Room::of(machine);
            for number in 0..machine.servers.osts_per_node.count() {
                let index = site.osts.len() as u32;
                if site.processors.is_some() && number > 0 {
                    // Each OST is a separate thread.
                    node = site.add_node(machine, &format!("ost{index}"), 1);
                }
                let tier = site.tiers[first_tier + (number % tiers) as usize].clone();
                let part = u64::from(number / tiers) * room.part;
                let dir = dir(index);
                let journal_bytes = machine.journal.mib.mib();
                let bulk_journal = mode.data_too.then(|| BulkJournal::new(journal_bytes / 2, journal_bytes / 2));
                let data = Placement {
                    tier: tier.clone(),
                    port: Some(port.clone()),
                    base: part + room.base,
                    shape: None,
                    bulk_journal,
                };
                sim.place_disk(node, &format!("{dir}/data"), &data);
                if let Some(journal) = journals.of(index, (&tier, part), &port) {
                    sim.place_disk(node, &format!("{dir}/journal"), &journal);
                }
                let ost = serve_ost(&site, machine, mode, node, index, room.bytes).await?;
                site.osts.push(ost);
            }
        }
        if !matches!(mdt, MdtPlace::Nowhere) {
            serve_mdt(&mut site, machine, mode, mdt).await?;
        }
        Ok(site)
    }

    /// Adds a running node on the network.
    pub fn add_node(&self, machine: &Machine, name: &str, cores: u32) -> NodeId {
        let node = self.sim.add_node(name);
        match (&machine.mount, &self.processors) {
            (Some(mount), Some(processors)) => {
                let waking = waking(mount, true);
                self.sim.run_on(node, processors, waking);
            }
            _ => self.sim.set_cores(node, cores as usize),
        }
        self.sim.set_cpu_costs(node, &self.costs);
        self.sim.set_nic(node, machine.network.node_mb_s.mb_s());
        drop(self.sim.env(node));
        node
    }

    /// Adds a program, if all runs on one machine: a thread that sleeps as soon as it waits.
    pub fn add_program(&self, machine: &Mount, name: &str) -> NodeId {
        let node = self.sim.add_node(name);
        if let Some(processors) = &self.processors {
            self.sim.run_on(node, processors, waking(machine, false));
        }
        drop(self.sim.env(node));
        node
    }

    /// The cluster map.
    fn map(&self) -> ClusterMap {
        let target = |id: TargetId, address: &Address| MapTarget {
            id,
            uuid: Uuid::default(),
            addresses: vec![address.to_string()],
        };
        let osts = self.osts.iter().enumerate().map(|(index, ost)| target(TargetId::ost(index as u32), &ost.address));
        let targets = std::iter::once(target(TargetId::mdt(0), &self.mgs)).chain(osts).collect();
        ClusterMap { cluster: self.uuid, epoch: 1, targets }
    }

    /// Runs the simulation over the window and returns its results.
    pub async fn measure(&self, meter: &Meter, window: Window) -> Outcome {
        self.sim.sleep(window.warm_up).await;
        let before = self.look(meter);
        self.sim.sleep(window.length).await;
        let after = self.look(meter);
        let seconds = window.length.as_secs_f64();
        Outcome {
            mb_s: (after.0 - before.0) as f64 / 1e6 / seconds,
            writes: after.1 - before.1,
            tiers: after.2.since(&before.2),
            tier_seconds: seconds * self.tiers.len() as f64,
            commits: after.3 - before.3,
        }
    }

    /// Statistics of all OST tiers together.
    pub fn tiers(&self) -> TierStats {
        self.tiers.iter().fold(TierStats::default(), |sum, tier| sum.plus(&tier.stats()))
    }

    /// Statistics of the MDT's own device.
    pub fn mdt_tier(&self) -> TierStats {
        self.mdt_tier.as_ref().map(Tier::stats).unwrap_or_default()
    }

    fn look(&self, meter: &Meter) -> (u64, u64, TierStats, u64) {
        let tiers = self.tiers();
        let commits = self.osts.iter().map(|ost| ost.store.stats().commits()).sum();
        (meter.bytes.get(), meter.writes.get(), tiers, commits)
    }
}

/// Where the journals of a mode are.
struct Journals {
    mode: Mode,
    shape: Option<JournalShape>,
    bytes: u64,
    sas: Vec<Tier>,
    ssd: Option<(Tier, Vec<Port>)>,
    osts: u32,
}

impl Journals {
    fn new(sim: &Sim, machine: &Machine, mode: Mode) -> Self {
        let sas = machine.sas.iter().filter(|_| mode.journal == JournalPlace::Sas);
        let sas =
            sas.flat_map(|sas| (0..sas.tiers.count()).map(|n| Tier::new(sim, sas.tier.model(), 10_000 + u64::from(n))));
        let ssd = machine.ssd.as_ref().filter(|_| mode.journal == JournalPlace::Ssd).map(|ssd| {
            // The command travels to the device, and its reply back.
            let way = ssd.round_trip_us.us() / 2;
            let ports = (0..ssd.ports.count()).map(|_| Port::new(machine.port.mb_s.mb_s(), way)).collect();
            (Tier::new(sim, ssd.tier.model(), 20_000), ports)
        });
        let bytes = machine.journal.mib.mib();
        Self { mode, shape: mode.shape(machine), bytes, sas: sas.collect(), ssd, osts: machine.osts() }
    }

    /// `None`: the journal takes no time.
    fn of(&self, index: u32, (own, part): (&Tier, u64), port: &Port) -> Option<Placement> {
        let shape = self.shape;
        match self.mode.journal {
            JournalPlace::Nowhere => None,
            JournalPlace::Internal => {
                Some(Placement { tier: own.clone(), port: Some(port.clone()), base: part, shape, bulk_journal: None })
            }
            JournalPlace::Sas => {
                let count = self.sas.len().max(1) as u32;
                let tier = self.sas.get((index % count) as usize)?.clone();
                let base = u64::from(index / count) * self.bytes.next_multiple_of(1 << 20);
                Some(Placement { tier, port: Some(port.clone()), base, shape, bulk_journal: None })
            }
            JournalPlace::Ssd => {
                let (tier, ports) = self.ssd.as_ref()?;
                let share = self.osts.div_ceil(ports.len() as u32).max(1);
                let port = ports.get((index / share) as usize).cloned();
                let base = u64::from(index) * self.bytes.next_multiple_of(1 << 20);
                Some(Placement { tier: tier.clone(), port, base, shape, bulk_journal: None })
            }
        }
    }
}

/// How the threads of a machine with a mount sleep.
fn waking(mount: &Mount, looks: bool) -> Waking {
    Waking { latency: mount.wake_us.us(), work: mount.wake_work_us.us(), looks }
}

/// Directory of an OST's store on its node.
fn dir(index: u32) -> String {
    format!("/ost{index}")
}

async fn serve_ost(
    site: &Site,
    machine: &Machine,
    mode: Mode,
    node: NodeId,
    index: u32,
    bytes: u64,
) -> Result<Ost, String> {
    let (env, dir) = (site.sim.env(node), dir(index));
    let target = TargetId::ost(index);
    let format =
        FormatOptions { journal_bytes: machine.journal.mib.mib(), ..FormatOptions::new(site.uuid, target, bytes) };
    Store::format(&env, &dir, &format).await.map_err(|e| e.to_string())?;
    let open = OpenOptions { cache_bytes: Some(OST_CACHE_BYTES), ..mode.commits(machine) };
    let store = Store::open(&env, &dir, &open).await.map_err(|e| e.to_string())?;
    let address = Address::Mem(target.to_string());
    let listener = env.listen(&address).await.map_err(|e| e.to_string())?;
    let (_, served) = Oss::start(&env, store.clone(), options()).await.map_err(|e| e.to_string())?;
    drop(env.spawn(async move { served.serve(listener).await }));
    Ok(Ost { address, node, store })
}

async fn serve_mdt(site: &mut Site, machine: &Machine, mode: Mode, mdt: MdtPlace<'_>) -> Result<(), String> {
    let node = site.add_node(machine, "mds", machine.servers.cores.count());
    if site.processors.is_some()
        && let Some(tier) = site.tiers.first()
    {
        // The MDT is on the OSTs' device.
        for file in ["/mdt/data", "/mdt/journal"] {
            let placement = Placement { tier: tier.clone(), port: None, base: 0, shape: None, bulk_journal: None };
            site.sim.place_disk(node, file, &placement);
        }
    }
    let mut format = FormatOptions::new(site.uuid, TargetId::mdt(0), MDT_BYTES);
    let mut open = OpenOptions::default();
    if let MdtPlace::On(device, mds) = mdt {
        let bytes = (mds.mdt_gib.value * f64::from(1 << 30)) as u64;
        format = FormatOptions {
            journal_bytes: machine.journal.mib.mib(),
            ..FormatOptions::new(site.uuid, TargetId::mdt(0), bytes)
        };
        open = OpenOptions { cache_bytes: Some(mds.cache_mib.mib()), ..mode.commits(machine) };
        let tier = Tier::new(&site.sim, device.model(), 30_000);
        let place = |base, shape| Placement { tier: tier.clone(), port: None, base, shape, bulk_journal: None };
        site.sim.place_disk(node, "/mdt/journal", &place(0, mode.shape(machine)));
        let apart = (machine.journal.distance.value * device.gib() * f64::from(1 << 30)) as u64;
        let base = apart.max(format.journal_bytes).next_multiple_of(TRANSFER_BYTES);
        site.sim.place_disk(node, "/mdt/data", &place(base, None));
        site.mdt_tier = Some(tier);
    }
    let env = site.sim.env(node);
    Store::format(&env, "/mdt", &format).await.map_err(|e| e.to_string())?;
    let store = Store::open(&env, "/mdt", &open).await.map_err(|e| e.to_string())?;
    let listener = env.listen(&site.mgs).await.map_err(|e| e.to_string())?;
    let map = site.map();
    let osts = site.osts.iter().enumerate().map(|(index, ost)| (index as u32, vec![ost.address.clone()])).collect();
    let target = TargetOptions { map: Some(Rc::new(move || map.clone())), ..options() };
    let mds = MdsOptions { target, ..MdsOptions::new(site.uuid, osts) };
    let (_, served) = forebay_mds::Mds::start(&env, store, mds).await.map_err(|e| e.to_string())?;
    drop(env.spawn(async move { served.serve(listener).await }));
    Ok(())
}

fn options() -> TargetOptions {
    TargetOptions { recovery_window: Duration::from_secs(1), ..TargetOptions::default() }
}

/// Tasks that stop when the experiment ends.
pub struct Load {
    env: Env,
    pub(super) failure: Rc<RefCell<Option<String>>>,
}

impl Load {
    /// Runs its tasks on a shard of `env`.
    pub fn new(env: &Env) -> Self {
        Self { env: env.clone(), failure: Rc::default() }
    }

    /// Repeats `step` with rising numbers. An error ends it and fails the experiment.
    pub fn repeat<F>(&self, mut step: impl FnMut(u64) -> F + 'static)
    where
        F: Future<Output = Result<(), String>> + 'static,
    {
        let failure = self.failure.clone();
        drop(self.env.spawn(async move {
            for number in 0.. {
                if let Err(words) = step(number).await {
                    failure.borrow_mut().get_or_insert(words);
                    return;
                }
            }
        }));
    }

    /// The first failure of a task, if there was one.
    pub fn check(&self) -> Result<(), String> {
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }
}
