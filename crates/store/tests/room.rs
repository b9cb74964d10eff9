//! Which requests are refused for lack of space, and which are not: reserved space is there, whatever happened
//! meanwhile.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use crate::common::*;
use forebay_env::{Env, sim::Sim};
use forebay_proto::Transno;
use forebay_store::{FormatOptions, OpenOptions, Store, StoreErrorKind, StoreResult};

const SLAB: u64 = 2 << 20;
const PIECE: u64 = 128 << 10;
/// What a writer allows for the needs of a piece beside its bytes.
const SLACK: u64 = 16 << 10;
/// The object that fills the store.
const FILLER: u64 = 0;
/// The object with reserved space.
const ASIDE: u64 = 1;

/// A store of 31 slabs.
fn format() -> FormatOptions {
    FormatOptions { journal_bytes: 1 << 20, slab_bytes: SLAB, data_bytes: SLAB * 31, ..tiny() }
}

/// Writes that were acknowledged, and will be replayed.
struct Told {
    /// Object, offset and transno, in order of transnos.
    writes: RefCell<Vec<(u64, u64, u64)>>,
    next: Cell<u64>,
    /// Reserved bytes of which none are written.
    aside: Cell<u64>,
}

/// One write; `aside`: payload for which space is withheld.
async fn write_from(store: &Store, (object, at, transno): (u64, u64, u64), aside: u64) -> StoreResult<()> {
    let room = store.reserve_from(PIECE, 1, aside).await?;
    let data = stamped(fid(object), at, PIECE as usize, transno).freeze();
    let placed = store.place(room, vec![fragment(fid(object), at, data, transno, transno)]).await?;
    store.prefetch_extents(fid(object), at..at + PIECE).await?;
    let mut txn = store.begin();
    txn.insert(placed)?;
    txn.set_transno(Transno(transno));
    txn.apply()?;
    Ok(())
}

/// Writers side by side fill the store.
async fn fill(env: &Env, store: &Rc<Store>, told: &Rc<Told>, writers: u64) {
    let write = |_| {
        let (store, told) = (store.clone(), told.clone());
        env.spawn(async move {
            loop {
                let number = told.next.get();
                told.next.set(number + 1);
                match write_from(&store, (FILLER, number * PIECE, number), 0).await {
                    Ok(()) => told.writes.borrow_mut().push((FILLER, number * PIECE, number)),
                    Err(error) if error.kind == StoreErrorKind::Full => return,
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    for task in (0..writers).map(write).collect::<Vec<_>>() {
        task.await.expect("it runs");
    }
    told.writes.borrow_mut().sort_by_key(|(_, _, transno)| *transno);
}

/// After a start: replays what the store does not hold, then writes into the reserved space.
async fn go_on(env: &Env, sim: &Sim, store: &Store, told: &Told, seed: u64) {
    let known = store.recovery().last_transno.0;
    store.set_aside(0, told.aside.get());
    let writes = told.writes.borrow().clone();
    for write in writes.into_iter().filter(|(_, _, transno)| *transno > known) {
        let replayed = write_from(store, write, PIECE + SLACK).await;
        replayed.unwrap_or_else(|error| panic!("seed {seed}: {write:?} is not replayed: {error}"));
    }
    if sim.random_below(2) == 0 {
        env.sleep(Duration::from_micros(sim.random_below(100_000))).await;
    }
    if store.space().available_bytes < PIECE {
        let full = write_from(store, (FILLER, 1 << 40, told.next.get()), 0).await.expect_err("it is full");
        assert_eq!(full.kind, StoreErrorKind::Full);
    }
    while told.aside.get() > 0 {
        let (left, transno) = (told.aside.get(), told.next.get());
        let write = (ASIDE, left, transno);
        told.next.set(transno + 1);
        let done = write_from(store, write, PIECE).await;
        done.unwrap_or_else(|error| panic!("seed {seed}: {left} set aside: {error}: {:?}", store.space()));
        told.writes.borrow_mut().push(write);
        told.aside.set(left - PIECE);
        store.set_aside(left, left - PIECE);
    }
}

/// space is reserved; others fill the store |X|, replayed, |X| meanwhile | the store is full, and the reserved space
/// can be written
#[test]
fn reserved_space_survives_crashes_of_a_full_store() {
    for seed in 0..30 {
        let sim = Sim::new(seed);
        let node = sim.add_node("oss0");
        let options =
            OpenOptions { commit_interval: Duration::from_millis(1 + sim.random_below(30)), ..OpenOptions::default() };
        let aside = (1 + sim.random_below(60)) * PIECE;
        let told = Rc::new(Told { writes: RefCell::default(), next: Cell::new(1), aside: Cell::new(aside) });
        let env = sim.env(node);
        let mut dead = sim.block_on(async {
            let store = Rc::new(fresh(&env, &format(), &options).await);
            store.set_aside(0, aside);
            fill(&env, &store, &told, 1 + sim.random_below(12)).await;
            env.sleep(Duration::from_micros(sim.random_below(5_000))).await;
            store
        });
        for _ in 0..sim.random_below(5) {
            sim.crash(node);
            drop(dead);
            let env = sim.env(node);
            dead = sim.block_on(async {
                let store = Rc::new(Store::open(&env, DIR, &options).await.expect("it opens"));
                let after = Duration::from_micros(sim.random_below(60_000));
                let _cut = env.timeout(after, go_on(&env, &sim, &store, &told, seed)).await;
                store
            });
        }
        sim.crash(node);
        drop(dead);
        let env = sim.env(node);
        sim.block_on(async {
            let store = Store::open(&env, DIR, &options).await.expect("it opens");
            go_on(&env, &sim, &store, &told, seed).await;
            store.close().await.expect("it closes");
        });
    }
}

/// a full store with nothing left beside the reserved space; that is written in two pieces, the second of 16 bytes |
/// both are taken. (The kernel cuts a write from a buffer that does not begin with a page in this way.)
#[test]
fn a_write_of_a_few_bytes_finds_its_reserved_space_on_a_full_store() {
    let sim = Sim::new(1);
    let node = sim.add_node("oss0");
    let env = sim.env(node);
    sim.block_on(async {
        let store = Rc::new(fresh(&env, &format(), &quick()).await);
        let told = Rc::new(Told { writes: RefCell::default(), next: Cell::new(1), aside: Cell::new(0) });
        store.set_aside(0, 8 * PIECE);
        fill(&env, &store, &told, 1).await;
        // A write that was acknowledged before a crash is replayed, and takes the rest.
        let replayed = (FILLER, told.next.get() * PIECE, told.next.get());
        write_from(&store, replayed, PIECE + SLACK).await.expect("a replay is taken");
        assert_eq!(store.space().available_bytes, 0);
        let mut left = 8 * PIECE;
        for piece in 0..8 {
            let few = 16 << piece;
            for bytes in [PIECE - few, few] {
                let at = 8 * PIECE - left;
                let transno = told.next.get() + 1;
                told.next.set(transno);
                let room = store.reserve_from(bytes, 1, bytes).await;
                let room =
                    room.unwrap_or_else(|error| panic!("{bytes} set aside at {at}: {error}: {:?}", store.space()));
                let data = stamped(fid(ASIDE), at, bytes as usize, transno).freeze();
                let fragments = vec![fragment(fid(ASIDE), at, data, transno, transno)];
                let placed = store.place(room, fragments).await.expect("it is written");
                let mut txn = store.begin();
                txn.insert(placed).expect("known");
                txn.set_transno(Transno(transno));
                txn.apply().expect("applied");
                store.set_aside(left, left - bytes);
                left -= bytes;
            }
        }
        let full = store.reserve(1, 1).await.expect_err("others find it full");
        assert_eq!(full.kind, StoreErrorKind::Full);
        Rc::into_inner(store).expect("alone").close().await.expect("it closes");
    });
}

/// a full store; writes of half a slab are in flight into the reserved space | a piece of a few bytes beside them is
/// taken
#[test]
fn writes_in_flight_into_reserved_space_count_once() {
    let sim = Sim::new(2);
    let node = sim.add_node("oss0");
    let env = sim.env(node);
    sim.block_on(async {
        let store = Rc::new(fresh(&env, &format(), &quick()).await);
        let told = Rc::new(Told { writes: RefCell::default(), next: Cell::new(1), aside: Cell::new(0) });
        let aside = 20 * PIECE;
        store.set_aside(0, aside);
        fill(&env, &store, &told, 1).await;
        let mut on_their_way = Vec::new();
        for _ in 0..16 {
            let mut room = store.reserve_from(PIECE, 1, PIECE).await.expect("it was set aside");
            room.fills(PIECE);
            on_their_way.push(room);
        }
        let piece = store.reserve_from(16, 1, 16).await.expect("it was set aside too");
        drop((on_their_way, piece));
        Rc::into_inner(store).expect("alone").close().await.expect("it closes");
    });
}

/// a full store; holes everywhere; quiet | as much is written, at once
#[test]
fn punched_space_can_be_rewritten_after_cleaner_gave_up() {
    for part in [12, 16, 24, 40] {
        let sim = Sim::new(part);
        let node = sim.add_node("oss0");
        let env = sim.env(node);
        sim.block_on(async {
            let store = Rc::new(fresh(&env, &format(), &quick()).await);
            let told = Rc::new(Told { writes: RefCell::default(), next: Cell::new(1), aside: Cell::new(0) });
            fill(&env, &store, &told, 1).await;
            let before = store.space();
            let mut transno = told.next.get();
            let mut gone = 0;
            for (object, at, _) in told.writes.take().iter().step_by(part as usize) {
                transno += 1;
                punch(&store, fid(*object), *at..at + PIECE, transno).await.expect("it goes");
                gone += 1;
            }
            store.sync().await.expect("it commits");
            env.sleep(Duration::from_secs(10)).await;
            for piece in 0..gone {
                transno += 1;
                let written = write_from(&store, (ASIDE, piece * PIECE, transno), 0).await;
                written.unwrap_or_else(|error| {
                    panic!("{part}: {piece} of {gone}: {error}, {:?}, {before:?}", store.space())
                });
            }
            Rc::into_inner(store).expect("alone").close().await.expect("it closes");
        });
    }
}

/// a nearly full store; writes, holes, checkpoints, in parallel | nothing is refused for which there is space
#[test]
fn a_write_is_refused_only_where_there_is_no_room_for_it() {
    let mut refused = 0;
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let node = sim.add_node("oss0");
        let env = sim.env(node);
        refused += sim.block_on(async {
            let options = OpenOptions {
                commit_interval: Duration::from_millis(1 + sim.random_below(30)),
                ..OpenOptions::default()
            };
            let store = Rc::new(fresh(&env, &format(), &options).await);
            let told = Rc::new(Told { writes: RefCell::default(), next: Cell::new(1), aside: Cell::new(0) });
            fill(&env, &store, &told, 1 + sim.random_below(12)).await;
            let (all, refused) = (told.next.get(), Rc::new(Cell::new(0)));
            let work = |_| {
                let (store, told, sim, env, refused) =
                    (store.clone(), told.clone(), sim.clone(), env.clone(), refused.clone());
                env.clone().spawn(async move {
                    for _ in 0..40 {
                        let at = sim.random_below(all) * PIECE;
                        let object = sim.random_below(2);
                        let transno = told.next.get();
                        match sim.random_below(8) {
                            0 => env.sleep(Duration::from_micros(sim.random_below(20_000))).await,
                            1 => drop(store.checkpoint().await),
                            2 => {
                                told.next.set(transno + 1);
                                punch(&store, fid(object), at..at + PIECE, transno).await.expect("it goes");
                            }
                            _ => {
                                told.next.set(transno + 1);
                                let Err(error) = write_from(&store, (object, at, transno), 0).await else { continue };
                                assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
                                refused.set(refused.get() + 1);
                                let space = store.space();
                                assert!(space.available_bytes < PIECE + 4096, "seed {seed}: {error}; {space:?}");
                            }
                        }
                    }
                })
            };
            for task in (0..1 + sim.random_below(6)).map(work).collect::<Vec<_>>() {
                task.await.expect("it runs");
            }
            Rc::into_inner(store).expect("alone").close().await.expect("it closes");
            refused.get()
        });
    }
    assert!(refused > 100, "{refused} were refused");
}
