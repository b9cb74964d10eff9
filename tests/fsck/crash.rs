//! fsck as an oracle of the store: at every point of random histories the power is cut, and what is on the disks is clean.
//!
//! Stores are closed while their cleaner works: a clean stop must not write a record whose data is not flushed.
//!
//! More histories: `FOREBAY_CRASH_HISTORIES=N`; one of them again: `FOREBAY_CRASH_SEED=N`.

use std::{collections::BTreeMap, time::Duration};

use forebay_env::sim::{CrashRecorder, Sim, TearChoice};
use forebay_store::{FormatOptions, OpenOptions, Store};

use crate::{common::*, world::*};

struct History {
    seed: u64,
    recorder: CrashRecorder,
    files: BTreeMap<String, Vec<u8>>,
}

/// So few slabs that a freed one is opened again soon.
fn format_options() -> FormatOptions {
    FormatOptions { data_bytes: (64 << 10) + 15 * (128 << 10), journal_bytes: 72 << 10, ..tiny() }
}

/// Every other history commits seldom: then much dies, and slabs are emptied, by changes that are not committed.
fn open_options(seed: u64) -> OpenOptions {
    let commit_interval = Duration::from_micros(if seed.is_multiple_of(2) { 700 } else { 100_000 });
    OpenOptions { commit_interval, cache_bytes: Some(64 << 10) }
}

async fn operate(sim: &Sim, store: &Store) {
    for sequence in 1..200u64 {
        let (object, offset) = (fid(sim.random_below(4)), sim.random_below(100_000));
        match sim.random_below(16) {
            0 => {
                truncate(store, object, offset, sequence).await.unwrap();
            }
            1 => drop(punch(store, object, offset..offset + 1 + sim.random_below(9000), sequence).await.unwrap()),
            2 if sim.chance(0.5) => drop(destroy(store, object, sequence).await.unwrap()),
            3..=5 => {
                let key = [&b"\x20"[..], &sim.random_below(50).to_be_bytes()].concat();
                put(store, &key, vec![sequence as u8; sim.random_below(700) as usize]).await;
            }
            6 => delete(store, &[&b"\x20"[..], &sim.random_below(50).to_be_bytes()].concat()).await,
            _ => {
                // Some span several blocks: pieces cut from these begin in the middle of their run.
                let length = 1 + sim.random_below(if sim.chance(0.2) { 90_000 } else { 18_000 }) as usize;
                write(store, object, offset, length, sequence).await.unwrap();
            }
        }
        if sim.chance(0.05) {
            store.sync().await.unwrap();
        }
        if sim.chance(0.02) {
            sim.sleep(Duration::from_millis(130)).await;
        }
    }
}

/// Some histories restart in between: several incarnations, torn tails and slabs left half full.
fn record(seed: u64) -> History {
    let world = World::new(seed);
    let env = world.env();
    world.sim.block_on(Store::format(&env, DIR, &format_options())).unwrap();
    DISKS.iter().for_each(|disk| world.sim.record_disk(world.node, disk));
    for life in 0..1 + seed % 3 {
        let env = world.env();
        world.sim.block_on(async {
            let store = Store::open(&env, DIR, &open_options(seed)).await.unwrap();
            operate(&world.sim, &store).await;
            if life == seed % 2 {
                store.close().await.unwrap();
            } else {
                std::mem::forget(store);
            }
        });
        world.sim.crash(world.node);
    }
    let recorder = world.sim.crash_images(world.node, &DISKS);
    History { seed, recorder, files: world.sim.files(world.node) }
}

fn histories() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("FOREBAY_CRASH_SEED"), number("FOREBAY_CRASH_HISTORIES")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (1..=count.unwrap_or(12)).collect(),
    }
}

#[test]
fn what_a_power_cut_leaves_at_any_point_is_clean() {
    let (mut points, mut torn) = (0, 0);
    for seed in histories() {
        let mut history = record(seed);
        let checker = World::new(seed);
        for point in 0..history.recorder.points() {
            let tear = match point % 4 {
                0 => TearChoice::AllLost,
                1 => TearChoice::LastTornAtSector(1 + point % 13),
                _ => TearChoice::Random(history.seed ^ (point as u64) << 20),
            };
            let disks = history.recorder.image(point, tear);
            checker.set_image(&Image { files: history.files.clone(), disks });
            let report = checker.check(STORE);
            let what = format!("{}, {tear:?}; repeat with FOREBAY_CRASH_SEED={seed}", history.recorder.describe(point));
            assert_clean(&report, &what);
            torn += u64::from(report.count_of(forebay_fsck::Kind::TornTail) > 0);
            points += 1;
        }
    }
    println!("{points} points, {torn} with a torn tail");
    assert!(torn > 0);
}
