//! What a store does between a restart and its next checkpoint is found again by the next recovery.

mod common;

use common::*;
use forebay_env::sim::Sim;
use forebay_store::{FormatOptions, Store};

/// Slabs: many more than a recovery looks at in vain.
const SLABS: u64 = 60;
const OBJECTS: u64 = 40;
const OBJECT_BYTES: usize = 60 << 10;

/// an aged store, closed | a restart, a destroy, power cut | the slab with its tombstone is found, wherever it is
#[test]
fn a_slab_opened_after_a_restart_is_found_after_the_next() {
    for seed in 0..12 {
        let sim = Sim::new(seed);
        let node = sim.add_node("oss0");
        let env = sim.env(node);
        let opened = sim.block_on(async {
            let data_bytes = (64 << 10) + SLABS * (128 << 10);
            let format = FormatOptions { data_bytes, journal_bytes: 1 << 20, ..tiny() };
            let store = fresh(&env, &format, &quick()).await;
            let mut sequence = 0;
            for _ in 0..400 {
                sequence += 1;
                let object = fid(sim.random_below(OBJECTS));
                match sim.random_below(5) {
                    0 => drop(destroy(&store, object, sequence).await.expect("it goes")),
                    _ => drop(write(&store, object, 0, OBJECT_BYTES, sequence).await.expect("there is room")),
                }
            }
            sequence += 1;
            write(&store, fid(OBJECTS), 0, OBJECT_BYTES, sequence).await.expect("there is room");
            store.close().await.expect("it closes");

            let store = Store::open(&env, DIR, &quick()).await.expect("it opens");
            // The last checkpoint's own pages may have gone to another slab.
            let before = u64::from(store.recovery().slabs_opened);
            destroy(&store, fid(OBJECTS), sequence + 1).await.expect("it goes");
            store.sync().await.expect("it commits");
            assert!(store.stats().slabs_opened > 0 && store.stats().checkpoints == 0, "{:?}", store.stats());
            let opened = before + store.stats().slabs_opened;
            std::mem::forget(store);
            opened
        });
        sim.power_cut(node);
        let env = sim.env(node);
        sim.block_on(async {
            let store = Store::open(&env, DIR, &quick()).await.expect("it opens");
            assert_eq!(u64::from(store.recovery().slabs_opened), opened, "seed {seed}: slabs opened, and found again");
            store.close().await.expect("it closes");
        });
    }
}
