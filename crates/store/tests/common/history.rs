//! Random histories of a store so small that its journal wraps, checkpoints run and slabs are compacted and reused.
//!
//! A history is recorded write by write, with what the model says after each operation. Each test crashes it where it
//! likes.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use forebay_env::{
    Env,
    sim::{CrashRecorder, Sim},
};
use forebay_proto::Transno;
use forebay_store::{FormatOptions, OpenOptions, Placed, Store, StoreStats};

use super::*;

/// Operations of a history.
pub const OPERATIONS: u64 = 220;
const OBJECTS: u64 = 10;
const OBJECT_BYTES: u64 = 48 << 10;
const ROWS: u64 = 40;
#[derive(Clone, Debug)]
pub enum Op {
    Write { object: u64, offset: u64, length: u64 },
    Truncate { object: u64, bytes: u64 },
    Punch { object: u64, from: u64, to: u64 },
    Destroy { object: u64 },
    Put { row: u64, bytes: usize },
    Delete { row: u64 },
}

/// The state after a prefix of a history.
#[derive(Clone)]
pub struct State {
    pub objects: Vec<Rc<Vec<u8>>>,
    pub rows: Rc<BTreeMap<u64, Vec<u8>>>,
}

/// A recorded history, and what a crash at each point may leave.
pub struct History {
    pub seed: u64,
    /// `states[k]`: after the first k operations.
    pub states: Vec<State>,
    /// (points so far, operations committed by then).
    pub commits: Vec<(usize, u64)>,
    pub recorder: CrashRecorder,
    pub files: BTreeMap<String, Vec<u8>>,
    pub stats: StoreStats,
}

pub fn format_options() -> FormatOptions {
    FormatOptions { data_bytes: (64 << 10) + 16 * (128 << 10), journal_bytes: 72 << 10, ..tiny() }
}

pub fn open_options() -> OpenOptions {
    OpenOptions { commit_interval: Duration::from_micros(700), cache_bytes: Some(64 << 10), ..OpenOptions::default() }
}

impl State {
    pub fn empty() -> Self {
        let object = Rc::new(vec![0; OBJECT_BYTES as usize]);
        Self { objects: vec![object; OBJECTS as usize], rows: Rc::default() }
    }

    fn after(&self, op: &Op, sequence: u64) -> Self {
        let mut next = self.clone();
        let mut fill = |object: u64, from: u64, to: u64, stamped: bool| {
            let bytes = Rc::make_mut(&mut next.objects[object as usize]);
            let range = &mut bytes[from.min(OBJECT_BYTES) as usize..to.min(OBJECT_BYTES) as usize];
            match stamped {
                true => put_stamps(range, fid(object), from, sequence),
                false => range.fill(0),
            }
        };
        match op {
            Op::Write { object, offset, length } => fill(*object, *offset, offset + length, true),
            Op::Truncate { object, bytes } => fill(*object, *bytes, OBJECT_BYTES, false),
            Op::Punch { object, from, to } => fill(*object, *from, *to, false),
            Op::Destroy { object } => fill(*object, 0, OBJECT_BYTES, false),
            Op::Put { row, bytes } => drop(Rc::make_mut(&mut next.rows).insert(*row, row_value(sequence, *bytes))),
            Op::Delete { row } => drop(Rc::make_mut(&mut next.rows).remove(row)),
        }
        next
    }
}

fn row_key(row: u64) -> Vec<u8> {
    [&b"\x20"[..], &row.to_be_bytes()].concat()
}

fn row_value(sequence: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (sequence as usize * 31 + at) as u8).collect()
}

fn random_op(sim: &Sim) -> Op {
    let below = |n| sim.random_below(n);
    // Half of the writes hit two objects, so that slabs hold long-lived and short-lived bytes together.
    let object = if sim.chance(0.5) { below(2) } else { below(OBJECTS) };
    match below(20) {
        0 => Op::Truncate { object, bytes: below(OBJECT_BYTES) },
        1 => {
            let from = below(OBJECT_BYTES - 1);
            Op::Punch { object, from, to: from + 1 + below(OBJECT_BYTES - from - 1).min(20_000) }
        }
        2 if sim.chance(0.5) => Op::Destroy { object },
        3 | 4 => Op::Put { row: below(ROWS), bytes: below(600) as usize },
        5 => Op::Delete { row: below(ROWS) },
        _ => {
            let aligned = sim.chance(0.5);
            let offset = if aligned { below(11) * 4096 } else { below(OBJECT_BYTES - 1) };
            let length = if aligned { (1 + below(7)) * 4096 } else { 1 + below(20_000) };
            Op::Write { object, offset, length: length.min(OBJECT_BYTES - offset) }
        }
    }
}

async fn place(store: Store, op: Op, sequence: u64) -> Option<Placed> {
    let Op::Write { object, offset, length } = op else { return None };
    let room = store.reserve(length, 1).await.expect("half of the store is free");
    let data = stamped(fid(object), offset, length as usize, sequence).freeze();
    Some(store.place(room, vec![fragment(fid(object), offset, data, sequence, sequence)]).await.expect("placed"))
}

async fn apply(store: &Store, op: &Op, placed: Option<Placed>, sequence: u64) {
    let version = Transno(sequence);
    let mut txn = match op {
        Op::Write { object, offset, length } => {
            store.prefetch_extents(fid(*object), *offset..offset + length).await.unwrap();
            let mut txn = store.begin();
            txn.insert(placed.expect("writes are placed")).unwrap();
            txn
        }
        Op::Truncate { object, bytes } => {
            store.prefetch_extents(fid(*object), *bytes..u64::MAX).await.unwrap();
            let mut txn = store.begin();
            txn.truncate(fid(*object), *bytes, version).unwrap();
            txn
        }
        Op::Punch { object, from, to } => {
            store.prefetch_extents(fid(*object), *from..*to).await.unwrap();
            let mut txn = store.begin();
            txn.punch(fid(*object), *from..*to, version).unwrap();
            txn
        }
        Op::Destroy { object } => {
            store.prefetch_extents(fid(*object), 0..u64::MAX).await.unwrap();
            let mut txn = store.begin();
            txn.destroy(fid(*object), version).unwrap();
            txn
        }
        Op::Put { row, bytes } => {
            store.prefetch(&[row_key(*row)]).await.unwrap();
            let mut txn = store.begin();
            txn.put(row_key(*row), row_value(sequence, *bytes));
            txn
        }
        Op::Delete { row } => {
            store.prefetch(&[row_key(*row)]).await.unwrap();
            let mut txn = store.begin();
            txn.delete(row_key(*row));
            txn
        }
    };
    txn.set_transno(version);
    txn.apply().unwrap();
}

/// Runs operations in batches, each placed together and applied in order.
pub async fn operate(sim: &Sim, env: &Env, store: &Store, states: &mut Vec<State>, until: u64, note: &dyn Fn()) {
    while (states.len() as u64) <= until {
        let first = states.len() as u64;
        let batch: Vec<Op> = (0..(1 + sim.random_below(6)).min(until + 1 - first)).map(|_| random_op(sim)).collect();
        let tasks: Vec<_> =
            (first..).zip(&batch).map(|(n, op)| env.spawn(place(store.clone(), op.clone(), n))).collect();
        for ((sequence, op), task) in (first..).zip(&batch).zip(tasks) {
            let placed = task.await.expect("the task ends");
            apply(store, op, placed, sequence).await;
            let next = states.last().expect("the empty state").after(op, sequence);
            states.push(next);
        }
        if sim.chance(0.06) {
            store.sync().await.unwrap();
            assert_eq!(store.last_committed(), Transno(states.len() as u64 - 1));
            note();
        }
        if sim.chance(0.1) {
            env.sleep(Duration::from_micros(sim.random_below(3000))).await;
        }
    }
}

/// A history from format to a clean stop.
pub fn record(seed: u64) -> History {
    record_on(seed, &format_options(), &DISKS)
}

/// The same, for a store of this format on these disks.
pub fn record_on(seed: u64, format: &FormatOptions, disks: &'static [&'static str]) -> History {
    let sim = Sim::new(seed);
    let node = sim.add_node("oss0");
    let env = sim.env(node);
    let commits = Rc::new(RefCell::new(vec![(0, 0)]));
    let mut states = vec![State::empty()];
    let stats = sim.block_on(async {
        Store::format(&env, DIR, format).await.unwrap();
        disks.iter().for_each(|disk| sim.record_disk(node, disk));
        let store = Store::open(&env, DIR, &open_options()).await.unwrap();
        let mut changes = store.on_commit();
        let note = {
            let (sim, commits, store) = (sim.clone(), commits.clone(), store.clone());
            move || {
                let points = sim.crash_images(node, disks).points() - 1;
                commits.borrow_mut().push((points, store.last_committed().0));
            }
        };
        let watcher = note.clone();
        let task = env.spawn(async move {
            while changes.changed().await.is_ok() {
                watcher();
            }
        });
        operate(&sim, &env, &store, &mut states, OPERATIONS, &note).await;
        if sim.chance(0.3) {
            env.sleep(Duration::from_millis(150)).await; // long enough for an attest
        }
        let stats = store.stats();
        store.close().await.unwrap();
        task.abort();
        stats
    });
    let commits = commits.take();
    let recorder = sim.crash_images(node, disks);
    History { seed, states, commits, recorder, files: sim.files(node), stats }
}

impl History {
    /// How many operations had been reported committed by this point.
    pub fn committed_at(&self, point: usize) -> u64 {
        self.commits.iter().filter(|(points, _)| *points <= point).map(|(_, n)| *n).max().unwrap_or(0)
    }
}

/// Panics unless the journal wrapped, checkpoints ran, and slabs were emptied by moving bytes and used again.
pub fn assert_eventful(lives: &[StoreStats], what: &str) {
    let sum = |of: fn(&StoreStats) -> u64| lives.iter().map(of).sum::<u64>();
    let enough = sum(|s| s.checkpoints) >= 2
        && sum(|s| s.journal_wraps) >= 1
        && sum(|s| s.slabs_cleaned) >= 1
        && sum(|s| s.compacted_bytes) > 0
        && sum(|s| s.slabs_reused) >= 3;
    assert!(enough, "{what} shows too little: {lives:?}");
}

/// Panics unless the store holds exactly this.
pub async fn verify(store: &Store, expected: &State, what: &str) {
    for (object, bytes) in (0..).zip(&expected.objects) {
        let got = read(store, fid(object), 0..OBJECT_BYTES).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        if got[..] != bytes[..] {
            let at = got.iter().zip(bytes.iter()).position(|(a, b)| a != b).expect("they differ");
            panic!("{what}: object {object} differs first at byte {at}: {} instead of {}", got[at], bytes[at]);
        }
    }
    let rows = store.scan(b"\x20", b"\x21", 1000).await.unwrap_or_else(|e| panic!("{what}: {e}"));
    let expected: Vec<(Vec<u8>, Vec<u8>)> =
        expected.rows.iter().map(|(n, value)| (row_key(*n), value.clone())).collect();
    let got: Vec<(Vec<u8>, Vec<u8>)> = rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(got, expected, "{what}: rows");
}
