//! The clocks of a client, an OST and the MDT are set back by an hour, one after another, while one client writes a
//! file and another reads its attributes. Nothing is lost, each write moves the file's time, and no session or lease
//! depends on these clocks.

use std::time::Duration;

use forebay_client::{Client, OpenMode, SetAttributes, SetTime};
use forebay_proto::{Fid, message::Attr};
use forebay_sim::ClusterOptions;

use crate::scene::{Scene, caller};

/// The clients' machines.
const CLIENTS: &[&str] = &["writer", "other"];

const RECORD: usize = 3000;
const ROUNDS: usize = 40;
/// Number of records; later rounds overwrite them.
const RECORDS: usize = 12;
const HOUR_NS: i64 = 3_600_000_000_000;
const MDT: usize = 0;

fn record(round: usize) -> Vec<u8> {
    vec![round as u8 + 1; RECORD]
}

impl Scene {
    /// Sets back the clock of one of three machines.
    fn set_back(&self, which: usize) {
        let nodes = [self.nodes[0], self.cluster.servers[1].node, self.cluster.servers[MDT].node];
        self.sim.clock_jump(nodes[which % nodes.len()], -HOUR_NS);
    }

    /// Servers lose power and restart; the clients stay up.
    fn lose_power(&self, servers: std::ops::Range<usize>) {
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

/// The writer writes and syncs a record; in some rounds servers lose power before it closes the file. The other client
/// sees later times while the file is open, and the same times after the close.
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
        scene.lose_power(round / 5 % 2..2);
    }
    writer.close(file).await.expect("it closes");
    let closed = look(other, fid).await;
    assert_eq!((closed.mtime_ns, closed.ctime_ns), (after.mtime_ns, after.ctime_ns), "round {round}");
}

/// The writer makes a file and writes to it. The write moves the file's times, even if the clock at its creation was
/// ahead.
async fn write_new(writer: &Client, other: &Client, round: usize) {
    let fid = make(writer, &format!("/new-{round}")).await;
    let made = look(other, fid).await;
    let file = writer.open(&caller(), fid, OpenMode::WRITE).await.expect("it opens");
    assert_eq!(writer.write(&file, 0, record(round)).await, Ok(RECORD));
    writer.close(file).await.expect("it closes");
    let written = look(other, fid).await;
    assert!(written.mtime_ns != made.mtime_ns && written.ctime_ns > made.ctime_ns, "round {round}: {written:?}");
}

/// The writer sets a modification time far in the future. It stays until the next write, which takes the time of the
/// OST's clock.
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

/// The writer writes records in 40 rounds while the clocks of the writer, the OST and the MDT are set back by an hour,
/// one after another. The other client checks the times in each round. No client is evicted, and after all servers lost
/// power every record is there.
#[test]
fn clocks_that_are_set_back_lose_nothing_and_each_write_moves_the_time() {
    for seed in 0..12 {
        let scene = Scene::with(seed, ClusterOptions { osts: 1, ..ClusterOptions::default() }, CLIENTS);
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
            scene.lose_power(0..2);
            let file = other.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
            let bytes = other.read(&file, 0, RECORDS * RECORD).await.expect("it reads");
            let last = |place: usize| (0..ROUNDS).rfind(|round| round % RECORDS == place).expect("it was written");
            let expected = (0..RECORDS).flat_map(|place| record(if place == 0 { ROUNDS } else { last(place) }));
            assert!(bytes.iter().copied().eq(expected), "seed {seed}");
        });
    }
}
