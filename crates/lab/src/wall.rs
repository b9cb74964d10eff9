//! mdtest of [Wall] over task counts, with the MDT on a disk and on a solid-state device, and the open of one shared
//! file by all tasks.
//!
//! Each task makes empty files (and directories) in its own directories, looks up those of a neighbour on another host,
//! and removes its own. Between the phases all tasks wait for each other, and until the MDT has executed all delayed
//! directory operations. A host is one client, shared by its tasks. With only one host, another host does the lookups.
//! The number of hosts is that of the testbed as long as each task has a core. Beyond that there are enough hosts to
//! give each task one: no host is ever oversubscribed.
//!
//! In the paper's mode each change waits for its reply. A client has as many changes in flight as the machine
//! description says, and transactions are like ext3's. By default directory operations are delayed where the client has
//! an entries-write lease (decision 23).
//! Source: [Wall] 3.

use std::{cell::RefCell, rc::Rc, time::Duration};

use forebay_client::{Client, ClientResult, LayoutSpec, MountOptions, OpenFile, OpenMode};
use forebay_env::{
    Env, Time,
    sim::{CpuCosts, Sim},
    sync::Semaphore,
};
use forebay_proto::{
    Fid,
    message::{Caller, Op},
};

use super::{
    CPU_COSTS, Machine, MeasuredCosts, Mode,
    barrier::Barrier,
    mode,
    sections::{Mds, Names, TierSection},
    site::{MdtPlace, Site},
};

/// Task counts of the rows.
pub const TASKS: [u32; 8] = [1, 4, 16, 64, 256, 1024, 4096, 16_384];
/// Files of all tasks together, and as many directories: [Wall] 3.1.
pub const FILES: u32 = 300_000;
/// Task count at which the paper compares devices.
pub const COMPARED_AT: u32 = 64;
/// Devices of the rows. Others are compared with them at [`COMPARED_AT`].
pub const DEVICES: [&str; 2] = ["sata", "ssd"];
/// Entries per directory: [Wall] 3.1.
const DIRECTORY_ENTRIES: u32 = 400;
const SHARED: &[u8] = b"shared";

/// The measured operations, in this order.
pub const OPERATIONS: [&str; 6] = ["create", "stat", "remove", "dir-create", "dir-stat", "dir-remove"];

/// Parameters of the experiment.
#[derive(Clone, Debug)]
pub struct WallOptions {
    /// The seed of all random choices.
    pub seed: u64,
    /// The task count of each run.
    pub tasks: Vec<u32>,
    /// Files of all tasks together, and as many directories. All tasks make the same number.
    pub files: u32,
    /// Multiplier for the machine's CPU costs.
    pub cpu_factor: f64,
}

/// The results for one task count on one device in one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct WallRun {
    /// The MDT's device: a name in the machine's section `mdt`.
    pub device: String,
    /// True in the paper's mode, false with our defaults.
    pub is_papers: bool,
    /// Number of tasks.
    pub tasks: u32,
    /// Number of hosts that they run on.
    pub hosts: u32,
    /// Number of files made.
    pub files: u32,
    /// Most entries in one directory.
    pub entries: u32,
    /// Operations per second, ordered as [`OPERATIONS`].
    pub rates: [f64; 6],
    /// Fraction of the time that the MDT's device was busy, ordered as [`OPERATIONS`].
    pub device_busy: [f64; 6],
    /// Milliseconds from the first open of the shared file to the last reply.
    pub open_shared_ms: f64,
}

/// All results.
#[derive(Clone, Debug)]
pub struct Wall {
    /// In the order in which they were run.
    pub runs: Vec<WallRun>,
    /// Operations per second that the MDS's thread could answer if it never waited, ordered as [`OPERATIONS`]. The same
    /// for each run.
    pub thread_limit: [f64; 6],
}

impl Wall {
    /// The results of one run.
    pub fn run(&self, device: &str, is_papers: bool, tasks: u32) -> Option<&WallRun> {
        self.runs.iter().find(|run| (&*run.device, run.is_papers, run.tasks) == (device, is_papers, tasks))
    }
}

/// Runs the experiment. It calls `say` with the current step, its number and the total. Errors: text for the user.
pub fn wall(machine: &Machine, options: &WallOptions, say: &mut dyn FnMut(&str, usize, usize)) -> Result<Wall, String> {
    let (Some(names), Some(mds)) = (&machine.names, &machine.mds) else {
        return Err("the machine has no sections [names] and [mds]: see machines/wall.toml".into());
    };
    if machine.mount.is_some() {
        return Err("[mount] is a machine that does all by itself: it has no hosts for mdtest".into());
    }
    let factor = machine.cpu.factor.value * options.cpu_factor;
    let costs = match &machine.costs {
        Some(costs) => costs.table(factor),
        None => MeasuredCosts::parse(CPU_COSTS)?.table(factor),
    };
    let mut points = Vec::new();
    for tasks in &options.tasks {
        for (device, tier) in &machine.mdt {
            if *tasks == COMPARED_AT || DEVICES.contains(&&**device) {
                points.extend([true, false].map(|is_papers| (*tasks, device, tier, is_papers)));
            }
        }
    }
    let mut runs = Vec::new();
    for (step, (tasks, device, tier, is_papers)) in points.iter().enumerate() {
        let way = if *is_papers { "the paper's way" } else { "default" };
        say(&format!("{tasks} tasks, {device}, {way}"), step, points.len());
        let experiment = Experiment { machine, names, mds, costs: &costs, factor, is_papers: *is_papers };
        let each = options.files.div_ceil(*tasks);
        let sim = Sim::new(options.seed);
        let shown = sim.block_on(experiment.phases(&sim, tier, (*tasks, each)))?;
        runs.push(WallRun {
            device: (*device).clone(),
            is_papers: *is_papers,
            tasks: *tasks,
            hosts: hosts_of(machine, *tasks),
            files: tasks * each,
            entries: each.min(DIRECTORY_ENTRIES),
            rates: shown.rates,
            device_busy: shown.device_busy,
            open_shared_ms: shown.open_shared_ms,
        });
    }
    Ok(Wall { runs, thread_limit: thread_limit(&costs) })
}

/// Number of hosts for this many tasks.
fn hosts_of(machine: &Machine, tasks: u32) -> u32 {
    let (nodes, cores) = (machine.clients.nodes.count(), machine.clients.cores.count());
    if tasks <= nodes * cores { tasks.min(nodes) } else { tasks.div_ceil(cores) }
}

/// See [`Wall::thread_limit`].
fn thread_limit(costs: &CpuCosts) -> [f64; 6] {
    let us = |op: Op| costs.server.get(&(op as u16)).unwrap_or(&costs.other).fixed.as_secs_f64();
    let create = us(Op::Create) + us(Op::Close);
    [create, us(Op::Lookup), us(Op::Unlink), us(Op::Make), us(Op::Lookup), us(Op::Rmdir)].map(|seconds| 1.0 / seconds)
}

struct Experiment<'a> {
    machine: &'a Machine,
    names: &'a Names,
    mds: &'a Mds,
    costs: &'a CpuCosts,
    factor: f64,
    is_papers: bool,
}

/// The measured part of a [`WallRun`].
struct Shown {
    rates: [f64; 6],
    device_busy: [f64; 6],
    open_shared_ms: f64,
}

impl Experiment<'_> {
    fn mode(&self) -> Mode {
        mode(if self.is_papers { "async-internal" } else { "default" }).expect("a mode of the table")
    }

    /// `amount`: tasks, and files per task.
    async fn phases(&self, sim: &Sim, device: &TierSection, (tasks, files): (u32, u32)) -> Result<Shown, String> {
        let place = MdtPlace::On(device, self.mds);
        let site = Site::build(sim, self.machine, self.mode(), self.costs, place).await?;
        let mut hosts = Vec::new();
        // With one working host, a second one does the lookups.
        for number in 0..hosts_of(self.machine, tasks).max(2) {
            hosts.push(self.host(&site, number).await?);
        }
        let tasks = crew(&hosts, hosts_of(self.machine, tasks) as usize, tasks);
        let directories = files.div_ceil(DIRECTORY_ENTRIES);
        all(&tasks, |task| task.make_directories(directories)).await?;
        let (mut rates, mut device_busy) = ([0.0; 6], [0.0; 6]);
        for (number, _) in OPERATIONS.iter().enumerate() {
            let (begun, before) = (sim.now(), site.mdt_tier());
            let ended = all(&tasks, |task| task.phase(number, files)).await?;
            let seconds = ended.since(begun).as_secs_f64();
            rates[number] = f64::from(files) * tasks.len() as f64 / seconds;
            device_busy[number] = site.mdt_tier().since(&before).busy().as_secs_f64() / seconds;
        }
        all(&tasks[..1], Task::make_shared).await?;
        let begun = sim.now();
        let opened = all(&tasks, Task::open_shared).await?;
        let open_shared_ms = opened.since(begun).as_secs_f64() * 1e3;
        // A lost delayed directory operation is reported now.
        for host in &hosts {
            host.check().await?;
        }
        Ok(Shown { rates, device_busy, open_shared_ms })
    }

    async fn host(&self, site: &Site, number: u32) -> Result<Rc<Host>, String> {
        let node = site.add_node(self.machine, &format!("host{number}"), self.machine.clients.cores.count());
        let env = site.sim.env(node);
        let options = MountOptions { description: "mdtest".into(), ..MountOptions::new(vec![site.mgs.clone()]) };
        let client = Client::mount(&env, options).await.map_err(|e| e.to_string())?;
        let names = self.names;
        let turns = self.is_papers.then(|| Semaphore::new(names.changes_in_flight.count() as usize));
        let cost = |us: Duration| us.mul_f64(self.factor);
        Ok(Rc::new(Host {
            env,
            client,
            turns,
            change: Call { program: cost(names.change_program_us.us()), mount: cost(names.change_mount_us.us()) },
            look: Call { program: cost(names.look_program_us.us()), mount: cost(names.look_mount_us.us()) },
            failure: RefCell::default(),
        }))
    }
}

/// Runs something on all tasks and waits for them. Returns the time when the last one ended.
async fn all<F>(tasks: &[Task], what: impl Fn(Task) -> F) -> Result<Time, String>
where
    F: Future<Output = ClientResult<()>> + 'static,
{
    let barrier = Barrier::default();
    tasks.iter().for_each(|task| barrier.run(&task.host.env, what(task.clone())));
    barrier.all().await
}

/// `count` tasks, assigned in turn to the first `working` hosts.
fn crew(hosts: &[Rc<Host>], working: usize, count: u32) -> Vec<Task> {
    let own: Vec<Directories> = (0..count).map(|_| Directories::default()).collect();
    let of = |rank: usize| {
        let host = rank % working;
        // The next task on another host. With one host it is the task itself, whose files another host looks up.
        let others = (rank + 1..rank + own.len()).map(|other| other % own.len());
        let neighbour = others.into_iter().find(|other| other % working != host).unwrap_or(rank);
        let looker = if working == 1 { 1 } else { host };
        Task {
            host: hosts[host].clone(),
            looker: hosts[looker].clone(),
            rank,
            own: own[rank].clone(),
            neighbour: own[neighbour].clone(),
            files: Rc::default(),
        }
    };
    (0..own.len()).map(of).collect()
}

/// CPU time of a call besides its messages.
struct Call {
    program: Duration,
    mount: Duration,
}

/// A client node.
struct Host {
    env: Env,
    client: Client,
    /// Limits changes and opens in flight in the paper's mode, where each waits for its reply.
    turns: Option<Semaphore>,
    change: Call,
    look: Call,
    /// The first failure of a call that no task waited for.
    failure: RefCell<Option<String>>,
}

impl Host {
    /// The program has its own core; all programs share the mount's thread.
    async fn charge(&self, call: &Call) {
        self.env.sleep(call.program).await;
        self.env.charge_cpu(call.mount).await;
    }

    /// Changes a name in `dir`.
    async fn change(&self, dir: Fid, change: impl Future<Output = ClientResult<()>>) -> ClientResult<()> {
        self.charge(&self.change).await;
        let Some(turns) = &self.turns else { return change.await };
        let _mine = turns.acquire().await;
        change.await?;
        // Wait for a delayed directory operation too.
        self.client.settled(dir).await;
        Ok(())
    }

    /// open(2) with O_CREAT | O_EXCL, and close(2), which no task waits for.
    async fn create(self: &Rc<Self>, dir: Fid, name: &[u8]) -> ClientResult<()> {
        self.charge(&self.change).await;
        let (client, who) = (&self.client, caller());
        let open = OpenMode { exclusive: true, ..OpenMode::WRITE };
        let _mine = match &self.turns {
            Some(turns) => Some(turns.acquire().await),
            None => None,
        };
        let file = match &self.turns {
            Some(_) => client.create(&who, dir, name, 0o644, open, LayoutSpec::inherit()).await?.1.into(),
            None => client.create_pending(&who, dir, name, 0o644, open).await?.1,
        };
        let host = self.clone();
        drop(self.env.spawn(async move {
            let closed = match file.file().await {
                Ok(file) => host.client.close(file).await,
                Err(error) => Err(error),
            };
            if let Err(error) = closed {
                host.failure.borrow_mut().get_or_insert(error.to_string());
            }
        }));
        Ok(())
    }

    async fn stat(&self, dir: Fid, name: &[u8]) -> ClientResult<()> {
        self.charge(&self.look).await;
        self.client.lookup(&caller(), dir, name).await.map(drop)
    }

    /// Errors: a text, if anything was lost.
    async fn check(&self) -> Result<(), String> {
        self.client.sync_all().await.map_err(|error| error.to_string())?;
        self.failure.take().map_or(Ok(()), Err)
    }
}

type Directories = Rc<RefCell<Vec<Fid>>>;

/// A process of mdtest.
#[derive(Clone)]
struct Task {
    host: Rc<Host>,
    /// The host that does its lookups.
    looker: Rc<Host>,
    rank: usize,
    own: Directories,
    /// The directories that it looks up.
    neighbour: Directories,
    /// The files that it has open.
    files: Rc<RefCell<Vec<OpenFile>>>,
}

impl Task {
    async fn make_directories(self, count: u32) -> ClientResult<()> {
        for number in 0..count {
            let name = format!("mdtest.{}.{number}", self.rank);
            let made = self.host.client.mkdir(&caller(), Fid::ROOT, name.as_bytes(), 0o755).await?;
            self.own.borrow_mut().push(made.fid);
        }
        self.host.client.settled(Fid::ROOT).await;
        Ok(())
    }

    /// Runs one of [`OPERATIONS`] on each of its files or directories.
    async fn phase(self, operation: usize, files: u32) -> ClientResult<()> {
        let (host, client, who) = (&self.host, &self.host.client, caller());
        for number in 0..files {
            let place = (number / DIRECTORY_ENTRIES) as usize;
            let (own, next) = (self.own.borrow()[place], self.neighbour.borrow()[place]);
            let name = format!("{}.{number}", if operation < 3 { "file" } else { "dir" });
            let name = name.as_bytes();
            match operation {
                0 => host.create(own, name).await?,
                1 | 4 => self.looker.stat(next, name).await?,
                2 => host.change(own, client.unlink(&who, own, name)).await?,
                3 => host.change(own, async { client.mkdir(&who, own, name, 0o755).await.map(drop) }).await?,
                _ => host.change(own, client.rmdir(&who, own, name)).await?,
            }
        }
        let own = self.own.borrow().clone();
        for dir in own {
            client.settled(dir).await;
        }
        Ok(())
    }

    async fn make_shared(self) -> ClientResult<()> {
        let (client, open) = (&self.host.client, OpenMode::WRITE);
        let (_, file) = client.create(&caller(), Fid::ROOT, SHARED, 0o644, open, LayoutSpec::inherit()).await?;
        client.close(file).await
    }

    /// The file stays open.
    async fn open_shared(self) -> ClientResult<()> {
        let (host, client) = (&self.host, &self.host.client);
        host.charge(&host.look).await;
        let _mine = match &host.turns {
            Some(turns) => Some(turns.acquire().await),
            None => None,
        };
        let found = client.lookup(&caller(), Fid::ROOT, SHARED).await?;
        let file = client.open(&caller(), found.fid, OpenMode::READ_WRITE).await?;
        self.files.borrow_mut().push(file);
        Ok(())
    }
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WALL;

    fn run(set: &[(&str, f64)], tasks: u32, files: u32) -> Wall {
        let mut machine = Machine::parse(WALL).expect("the machine of the paper");
        for (name, value) in set {
            machine.set(name, *value).expect("a parameter");
        }
        let options = WallOptions { seed: 1, tasks: vec![tasks], files, cpu_factor: 1.0 };
        wall(&machine, &options, &mut |_, _, _| {}).expect("it runs")
    }

    const CHANGES: [usize; 4] = [0, 2, 3, 5];

    #[test]
    fn no_change_is_made_faster_than_the_thread_that_makes_it_can() {
        let wall = run(&[], 64, 3200);
        assert_eq!(wall.runs.len(), 6, "three devices, two ways");
        for run in &wall.runs {
            for number in CHANGES {
                let (rate, limit) = (run.rates[number], wall.thread_limit[number]);
                assert!(rate > 0.02 * limit && rate <= 1.01 * limit, "{number}: {rate} of {limit}, {run:?}");
            }
        }
    }

    #[test]
    fn a_slow_disk_shows_only_where_it_is_waited_for() {
        let rates = |interval| {
            let wall = run(&[("journal.interval_s", interval)], 64, 3200);
            ["sata", "ssd"].map(|device| wall.run(device, true, 64).expect("it was run").clone())
        };
        let [sata, ssd] = rates(5.0);
        let [busy_sata, busy_ssd] = rates(0.01);
        for number in CHANGES {
            assert!(sata.rates[number] > 0.9 * ssd.rates[number], "{number}: {sata:?} {ssd:?}");
            let busy = (busy_sata.device_busy[number], busy_ssd.device_busy[number]);
            assert!(busy.0 > 0.3 && busy.0 > 4.0 * busy.1, "{number}: {busy:?}");
        }
    }

    #[test]
    fn a_machine_without_what_it_takes_is_refused() {
        let mut machine = Machine::parse(WALL).expect("the machine of the paper");
        machine.names = None;
        let options = WallOptions { seed: 1, tasks: vec![1], files: 1, cpu_factor: 1.0 };
        assert!(wall(&machine, &options, &mut |_, _, _| {}).expect_err("refused").contains("[names]"));
    }
}
