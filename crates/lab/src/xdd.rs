//! xdd on the device models alone: the baseline, which is what the hardware does without a file system.
//!
//! Each LUN has one request of 1 MiB at a time, as in [Spider] 3.2 ("synchronously"). Three sets of figures calibrate
//! the model: sequential ones of one LUN and of all LUNs, and random ones of one LUN. The random figures of all LUNs
//! are results of the model.

use std::{cell::Cell, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_env::{
    AlignedBuf, Disk, OpenDisk,
    sim::{Placement, Port, Sim, Tier},
};

use super::{Machine, payload::TRANSFER_BYTES};

/// How long each figure is measured.
const LENGTH: Duration = Duration::from_secs(10);

/// Rates in MB/s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Baseline {
    /// Sequential reads.
    pub read: f64,
    /// Sequential writes.
    pub write: f64,
    /// Random reads within the region.
    pub random_read: f64,
    /// Random writes within the region.
    pub random_write: f64,
}

#[derive(Clone, Copy)]
struct Pattern {
    write: bool,
    random: bool,
}

/// Runs on one LUN, or on all LUNs from all hosts at the same time.
pub fn xdd(machine: &Machine, all: bool, seed: u64) -> Result<Baseline, String> {
    let run = |write, random| one(machine, all, Pattern { write, random }, seed);
    Ok(Baseline {
        read: run(false, false)?,
        write: run(true, false)?,
        random_read: run(false, true)?,
        random_write: run(true, true)?,
    })
}

fn one(machine: &Machine, all: bool, pattern: Pattern, seed: u64) -> Result<f64, String> {
    let sim = Sim::new(seed);
    let (hosts, luns) =
        if all { (machine.servers.nodes.count(), machine.servers.osts_per_node.count()) } else { (1, 1) };
    let zeros = AlignedBuf::zeroed(TRANSFER_BYTES as usize).freeze();
    let bytes = Rc::new(Cell::new(0u64));
    sim.block_on(async {
        for host in 0..hosts {
            let node = sim.add_node(&format!("host{host}"));
            let port = Port::new(machine.port.mb_s.mb_s(), machine.port.latency_us.us());
            for lun in 0..luns {
                let model = machine.tier.model();
                let tier_bytes = model.bytes / TRANSFER_BYTES * TRANSFER_BYTES;
                let tier = Tier::new(&sim, model, u64::from(host * luns + lun));
                let path = format!("/lun{lun}");
                let placement = Placement { tier, port: Some(port.clone()), base: 0, shape: None, bulk_journal: None };
                sim.place_disk(node, &path, &placement);
                let env = sim.env(node);
                let open = OpenDisk { create_bytes: Some(tier_bytes), ..OpenDisk::default() };
                let disk = env.open_disk(&path, open).await.map_err(|e| e.to_string())?;
                let region = machine.xdd.as_ref().map_or(1.0, |xdd| xdd.region.value);
                let places = ((tier_bytes / TRANSFER_BYTES) as f64 * region) as u64;
                let (bytes, zeros) = (bytes.clone(), zeros.clone());
                let chance = env.clone();
                drop(env.spawn(async move {
                    for number in 0.. {
                        let place = if pattern.random { chance.random_u64() % places } else { number % places };
                        if transfer(&disk, place * TRANSFER_BYTES, &zeros, pattern.write).await.is_err() {
                            return;
                        }
                        bytes.set(bytes.get() + TRANSFER_BYTES);
                    }
                }));
            }
        }
        sim.sleep(Duration::from_secs(1)).await;
        let before = bytes.get();
        sim.sleep(LENGTH).await;
        Ok((bytes.get() - before) as f64 / 1e6 / LENGTH.as_secs_f64())
    })
}

async fn transfer(disk: &Disk, offset: u64, zeros: &Bytes, write: bool) -> Result<(), String> {
    let done = if write {
        disk.write(offset, vec![zeros.clone()]).await
    } else {
        disk.read(offset, TRANSFER_BYTES as usize).await.map(drop)
    };
    done.map_err(|e| e.to_string())
}
