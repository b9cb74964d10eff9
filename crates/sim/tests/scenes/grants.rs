//! Granted space for buffered writes: a client has it before it acknowledges a write, so no later write and no restart
//! takes it away.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Allocate, Client, LayoutSpec, OpenFile};
use forebay_env::sim::Link;
use forebay_proto::{Errno, Fid};
use forebay_sim::ClusterOptions;

use crate::scene::{Scene, caller, create};

const RECORD: u64 = 4096;

/// A cluster with one small OST.
fn with_clients(seed: u64, clients: usize, write_back_bytes: u64) -> Scene {
    let options = ClusterOptions { osts: 1, ost_bytes: 32 << 20, write_back_bytes, ..ClusterOptions::default() };
    let names: Vec<String> = (0..clients).map(|number| format!("client {number}")).collect();
    Scene::with(seed, options, &names)
}

async fn open(client: &Client, name: &str) -> OpenFile {
    create(client, name.as_bytes(), LayoutSpec::inherit()).await
}

async fn available(client: &Client) -> u64 {
    client.statfs().await.expect("told").ungranted_bytes
}

/// Writes large requests until only `left` bytes are available, or a write is refused.
async fn fill(client: &Client, file: &OpenFile, left: u64) -> u64 {
    let mut end = 0;
    loop {
        let bytes = available(client).await.saturating_sub(left).min(1 << 20);
        if bytes < 64 << 10 {
            return end;
        }
        match client.write(file, end, vec![9; bytes as usize]).await {
            Ok(written) => end += written as u64,
            Err(error) if error.errno == Errno::ENOSPC => return end,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes records with gaps until one is refused. Returns the number of acknowledged records.
async fn write_until_refused(client: &Client, file: &OpenFile) -> u64 {
    for number in 0.. {
        match client.write(file, 2 * number * RECORD, vec![number as u8; RECORD as usize]).await {
            Ok(written) => assert_eq!(written as u64, RECORD),
            Err(error) => {
                assert_eq!(error.errno, Errno::ENOSPC, "{error}");
                return number;
            }
        }
    }
    unreachable!()
}

async fn check(client: &Client, file: &OpenFile, records: u64) {
    for number in 0..records {
        let read = client.read(file, 2 * number * RECORD, RECORD as usize).await.expect("it reads");
        assert!(read == vec![number as u8; RECORD as usize], "record {number} of {records}");
    }
}

/// Sixteen clients fill one OST with small buffered writes, and some of them also with large ones. Each client gets
/// ENOSPC from a write and never later: every acknowledged record is there after its fsync.
#[test]
fn sixteen_clients_that_fill_an_ost_lose_no_acknowledged_write() {
    for seed in 0..4 {
        let scene = with_clients(seed, 16, 512 << 10);
        scene.sim.block_on(async {
            let mut ends = Vec::new();
            for number in 0..scene.nodes.len() {
                let client = scene.mount(number).await;
                let [small, large] =
                    [open(&client, &format!("s{number}")).await, open(&client, &format!("l{number}")).await];
                ends.push((client, small, large, Rc::new(Cell::new(None))));
            }
            for (number, (client, small, large, done)) in ends.iter().enumerate() {
                let env = scene.sim.env(scene.nodes[number]);
                let (of, file, result) = (client.clone(), small.clone(), done.clone());
                env.spawn(async move { result.set(Some(write_until_refused(&of, &file).await)) });
                if number % 4 == 0 {
                    // Large writes, which the client does not buffer.
                    let (of, file) = (client.clone(), large.clone());
                    env.spawn(async move { fill(&of, &file, 0).await });
                }
            }
            let mut all = 0;
            for (client, file, _, done) in &ends {
                while done.get().is_none() {
                    scene.sim.sleep(Duration::from_millis(100)).await;
                }
                client.fsync(file, false).await.expect("what was acknowledged is written");
                let records = done.get().expect("it has ended");
                check(client, file, records).await;
                all += records;
            }
            assert!(all * RECORD > 2 << 20, "only {all} records were taken");
            assert!(available(&ends[0].0).await < 1 << 20);
        });
    }
}

/// The writer, cut off from the OST, buffers records while the other client fills the remaining space. With `restarts`
/// the OST also loses power meanwhile. All acknowledged records reach the OST in the end.
fn keep_while_others_fill(restarts: bool) {
    let scene = with_clients(7, 2, 4 << 20);
    scene.sim.block_on(async {
        let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
        let (mine, large) = (open(&writer, "mine").await, open(&other, "large").await);
        let ost = scene.cluster.servers[1].node;
        let end = fill(&other, &large, 18 << 20).await;
        other.fsync(&large, false).await.expect("it syncs");
        // This write asks for a grant. The following ones cannot be sent.
        writer.write(&mine, 0, vec![0; RECORD as usize]).await.expect("it writes");
        writer.fsync(&mine, false).await.expect("it syncs");
        scene.sim.cut_both(scene.nodes[0], ost);
        let mut kept = 1;
        loop {
            let write = writer.write(&mine, kept * 2 * RECORD, vec![kept as u8; RECORD as usize]);
            match scene.sim.env(scene.nodes[0]).timeout(Duration::from_millis(10), write).await {
                Ok(written) => assert_eq!(written, Ok(RECORD as usize)),
                Err(_) => break,
            }
            kept += 1;
        }
        assert!(kept > 900, "only {kept} records are kept back");
        if restarts {
            scene.sim.power_cut(ost);
            scene.sim.heal_all();
            // The first client to connect could take all the space, and the writer is late.
            let far = Link { latency: Duration::from_millis(300), ..Link::default() };
            scene.sim.set_link(scene.nodes[0], ost, far);
        }
        let filled = Rc::new(Cell::new(None));
        let (result, client, file) = (filled.clone(), other.clone(), large.clone());
        scene.sim.env(scene.nodes[1]).spawn(async move {
            let mut at = end;
            while let Ok(written) = client.write(&file, at, vec![8; 128 << 10]).await {
                at += written as u64;
            }
            result.set(Some(at - end));
        });
        if restarts {
            scene.cluster.boot(1);
        }
        while filled.get().is_none() {
            scene.sim.sleep(Duration::from_millis(50)).await;
        }
        scene.sim.heal_all();
        assert!(filled.get() > Some(12 << 20), "{:?} were left to others", filled.get());
        writer.fsync(&mine, false).await.expect("what was acknowledged is written");
        check(&writer, &mine, kept).await;
    });
}

/// The writer buffers records within its grant while the other client fills what is left. The records are there
/// afterwards.
#[test]
fn granted_space_is_not_taken_by_other_clients() {
    keep_while_others_fill(false);
}

/// write (buffered) |power, OST| another client fills what is left
///
/// The same with a restart of the OST: the other client comes back first, but the OST keeps the writer's grant.
#[test]
fn a_restarted_ost_keeps_granted_space_for_its_holder() {
    keep_while_others_fill(true);
}

/// The writer writes a little and syncs, so it has a grant that it does not use. Three seconds later the other client
/// has that space. A mount that ends returns its grant immediately.
#[test]
fn unused_granted_space_is_returned() {
    let scene = with_clients(3, 2, 512 << 10);
    scene.sim.block_on(async {
        let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
        let before = available(&other).await;
        let file = open(&writer, "f").await;
        writer.write(&file, 0, vec![1; 100]).await.expect("it writes");
        writer.fsync(&file, false).await.expect("it syncs");
        assert!(available(&other).await < before - (512 << 10), "nothing was granted");
        scene.sim.sleep(Duration::from_secs(3)).await;
        assert!(available(&other).await > before - (64 << 10), "it is granted still");
        // An unmount returns the grant immediately.
        writer.write(&file, 0, vec![1; 100]).await.expect("it writes");
        writer.close(file).await.expect("it closes");
        writer.unmount().await.expect("it unmounts");
        assert!(available(&other).await > before - (64 << 10), "it is granted still");
    });
}

/// A client alternates a small buffered write and large writes until the OST is full. Its own grant does not block its
/// own large writes.
#[test]
fn a_client_may_fill_its_own_granted_space_with_large_writes() {
    let scene = with_clients(4, 1, 512 << 10);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let (small, large) = (open(&client, "small").await, open(&client, "large").await);
        let before = available(&client).await;
        let mut end = 0;
        loop {
            // Each of these writes asks for a grant.
            client.write(&small, 0, vec![1; 100]).await.expect("there is room for what was there");
            match client.write(&large, end, vec![2; 128 << 10]).await {
                Ok(written) => end += written as u64,
                Err(error) => break assert_eq!(error.errno, Errno::ENOSPC),
            }
        }
        assert!(end > before - (768 << 10), "{end} of {before} bytes were taken");
        client.fsync(&small, false).await.expect("it syncs");
    });
}

/// The client fills most of the OST with a file, unlinks it, and closes it in the background. Meanwhile it sets as much space aside for
/// another file, and then writes as much to a third: each waits until the close has given the space back. The same where the space came
/// back long before it looks again.
#[test]
fn the_space_of_an_unlinked_file_whose_close_is_under_way_is_there_for_the_next_file() {
    let scene = with_clients(5, 1, 512 << 10);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let bytes = available(&client).await * 2 / 3;
        for (name, next, late) in [("a", "set aside", true), ("b", "written", true), ("c", "set aside", false)] {
            let file = open(&client, name).await;
            client.fallocate(&file, 0, bytes, Allocate::Reserve { keep_size: false }).await.expect("set aside");
            client.unlink(&caller(), Fid::ROOT, name.as_bytes()).await.expect("unlinked");
            let (closing, begun) = (client.clone(), client.begin_close());
            let env = scene.sim.env(scene.nodes[0]);
            drop(env.clone().spawn(async move {
                let wait = env.sleep(Duration::from_millis(200));
                if late {
                    wait.await;
                    closing.close(file).await.expect("closed");
                } else {
                    closing.close(file).await.expect("closed");
                    wait.await;
                }
                drop(begun);
            }));
            let file = open(&client, next).await;
            if next == "set aside" {
                client.fallocate(&file, 0, bytes, Allocate::Reserve { keep_size: false }).await.expect("set aside");
            } else {
                for at in (0..bytes).step_by(1 << 20) {
                    client.write(&file, at, vec![1; (bytes - at).min(1 << 20) as usize]).await.expect("written");
                }
            }
            client.close(file).await.expect("closed");
            client.unlink(&caller(), Fid::ROOT, next.as_bytes()).await.expect("unlinked");
        }
    });
}
