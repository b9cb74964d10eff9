use std::{collections::BTreeSet, time::Duration};

use super::{open, sector};
use crate::{
    EnvErrorKind,
    sim::{DiskModel, Fault, Sim, Wanted},
};

fn world(seed: u64) -> (Sim, crate::sim::NodeId) {
    let sim = Sim::new(seed);
    let node = sim.add_node("n");
    (sim, node)
}

/// write 1, flush, write 2 |X|
#[test]
fn a_power_cut_keeps_the_flushed_and_may_lose_or_tear_the_rest() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..60 {
        let (sim, node) = world(seed);
        let env = sim.env(node);
        sim.block_on(async {
            let disk = open(&env).await;
            disk.write(0, sector(1)).await.unwrap();
            disk.flush().await.unwrap();
            disk.write(4096, sector(2)).await.unwrap();
            assert_eq!(disk.read(4096, 4096).await.unwrap()[0], 2);
        });
        sim.power_cut(node);
        let bytes = sim.disk_bytes(node, "data");
        assert!(bytes[..4096].iter().all(|&byte| byte == 1), "seed {seed} lost a flushed write");
        let kept = bytes[4096..8192].chunks(512).filter(|sector| sector.iter().all(|&byte| byte == 2)).count();
        outcomes.insert(kept);
    }
    assert!(outcomes.contains(&0) && outcomes.contains(&8), "{outcomes:?}");
    assert!(outcomes.iter().any(|kept| (1..8).contains(kept)), "nothing was torn: {outcomes:?}");
}

/// write |X| (a kill, not a power cut)
#[test]
fn a_kill_keeps_completed_writes() {
    let (sim, node) = world(1);
    let env = sim.env(node);
    sim.block_on(async { open(&env).await.write(0, sector(1)).await.unwrap() });
    sim.crash(node);
    assert_eq!(sim.disk_bytes(node, "data")[0], 1);
}

#[test]
fn a_write_is_submitted_before_its_future_is_polled() {
    let (sim, node) = world(1);
    let env = sim.env(node);
    sim.block_on(async {
        let disk = open(&env).await;
        drop(disk.write(0, sector(1)));
        env.sleep(Duration::from_millis(1)).await;
        assert_eq!(disk.read(0, 4096).await.unwrap()[0], 1);
    });
}

#[test]
fn a_flush_covers_only_writes_that_completed_before_its_start() {
    for seed in 0..30 {
        let (sim, node) = world(seed);
        let env = sim.env(node);
        let torn = sim.block_on(async {
            let disk = open(&env).await;
            let in_flight = disk.write(0, sector(1));
            disk.flush().await.unwrap();
            in_flight.await.unwrap();
            sim.power_cut(node);
            sim.disk_bytes(node, "data")[..4096].iter().any(|&byte| byte != 1)
        });
        if torn {
            return;
        }
    }
    panic!("a flush made a write durable that was in flight, in 30 worlds of 30");
}

#[test]
fn a_durable_write_survives_and_is_not_undone_by_an_older_one() {
    for seed in 0..30 {
        let (sim, node) = world(seed);
        let env = sim.env(node);
        sim.block_on(async {
            let disk = open(&env).await;
            disk.write(0, sector(1)).await.unwrap();
            disk.write_durable(0, sector(2)).await.unwrap();
        });
        sim.power_cut(node);
        assert!(sim.disk_bytes(node, "data")[..4096].iter().all(|&byte| byte == 2), "seed {seed}");
    }
}

#[test]
fn a_failed_flush_sticks_until_the_disk_is_opened_anew() {
    let (sim, node) = world(1);
    let env = sim.env(node);
    sim.block_on(async {
        let disk = open(&env).await;
        sim.disk_fault(node, "data", Fault::FlushFails);
        for _ in 0..2 {
            assert_eq!(disk.flush().await.unwrap_err().kind, EnvErrorKind::FlushFailed);
        }
        assert!(disk.write_durable(0, sector(1)).await.is_err());
        open(&env).await.flush().await.unwrap();
    });
}

#[test]
fn of_several_writes_the_wanted_one_is_lost_or_goes_elsewhere() {
    let (sim, node) = world(1);
    let env = sim.env(node);
    sim.block_on(async {
        let disk = open(&env).await;
        let first_byte = async |offset| disk.read(offset, 4096).await.unwrap()[0];
        let wanted = Wanted::when(|bytes| bytes[0] == 7);
        sim.disk_fault(node, "data", Fault::LoseWrite { wanted: wanted.clone() });
        for (offset, value) in [(0, 5), (4096, 7), (8192, 7)] {
            disk.write(offset, sector(value)).await.unwrap();
        }
        assert_eq!((first_byte(0).await, first_byte(4096).await, first_byte(8192).await), (5, 0, 7));
        sim.disk_fault(node, "data", Fault::MisdirectWrite { wanted, to: 12288 });
        for (offset, value) in [(0, 6), (4096, 7)] {
            disk.write(offset, sector(value)).await.unwrap();
        }
        assert_eq!((first_byte(0).await, first_byte(4096).await, first_byte(12288).await), (6, 0, 7));
    });
}

#[test]
fn faults_do_what_they_say() {
    let (sim, node) = world(1);
    let env = sim.env(node);
    sim.block_on(async {
        let disk = open(&env).await;
        let first_byte = async |offset| disk.read(offset, 4096).await.unwrap()[0];
        sim.disk_fault(node, "data", Fault::LoseNextWrite);
        disk.write(0, sector(1)).await.unwrap();
        assert_eq!(first_byte(0).await, 0);
        sim.disk_fault(node, "data", Fault::MisdirectNextWrite { to: 8192 });
        disk.write(0, sector(2)).await.unwrap();
        assert_eq!((first_byte(0).await, first_byte(8192).await), (0, 2));
        sim.disk_fault(node, "data", Fault::Rot { offset: 8192, bits: 0x80 });
        assert_eq!(first_byte(8192).await, 0x82);
        sim.disk_fault(node, "data", Fault::ReadEio { range: 8200..8201 });
        assert_eq!(disk.read(0, 12288).await.err().unwrap().kind, EnvErrorKind::Medium);
        sim.disk_fault(node, "data", Fault::WriteEio { range: 0..1 });
        assert_eq!(disk.write(0, sector(3)).await.unwrap_err().kind, EnvErrorKind::Medium);
        sim.clear_disk_faults(node, "data");
        disk.write(0, sector(3)).await.unwrap();
        assert_eq!((first_byte(0).await, first_byte(8192).await), (3, 0x82));
    });
}

#[test]
fn a_disk_takes_its_models_time_and_a_stuck_one_longer() {
    let (sim, node) = world(1);
    let us = Duration::from_micros;
    let model = DiskModel {
        latency_write: us(10),
        latency_read: us(20),
        latency_flush: us(30),
        bytes_per_s: Some(4_096_000_000),
        jitter: 0.0,
    };
    sim.set_disk_model(node, "data", model);
    let env = sim.env(node);
    sim.block_on(async {
        let disk = open(&env).await;
        let took = async |what| {
            let start = env.now();
            match what {
                "write" => disk.write(0, sector(1)).await.unwrap(),
                "read" => drop(disk.read(0, 4096).await.unwrap()),
                _ => disk.flush().await.unwrap(),
            }
            env.now().since(start)
        };
        assert_eq!([took("write").await, took("read").await, took("flush").await], [us(11), us(21), us(30)]);
        sim.disk_fault(node, "data", Fault::Slow(2.0));
        assert_eq!(took("write").await, us(22));
        sim.disk_fault(node, "data", Fault::Stuck(us(500)));
        assert_eq!(took("flush").await, us(500));
    });
}

#[test]
fn an_image_is_sparse_and_keeps_its_bytes_when_its_clone_changes() {
    let mut image = crate::sim::DiskImage::zeroed(1 << 50);
    image.write(5000, b"hello");
    let mut other = image.clone();
    other.write(5001, b"a");
    assert_eq!(image.read(4999, 7), b"\0hello\0");
    assert_eq!(other.read(5000, 5), b"hallo");
    other.write(5000, &[0; 5]);
    assert!(other == crate::sim::DiskImage::zeroed(1 << 50));
}
