//! Appends of several clients beside readers, truncates and crashes. A record lies at the end of the file, never behind
//! a hole. No reader learns of a size before the bytes are there.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};

use forebay_client::{Client, CommitLevel, OpenFile, OpenMode, SetAttributes};
use forebay_env::{
    Env,
    sim::{NodeId, Sim},
};
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{caller, create, striped};

const RECORD_BYTES: usize = 3000;

async fn open(client: &Client) -> OpenFile {
    open_striped(client, 1).await
}

async fn open_striped(client: &Client, stripes: u32) -> OpenFile {
    create(client, b"log", striped(stripes)).await
}

/// append, truncate to zero between its reservation and its write
///
/// Three clients use one log: the first truncates it to zero again and again, the others append records. In the end the
/// log has only whole records, from offset 0 on, without zeros.
#[test]
fn an_append_that_a_truncate_overtakes_lies_at_the_new_end() {
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, ClusterOptions::default())));
        cluster.boot_all();
        let done = Rc::new(Cell::new(0));
        for number in 0..3u64 {
            let node = sim.add_node(&format!("client{number}"));
            let (cluster, done) = (cluster.clone(), done.clone());
            sim.start(node, move |env| async move {
                let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
                let file = open(&client).await;
                for _ in 0..40 {
                    env.sleep(Duration::from_micros(env.random_u64() % 800)).await;
                    if number == 0 {
                        let nothing = SetAttributes { size: Some(0), ..SetAttributes::default() };
                        client.setattr(&caller(), file.fid(), nothing, None).await.expect("it cuts");
                    } else {
                        client.append(&file, vec![number as u8; RECORD_BYTES]).await.expect("it appends");
                    }
                }
                done.set(done.get() + 1);
            });
        }
        while done.get() < 3 {
            sim.run_for(Duration::from_millis(10));
        }
        let node = sim.add_node("auditor");
        sim.block_on(async {
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let bytes = client.read(&open(&client).await, 0, 1 << 20).await.expect("it reads");
            for (number, record) in bytes.chunks(RECORD_BYTES).enumerate() {
                let is_whole = record.len() == RECORD_BYTES && record.iter().all(|byte| *byte == record[0]);
                assert!(is_whole && record[0] != 0, "seed {seed}: record {number} is {:?}", &record[..8]);
            }
        });
    }
}

/// A record of at least `length` bytes. Each group of four bytes has the writer and the record's number; none of the
/// bytes is 0.
fn record(writer: u8, number: u8, length: usize) -> Vec<u8> {
    [0xf0, writer + 1, number + 1, 0x0f].into_iter().cycle().take(4 * length.div_ceil(4)).collect()
}

/// Clients that append to one log, and readers that follow it, until all records are written.
struct Follow {
    sim: Sim,
    cluster: Rc<Cluster>,
    stripes: u32,
    /// Acknowledged records, and records whose append has not returned.
    written: Rc<RefCell<BTreeSet<(u8, u8)>>>,
    in_doubt: Rc<RefCell<BTreeSet<(u8, u8)>>>,
    left: Rc<Cell<usize>>,
}

impl Follow {
    const RECORDS: u8 = 30;

    fn new(seed: u64, stripes: u32) -> Self {
        let sim = Sim::new(seed);
        let write_back_bytes = if seed.is_multiple_of(2) { 0 } else { 1 << 20 };
        let options = ClusterOptions { write_back_bytes, ..ClusterOptions::default() };
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, options)));
        cluster.boot_all();
        let (written, in_doubt, left) = (Rc::default(), Rc::default(), Rc::default());
        Self { sim, cluster, stripes, written, in_doubt, left }
    }

    /// Adds a node with a client that appends records, and a reader on the same mount that follows the log.
    fn add_writer(&self, writer: u8) -> NodeId {
        let node = self.sim.add_node(&format!("writer{writer}"));
        let (cluster, stripes, left) = (self.cluster.clone(), self.stripes, self.left.clone());
        let (written, in_doubt) = (self.written.clone(), self.in_doubt.clone());
        left.set(left.get() + 1);
        self.sim.start(node, move |env| async move {
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let file = open_striped(&client, stripes).await;
            let follows = follow(env.clone(), client.clone(), stripes, left.clone());
            let follower = env.spawn(follows);
            for number in 0..Self::RECORDS {
                env.sleep(Duration::from_micros(env.random_u64() % 3000)).await;
                let most = if env.random_u64().is_multiple_of(4) { 40_000 } else { 200 };
                let bytes = record(writer, number, 1 + (env.random_u64() % most) as usize);
                in_doubt.borrow_mut().insert((writer, number));
                client.append(&file, bytes).await.expect("it appends");
                in_doubt.borrow_mut().remove(&(writer, number));
                written.borrow_mut().insert((writer, number));
            }
            client.sync_all().await.expect("it syncs");
            left.set(left.get() - 1);
            follower.await.expect("it ends");
        });
        node
    }

    fn add_reader(&self) {
        let node = self.sim.add_node("reader");
        let (cluster, stripes, left) = (self.cluster.clone(), self.stripes, self.left.clone());
        self.sim.start(node, move |env| async move {
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            follow(env, client, stripes, left).await;
        });
    }

    fn run_until_done(&self) {
        while self.left.get() > 0 {
            self.sim.run_for(Duration::from_millis(10));
        }
    }

    /// Checks that every acknowledged record is there once and whole, without zeros. Nothing may lie behind the last
    /// record: when the file is extended, there must be a hole.
    fn audit(&self, seed: u64) {
        let node = self.sim.add_node("auditor");
        self.sim.block_on(async {
            let client = self.cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let file = open_striped(&client, self.stripes).await;
            let bytes = client.read(&file, 0, 64 << 20).await.expect("it reads");
            let mut records: Vec<(u8, u8)> = Vec::new();
            for group in bytes.chunks(4) {
                assert!(group.len() == 4 && (group[0], group[3]) == (0xf0, 0x0f), "seed {seed}: {group:?}");
                let one = (group[1] - 1, group[2] - 1);
                if records.last() != Some(&one) {
                    records.push(one);
                }
            }
            let there: BTreeSet<(u8, u8)> = records.iter().copied().collect();
            assert_eq!(there.len(), records.len(), "seed {seed}: a record is there twice, or torn: {records:?}");
            let known = self.written.borrow().clone();
            assert!(known.is_subset(&there), "seed {seed}: lost are {:?}", known.difference(&there));
            let of_nobody: Vec<_> =
                there.difference(&known).filter(|one| !self.in_doubt.borrow().contains(one)).collect();
            assert!(of_nobody.is_empty(), "seed {seed}: {of_nobody:?}");
            let longer = SetAttributes { size: Some(bytes.len() as u64 + (1 << 20)), ..SetAttributes::default() };
            client.setattr(&caller(), file.fid(), longer, None).await.expect("it is made longer");
            let behind = client.read(&file, bytes.len() as u64, 1 << 20).await.expect("it reads");
            let left = behind.iter().position(|byte| *byte != 0);
            assert_eq!(left.map(|at| &behind[at..at + 4]), None, "seed {seed}: {left:?} bytes behind the end");
        });
    }
}

/// Reads new bytes until all writers are done. The bytes are never zero, and there are as many as the size says.
async fn follow(env: Env, client: Client, stripes: u32, left: Rc<Cell<usize>>) {
    let fid = open_striped(&client, stripes).await.fid();
    let file = client.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
    let mut at = 0;
    while left.get() > 0 {
        env.sleep(Duration::from_micros(env.random_u64() % 2000)).await;
        let size = client.getattr(fid, Some(&file)).await.expect("it has a size").size;
        let bytes = client.read(&file, at, 1 << 20).await.expect("it reads");
        assert!(
            at + bytes.len() as u64 >= size.min(at + (1 << 20)),
            "{size} bytes, and read to {at} + {}",
            bytes.len()
        );
        let zero = bytes.iter().position(|byte| *byte == 0);
        assert_eq!(zero, None, "zeros at {at}, in {} bytes that were read", bytes.len());
        at += bytes.len() as u64;
    }
}

/// Two writers append to a log. A reader on each of their mounts and a third client follow it. No reader sees bytes
/// that nobody wrote.
#[test]
fn a_log_that_is_followed_is_never_longer_than_its_bytes() {
    for seed in 0..12 {
        for stripes in [1, 3] {
            let follow = Follow::new(seed, stripes);
            let _nodes = [0, 1].map(|writer| follow.add_writer(writer));
            follow.add_reader();
            follow.run_until_done();
            follow.audit(seed);
        }
    }
}

/// append |power, each OST in turn| append
///
/// The same while each OST loses power once and restarts 5 ms later.
#[test]
fn a_log_that_is_followed_is_never_longer_than_its_bytes_though_osts_die() {
    for seed in 0..12 {
        for stripes in [1, 3] {
            let follow = Follow::new(seed, stripes);
            let _nodes = [0, 1].map(|writer| follow.add_writer(writer));
            follow.add_reader();
            for server in 1..follow.cluster.servers.len() {
                follow.sim.run_for(Duration::from_millis(
                    10 + follow.sim.env(follow.cluster.servers[0].node).random_u64() % 20,
                ));
                follow.sim.power_cut(follow.cluster.servers[server].node);
                follow.sim.run_for(Duration::from_millis(5));
                follow.cluster.boot(server);
            }
            follow.run_until_done();
            follow.audit(seed);
        }
    }
}

/// append |one writer dies| append
///
/// Three writers append to a log, and the first one crashes. Its reservation goes to the next append. The other two
/// finish within 30 s, and no reader sees zeros.
#[test]
fn an_appender_that_dies_leaves_no_zeros_in_the_log() {
    for seed in 0..16 {
        for stripes in [1, 3] {
            let follow = Follow::new(seed, stripes);
            let nodes = [0, 1, 2].map(|writer| follow.add_writer(writer));
            follow.add_reader();
            follow.sim.run_for(Duration::from_micros(20_000 + follow.sim.env(nodes[1]).random_u64() % 20_000));
            follow.sim.crash(nodes[0]);
            follow.left.set(follow.left.get() - 1);
            let begun = follow.sim.env(nodes[1]).now();
            follow.run_until_done();
            let took = follow.sim.env(nodes[1]).now().since(begun);
            assert!(took < Duration::from_secs(30), "seed {seed}: the others waited for {took:?}");
            follow.audit(seed);
        }
    }
}
