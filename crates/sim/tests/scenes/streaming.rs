//! Streams over a long path: large writes are sent behind the program, large reads are fetched ahead of it.

use std::time::Duration;

use forebay_client::{Client, OpenFile, OpenMode};
use forebay_env::sim::Link;
use forebay_history::Dice;
use forebay_proto::Fid;
use forebay_sim::ClusterOptions;

use crate::scene::{Scene, caller, create, on_ost, open, striped};

/// The clients' machines.
const CLIENTS: &[&str] = &["program", "other"];
/// From a client to a server and back.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// One write or read of the program. The client sends four requests for it.
const STEP: usize = 512 << 10;
const STEPS: usize = 12;

/// Clients that are far from the servers. `jitter` more for each message, by chance.
fn far(seed: u64, jitter: Duration) -> Scene {
    let options = ClusterOptions { write_back_bytes: 8 << 20, ..ClusterOptions::default() };
    let scene = Scene::with(seed, options, CLIENTS);
    for server in &scene.cluster.servers {
        for client in &scene.nodes {
            let link = Link { latency: ROUND_TRIP / 2, jitter, ..Link::default() };
            scene.sim.set_link(*client, server.node, link);
        }
    }
    scene
}

fn contents(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 251) as u8 ^ salt).collect()
}

/// Gets leases and granted space with a small write.
async fn begin(client: &Client, file: &OpenFile) {
    client.write(file, 0, vec![0; 100]).await.expect("it is written");
}

async fn write_all(client: &Client, file: &OpenFile, bytes: &[u8]) {
    for (number, step) in bytes.chunks(STEP).enumerate() {
        let written = client.write(file, (number * STEP) as u64, step.to_vec()).await;
        assert_eq!(written, Ok(step.len()));
    }
}

async fn read_all(client: &Client, file: &OpenFile) -> Vec<u8> {
    let mut read = Vec::new();
    loop {
        let bytes = client.read(file, read.len() as u64, STEP).await.expect("it reads");
        if bytes.is_empty() {
            return read;
        }
        read.extend_from_slice(&bytes);
    }
}

async fn content(client: &Client) -> Vec<u8> {
    let file = open(client, b"f", OpenMode::READ).await;
    let read = read_all(client, &file).await;
    client.close(file).await.expect("it closes");
    read
}

#[test]
fn a_program_that_writes_on_waits_for_no_round_trip_and_a_sync_for_few() {
    let scene = far(1, Duration::ZERO);
    scene.sim.block_on(async {
        let (program, other) = scene.mounts().await;
        let file = create(&program, b"f", on_ost(0)).await;
        begin(&program, &file).await;
        let (bytes, begun) = (contents(STEPS * STEP, 3), scene.sim.now());
        write_all(&program, &file, &bytes).await;
        let wrote = scene.sim.now().since(begun);
        assert!(wrote < ROUND_TRIP, "{wrote:?} for {STEPS} writes");
        program.fsync(&file, false).await.expect("it syncs");
        let synced = scene.sim.now().since(begun);
        assert!(synced < 10 * ROUND_TRIP, "{synced:?} until it was synced");
        assert!(content(&other).await == bytes);
    });
}

/// Over three OSTs with short stripes: no request is both the last one and at the home, so the size goes by itself.
#[test]
fn other_clients_see_all_of_a_file_that_was_written_behind_and_its_size() {
    let scene = far(2, Duration::ZERO);
    scene.sim.block_on(async {
        let (program, other) = scene.mounts().await;
        let file = create(&program, b"f", striped(3)).await;
        begin(&program, &file).await;
        let bytes = contents(STEPS * STEP, 5);
        write_all(&program, &file, &bytes).await;
        let attr = other.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
        assert_eq!(attr.size, bytes.len() as u64);
        assert!(content(&other).await == bytes);
    });
}

#[test]
fn a_sync_waits_for_what_is_on_its_way() {
    for seed in 0..4 {
        let scene = far(seed, ROUND_TRIP / 4);
        scene.sim.block_on(async {
            let (program, other) = scene.mounts().await;
            let file = create(&program, b"f", striped(3)).await;
            begin(&program, &file).await;
            let bytes = contents(8 * STEP, 7);
            write_all(&program, &file, &bytes).await;
            scene.sim.sleep(ROUND_TRIP / 4).await;
            program.fsync(&file, false).await.expect("it syncs");
            scene.sim.power_cut(scene.nodes[0]);
            (1..=3).for_each(|server| scene.power_cycle(server));
            assert!(content(&other).await == bytes, "seed {seed}");
        });
    }
}

/// Messages overtake each other. What was written last to a place stays there, and the program reads it at any time.
#[test]
fn bytes_that_are_written_over_each_other_end_as_the_last() {
    for seed in 0..6 {
        let scene = far(seed, ROUND_TRIP);
        scene.sim.block_on(async {
            let (program, other) = scene.mounts().await;
            let file = create(&program, b"f", striped(3)).await;
            begin(&program, &file).await;
            let (mut expected, mut dice) = (vec![0; 4 * STEP], Dice::new(seed));
            for salt in 1..25 {
                let bytes = contents(STEP, salt);
                let at = dice.below((expected.len() - STEP) as u64) as usize & !0xffff;
                program.write(&file, at as u64, bytes.clone()).await.expect("it is written");
                expected[at..at + STEP].copy_from_slice(&bytes);
                if dice.below(3) == 0 {
                    let read = program.read(&file, at as u64, STEP).await.expect("it reads");
                    assert!(read == expected[at..at + STEP], "seed {seed}, write {salt}");
                }
                scene.sim.sleep(Duration::from_millis(dice.below(8))).await;
            }
            let read = content(&other).await;
            assert!(
                read == expected[..read.len()] && expected[read.len()..].iter().all(|byte| *byte == 0),
                "seed {seed}"
            );
        });
    }
}

#[test]
fn a_program_that_reads_on_waits_for_few_round_trips() {
    let scene = far(3, Duration::ZERO);
    scene.sim.block_on(async {
        let (program, other) = scene.mounts().await;
        for (name, layout) in [(&b"f"[..], on_ost(0)), (&b"g"[..], striped(3))] {
            let file = create(&program, name, layout).await;
            let bytes = contents(STEPS * STEP, 9);
            write_all(&program, &file, &bytes).await;
            program.fsync(&file, false).await.expect("it syncs");
            program.close(file).await.expect("it closes");
            // The MDT does not lease to others what was changed a moment ago.
            other.lookup(&caller(), Fid::ROOT, name).await.expect("it is there");
            scene.sim.sleep(Duration::from_secs(2)).await;
            let file = open(&other, name, OpenMode::READ).await;
            let (begun, before) = (scene.sim.now(), other.stats().rpcs);
            assert!(read_all(&other, &file).await == bytes);
            let (read, requests) = (scene.sim.now().since(begun), other.stats().rpcs - before);
            // At first eight requests of 128 KiB may be in flight.
            assert!(read < 8 * ROUND_TRIP, "{read:?} for {STEPS} reads of {name:?}");
            assert!(requests <= 4 * STEPS as u64 + 4, "{requests} requests of 128 KiB for {STEPS} reads of {name:?}");
            other.close(file).await.expect("it closes");
        }
    });
}

/// While one program streams, another client writes over all of the file.
#[test]
fn what_was_fetched_ahead_is_not_returned_after_a_change() {
    let scene = far(4, ROUND_TRIP / 4);
    scene.sim.block_on(async {
        let (program, other) = scene.mounts().await;
        let file = create(&program, b"f", striped(3)).await;
        write_all(&program, &file, &contents(STEPS * STEP, 1)).await;
        program.close(file).await.expect("it closes");
        scene.sim.sleep(Duration::from_secs(2)).await;
        let file = open(&program, b"f", OpenMode::READ).await;
        for number in 0..STEPS / 2 {
            program.read(&file, (number * STEP) as u64, STEP).await.expect("it reads");
        }
        let changed = contents(STEPS * STEP, 2);
        let writer = open(&other, b"f", OpenMode::READ_WRITE).await;
        write_all(&other, &writer, &changed).await;
        for number in STEPS / 2..STEPS {
            let read = program.read(&file, (number * STEP) as u64, STEP).await.expect("it reads");
            assert!(read == changed[number * STEP..(number + 1) * STEP], "read {number}");
        }
    });
}
