//! Crashes the store at every write and every flush of random histories, each time torn in several ways (`tears`), and
//! opens it again.
//!
//! Oracle: the recovered state is the model after some prefix of the applied operations. That prefix holds at least
//! what had been reported committed by then. Any torn block, any other object's byte, any lost committed row shows. The
//! workspace's `tests/fsck/crash.rs` runs fsck on the same histories, crashed at the same points.
//!
//! More histories: `FOREBAY_CRASH_HISTORIES=N`; one of them again: `FOREBAY_CRASH_SEED=N`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{history::*, tears::*, *};
use forebay_env::sim::{DiskImage, Sim};
use forebay_store::Store;

/// After one crash in this many, the store is used further, crashed and opened once more.
const GO_ON_EVERY: u64 = 32;
/// One history in this many is swept: each of its points with each number of sectors.
const SWEPT_EVERY: u64 = 10;

fn check_every_point(history: &mut History, tally: &mut Tally) {
    let (mut round, mut contents) = (Round::default(), Contents::default());
    let mut crashes = 0u64;
    let sweep = history.seed.is_multiple_of(SWEPT_EVERY);
    for point in 0..history.recorder.points() {
        for tear in tally.tears((&mut history.recorder, history.seed), point, sweep, &mut round) {
            let images = history.recorder.image(point, tear);
            let what = format!(
                "history {}, {}, {tear:?}; repeat with FOREBAY_CRASH_SEED={}",
                history.seed,
                history.recorder.describe(point),
                history.seed
            );
            let go_on = crashes.is_multiple_of(GO_ON_EVERY);
            let recovered = contents.checked(images, go_on, |images| check(history, point, images, go_on, &what));
            let least = history.committed_at(point);
            assert!(recovered >= least, "{what}: {least} operations were committed, {recovered} recovered");
            crashes += 1;
        }
    }
    tally.contents += contents.count();
}

/// Returns how many operations were recovered.
fn check(history: &History, point: usize, images: Vec<DiskImage>, go_on: bool, what: &str) -> u64 {
    let sim = Sim::new(history.seed ^ point as u64);
    let node = sim.add_node("oss0");
    sim.set_files(node, history.files.clone());
    DISKS.iter().zip(images).for_each(|(path, image)| sim.set_disk_image(node, path, image));
    let env = sim.env(node);
    let (prefix, mut states) = sim.block_on(async {
        let store = Store::open(&env, DIR, &open_options()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let prefix = store.recovery().last_transno.0;
        verify(&store, &history.states[prefix as usize], what).await;
        let mut states: Vec<State> = history.states[..=prefix as usize].to_vec();
        if go_on {
            operate(&sim, &env, &store, &mut states, prefix + 40, &|| ()).await;
            store.sync().await.unwrap();
        }
        (prefix, states)
    });
    if !go_on {
        return prefix;
    }
    sim.power_cut(node);
    let env = sim.env(node);
    sim.block_on(async {
        let what = format!("{what}, used on and crashed again");
        let store = Store::open(&env, DIR, &open_options()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(store.recovery().last_transno.0, states.len() as u64 - 1, "{what}");
        verify(&store, &states.pop().expect("states"), &what).await;
    });
    prefix
}

#[test]
fn a_store_crashed_at_any_point_recovers_a_prefix_with_all_that_was_committed() {
    let (wraps, reused, moved) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let seeds = seeds();
    let tally = in_threads(&seeds, |seed, tally| {
        let mut history = record(seed);
        let stats = history.stats.clone();
        assert_eventful(std::slice::from_ref(&stats), &format!("seed {seed}"));
        check_every_point(&mut history, tally);
        wraps.fetch_add(stats.journal_wraps, Relaxed);
        reused.fetch_add(stats.slabs_reused, Relaxed);
        moved.fetch_add(stats.compacted_bytes, Relaxed);
    });
    let count = seeds.len();
    println!(
        "{count} histories: {wraps:?} wraps of the journal, {reused:?} slabs reused, {moved:?} bytes moved; {tally}"
    );
    if count as u64 >= HISTORIES {
        tally.assert_covered();
    }
}
