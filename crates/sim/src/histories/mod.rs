//! Histories: the workers of several clients use the same names, bytes and locks while servers and clients die. Some
//! order must explain every answer (crate `history`).
//!
//! Invariant: nothing that was acknowledged may be lost here, so a client and a server never die together. What a lost
//! client left is committed before the next fault (`Run::settle`). `disaster` covers the other cases.
//! Invariant: only a client that was cut off for long may get an error; then it is replaced.

mod actor;
mod kernel;
mod stage;
mod trouble;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use forebay_client::{Client, CommitLevel};
use forebay_env::{
    Time,
    sim::{NodeId, Sim},
};
use forebay_history::{Ask, Event, Kind, Player, Summary, file, judge, lock, log, names};
use forebay_proto::{Fid, limits::LEASE_TERM};

use crate::{
    Cluster, ClusterOptions,
    faults::{kill_and_boot, random_ms},
    setup::{draw_level, slow_down},
    tls,
};
use actor::{Actor, Notes, Stop};
use kernel::Kernel;
use stage::Stage;
use trouble::Trouble;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct HistoryOptions {
    /// Number of clients.
    pub clients: usize,
    /// Workers per client.
    pub workers: usize,
    /// Number of rounds, each on new names and files.
    pub rounds: u64,
    /// Operations per worker and round.
    pub operations: u64,
    /// Print the trace.
    pub trace: bool,
}

impl HistoryOptions {
    /// The parameters for a seed: two to eight clients, and the same total of operations for every seed.
    pub fn of_seed(seed: u64) -> Self {
        let (clients, workers) = CREWS[(seed % CREWS.len() as u64) as usize];
        let operations = OPERATIONS.div_ceil((clients * workers) as u64);
        Self { clients, workers, rounds: 6, operations, trace: false }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryReport {
    /// The seed.
    pub seed: u64,
    /// What the histories contained.
    pub summary: Summary,
    /// Byte-range write leases granted to clients that write the same file.
    pub shares: u64,
    /// Number of faults by kind.
    pub faults: BTreeMap<Trouble, u64>,
    /// Hash of the trace: equal for equal seeds.
    pub trace_hash: u64,
    /// Virtual time at the end.
    pub virtual_time: Duration,
}

/// Numbers of clients, with workers per client.
const CREWS: [(usize, usize); 8] = [(3, 2), (2, 3), (4, 2), (3, 2), (8, 1), (5, 1), (6, 1), (7, 1)];
/// Operations of all workers together in a round.
const OPERATIONS: u64 = 336;
/// A round must complete this long (virtual) after the last fault.
const HEALED_TIME: Duration = Duration::from_secs(600);
/// Longest wait between two faults, in virtual milliseconds.
const FAULT_GAP_MS: u64 = 400;
/// Longest pause of a worker between two operations, in virtual microseconds.
const PAUSE_US: u64 = 120_000;
/// Longer than a target keeps a silent session.
const EVICTION_TIME: Duration = Duration::from_secs(75);
/// By then the last requests of a dead client have arrived, or never will.
const ARRIVAL_TIME: Duration = Duration::from_secs(1);
/// Longer than a delayed directory operation is in flight while the MDT serves.
const UNDER_WAY: Duration = Duration::from_millis(200);
/// Most faults in a round, so that a round with long waits ends too.
const FAULTS_PER_ROUND: u64 = 12;

/// Runs one seed. Errors: what no order explains, with what repeats it.
pub fn run_history(seed: u64, options: &HistoryOptions) -> Result<HistoryReport, String> {
    let sim = Sim::new(seed);
    sim.set_trace(options.trace);
    let servers = tls::draw(&sim);
    let run = Run::new(&sim, options);
    servers.into_iter().for_each(|network| sim.set_network_of_new_nodes(network));
    sim.block_on(run.whole()).map_err(|error| {
        format!("seed {seed}: {error}\nrepeat it: cargo run --release -p xtask -- seed {seed} --of histories --trace")
    })
}

/// A client's node and its workers.
struct Station {
    node: NodeId,
    level: CommitLevel,
    /// Its workers are programs above a kernel, not users of the library.
    has_kernel: bool,
    workers: Vec<Worker>,
    /// The client was cut off for so long that its calls may fail.
    may_fail: Rc<Cell<bool>>,
    /// A call failed: the client must be replaced.
    broken: Rc<Cell<bool>>,
    /// Stays mounted when its workers are done, as everything that the client was acknowledged must survive.
    client: Rc<RefCell<Option<Client>>>,
    /// When the client was cut off, if it was.
    cut_off: Cell<Option<Time>>,
}

/// The part of a worker that outlives its client.
#[derive(Clone)]
struct Worker {
    number: u32,
    player: Rc<RefCell<Player>>,
    /// Operations to do in this round.
    left: Rc<Cell<u64>>,
    done: Rc<Cell<bool>>,
}

struct Run {
    sim: Sim,
    options: HistoryOptions,
    stations: Vec<Station>,
    counts: RefCell<BTreeMap<Trouble, u64>>,
    failure: Rc<RefCell<Option<String>>>,
    shares: Rc<Cell<u64>>,
}

impl Run {
    fn new(sim: &Sim, options: &HistoryOptions) -> Self {
        let all = (options.clients * options.workers) as u32;
        let worker = |number: u32| Worker {
            number,
            player: Rc::new(RefCell::new(Player::new(sim.random_u64(), number, &Kind::usual(all), true))),
            left: Rc::default(),
            done: Rc::default(),
        };
        let stations = (0..options.clients).map(|station| Station {
            node: sim.add_node(&format!("client{station}")),
            level: draw_level(sim),
            has_kernel: sim.chance(0.7),
            workers: (0..options.workers).map(|w| worker((station * options.workers + w) as u32)).collect(),
            may_fail: Rc::default(),
            broken: Rc::default(),
            client: Rc::default(),
            cut_off: Cell::default(),
        });
        let stations = stations.collect();
        Self {
            sim: sim.clone(),
            options: options.clone(),
            stations,
            counts: RefCell::default(),
            failure: Rc::default(),
            shares: Rc::default(),
        }
    }

    async fn whole(&self) -> Result<HistoryReport, String> {
        let usual = ClusterOptions::default();
        let write_back_bytes = if self.sim.seed().is_multiple_of(4) { 0 } else { usual.write_back_bytes };
        let cluster =
            Cluster::format(&self.sim, ClusterOptions { write_back_bytes, ..usual }.for_seed(self.sim.seed())).await;
        if self.sim.chance(0.3) {
            slow_down(&cluster);
        }
        cluster.boot_all();
        // The auditor makes the stage, commits what lost clients leave, and audits. No fault hits it.
        let auditor = self.sim.add_node("auditor");
        let client = cluster.mount(auditor, CommitLevel::Data).await.map_err(|error| format!("mount: {error}"))?;
        let mut summary = Summary::default();
        for round in 0..self.options.rounds {
            let all = (self.options.clients * self.options.workers) as u32;
            let stage =
                Stage::make(&client, round, Kind::usual(all)).await.map_err(|error| format!("stage: {error}"))?;
            let (stage, notes) = (Rc::new(stage), Notes::default());
            self.play(&cluster, &client, &stage, &notes).await.map_err(|error| format!("round {round}: {error}"))?;
            let mut look = self.actor(auditor, &client, &stage, &notes);
            self.audit(&mut look).await.map_err(|error| format!("round {round}, at its end: {error}"))?;
            if round + 1 == self.options.rounds {
                self.lose_power(&cluster, &client).await?;
                self.audit(&mut look).await.map_err(|error| format!("after all servers lost power: {error}"))?;
            }
            let judged = judge(&stage.kinds, &notes.borrow());
            summary.add(&judged.map_err(|error| format!("round {round}: {error}"))?);
        }
        let (seed, trace_hash) = (self.sim.seed(), self.sim.trace_hash());
        let virtual_time = Duration::from_nanos(self.sim.now().0);
        let (shares, faults) = (self.shares.get(), self.counts.borrow().clone());
        Ok(HistoryReport { seed, summary, shares, faults, trace_hash, virtual_time })
    }

    fn actor(&self, node: NodeId, client: &Client, stage: &Rc<Stage>, notes: &Notes) -> Actor {
        let (env, client, notes, stage) = (self.sim.env(node), client.clone(), notes.clone(), stage.clone());
        let worker = (self.options.clients * self.options.workers) as u32;
        Actor { env, client, kernel: None, notes, stage, worker, keeps_back: false, open: Default::default() }
    }

    /// Plays one round with faults, until every worker is done.
    async fn play(&self, cluster: &Cluster, client: &Client, stage: &Rc<Stage>, notes: &Notes) -> Result<(), String> {
        for station in &self.stations {
            for worker in &station.workers {
                worker.left.set(self.options.operations);
            }
            self.start(cluster, station, stage, notes);
        }
        let (mut faults, mut healed) = (0, None);
        while !self.all_done() {
            self.sim.sleep(random_ms(cluster, FAULT_GAP_MS)).await;
            self.check(cluster)?;
            for station in self.stations.iter().filter(|station| station.broken.get()) {
                self.replace(cluster, client, station, stage, notes).await?;
            }
            if faults < FAULTS_PER_ROUND {
                let kind = Trouble::draw(&self.sim);
                self.sim.env(self.stations[0].node).log(&format!("fault {kind:?}"));
                self.cause(cluster, client, kind, stage, notes).await?;
                *self.counts.borrow_mut().entry(kind).or_default() += 1;
                faults += 1;
            } else if self.sim.now() > *healed.get_or_insert(self.sim.now() + HEALED_TIME) {
                return Err(format!("not complete {HEALED_TIME:?} after the last fault"));
            }
        }
        self.check(cluster)?;
        // A client that may have been evicted would get the error in the next round.
        for station in self.stations.iter().filter(|station| station.may_fail.get()) {
            self.replace(cluster, client, station, stage, notes).await?;
        }
        Ok(())
    }

    /// Starts a client, and its workers where they stopped.
    fn start(&self, cluster: &Cluster, station: &Station, stage: &Rc<Stage>, notes: &Notes) {
        let env = self.sim.env(station.node);
        let options = cluster.mount_options(station.node, station.level);
        let keeps_back = options.write_back_bytes > 0 && station.level != CommitLevel::Commit;
        let (workers, stage, notes) = (station.workers.clone(), stage.clone(), notes.clone());
        let (failure, may_fail, broken) = (self.failure.clone(), station.may_fail.clone(), station.broken.clone());
        workers.iter().for_each(|worker| worker.done.set(false));
        let (mounted, above, shares) = (station.client.clone(), station.has_kernel, self.shares.clone());
        let begins = (workers.len() * self.stations.len()) as u32;
        let begins = workers.iter().all(|worker| worker.left.get() == self.options.operations).then_some(begins);
        env.clone().spawn(async move {
            let last = mounted.borrow().clone();
            let client = match last {
                Some(client) => client,
                None => match Client::mount(&env, options).await {
                    Ok(client) => client,
                    Err(_) if may_fail.get() => return broken.set(true),
                    Err(error) => return note(&failure, format!("mount: {error}")),
                },
            };
            *mounted.borrow_mut() = Some(client.clone());
            let kernel = above.then(|| Kernel::new(&env, &client));
            for worker in workers {
                let (env, client, notes, stage) = (env.clone(), client.clone(), notes.clone(), stage.clone());
                let kernel = kernel.clone();
                let (failure, may_fail, broken) = (failure.clone(), may_fail.clone(), broken.clone());
                let shares = shares.clone();
                let shard = env.clone();
                shard.spawn(async move {
                    let open = Default::default();
                    let number = worker.number;
                    let mut actor = Actor { env, client, kernel, notes, stage, worker: number, keeps_back, open };
                    let before = actor.client.stats().shares;
                    let worked = match begins {
                        Some(workers) => write_in_turn(&mut actor, &worker, workers).await,
                        None => Ok(()),
                    };
                    if worker.number % 2 == 0 {
                        shares.set(shares.get() + actor.client.stats().shares - before);
                    }
                    let worked = match worked {
                        Ok(()) => work(&mut actor, &worker).await,
                        failed => failed,
                    };
                    match worked {
                        Ok(()) => worker.done.set(true),
                        Err(Stop::Failed(_)) if may_fail.get() => broken.set(true),
                        Err(stop) => note(&failure, format!("worker {}: {stop}", worker.number)),
                    }
                });
            }
        });
    }

    async fn cause(
        &self,
        cluster: &Cluster,
        client: &Client,
        kind: Trouble,
        stage: &Rc<Stage>,
        notes: &Notes,
    ) -> Result<(), String> {
        let sim = &self.sim;
        let station = &self.stations[sim.random_below(self.stations.len() as u64) as usize];
        match kind {
            Trouble::ClientKilled => self.replace(cluster, client, station, stage, notes).await,
            Trouble::ClientEvicted => {
                self.wait_until_serving(cluster).await?;
                let all = 0..cluster.servers.len();
                let any = sim.random_below(all.len() as u64) as usize;
                let servers = &cluster.servers[if sim.chance(0.5) { any..any + 1 } else { all }];
                station.may_fail.set(true);
                station.cut_off.set(Some(sim.now()));
                self.lose(stage, notes);
                servers.iter().for_each(|server| sim.cut_both(station.node, server.node));
                sim.sleep(EVICTION_TIME).await;
                servers.iter().for_each(|server| sim.heal(station.node, server.node));
                self.settle(client).await
            }
            kind => {
                kind.happen(cluster, station.node).await;
                Ok(())
            }
        }
    }

    /// Ends a client, if it is alive, and starts another.
    async fn replace(
        &self,
        cluster: &Cluster,
        client: &Client,
        station: &Station,
        stage: &Rc<Stage>,
        notes: &Notes,
    ) -> Result<(), String> {
        self.wait_until_serving(cluster).await?;
        self.lose(stage, notes);
        if cluster.options.write_back_bytes > 0 {
            self.doubt(station, notes);
        }
        self.doubt_names(station, stage, notes, station.cut_off.take());
        self.sim.crash(station.node);
        drop(station.client.take());
        station.may_fail.set(false);
        station.broken.set(false);
        self.settle(client).await?;
        if !self.all_done() || station.workers.iter().any(|worker| worker.left.get() > 0) {
            self.start(cluster, station, stage, notes);
        }
        Ok(())
    }

    /// A client is about to go. Until it is fenced, everything it had open for writing counts as locked: after a
    /// restart the MDT does not know which locks the client held.
    fn lose(&self, stage: &Stage, notes: &Notes) {
        let (worker, begun) = (u32::MAX, self.sim.now().0);
        let locks = stage.kinds.iter().enumerate().filter(|(_, kind)| **kind == Kind::Locks);
        for (object, flock) in locks.flat_map(|(object, _)| [(object as u32, false), (object as u32, true)]) {
            let ranges = (0, lock::RANGES - 1);
            let all = lock::Ask { flock, ranges, exclusive: true, wait: true, hold_us: 0 };
            let ask = Ask::Lock(all, None);
            notes.borrow_mut().push(Event { object, worker, begun, ended: u64::MAX, ask });
        }
    }

    /// A client goes: it may have buffered the last writes and appends of its workers. Any other operation on a file
    /// flushes them first.
    fn doubt(&self, station: &Station, notes: &Notes) {
        let numbers: Vec<u32> = station.workers.iter().map(|worker| worker.number).collect();
        // A client that was cut off for long may have lost writes earlier. Then only operations through the same
        // worker's open handle prove that writes were flushed.
        let cut_off = station.may_fail.get();
        let mut sent: BTreeMap<(u32, Option<u32>), u64> = BTreeMap::new();
        for event in notes.borrow_mut().iter_mut().rev().filter(|event| numbers.contains(&event.worker)) {
            // The same request without its answer, if the client may have buffered it.
            let kept = match &event.ask {
                Ask::Bytes(ask @ (file::Ask::Write { .. } | file::Ask::Append { .. }), Some(_)) => {
                    Some(Ask::Bytes(ask.clone(), None))
                }
                Ask::Log(ask @ log::Ask::Append { .. }, Some(_)) => Some(Ask::Log(ask.clone(), None)),
                Ask::Bytes(file::Ask::Truncate(_) | file::Ask::Size, Some(_)) | Ask::Log(log::Ask::Size, Some(_))
                    if cut_off =>
                {
                    continue;
                }
                Ask::Bytes(_, Some(_)) | Ask::Log(_, Some(_)) => None,
                _ => continue,
            };
            let whose = (event.object, cut_off.then_some(event.worker));
            match kept {
                Some(ask) if sent.get(&whose).is_none_or(|begun| event.ended > *begun) => {
                    (event.ended, event.ask) = (u64::MAX, ask);
                }
                Some(_) => {}
                None => {
                    let latest = sent.entry(whose).or_default();
                    *latest = (*latest).max(event.begun);
                }
            }
        }
    }

    /// The same for names: exactly those delayed directory operations that the MDT has not executed yet. `cut_off`:
    /// when the client was cut off; then operations around that time may be lost too.
    fn doubt_names(&self, station: &Station, stage: &Stage, notes: &Notes, cut_off: Option<Time>) {
        let numbers: Vec<u32> = station.workers.iter().map(|worker| worker.number).collect();
        let mut under_way: BTreeSet<(Fid, Bytes)> =
            station.client.borrow().iter().flat_map(|client| client.delayed_entries()).collect();
        for event in notes.borrow_mut().iter_mut().rev().filter(|event| numbers.contains(&event.worker)) {
            let Ask::Name(ask @ (names::Ask::Create(_) | names::Ask::Unlink(_)), Some(answer)) = &event.ask else {
                continue;
            };
            if matches!(answer, names::Answer::Absent | names::Answer::Exists) {
                continue;
            }
            let while_cut_off = cut_off.is_some_and(|since| {
                let (ended, since) = (Time(event.ended), Time(since.0.saturating_sub(UNDER_WAY.as_nanos() as u64)));
                since <= ended && ended <= since + UNDER_WAY + LEASE_TERM
            });
            let (names::Ask::Create(name) | names::Ask::Unlink(name)) = ask else { continue };
            let is_under_way = under_way.remove(&(stage.fids[event.object as usize], actor::text(name).into()));
            if is_under_way || while_cut_off {
                event.ended = u64::MAX;
                event.ask = Ask::Name(ask.clone(), None);
            }
        }
    }

    /// Waits until the last requests of lost clients have arrived, and commits everything that they were acknowledged.
    async fn settle(&self, client: &Client) -> Result<(), String> {
        self.sim.sleep(ARRIVAL_TIME).await;
        client.sync_all().await.map_err(|error| format!("sync: {error}"))
    }

    async fn wait_until_serving(&self, cluster: &Cluster) -> Result<(), String> {
        for _ in 0..3000 {
            if cluster.is_serving() {
                return Ok(());
            }
            self.sim.sleep(Duration::from_millis(20)).await;
        }
        Err("the servers do not serve a minute after their start".into())
    }

    async fn audit(&self, look: &mut Actor) -> Result<(), String> {
        let (env, kinds) = (look.env.clone(), look.stage.kinds.clone());
        let player = RefCell::new(Player::new(0, look.worker, &kinds, false));
        match env.timeout(HEALED_TIME, look.audit(&player)).await {
            Ok(looked) => looked.map_err(|stop| stop.to_string()),
            Err(_) => Err(format!("the audit does not end within {HEALED_TIME:?}")),
        }
    }

    async fn lose_power(&self, cluster: &Cluster, client: &Client) -> Result<(), String> {
        client.sync_all().await.map_err(|error| format!("sync: {error}"))?;
        for station in &self.stations {
            self.sim.crash(station.node);
            drop(station.client.take());
        }
        kill_and_boot(cluster, 0..cluster.servers.len(), true).await;
        Ok(())
    }

    fn all_done(&self) -> bool {
        self.stations.iter().flat_map(|station| &station.workers).all(|worker| worker.done.get())
    }

    fn check(&self, cluster: &Cluster) -> Result<(), String> {
        let trouble = cluster.troubles.borrow().first().map(|trouble| format!("a server did not start: {trouble}"));
        let failure = self.failure.borrow().clone();
        failure.or(trouble).map_or(Ok(()), Err)
    }
}

/// All workers write interleaved records to one file, so that their clients share it, whatever happens to them
/// meanwhile.
async fn write_in_turn(actor: &mut Actor, worker: &Worker, workers: u32) -> Result<(), Stop> {
    let run = worker.player.borrow_mut().run(workers);
    for (object, ask) in run {
        let pause_us = 5000 + worker.player.borrow_mut().pause_us(PAUSE_US);
        actor.env.sleep(Duration::from_micros(pause_us)).await;
        actor.run_kept_open(object, ask).await?;
    }
    Ok(())
}

async fn work(actor: &mut Actor, worker: &Worker) -> Result<(), Stop> {
    while worker.left.get() > 0 {
        worker.left.set(worker.left.get() - 1);
        let pause_us = worker.player.borrow_mut().pause_us(PAUSE_US);
        actor.env.sleep(Duration::from_micros(pause_us)).await;
        let (object, ask) = worker.player.borrow_mut().draw();
        actor.run(object, ask, &worker.player).await?;
    }
    actor.finish().await
}

fn note(failure: &Rc<RefCell<Option<String>>>, what: String) {
    failure.borrow_mut().get_or_insert(what);
}
