//! Advisory locks across clients: exclusive through crashes of the MDT, and released when their client dies.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use forebay_client::{Client, CommitLevel, LockOutcome, LockSpec, OpenFile, OpenMode, lock_kind, lock_mode};
use forebay_env::{
    Env,
    sim::{NodeId, Sim},
};
use forebay_proto::Errno;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{caller, create, striped};

const RANGES: usize = 3;
const RANGE_BYTES: u64 = 64 << 10;
const EXCLUSIVE: u32 = lock_mode::EXCLUSIVE;

/// The holders of each range, as the programs believe.
#[derive(Default)]
struct Oracle {
    holders: RefCell<[Vec<(u64, u32)>; RANGES]>,
    /// Increments acknowledged under the range's exclusive lock.
    increments: RefCell<[u64; RANGES]>,
}

impl Oracle {
    fn granted(&self, range: usize, worker: u64, mode: u32) {
        let holders = &mut self.holders.borrow_mut()[range];
        let excluded = holders.iter().any(|(_, held)| mode == EXCLUSIVE || *held == EXCLUSIVE);
        assert!(!excluded, "range {range}: worker {worker} was given mode {mode} beside {holders:?}");
        holders.push((worker, mode));
    }

    fn let_go(&self, range: usize, worker: u64) {
        self.holders.borrow_mut()[range].retain(|(who, _)| *who != worker);
    }

    fn died(&self, worker: u64) {
        (0..RANGES).for_each(|range| self.let_go(range, worker));
    }
}

struct World {
    sim: Sim,
    cluster: Rc<Cluster>,
    oracle: Rc<Oracle>,
    done: Rc<Cell<usize>>,
}

fn spec(owner: u64, mode: u32, range: usize) -> LockSpec {
    let start = range as u64 * RANGE_BYTES;
    LockSpec { kind: lock_kind::FCNTL, owner, mode, start, end: start + RANGE_BYTES - 1, pid: 1, handle: 0 }
}

async fn open(client: &Client) -> OpenFile {
    create(client, b"shared", striped(2)).await
}

/// Increments a range's counter in the file.
async fn increment(client: &Client, file: &OpenFile, range: usize) {
    let offset = range as u64 * RANGE_BYTES;
    let bytes = client.read(file, offset, 8).await.expect("it reads");
    let mut counter = [0; 8];
    counter[..bytes.len()].copy_from_slice(&bytes);
    let next = (u64::from_le_bytes(counter) + 1).to_le_bytes().to_vec();
    client.write(file, offset, next).await.expect("it writes");
}

impl World {
    fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, ClusterOptions::default())));
        cluster.boot_all();
        Self { sim, cluster, oracle: Rc::default(), done: Rc::default() }
    }

    /// Adds a client node with workers that lock, increment and release.
    fn station(&self, name: &str, first_worker: u64, workers: u64, rounds: u64) -> NodeId {
        let node = self.sim.add_node(name);
        let (cluster, oracle, done) = (self.cluster.clone(), self.oracle.clone(), self.done.clone());
        self.sim.start(node, move |env| async move {
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            for worker in first_worker..first_worker + workers {
                let (client, oracle, done, shard) = (client.clone(), oracle.clone(), done.clone(), env.clone());
                env.spawn(async move {
                    work(&shard, &client, &oracle, worker, rounds).await;
                    done.set(done.get() + 1);
                });
            }
        });
        node
    }

    fn run_until_done(&self, workers: usize, seconds: u64) {
        for _ in 0..seconds * 10 {
            if self.done.get() == workers {
                return;
            }
            self.sim.run_for(Duration::from_millis(100));
        }
        panic!("seed {}: {} of {workers} workers are done", self.sim.seed(), self.done.get());
    }

    /// The counters in the file at the end.
    fn counters(&self) -> Vec<u64> {
        let node = self.sim.add_node("auditor");
        self.sim.block_on(async {
            let client = self.cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let file = open(&client).await;
            let mut counters = Vec::new();
            for range in 0..RANGES {
                let bytes = client.read(&file, range as u64 * RANGE_BYTES, 8).await.expect("it reads");
                counters.push(u64::from_le_bytes(bytes[..].try_into().expect("a counter")));
            }
            counters
        })
    }
}

async fn work(env: &Env, client: &Client, oracle: &Oracle, worker: u64, rounds: u64) {
    let file = open(client).await;
    for _ in 0..rounds {
        let range = (env.random_u64() % RANGES as u64) as usize;
        let mode = if env.random_u64().is_multiple_of(3) { lock_mode::SHARED } else { EXCLUSIVE };
        let lock = spec(worker, mode, range);
        if env.random_u64().is_multiple_of(2) {
            client.lock(&file, lock.clone()).await.expect("it waits for the lock");
        } else if client.try_lock(&file, lock.clone()).await.expect("it tries") == LockOutcome::Denied {
            continue;
        }
        oracle.granted(range, worker, mode);
        // Some locks are held for as long as a restart of the MDT takes.
        let longest_ms = if env.random_u64().is_multiple_of(4) { 2000 } else { 20 };
        env.sleep(Duration::from_millis(env.random_u64() % longest_ms)).await;
        if mode == EXCLUSIVE {
            increment(client, &file, range).await;
            oracle.increments.borrow_mut()[range] += 1;
        }
        oracle.let_go(range, worker);
        let release = LockSpec { mode: lock_mode::NONE, ..lock };
        client.try_lock(&file, release).await.expect("it lets go");
    }
    client.close(file).await.expect("it closes");
}

/// lock, increment |SIGKILL, power, reset (MDT)| reclaim
///
/// Six workers on three clients lock ranges and increment counters under exclusive locks. Five times the MDT is killed,
/// loses power, or loses a connection. No two conflicting locks are held at once, and no increment is lost.
#[test]
fn locks_of_three_clients_exclude_each_other_through_restarts_of_the_mdt() {
    for seed in 0..40 {
        let world = World::new(seed);
        let nodes: Vec<_> = (0..3).map(|n| world.station(&format!("client{n}"), n * 2, 2, 25)).collect();
        for _ in 0..5 {
            world.sim.run_for(Duration::from_millis(50 + world.sim.random_below(200)));
            let mdt = world.cluster.servers[0].node;
            match world.sim.random_below(3) {
                0 => world.sim.crash(mdt),
                1 => world.sim.power_cut(mdt),
                _ => world.sim.reset_connections(nodes[world.sim.random_below(3) as usize], mdt),
            }
            world.sim.run_for(Duration::from_millis(world.sim.random_below(100)));
            world.cluster.boot_all();
        }
        world.run_until_done(6, 120);
        assert_eq!(world.counters(), *world.oracle.increments.borrow(), "seed {seed}");
    }
}

/// lock |SIGKILL (client; MDT or not)| lock
///
/// Workers of two clients lock ranges. One client crashes, in half of the seeds together with the MDT. Its locks become
/// free for the other client, and at most its last two increments are in doubt.
#[test]
fn locks_of_a_client_that_dies_come_free() {
    for seed in 0..16 {
        let world = World::new(seed);
        let dying = world.station("dying", 0, 2, u64::MAX);
        world.station("living", 2, 2, 30);
        world.sim.run_for(Duration::from_millis(200 + world.sim.random_below(300)));
        world.sim.crash(dying);
        if seed.is_multiple_of(2) {
            world.sim.crash(world.cluster.servers[0].node);
            world.cluster.boot_all();
        }
        // The dead client's locks may still be held for a while, but by nobody else.
        world.oracle.died(0);
        world.oracle.died(1);
        world.run_until_done(2, 200);
        let (counters, acknowledged) = (world.counters(), world.oracle.increments.borrow());
        for (counter, acknowledged) in counters.iter().zip(acknowledged.iter()) {
            let in_doubt = *acknowledged..=*acknowledged + 2;
            assert!(in_doubt.contains(counter), "seed {seed}: {counters:?}, acknowledged {acknowledged:?}");
        }
    }
}

/// The first client holds a lock, and the second gives up waiting for it. The second sees the holder in a test, gets
/// the lock once the owner's close releases it, and releases it with its handle. Then the first one gets it again.
#[test]
fn a_wait_may_be_given_up_and_leaves_nothing() {
    let world = World::new(1);
    let (a, b) = (world.sim.add_node("a"), world.sim.add_node("b"));
    world.sim.block_on(async {
        let first = world.cluster.mount(a, CommitLevel::Data).await.expect("it mounts");
        let second = world.cluster.mount(b, CommitLevel::Data).await.expect("it mounts");
        let (mine, theirs) = (open(&first).await, open(&second).await);
        assert_eq!(first.try_lock(&mine, spec(1, EXCLUSIVE, 0)).await, Ok(LockOutcome::Granted));
        let env = world.sim.env(b);
        let wanted = spec(2, EXCLUSIVE, 0);
        let wait = second.wait_for_lock(&theirs, &wanted);
        assert!(env.timeout(Duration::from_secs(1), wait).await.is_err(), "it waits");
        let holder = second.test_lock(&theirs, spec(2, lock_mode::SHARED, 0)).await.expect("it asks");
        assert_eq!(holder.map(|lock| (lock.owner, lock.mode)), Some((1, EXCLUSIVE)));
        // The end of the descriptor releases the lock, and so does the process's close of any other descriptor of the
        // file.
        first.unlock_owner(&mine, 2).await.expect("another's close");
        assert_eq!(second.try_lock(&theirs, spec(2, EXCLUSIVE, 0)).await, Ok(LockOutcome::Denied));
        first.unlock_owner(&mine, 1).await.expect("its close");
        assert_eq!(second.try_lock(&theirs, spec(2, EXCLUSIVE, 0)).await, Ok(LockOutcome::Granted));
        second.unlock_handle(&theirs).await.expect("its end");
        assert_eq!(first.try_lock(&mine, spec(1, EXCLUSIVE, 0)).await, Ok(LockOutcome::Granted));
    });
}

/// write under a lock, OSTs cut off |10 s, or until evicted| unlock
///
/// The first client increments a counter under a lock while it is cut off from the OSTs, then releases the lock. The
/// release waits for the write. After 10 s the write arrives, and the second client reads it. After 75 s the client is
/// evicted: the release reports EIO, and the second client reads the old counter.
#[test]
fn unlock_reports_eio_if_writes_under_lock_are_lost() {
    for (seconds, arrives) in [(10, true), (75, false)] {
        let world = World::new(7);
        let (a, b) = (world.sim.add_node("a"), world.sim.add_node("b"));
        world.sim.block_on(async {
            let first = world.cluster.mount(a, CommitLevel::Data).await.expect("it mounts");
            let second = world.cluster.mount(b, CommitLevel::Data).await.expect("it mounts");
            let mine = open(&first).await;
            increment(&first, &mine, 0).await;
            first.fsync(&mine, false).await.expect("it syncs");
            first.lock(&mine, spec(1, EXCLUSIVE, 0)).await.expect("it is free");
            increment(&first, &mine, 0).await;
            let osts: Vec<_> = world.cluster.servers[1..].iter().map(|server| server.node).collect();
            osts.iter().for_each(|ost| world.sim.cut_both(a, *ost));
            let told = Rc::new(Cell::new(None));
            let (client, file, outcome) = (first.clone(), mine.clone(), told.clone());
            let letting_go = world.sim.env(a).spawn(async move {
                let release = LockSpec { mode: lock_mode::NONE, ..spec(1, EXCLUSIVE, 0) };
                outcome.set(Some(client.try_lock(&file, release).await.map_err(|error| error.errno)));
            });
            let (client, seen) = (second.clone(), Rc::new(Cell::new(None)));
            let found = seen.clone();
            let counting = world.sim.env(b).spawn(async move {
                let theirs = open(&client).await;
                client.lock(&theirs, spec(2, EXCLUSIVE, 0)).await.expect("it comes free");
                found.set(Some(client.read(&theirs, 0, 8).await.expect("it reads")[0]));
            });
            world.sim.sleep(Duration::from_secs(seconds)).await;
            assert_eq!((told.take(), seen.take()), (None, None), "{seconds} s: what was written is on its way");
            osts.iter().for_each(|ost| world.sim.heal(a, *ost));
            letting_go.await.expect("it lets go");
            counting.await.expect("it counts");
            let expected = if arrives { (Ok(LockOutcome::Granted), 2) } else { (Err(Errno::EIO), 1) };
            assert_eq!((told.take(), seen.take()), (Some(expected.0), Some(expected.1)), "{seconds} s");
        });
    }
}

/// write under two locks, cut off, unlock both |evicted| EIO
///
/// A client holds two locks and increments both counters. It is cut off from all servers and releases both, one also
/// through a second handle. It is evicted: all three releases report EIO, as the writes are lost.
#[test]
fn concurrent_unlocks_of_an_evicted_client_all_report_eio() {
    let world = World::new(8);
    let a = world.sim.add_node("a");
    world.sim.block_on(async {
        let client = world.cluster.mount(a, CommitLevel::Data).await.expect("it mounts");
        let file = open(&client).await;
        for range in [0, 1] {
            client.lock(&file, spec(1 + range as u64, EXCLUSIVE, range)).await.expect("it is free");
            increment(&client, &file, range).await;
        }
        let other = client.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
        world.cluster.servers.iter().for_each(|server| world.sim.cut_both(a, server.node));
        // The last release uses another handle, which has lost no lock.
        let releases = [(0, file.clone()), (1, file.clone()), (1, other)].map(|(range, file)| {
            let (client, release) =
                (client.clone(), LockSpec { mode: lock_mode::NONE, ..spec(1 + range as u64, EXCLUSIVE, range) });
            world.sim.env(a).spawn(async move { client.try_lock(&file, release).await.map_err(|error| error.errno) })
        });
        world.sim.sleep(Duration::from_secs(100)).await;
        world.cluster.servers.iter().for_each(|server| world.sim.heal(a, server.node));
        for release in releases {
            assert_eq!(release.await.expect("it ends"), Err(Errno::EIO));
        }
    });
}

/// unlock, OSTs cut off |the caller gives up| lock
///
/// The first client's release (or downgrade) of a lock waits for buffered writes, as the OSTs are cut off, and its
/// caller gives up. The client then locks the range again. The pending release must not drop the new lock: the second
/// client is denied.
#[test]
fn a_lock_requested_during_a_pending_release_outlives_the_release() {
    for mode in [lock_mode::NONE, lock_mode::SHARED] {
        let world = World::new(9);
        let (a, b) = (world.sim.add_node("a"), world.sim.add_node("b"));
        world.sim.block_on(async {
            let first = world.cluster.mount(a, CommitLevel::Data).await.expect("it mounts");
            let second = world.cluster.mount(b, CommitLevel::Data).await.expect("it mounts");
            let mine = open(&first).await;
            first.lock(&mine, spec(1, EXCLUSIVE, 0)).await.expect("it is free");
            increment(&first, &mine, 0).await;
            let osts: Vec<_> = world.cluster.servers[1..].iter().map(|server| server.node).collect();
            osts.iter().for_each(|ost| world.sim.cut_both(a, *ost));
            let env = world.sim.env(a);
            let given_up = LockSpec { mode, ..spec(1, EXCLUSIVE, 0) };
            let waits = env.timeout(Duration::from_secs(1), first.try_lock(&mine, given_up)).await;
            assert!(waits.is_err(), "{mode}: what was written is still on its way");
            let (client, file) = (first.clone(), mine.clone());
            let again = env.spawn(async move { client.lock(&file, spec(1, EXCLUSIVE, 0)).await.expect("it is set") });
            world.sim.sleep(Duration::from_secs(3)).await;
            osts.iter().for_each(|ost| world.sim.heal(a, *ost));
            again.await.expect("it ends");
            let theirs = open(&second).await;
            world.sim.sleep(Duration::from_secs(3)).await;
            let other = second.try_lock(&theirs, spec(2, EXCLUSIVE, 0)).await;
            assert_eq!(other, Ok(LockOutcome::Denied), "{mode}: the first one has it");
        });
    }
}
