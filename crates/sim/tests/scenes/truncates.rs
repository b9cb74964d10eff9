//! A truncate that waits for an OST that is down blocks nothing else on its mount.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Client, CommitLevel, LayoutSpec, OpenFile, OpenMode, SetAttributes};
use forebay_env::sim::Sim;
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{self, caller, on_ost};

/// A file with one stripe on OST `ost`.
async fn create(client: &Client, name: &[u8], ost: u32) -> OpenFile {
    scene::create(client, name, on_ost(ost)).await
}

/// Makes each kind of change to names and attributes.
async fn change_names(client: &Client, round: usize) {
    let name = |what: &str| format!("{what}{round}").into_bytes();
    let file = create(client, &name("f"), 1).await;
    client.write(&file, 0, vec![5; 10_000]).await.expect("written");
    client.close(file).await.expect("closed");
    let dir = client.mkdir(&caller(), Fid::ROOT, &name("d"), 0o755).await.expect("made").fid;
    client.rename(&caller(), (Fid::ROOT, &name("f")), (dir, b"moved"), 0).await.expect("renamed");
    let mode = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    client.setattr(&caller(), dir, mode, None).await.expect("changed");
    let attr = client.lookup(&caller(), dir, b"moved").await.expect("it is there");
    assert_eq!((attr.size, client.getattr(dir, None).await.expect("told").mode & 0o777), (10_000, 0o700));
    client.unlink(&caller(), dir, b"moved").await.expect("gone");
    client.rmdir(&caller(), Fid::ROOT, &name("d")).await.expect("gone");
}

/// OST down |truncate, names, MDT crash, names| OST back
///
/// A client truncates a file on an OST that is down. Meanwhile it makes all kinds of changes to names, each round
/// within a second, also after the MDT has lost power. When the OST is back, the truncate completes.
#[test]
fn names_do_not_wait_for_an_ost_that_a_truncate_waits_for() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
            cluster.boot_all();
            let (node, mdt, ost) = (sim.add_node("client"), cluster.servers[0].node, cluster.servers[1].node);
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let file = create(&client, b"cut", 0).await;
            client.write(&file, 0, vec![7; 100_000]).await.expect("written");
            client.fsync(&file, false).await.expect("synced");
            sim.power_cut(ost);
            let cut = Rc::new(Cell::new(false));
            let (cutting, ended, fid) = (client.clone(), cut.clone(), file.fid());
            sim.env(node).spawn(async move {
                let size = SetAttributes { size: Some(1000), ..SetAttributes::default() };
                cutting.setattr(&caller(), fid, size, None).await.expect("cut");
                ended.set(true);
            });
            sim.sleep(Duration::from_millis(seed * 20)).await;
            let env = sim.env(node);
            for round in 0..3 {
                let changed = env.timeout(Duration::from_secs(1), change_names(&client, round)).await;
                assert!(changed.is_ok(), "seed {seed}, round {round}: it waits for the OST too");
                assert!(!cut.get(), "an OST that is away has said yes");
                if round == 1 {
                    sim.power_cut(mdt);
                    sim.sleep(Duration::from_millis(100)).await;
                    cluster.boot(0);
                    // Time for its start, and for the window in which it waits for absent clients.
                    sim.sleep(Duration::from_secs(5)).await;
                }
            }
            cluster.boot(1);
            sim.sleep(Duration::from_secs(10)).await;
            assert!(cut.get(), "seed {seed}: the truncate ends when the OST is back");
            let read = client.read(&file, 0, 5000).await.expect("it reads");
            assert_eq!((read.len(), client.stats().evictions), (1000, 0), "seed {seed}");
        });
    }
}

/// The reader creates a file and has it open for reading only. The other client changes its size by name. The reader
/// reads zeros up to the new end.
#[test]
fn a_reader_of_an_empty_file_sees_the_size_that_another_client_sets() {
    for seed in 0..8 {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
            cluster.boot_all();
            let [reader, other] = [sim.add_node("reader"), sim.add_node("other")];
            let reader = cluster.mount(reader, CommitLevel::Data).await.expect("it mounts");
            let other = cluster.mount(other, CommitLevel::Data).await.expect("it mounts");
            let layout = LayoutSpec { stripe_count: 1 + (seed % 2) as u32, ..LayoutSpec::inherit() };
            let made = reader.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ, layout).await;
            let file = made.expect("it is made").1;
            let attr = other.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
            for bytes in [45_056, 3, 300_000] {
                let size = SetAttributes { size: Some(bytes), ..SetAttributes::default() };
                other.setattr(&caller(), attr.fid, size, None).await.expect("it has that size");
                let read = reader.read(&file, 0, 400_000).await.expect("read");
                assert!(read.len() as u64 == bytes && read.iter().all(|byte| *byte == 0), "{} bytes", read.len());
            }
            reader.close(file).await.expect("closed");
            other.unlink(&caller(), Fid::ROOT, b"f").await.expect("gone");
        });
    }
}
