//! Recovery after a crash where one of the clients is late, gone, or has never received a reply.

use std::time::Duration;

use forebay_client::{Client, ClientResult, CommitLevel, LayoutSpec, OpenFile, OpenMode};
use forebay_env::{
    Task,
    sim::{Fault, NodeId, Sim},
};
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{Scene, caller, create, striped};

/// The clients' machines.
const CLIENTS: &[&str] = &["first", "second"];

const STRIPE: usize = 64 << 10;
const MIB: usize = 1 << 20;

impl Scene {
    /// The first client has written 1000 bytes, and 8000 bytes behind them whose reply the OST holds, as its journal is
    /// stuck. Returns the second client with the same file.
    async fn behind_a_held_write(&self) -> (Client, OpenFile) {
        let first = self.cluster.mount(self.nodes[0], CommitLevel::Commit).await.expect("it mounts");
        let second = self.mount(1).await;
        let (file, other) = (open(&first, b"f", 1).await, open(&second, b"f", 1).await);
        first.write(&file, 0, vec![1; 1000]).await.expect("written");
        let ost = self.cluster.servers[1].node;
        self.sim.disk_fault(ost, "/store/journal", Fault::Stuck(Duration::from_secs(3)));
        drop(self.sim.env(self.nodes[0]).spawn(async move { first.write(&file, 1000, vec![2; 8000]).await }));
        self.sim.sleep(Duration::from_millis(5)).await;
        (second, other)
    }
}

/// Makes or opens the file `name` with `stripes` stripes of 64 KiB, from OST0000 on.
async fn open(client: &Client, name: &[u8], stripes: u32) -> OpenFile {
    create(client, name, LayoutSpec { stripe_index: 0, ..striped(stripes) }).await
}

/// An append of 3000 bytes behind 64 KiB of durable bytes. It is executed, and its reply is lost.
struct Untold {
    /// The client that does not know where its append lies. It stays up.
    first: Client,
    second: Client,
    /// The same file, opened by the second client.
    other: OpenFile,
    told: Task<ClientResult<u64>>,
    /// The node of the file's home.
    ost: NodeId,
}

impl Untold {
    async fn append(scene: &Scene) -> Self {
        let (first, second) = (scene.mount(0).await, scene.mount(1).await);
        let (log, other) = (open(&first, b"log", 1).await, open(&second, b"log", 1).await);
        first.append(&log, vec![1; STRIPE]).await.expect("appended");
        first.fsync(&log, false).await.expect("synced");
        let ost = scene.cluster.servers[1].node;
        scene.sim.cut(ost, scene.nodes[0]);
        let appends = first.clone();
        let told = scene.sim.env(scene.nodes[0]).spawn(async move { appends.append(&log, vec![2; 3000]).await });
        scene.sim.sleep(Duration::from_millis(5)).await;
        Self { first, second, other, told, ost }
    }
}

/// write (reply held by a stuck journal), overwrite by another client, read |power, OST| resend
///
/// The first client's write is executed and its reply held. The second client overwrites half of it and reads. The OST
/// loses power, and the first client sends its write again. It must not overwrite the newer bytes that the second
/// client has read.
#[test]
fn a_resent_write_does_not_overwrite_newer_bytes_that_were_read() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let first = scene.cluster.mount(scene.nodes[0], CommitLevel::Commit).await.expect("it mounts");
            let second = scene.mount(1).await;
            let (file, other) = (open(&first, b"f", 1).await, open(&second, b"f", 1).await);
            first.write(&file, 0, vec![1; 8000]).await.expect("written");
            let ost = scene.cluster.servers[1].node;
            scene.sim.disk_fault(ost, "/store/journal", Fault::Stuck(Duration::from_secs(3)));
            let (env, other_env) = (scene.sim.env(scene.nodes[0]), scene.sim.env(scene.nodes[1]));
            let old = env.spawn(async move { first.write(&file, 0, vec![2; 8000]).await });
            scene.sim.sleep(Duration::from_millis(5)).await;
            let looks = second.clone();
            let look = other.clone();
            let new = other_env.spawn(async move {
                looks.write(&look, 0, vec![3; 4000]).await.expect("written");
                looks.read(&look, 0, 8000).await.expect("it reads")
            });
            scene.sim.sleep(Duration::from_secs(1)).await;
            scene.power_cycle(1);
            old.await.expect("it ends").expect("written");
            let seen = new.await.expect("it ends");
            let now = second.read(&other, 0, 8000).await.expect("it reads");
            let told = |bytes: &[u8]| (bytes[0], bytes[7999]);
            let old_is_below = told(&seen) == (3, 2);
            assert!(!old_is_below || told(&now) == (3, 2), "seed {seed}: {:?}, then {:?}", told(&seen), told(&now));
        });
    }
}

/// write (reply held by a stuck journal), append by another client |power, OST; the writer crashes| read
///
/// The first client's write is executed and its reply held. The second client appends. The OST loses power and the
/// first client is gone. The append lies directly behind what is there, with or without the first client's write.
#[test]
fn an_append_is_not_put_behind_bytes_whose_writer_got_no_reply() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (second, other) = scene.behind_a_held_write().await;
            let (appends, log) = (second.clone(), other.clone());
            let appended = scene.sim.env(scene.nodes[1]).spawn(async move { appends.append(&log, vec![3; 500]).await });
            scene.sim.sleep(Duration::from_secs(1)).await;
            scene.sim.crash(scene.nodes[0]);
            scene.power_cycle(1);
            let at = appended.await.expect("it ends").expect("appended") as usize;
            let bytes = second.read(&other, 0, MIB).await.expect("it reads");
            let written = if at == 1000 { 0 } else { 8000 };
            let wanted = [vec![1; 1000], vec![2; written], vec![3; 500]].concat();
            assert!(bytes[..] == wanted[..], "seed {seed}: at {at} of {}, behind {}", bytes.len(), bytes[at - 1]);
        });
    }
}

/// write (reply held by a stuck journal), write below it, append by another client |power, OST; the writer crashes|
/// read
///
/// The same, but the second client also writes below the first client's bytes. Its replay must not restore a size that
/// it was never shown: the append leaves no zeros where the lost bytes were.
#[test]
fn a_replayed_write_does_not_restore_a_size_from_another_writer_without_reply() {
    for seed in 0..10 {
        let scene = Scene::with(seed, ClusterOptions { write_back_bytes: 0, ..ClusterOptions::default() }, CLIENTS);
        scene.sim.block_on(async {
            let (second, other) = scene.behind_a_held_write().await;
            second.write(&other, 0, vec![4; 100]).await.expect("written");
            let (appends, log) = (second.clone(), other.clone());
            let appended = scene.sim.env(scene.nodes[1]).spawn(async move { appends.append(&log, vec![3; 500]).await });
            scene.sim.sleep(Duration::from_secs(1)).await;
            scene.sim.crash(scene.nodes[0]);
            scene.power_cycle(1);
            let at = appended.await.expect("it ends").expect("appended") as usize;
            let bytes = second.read(&other, 0, MIB).await.expect("it reads");
            let written = if at == 1000 { 0 } else { 8000 };
            let wanted = [vec![4; 100], vec![1; 900], vec![2; written], vec![3; 500]].concat();
            assert!(bytes[..] == wanted[..], "seed {seed}: at {at} of {}, behind {}", bytes.len(), bytes[at - 1]);
        });
    }
}

/// write (uncommitted, journal stuck), session ended by the OST, read by another client |power, OST| read
///
/// The first client's write is uncommitted, as the journal is stuck, and the client is evicted. The second client
/// reads, the OST loses power, and the second client reads again: both times the same bytes.
#[test]
fn an_uncommitted_write_of_an_evicted_client_is_shown_only_when_it_is_durable() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let (file, other) = (open(&first, b"f", 1).await, open(&second, b"f", 1).await);
            first.write(&file, 0, vec![1; 8000]).await.expect("written");
            first.fsync(&file, false).await.expect("synced");
            let (ost, writer) = (scene.cluster.servers[1].node, scene.nodes[0]);
            scene.sim.disk_fault(ost, "/store/journal", Fault::Stuck(Duration::from_secs(130)));
            first.write(&file, 0, vec![2; 8000]).await.expect("written");
            scene.sim.cut(ost, writer);
            scene.sim.cut(writer, ost);
            scene.sim.sleep(Duration::from_secs(100)).await;
            let (reads, look) = (second.clone(), other.clone());
            let seen = scene.sim.env(scene.nodes[1]).spawn(async move { reads.read(&look, 0, 8000).await });
            scene.sim.sleep(Duration::from_secs(1)).await;
            scene.power_cycle(1);
            let seen = seen.await.expect("it ends").expect("it reads");
            let now = second.read(&other, 0, 8000).await.expect("it reads");
            assert_eq!((seen[0], seen[7999]), (now[0], now[7999]), "seed {seed}");
        });
    }
}

/// append (reply lost), session ended by the OST, close, look by another client
///
/// The first client's append is executed and its reply is lost; then the OST evicts it. Its append and its close report
/// an error. The second client's stat and read agree that the append was executed.
#[test]
fn stat_and_read_agree_on_an_append_whose_client_was_evicted_before_the_reply() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let (file, other) = (open(&first, b"f", 2).await, open(&second, b"f", 2).await);
            first.write(&file, 0, vec![1; 1000]).await.expect("written");
            first.fsync(&file, false).await.expect("synced");
            second.close(other).await.expect("closed");
            let (ost, writer) = (scene.cluster.servers[1].node, scene.nodes[0]);
            scene.sim.cut(ost, writer);
            let (writes, open) = (first.clone(), file.clone());
            let told = scene.sim.env(writer).spawn(async move { writes.append(&open, vec![2; 3000]).await });
            scene.sim.sleep(Duration::from_millis(5)).await;
            scene.sim.cut(writer, ost);
            scene.sim.sleep(Duration::from_secs(100)).await;
            scene.sim.heal(ost, writer);
            scene.sim.heal(writer, ost);
            told.await.expect("it ends").expect_err("nobody knows any more whether it was written");
            let fid = file.fid();
            first.close(file).await.expect_err("it says so");
            let known = second.getattr(fid, None).await.expect("it has attributes").size;
            let reader = second.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
            let bytes = second.read(&reader, 0, MIB).await.expect("it reads");
            assert_eq!((known, bytes.len()), (4000, 4000), "seed {seed}: it was done");
        });
    }
}

/// append (reply lost), append and read by another client |power, OST| resend
///
/// The first client's append lies at 64 KiB, and its reply is lost. The second client appends behind it. The OST loses
/// power. The first client's resent append gets its old offset, and the second client sees no gap between both appends.
#[test]
fn append_with_lost_reply_keeps_its_offset_after_crash() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let Untold { first: _first, second, other, told, ost } = Untold::append(&scene).await;
            let at = second.append(&other, vec![3; 2000]).await.expect("appended");
            assert_eq!(at as usize, STRIPE + 3000, "seed {seed}: a place was given before");
            scene.power_cycle(1);
            let (reads, look) = (second.clone(), other.clone());
            let seen = scene.sim.env(scene.nodes[1]).spawn(async move { reads.read(&look, 0, MIB).await });
            // The second client is back, and continues.
            scene.sim.sleep(Duration::from_millis(500)).await;
            scene.sim.heal(ost, scene.nodes[0]);
            let seen = seen.await.expect("it ends").expect("it reads");
            let first_at = told.await.expect("it ends").expect("appended");
            assert_eq!(first_at as usize, STRIPE, "seed {seed}");
            let bytes = second.read(&other, 0, MIB).await.expect("it reads");
            let wanted = [vec![1; STRIPE], vec![2; 3000], vec![3; 2000]].concat();
            assert!(bytes[..] == wanted[..], "seed {seed}: {} bytes", bytes.len());
            assert!(seen[..] == wanted[..], "seed {seed}: {} bytes were seen", seen.len());
        });
    }
}

/// append (reply lost), append by another client |power, OST; the first client is cut off| append
///
/// The first client's append is lost with the OST. The second client's append keeps its offset: its next append must
/// not overwrite it.
#[test]
fn an_append_keeps_its_offset_when_the_append_before_is_lost() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let Untold { second, other, ost, .. } = Untold::append(&scene).await;
            let at = second.append(&other, vec![3; 3000]).await.expect("appended");
            assert_eq!(at as usize, STRIPE + 3000, "seed {seed}: a place was given before");
            scene.sim.cut_both(scene.nodes[0], ost);
            scene.power_cycle(1);
            let next = second.append(&other, vec![4; 3000]).await.expect("appended");
            let bytes = second.read(&other, 0, MIB).await.expect("it reads");
            let there = bytes[at as usize..][..3000].iter().all(|byte| *byte == 3);
            assert!(there, "seed {seed}: the append at {at} was written over by one at {next}");
            assert!(bytes[next as usize..].iter().all(|byte| *byte == 4) && bytes.len() == next as usize + 3000);
        });
    }
}

/// nearly full OST, overwrites |power, OST| replay
///
/// A client overwrites a file ten times on a nearly full OST, which then loses power. All overwrites are replayed,
/// although the OST has little space.
#[test]
fn overwrites_of_a_nearly_full_ost_are_replayed() {
    for seed in 0..4 {
        let options = ClusterOptions { ost_bytes: 24 << 20, ..ClusterOptions::default() };
        let scene = Scene::with(seed, options, CLIENTS);
        scene.sim.block_on(async {
            let client = scene.mount(0).await;
            let (file, spare) = (open(&client, b"file", 1).await, open(&client, b"spare", 1).await);
            let filler = open(&client, b"filler", 1).await;
            client.write(&file, 0, vec![1; STRIPE]).await.expect("written");
            client.write(&spare, 0, vec![1; 2 * STRIPE]).await.expect("written");
            for number in 0.. {
                client.write(&filler, number * STRIPE as u64, vec![9; STRIPE]).await.expect("others have room");
                let layout = client.get_layout(filler.fid()).await.expect("told").0.expect("of a file");
                if layout.components.len() > 1 {
                    break;
                }
            }
            client.unlink(&caller(), Fid::ROOT, b"spare").await.expect("gone");
            client.close(spare).await.expect("closed");
            client.sync_all().await.expect("synced");
            scene.sim.sleep(Duration::from_secs(20)).await;
            for round in 2..12u8 {
                client.write(&file, 0, vec![round; STRIPE]).await.expect("there is room");
            }
            scene.power_cycle(1);
            let read = client.read(&file, 0, MIB).await.expect("it reads");
            assert!(read.iter().all(|byte| *byte == 11), "seed {seed}: {} is there", read[0]);
            client.fsync(&file, false).await.expect("nothing is lost");
        });
    }
}

/// write two files on two OSTs |the client and one OST are gone for good| open the other file
///
/// The first client writes files on two OSTs, buffers more, and crashes; one of the OSTs goes down too. The second
/// client opens the file on the other OST within 120 s.
#[test]
fn a_client_lost_with_one_ost_delays_no_open_of_files_on_other_osts() {
    for (seed, away) in [(1, 0), (2, 1)] {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let mut fids = Vec::new();
            for (name, ost) in [(b"a", 0), (b"b", 1)] {
                let layout = LayoutSpec { stripe_count: 1, stripe_index: ost, ..LayoutSpec::inherit() };
                let made = first.create(&caller(), Fid::ROOT, name, 0o644, OpenMode::READ_WRITE, layout).await;
                let file = made.expect("made").1;
                first.write(&file, 0, vec![ost as u8 + 1; 5000]).await.expect("written");
                first.fsync(&file, false).await.expect("synced");
                // A buffered write, which is lost with its writer.
                first.write(&file, 5000, vec![9; 100]).await.expect("written");
                fids.push((file.fid(), ost));
                std::mem::forget(file);
            }
            let gone = fids[away].1 as usize;
            scene.sim.crash(scene.nodes[0]);
            scene.sim.power_cut(scene.cluster.servers[1 + gone].node);
            let (fid, ost) = fids[1 - away];
            let looks = async {
                let file = second.open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens");
                let read = second.read(&file, 0, 5000).await.expect("it reads");
                assert!(read.len() == 5000 && read.iter().all(|byte| *byte == ost as u8 + 1));
            };
            let looked = scene.sim.env(scene.nodes[1]).timeout(Duration::from_secs(120), looks).await;
            assert!(looked.is_ok(), "seed {seed}: a file on an OST that is there waits for another");
        });
    }
}

/// A misses a recovery, B continues |power, MDT| A comes in time
///
/// The first client misses the MDT's recovery and is evicted. The second client creates a file, which is not committed
/// when the MDT loses power again. The first client comes in time for that recovery, but stays evicted, and the second
/// client's file is there.
#[test]
fn a_client_evicted_in_one_recovery_stays_evicted_in_the_next() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let mdt = scene.cluster.servers[0].node;
            first.sync_all().await.expect("synced");
            second.sync_all().await.expect("synced");
            scene.sim.cut_both(scene.nodes[0], mdt);
            scene.power_cycle(0);
            // The create is acknowledged as soon as the window ends, and not committed.
            let open = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
            let layout = LayoutSpec::inherit();
            second.create(&caller(), Fid::ROOT, b"x", 0o600, open, layout).await.expect("made");
            scene.sim.heal(scene.nodes[0], mdt);
            scene.power_cycle(0);
            scene.sim.sleep(Duration::from_secs(60)).await;
            first.lookup(&caller(), Fid::ROOT, b"x").await.expect("it is there");
            assert_eq!((first.stats().evictions, second.stats().evictions), (1, 0), "seed {seed}");
        });
    }
}

/// A server stands still for longer than it waits for clients. It evicts nobody for that.
///
/// This proves less than it seems to: a simulated server reads what has arrived before it looks at its clock. A real
/// one need not.
#[test]
fn a_paused_server_evicts_no_client_for_its_own_pause() {
    for (seed, server) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let client = scene.mount(0).await;
            let file = open(&client, b"file", 1).await;
            client.write(&file, 0, vec![1; MIB]).await.expect("written");
            let node = scene.cluster.servers[server].node;
            for starts_anew in [false, true] {
                if starts_anew {
                    scene.power_cycle(server);
                    scene.sim.sleep(Duration::from_micros(500 * seed)).await;
                }
                scene.sim.pause(node);
                scene.sim.sleep(Duration::from_secs(200)).await;
                scene.sim.resume(node);
                client.write(&file, 0, vec![2; MIB]).await.expect("written");
                client.fsync(&file, false).await.expect("synced");
                client.mkdir(&caller(), Fid::ROOT, format!("{starts_anew}").as_bytes(), 0o755).await.expect("made");
                assert_eq!(client.stats().evictions, 0, "seed {seed}, started anew: {starts_anew}");
            }
        });
    }
}

/// A client is cut off for so long that it is evicted and loses its leased fids. When the link is back, it makes files
/// with new fids.
#[test]
fn a_client_that_was_evicted_makes_files_again() {
    for seed in 0..4 {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
            cluster.boot_all();
            let node = sim.add_node("client");
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let make = async |name: &[u8]| {
                let layout = LayoutSpec::inherit();
                client.create(&caller(), Fid::ROOT, name, 0o644, OpenMode::READ_WRITE, layout).await
            };
            let first = make(b"before").await.expect("it is made").1;
            client.close(first).await.expect("closed");
            sim.cut_both(node, cluster.servers[0].node);
            sim.sleep(Duration::from_secs(240)).await;
            sim.heal(node, cluster.servers[0].node);
            sim.sleep(Duration::from_secs(20)).await;
            make(b"after").await.expect("it is made");
        });
    }
}
