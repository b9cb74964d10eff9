//! fsck as an oracle of the store: random histories are cut at every point, and fsck must find the disks clean.
//!
//! The first test takes the histories that `crates/store/tests/crash_every_point.rs` compares with a model. Those of
//! the second test restart in between, write larger pieces, and commit seldom. Their stores are closed while their
//! cleaner works, as a clean stop must not write a record whose data is not flushed.
//!
//! More histories: `FOREBAY_CRASH_HISTORIES=N`. One of them again: `FOREBAY_CRASH_SEED=N`.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use forebay_env::sim::{CrashRecorder, Sim};
use forebay_store::{FormatOptions, OpenOptions, Store, StoreStats};

use crate::{
    common::{
        history::{self, OPERATIONS, assert_eventful},
        tears::{Contents, HISTORIES, Round, Tally, in_threads, seeds},
        *,
    },
    world::*,
};

/// One in this many histories is swept: each of its points with each number of sectors.
const SWEPT_EVERY: u64 = 50;
/// One in this many seeds has a history with restarts.
const RESTARTED_EVERY: usize = 11;

/// Few slabs, so that a freed one is opened again soon.
fn format_options() -> FormatOptions {
    FormatOptions { data_bytes: (64 << 10) + 15 * (128 << 10), journal_bytes: 72 << 10, ..tiny() }
}

/// Every other history commits seldom. Then many slabs are emptied by changes that are not committed.
fn open_options(seed: u64) -> OpenOptions {
    let commit_interval = Duration::from_micros(if seed.is_multiple_of(2) { 700 } else { 100_000 });
    OpenOptions { commit_interval, cache_bytes: Some(64 << 10), ..OpenOptions::default() }
}

async fn operate(sim: &Sim, store: &Store) {
    for sequence in 1..=OPERATIONS {
        let (object, offset) = (fid(sim.random_below(4)), sim.random_below(100_000));
        match sim.random_below(16) {
            0 => {
                truncate(store, object, offset, sequence).await.unwrap();
            }
            1 => drop(punch(store, object, offset..offset + 1 + sim.random_below(9000), sequence).await.unwrap()),
            2 if sim.chance(0.5) => drop(destroy(store, object, sequence).await.unwrap()),
            3..=5 => {
                let key = [&b"\x20"[..], &sim.random_below(50).to_be_bytes()].concat();
                put(store, &key, vec![sequence as u8; sim.random_below(1500) as usize]).await;
            }
            6 => delete(store, &[&b"\x20"[..], &sim.random_below(50).to_be_bytes()].concat()).await,
            _ => {
                // Some writes span several blocks: pieces cut from these begin in the middle of their run.
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

/// Records a history of one to three runs of the store: several incarnations, torn tails, and slabs left half full.
fn record_lives(seed: u64) -> (CrashRecorder, BTreeMap<String, Vec<u8>>, Vec<StoreStats>) {
    let world = World::new(seed);
    let env = world.env();
    world.sim.block_on(Store::format(&env, DIR, &format_options())).unwrap();
    DISKS.iter().for_each(|disk| world.sim.record_disk(world.node, disk));
    let mut stats = Vec::new();
    for life in 0..1 + seed % 3 {
        let env = world.env();
        world.sim.block_on(async {
            let store = Store::open(&env, DIR, &open_options(seed)).await.unwrap();
            operate(&world.sim, &store).await;
            stats.push(store.stats());
            if life == seed % 2 {
                store.close().await.unwrap();
            } else {
                std::mem::forget(store);
            }
        });
        world.sim.crash(world.node);
    }
    (world.sim.crash_images(world.node, &DISKS), world.sim.files(world.node), stats)
}

/// Checks every point. Returns the number of crashes that tore the journal's tail; crashes that leave the same count as
/// one.
fn check_every_point(
    recorder: &mut CrashRecorder,
    files: &BTreeMap<String, Vec<u8>>,
    seed: u64,
    tally: &mut Tally,
) -> u64 {
    let mut torn = 0;
    let checker = World::new(seed);
    let (mut round, mut contents) = (Round::default(), Contents::default());
    for point in 0..recorder.points() {
        for tear in tally.tears((recorder, seed), point, seed.is_multiple_of(SWEPT_EVERY), &mut round) {
            let disks = recorder.image(point, tear);
            contents.checked(disks, false, |disks| {
                checker.set_image(&Image { files: files.clone(), disks });
                let report = checker.check(STORE);
                let what = format!("{}, {tear:?}; repeat with FOREBAY_CRASH_SEED={seed}", recorder.describe(point));
                assert_clean(&report, &what);
                torn += u64::from(report.count_of(forebay_fsck::Kind::TornTail) > 0);
            });
        }
    }
    tally.contents += contents.count();
    torn
}

#[test]
fn fsck_finds_a_store_clean_after_a_power_cut_at_any_point() {
    let torn = AtomicU64::new(0);
    let seeds = seeds();
    let tally = in_threads(&seeds, |seed, tally| {
        let mut history = history::record(seed);
        assert_eventful(std::slice::from_ref(&history.stats), &format!("seed {seed}"));
        torn.fetch_add(check_every_point(&mut history.recorder, &history.files, seed, tally), Relaxed);
    });
    println!("{} histories, {torn:?} torn tails; {tally}", seeds.len());
    assert!(torn.into_inner() > 0);
    if seeds.len() as u64 >= HISTORIES {
        tally.assert_covered();
    }
}

#[test]
fn fsck_finds_a_restarted_store_clean_after_a_power_cut() {
    let torn = AtomicU64::new(0);
    let seeds: Vec<u64> = seeds().into_iter().step_by(RESTARTED_EVERY).collect();
    let tally = in_threads(&seeds, |seed, tally| {
        let (mut recorder, files, stats) = record_lives(seed);
        assert_eventful(&stats, &format!("seed {seed} with restarts"));
        torn.fetch_add(check_every_point(&mut recorder, &files, seed, tally), Relaxed);
    });
    println!("{} histories with restarts, {torn:?} torn tails; {tally}", seeds.len());
    assert!(torn.into_inner() > 0);
}
