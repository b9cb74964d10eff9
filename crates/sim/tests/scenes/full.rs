//! A full metadata target: what it refuses, what still works, and that the space comes back.

use std::time::Duration;

use forebay_client::{Client, ClientResult, CommitLevel, LayoutSpec, OpenMode, SetAttributes};
use forebay_env::sim::Sim;
use forebay_proto::{Errno, Fid};
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::caller;

const NAME: &[u8] = b"user.note";

async fn make(client: &Client, name: &str, bytes: usize) -> ClientResult<()> {
    let layout = LayoutSpec::inherit();
    let (attr, file) =
        client.create(&caller(), Fid::ROOT, name.as_bytes(), 0o644, OpenMode::READ_WRITE, layout).await?;
    client.close(file).await?;
    client.setxattr(&caller(), attr.fid, NAME, &vec![7; bytes], 0).await
}

/// Makes files with long attributes until the MDT is full. Returns the number of files.
async fn fill(client: &Client) -> usize {
    for number in 0..10_000 {
        match make(client, &format!("f{number}"), 20_000).await {
            Ok(()) => {}
            Err(error) if error.errno == Errno::ENOSPC => return number,
            Err(error) => panic!("file {number}: {error}"),
        }
    }
    panic!("it is never full")
}

/// All numbers below `count`, in a scattered order.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |number| (number * 7919 + 13) % count)
}

/// fill, then four times: change in scattered order |power, MDT|; delete, fill again
///
/// The client fills an MDT of many slabs with symlinks. It changes all of them in scattered order while the MDT loses
/// power in between, then deletes them. Everything is answered within an hour of virtual time, and half as many fit
/// again.
#[test]
fn scattered_changes_of_a_full_metadata_target_find_slabs() {
    let sim = Sim::new(11);
    sim.block_on(async {
        let slab = 256 << 10;
        let options = ClusterOptions { mdt_bytes: 96 * slab, mdt_slab_bytes: slab, ..ClusterOptions::default() };
        let cluster = Cluster::format(&sim, options).await;
        cluster.boot_all();
        let client = cluster.mount(sim.add_node("client"), CommitLevel::Data).await.expect("mounted");
        let mut links = Vec::new();
        let target = vec![b't'; 900];
        let name = |number: usize| format!("link number {number}").into_bytes();
        let refused = loop {
            match client.symlink(&caller(), Fid::ROOT, &name(links.len()), &target).await {
                Ok(attr) => links.push(attr.fid),
                Err(error) => break error.errno,
            }
            assert!(links.len() < 100_000, "it is never full");
        };
        assert!(refused == Errno::ENOSPC && links.len() > 5000, "{refused:?} after {}", links.len());
        let told = client.statfs().await.expect("told");
        assert!(told.files_free < 100, "room for {} was left", told.files_free);
        let env = sim.env(sim.add_node("watch"));
        let changed = async {
            for round in 0..4 {
                for number in scattered(links.len()) {
                    let owner = SetAttributes { uid: Some(round + 1), ..SetAttributes::default() };
                    client.setattr(&caller(), links[number], owner, None).await.expect("changed");
                }
                sim.power_cut(cluster.servers[0].node);
                cluster.boot(0);
            }
            for number in scattered(links.len()) {
                client.unlink(&caller(), Fid::ROOT, &name(number)).await.expect("deleted");
            }
            client.sync_all().await.expect("synced");
        };
        env.timeout(Duration::from_secs(3600), changed).await.expect("everything is answered");
        for number in 0..links.len() / 2 {
            client.symlink(&caller(), Fid::ROOT, &name(number), &target).await.expect("there is room again");
        }
    });
}

/// fill, unmount |power, MDT| mount, delete, fill again
///
/// The first client fills the MDT and unmounts. After the MDT's restart a second client mounts, makes directories until
/// it gets ENOSPC, and deletes everything. As many files as before, to within two, fit again.
#[test]
fn a_full_metadata_target_can_be_mounted_and_emptied_and_takes_as_much_again() {
    let sim = Sim::new(7);
    sim.block_on(async {
        let slab = 256 << 10;
        let options = ClusterOptions { mdt_bytes: 17 * slab, mdt_slab_bytes: slab, ..ClusterOptions::default() };
        let cluster = Cluster::format(&sim, options).await;
        cluster.boot_all();
        let first = cluster.mount(sim.add_node("first"), CommitLevel::Data).await.expect("an empty one is mounted");
        let filled = fill(&first).await;
        assert!(filled > 5, "only {filled} files fitted");
        first.unmount().await.expect("unmounted");
        sim.power_cut(cluster.servers[0].node);
        cluster.boot(0);
        let second = cluster.mount(sim.add_node("second"), CommitLevel::Data).await.expect("a full one is mounted");
        // Something small may fit where a larger request was refused.
        let mut directories = 0;
        let refused = loop {
            let name = format!("d{directories}");
            match second.mkdir(&caller(), Fid::ROOT, name.as_bytes(), 0o755).await {
                Ok(_) => directories += 1,
                Err(error) => break error.errno,
            }
            assert!(directories < 5000, "it takes directories without end");
        };
        assert_eq!(refused, Errno::ENOSPC);
        for number in 0..directories {
            let gone = second.rmdir(&caller(), Fid::ROOT, format!("d{number}").as_bytes()).await;
            gone.unwrap_or_else(|error| panic!("directory {number} cannot be deleted: {error}"));
        }
        for number in 0..=filled {
            match second.unlink(&caller(), Fid::ROOT, format!("f{number}").as_bytes()).await {
                // The create of the last file may have been refused entirely.
                Err(error) if number == filled && error.errno == Errno::ENOENT => {}
                gone => gone.unwrap_or_else(|error| panic!("file {number} cannot be deleted: {error}")),
            }
        }
        second.sync_all().await.expect("synced");
        let again = fill(&second).await;
        assert!(again + 2 >= filled, "{filled} files fitted at first, then {again}");
    });
}
