//! A store whose devices misbehave or are full: right bytes, or an error that says so; never a false success.

use crate::common::*;
use forebay_env::{
    Env,
    sim::{Fault, NodeId, Sim},
};
use forebay_proto::{Fid, Transno};
use forebay_store::{FormatOptions, Store, StoreErrorKind};

fn simulated(seed: u64) -> (Sim, NodeId, Env) {
    let sim = Sim::new(seed);
    let node = sim.add_node("oss0");
    let env = sim.env(node);
    (sim, node, env)
}

fn small() -> FormatOptions {
    FormatOptions { data_bytes: (64 << 10) + 20 * (128 << 10), ..tiny() }
}

async fn expect(store: &Store, object: Fid, range: std::ops::Range<u64>, sequence: u64) {
    let bytes = read(store, object, range.clone()).await.unwrap();
    assert!(range.zip(bytes.iter()).all(|(at, byte)| *byte == stamp(object, at, sequence)), "object {object}");
}

/// Fills the store with objects of 16 KiB; returns how many fit.
async fn fill(store: &Store, first: u64) -> u64 {
    let mut number = first;
    loop {
        match write(store, fid(number), 0, 16 << 10, number).await {
            Ok(_) => number += 1,
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
                return number - first;
            }
        }
    }
}

#[test]
fn a_full_store_says_so_at_once_deletes_and_takes_new_bytes() {
    let (sim, _, env) = simulated(1);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        let count = fill(&store, 1).await;
        let space = store.space();
        assert!(count * (16 << 10) > space.total_bytes * 9 / 10, "{count} objects, {space:?}");
        for round in 0..5u64 {
            let base = 1000 * (round + 1);
            for number in 0..count / 2 {
                let victim = if round == 0 { 1 + number * 2 } else { base - 1000 + number };
                destroy(&store, fid(victim), base + 500 + number).await.unwrap();
            }
            let again = (0..count / 2).map(|number| base + number);
            for number in again {
                write(&store, fid(number), 0, 16 << 10, number).await.unwrap();
            }
        }
        for number in (2..=count).step_by(2) {
            expect(&store, fid(number), 0..16 << 10, number).await;
        }
        store.sync().await.unwrap();
        store.close().await.unwrap();
    });
}

#[test]
fn a_device_half_dead_is_never_full() {
    let (sim, _, env) = simulated(2);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        let objects = store.space().total_bytes / 2 / (8 << 10);
        for sequence in 1..2500u64 {
            let object = sim.random_below(objects);
            write(&store, fid(object), 0, 8 << 10, sequence).await.unwrap();
        }
        let stats = store.stats();
        assert!(stats.compacted_bytes > 0 && stats.slabs_reused > 50, "{stats:?}");
    });
}

#[test]
fn a_device_that_could_not_be_read_for_a_while_is_cleaned_afterwards() {
    let (sim, node, env) = simulated(4);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        let (bytes, objects) = (store.space().total_bytes, store.space().total_bytes / 2 / (8 << 10));
        for sequence in 1..200u64 {
            write(&store, fid(sim.random_below(objects)), 0, 8 << 10, sequence).await.unwrap();
        }
        store.sync().await.unwrap();
        sim.disk_fault(node, DISKS[0], Fault::ReadEio { range: 0..2 * bytes });
        let mut sequence = 200;
        while sequence < 5000 && write(&store, fid(sim.random_below(objects)), 0, 8 << 10, sequence).await.is_ok() {
            sequence += 1;
        }
        assert!(sequence < 5000, "nothing could be cleaned");
        sim.clear_disk_faults(node, DISKS[0]);
        env.sleep(std::time::Duration::from_secs(70)).await;
        for sequence in 5000..5500u64 {
            write(&store, fid(sim.random_below(objects)), 0, 8 << 10, sequence).await.unwrap();
        }
        store.sync().await.unwrap();
    });
}

#[test]
fn a_write_error_retires_its_slab_for_good_and_the_bytes_go_elsewhere() {
    let (sim, node, env) = simulated(3);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 60_000, 1).await.unwrap();
        // The first slab's second half fails from now on.
        let bad = (64u64 << 10) + (70 << 10)..(64u64 << 10) + (128 << 10);
        sim.disk_fault(node, DISKS[0], Fault::WriteEio { range: bad });
        for sequence in 2..40u64 {
            write(&store, fid(sequence), 0, 20_000, sequence).await.unwrap();
        }
        store.sync().await.unwrap();
        env.sleep(std::time::Duration::from_millis(100)).await;
        assert_eq!(store.space().slabs.bad, 1);
        assert_eq!(store.stats().slabs_retired, 1);
        expect(&store, fid(1), 0..60_000, 1).await;
        store.close().await.unwrap();
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        assert_eq!(store.space().slabs.bad, 1, "the list of bad slabs is durable");
        for sequence in 2..40u64 {
            expect(&store, fid(sequence), 0..20_000, sequence).await;
        }
    });
}

#[test]
fn a_device_that_fails_every_write_stops_the_store_and_takes_no_slab_with_it() {
    let (sim, node, env) = simulated(14);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 60_000, 1).await.unwrap();
        store.sync().await.unwrap();
        sim.disk_fault(node, DISKS[0], Fault::WriteEio { range: 0..u64::MAX });
        let error = write(&store, fid(2), 0, 20_000, 2).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Stopped);
        assert!(error.message.contains("wherever they go"), "{error}");
        assert!(store.stopped().is_some());
        assert_eq!(kind(write(&store, fid(3), 0, 20_000, 3).await), Some(StoreErrorKind::Stopped));
        drop(store);
        env.sleep(std::time::Duration::from_millis(100)).await;
        sim.clear_disk_faults(node, DISKS[0]);
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        assert_eq!(store.space().slabs.bad, 0, "the device was bad, not its slabs");
        expect(&store, fid(1), 0..60_000, 1).await;
        for sequence in 3..40u64 {
            write(&store, fid(sequence), 0, 20_000, sequence).await.unwrap();
        }
        store.close().await.unwrap();
    });
}

#[test]
fn a_failed_flush_of_the_data_device_stops_the_store() {
    let (sim, node, env) = simulated(4);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 10_000, 1).await.unwrap();
        sim.disk_fault(node, DISKS[0], Fault::FlushFails);
        assert_eq!(kind(store.sync().await), Some(StoreErrorKind::Stopped));
        assert_eq!(store.last_committed(), Transno(0), "nothing is acknowledged after a failed flush");
        assert_eq!(kind(write(&store, fid(2), 0, 10_000, 2).await), Some(StoreErrorKind::Stopped));
        assert_eq!(kind(store.sync().await), Some(StoreErrorKind::Stopped));
        assert!(store.stopped().is_some());
    });
}

#[test]
fn a_failed_flush_of_the_journal_stops_the_store() {
    let (sim, node, env) = simulated(5);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 10_000, 1).await.unwrap();
        sim.disk_fault(node, DISKS[1], Fault::FlushFails);
        assert_eq!(kind(store.sync().await), Some(StoreErrorKind::Stopped));
        assert_eq!(store.last_committed(), Transno(0));
    });
}

/// Where `needle` lies on the data disk.
fn find(sim: &Sim, node: NodeId, needle: &[u8]) -> u64 {
    let disk = sim.disk_bytes(node, DISKS[0]);
    disk.windows(needle.len()).position(|window| window == needle).expect("the bytes are on the disk") as u64
}

#[test]
fn rot_is_found_on_read_and_named_and_the_rest_is_served() {
    let (sim, node, env) = simulated(6);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 30_000, 1).await.unwrap();
        write(&store, fid(2), 0, 30_000, 2).await.unwrap();
        store.sync().await.unwrap();
        let at = find(&sim, node, &stamped(fid(1), 0, 64, 1));
        sim.disk_fault(node, DISKS[0], Fault::Rot { offset: at + 1234, bits: 4 });
        let error = store.read(fid(1), 100..200).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Corrupt);
        assert!(error.message.contains("block at 0"), "{error}");
        expect(&store, fid(2), 0..30_000, 2).await;
        assert_eq!(store.stats().read_corruptions, 1);
    });
}

#[test]
fn a_read_error_of_the_medium_is_told_as_one() {
    let (sim, node, env) = simulated(7);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 30_000, 1).await.unwrap();
        let at = find(&sim, node, &stamped(fid(1), 0, 64, 1));
        sim.disk_fault(node, DISKS[0], Fault::ReadEio { range: at..at + 4096 });
        assert_eq!(kind(store.read(fid(1), 0..10).await), Some(StoreErrorKind::Medium));
    });
}

#[test]
fn a_lost_write_over_old_valid_content_is_found() {
    let (sim, node, env) = simulated(8);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        // The location will hold an older, intact run of the same object before the lost write goes there.
        for sequence in 1..400u64 {
            write(&store, fid(1), 0, 30_000, sequence).await.unwrap();
        }
        store.sync().await.unwrap();
        sim.disk_fault(node, DISKS[0], Fault::LoseNextWrite);
        write(&store, fid(1), 0, 30_000, 400).await.unwrap();
        assert_eq!(kind(store.read(fid(1), 0..30_000).await), Some(StoreErrorKind::Corrupt));
    });
}

#[test]
fn a_misdirected_write_is_found_where_it_is_missing_and_where_it_landed() {
    let (sim, node, env) = simulated(9);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 30_000, 1).await.unwrap();
        let at = find(&sim, node, &stamped(fid(1), 0, 64, 1)) / 4096 * 4096;
        sim.disk_fault(node, DISKS[0], Fault::MisdirectNextWrite { to: at });
        write(&store, fid(2), 0, 30_000, 2).await.unwrap();
        assert_eq!(kind(store.read(fid(1), 0..30_000).await), Some(StoreErrorKind::Corrupt));
        assert_eq!(kind(store.read(fid(2), 0..30_000).await), Some(StoreErrorKind::Corrupt));
    });
}

#[test]
fn a_journal_rotten_at_any_byte_is_refused_or_cut_but_never_lies() {
    let (sim, node, env) = simulated(10);
    sim.block_on(async {
        let store = fresh(&env, &FormatOptions { journal_bytes: 1 << 20, ..small() }, &quick()).await;
        for sequence in 1..30u64 {
            write(&store, fid(1), 0, 5_000, sequence).await.unwrap();
            store.sync().await.unwrap();
        }
        // Idle for long enough, so that an empty record attests the last one.
        env.sleep(std::time::Duration::from_millis(150)).await;
        std::mem::forget(store);
    });
    sim.power_cut(node);
    let (files, data) = (sim.files(node), sim.disk_image(node, DISKS[0]));
    let journal = sim.disk_bytes(node, DISKS[1]);
    let (mut refused, mut whole) = (0, 0);
    for round in 0..200u64 {
        let sim = Sim::new(round);
        let node = sim.add_node("oss0");
        sim.set_files(node, files.clone());
        sim.set_disk_image(node, DISKS[0], data.clone());
        let mut rotten = journal.clone();
        let at = sim.random_below(8192 + 35 * 4096) as usize;
        rotten[at] ^= 1 << sim.random_below(8);
        sim.set_disk_bytes(node, DISKS[1], &rotten);
        let env = sim.env(node);
        sim.block_on(async {
            match Store::open(&env, DIR, &quick()).await {
                Err(error) => {
                    assert!(
                        matches!(error.kind, StoreErrorKind::Corrupt | StoreErrorKind::Foreign),
                        "byte {at}: {error}"
                    );
                    refused += 1;
                }
                Ok(store) => {
                    let last = store.recovery().last_transno.0;
                    assert_eq!(last, 29, "byte {at}: committed changes are dropped silently");
                    expect(&store, fid(1), 0..5_000, last).await;
                    whole += 1;
                }
            }
        });
    }
    assert!(refused > 100 && whole > 0, "{refused} refused, {whole} recovered whole");
}

#[test]
fn a_journal_cut_back_to_an_older_state_is_refused_because_runs_name_what_was_durable() {
    let (sim, node, env) = simulated(11);
    let mut old_journal = Vec::new();
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 5_000, 1).await.unwrap();
        store.sync().await.unwrap();
        old_journal = sim.disk_bytes(node, DISKS[1]);
        for sequence in 2..6u64 {
            write(&store, fid(1), 0, 5_000, sequence).await.unwrap();
            store.sync().await.unwrap();
        }
        std::mem::forget(store);
    });
    sim.power_cut(node);
    sim.set_disk_bytes(node, DISKS[1], &old_journal);
    let env = sim.env(node);
    sim.block_on(async {
        let error = Store::open(&env, DIR, &quick()).await.err().expect("lost commits are noticed");
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
    });
}

#[test]
fn anothers_device_or_journal_is_refused() {
    let (sim, node, env) = simulated(12);
    sim.block_on(async {
        fresh(&env, &small(), &quick()).await.close().await.unwrap();
        Store::format(&env, "other", &small()).await.unwrap();
        let mine = [sim.disk_image(node, DISKS[0]), sim.disk_image(node, DISKS[1])];
        sim.set_disk_image(node, DISKS[0], sim.disk_image(node, "other/data"));
        assert_eq!(kind(Store::open(&env, DIR, &quick()).await), Some(StoreErrorKind::Foreign));
        sim.set_disk_image(node, DISKS[0], mine[0].clone());
        sim.set_disk_image(node, DISKS[1], sim.disk_image(node, "other/journal"));
        assert_eq!(kind(Store::open(&env, DIR, &quick()).await), Some(StoreErrorKind::Foreign));
        sim.set_disk_image(node, DISKS[1], mine[1].clone());
        Store::open(&env, DIR, &quick()).await.unwrap();
    });
}

#[test]
fn a_huge_object_is_truncated_in_steps() {
    let (sim, _, env) = simulated(13);
    sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        for number in 0..100u64 {
            write(&store, fid(1), number * 4096, 4096, number + 1).await.unwrap();
        }
        let mut steps = 0;
        loop {
            store.prefetch_tail(fid(1), 6000..u64::MAX, 7).await.unwrap();
            let mut txn = store.begin();
            let from = txn.tail_begins(fid(1), 6000..u64::MAX, 7).unwrap();
            txn.truncate(fid(1), from, Transno(200 + steps)).unwrap();
            txn.apply().unwrap();
            steps += 1;
            if from == 6000 {
                break;
            }
        }
        assert!(steps > 10);
        expect(&store, fid(1), 4096..6000, 2).await;
        assert!(read(&store, fid(1), 6000..500_000).await.unwrap().iter().all(|byte| *byte == 0));
    });
}
