//! The read cache: no client shows cached bytes that are out of date.

use std::{cell::RefCell, rc::Rc, time::Duration};

use forebay_client::{Allocate, Client, CommitLevel, LayoutSpec, MountOptions, OpenFile, OpenMode, SetAttributes};
use forebay_env::sim::Sim;
use forebay_proto::Fid;
use forebay_sim::ClusterOptions;

use crate::scene::{Scene, caller, striped};

/// The clients' machines.
const CLIENTS: &[&str] = &["reader", "writer"];

const BYTES: usize = 3 << 20;

fn contents(salt: u8) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 251) as u8 ^ salt).collect()
}

/// The file `f` over all OSTs, with committed contents. Nobody has it open.
async fn make(client: &Client) -> Fid {
    let layout = striped(3);
    let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
    let file = made.expect("it is made").1;
    client.write(&file, 0, contents(0)).await.expect("written");
    client.fsync(&file, false).await.expect("synced");
    let fid = file.fid();
    client.close(file).await.expect("closed");
    fid
}

/// Opens the file as a mount does: a lookup, so that the file is leased, then the open.
async fn open(sim: &Sim, client: &Client, mode: OpenMode) -> OpenFile {
    client.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
    // A file that one client has just changed is not leased to another for a moment.
    sim.sleep(Duration::from_secs(1)).await;
    let fid = client.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there").fid;
    client.open(&caller(), fid, mode).await.expect("it opens")
}

async fn read_through(client: &Client, file: &OpenFile, step: usize) -> Vec<u8> {
    let mut read = Vec::new();
    loop {
        let bytes = client.read(file, read.len() as u64, step).await.expect("it reads");
        if bytes.is_empty() {
            return read;
        }
        read.extend_from_slice(&bytes);
    }
}

/// Reads the file like four programs that read interleaved records, one program after another.
async fn read_in_turns(client: &Client, file: &OpenFile, record: usize) -> Vec<u8> {
    let mut read: Vec<u8> = Vec::new();
    for rank in 0..4 {
        for at in (rank * record..).step_by(4 * record) {
            let bytes = client.read(file, at as u64, record).await.expect("it reads");
            if bytes.is_empty() {
                break;
            }
            read.resize(read.len().max(at + bytes.len()), 0);
            read[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
    read
}

/// The writer makes a file. The reader reads all of it, in steps of four sizes: it gets the right bytes with fewer than
/// 80 requests per pass.
#[test]
fn small_reads_are_few_requests() {
    let scene = Scene::new(1, CLIENTS);
    scene.sim.block_on(async {
        let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
        make(&writer).await;
        for step in [4096, 47_008, 65_536, 100_001] {
            let file = open(&scene.sim, &reader, OpenMode::READ).await;
            let before = reader.stats();
            assert!(read_through(&reader, &file, step).await == contents(0), "in steps of {step}");
            let after = reader.stats();
            let rpcs = after.rpcs - before.rpcs;
            assert!(rpcs < 80, "{rpcs} requests for {BYTES} bytes in steps of {step}");
            reader.close(file).await.expect("closed");
        }
        assert!(reader.stats().cached_read_bytes > 3 * BYTES as u64, "{:?}", reader.stats());
    });
}

/// The reader reads the file backwards in 4 KiB steps with fewer than 120 requests, then at offsets far apart: all
/// bytes are right.
#[test]
fn reads_backwards_and_in_strides_return_the_right_bytes_with_few_requests() {
    let scene = Scene::new(2, CLIENTS);
    scene.sim.block_on(async {
        let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
        make(&writer).await;
        let (file, whole) = (open(&scene.sim, &reader, OpenMode::READ).await, contents(0));
        let before = reader.stats().rpcs;
        for at in (0..BYTES - 4096).rev().step_by(4096) {
            assert!(reader.read(&file, at as u64, 4096).await.expect("it reads") == whole[at..at + 4096], "at {at}");
        }
        let rpcs = reader.stats().rpcs - before;
        assert!(rpcs < 120, "{rpcs} requests backwards");
        for at in (5..BYTES - 4096).step_by(300_000) {
            assert!(reader.read(&file, at as u64, 4096).await.expect("it reads") == whole[at..at + 4096], "at {at}");
        }
    });
}

/// The reader reads 5000 bytes every 70,000 bytes, forwards and backwards. It prefetches the records in fewer than 30
/// requests, without the bytes between them.
#[test]
fn reads_in_large_steps_are_few_requests_for_no_more_than_is_read() {
    let scene = Scene::new(5, CLIENTS);
    scene.sim.block_on(async {
        let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
        make(&writer).await;
        let (whole, record, step) = (contents(0), 5000, 70_000);
        let mut places: Vec<usize> = (0..BYTES - record).step_by(step).collect();
        for backwards in [false, true] {
            let file = open(&scene.sim, &reader, OpenMode::READ).await;
            let before = reader.stats();
            for at in &places {
                let read = reader.read(&file, *at as u64, record).await.expect("it reads");
                assert!(read == whole[*at..*at + record], "at {at}");
                scene.sim.sleep(Duration::from_millis(5)).await;
            }
            let after = reader.stats();
            let (rpcs, kept) = (after.rpcs - before.rpcs, after.read_cache_bytes - before.read_cache_bytes);
            assert!(rpcs < 30, "{rpcs} requests for {} reads, backwards {backwards}", places.len());
            assert!(kept < 4 * (record * places.len()) as u64, "{kept} bytes are kept");
            // Other offsets, from the end on.
            places = places.into_iter().rev().map(|at| at + step / 2).filter(|at| at + record < BYTES).collect();
            reader.close(file).await.expect("closed");
        }
    });
}

/// The reader has the file in its cache. The writer then writes, truncates, punches, appends or extends. The reader
/// sees the change at once.
#[test]
fn a_change_by_another_client_is_seen_through_the_read_cache_at_once() {
    let read = async |seed: u64, client: &Client, file: &OpenFile| match seed % 12 {
        0..6 => read_through(client, file, 30_000).await,
        _ => read_in_turns(client, file, 30_000).await,
    };
    for seed in 0..24 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
            let fid = make(&writer).await;
            let file = open(&scene.sim, &reader, OpenMode::READ).await;
            assert!(read(seed, &reader, &file).await == contents(0));
            let kept = reader.stats().read_cache_bytes;
            assert!(kept > 1 << 20, "{kept} bytes are kept");
            let mut expected = contents(0);
            let at = 64 << 10;
            match seed % 6 {
                0 => {
                    let other = open(&scene.sim, &writer, OpenMode::READ_WRITE).await;
                    writer.write(&other, at as u64, vec![0xee; 5000]).await.expect("written");
                    expected[at..at + 5000].fill(0xee);
                    if seed % 4 < 2 {
                        writer.close(other).await.expect("closed");
                    }
                }
                1 => {
                    let cut = SetAttributes { size: Some(at as u64), ..SetAttributes::default() };
                    writer.setattr(&caller(), fid, cut, None).await.expect("cut");
                    expected.truncate(at);
                }
                2 => {
                    let mode = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
                    let other = open(&scene.sim, &writer, mode).await;
                    writer.write(&other, 0, vec![1; 10]).await.expect("written");
                    expected = vec![1; 10];
                }
                3 => {
                    let other = open(&scene.sim, &writer, OpenMode::READ_WRITE).await;
                    writer.fallocate(&other, at as u64, 7000, Allocate::Punch).await.expect("punched");
                    expected[at..at + 7000].fill(0);
                }
                4 => {
                    let other = open(&scene.sim, &writer, OpenMode::READ_WRITE).await;
                    writer.append(&other, vec![9; 1000]).await.expect("appended");
                    expected.extend([9; 1000]);
                }
                _ => {
                    for grown in [BYTES as u64 + 70_000, 100] {
                        let cut = SetAttributes { size: Some(grown), ..SetAttributes::default() };
                        writer.setattr(&caller(), fid, cut, None).await.expect("resized");
                    }
                    expected.truncate(100);
                }
            }
            assert!(read(seed, &reader, &file).await == expected, "seed {seed}");
        });
    }
}

/// A client reads a file and changes it, through the same handle and through others. It always reads its own changes.
#[test]
fn a_client_reads_its_own_changes_through_the_read_cache() {
    for seed in 0..12 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let client = scene.mount(0).await;
            make(&client).await;
            let file = open(&scene.sim, &client, OpenMode::READ_WRITE).await;
            let mut expected = contents(0);
            for round in 0..20 {
                assert!(read_through(&client, &file, 30_000).await == expected, "seed {seed}, round {round}");
                let at = (seed as usize * 7919 + round * 104_729) % (BYTES - 200_000);
                match round % 4 {
                    0 => {
                        // A buffered write.
                        client.write(&file, at as u64, vec![round as u8; 3000]).await.expect("written");
                        expected[at..at + 3000].fill(round as u8);
                    }
                    1 => {
                        let other = open(&scene.sim, &client, OpenMode::READ_WRITE).await;
                        client.write(&other, at as u64, vec![round as u8; 150_000]).await.expect("written");
                        client.close(other).await.expect("closed");
                        expected[at..at + 150_000].fill(round as u8);
                    }
                    2 => {
                        client.fallocate(&file, at as u64, 9000, Allocate::Punch).await.expect("punched");
                        expected[at..at + 9000].fill(0);
                    }
                    _ => {
                        client.fsync(&file, false).await.expect("synced");
                        scene.sim.sleep(Duration::from_millis(300)).await;
                    }
                }
            }
        });
    }
}

/// The reader does not hear from the MDT any more. The writer changes the file without waiting for the reader, whose
/// lease has expired. The reader shows the new bytes.
#[test]
fn a_reader_that_is_cut_off_from_the_mdt_shows_nothing_old() {
    for seed in 0..6 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
            make(&writer).await;
            let file = open(&scene.sim, &reader, OpenMode::READ).await;
            assert!(read_through(&reader, &file, 30_000).await == contents(0));
            let mdt = scene.cluster.servers[0].node;
            scene.sim.cut(mdt, scene.nodes[0]);
            let other = open(&scene.sim, &writer, OpenMode::READ_WRITE).await;
            writer.write(&other, 100_000, vec![0xee; 5000]).await.expect("written");
            writer.fsync(&other, false).await.expect("synced");
            assert_eq!(reader.read(&file, 100_000, 5000).await.expect("it reads"), vec![0xee; 5000], "seed {seed}");
        });
    }
}

/// write, close, read by another client |writer and OSTs| read
///
/// The reader reads what the writer has written and not synced. The writer crashes and the OSTs lose power, so the
/// bytes may be lost. The reader then shows the same bytes as a third client: it had cached nothing uncommitted.
#[test]
fn bytes_that_a_crash_undoes_are_not_cached() {
    let mut taken_back = 0;
    for seed in 0..10 {
        let commit_interval = Duration::from_secs(3);
        let scene = Scene::with(seed, ClusterOptions { commit_interval, ..ClusterOptions::default() }, CLIENTS);
        scene.sim.block_on(async {
            let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
            let fid = make(&writer).await;
            // The reader's sessions are committed before.
            let file = open(&scene.sim, &reader, OpenMode::READ).await;
            reader.read(&file, 0, BYTES).await.expect("it reads");
            scene.sim.sleep(Duration::from_secs(4)).await;
            let other = open(&scene.sim, &writer, OpenMode::READ_WRITE).await;
            writer.write(&other, 0, vec![0xee; 300_000]).await.expect("written");
            writer.close(other).await.expect("closed");
            // As soon as the reader gets the lease, and before the OSTs commit automatically.
            reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
            scene.sim.sleep(Duration::from_millis(600)).await;
            reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
            let file = reader.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
            for _ in 0..8 {
                assert_eq!(reader.read(&file, 0, 5000).await.expect("it reads"), vec![0xee; 5000]);
                scene.sim.sleep(Duration::from_millis(120)).await;
            }
            scene.sim.crash(scene.nodes[1]);
            for (number, server) in scene.cluster.servers.iter().enumerate().skip(1) {
                scene.sim.power_cut(server.node);
                scene.cluster.boot(number);
            }
            let (node, cluster, now) =
                (scene.sim.add_node("third"), scene.cluster.clone(), Rc::new(RefCell::new(None)));
            let told = now.clone();
            scene.sim.env(node).spawn(async move {
                let third = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
                let same = third.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
                *told.borrow_mut() = Some(third.read(&same, 0, 5000).await.expect("it reads"));
            });
            // A client that reads all the time keeps its lease.
            loop {
                let known = now.borrow().clone();
                let read = reader.read(&file, 0, 5000).await.expect("it reads");
                if let Some(known) = known {
                    assert!(read == known, "seed {seed}: one sees what is gone");
                    taken_back += usize::from(known[0] != 0xee);
                    break;
                }
                scene.sim.sleep(Duration::from_millis(100)).await;
            }
        });
    }
    assert!(taken_back > 0, "no crash took anything back");
}

/// read |power, MDT| write by another client, read
///
/// The reader has the file in its cache when the MDT loses power and restarts without any leases. The writer changes
/// the file. The reader shows the new bytes, although nothing was recalled.
#[test]
fn a_restarted_mdt_knows_of_no_lease() {
    for seed in 0..6 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
            make(&writer).await;
            let file = open(&scene.sim, &reader, OpenMode::READ).await;
            assert!(read_through(&reader, &file, 30_000).await == contents(0));
            scene.sim.power_cut(scene.cluster.servers[0].node);
            scene.cluster.boot(0);
            let other = open(&scene.sim, &writer, OpenMode::READ_WRITE).await;
            writer.write(&other, 200_000, vec![0xee; 5000]).await.expect("written");
            assert_eq!(reader.read(&file, 200_000, 5000).await.expect("it reads"), vec![0xee; 5000], "seed {seed}");
        });
    }
}

/// A client has a file in its cache, and truncates it with a create of the same name. It writes behind a hole: the hole
/// reads as zeros.
#[test]
fn a_create_that_truncates_drops_the_read_cache_of_the_file() {
    let scene = Scene::new(3, CLIENTS);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        make(&client).await;
        let file = open(&scene.sim, &client, OpenMode::READ_WRITE).await;
        assert!(read_through(&client, &file, 30_000).await == contents(0));
        let (mode, layout) = (OpenMode { truncate: true, ..OpenMode::READ_WRITE }, LayoutSpec::inherit());
        let again = client.create(&caller(), Fid::ROOT, b"f", 0o644, mode, layout).await.expect("it opens").1;
        client.write(&again, 1 << 20, vec![9; 10]).await.expect("written");
        assert!(client.read(&file, 65_536, 4096).await.expect("it reads") == vec![0; 4096]);
    });
}

/// One OST is down. The reader reads the first stripe sequentially, and other stripes on the same OST as that one. No
/// read waits for the OST that is down, not even for a prefetch.
#[test]
fn a_small_read_waits_for_its_own_ost_only() {
    let scene = Scene::new(5, CLIENTS);
    scene.sim.block_on(async {
        let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
        make(&writer).await;
        let file = open(&scene.sim, &reader, OpenMode::READ).await;
        let away = file.layout().osts()[1];
        // Server 0 is the MDT.
        scene.sim.crash(scene.cluster.servers[1 + away as usize].node);
        let begun = scene.sim.now();
        // Sequential reads of the first stripe, then reads of other stripes on its OST.
        for at in (0..60_000).step_by(4096).chain((3..9).step_by(3).map(|stripe| stripe << 16)) {
            let bytes = reader.read(&file, at as u64, 4096).await.expect("it reads");
            assert!(bytes == contents(0)[at..at + 4096], "at {at}");
        }
        assert!(scene.sim.now().since(begun) < Duration::from_secs(1));
    });
}

/// Two programs read alternate records of a file through a small cache. One of them pauses, so that the records that
/// the other has prefetched are gone. They must come together again instead of each fetching everything.
#[test]
fn readers_that_fell_apart_come_together_again() {
    const RECORD: usize = 16 << 10;
    const KEPT: u64 = 8 << 20;
    const RECORDS: usize = 3000;
    let scene = Scene::new(7, CLIENTS);
    scene.sim.block_on(async {
        let options =
            MountOptions { read_cache_bytes: KEPT, ..scene.cluster.mount_options(scene.nodes[0], CommitLevel::Data) };
        let (reader, writer) =
            (Client::mount(&scene.sim.env(scene.nodes[0]), options).await.expect("it mounts"), scene.mount(1).await);
        let layout = LayoutSpec { stripe_count: 3, stripe_bytes: 128 << 10, ..LayoutSpec::inherit() };
        let made = writer.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
        let file = made.expect("it is made").1;
        let whole = vec![7; RECORDS * RECORD];
        writer.write(&file, 0, whole).await.expect("written");
        writer.fsync(&file, false).await.expect("synced");
        writer.close(file).await.expect("closed");
        let reads = |first: usize| {
            let (sim, reader) = (scene.sim.clone(), reader.clone());
            scene.sim.env(scene.nodes[0]).spawn(async move {
                let file = open(&sim, &reader, OpenMode::READ).await;
                for record in (first..RECORDS).step_by(2) {
                    let read = reader.read(&file, (record * RECORD) as u64, RECORD).await.expect("it reads");
                    assert!(read.len() == RECORD && read.iter().all(|byte| *byte == 7));
                    // Pause, as on a busy processor, while the other program continues.
                    sim.sleep(if record == 501 { Duration::from_millis(10) } else { Duration::from_micros(20) }).await;
                }
                reader.close(file).await.expect("closed");
            })
        };
        let before = reader.stats().rpcs;
        let both = [reads(0), reads(1)];
        for one in both {
            one.await.expect("it ends");
        }
        let (rpcs, alone) = (reader.stats().rpcs - before, RECORDS * RECORD / (128 << 10));
        // It was 909 requests when each program continued alone to the end.
        assert!(rpcs < alone as u64 * 8 / 5, "{rpcs} requests where one reader asks for {alone}");
    });
}

/// The reader reads from its cache while the MDT is down for a minute. It asks the MDT only once per file: after the
/// MDT's return few requests are queued.
#[test]
fn readers_do_not_pile_up_questions_while_the_mdt_is_away() {
    let scene = Scene::new(6, CLIENTS);
    scene.sim.block_on(async {
        let (reader, writer) = (scene.mount(0).await, scene.mount(1).await);
        make(&writer).await;
        let file = open(&scene.sim, &reader, OpenMode::READ).await;
        scene.sim.crash(scene.cluster.servers[0].node);
        for _ in 0..200 {
            reader.read(&file, 4096, 100).await.expect("it reads");
            scene.sim.sleep(Duration::from_millis(300)).await;
        }
        scene.cluster.boot(0);
        let before = reader.stats().rpcs;
        scene.sim.sleep(Duration::from_secs(5)).await;
        let rpcs = reader.stats().rpcs - before;
        assert!(rpcs < 100, "{rpcs} requests after an outage");
    });
}
