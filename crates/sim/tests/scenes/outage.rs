//! An OST, or a client's links, are down for half an hour under load. Programs wait or get an error, nothing that was
//! synced is lost, and seconds after the return everything continues.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Client, CommitLevel, LayoutSpec, OpenFile};
use forebay_env::{
    Env,
    sim::{NodeId, Sim},
};
use forebay_proto::Errno;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{caller, create, striped};

const OUTAGE: Duration = Duration::from_secs(30 * 60);
/// Time after the outage within which everything continues.
const SOON: Duration = Duration::from_secs(30);
/// Pause between two records of a program.
const PAUSE: Duration = Duration::from_secs(1);
const RECORD: usize = 5000;
/// A program syncs after this many records.
const SYNCS: u64 = 4;

/// A program that writes records one after another until it gets an error.
#[derive(Clone, Default)]
struct Program {
    /// Number of acknowledged records.
    written: Rc<Cell<u64>>,
    /// Number of records that a sync covered.
    synced: Rc<Cell<u64>>,
    error: Rc<Cell<Option<Errno>>>,
    stops: Rc<Cell<bool>>,
}

fn record(number: u64) -> Vec<u8> {
    vec![(number % 251) as u8 + 1; RECORD]
}

impl Program {
    /// Starts a program on the file `name`, with stripes from OST0000 on. It continues behind the first `from` records.
    async fn start(env: &Env, client: &Client, name: &str, stripe_count: u32, from: u64) -> Self {
        let program = Self::default();
        let file = open(client, name, stripe_count).await;
        program.written.set(from);
        program.synced.set(from);
        let (mine, client, shard) = (program.clone(), client.clone(), env.clone());
        env.spawn(async move {
            while !mine.stops.get() {
                let number = mine.written.get();
                if let Err(error) = mine.step(&client, &file, number).await {
                    return mine.error.set(Some(error));
                }
                shard.sleep(PAUSE).await;
            }
        });
        program
    }

    async fn step(&self, client: &Client, file: &OpenFile, number: u64) -> Result<(), Errno> {
        let written = client.write(file, number * RECORD as u64, record(number)).await.map_err(|error| error.errno)?;
        assert_eq!(written, RECORD);
        self.written.set(number + 1);
        if number % SYNCS == SYNCS - 1 {
            client.fsync(file, false).await.map_err(|error| error.errno)?;
            self.synced.set(number + 1);
        }
        Ok(())
    }

    /// Checks that the first `least` records are in the file.
    async fn compare(&self, client: &Client, name: &str, least: u64) {
        let bytes = client.read_file(&caller(), &format!("/{name}")).await.expect("it reads");
        assert!(bytes.len() >= least as usize * RECORD, "{name}: {} bytes of {least} records", bytes.len());
        for (number, found) in (0..least).zip(bytes.chunks(RECORD)) {
            assert!(found == record(number), "{name}: record {number} is another one");
        }
    }
}

async fn open(client: &Client, name: &str, stripe_count: u32) -> OpenFile {
    create(client, name.as_bytes(), LayoutSpec { stripe_index: 0, ..striped(stripe_count) }).await
}

/// Two clients. Each has a program on a file over all OSTs, and one on a file on OST0000.
struct Scene {
    sim: Sim,
    cluster: Cluster,
    nodes: [NodeId; 2],
    clients: [Client; 2],
    programs: Vec<(String, Program)>,
}

impl Scene {
    async fn new(sim: &Sim) -> Self {
        let cluster = Cluster::format(sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let nodes = [sim.add_node("first"), sim.add_node("second")];
        let mount = async |node| cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
        let clients = [mount(nodes[0]).await, mount(nodes[1]).await];
        let mut programs = Vec::new();
        for (number, client) in clients.iter().enumerate() {
            for (kind, stripe_count) in [("wide", 3), ("narrow", 1)] {
                let name = format!("{kind}{number}");
                let program = Program::start(&sim.env(nodes[number]), client, &name, stripe_count, 0).await;
                programs.push((name, program));
            }
        }
        sim.sleep(Duration::from_secs(60)).await;
        Self { sim: sim.clone(), cluster, nodes, clients, programs }
    }

    fn written(&self) -> Vec<u64> {
        self.programs.iter().map(|(_, program)| program.written.get()).collect()
    }

    fn errors(&self) -> Vec<Option<Errno>> {
        self.programs.iter().map(|(_, program)| program.error.get()).collect()
    }

    /// Checks with a new client that everything synced is there, also after all servers lost power.
    async fn compare(&self) {
        for (_, program) in &self.programs {
            program.stops.set(true);
        }
        self.sim.sleep(2 * PAUSE).await;
        let auditor = self.sim.add_node("auditor");
        for loses_power in [false, true] {
            if loses_power {
                self.nodes.iter().for_each(|node| self.sim.crash(*node));
                self.cluster.servers.iter().for_each(|server| self.sim.power_cut(server.node));
                self.cluster.boot_all();
            }
            let client = self.cluster.mount(auditor, CommitLevel::Data).await.expect("it mounts");
            for (name, program) in &self.programs {
                let told = program.error.get().is_some();
                let least = if loses_power || told { program.synced.get() } else { program.written.get() };
                program.compare(&client, name, least).await;
            }
            self.sim.crash(auditor);
        }
    }
}

/// write, fsync |an OST loses power for half an hour| write, fsync
///
/// Four programs write on two clients when OST0002 loses power. The programs with files on that OST wait, the others
/// continue. Within 30 s of its return all programs continue, without an error or an eviction.
#[test]
fn programs_wait_half_an_hour_for_an_ost_and_go_on_within_seconds() {
    for seed in [1, 2] {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let scene = Scene::new(&sim).await;
            sim.power_cut(scene.cluster.servers[3].node);
            sim.sleep(SOON).await;
            let early = scene.written();
            sim.sleep(OUTAGE - SOON).await;
            let late = scene.written();
            for (number, (early, late)) in early.iter().zip(&late).enumerate() {
                let is_wide = number % 2 == 0;
                // At most up to the end of the stripes before the OST that is down.
                assert_eq!(late - early < 40, is_wide, "seed {seed}, program {number}: {early} to {late}");
            }
            scene.cluster.boot(3);
            sim.sleep(SOON).await;
            let after = scene.written();
            assert!(late.iter().zip(&after).all(|(late, after)| after > late), "seed {seed}: {late:?}, then {after:?}");
            assert_eq!(scene.errors(), [None; 4], "seed {seed}");
            assert!(scene.clients.iter().all(|client| client.stats().evictions == 0), "seed {seed}");
            scene.compare().await;
        });
    }
}

/// write, fsync |a client is cut off from all servers for half an hour| write, fsync
///
/// The first client is cut off, and the second client's programs continue. When the link is back, the first client's
/// programs get EIO, as it was evicted. They start again from what they had synced, and continue within 30 s.
#[test]
fn a_client_that_was_away_for_half_an_hour_is_notified_and_goes_on_within_seconds() {
    for seed in [1, 2] {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let mut scene = Scene::new(&sim).await;
            let servers: Vec<NodeId> = scene.cluster.servers.iter().map(|server| server.node).collect();
            servers.iter().for_each(|server| sim.cut_both(scene.nodes[0], *server));
            let before = scene.written();
            sim.sleep(OUTAGE).await;
            let late = scene.written();
            for number in [2, 3] {
                let records = late[number] - before[number];
                assert!(records > OUTAGE.as_secs() / 2, "seed {seed}, program {number}: {records} meanwhile");
            }
            servers.iter().for_each(|server| sim.heal(scene.nodes[0], *server));
            sim.sleep(SOON).await;
            let errors = scene.errors();
            assert_eq!(errors, [Some(Errno::EIO), Some(Errno::EIO), None, None], "seed {seed}");
            assert!(scene.clients[0].stats().evictions > 0 && scene.clients[1].stats().evictions == 0);
            // The first client was fenced, and continues as a new client instance.
            for (number, stripe_count) in [(0, 3), (1, 1)] {
                let (name, told) = scene.programs[number].clone();
                told.compare(&scene.clients[0], &name, told.synced.get()).await;
                let env = sim.env(scene.nodes[0]);
                let again = Program::start(&env, &scene.clients[0], &name, stripe_count, told.synced.get()).await;
                scene.programs[number].1 = again;
            }
            let begun = scene.written();
            sim.sleep(SOON).await;
            let after = scene.written();
            assert!(
                begun.iter().zip(&after).all(|(begun, after)| after > begun),
                "seed {seed}: {begun:?}, then {after:?}"
            );
            scene.compare().await;
        });
    }
}
