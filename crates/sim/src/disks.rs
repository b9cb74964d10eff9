//! Disk faults: a sync that fails, ranges that cannot be written or read, and slow or stuck disks.
//!
//! The operator restarts a stopped target once its disk works again. The same goes for a target that refused to start
//! on a failing disk.

use std::time::Duration;

use forebay_env::sim::Fault;
use forebay_target::{Target, TargetState};

use crate::{
    Cluster,
    cluster::{data_path, journal_path},
    faults::{kill_and_boot, random_ms},
};

/// Where the first slab begins on a data device.
const FIRST_SLAB: u64 = 4096;
/// Shortest time that a disk is stuck. The longest is less than a mirrored MDT waits for a copy.
const STUCK_AT_LEAST: Duration = Duration::from_secs(1);
const STUCK_MORE_MS: u64 = 4000;

/// The next sync of a disk fails, and the target acknowledges nothing more. The operator replaces the cable and
/// restarts the target.
pub async fn sync_fails(cluster: &Cluster, server: usize, path: &str) {
    let node = cluster.servers[server].node;
    // The target may be starting at the moment; then it rightly refuses.
    cluster.ailing.borrow_mut().insert(server);
    cluster.sim.disk_fault(node, path, Fault::FlushFails);
    cluster.sim.sleep(random_ms(cluster, 1500)).await;
    cluster.sim.clear_disk_faults(node, path);
    cluster.ailing.borrow_mut().remove(&server);
    kill_and_boot(cluster, server..server + 1, true).await;
}

/// Half a slab of a server's data becomes unwritable for good.
pub fn cannot_write(cluster: &Cluster, server: usize) {
    let range = stretch(cluster, server, 1);
    cluster.sim.disk_fault(cluster.servers[server].node, &data_path(), Fault::WriteEio { range });
}

/// Some slabs of a server's data cannot be read for a while. The server may have to start during that time.
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

/// Every request to a server's data disk takes longer for a while.
pub async fn slow(cluster: &Cluster, server: usize) {
    let node = cluster.servers[server].node;
    cluster.sim.disk_fault(node, &data_path(), Fault::Slow(20.0));
    cluster.sim.sleep(random_ms(cluster, 500)).await;
    cluster.sim.disk_fault(node, &data_path(), Fault::Slow(1.0));
}

/// One of a server's disks completes no request for seconds. The next fault may come during that time.
pub async fn stuck(cluster: &Cluster, server: usize) {
    let path = if cluster.sim.chance(0.5) { data_path() } else { journal_path() };
    let time = STUCK_AT_LEAST + random_ms(cluster, STUCK_MORE_MS);
    cluster.sim.disk_fault(cluster.servers[server].node, &path, Fault::Stuck(time));
    cluster.sim.sleep(random_ms(cluster, STUCK_MORE_MS / 2)).await;
}

/// A range of `halves` half slabs. In most cases it begins in a slab that has been written.
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
