//! The MDT executes a close, and dies before the client gets the reply.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{CommitLevel, LayoutSpec, OpenMode};
use forebay_env::sim::Sim;
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::caller;

/// unlink (or not), close, commit |power, MDT| reclaim
///
/// The client closes a file while replies of the MDT do not reach it. Another client's sync commits the close. The MDT
/// loses power and restarts. The client's close and a later mkdir complete, no client is evicted, and the MDT has no
/// handle left that would block a migrate.
#[test]
fn a_handle_whose_close_was_executed_is_not_reclaimed() {
    for (seed, unlinked) in [(1, true), (2, false)] {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
            cluster.boot_all();
            let (node, mdt) = (sim.add_node("client"), cluster.servers[0].node);
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let layout = LayoutSpec::inherit();
            let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
            let file = made.expect("it is made").1;
            client.write(&file, 0, vec![7; 100_000]).await.expect("written");
            client.fsync(&file, false).await.expect("synced");
            if unlinked {
                client.unlink(&caller(), Fid::ROOT, b"f").await.expect("unlinked");
            }
            client.sync_all().await.expect("synced");
            let (closed, done) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let (closing, ended) = (client.clone(), closed.clone());
            // Requests arrive, replies do not.
            sim.cut(mdt, node);
            sim.env(node).spawn(async move {
                closing.close(file).await.expect("closed");
                ended.set(true);
            });
            sim.sleep(Duration::from_secs(2)).await;
            assert!(!closed.get(), "the reply is on its way for ever");
            let other = cluster.mount(sim.add_node("other"), CommitLevel::Data).await.expect("it mounts");
            other.sync_all().await.expect("the close is committed");
            if !unlinked {
                let fid = other.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there").fid;
                other.migrate_start(fid).await.expect("the MDT has closed it");
            }
            sim.power_cut(mdt);
            cluster.boot(0);
            sim.heal(mdt, node);
            let (asking, answered) = (client.clone(), done.clone());
            sim.env(node).spawn(async move {
                asking.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("made");
                answered.set(true);
            });
            sim.sleep(Duration::from_secs(20)).await;
            assert!(closed.get() && done.get(), "closed: {}, answered: {}", closed.get(), done.get());
            assert_eq!(client.stats().evictions, 0, "it gave its session up");
            if unlinked {
                return;
            }
            // A leftover handle would count as a writer and block the migrate.
            let fid = other.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there").fid;
            other.migrate_start(fid).await.expect("nobody writes to it");
        });
    }
}
