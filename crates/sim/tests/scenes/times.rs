//! Times of a file that several clients change, none of which knows what the others did. Each change moves the times
//! that it must move, also through crashes, and the change time never goes back.

use std::time::Duration;

use forebay_client::{Allocate, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode, SetAttributes, SetTime};
use forebay_env::sim::Sim;
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{Scene, begin, caller, striped};

/// The clients' machines.
const CLIENTS: &[&str] = &["maker", "looker"];

const GIVEN_NS: [i64; 3] = [77, 1_000_000_000_000_000_000, 4_000_000_000_000_000_000];

fn given(mtime_ns: i64) -> SetAttributes {
    SetAttributes { mtime: Some(SetTime::At(mtime_ns)), ..SetAttributes::default() }
}

/// Modification and change time, as a client sees them that has not opened the file.
async fn look(client: &Client, fid: Fid) -> (i64, i64) {
    let attr = client.getattr(fid, None).await.expect("it is there");
    (attr.mtime_ns, attr.ctime_ns)
}

async fn set(client: &Client, fid: Fid, changes: SetAttributes) {
    client.setattr(&caller(), fid, changes, None).await.expect("it is set");
}

/// Runs one random change. `Ok` if it changes bytes or size. `Err` otherwise, with the modification time if it sets
/// one.
async fn change(sim: &Sim, client: &Client, file: &OpenFile) -> Result<(), Option<i64>> {
    let fid = file.fid();
    let (offset, length) = (sim.random_below(200_000), 1 + sim.random_below(3000));
    match sim.random_below(10) {
        0..=2 => {
            let mtime_ns = GIVEN_NS[sim.random_below(3) as usize];
            set(client, fid, given(mtime_ns)).await;
            return Err(Some(mtime_ns));
        }
        3 => {
            set(client, fid, SetAttributes { mode: Some(0o640), uid: Some(3), ..SetAttributes::default() }).await;
            return Err(None);
        }
        4 => set(client, fid, SetAttributes { size: Some(offset), ..SetAttributes::default() }).await,
        5 => {
            let what = [Allocate::Punch, Allocate::Zero { keep_size: false }, Allocate::Reserve { keep_size: true }];
            let what = what[sim.random_below(3) as usize];
            client.fallocate(file, offset, length, what).await.expect("it is allocated");
        }
        6 => drop(client.append(file, vec![5; length as usize]).await.expect("it is appended")),
        7 => {
            let large = vec![6; 300_000 + length as usize];
            client.write(file, offset, large).await.expect("it is written");
        }
        _ => {
            client.write(file, offset, vec![7; length as usize]).await.expect("it is written");
        }
    }
    Ok(())
}

/// open by three clients |MDT or OST| change by each in turn
///
/// Three clients have a file open for writing, one of them without write-back. They change it in random order, while
/// the MDT or an OST crashes now and then. Every change of data moves the modification time that any client sees, and
/// the change time only grows. Crashes and closes move nothing.
#[test]
fn every_change_by_one_of_several_writers_moves_the_times_that_all_see() {
    for seed in 0..60 {
        let sim = Sim::new(seed);
        let cluster = sim.block_on(Cluster::format(&sim, ClusterOptions::default()));
        cluster.boot_all();
        sim.block_on(async {
            let mut clients = Vec::new();
            for number in 0..3 {
                let node = sim.add_node(&format!("client {number}"));
                let mut options = cluster.mount_options(node, CommitLevel::Data);
                options.write_back_bytes = if number == 2 { 0 } else { options.write_back_bytes };
                clients.push(Client::mount(&sim.env(node), options).await.expect("it mounts"));
            }
            let stripe_count = 1 + (seed % 3) as u32;
            let layout = striped(stripe_count);
            let made = clients[0].create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
            let mut files = vec![made.expect("it is made").1];
            let fid = files[0].fid();
            clients[0].write(&files[0], 0, vec![1; 5000]).await.expect("it is written");
            for client in &clients[1..] {
                files.push(client.open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens"));
            }
            let mut before = look(&clients[0], fid).await;
            let mut fixed = None;
            for step in 0..60 {
                let by = sim.random_below(3) as usize;
                match sim.random_below(20) {
                    0 => {
                        let server = &cluster.servers[sim.random_below(4) as usize];
                        sim.crash(server.node);
                        cluster.boot_all();
                        // A replayed change keeps its times.
                        let after = look(&clients[by], fid).await;
                        assert_eq!(after, before, "seed {seed}, step {step}: a crash moves times");
                    }
                    1 => {
                        let again = clients[by].open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens");
                        clients[by].close(std::mem::replace(&mut files[by], again)).await.expect("it closes");
                    }
                    2 => sim.sleep(Duration::from_millis(sim.random_below(100))).await,
                    3 => clients[by].fsync(&files[by], false).await.expect("it is synced"),
                    _ => {
                        let looker = sim.random_below(3) as usize;
                        let changed = change(&sim, &clients[by], &files[by]).await;
                        let after = look(&clients[looker], fid).await;
                        let words = format!("seed {seed}, step {step}: {changed:?} by {by}, {before:?}, {after:?}");
                        assert!(after.1 > before.1, "{words}: the change time stays");
                        match changed {
                            Ok(()) => {
                                assert!(after.0 != before.0 && (fixed.is_some() || after.0 > before.0), "{words}")
                            }
                            Err(Some(mtime_ns)) => assert_eq!(after.0, mtime_ns, "{words}"),
                            Err(None) => assert_eq!(after.0, before.0, "{words}"),
                        }
                        fixed = if let Err(None) = changed { fixed } else { changed.err().flatten() };
                        before = after;
                        continue;
                    }
                }
                let after = look(&clients[by], fid).await;
                let words = format!("seed {seed}, step {step}: nothing has changed {before:?}, and now {after:?}");
                assert!(after.0 == before.0, "{words}");
                assert!(after.1 >= before.1, "seed {seed}, step {step}: {before:?}, {after:?}");
                before = after;
            }
            for (client, file) in clients.iter().zip(files) {
                client.close(file).await.expect("it closes");
            }
            let after = look(&clients[1], fid).await;
            assert!(after.0 == before.0, "seed {seed}: closing moves it: {before:?}, {after:?}");
            assert!(after.1 >= before.1, "seed {seed}: {before:?}, {after:?}");
        });
    }
}

/// open by A, set times by B |the MDT or an OST, at any moment| write and close by A
///
/// The writer has a file open while the setter sets its modification time, and a server crashes meanwhile. The setter
/// sees the time that it set. After the writer's next write and close both times have moved.
#[test]
fn a_time_that_is_set_beside_a_writer_hides_no_later_write_whoever_dies() {
    for seed in 0..40 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (writer, setter) = scene.mounts().await;
            let file = begin(&writer, b"a").await;
            writer.write(&file, 0, vec![1; 100_000]).await.expect("it is written");
            writer.fsync(&file, false).await.expect("it is synced");
            let (fid, client) = (file.fid(), setter.clone());
            let setting = scene.sim.env(scene.nodes[1]).spawn(async move {
                set(&client, fid, given(77)).await;
            });
            scene.sim.sleep(Duration::from_micros(seed * 100)).await;
            let dies = &scene.cluster.servers[(seed % 4) as usize];
            scene.sim.crash(dies.node);
            scene.cluster.boot_all();
            setting.await.expect("it ends");
            let before = look(&setter, fid).await;
            assert_eq!(before.0, 77, "seed {seed}");
            writer.write(&file, 10, vec![2; 100]).await.expect("it is written");
            if seed % 2 == 0 {
                scene.sim.crash(scene.mdt());
                scene.cluster.boot_all();
            }
            writer.close(file).await.expect("it closes");
            let after = look(&setter, fid).await;
            assert!(after.0 > 77 && after.1 > before.1, "seed {seed}: {before:?}, {after:?}");
        });
    }
}

/// make and change names |all servers, or the MDT| stat
///
/// A client makes directories, symlinks and files and changes their attributes. All servers or the MDT crash. After the
/// replay both clients see the same access, modification, change and birth times as before.
#[test]
fn replayed_changes_keep_the_times_shown_before_the_crash() {
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let cluster = sim.block_on(Cluster::format(&sim, ClusterOptions::default()));
        cluster.boot_all();
        sim.block_on(async {
            let mut clients = Vec::new();
            for number in 0..2 {
                let node = sim.add_node(&format!("client {number}"));
                let mut options = cluster.mount_options(node, CommitLevel::Data);
                options.write_back_bytes = if number == 1 { 0 } else { options.write_back_bytes };
                clients.push(Client::mount(&sim.env(node), options).await.expect("it mounts"));
            }
            let client = &clients[(seed % 2) as usize];
            let (mut fids, mut links) = (vec![Fid::ROOT], Vec::new());
            for step in 0..12 + sim.random_below(12) {
                let name = format!("n{step}");
                let at = fids[sim.random_below(fids.len() as u64) as usize];
                match sim.random_below(7) {
                    0 => fids.push(client.mkdir(&caller(), Fid::ROOT, name.as_bytes(), 0o755).await.expect("made").fid),
                    1 => {
                        let made = client.symlink(&caller(), Fid::ROOT, name.as_bytes(), b"there").await.expect("made");
                        links.push(made.fid);
                    }
                    2 | 3 => {
                        let (caller, mode) = (caller(), OpenMode::READ_WRITE);
                        let inherit = LayoutSpec::inherit();
                        let made = client.create(&caller, Fid::ROOT, name.as_bytes(), 0o644, mode, inherit).await;
                        let (attr, file) = made.expect("made");
                        client.write(&file, 0, vec![1; 1 + sim.random_below(100_000) as usize]).await.expect("written");
                        client.close(file).await.expect("closed");
                        fids.push(attr.fid);
                    }
                    4 => set(client, at, SetAttributes { mode: Some(0o700), ..SetAttributes::default() }).await,
                    5 => set(client, at, SetAttributes { atime: Some(SetTime::Now), ..SetAttributes::default() }).await,
                    _ => client.setxattr(&caller(), at, b"user.a", name.as_bytes(), 0).await.expect("set"),
                }
                sim.sleep(Duration::from_millis(sim.random_below(20))).await;
            }
            let mut shown = Vec::new();
            for fid in fids.iter().chain(&links) {
                let attr = client.getattr(*fid, None).await.expect("there");
                shown.push((*fid, attr.atime_ns, attr.mtime_ns, attr.ctime_ns, attr.btime_ns));
            }
            for server in cluster.servers.iter().filter(|_| seed % 3 > 0).chain(&cluster.servers[..1]) {
                sim.crash(server.node);
            }
            sim.sleep(Duration::from_secs(1)).await;
            cluster.boot_all();
            for by in &clients {
                for before in &shown {
                    let attr = by.getattr(before.0, None).await.expect("there");
                    let after = (before.0, attr.atime_ns, attr.mtime_ns, attr.ctime_ns, attr.btime_ns);
                    assert_eq!(after, *before, "seed {seed}: fid, access, modification, change and birth time");
                }
            }
        });
    }
}
