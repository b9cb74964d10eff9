//! Appends of 1 MiB through the store against raw writes of the same device: `append DIR [MIB] [DEPTH]`.
//!
//! Prints MiB/s of each, alternating so that a drifting device hurts both, and the time of small synced commits.

use std::{cell::Cell, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_env::{AlignedBuf, Env, OpenDisk, real};
use forebay_proto::{Fid, TargetId, Transno, Uuid, WriteId, crc, limits::BLOCK_BYTES};
use forebay_store::{FormatOptions, Fragment, OpenOptions, Store};

const MIB: u64 = 1 << 20;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("append DIR [MIB] [DEPTH]");
    let mib = args.next().map_or(1024, |text| text.parse().expect("MIB is a number"));
    let depth = args.next().map_or(12, |text| text.parse().expect("DEPTH is a number"));
    real::run(move |env| async move { compare(&env, &dir, mib, depth).await });
}

async fn compare(env: &Env, dir: &str, mib: u64, depth: u64) {
    let data_bytes = (mib + 512) * MIB;
    let options = FormatOptions::new(Uuid([1; 16]), TargetId::ost(0), data_bytes);
    Store::format(env, dir, &options).await.expect("format");
    let raw = OpenDisk { create_bytes: Some(mib * MIB), ..OpenDisk::default() };
    let raw = env.open_disk(&format!("{dir}/raw"), raw).await.expect("a raw file");
    let payload = payload();
    for round in 0..3 {
        let began = env.now();
        let next = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..depth)
            .map(|_| {
                let (raw, next, payload) = (raw.clone(), next.clone(), payload.clone());
                env.spawn(async move {
                    while next.get() < mib {
                        let at = next.replace(next.get() + 1) * MIB;
                        raw.write(at, vec![payload.clone()]).await.expect("a raw write");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        raw.flush().await.expect("a raw flush");
        let raw_rate = rate(mib, env.now().since(began));
        let store_rate = append(env, dir, mib, depth, &payload).await;
        println!(
            "round {round}: raw {raw_rate:.0} MiB/s, store {store_rate:.0} MiB/s, {:.1} %",
            100.0 * store_rate / raw_rate
        );
    }
    commits(env, dir).await;
}

async fn append(env: &Env, dir: &str, mib: u64, depth: u64, payload: &Bytes) -> f64 {
    let store = Store::open(env, dir, &OpenOptions::default()).await.expect("open");
    let sums = sums(payload);
    let began = env.now();
    let next = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (store, next, payload, sums) = (store.clone(), next.clone(), payload.clone(), sums.clone());
            env.spawn(async move {
                while next.get() < mib {
                    let number = next.replace(next.get() + 1);
                    write(&store, number * MIB, payload.clone(), sums.clone()).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    store.sync().await.expect("sync");
    let took = env.now().since(began);
    let stats = store.stats();
    println!(
        "  {} runs, {:.3} device bytes per byte, {} commits of {} us on average, {} checkpoints",
        stats.runs,
        stats.device_bytes as f64 / stats.user_bytes as f64,
        stats.commits(),
        stats.commit_us.sum() / stats.commits().max(1),
        stats.checkpoints
    );
    let fid = Fid { high: 0, low: 9 };
    store.prefetch_extents(fid, 0..u64::MAX).await.expect("prefetch");
    let mut txn = store.begin();
    txn.destroy(fid, Transno(1)).expect("destroy");
    txn.apply().expect("apply");
    store.close().await.expect("close");
    rate(mib, took)
}

async fn write(store: &Store, offset: u64, data: Bytes, sums: Vec<u64>) {
    let fid = Fid { high: 0, low: 9 };
    let length = data.len() as u64;
    let room = store.reserve(length, 1).await.expect("reserve");
    let write_id = WriteId { client: 1, sequence: 1 };
    let fragment = Fragment { fid, offset, data, write_id, version: Transno(1), generation: 1, sums };
    let placed = store.place(room, vec![fragment]).await.expect("place");
    store.prefetch_extents(fid, offset..offset + length).await.expect("prefetch");
    let mut txn = store.begin();
    txn.insert(placed).expect("insert");
    txn.apply().expect("apply");
}

async fn commits(env: &Env, dir: &str) {
    let store = Store::open(env, dir, &OpenOptions::default()).await.expect("open");
    let mut took: Vec<Duration> = Vec::new();
    for number in 0..300u64 {
        let key = [&b"\x20"[..], &number.to_be_bytes()].concat();
        store.prefetch(&[&key]).await.expect("prefetch");
        let mut txn = store.begin();
        txn.put(&key, vec![7; 200]);
        let began = env.now();
        txn.apply().expect("apply");
        store.sync().await.expect("sync");
        took.push(env.now().since(began));
    }
    took.sort();
    println!("synced commit of one row: median {:?}, p99 {:?}", took[150], took[297]);
    let began = env.now();
    for number in 0..200_000u64 {
        let key = [&b"\x21"[..], &(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes()].concat();
        store.prefetch(&[&key]).await.expect("prefetch");
        let mut txn = store.begin();
        txn.put(&key, vec![7; 150]);
        txn.apply().expect("apply");
    }
    let applied = env.now().since(began);
    store.sync().await.expect("sync");
    let stats = store.stats();
    println!(
        "200000 rows applied at {:.0}/s; {} checkpoints, {} commits",
        200_000.0 / applied.as_secs_f64(),
        stats.checkpoints,
        stats.commits()
    );
    store.close().await.expect("close");
}

fn payload() -> Bytes {
    let mut buf = AlignedBuf::zeroed(MIB as usize);
    buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = ((at * 31) >> 3) as u8);
    buf.freeze()
}

fn sums(payload: &Bytes) -> Vec<u64> {
    // The same for every offset: the store does not check them at placement, and this program does not read.
    let write_id = WriteId { client: 1, sequence: 1 };
    crc::blocks(0, MIB, BLOCK_BYTES)
        .map(|(at, n)| crc::block_sum(Fid { high: 0, low: 9 }, at, write_id, &payload[at as usize..(at + n) as usize]))
        .collect()
}

fn rate(mib: u64, took: Duration) -> f64 {
    mib as f64 / took.as_secs_f64()
}
