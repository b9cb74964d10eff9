//! Tests of the simulated half, one file per idea.

mod crash_points;
mod disks;
mod lives;
mod network;
mod scheduling;
mod tiers;

use bytes::Bytes;

use crate::{Disk, Env, OpenDisk, SECTOR_BYTES};

/// Opens (creates) the disk `data` of one MiB.
async fn open(env: &Env) -> Disk {
    env.open_disk("data", OpenDisk { create_bytes: Some(1 << 20), ..OpenDisk::default() }).await.unwrap()
}

/// One sector full of `byte`.
fn sector(byte: u8) -> Vec<Bytes> {
    vec![vec![byte; SECTOR_BYTES].into()]
}
