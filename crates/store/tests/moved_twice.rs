//! Large fragments in a store that is cleaned all the time, with rows that are not in memory: each piece is moved once.

use std::{cell::Cell, rc::Rc, time::Duration};

use crate::common::*;
use forebay_env::sim::Sim;
use forebay_proto::{Fid, Transno};
use forebay_store::{FormatOptions, OpenOptions, Store, StoreResult};

const SLABS: u64 = 32;
const SLAB_BYTES: u64 = 1 << 20;
const OBJECTS: u64 = 24;
const OBJECT_BYTES: u64 = 768 << 10;
const PAGE: u64 = 4096;

/// random overwrites of 4 to 512 KiB by four writers, more than half full |the cleaner, with rows to be loaded| every
/// byte is the last written
#[test]
fn bytes_that_the_cleaner_moves_stay_the_last_written() {
    for seed in 0..6 {
        let sim = Sim::new(seed);
        let node = sim.add_node("oss0");
        let env = sim.env(node);
        sim.block_on(async {
            let format = FormatOptions {
                slab_bytes: SLAB_BYTES,
                data_bytes: (64 << 10) + SLABS * SLAB_BYTES,
                journal_bytes: 2 << 20,
                ..tiny()
            };
            let options = OpenOptions {
                commit_interval: Duration::from_millis(5),
                cache_bytes: Some(64 << 10),
                ..OpenOptions::default()
            };
            let store = Rc::new(fresh(&env, &format, &options).await);
            let (numbers, transnos) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let writers = (0..4).map(|writer| {
                let (store, sim) = (store.clone(), sim.clone());
                let (numbers, transnos) = (numbers.clone(), transnos.clone());
                env.clone().spawn(async move {
                    let mine = OBJECTS / 4;
                    let mut newest = vec![vec![0u64; (OBJECT_BYTES / PAGE) as usize]; mine as usize];
                    for turn in 0..700 {
                        let object = sim.random_below(mine);
                        let pages = OBJECT_BYTES / PAGE;
                        let length =
                            if turn < mine * 2 { pages } else { 1 + sim.random_below(1 << sim.random_below(8)) };
                        let object = if turn < mine * 2 { turn % mine } else { object };
                        let first = sim.random_below(pages - length + 1);
                        let number = numbers.get() + 1;
                        numbers.set(number);
                        let fid = fid(writer * mine + object);
                        let (at, bytes) = (first * PAGE, (length * PAGE) as usize);
                        write_one(&store, fid, at, bytes, number, &transnos).await.expect("there is room");
                        newest[object as usize][first as usize..(first + length) as usize].fill(number);
                        if turn % 20 == 19 {
                            check(&store, fid, &newest[object as usize], seed).await;
                        }
                    }
                    for (object, newest) in (0..mine).zip(&newest) {
                        check(&store, fid(writer * mine + object), newest, seed).await;
                    }
                })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.await.expect("it ends");
            }
            assert!(store.stats().compacted_bytes > 16 << 20, "{:?}", store.stats());
        });
    }
}

/// Writes; transnos are given in the order in which writes are applied.
async fn write_one(
    store: &Store,
    fid: Fid,
    at: u64,
    bytes: usize,
    number: u64,
    transnos: &Cell<u64>,
) -> StoreResult<()> {
    let room = store.reserve(bytes as u64, 1).await?;
    let data = stamped(fid, at, bytes, number).freeze();
    let placed = store.place(room, vec![fragment(fid, at, data, number, number)]).await?;
    store.prefetch_extents(fid, at..at + bytes as u64).await?;
    let mut txn = store.begin();
    txn.insert(placed)?;
    transnos.set(transnos.get() + 1);
    txn.set_transno(Transno(transnos.get()));
    txn.apply().map(drop)
}

/// Every page has the bytes of its last writer.
async fn check(store: &Store, fid: Fid, newest: &[u64], seed: u64) {
    let bytes = read(store, fid, 0..OBJECT_BYTES).await.expect("it reads");
    for (page, number) in (0..).zip(newest) {
        for at in [page * PAGE, page * PAGE + PAGE - 1] {
            let expected = if *number == 0 { 0 } else { stamp(fid, at, *number) };
            assert_eq!(bytes[at as usize], expected, "seed {seed}: {fid} at {at}, written by {number}");
        }
    }
}
