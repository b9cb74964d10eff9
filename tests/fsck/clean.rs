//! fsck finds nothing wrong in what a store leaves.

use std::time::Duration;

use forebay_env::sim::Fault;
use forebay_fsck::{Inventory, Kind, Severity, exit};

use crate::{common::*, world::*};

#[test]
fn a_new_store_is_clean() {
    let world = World::new(1);
    world.filled(&tiny(), &quick(), async |_| {});
    let report = world.check(ALL);
    assert_clean(&report, "new");
    assert!(report.clean_stop && report.findings.is_empty(), "{}", report.to_text(Severity::Info));
    assert_eq!(report.exit_code(), exit::CLEAN);
}

#[test]
fn a_formatted_store_that_never_ran_is_clean() {
    let world = World::new(2);
    let env = world.env();
    world.sim.block_on(forebay_store::Store::format(&env, DIR, &tiny())).unwrap();
    assert_clean(&world.check(ALL), "formatted");
}

#[test]
fn a_used_ost_is_clean_and_all_its_data_is_verified() {
    let report = ost(3).check(ALL);
    assert_clean(&report, "used");
    assert_eq!(report.stats.files, 6);
    assert!(report.stats.data_bytes > 500_000 && report.stats.verified_bytes >= report.stats.data_bytes);
    let Inventory::Ost(objects) = &report.inventory else { panic!("an OST has objects") };
    assert_eq!(objects[..], (0..6).map(fid).collect::<Vec<_>>()[..]);
}

#[test]
fn a_store_whose_slabs_and_journal_went_round_many_times_is_clean() {
    let world = World::new(4);
    world.filled(&tiny(), &quick(), async |store| {
        for round in 0..1500u64 {
            write(store, fid(round * 7 % 97), (round % 3) * 8192, 8192, round + 1).await.unwrap();
        }
        assert!(store.stats().slabs_reused > 20, "{:?}", store.stats());
    });
    assert_clean(&world.check(STORE), "went round");
}

#[test]
fn nothing_lives_in_slabs_whose_headers_could_not_be_written() {
    for (seed, no_room) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let world = World::new(seed);
        let env = world.env();
        world.sim.block_on(async {
            let store = fresh(&env, &tiny(), &quick()).await;
            for slab in [1u64, 2, 4] {
                let range = (64 << 10) + slab * (128 << 10)..(64 << 10) + slab * (128 << 10) + 1;
                world.sim.disk_fault(world.node, DISKS[0], Fault::WriteEio { range });
            }
            for round in 0..6u64 {
                if no_room && round == 2 {
                    world.sim.disk_fault(world.node, DISKS[0], Fault::NoRoom);
                }
                let writes = (0..8u64).map(|object| {
                    let (store, sequence) = (store.clone(), round * 8 + object + 1);
                    env.spawn(async move { write(&store, fid(object), 0, 9000, sequence).await.map(drop) })
                });
                let writes: Vec<_> = writes.collect();
                if no_room && round == 2 {
                    world.sim.sleep(Duration::from_micros(1 + seed)).await;
                    world.sim.clear_disk_faults(world.node, DISKS[0]);
                }
                for write in writes {
                    let written = write.await.expect("it ends");
                    assert!(written.is_ok() || no_room, "{written:?}");
                }
                store.sync().await.unwrap();
            }
            store.close().await.unwrap();
        });
        world.sim.run_for(Duration::from_millis(1));
        assert_clean(&world.check(STORE), &format!("seed {seed}"));
    }
}

#[test]
fn a_store_with_many_rows_is_clean_whatever_of_them_is_only_in_the_journal() {
    for seed in 0..6 {
        let world = World::new(seed);
        let env = world.env();
        let key = |number: u32| [&b"\x20"[..], &number.to_be_bytes()[..]].concat();
        world.sim.block_on(async {
            let store = fresh(&env, &tiny(), &quick()).await;
            for number in 0..3000u32 {
                let number = number.wrapping_mul(2_654_435_761) >> 20;
                put(&store, &key(number), vec![number as u8; (number % 300) as usize]).await;
                if number.is_multiple_of(5) {
                    delete(&store, &key(number / 2)).await;
                }
                if number.is_multiple_of(977) {
                    store.checkpoint().await.unwrap();
                }
            }
            store.sync().await.unwrap();
            std::mem::forget(store);
        });
        world.sim.power_cut(world.node);
        let report = world.check(STORE);
        assert_clean(&report, "many rows");
        let rows = world.open(async |store| store.scan(b"\x20", b"\x21", 10_000).await.unwrap().len());
        assert_eq!(report.stats.rows, rows as u64);
    }
}

#[test]
fn a_served_target_is_refused() {
    let world = World::new(5);
    let env = world.env();
    world.sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        let error = forebay_fsck::check(&env, DIR, ALL).await.unwrap_err();
        assert_eq!(error.kind, forebay_fsck::FsckErrorKind::InUse);
        store.close().await.unwrap();
    });
}

#[test]
fn checking_changes_nothing_on_the_devices() {
    let world = ost(6);
    let before = world.image();
    world.check(ALL);
    let after = world.image();
    assert!(before.disks == after.disks);
    assert_eq!(before.files.get("target/identity"), after.files.get("target/identity"));
}

#[test]
fn a_torn_tail_is_worth_knowing_and_no_damage() {
    let world = World::new(7);
    let env = world.env();
    world.sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        write(&store, fid(1), 0, 50_000, 1).await.unwrap();
        store.sync().await.unwrap();
        world.sim.sleep(Duration::from_millis(5)).await;
        std::mem::forget(store);
    });
    let mut image = world.image();
    // Behind the last record write a torn one, like a sector of a previous lap's record.
    let journal = &mut image.disks[1];
    let newest = (0..32u64).rev().find(|n| journal.read(8192 + n * 4096 + 8, 4) == b"FBjr").expect("records");
    let mut torn = journal.read(8192 + newest * 4096, 4096);
    torn[500] ^= 1;
    journal.write(8192 + (newest + 1) * 4096, &torn);
    world.sim.power_cut(world.node);
    world.set_image(&image);
    let report = world.check(STORE);
    assert_clean(&report, "torn tail");
    assert_eq!(report.count_of(Kind::Journal), 0);
}

#[test]
fn a_store_on_real_files_is_checked_as_one_in_the_simulator() {
    let scratch = std::env::temp_dir().join(format!("forebay-fsck-{}", std::process::id()));
    let dir = scratch.to_str().expect("a path in UTF-8").to_owned();
    let report = forebay_env::real::run(|env: forebay_env::Env| async move {
        forebay_store::Store::format(&env, &dir, &tiny()).await.unwrap();
        let store = forebay_store::Store::open(&env, &dir, &quick()).await.unwrap();
        write(&store, fid(1), 1000, 200_000, 1).await.unwrap();
        put(&store, &object_key(fid(1)), object(201_000, 1)).await;
        store.close().await.unwrap();
        env.sleep(Duration::from_millis(20)).await;
        forebay_fsck::check(&env, &dir, ALL).await.unwrap()
    });
    std::fs::remove_dir_all(&scratch).expect("the scratch directory goes");
    assert_clean(&report, "real files");
    assert!(report.clean_stop && report.stats.verified_bytes >= 200_000);
}
