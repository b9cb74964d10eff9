//! A mirrored MDT: one copy dies, rots, lags or cannot be read, and the operator replaces it.
//!
//! What no mirror survives is not tried: while one copy may hold the only good bytes, the other one is left alone.

use std::{cell::Cell, time::Duration};

use forebay_env::sim::{DiskImage, Fault};
use forebay_store::{CopyState, MirrorPlace, Store};
use forebay_target::TargetState;

use crate::{
    Cluster,
    cluster::{MIRROR_DIR, STORE_DIR},
    faults::random_ms,
};

/// The directories of the copies.
pub const DIRS: [&str; 2] = [STORE_DIR, MIRROR_DIR];
const PARTS: [&str; 2] = ["data", "journal"];

/// What has happened to the copies.
#[derive(Default)]
pub struct Copies {
    /// The copy with rotten bytes that may not have been repaired yet.
    rotten: Cell<Option<usize>>,
}

fn paths(copy: usize) -> [String; 2] {
    PARTS.map(|part| format!("{}/{part}", DIRS[copy]))
}

/// True if the MDT runs and both copies are in sync.
fn in_sync(cluster: &Cluster) -> bool {
    let targets = cluster.targets.borrow();
    let Some(mdt) = targets.get(&0).filter(|_| cluster.sim.is_running(cluster.servers[0].node)) else { return false };
    mdt.state() != TargetState::Stopped && mdt.store().mirror().is_some_and(|mirror| !mirror.is_degraded())
}

/// True if the MDT knows that it has lost this copy of both parts. Only then does the operator come.
fn is_known_lost(cluster: &Cluster, copy: usize) -> bool {
    let targets = cluster.targets.borrow();
    let Some(mirror) = targets.get(&0).and_then(|mdt| mdt.store().mirror()) else { return false };
    mirror.parts.iter().all(|part| matches!(part.copies[copy].state, CopyState::Lost { .. }))
}

impl Copies {
    /// The copy that a fault may hit now, if any: the rotten one, or a random one.
    fn victim(&self, cluster: &Cluster) -> Option<usize> {
        let chosen = self.rotten.get().unwrap_or(cluster.sim.random_below(2) as usize);
        (cluster.dead_copy.get().is_none() && in_sync(cluster)).then_some(chosen)
    }

    /// Every request to a copy's disks fails from now on, until [`Copies::replace_dead`].
    pub fn die(&self, cluster: &Cluster) {
        let Some(copy) = self.victim(cluster) else { return };
        cluster.dead_copy.set(Some(copy));
        for path in paths(copy) {
            let node = cluster.servers[0].node;
            cluster.sim.disk_fault(node, &path, Fault::ReadEio { range: 0..u64::MAX });
            cluster.sim.disk_fault(node, &path, Fault::WriteEio { range: 0..u64::MAX });
        }
    }

    /// The operator replaces the dead disk by a blank one; the running server fills it.
    pub async fn replace_dead(&self, cluster: &Cluster) {
        let Some(copy) = cluster.dead_copy.get() else { return };
        let node = cluster.servers[0].node;
        if !cluster.sim.is_running(node) || !is_known_lost(cluster, copy) {
            return;
        }
        for path in paths(copy) {
            let bytes = cluster.sim.disk_image(node, &path).bytes();
            cluster.sim.set_disk_image(node, &path, DiskImage::zeroed(bytes));
            cluster.sim.clear_disk_faults(node, &path);
        }
        let place = MirrorPlace { dir: DIRS[copy].into(), ..MirrorPlace::default() };
        let replaced = Store::mirror_replace(&cluster.sim.env(node), DIRS[1 - copy], &place, false).await;
        match replaced {
            Ok(_) => {
                cluster.dead_copy.set(None);
                self.rotten.set(self.rotten.get().filter(|rotten| *rotten != copy));
            }
            // The machine died meanwhile: the operator tries again later.
            Err(_) if !cluster.sim.is_running(node) => {}
            Err(error) => cluster.troubles.borrow_mut().push(format!("a copy cannot be replaced: {error}")),
        }
    }

    /// Flips some bits of one copy in places that have been written.
    pub fn rot(&self, cluster: &Cluster) {
        let Some(copy) = self.victim(cluster) else { return };
        self.rotten.set(Some(copy));
        let node = cluster.servers[0].node;
        for path in paths(copy) {
            let image = cluster.sim.disk_image(node, &path);
            let labels = 8192;
            let sectors = (image.bytes() - labels) / 4096;
            for _ in 0..40 {
                let offset = cluster.sim.random_below(sectors) * 4096 + cluster.sim.random_below(4096);
                if image.read(offset, 1) != [0] {
                    let bits = 1 << cluster.sim.random_below(8);
                    cluster.sim.disk_fault(node, &path, Fault::Rot { offset, bits });
                }
            }
        }
    }

    /// A part of one copy cannot be read for a while.
    pub async fn unreadable(&self, cluster: &Cluster) {
        let Some(copy) = self.victim(cluster) else { return };
        let node = cluster.servers[0].node;
        let path = &paths(copy)[cluster.sim.random_below(2) as usize];
        // Leave the labels readable: without them the MDT refuses to start, as it does without the copy.
        let bytes = cluster.sim.disk_image(node, path).bytes() - 8192;
        let start = cluster.sim.random_below(bytes);
        cluster.sim.disk_fault(node, path, Fault::ReadEio { range: start..(start + bytes / 8).min(bytes) });
        cluster.sim.sleep(random_ms(cluster, 1500)).await;
        cluster.sim.clear_disk_faults(node, path);
    }

    /// A sync of one copy fails, if there is one soon. This never happens while the other copy is dead.
    pub async fn sync_fails(&self, cluster: &Cluster) {
        let Some(copy) = self.victim(cluster) else { return };
        let path = &paths(copy)[cluster.sim.random_below(2) as usize];
        let node = cluster.servers[0].node;
        cluster.sim.disk_fault(node, path, Fault::FlushFails);
        cluster.sim.sleep(random_ms(cluster, 1500)).await;
        cluster.sim.clear_disk_faults(node, path);
    }

    /// One copy is slow, or stuck for longer than the MDT waits for it.
    pub async fn lag(&self, cluster: &Cluster) {
        let Some(copy) = self.victim(cluster) else { return };
        let node = cluster.servers[0].node;
        let path = &paths(copy)[cluster.sim.random_below(2) as usize];
        if cluster.sim.chance(0.2) {
            return cluster.sim.disk_fault(node, path, Fault::Stuck(Duration::from_secs(25)));
        }
        cluster.sim.disk_fault(node, path, Fault::Slow(50.0));
        cluster.sim.sleep(random_ms(cluster, 500)).await;
        cluster.sim.disk_fault(node, path, Fault::Slow(1.0));
    }

    /// Replaces dead and rotten copies and waits until both are in sync.
    pub async fn heal(&self, cluster: &Cluster) -> Result<(), String> {
        for _ in 0..1200 {
            if cluster.dead_copy.get().is_some() {
                self.replace_dead(cluster).await;
            } else if in_sync(cluster) && self.rotten.get().is_some() {
                self.die(cluster);
            } else if in_sync(cluster) {
                return Ok(());
            }
            cluster.sim.sleep(Duration::from_millis(250)).await;
        }
        let targets = cluster.targets.borrow();
        Err(format!("the copies are never in sync: {:?}", targets.get(&0).map(|mdt| mdt.store().mirror())))
    }
}

/// The disks of one copy.
pub struct Away {
    disks: Vec<(String, DiskImage)>,
}

/// Leaves the MDT with the other copy alone. The MDT must not be running.
pub fn take_away(cluster: &Cluster, copy: usize) -> Away {
    let node = cluster.servers[0].node;
    let disks = paths(copy).map(|path| {
        let image = cluster.sim.disk_image(node, &path);
        cluster.sim.set_disk_image(node, &path, DiskImage::zeroed(image.bytes()));
        (path, image)
    });
    cluster.dead_copy.set(Some(copy));
    Away { disks: disks.into() }
}

/// Restores both copies as they were when one was taken away.
pub fn restore(cluster: &Cluster, away: Away, other: Away) {
    let node = cluster.servers[0].node;
    for (path, image) in away.disks.into_iter().chain(other.disks) {
        cluster.sim.set_disk_image(node, &path, image);
    }
    cluster.dead_copy.set(None);
}

/// The current contents of a copy.
pub fn look(cluster: &Cluster, copy: usize) -> Away {
    let node = cluster.servers[0].node;
    Away { disks: paths(copy).map(|path| (path.clone(), cluster.sim.disk_image(node, &path))).into() }
}
