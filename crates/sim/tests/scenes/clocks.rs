//! Clocks of a client, an OST and the MDT that are set back by an hour, one after another, while a file is written and
//! another client looks: nothing is lost, each write moves the file's time, and no session or lease goes by them.

use std::{rc::Rc, time::Duration};

use forebay_client::{Caller, Client, CommitLevel, OpenMode, SetAttributes, SetTime};
use forebay_env::sim::{NodeId, Sim};
use forebay_proto::{Fid, message::Attr};
use forebay_sim::{Cluster, ClusterOptions};

const RECORD: usize = 3000;
const ROUNDS: usize = 40;
/// So many records; later rounds write in their places.
const RECORDS: usize = 12;
const HOUR_NS: i64 = 3_600_000_000_000;
const MDT: usize = 0;

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

fn record(round: usize) -> Vec<u8> {
    vec![round as u8 + 1; RECORD]
}

/// A cluster of one OST, a client that writes and one that looks.
struct Scene {
    sim: Sim,
    cluster: Rc<Cluster>,
    nodes: [NodeId; 2],
}

impl Scene {
    fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let options = ClusterOptions { osts: 1, ..ClusterOptions::default() };
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, options)));
        cluster.boot_all();
        let nodes = [sim.add_node("writer"), sim.add_node("other")];
        Self { sim, cluster, nodes }
    }

    async fn mount(&self, number: usize) -> Client {
        self.cluster.mount(self.nodes[number], CommitLevel::Data).await.expect("it mounts")
    }

    /// The clock of one of three machines, in an order that the seed chooses.
    fn set_back(&self, which: usize) {
        let nodes = [self.nodes[0], self.cluster.servers[1].node, self.cluster.servers[MDT].node];
        self.sim.clock_jump(nodes[which % nodes.len()], -HOUR_NS);
    }

    /// Servers lose power and come back; the clients live.
    fn cut(&self, servers: std::ops::Range<usize>) {
        servers.clone().for_each(|server| self.sim.power_cut(self.cluster.servers[server].node));
        servers.for_each(|server| self.cluster.boot(server));
    }
}

async fn look(client: &Client, fid: Fid) -> Attr {
    client.getattr(fid, None).await.expect("it is there")
}

async fn make(client: &Client, name: &str) -> Fid {
    let file = client.create_path(&caller(), name, OpenMode::WRITE).await.expect("it is made");
    let fid = file.fid();
    client.close(file).await.expect("it closes");
    fid
}

/// What one round wrote and synced is seen in the file's times, while it is open, and is the same when it is closed.
async fn write_round(scene: &Scene, [writer, other]: [&Client; 2], fid: Fid, round: usize) {
    let before = look(other, fid).await;
    let file = writer.open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens");
    let at = (round % RECORDS * RECORD) as u64;
    assert_eq!(writer.write(&file, at, record(round)).await, Ok(RECORD));
    writer.fsync(&file, false).await.expect("it syncs");
    let after = look(other, fid).await;
    assert!(after.mtime_ns > before.mtime_ns, "round {round}: {} after {}", after.mtime_ns, before.mtime_ns);
    assert!(after.ctime_ns > before.ctime_ns, "round {round}: {} after {}", after.ctime_ns, before.ctime_ns);
    if round % 5 == 4 {
        scene.cut(round / 5 % 2..2);
    }
    writer.close(file).await.expect("it closes");
    let closed = look(other, fid).await;
    assert_eq!((closed.mtime_ns, closed.ctime_ns), (after.mtime_ns, after.ctime_ns), "round {round}");
}

/// A new file's time moves with its first write, though whoever made it goes by a clock that is ahead.
async fn write_new(writer: &Client, other: &Client, round: usize) {
    let fid = make(writer, &format!("/new-{round}")).await;
    let made = look(other, fid).await;
    let file = writer.open(&caller(), fid, OpenMode::WRITE).await.expect("it opens");
    assert_eq!(writer.write(&file, 0, record(round)).await, Ok(RECORD));
    writer.close(file).await.expect("it closes");
    let written = look(other, fid).await;
    assert!(written.mtime_ns != made.mtime_ns && written.ctime_ns > made.ctime_ns, "round {round}: {written:?}");
}

/// A time that is given stays until the next write, which takes the OST's clock's.
async fn give_a_time(writer: &Client, other: &Client, fid: Fid) {
    let ahead_ns = look(other, fid).await.mtime_ns + 5 * HOUR_NS;
    let file = writer.open(&caller(), fid, OpenMode::WRITE).await.expect("it opens");
    assert_eq!(writer.write(&file, 0, record(ROUNDS)).await, Ok(RECORD));
    let given = SetAttributes { mtime: Some(SetTime::At(ahead_ns)), ..SetAttributes::default() };
    writer.setattr(&caller(), fid, given, Some(&file)).await.expect("it is set");
    assert_eq!(look(other, fid).await.mtime_ns, ahead_ns);
    assert_eq!(writer.write(&file, 0, record(ROUNDS)).await, Ok(RECORD));
    writer.fsync(&file, false).await.expect("it syncs");
    assert!(look(other, fid).await.mtime_ns < ahead_ns - HOUR_NS, "the clock's, not one after what was given");
    writer.close(file).await.expect("it closes");
}

#[test]
fn clocks_that_are_set_back_lose_nothing_and_each_write_moves_the_time() {
    for seed in 0..12 {
        let scene = Scene::new(seed);
        let sim = scene.sim.clone();
        sim.block_on(async {
            let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
            let fid = make(&writer, "/f").await;
            for round in 0..ROUNDS {
                if round % 10 == 3 {
                    scene.set_back(round / 10 + seed as usize);
                }
                write_round(&scene, [&writer, &other], fid, round).await;
                write_new(&writer, &other, round).await;
                sim.sleep(Duration::from_millis(20 * (seed % 3))).await;
            }
            give_a_time(&writer, &other, fid).await;
            assert_eq!((writer.stats().evictions, other.stats().evictions), (0, 0), "seed {seed}");
            scene.cut(0..2);
            let file = other.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
            let bytes = other.read(&file, 0, RECORDS * RECORD).await.expect("it reads");
            let last = |place: usize| (0..ROUNDS).rfind(|round| round % RECORDS == place).expect("it was written");
            let expected = (0..RECORDS).flat_map(|place| record(if place == 0 { ROUNDS } else { last(place) }));
            assert!(bytes.iter().copied().eq(expected), "seed {seed}");
        });
    }
}
