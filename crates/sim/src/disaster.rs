//! One run of a seed: a cluster, workers and faults. Then all faults end, all operations must complete, and the files
//! are compared with the model.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    future::poll_fn,
    ops::Range,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use forebay_client::{Client, CommitLevel};
use forebay_env::{
    Env,
    sim::{NodeId, Sim},
};
use forebay_fsck::{CheckOptions, ClusterOptions, Quiet, Severity};
use forebay_proto::Errno;

use crate::{
    Cluster,
    cluster::{self, STORE_DIR, Targets, data_path, journal_path},
    damage::{Damage, DamageCounts},
    disks,
    faults::{self, Befalls, Counts, Kind},
    links::{self, Worse},
    mirror::{self, Copies},
    moments::{self, Hits, Moment, RARE},
    setup::{Setup, draw_level, slow_down},
    stop::{Excuses, Stop, judge},
    tls,
    verify::verify,
    victims::Victims,
    workload::{LATER, Runner, Shared, Worker},
};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct DisasterOptions {
    /// Total operations of all workers, at least.
    pub operations: u64,
    /// Number of faults, at least.
    pub faults: u64,
    /// Number of clients.
    pub clients: usize,
    /// Workers per client.
    pub workers: usize,
    /// Some runs have an MDT or journals that are too small.
    pub small_metadata: bool,
    /// The MDT is mirrored, and its copies fail one at a time: no program may notice.
    pub mirror: bool,
    /// Print the trace.
    pub trace: bool,
}

impl Default for DisasterOptions {
    fn default() -> Self {
        Self { operations: 2000, faults: 5, clients: 2, workers: 2, small_metadata: true, mirror: false, trace: false }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Operations that completed.
    pub operations: u64,
    /// Of these, operations refused with ENOSPC.
    pub refused: u64,
    /// Of these, operations that returned EIO.
    pub failed: u64,
    /// What was damaged on disks, and what of it was reported.
    pub damage: DamageCounts,
    /// How often a target evicted a client that was alive, and how often a program got an error for it.
    pub evictions: (u64, u64),
    /// Number of faults by kind.
    pub faults: Counts,
    /// In which states the faults met servers and clients.
    pub hits: Hits,
    /// Hash of the trace: equal for equal seeds.
    pub trace_hash: u64,
    /// Virtual time at the end.
    pub virtual_time: Duration,
}

/// Virtual time after the last fault within which everything must complete.
const HEALED_TIME: Duration = Duration::from_secs(600);
/// Virtual time in which sessions end, logs drain and the collection runs.
const QUIESCE_TIME: Duration = Duration::from_secs(300);
/// Longest wait between two faults, in virtual milliseconds.
const FAULT_GAP_MS: u64 = 900;
/// The same while the programs are busy.
const BUSY_GAP_MS: u64 = 40;
/// How long a fault waits at most for all servers to recover. A recovering server waits longer than this for a client
/// that is gone.
const SERVING_TERM: Duration = Duration::from_secs(25);

/// One fault in this many waits for a state that random faults seldom meet. The second number is for device faults,
/// which occur in few runs.
const AIMED: [u64; 2] = [8, 1];
/// How long a target stays stopped at most before another fault comes.
const STOPPED_MS: u64 = 400;
/// How long a request waits at most for something that a dead client holds.
const LAST_REQUESTS_TERM: Duration = Duration::from_secs(60);
/// How long an aimed fault waits, in virtual time, before it comes regardless of the state.
const AIM_TERM: Duration = Duration::from_secs(1);
/// Polling interval of an aimed fault, and the one while all candidate servers replay, so that nothing changes soon.
const AIM_LOOKS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(2)];

/// One client's node and what runs on it.
struct Station {
    node: NodeId,
    workers: Vec<Shared>,
    level: CommitLevel,
    /// The first failure of the client or its workers.
    failure: Rc<RefCell<Option<String>>>,
    done: Rc<RefCell<usize>>,
    /// The client died before the reply to a change of files.
    in_execution: Cell<bool>,
    /// The client knew when it died that the MDT had evicted it, and continued as a new client instance. Not verified
    /// since then.
    began_anew: Rc<Cell<bool>>,
    /// The client was evicted, and a call of its workers failed for that: it must be replaced.
    evicted: Rc<Cell<bool>>,
    /// Stays mounted when its workers are done, as everything that the client was acknowledged must survive.
    client: Rc<RefCell<Option<Client>>>,
}

/// Runs one seed. Errors: what broke a promise, with the command that repeats the run.
pub fn run_seed(seed: u64, options: &DisasterOptions) -> Result<Report, String> {
    let sim = Sim::new(seed);
    sim.set_trace(options.trace);
    let servers = tls::draw(&sim);
    let run = Run::new(&sim, options);
    servers.into_iter().for_each(|network| sim.set_network_of_new_nodes(network));
    let outcome = sim.block_on(run.whole());
    outcome.map_err(|e| {
        let of = if options.mirror { " --of mirror" } else { "" };
        format!("seed {seed}: {e}\nrepeat it: cargo run --release -p xtask -- seed {seed}{of} --trace")
    })
}

struct Run {
    sim: Sim,
    options: DisasterOptions,
    stations: Vec<Station>,
    counts: RefCell<Counts>,
    hits: RefCell<Hits>,
    setup: Setup,
    copies: Copies,
    damage: Damage,
    evictions: Cell<u64>,
    told_evictions: Cell<u64>,
}

impl Run {
    fn new(sim: &Sim, options: &DisasterOptions) -> Self {
        let damage = Damage::default();
        let stations = (0..options.clients)
            .map(|number| Station {
                node: sim.add_node(&format!("client{number}")),
                workers: (0..options.workers)
                    .map(|w| Worker::new(format!("w{number}_{w}"), sim.random_u64(), &damage))
                    .collect(),
                level: draw_level(sim),
                failure: Rc::default(),
                done: Rc::default(),
                evicted: Rc::default(),
                in_execution: Cell::default(),
                began_anew: Rc::default(),
                client: Rc::default(),
            })
            .collect();
        let setup = Setup::draw(sim, options.small_metadata);
        // With a mirrored MDT no program may notice a failing disk, so no run has faults that excuse errors.
        let (failing, rotting) = (setup.failing && !options.mirror, setup.rotting && !options.mirror);
        let setup = Setup { failing, rotting, evicting: setup.evicting && !options.mirror, ..setup };
        let (counts, hits, copies, evictions, told_evictions) = Default::default();
        Self {
            sim: sim.clone(),
            options: options.clone(),
            stations,
            counts,
            hits,
            setup,
            copies,
            damage,
            evictions,
            told_evictions,
        }
    }

    async fn whole(&self) -> Result<Report, String> {
        let options = cluster::ClusterOptions { mdt_mirror: self.options.mirror, ..self.setup.options(&self.sim) };
        let options = options.for_seed(self.sim.seed());
        let cluster = Cluster::format(&self.sim, options).await;
        if self.setup.slow_osts {
            slow_down(&cluster);
        }
        cluster.boot_all();
        for station in &self.stations {
            self.start(&cluster, station, None);
        }
        self.disasters(&cluster).await?;
        self.heal(&cluster).await?;
        if self.options.mirror {
            self.copies.heal(&cluster).await?;
        }
        self.compare(&cluster).await?;
        if self.options.mirror {
            self.audit_each_copy(&cluster).await?;
        }
        Ok(self.report())
    }

    /// Starts a client and its workers. After a crash of the client they first verify what is left. `died`: the number
    /// of server deaths at the time of that crash.
    fn start(&self, cluster: &Cluster, station: &Station, died: Option<u64>) {
        let everybody: Vec<Shared> = self.stations.iter().flat_map(|s| s.workers.iter().cloned()).collect();
        let share = self.options.operations / everybody.len() as u64 + 1;
        let (sim, node, level, setup) = (self.sim.clone(), station.node, station.level, self.setup);
        let (workers, failure, done) = (station.workers.clone(), station.failure.clone(), station.done.clone());
        let (failed, targets, in_execution) = (failure.clone(), cluster.targets.clone(), station.in_execution.take());
        let began_anew = station.began_anew.clone();
        *done.borrow_mut() = 0;
        let (mounted, evicted) = (station.client.clone(), station.evicted.clone());
        let (env, deaths) = (sim.env(node), cluster.deaths.clone());
        let options = cluster.mount_options(node, level);
        let stop_at = move |client: &Client, stop: Stop| match setup.evicting && stop.tells_eviction(client) {
            true => evicted.set(true),
            false => note(&failure, stop.to_string()),
        };
        env.clone().spawn(async move {
            let client = loop {
                match Client::mount(&env, options.clone()).await {
                    Ok(client) => break client,
                    Err(e) if (setup.failing || setup.evicting) && e.errno == Errno::EIO => env.sleep(LATER).await,
                    Err(e) => return note(&failed, format!("mount: {e}")),
                }
            };
            *mounted.borrow_mut() = Some(client.clone());
            if let Some(died) = died {
                if in_execution {
                    wait_for_last_requests(&env, &targets).await;
                }
                for worker in &workers {
                    if began_anew.get() {
                        worker.borrow_mut().names.last_change_may_stand_alone();
                    }
                    while let Err(stop) = verify(&client, worker, true, setup.excuses()).await {
                        match stop {
                            Stop::Excused => env.sleep(LATER).await,
                            Stop::Wrong(_) | Stop::Names(_)
                                if deaths.get() > died && worker.borrow_mut().look_loosely() => {}
                            stop => return stop_at(&client, stop.at("after the client's crash")),
                        }
                    }
                    worker.borrow_mut().seen();
                }
                began_anew.set(false);
            }
            for worker in &workers {
                let (client, me, others) = (client.clone(), worker.clone(), everybody.clone());
                let (stop_at, done) = (stop_at.clone(), done.clone());
                let shard = env.clone();
                env.spawn(async move {
                    match work(&shard, client.clone(), me, others, share, setup).await {
                        Ok(()) => *done.borrow_mut() += 1,
                        Err(stop) => stop_at(&client, told_of(&client, stop, setup).await),
                    }
                });
            }
        });
    }

    async fn disasters(&self, cluster: &Cluster) -> Result<(), String> {
        let mut faults = 0;
        while faults < self.options.faults || !self.all_done() {
            let kind = faults::draw(cluster, &self.setup);
            let is_aimed = self.sim.random_below(AIMED[usize::from(kind.is_of_devices())]) == 0;
            if !is_aimed {
                self.let_go_on(cluster).await;
            }
            self.replace_evicted(cluster);
            self.check_failures(cluster)?;
            if faults >= self.options.faults * 40 {
                return Ok(());
            }
            let mut victims = self.draw_victims(cluster);
            if is_aimed {
                let states = match kind.befalls() {
                    Befalls::Mdt => &RARE[..RARE.len() - 1],
                    Befalls::Client => &[Moment::Answered],
                    _ => &RARE[..],
                };
                let state = states[self.sim.random_below(states.len() as u64) as usize];
                self.aim(cluster, kind, state, &mut victims).await;
            }
            self.cause(cluster, kind, &victims).await;
            faults += 1;
        }
        Ok(())
    }

    /// Waits before the next fault. Half of the time it waits until all servers have recovered and the programs are
    /// busy again.
    async fn let_go_on(&self, cluster: &Cluster) {
        if self.sim.chance(0.5) {
            return self.sim.sleep(faults::random_ms(cluster, FAULT_GAP_MS)).await;
        }
        let end = self.sim.now() + SERVING_TERM;
        while self.sim.now() < end && !cluster.is_serving() && !self.all_done() {
            self.sim.sleep(AIM_LOOKS[1]).await;
        }
        self.sim.sleep(faults::random_ms(cluster, BUSY_GAP_MS)).await;
    }

    fn draw_victims(&self, cluster: &Cluster) -> Victims {
        Victims::draw(cluster, self.stations.len())
    }

    /// Waits until a possible victim of the fault is in the given state, and selects it.
    async fn aim(&self, cluster: &Cluster, kind: Kind, moment: Moment, victims: &mut Victims) {
        let end = self.sim.now() + AIM_TERM;
        while self.sim.now() < end && !self.all_done() {
            if moment == Moment::Answered {
                let answered = |station: &Station| {
                    station.client.borrow().as_ref().is_some_and(|client| client.stats().delayed_entries > 0)
                };
                if let Some(client) = self.stations.iter().position(answered) {
                    victims.client = client;
                    return;
                }
            }
            let mut looks = if moment == Moment::Reclaiming { AIM_LOOKS[0] * 2 } else { AIM_LOOKS[1] };
            for server in Victims::candidates(kind, cluster) {
                let states = moments::of_server(cluster, server);
                if states.contains(&moment) {
                    return victims.include(server);
                }
                if !states.contains(&Moment::Replaying) {
                    looks = AIM_LOOKS[0];
                }
            }
            self.sim.sleep(looks).await;
        }
    }

    async fn cause(&self, cluster: &Cluster, kind: Kind, victims: &Victims) {
        let (sim, ost, any, station) = (&self.sim, victims.ost, victims.any, &self.stations[victims.client]);
        let link = victims.link.nodes(cluster, station.node);
        sim.env(self.stations[0].node).log(&format!("fault {kind:?}"));
        self.note_moments(cluster, kind, victims);
        *self.counts.borrow_mut().entry(kind).or_default() += 1;
        match kind {
            Kind::OstKilled => faults::kill_and_boot(cluster, ost..ost + 1, false).await,
            Kind::OstPower => faults::kill_and_boot(cluster, ost..ost + 1, true).await,
            Kind::MdtKilled => faults::kill_and_boot(cluster, 0..1, false).await,
            Kind::MdtPower => faults::kill_and_boot(cluster, 0..1, true).await,
            Kind::AllPower => faults::kill_and_boot(cluster, 0..cluster.servers.len(), true).await,
            Kind::Paused => {
                let node = cluster.servers[any].node;
                sim.pause(node);
                sim.sleep(faults::random_ms(cluster, 2000)).await;
                sim.resume(node);
            }
            Kind::Reset if cluster.servers[any].second.is_some() && sim.chance(0.5) => {
                sim.reset_one_connection(station.node, cluster.servers[any].node);
            }
            Kind::Reset => sim.reset_connections(station.node, cluster.servers[any].node),
            Kind::Cut => {
                let (a, b) = (station.node, cluster.servers[any].node);
                match sim.random_below(3) {
                    0 => sim.cut(a, b),
                    1 => sim.cut(b, a),
                    _ => sim.cut_both(a, b),
                }
                sim.sleep(faults::random_ms(cluster, 3000)).await;
                sim.heal(a, b);
            }
            Kind::LinkFar => links::worsen(cluster, link, Worse::Far).await,
            Kind::LinkLossy => links::worsen(cluster, link, Worse::Lossy).await,
            Kind::LinkNarrow => links::worsen(cluster, link, Worse::Narrow).await,
            Kind::ClientKilled => self.kill_client(cluster, station, None).await,
            Kind::ClientAndServers => self.kill_client(cluster, station, Some(victims.with_client.clone())).await,
            Kind::MissedRecovery => {
                faults::miss_recovery(cluster, station.node, victims.with_client.clone()).await;
            }
            Kind::OstSyncFails => self.stop(cluster, ost, &data_path()).await,
            Kind::MdtSyncFails => self.stop(cluster, 0, &data_path()).await,
            Kind::OstJournalFails => self.stop(cluster, ost, &journal_path()).await,
            Kind::MdtJournalFails => self.stop(cluster, 0, &journal_path()).await,
            Kind::OstWriteEio => disks::cannot_write(cluster, ost),
            Kind::MdtWriteEio => disks::cannot_write(cluster, 0),
            Kind::OstReadEio => disks::cannot_read(cluster, ost).await,
            Kind::MdtReadEio => disks::cannot_read(cluster, 0).await,
            Kind::CopyDies => match cluster.dead_copy.get() {
                None => self.copies.die(cluster),
                Some(_) => self.copies.replace_dead(cluster).await,
            },
            Kind::CopyDiesWithMdt => {
                self.copies.die(cluster);
                faults::kill_and_boot(cluster, 0..1, true).await;
            }
            Kind::CopyRots => self.copies.rot(cluster),
            Kind::CopyReadEio => self.copies.unreadable(cluster).await,
            Kind::CopySyncFails => self.copies.sync_fails(cluster).await,
            Kind::CopyLags => self.copies.lag(cluster).await,
            Kind::OstRots => self.damage.rot(cluster, ost),
            Kind::OstLosesWrite => self.damage.lose_write(cluster, ost),
            Kind::OstMisdirects => self.damage.misdirect_write(cluster, ost),
            Kind::SlowDisk => disks::slow(cluster, any).await,
            Kind::StuckDisk => disks::stuck(cluster, any).await,
            Kind::ClockJump => faults::clock_jump(cluster, cluster.servers[any].node),
            Kind::ClientClockJump => faults::clock_jump(cluster, station.node),
        }
    }

    /// Fails a device, so that its target stops. In most cases another fault comes before the operator restarts it.
    async fn stop(&self, cluster: &Cluster, server: usize, path: &str) {
        let fails = disks::sync_fails(cluster, server, path);
        if self.sim.chance(0.25) {
            return fails.await;
        }
        let more = async {
            self.sim.sleep(faults::random_ms(cluster, STOPPED_MS)).await;
            let mut victims = self.draw_victims(cluster);
            victims.include(server);
            // Not a kind of this run only: no such kind may meet a stopped target.
            Box::pin(self.cause(cluster, faults::draw_usual(cluster), &victims)).await;
        };
        both(fails, more).await;
    }

    /// Records the states that the fault meets, in its servers and in the clients that may notice it.
    fn note_moments(&self, cluster: &Cluster, kind: Kind, victims: &Victims) {
        let concerned = self.stations.iter().enumerate().filter(|(number, _)| victims.concern_client(kind, *number));
        let clients: Vec<Client> = concerned.filter_map(|(_, station)| station.client.borrow().clone()).collect();
        let servers = victims.servers(kind, cluster);
        let met = servers.into_iter().flat_map(|number| moments::of_server(cluster, number));
        let met: BTreeSet<Moment> = met.chain(clients.iter().flat_map(moments::of_client)).collect();
        met.into_iter().for_each(|moment| *self.hits.borrow_mut().entry((kind, moment)).or_default() += 1);
    }

    /// Kills a client, and with `servers` also these servers at the same moment.
    async fn kill_client(&self, cluster: &Cluster, station: &Station, servers: Option<Range<usize>>) {
        let deaths = cluster.deaths.get();
        self.end_client(cluster, station, servers.is_none());
        match servers {
            None => self.sim.sleep(faults::random_ms(cluster, 200)).await,
            Some(servers) => faults::kill_and_boot(cluster, servers, true).await,
        }
        self.start(cluster, station, Some(deaths));
    }

    fn end_client(&self, cluster: &Cluster, station: &Station, servers_live: bool) {
        // A recovering server may still need this client's replays: then both copies of a change are lost. The same
        // goes for a client that missed a recovery without knowing it yet, as no server takes its replays.
        let servers_have_all = servers_live && !self.setup.evicting && cluster.is_serving();
        station.in_execution.set(station.workers.iter().any(|worker| worker.borrow().pending.is_some()));
        let client = station.client.take();
        let stats = client.map(|client| client.stats()).unwrap_or_default();
        let answered = stats.delayed_entries as usize;
        self.evictions.set(self.evictions.get() + stats.evictions);
        station.began_anew.set(station.began_anew.get() || stats.mdt_evictions > 0);
        self.sim.crash(station.node);
        for worker in &station.workers {
            worker.borrow_mut().client_died(servers_have_all, self.setup.writes_through(&self.sim), answered);
        }
    }

    /// Replaces each client that was evicted and got an error for it. The new client verifies what is left.
    fn replace_evicted(&self, cluster: &Cluster) {
        for station in self.stations.iter().filter(|station| station.evicted.take()) {
            self.told_evictions.set(self.told_evictions.get() + 1);
            self.end_client(cluster, station, true);
            self.start(cluster, station, Some(cluster.deaths.get()));
        }
    }

    /// Ends all faults and waits until everything completes.
    async fn heal(&self, cluster: &Cluster) -> Result<(), String> {
        self.sim.heal_all();
        if self.setup.rotting {
            self.damage.end(cluster);
        }
        cluster.boot_all();
        let deadline = self.sim.now() + HEALED_TIME;
        loop {
            self.replace_evicted(cluster);
            self.check_failures(cluster)?;
            if self.all_done() && (!self.setup.evicting || self.all_told().await?) {
                break;
            }
            if self.sim.now() > deadline {
                let stuck: Vec<String> = self.stations.iter().flat_map(|s| &s.workers).map(describe).collect();
                return Err(format!("healed for {HEALED_TIME:?}, and still not complete: {stuck:?}"));
            }
            self.sim.sleep(Duration::from_millis(100)).await;
        }
        self.check_evictions()?;
        self.check_failures(cluster)
    }

    /// Asks every client whether it has lost anything. False if one has: it is replaced. If another worker saw a loss,
    /// its client must have been told of it.
    async fn all_told(&self) -> Result<bool, String> {
        for station in &self.stations {
            let client = station.client.borrow().clone();
            let Some(client) = client else { return Ok(false) };
            match client.sync_all().await {
                Ok(()) => {}
                Err(e) if judge("sync", &e, Excuses::default()).tells_eviction(&client) => station.evicted.set(true),
                Err(e) => return Err(format!("sync: {e}")),
            }
        }
        if self.stations.iter().any(|station| station.evicted.get()) {
            return Ok(false);
        }
        let mut suspicions = self.stations.iter().flat_map(|s| &s.workers).filter_map(|w| w.borrow().suspicion.clone());
        suspicions.next().map_or(Ok(true), |words| Err(format!("lost, and its client was never told: {words}")))
    }

    /// Without short recovery windows no fault lasts as long as a server waits for a client: nobody may be evicted.
    fn check_evictions(&self) -> Result<(), String> {
        if self.setup.evicting {
            return Ok(());
        }
        for (number, station) in self.stations.iter().enumerate() {
            let evictions = station.client.borrow().as_ref().map_or(0, |client| client.stats().evictions);
            if evictions > 0 {
                return Err(format!("client {number} was evicted {evictions} times"));
            }
        }
        Ok(())
    }

    /// A new client verifies everything. Then everything is synced, all servers lose power, and a new client verifies
    /// again.
    async fn compare(&self, cluster: &Cluster) -> Result<(), String> {
        let node = self.sim.add_node("auditor");
        self.audit(cluster, node).await.map_err(|e| format!("at the end: {e}"))?;
        self.sim.crash(node);
        for station in &self.stations {
            self.sim.crash(station.node);
            drop(station.client.take());
        }
        faults::kill_and_boot(cluster, 0..cluster.servers.len(), true).await;
        self.audit(cluster, node).await.map_err(|e| format!("after all servers lost power: {e}"))?;
        self.sim.crash(node);
        self.sim.sleep(QUIESCE_TIME).await;
        self.fsck(cluster).await
    }

    /// Verifies everything with either copy of a mirrored MDT alone.
    async fn audit_each_copy(&self, cluster: &Cluster) -> Result<(), String> {
        for copy in 0..2 {
            cluster.servers.iter().for_each(|server| self.sim.crash(server.node));
            let kept = mirror::look(cluster, 1 - copy);
            let away = mirror::take_away(cluster, copy);
            cluster.boot_all();
            let node = self.sim.add_node(&format!("auditor without copy {copy}"));
            self.audit(cluster, node).await.map_err(|e| format!("without copy {copy}: {e}"))?;
            self.sim.crash(node);
            self.sim.crash(cluster.servers[0].node);
            mirror::restore(cluster, away, kept);
        }
        Ok(())
    }

    /// fsck reads the disks independently and must find nothing: no damage, no dangling name, no leaked object.
    async fn fsck(&self, cluster: &Cluster) -> Result<(), String> {
        let mut reports = Vec::new();
        for server in &cluster.servers {
            self.sim.crash(server.node);
            let options = CheckOptions { verify_data: true, ..CheckOptions::default() };
            let report = forebay_fsck::check(&self.sim.env(server.node), STORE_DIR, options).await;
            reports.push(report.map_err(|e| format!("fsck of {}: {e}", server.target))?);
        }
        reports.push(forebay_fsck::check_cluster(&reports, ClusterOptions { quiet: Quiet::All }));
        let unclean = reports.iter().find(|report| !report.is_clean());
        if self.setup.rotting {
            return self.damage.explains(&reports);
        }
        unclean.map_or(Ok(()), |report| Err(format!("fsck: {}", report.to_text(Severity::Warning))))
    }

    async fn audit(&self, cluster: &Cluster, node: NodeId) -> Result<(), String> {
        let mount = cluster.mount(node, CommitLevel::Data);
        let mounted = self.sim.env(node).timeout(HEALED_TIME, mount).await;
        let mounted = mounted.map_err(|_| format!("no mount: {:?}", cluster.troubles.borrow()))?;
        let client = mounted.map_err(|e| format!("mount: {e}"))?;
        self.damage.begin_audit();
        for worker in self.stations.iter().flat_map(|s| &s.workers) {
            verify(&client, worker, false, Excuses::default()).await.map_err(|stop| stop.to_string())?;
        }
        client.sync_all().await.map_err(|e| format!("sync: {e}"))?;
        client.unmount().await.map_err(|e| format!("unmount: {e}"))
    }

    fn all_done(&self) -> bool {
        self.stations.iter().all(|s| *s.done.borrow() == s.workers.len())
    }

    fn check_failures(&self, cluster: &Cluster) -> Result<(), String> {
        if let Some(trouble) = cluster.troubles.borrow().first() {
            return Err(format!("a server did not start: {trouble}"));
        }
        match self.stations.iter().find_map(|s| s.failure.borrow().clone()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn report(&self) -> Report {
        let workers = || self.stations.iter().flat_map(|s| &s.workers);
        Report {
            seed: self.sim.seed(),
            operations: workers().map(|w| w.borrow().completed).sum(),
            refused: workers().map(|w| w.borrow().refused).sum(),
            failed: workers().map(|w| w.borrow().failed).sum(),
            damage: self.damage.counts(),
            evictions: (self.evictions.get(), self.told_evictions.get()),
            faults: self.counts.borrow().clone(),
            hits: self.hits.borrow().clone(),
            trace_hash: self.sim.trace_hash(),
            virtual_time: Duration::from_nanos(self.sim.now().0),
        }
    }
}

async fn work(
    env: &Env,
    client: Client,
    me: Shared,
    others: Vec<Shared>,
    share: u64,
    setup: Setup,
) -> Result<(), Stop> {
    let mut runner = Runner::start(env, client, me.clone(), (setup.excuses(), setup.small_mdt)).await?;
    while me.borrow().completed < share {
        runner.step(&others).await?;
    }
    runner.finish().await
}

/// Waits until every server has been without any request for a moment. A dead client's last request may wait at a
/// server for something that an earlier request holds, and is executed when that is released.
async fn wait_for_last_requests(env: &Env, targets: &Targets) {
    let mut busy: Vec<usize> = targets.borrow().keys().copied().collect();
    let end = env.now() + LAST_REQUESTS_TERM;
    while !busy.is_empty() && env.now() < end {
        busy.retain(|number| targets.borrow().get(number).is_some_and(|target| target.under_way() > 0));
        env.sleep(AIM_LOOKS[1]).await;
    }
}

/// Runs both futures at the same time.
async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut done = [false; 2];
    poll_fn(|context| {
        done[0] = done[0] || one.as_mut().poll(context).is_ready();
        done[1] = done[1] || other.as_mut().poll(context).is_ready();
        if done == [true; 2] { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn note(failure: &Rc<RefCell<Option<String>>>, what: String) {
    failure.borrow_mut().get_or_insert(what);
}

fn describe(worker: &Shared) -> String {
    let worker = worker.borrow();
    format!("{} did {} operations, pending {:?}", worker.home, worker.completed, worker.pending)
}

/// After an eviction, what the client lost shows in files that are opened later. fsync reports the loss, open does not.
/// So if a comparison fails, sync must report the eviction now; otherwise the result is wrong.
async fn told_of(client: &Client, stop: Stop, setup: Setup) -> Stop {
    if !setup.evicting || client.stats().evictions == 0 || !matches!(stop, Stop::Wrong(_)) {
        return stop;
    }
    match client.sync_all().await.map_err(|error| judge("sync", &error, Excuses::default())) {
        Err(told) if told.tells_eviction(client) => told,
        _ => stop,
    }
}
