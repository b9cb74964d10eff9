//! Pinned writes to an OST that does not commit leave space for all other changes of the client.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Client, CommitLevel, OpenFile};
use forebay_env::sim::Sim;
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{self, caller, on_ost};

const MIB: u64 = 1 << 20;
const WRITERS: u64 = 24;

/// A file with one stripe on OST `ost`.
async fn create(client: &Client, name: &str, ost: u32) -> OpenFile {
    scene::create(client, name.as_bytes(), on_ost(ost)).await
}

/// OST down |24 writers of 1 MiB, 8 MiB of pins| names and another OST |OST back| read
///
/// OST0000 loses power, and 24 writers write 1 MiB each to a file on it; the client may pin 8 MiB. Meanwhile the client
/// makes directories and writes to another OST, each within 2 s. After the OST's return all writes complete.
#[test]
fn an_ost_that_is_away_does_not_take_all_memory_for_changes() {
    for seed in 0..10 {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
            cluster.boot_all();
            let (node, ost) = (sim.add_node("client"), cluster.servers[1].node);
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let waiting = Rc::new(create(&client, "waiting", 0).await);
            let other = create(&client, "other", 1).await;
            sim.power_cut(ost);
            let written = Rc::new(Cell::new(0));
            for writer in 0..WRITERS {
                let (client, file, written) = (client.clone(), waiting.clone(), written.clone());
                sim.env(node).spawn(async move {
                    let bytes = vec![writer as u8; MIB as usize];
                    client.write(&file, writer * MIB, bytes).await.expect("written in the end");
                    written.set(written.get() + 1);
                });
            }
            sim.sleep(Duration::from_millis(100 + seed * 20)).await;
            for round in 0..20 {
                let change = async {
                    client.mkdir(&caller(), Fid::ROOT, format!("d{round}").as_bytes(), 0o755).await.expect("made");
                    client.write(&other, round * MIB, vec![9; MIB as usize]).await.expect("written");
                    client.fsync(&other, false).await.expect("synced");
                };
                let changed = sim.env(node).timeout(Duration::from_secs(2), change).await;
                assert!(changed.is_ok(), "seed {seed}, round {round}: it waits for the OST that is away");
            }
            assert_eq!(written.get(), 0, "an OST that is away has taken a write");
            cluster.boot(1);
            sim.sleep(Duration::from_secs(20)).await;
            assert_eq!((written.get(), client.stats().evictions), (WRITERS, 0), "seed {seed}");
            for writer in 0..WRITERS {
                let read = client.read(&waiting, writer * MIB, MIB as usize).await.expect("it reads");
                assert!(read.len() == MIB as usize && read.iter().all(|byte| *byte == writer as u8), "seed {seed}");
            }
        });
    }
}
