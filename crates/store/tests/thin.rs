//! A thin-provisioned device without space, and a device whose writes fail: callers get the error, nothing is lost for
//! good, and no caller waits forever.

use std::time::Duration;

use crate::common::*;
use forebay_env::{
    Env,
    sim::{Fault, NodeId, Sim},
};
use forebay_store::{FormatOptions, Store, StoreErrorKind};

const TIMEOUT: Duration = Duration::from_secs(20);

fn simulated(seed: u64) -> (Sim, NodeId, Env) {
    let sim = Sim::new(seed);
    let node = sim.add_node("oss0");
    let env = sim.env(node);
    (sim, node, env)
}

fn small() -> FormatOptions {
    FormatOptions { data_bytes: (64 << 10) + 24 * (128 << 10), ..tiny() }
}

async fn expect(store: &Store, object: u64, bytes: u64, sequence: u64) {
    let read = read(store, fid(object), 0..bytes).await.unwrap();
    assert!((0..bytes).zip(read.iter()).all(|(at, byte)| *byte == stamp(fid(object), at, sequence)), "object {object}");
}

#[test]
fn without_space_own_writes_wait_and_callers_get_full_at_once() {
    let (sim, node, env) = simulated(1);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 60_000, 1).await.unwrap();
        store.sync().await.unwrap();
        sim.disk_fault(node, DISKS[0], Fault::NoRoom);
        assert_eq!(kind(write(&store, fid(2), 0, 60_000, 2).await), Some(StoreErrorKind::Full));
        destroy(&store, fid(1), 3).await.unwrap();
        let waiting = store.clone();
        let committed = env.spawn(async move { waiting.sync().await });
        let checkpointing = store.clone();
        let checkpoint = env.spawn(async move { checkpointing.checkpoint().await });
        env.sleep(Duration::from_secs(3)).await;
        for sequence in 4..8 {
            let told = env.timeout(TIMEOUT, write(&store, fid(2), 0, 60_000, sequence)).await;
            assert_eq!(told.ok().and_then(kind), Some(StoreErrorKind::Full));
        }
        assert!(store.stopped().is_none(), "{:?}", store.stopped());
        sim.clear_disk_faults(node, DISKS[0]);
        for waits in [committed, checkpoint] {
            env.timeout(TIMEOUT, waits).await.expect("there is room now").expect("it ends").unwrap();
        }
        write(&store, fid(3), 0, 60_000, 9).await.unwrap();
        expect(&store, 3, 60_000, 9).await;
        store.close().await.unwrap();
    });
}

#[test]
fn without_room_slabs_that_were_used_before_are_used_again() {
    let (sim, node, env) = simulated(2);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        for round in 0..4u64 {
            for object in 0..6 {
                write(&store, fid(object), 0, 60_000, round * 10 + object + 1).await.unwrap();
            }
            store.checkpoint().await.unwrap();
            env.sleep(Duration::from_secs(1)).await;
        }
        sim.disk_fault(node, DISKS[0], Fault::NoRoom);
        // Writes that found space in slabs used before.
        let mut placed = 0;
        for sequence in 100..160u64 {
            placed += u64::from(write(&store, fid(sequence % 6), 0, 60_000, sequence).await.is_ok());
            if sequence % 5 == 0 {
                let _ = env.timeout(Duration::from_secs(1), store.sync()).await;
            }
        }
        assert!(store.stopped().is_none(), "{:?}", store.stopped());
        assert!(placed > 5, "{placed} writes found a place");
        sim.clear_disk_faults(node, DISKS[0]);
        env.timeout(TIMEOUT, store.sync()).await.expect("there is room").unwrap();
    });
}

#[test]
fn pieces_that_arrive_after_a_failure_let_go_of_their_slabs() {
    let (sim, node, env) = simulated(3);
    sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        store.checkpoint().await.unwrap();
        let before = store.space().slabs.free;
        for attempt in 0..6u64 {
            // A fragment of several slabs: one of them finds no space while others are in flight.
            sim.disk_fault(node, DISKS[0], Fault::NoRoom);
            let room = store.reserve(700_000, 1).await.unwrap();
            let data = stamped(fid(1), 0, 700_000, attempt + 1).freeze();
            let placing =
                env.spawn({
                    let store = store.clone();
                    async move {
                        store.place(room, vec![fragment(fid(1), 0, data, attempt + 1, attempt + 1)]).await.map(drop)
                    }
                });
            env.sleep(Duration::from_micros(1 + attempt * 7)).await;
            sim.clear_disk_faults(node, DISKS[0]);
            let _ = placing.await;
        }
        store.checkpoint().await.unwrap();
        store.checkpoint().await.unwrap();
        env.sleep(Duration::from_secs(2)).await;
        let after = store.space().slabs;
        assert!(after.free + 4 >= before, "{before} slabs were free, and now {after:?}");
    });
}

#[test]
fn a_device_with_few_free_slabs_that_fails_every_write_stops_the_store() {
    let (sim, node, env) = simulated(4);
    sim.block_on(async {
        let store = fresh(&env, &FormatOptions { data_bytes: (64 << 10) + 14 * (128 << 10), ..tiny() }, &quick()).await;
        let mut number = 1;
        while write(&store, fid(number), 0, 30_000, number).await.is_ok() {
            number += 1;
        }
        store.sync().await.unwrap();
        assert!(store.space().slabs.free < 8, "{:?}", store.space());
        sim.disk_fault(node, DISKS[0], Fault::WriteEio { range: 0..u64::MAX });
        destroy(&store, fid(1), 1000).await.unwrap();
        let outcome = env.timeout(Duration::from_secs(60), store.sync()).await.expect("it does not wait for ever");
        assert_eq!(kind(outcome), Some(StoreErrorKind::Stopped));
        assert!(store.stopped().is_some());
    });
}

/// many writes without space, space, write, commit |X| the journal is cut back
#[test]
fn openings_without_room_do_not_hide_what_was_opened_later() {
    let (sim, node, env) = simulated(5);
    let store = sim.block_on(async {
        let store = fresh(&env, &small(), &quick()).await;
        write(&store, fid(1), 0, 4096, 1).await.unwrap();
        store.sync().await.unwrap();
        sim.disk_fault(node, DISKS[0], Fault::NoRoom);
        for sequence in 2..30u64 {
            assert_eq!(kind(write(&store, fid(2), 0, 60_000, sequence).await), Some(StoreErrorKind::Full));
        }
        sim.clear_disk_faults(node, DISKS[0]);
        store
    });
    let older = sim.disk_image(node, DISKS[1]);
    sim.block_on(async {
        for sequence in 30..40u64 {
            write(&store, fid(sequence), 0, 60_000, sequence).await.unwrap();
            store.sync().await.unwrap();
        }
    });
    drop(store);
    sim.crash(node);
    sim.set_disk_image(node, DISKS[1], older);
    let env = sim.env(node);
    sim.block_on(async {
        let refused = Store::open(&env, DIR, &quick()).await.err().map(|error| error.kind);
        assert_eq!(refused, Some(StoreErrorKind::Corrupt), "runs name what was durable");
    });
}
