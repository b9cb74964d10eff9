//! The next recovery finds what a store did between a restart and its next checkpoint.

use crate::common::*;
use bytes::Bytes;
use forebay_env::sim::Sim;
use forebay_proto::{Uuid, crc};
use forebay_store::{FormatOptions, Store};

/// Slabs: many more than a recovery examines in vain.
const SLABS: u64 = 60;
const OBJECTS: u64 = 40;
const OBJECT_BYTES: usize = 60 << 10;

/// an aged store, closed | a restart, a destroy, power cut | the slab with its tombstone is found, wherever it lies
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
            // A checkpoint may have begun, and opened a slab of which nothing is durable yet.
            let opened = before + 1..=before + store.stats().slabs_opened;
            std::mem::forget(store);
            opened
        });
        sim.power_cut(node);
        let env = sim.env(node);
        sim.block_on(async {
            let store = Store::open(&env, DIR, &quick()).await.expect("it opens");
            let found = u64::from(store.recovery().slabs_opened);
            assert!(opened.contains(&found), "seed {seed}: {found} found of the {opened:?} that were opened");
            store.close().await.expect("it closes");
        });
    }
}

/// rows, one of them alone in its page | a restart | that row is deleted, and one beside it is put
#[test]
fn a_transaction_that_empties_a_page_is_applied_as_a_whole_whatever_is_in_memory() {
    let key = |number: u32, beside: u8| [&[0x40][..], &number.to_be_bytes(), &[beside]].concat();
    let value = |number: u32| vec![number as u8; 200];
    for (alone, around) in (100..220).flat_map(|alone| [(alone, 50), (alone, 70)]) {
        let sim = Sim::new(alone.into());
        let node = sim.add_node("oss0");
        let env = sim.env(node);
        sim.block_on(async {
            let store = fresh(&env, &tiny(), &quick()).await;
            let put = async |numbers: std::ops::Range<u32>, there: bool| {
                for number in numbers.filter(|number| there || *number != alone) {
                    store.prefetch(&[key(number, 0)]).await.expect("it loads");
                    let mut txn = store.begin();
                    match there {
                        true => txn.put(key(number, 0), value(number)),
                        false => txn.delete(key(number, 0)),
                    }
                    txn.apply().expect("it is applied");
                }
            };
            put(0..400, true).await;
            put(alone - around..alone + around, false).await;
            store.close().await.expect("it closes");

            let store = Store::open(&env, DIR, &quick()).await.expect("it opens");
            let (old, new, never) = (key(alone, 0), key(alone, 1), key(alone, 2));
            store.prefetch(&[&old, &new, &never]).await.expect("they load");
            let mut txn = store.begin();
            txn.delete(&old);
            txn.put(&new, value(alone));
            txn.delete(&never);
            txn.apply().expect("it is applied");
            store.close().await.expect("it closes");

            let store = Store::open(&env, DIR, &quick()).await.expect("it opens");
            let is_there = |number: u32| !(alone - around..alone + around).contains(&number);
            for number in 0..400 {
                let found = store.load(&key(number, 0)).await.expect("it loads");
                assert_eq!(found.is_some(), is_there(number), "{alone}: row {number}");
            }
            assert_eq!(store.load(&new).await.expect("it loads").as_deref(), Some(&value(alone)[..]), "{alone}");
            store.close().await.expect("it closes");
        });
    }
}

/// records side by side, one write over many | a restart | a write that ends where an earlier record begins
#[test]
fn a_write_that_ends_where_a_page_of_the_index_begins_is_applied() {
    let object = fid(1);
    for at in (1_000..29_000).step_by(100) {
        let sim = Sim::new(at);
        let node = sim.add_node("oss0");
        let env = sim.env(node);
        sim.block_on(async {
            let store = fresh(&env, &tiny(), &quick()).await;
            for record in 0..300 {
                write(&store, object, record * 100, 100, record + 1).await.expect("it is written");
            }
            write(&store, object, at - 1000, 2000, 1000).await.expect("it is written");
            store.close().await.expect("it closes");
            let store = Store::open(&env, DIR, &quick()).await.expect("it opens");
            write(&store, object, at - 500, 500, 1001).await.unwrap_or_else(|error| panic!("up to {at}: {error}"));
            let bytes = read(&store, object, at - 500..at + 100).await.expect("it is read");
            for (byte, offset) in bytes.iter().zip(at - 500..) {
                assert_eq!(*byte, stamp(object, offset, if offset < at { 1001 } else { 1000 }), "{at}: {offset}");
            }
            store.close().await.expect("it closes");
        });
    }
}

/// Looks like the header of a run of `slab`: right in all but its length, which is impossible.
fn forged(target: Uuid, slab: u32) -> Vec<u8> {
    let mut sector = [&b"FBYRUN01"[..], &1u32.to_le_bytes(), &4096u32.to_le_bytes()].concat();
    sector.extend((u64::MAX - 4095).to_le_bytes());
    sector.extend(&target.0[8..]);
    sector.extend(slab.to_le_bytes());
    sector.resize(4096, 0);
    let sum = crc::crc64(&sector);
    sector[80..88].copy_from_slice(&sum.to_le_bytes());
    sector
}

/// file data that looks like runs, destroyed | its slabs are reused | restarts
#[test]
fn file_data_that_looks_like_a_run_stops_no_start() {
    let sim = Sim::new(9);
    let node = sim.add_node("oss0");
    let env = sim.env(node);
    sim.block_on(async {
        let mut store = fresh(&env, &tiny(), &quick()).await;
        let (target, mut sequence) = (store.identity().uuid, 0);
        let mut next = || {
            sequence += 1;
            sequence
        };
        for object in 0..24 {
            let sectors = (0..28u32).flat_map(|sector| forged(target, (object * 28 + sector) % 40));
            let data = Bytes::from_iter(sectors);
            let sequence = next();
            let room = store.reserve(data.len() as u64, 1).await.expect("there is room");
            let placed = store.place(room, vec![fragment(fid(object.into()), 0, data, sequence, sequence)]).await;
            store.prefetch_extents(fid(object.into()), 0..200_000).await.expect("it loads");
            let mut txn = store.begin();
            txn.insert(placed.expect("it is placed")).expect("it is inserted");
            txn.apply().expect("it is applied");
        }
        for object in 0..24 {
            destroy(&store, fid(object), next()).await.expect("it goes");
        }
        for restart in 0..30 {
            for part in 0..8 {
                write(&store, fid(100), part * 9000, 9000, next()).await.expect("it is written");
            }
            match restart % 2 {
                0 => store.close().await.expect("it closes"),
                _ => {
                    store.sync().await.expect("it commits");
                    std::mem::forget(store);
                    sim.crash(node);
                }
            }
            let env = sim.env(node);
            store = Store::open(&env, DIR, &quick()).await.expect("it opens");
        }
    });
}

/// objects that fill an eighth, overwritten many times, by several writers at once | a crash, a start, more writes at
/// once | there is space
#[test]
fn a_store_that_is_nearly_empty_has_room_right_after_a_crash() {
    for seed in 0..15 {
        let sim = Sim::new(seed);
        let node = sim.add_node("oss0");
        let mut sequence = 0;
        for life in 0..40 {
            let env = sim.env(node);
            sim.block_on(async {
                let data_bytes = (64 << 10) + SLABS * (128 << 10);
                let format = FormatOptions { data_bytes, journal_bytes: 1 << 20, ..tiny() };
                let store = match life {
                    0 => fresh(&env, &format, &quick()).await,
                    _ => Store::open(&env, DIR, &quick()).await.expect("it opens"),
                };
                let mut writers = Vec::new();
                for writer in 0..3 {
                    sequence += 1000;
                    let (store, sim, first) = (store.clone(), sim.clone(), sequence);
                    writers.push(env.spawn(async move {
                        for number in 0..10 + sim.random_below(60) {
                            let object = fid(4 * writer + sim.random_below(4));
                            // Some only in part, so that most slabs hold a little live data.
                            let (at, length) = match sim.random_below(4) {
                                0 => (0, OBJECT_BYTES),
                                _ => (sim.random_below(12) * 4096, 4096 * (1 + sim.random_below(3) as usize)),
                            };
                            let written = write(&store, object, at, length, first + number).await;
                            let space = store.space();
                            assert!(written.is_ok(), "seed {seed}, life {life}: {:?} {space:?}", written.err());
                        }
                    }));
                }
                for writer in writers {
                    writer.await.expect("it ends");
                }
                std::mem::forget(store);
            });
            match sim.random_below(2) {
                0 => sim.power_cut(node),
                _ => sim.crash(node),
            }
        }
    }
}
