//! A store in use: reads return what was written, commits survive, and a crash loses the rest as a suffix.

use crate::common::*;
use forebay_env::sim::Sim;
use forebay_proto::Transno;
use forebay_store::{Features, Identity, Store, StoreErrorKind};

fn simulated(seed: u64) -> (Sim, forebay_env::sim::NodeId) {
    let sim = Sim::new(seed);
    let node = sim.add_node("oss0");
    (sim, node)
}

#[test]
fn objects_are_read_back_whole_truncated_and_with_holes() {
    let (sim, node) = simulated(1);
    let env = sim.env(node);
    sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        write(&store, fid(1), 1000, 200_000, 1).await.unwrap();
        write(&store, fid(1), 100_000, 4096, 2).await.unwrap();
        punch(&store, fid(1), 150_000..160_000, 3).await.unwrap();
        let bytes = read(&store, fid(1), 0..250_000).await.unwrap();
        for (at, byte) in (0u64..).zip(bytes.iter()) {
            let expected = match at {
                0..1000 | 150_000..160_000 | 201_000.. => 0,
                100_000..104_096 => stamp(fid(1), at, 2),
                _ => stamp(fid(1), at, 1),
            };
            assert_eq!(*byte, expected, "byte {at}");
        }
        assert!(read(&store, fid(2), 0..5000).await.unwrap().iter().all(|byte| *byte == 0));
        store.close().await.unwrap();
    });
}

#[test]
fn committed_changes_survive_a_power_cut_and_uncommitted_ones_do_not() {
    let (sim, node) = simulated(2);
    let env = sim.env(node);
    sim.block_on(async {
        let mut options = quick();
        options.commit_interval = std::time::Duration::from_secs(3600);
        let store = fresh(&env, &tiny(), &options).await;
        write(&store, fid(1), 0, 50_000, 1).await.unwrap();
        let mut txn = store.begin();
        store.prefetch(&[b"\x20key"]).await.unwrap();
        txn.put(b"\x20key", "value");
        txn.apply().unwrap();
        store.sync().await.unwrap();
        assert_eq!(store.last_committed(), Transno(1));
        write(&store, fid(1), 0, 50_000, 2).await.unwrap();
        std::mem::forget(store); // the machine dies: no clean stop
    });
    sim.power_cut(node);
    let env = sim.env(node);
    sim.block_on(async {
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        assert_eq!(store.recovery().last_transno, Transno(1));
        assert!(!store.recovery().clean);
        assert_eq!(store.load(b"\x20key").await.unwrap().as_deref(), Some(&b"value"[..]));
        let bytes = read(&store, fid(1), 0..50_000).await.unwrap();
        assert!((0u64..).zip(bytes.iter()).all(|(at, byte)| *byte == stamp(fid(1), at, 1)));
    });
}

#[test]
fn a_clean_stop_is_known_as_one_and_needs_no_redo() {
    let (sim, node) = simulated(3);
    let env = sim.env(node);
    sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        let first = store.incarnation();
        write(&store, fid(1), 0, 10_000, 1).await.unwrap();
        store.close().await.unwrap();
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        assert!(store.recovery().clean && store.recovery().records == 0);
        assert!(store.incarnation() > first);
        assert_eq!(store.recovery().last_transno, Transno(1));
        assert_eq!(read(&store, fid(1), 0..10_000).await.unwrap()[77], stamp(fid(1), 77, 1));
    });
}

#[test]
fn a_directory_is_opened_once_and_formatted_once() {
    let (sim, node) = simulated(4);
    let env = sim.env(node);
    sim.block_on(async {
        assert_eq!(kind(Store::open(&env, DIR, &quick()).await), Some(StoreErrorKind::Foreign));
        let store = fresh(&env, &tiny(), &quick()).await;
        assert_eq!(kind(Store::open(&env, DIR, &quick()).await), Some(StoreErrorKind::Busy));
        store.close().await.unwrap();
        assert_eq!(kind(Store::format(&env, DIR, &tiny()).await), Some(StoreErrorKind::Busy));
    });
}

#[test]
fn a_store_much_overwritten_cleans_and_reuses_its_slabs() {
    let (sim, node) = simulated(5);
    let env = sim.env(node);
    sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        // Half of the device is live data in pieces; ten times as much is written.
        for round in 0..1500u64 {
            write(&store, fid(round * 7 % 97), (round % 3) * 8192, 8192, round + 1).await.unwrap();
        }
        let stats = store.stats();
        assert!(stats.slabs_reused > 20 && stats.checkpoints >= 2, "{stats:?}");
        store.close().await.unwrap();
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        let mut newest = std::collections::BTreeMap::new();
        (0..1500u64).for_each(|round| {
            newest.insert((round * 7 % 97, round % 3), round + 1);
        });
        for ((object, block), sequence) in newest {
            let bytes = read(&store, fid(object), block * 8192..(block + 1) * 8192).await.unwrap();
            assert!((block * 8192..).zip(bytes.iter()).all(|(at, byte)| *byte == stamp(fid(object), at, sequence)));
        }
    });
}

#[test]
fn a_bounded_cache_serves_a_table_larger_than_it() {
    let (sim, node) = simulated(6);
    let env = sim.env(node);
    sim.block_on(async {
        let mut options = quick();
        options.cache_bytes = Some(64 << 10);
        let store = fresh(&env, &tiny(), &options).await;
        let key = |number: u32| [&b"\x20"[..], &number.to_be_bytes()[..]].concat();
        for number in 0..4000u32 {
            let key = key(number * 7919 % 4000);
            store.prefetch(&[&key]).await.unwrap();
            let mut txn = store.begin();
            txn.put(&key, vec![number as u8; 100]);
            txn.apply().unwrap();
        }
        store.checkpoint().await.unwrap();
        sim.random_u64();
        for number in 0..4000u32 {
            let value = store.load(&key(number * 7919 % 4000)).await.unwrap().expect("it was put");
            assert_eq!(value[..], [number as u8; 100]);
        }
        assert!(store.stats().pages_loaded > 10, "{:?}", store.stats());
        let rows = store.scan(&key(10), &key(20), 100).await.unwrap();
        assert_eq!(rows.len(), 10);
    });
}

/// Requests to a part, on its one copy.
fn requests(store: &Store, part: &str) -> forebay_env::DiskRequests {
    let device = store.devices().into_iter().find(|device| device.part == part);
    device.expect("every store has it").requests
}

#[test]
fn store_statistics_add_up_and_every_commit_has_a_close_reason() {
    let (sim, node) = simulated(21);
    let env = sim.env(node);
    sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        let (before, first) = (store.stats(), requests(&store, "data"));
        let mut user_bytes = 0;
        for number in 1..=40 {
            let length = 1000 + number as usize * 777;
            write(&store, fid(number % 3), number * 50_000, length, number).await.unwrap();
            user_bytes += length as u64;
        }
        store.sync().await.unwrap();
        let after = store.stats();
        assert!(after.closed_on_demand > before.closed_on_demand, "somebody waited for it");
        assert_eq!(after.user_bytes, user_bytes);
        let (data, journal) = (requests(&store, "data"), requests(&store, "journal"));
        assert_eq!(data.writes.sum() - first.writes.sum(), after.device_bytes - before.device_bytes);
        assert!(data.writes.count() - first.writes.count() >= after.runs - before.runs);
        assert!(journal.durable_writes >= after.commits() && journal.writes.sum() >= after.journal_bytes);
        for stats in [&before, &after] {
            let reasons = stats.closed_by_time + stats.closed_by_size + stats.closed_on_demand;
            assert_eq!(stats.commits(), reasons, "each commit has one reason");
            assert_eq!(stats.commit_us.buckets().map(|(_, count)| count).sum::<u64>(), reasons);
            assert!(stats.journal_used_bytes + stats.journal_free_bytes <= stats.journal_ring_bytes);
        }
        let length = 32 << 10;
        read(&store, fid(1), 50_000..50_000 + length).await.unwrap();
        assert!(requests(&store, "data").reads.sum() > data.reads.sum());
        store.close().await.unwrap();
    });
}

#[test]
fn a_group_closes_by_time_when_nobody_asks_and_by_size_when_the_journal_fills() {
    let (sim, node) = simulated(22);
    let env = sim.env(node);
    sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        store.prefetch(&[b"\x20key"]).await.unwrap();
        let mut txn = store.begin();
        txn.put(b"\x20key", "value");
        let point = txn.apply().unwrap();
        assert!(!store.is_committed(point));
        env.sleep(std::time::Duration::from_millis(200)).await;
        let stats = store.stats();
        assert!(store.is_committed(point));
        assert_eq!((stats.closed_by_time, stats.closed_on_demand), (1, 0), "{stats:?}");
        let by_size = stats.closed_by_size;
        for number in 0..200u64 {
            let key = [&b"\x20row"[..], &number.to_be_bytes()].concat();
            store.prefetch(&[&key]).await.unwrap();
            let mut txn = store.begin();
            txn.put(&key, vec![7; 4000]);
            txn.apply().unwrap();
        }
        let stats = store.stats();
        assert!(stats.closed_by_size > by_size, "800 KB went through a journal of 256 KiB: {stats:?}");
        store.close().await.unwrap();
    });
}

#[test]
fn a_store_with_an_unknown_feature_is_refused_with_words_and_stays_as_it_is() {
    let (sim, node) = simulated(23);
    let env = sim.env(node);
    sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        write(&store, fid(1), 0, 5000, 1).await.unwrap();
        store.close().await.unwrap();
        let path = format!("{DIR}/identity");
        let of_now = env.read_file(&path).unwrap();
        let identity = Store::peek_identity(&env, DIR).unwrap();
        assert_eq!(identity.features, Features::default());
        let of = |incompat, ro_compat| Features { incompat, ro_compat, ..Features::default() };
        for features in [of(1 << 40, 0), of(0, 1 << 40)] {
            let newer = Identity { features, ..identity.clone() };
            env.write_file(&path, &newer.encode()).unwrap();
            for refused in [Store::open(&env, DIR, &quick()).await.err(), Store::peek_identity(&env, DIR).err()] {
                let error = refused.expect("it is refused");
                assert_eq!(error.kind, StoreErrorKind::Unsupported);
                let advice = "Serve it with the release that served it last, or a newer one";
                for words in ["OST0000", "0x10000000000", advice] {
                    assert!(error.message.contains(words), "{error}");
                }
            }
            assert_eq!(env.read_file(&path).unwrap(), newer.encode());
        }
        env.write_file(&path, &of_now).unwrap();
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        assert_eq!(read(&store, fid(1), 0..1).await.unwrap()[0], stamp(fid(1), 0, 1));
        store.close().await.unwrap();
    });
}
