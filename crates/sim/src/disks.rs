//! Disks that fail: a sync that is refused, stretches that cannot be written or read any more; or take their time.
//!
//! A stopped target is started again by an operator once its disk works; so is one that refused to start on a disk that
//! does not.

use std::time::Duration;

use forebay_env::sim::Fault;
use forebay_target::{Target, TargetState};

use crate::{
    Cluster,
    cluster::STORE_DIR,
    faults::{kill_and_boot, random_ms},
};

/// Where slabs begin on a data device.
const FIRST_SLAB: u64 = 4096;
/// How long a disk is stuck: less than a mirrored MDT waits for a copy.
const STUCK_AT_LEAST: Duration = Duration::from_secs(1);
const STUCK_MORE_MS: u64 = 4000;

/// The data disk of a server.
pub fn data_path() -> String {
    format!("{STORE_DIR}/data")
}

/// The journal of a server.
pub fn journal_path() -> String {
    format!("{STORE_DIR}/journal")
}

/// The next sync of a disk fails: the target acknowledges nothing more. The operator replaces the cable and restarts it.
pub async fn sync_fails(cluster: &Cluster, server: usize, path: &str) {
    let node = cluster.servers[server].node;
    // It may be starting just now, and rightly refuse.
    cluster.ailing.borrow_mut().insert(server);
    cluster.sim.disk_fault(node, path, Fault::FlushFails);
    cluster.sim.sleep(random_ms(cluster, 1500)).await;
    cluster.sim.clear_disk_faults(node, path);
    cluster.ailing.borrow_mut().remove(&server);
    kill_and_boot(cluster, server..server + 1, true).await;
}

/// Half a slab of a server's data cannot be written any more.
pub fn cannot_write(cluster: &Cluster, server: usize) {
    let range = stretch(cluster, server, 1);
    cluster.sim.disk_fault(cluster.servers[server].node, &data_path(), Fault::WriteEio { range });
}

/// Some slabs of a server's data cannot be read for a while, in which it may have to start.
pub async fn cannot_read(cluster: &Cluster, server: usize) {
    let node = cluster.servers[server].node;
    let slabs = cluster.options.data_bytes(server) / cluster.options.slab_bytes(server);
    let range = stretch(cluster, server, (slabs / 2).min(16));
    cluster.ailing.borrow_mut().insert(server);
    cluster.sim.disk_fault(node, &data_path(), Fault::ReadEio { range });
    if cluster.sim.chance(0.5) {
        kill_and_boot(cluster, server..server + 1, cluster.sim.chance(0.5)).await;
    }
    cluster.sim.sleep(random_ms(cluster, 1500)).await;
    cluster.sim.clear_disk_faults(node, &data_path());
    cluster.ailing.borrow_mut().remove(&server);
    let state = cluster.targets.borrow().get(&server).map(Target::state);
    if matches!(state, None | Some(TargetState::Stopped)) {
        kill_and_boot(cluster, server..server + 1, false).await;
    }
}

/// Everything on a server's data disk takes longer for a while.
pub async fn slow(cluster: &Cluster, server: usize) {
    let node = cluster.servers[server].node;
    cluster.sim.disk_fault(node, &data_path(), Fault::Slow(20.0));
    cluster.sim.sleep(random_ms(cluster, 500)).await;
    cluster.sim.disk_fault(node, &data_path(), Fault::Slow(1.0));
}

/// Nothing that is asked of one of a server's disks comes to its end for seconds; what happens next may meet that.
pub async fn stuck(cluster: &Cluster, server: usize) {
    let path = if cluster.sim.chance(0.5) { data_path() } else { journal_path() };
    let time = STUCK_AT_LEAST + random_ms(cluster, STUCK_MORE_MS);
    cluster.sim.disk_fault(cluster.servers[server].node, &path, Fault::Stuck(time));
    cluster.sim.sleep(random_ms(cluster, STUCK_MORE_MS / 2)).await;
}

/// Half as many slabs as asked for; most begin within a slab that was written to.
fn stretch(cluster: &Cluster, server: usize, halves: u64) -> std::ops::Range<u64> {
    let (bytes, slab) = (cluster.options.data_bytes(server), cluster.options.slab_bytes(server));
    let image = cluster.sim.disk_image(cluster.servers[server].node, &data_path());
    let slabs = (1..bytes / slab).map(|n| n * slab - slab + FIRST_SLAB);
    let (used, unused): (Vec<u64>, Vec<u64>) = slabs.partition(|start| image.read(*start, 8) != [0; 8]);
    let choice = if used.is_empty() || (!unused.is_empty() && cluster.sim.chance(0.2)) { unused } else { used };
    let start = choice[cluster.sim.random_below(choice.len() as u64) as usize];
    let start = start + 4096 * cluster.sim.random_below(slab / 4096);
    start..start + halves * slab / 2
}
