//! Write-back of small writes: nobody can tell that they are buffered, and every loss is reported.

use std::{cell::RefCell, rc::Rc, time::Duration};

use forebay_client::{Client, CommitLevel, OpenFile, OpenMode};
use forebay_proto::{Errno, Fid};

use crate::scene::{Scene, caller, create, striped};

/// The clients' machines.
const CLIENTS: &[&str] = &["writer", "reader"];

const RECORD: usize = 3000;

impl Scene {
    /// A writer with a buffered second record that it can send to no OST; a reader; the file.
    async fn writer_without_osts(&self) -> (Client, Client, OpenFile) {
        let (writer, reader) = (self.mount(0).await, self.mount(1).await);
        let file = open(&writer, b"f").await;
        write(&writer, &file, 0).await;
        writer.fsync(&file, false).await.expect("it syncs");
        // Everything else that the writer holds is returned, as it is not used.
        self.sim.sleep(Duration::from_secs(15)).await;
        // The OSTs report that they have space.
        write(&writer, &file, 0).await;
        writer.fsync(&file, false).await.expect("it syncs");
        let osts = &self.cluster.servers[1..];
        osts.iter().for_each(|ost| self.sim.cut_both(self.nodes[0], ost.node));
        write(&writer, &file, 1).await;
        (writer, reader, file)
    }
}

async fn open(client: &Client, name: &[u8]) -> OpenFile {
    create(client, name, striped(3)).await
}

async fn write(client: &Client, file: &OpenFile, record: u64) {
    let written = client.write(file, record * RECORD as u64, vec![record as u8 + 1; RECORD]).await;
    assert_eq!(written, Ok(RECORD));
}

fn records(count: u64) -> Vec<u8> {
    (0..count).flat_map(|record| vec![record as u8 + 1; RECORD]).collect()
}

/// A client writes 100 records and syncs. They take fewer than 25 requests.
#[test]
fn many_small_writes_are_few_requests() {
    let scene = Scene::new(1, CLIENTS);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let file = open(&client, b"f").await;
        write(&client, &file, 0).await;
        client.fsync(&file, false).await.expect("it syncs");
        let before = client.stats().rpcs;
        for record in 0..100 {
            write(&client, &file, record).await;
        }
        client.fsync(&file, false).await.expect("it syncs");
        let rpcs = client.stats().rpcs - before;
        assert!(rpcs < 25, "{rpcs} requests for 100 writes");
        assert_eq!(client.read(&file, 0, 1 << 20).await.expect("it reads"), records(100));
    });
}

/// The writer has ten buffered records. The reader looks up the file, or opens it at once: it sees all of them. From
/// then on the writer buffers nothing.
#[test]
fn another_client_sees_buffered_writes_at_once() {
    for seed in 0..20 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
            let file = open(&writer, b"f").await;
            for record in 0..10 {
                write(&writer, &file, record).await;
            }
            if seed % 2 == 0 {
                let attr = reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
                assert_eq!(attr.size, 10 * RECORD as u64);
            }
            let same = reader.open(&caller(), file.fid(), OpenMode::READ).await.expect("it opens");
            assert_eq!(reader.read(&same, 0, 1 << 20).await.expect("it reads"), records(10));
            // The file is open on both clients: the writer buffers nothing.
            write(&writer, &file, 10).await;
            assert_eq!(reader.read(&same, 0, 1 << 20).await.expect("it reads"), records(11));
        });
    }
}

/// The reader's lookup takes the writer's lease. Some time later the writer has the lease again, and coalesces its
/// writes.
#[test]
fn a_writer_has_its_lease_again_some_time_after_a_lookup_by_another_client() {
    let scene = Scene::new(4, CLIENTS);
    scene.sim.block_on(async {
        let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
        let file = open(&writer, b"f").await;
        write(&writer, &file, 0).await;
        reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
        for record in 0..50 {
            write(&writer, &file, record).await;
            scene.sim.sleep(Duration::from_millis(50)).await;
        }
        let before = writer.stats().rpcs;
        for record in 0..50 {
            write(&writer, &file, record).await;
        }
        assert!(writer.stats().rpcs - before < 10, "{} requests for 50 writes", writer.stats().rpcs - before);
        let attr = reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
        assert_eq!(attr.size, 50 * RECORD as u64);
    });
}

/// The writer is cut off from the MDT, or from all servers, with a buffered record. The reader's open takes less than
/// 15 s. After that no bytes of the writer arrive, and if the record is lost, the writer's fsync reports EIO. Its close
/// and unmount end.
#[test]
fn a_writer_that_is_cut_off_is_fenced_before_others_read() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
            let file = open(&writer, b"f").await;
            write(&writer, &file, 0).await;
            writer.fsync(&file, false).await.expect("it syncs");
            write(&writer, &file, 1).await;
            // Cut off from the MDT, or from all servers: then the bytes come late, or not at all.
            let servers = if seed % 2 == 0 { 0..1 } else { 0..scene.cluster.servers.len() };
            servers.clone().for_each(|server| scene.sim.cut_both(scene.nodes[0], scene.cluster.servers[server].node));
            let begun = scene.sim.now();
            let same = reader.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
            let waited = scene.sim.now().since(begun);
            assert!(waited < Duration::from_secs(15), "seed {seed}: it waited {waited:?}");
            let seen = reader.read(&same, 0, 1 << 20).await.expect("it reads");
            assert!(seen == records(2) || seen == records(1), "seed {seed}: {} bytes", seen.len());
            servers.for_each(|server| scene.sim.heal(scene.nodes[0], scene.cluster.servers[server].node));
            scene.sim.sleep(Duration::from_secs(5)).await;
            let later = reader.read(&same, 0, 1 << 20).await.expect("it reads");
            assert_eq!(later, seen, "seed {seed}: bytes came after the fence");
            if seen == records(1) {
                let error = writer.fsync(&file, false).await.expect_err("it has lost some");
                assert_eq!(error.errno, Errno::EIO, "seed {seed}: {error}");
            }
            // Fenced or not, the writer is notified, and its close ends.
            let (env, fid) = (scene.sim.env(scene.nodes[0]), file.fid());
            let closed = env.timeout(Duration::from_secs(5), writer.close(file)).await;
            closed.unwrap_or_else(|_| panic!("seed {seed}: its close hangs")).ok();
            let size = reader.getattr(same.fid(), None).await.expect("it has attributes").size;
            assert_eq!(size as usize, seen.len(), "seed {seed}: what was lost counts");
            reader.close(same).await.expect("closed");
            let size = reader.getattr(fid, None).await.expect("it has attributes").size;
            assert_eq!(size as usize, seen.len(), "seed {seed}: what was lost counts");
            let left = env.timeout(Duration::from_secs(5), writer.unmount()).await;
            left.unwrap_or_else(|_| panic!("seed {seed}: its unmount hangs")).ok();
        });
    }
}

/// write (buffered, OSTs cut off) |MDT| stat by another client
///
/// The MDT restarts while the writer has a buffered record that it cannot send. The MDT must not show the file to the
/// reader before the record has arrived.
#[test]
fn data_write_leases_survive_a_restart_of_the_mdt() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
            let file = open(&writer, b"f").await;
            write(&writer, &file, 0).await;
            writer.fsync(&file, false).await.expect("it syncs");
            (1..cluster.servers.len()).for_each(|ost| sim.cut_both(scene.nodes[0], cluster.servers[ost].node));
            write(&writer, &file, 1).await;
            sim.crash(cluster.servers[0].node);
            cluster.boot(0);
            let size = Rc::new(RefCell::new(None));
            let (seen, other, fid) = (size.clone(), reader.clone(), file.fid());
            sim.env(scene.nodes[1]).spawn(async move {
                *seen.borrow_mut() = Some(other.getattr(fid, None).await.expect("it is there").size);
            });
            sim.sleep(Duration::from_secs(4)).await;
            assert_eq!(*size.borrow(), None, "seed {seed}: it was shown without what is kept back");
            (1..cluster.servers.len()).for_each(|ost| sim.heal(scene.nodes[0], cluster.servers[ost].node));
            sim.sleep(Duration::from_secs(8)).await;
            assert_eq!(*size.borrow(), Some(2 * RECORD as u64), "seed {seed}");
        });
    }
}

/// The writer writes a record every 5 ms, then crashes. The reader sees at least every record that was older than 100
/// ms, as buffered records are sent by then.
#[test]
fn writes_older_than_100_ms_and_synced_writes_survive_a_client_crash() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        let (sim, node) = (&scene.sim, scene.nodes[0]);
        sim.block_on(async {
            let reader = scene.mount(1).await;
            let written = Rc::new(RefCell::new(0));
            let (count, cluster) = (written.clone(), scene.cluster.clone());
            sim.start(node, move |env| async move {
                let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
                let file = open(&client, b"f").await;
                for record in 0..100 {
                    write(&client, &file, record).await;
                    *count.borrow_mut() = record + 1;
                    env.sleep(Duration::from_millis(5)).await;
                }
            });
            sim.sleep(Duration::from_millis(350)).await;
            let old = *written.borrow();
            assert!(old > 10, "seed {seed}");
            // Everything written so far is now older than the longest time in the buffer.
            sim.sleep(Duration::from_millis(100)).await;
            sim.crash(node);
            let attr = reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
            let file = reader.open(&caller(), attr.fid, OpenMode::READ).await.expect("it opens");
            let seen = reader.read(&file, 0, 1 << 20).await.expect("it reads");
            let all = records(100);
            assert!(seen.len() >= old as usize * RECORD && seen == all[..seen.len()], "seed {seed}: {}", seen.len());
        });
    }
}

/// The writer is connected to the MDT and cannot send its buffered record for 30 s, as the OSTs are cut off. The reader
/// waits. Nobody is evicted, and once the link is back, the reader sees the record.
#[test]
fn a_writer_that_sends_requests_is_not_evicted_while_it_waits_for_an_ost() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let (writer, reader, file) = scene.writer_without_osts().await;
            let size = Rc::new(RefCell::new(None));
            let (seen, other, fid) = (size.clone(), reader.clone(), file.fid());
            sim.env(scene.nodes[1]).spawn(async move {
                *seen.borrow_mut() = Some(other.getattr(fid, None).await.expect("it is there").size);
            });
            sim.sleep(Duration::from_secs(30)).await;
            assert_eq!(*size.borrow(), None, "seed {seed}");
            (1..cluster.servers.len()).for_each(|ost| sim.heal(scene.nodes[0], cluster.servers[ost].node));
            sim.sleep(Duration::from_secs(10)).await;
            assert_eq!(*size.borrow(), Some(2 * RECORD as u64), "seed {seed}");
            writer.fsync(&file, false).await.expect("nothing was lost");
        });
    }
}

/// Only the writer is cut off from the OSTs. The reader's stat waits for about five minutes, then the MDT evicts the
/// writer. The reader never sees the record, and the writer's fsync reports EIO.
#[test]
fn a_writer_that_sends_requests_but_no_bytes_for_minutes_is_evicted() {
    for seed in 0..5 {
        let scene = Scene::new(seed, CLIENTS);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let (writer, reader, file) = scene.writer_without_osts().await;
            let begun = sim.now();
            let size = reader.getattr(file.fid(), None).await.expect("it has attributes").size;
            let waited = sim.now().since(begun).as_secs();
            assert!((290..330).contains(&waited), "seed {seed}: it waited {waited} s");
            assert_eq!(size, RECORD as u64, "seed {seed}: what never arrived is not there");
            (1..cluster.servers.len()).for_each(|ost| sim.heal(scene.nodes[0], cluster.servers[ost].node));
            sim.sleep(Duration::from_secs(10)).await;
            let same = reader.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
            let seen = reader.read(&same, 0, 1 << 20).await.expect("it reads");
            assert_eq!(seen, records(1), "seed {seed}: bytes came after the fence");
            let error = writer.fsync(&file, false).await.expect_err("it has lost some");
            assert_eq!(error.errno, Errno::EIO, "seed {seed}: {error}");
            reader.close(same).await.expect("closed");
        });
    }
}

/// write, close, a read-only handle stays open |MDT| write, read by another client
///
/// The writer closes the handle that it wrote with and keeps a read-only one. The MDT restarts and presumes no lease.
/// The writer writes again while the reader has the file open: the reader reads both records.
#[test]
fn a_read_only_handle_left_after_a_restart_of_the_mdt_has_no_data_write_lease() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
            let file = open(&writer, b"f").await;
            write(&writer, &file, 0).await;
            let fid = file.fid();
            let left = writer.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
            writer.close(file).await.expect("it closes");
            writer.sync_all().await.expect("it syncs");
            sim.crash(cluster.servers[0].node);
            cluster.boot(0);
            sim.sleep(Duration::from_secs(25)).await;
            let same = reader.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
            let again = writer.open(&caller(), fid, OpenMode::WRITE).await.expect("it opens");
            write(&writer, &again, 1).await;
            assert_eq!(reader.read(&same, 0, 1 << 20).await.expect("it reads"), records(2), "seed {seed}");
            drop(left);
        });
    }
}

/// write (buffered), sync of everything by another client |the writer and all servers die| read
///
/// The other client's sync flushes the writer's buffered record too: it is there after the writer and all servers died.
#[test]
fn sync_of_everything_has_everything_sent() {
    let scene = Scene::new(3, CLIENTS);
    let (sim, cluster) = (&scene.sim, &scene.cluster);
    sim.block_on(async {
        let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
        let file = open(&writer, b"f").await;
        write(&writer, &file, 0).await;
        other.sync_all().await.expect("it syncs");
        sim.crash(scene.nodes[0]);
        cluster.servers.iter().for_each(|server| sim.power_cut(server.node));
        cluster.boot_all();
        let same = other.open(&caller(), file.fid(), OpenMode::READ).await.expect("it opens");
        assert_eq!(other.read(&same, 0, 1 << 20).await.expect("it reads"), records(1));
    });
}
