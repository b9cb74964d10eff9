//! Byte-range write leases: clients that write interleaved records to one file each coalesce their writes, and nobody
//! can tell.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Client, OpenFile, OpenMode, SetAttributes};
use forebay_env::Env;
use forebay_proto::{Errno, Fid};
use forebay_sim::ClusterOptions;

use crate::scene::{Scene, caller, striped};

const RECORD: usize = 3000;
const WRITERS: u64 = 3;

/// A cluster with three OSTs, and clients of which all but the last are writers.
fn with_writers(seed: u64) -> Scene {
    let names: Vec<String> = (0..=WRITERS).map(|number| format!("client{number}")).collect();
    Scene::with(seed, ClusterOptions::default(), &names)
}

/// A client that writes every third record.
#[derive(Clone)]
struct Writer {
    env: Env,
    client: Client,
    file: OpenFile,
    rank: u64,
    next: Rc<Cell<u64>>,
}

impl Scene {
    async fn writers(&self) -> Vec<Writer> {
        let mut writers = Vec::new();
        for rank in 0..WRITERS {
            let client = self.mount(rank as usize).await;
            let layout = striped(3);
            let opened = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
            let (env, file) = (self.sim.env(self.nodes[rank as usize]), opened.expect("it opens").1);
            writers.push(Writer { env, client, file, rank, next: Rc::default() });
        }
        writers
    }

    /// Writers that have byte-range write leases and coalesce their writes.
    async fn sharing(&self) -> Vec<Writer> {
        let writers = self.writers().await;
        together(&writers, 60, Duration::from_millis(5)).await;
        for writer in &writers {
            assert!(writer.gathers().await, "writer {}", writer.rank);
        }
        writers
    }
}

impl Writer {
    async fn write(&self) {
        let record = self.next.get() * WRITERS + self.rank;
        let written = self.client.write(&self.file, record * RECORD as u64, vec![tag(record); RECORD]).await;
        assert_eq!(written, Ok(RECORD));
        self.next.set(self.next.get() + 1);
    }

    /// True if ten writes without a pause take fewer than ten requests.
    async fn gathers(&self) -> bool {
        let before = self.client.stats().rpcs;
        for _ in 0..10 {
            self.write().await;
        }
        self.client.stats().rpcs - before < 10
    }
}

fn tag(record: u64) -> u8 {
    (record % 255) as u8 + 1
}

/// All writers write, each at its own pace.
async fn together(writers: &[Writer], writes: u64, pause: Duration) {
    let tasks = writers.iter().map(|writer| {
        let writer = writer.clone();
        writer.env.clone().spawn(async move {
            for _ in 0..writes {
                writer.write().await;
                writer.env.sleep(pause).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it writes");
    }
}

/// Checks that everything acknowledged to `writers` is among the bytes that were read.
fn check(seen: &[u8], writers: &[Writer], context: &str) {
    for writer in writers {
        for record in (0..writer.next.get()).map(|n| n * WRITERS + writer.rank) {
            let bytes = seen.get(record as usize * RECORD..(record as usize + 1) * RECORD).unwrap_or_default();
            assert!(bytes.len() == RECORD && bytes.iter().all(|b| *b == tag(record)), "{context}: record {record}");
        }
    }
}

async fn read(client: &Client, file: &OpenFile) -> Vec<u8> {
    client.read(file, 0, 16 << 20).await.expect("it reads").to_vec()
}

/// Three writers write 600 interleaved records with fewer than 400 requests. Each of them then reads all records.
#[test]
fn writers_of_interleaved_records_coalesce_their_writes() {
    let scene = with_writers(1);
    scene.sim.block_on(async {
        let writers = scene.sharing().await;
        let rpcs = || writers.iter().map(|writer| writer.client.stats().rpcs).sum::<u64>();
        let before = rpcs();
        together(&writers, 200, Duration::from_micros(200)).await;
        let sent = rpcs() - before;
        assert!(sent < 400, "{sent} requests for 600 writes");
        for writer in &writers {
            check(&read(&writer.client, &writer.file).await, &writers, "at the end");
        }
    });
}

/// Three writers have buffered records. A client that did not write looks up the file, syncs everything, or just opens
/// it: it reads every acknowledged byte. While it has the file open, the writers buffer nothing; some seconds after its
/// close they do again.
#[test]
fn another_client_sees_every_byte_buffered_under_byte_range_write_leases() {
    for seed in 0..20 {
        let scene = with_writers(seed);
        scene.sim.block_on(async {
            let writers = scene.sharing().await;
            let look = scene.mount(WRITERS as usize).await;
            let longest = writers.iter().map(|w| (w.next.get() - 1) * WRITERS + w.rank + 1).max().unwrap();
            match seed % 3 {
                0 => {
                    let attr = look.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
                    assert_eq!(attr.size, longest * RECORD as u64, "seed {seed}");
                }
                1 => look.sync_all().await.expect("it syncs"),
                _ => {}
            }
            let same = look.open(&caller(), writers[0].file.fid(), OpenMode::READ).await.expect("it opens");
            check(&read(&look, &same).await, &writers, &format!("seed {seed}"));
            // The file is now open on that client too: the writers buffer nothing.
            for writer in &writers {
                writer.write().await;
                check(&read(&look, &same).await, &writers, &format!("seed {seed}, later"));
            }
            look.close(same).await.expect("it closes");
            scene.sim.sleep(Duration::from_secs(3)).await;
            together(&writers, 60, Duration::from_millis(5)).await;
            assert!(writers[1].gathers().await, "seed {seed}: it is shared again");
        });
    }
}

/// Three writers have buffered records. One of them reads, stats, overwrites another's record, truncates, appends, or
/// syncs. It always acts on what all three have written, and an fsync makes that durable.
#[test]
fn a_holder_of_a_byte_range_write_lease_sees_the_writes_of_the_others() {
    for seed in 0..30 {
        let scene = with_writers(seed);
        scene.sim.block_on(async {
            let writers = scene.sharing().await;
            let (one, other) = (&writers[0], &writers[1]);
            for writer in &writers {
                writer.write().await;
            }
            let theirs = ((other.next.get() - 1) * WRITERS + other.rank) * RECORD as u64;
            let size = ((writers[2].next.get() - 1) * WRITERS + 2 + 1) * RECORD as u64;
            let (context, client, file) = (format!("seed {seed}"), &one.client, &one.file);
            match seed % 6 {
                0 => {
                    let seen = client.read(file, theirs, RECORD).await.expect("it reads");
                    assert_eq!(seen[..], other_bytes(theirs), "{context}");
                }
                1 => assert_eq!(client.getattr(file.fid(), Some(file)).await.expect("it is there").size, size),
                2 => {
                    // Overwrite a record that another writer has just written and still buffers.
                    assert_eq!(client.write(file, theirs, vec![0; RECORD]).await, Ok(RECORD));
                    scene.sim.sleep(Duration::from_millis(200)).await;
                    let seen = other.client.read(&other.file, theirs, RECORD).await.expect("it reads");
                    assert!(seen.iter().all(|byte| *byte == 0), "{context}: the older bytes came last");
                    return;
                }
                3 => {
                    let changes = SetAttributes { size: Some(theirs), ..SetAttributes::default() };
                    let attr = client.setattr(&caller(), file.fid(), changes, Some(file)).await.expect("it cuts");
                    assert_eq!(attr.size, theirs);
                    scene.sim.sleep(Duration::from_millis(200)).await;
                    assert_eq!(read(&other.client, &other.file).await.len() as u64, theirs, "{context}: it grew again");
                    return;
                }
                4 => {
                    assert_eq!(client.append(file, vec![9; 10]).await, Ok(size), "{context}");
                    return;
                }
                _ => {
                    // Everything that was acknowledged before is durable.
                    client.fsync(file, false).await.expect("it syncs");
                    scene.nodes[..WRITERS as usize].iter().for_each(|node| scene.sim.crash(*node));
                    scene.cluster.servers.iter().for_each(|server| scene.sim.power_cut(server.node));
                    scene.cluster.boot_all();
                    let look = scene.mount(WRITERS as usize).await;
                    let same = look.open(&caller(), file.fid(), OpenMode::READ).await.expect("it opens");
                    return check(&read(&look, &same).await, &writers, &context);
                }
            }
            check(&read(client, file).await, &writers, &context);
        });
    }
}

fn other_bytes(at: u64) -> Vec<u8> {
    vec![tag(at / RECORD as u64); RECORD]
}

/// Two of the writers write the same records, so their claims overlap: nobody gets a byte-range write lease.
#[test]
fn overlapping_claims_get_no_range_lease() {
    for seed in 0..6 {
        let scene = with_writers(seed);
        scene.sim.block_on(async {
            let mut writers = scene.writers().await;
            writers[2].rank = 1;
            // A client with an open handle and no claim prevents the leases too, even if it does not write.
            let _idle = (seed % 2 == 1).then(|| writers.remove(1));
            together(&writers, 60, Duration::from_millis(5)).await;
            for writer in &writers {
                assert!(!writer.gathers().await, "seed {seed}: {}", writer.rank);
            }
            check(&read(&writers[0].client, &writers[0].file).await, &writers, &format!("seed {seed}"));
        });
    }
}

/// One writer is cut off from the MDT, or from all servers, with a buffered record. Another client reads within 15 s.
/// After that no bytes of that writer arrive. If its record is lost, its fsync reports EIO; the other writers lose
/// nothing.
#[test]
fn a_strided_writer_that_is_cut_off_is_fenced_before_others_read() {
    for seed in 0..10 {
        let scene = with_writers(seed);
        scene.sim.block_on(async {
            let writers = scene.sharing().await;
            let lost = &writers[0];
            lost.client.fsync(&lost.file, false).await.expect("it syncs");
            scene.sim.sleep(Duration::from_secs(3)).await;
            together(&writers, 60, Duration::from_millis(5)).await;
            scene.sim.sleep(Duration::from_millis(200)).await;
            let sure = lost.next.get();
            lost.write().await;
            writers[1].write().await;
            let servers = if seed % 2 == 0 { 0..1 } else { 0..scene.cluster.servers.len() };
            servers.clone().for_each(|server| scene.sim.cut_both(scene.nodes[0], scene.cluster.servers[server].node));
            let begun = scene.sim.now();
            let seen = if seed % 3 == 0 {
                // Another of the writers.
                read(&writers[1].client, &writers[1].file).await
            } else {
                let look = scene.mount(WRITERS as usize).await;
                let same = look.open(&caller(), lost.file.fid(), OpenMode::READ).await.expect("it opens");
                read(&look, &same).await
            };
            let waited = scene.sim.now().since(begun);
            assert!(waited < Duration::from_secs(15), "seed {seed}: it waited {waited:?}");
            check(&seen, &writers[1..], &format!("seed {seed}"));
            let last = (sure * WRITERS) as usize * RECORD;
            let came =
                seen.get(last..last + RECORD).is_some_and(|bytes| bytes.iter().all(|b| *b == tag(sure * WRITERS)));
            servers.for_each(|server| scene.sim.heal(scene.nodes[0], scene.cluster.servers[server].node));
            scene.sim.sleep(Duration::from_secs(5)).await;
            let later = read(&writers[2].client, &writers[2].file).await;
            assert_eq!(later, seen, "seed {seed}: bytes came after the fence");
            if !came {
                let error = lost.client.fsync(&lost.file, false).await.expect_err("it has lost some");
                assert_eq!(error.errno, Errno::EIO, "seed {seed}: {error}");
            }
        });
    }
}

/// write (buffered, OSTs cut off) |MDT| stat by another client
///
/// Two writers have buffered records that they cannot send when the MDT restarts. The MDT must not show the file to the
/// looker, or to the third writer, before the records have arrived. Later the writers have leases again.
#[test]
fn byte_range_write_leases_survive_a_restart_of_the_mdt() {
    for seed in 0..10 {
        let scene = with_writers(seed);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let writers = scene.sharing().await;
            for ost in 1..cluster.servers.len() {
                (0..2).for_each(|node| sim.cut_both(scene.nodes[node], cluster.servers[ost].node));
            }
            together(&writers[..2], 3, Duration::ZERO).await;
            sim.crash(cluster.servers[0].node);
            cluster.boot(0);
            let look = if seed % 2 == 0 { writers[2].client.clone() } else { scene.mount(WRITERS as usize).await };
            let size = Rc::new(Cell::new(None));
            let (seen, other, fid) = (size.clone(), look.clone(), writers[0].file.fid());
            sim.env(scene.nodes[WRITERS as usize]).spawn(async move {
                seen.set(Some(other.getattr(fid, None).await.expect("it is there").size));
            });
            sim.sleep(Duration::from_secs(4)).await;
            assert_eq!(size.get(), None, "seed {seed}: it was shown without what is kept back");
            for ost in 1..cluster.servers.len() {
                (0..2).for_each(|node| sim.heal(scene.nodes[node], cluster.servers[ost].node));
            }
            sim.sleep(Duration::from_secs(8)).await;
            let longest = writers.iter().map(|w| (w.next.get() - 1) * WRITERS + w.rank + 1).max().unwrap();
            assert_eq!(size.get(), Some(longest * RECORD as u64), "seed {seed}");
            together(&writers, 80, Duration::from_millis(40)).await;
            assert!(writers[0].gathers().await, "seed {seed}: it is shared again");
            check(&read(&writers[1].client, &writers[1].file).await, &writers, &format!("seed {seed}"));
        });
    }
}

/// write |kill an OST, the MDT, or all| write, read
///
/// Three writers write interleaved records while an OST, the MDT or all servers are killed and restart. Every
/// acknowledged record is there.
#[test]
fn interleaved_writes_survive_restarts_of_servers() {
    for seed in 0..12 {
        let scene = with_writers(seed);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let writers = scene.sharing().await;
            let all = writers.clone();
            let writing = sim.env(scene.nodes[0]).spawn(async move {
                together(&all, 300, Duration::from_millis(2)).await;
            });
            sim.sleep(Duration::from_millis(100)).await;
            let servers = match seed % 3 {
                0 => 0..1,
                1 => 1..2,
                _ => 0..cluster.servers.len(),
            };
            for server in servers {
                sim.crash(cluster.servers[server].node);
                cluster.boot(server);
            }
            writing.await.expect("they write");
            check(&read(&writers[2].client, &writers[2].file).await, &writers, &format!("seed {seed}"));
        });
    }
}

/// One of three writers closes the file. The other two continue to coalesce their writes, and all records are there.
#[test]
fn a_strided_writer_that_closes_leaves_the_others_their_leases() {
    let scene = with_writers(7);
    scene.sim.block_on(async {
        let mut writers = scene.sharing().await;
        let gone = writers.remove(1);
        let count = gone.next.get();
        gone.client.close(gone.file.clone()).await.expect("it closes");
        assert!(writers[0].gathers().await && writers[1].gathers().await);
        scene.sim.sleep(Duration::from_secs(20)).await;
        let seen = read(&writers[0].client, &writers[0].file).await;
        gone.next.set(count);
        check(&seen, &[writers[0].clone(), gone, writers[1].clone()], "at the end");
    });
}
