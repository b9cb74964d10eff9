//! What repair fixes stays fixed and is used by the store, and a repair can be interrupted anywhere.

use forebay_env::sim::TearChoice;
use forebay_fsck::{FsckErrorKind, Kind, Severity, exit};
use forebay_store::Store;

use crate::{
    common::*,
    mdt::{Rows, at, file, tree, world},
    world::*,
};

fn wrong_counts() -> Rows {
    let mut rows = tree();
    rows.insert([&[0x21][..], &at(3).to_key()].concat(), file(Some(9)));
    rows.insert(vec![0x29, 0], vec![1, 70]);
    rows.insert(vec![0x29, 1], vec![1, 1]);
    rows.remove(&[&[0x24][..], &at(4).to_key()].concat());
    rows
}

#[test]
fn wrong_counts_are_mended_under_a_new_generation() {
    let world = world(&wrong_counts());
    let report = world.repair(false).unwrap();
    assert_eq!(report.exit_code(), exit::REPAIRED, "{}", report.to_text(Severity::Info));
    assert_clean(&world.check(ALL), "repaired");
    let rows = world.open(async |store| {
        assert_eq!(store.identity().generation, 2);
        store.scan(b"\x20", b"\x80", 1000).await.unwrap()
    });
    let expected: Vec<_> = tree().into_iter().filter(|(key, _)| key[0] >= 0x20).collect();
    assert_eq!(rows.len(), expected.len());
    for ((key, value), (expected_key, expected_value)) in rows.iter().zip(&expected) {
        assert_eq!((&key[..], &value[..]), (&expected_key[..], &expected_value[..]));
    }
    assert_clean(&world.check(ALL), "used after repair");
}

#[test]
fn repair_of_a_clean_target_writes_nothing() {
    let world = world(&tree());
    let before = world.image();
    assert_eq!(world.repair(true).unwrap().exit_code(), exit::CLEAN);
    assert!(world.image().disks == before.disks);
}

#[test]
fn leaked_extents_are_freed_on_request_only() {
    let world = ost(1);
    world.open(async |store| delete(store, &object_key(fid(3))).await);
    let report = world.repair(false).unwrap();
    assert_eq!(report.exit_code(), exit::LEFT);
    let used = world.open(async |store| store.space().used_bytes);
    let report = world.repair(true).unwrap();
    assert_eq!(report.exit_code(), exit::REPAIRED, "{}", report.to_text(Severity::Info));
    let report = world.check(ALL);
    assert_clean(&report, "freed");
    world.open(async |store| {
        assert!(store.space().used_bytes < used);
        assert_eq!(read(store, fid(4), 30_000..30_100).await.unwrap()[5], stamp(fid(4), 30_005, 5));
    });
}

#[test]
fn damage_below_the_table_is_refused_in_words_and_nothing_is_changed() {
    let world = world(&wrong_counts());
    let mut image = world.image();
    let word = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().unwrap());
    let seq = |slot: u64| word(image.disks[1].read(slot * 4096 + 40, 8));
    let newest = u64::from(seq(1) > seq(0)) * 4096;
    let byte = image.disks[1].read(newest + 600, 1)[0];
    image.disks[1].write(newest + 600, &[byte ^ 1]);
    world.set_image(&image);
    match world.repair(true) {
        Err(error) => assert_eq!(error.kind, FsckErrorKind::CannotRepair),
        Ok(report) => assert_eq!(report.exit_code(), exit::LEFT),
    }
    assert!(world.image().disks == image.disks);
}

/// Row 18: repair |X|, repair again.
#[test]
fn a_repair_cut_off_at_any_write_can_begin_again() {
    let base = world(&wrong_counts());
    let image = base.image();
    let recorded = World::new(2);
    recorded.set_image(&image);
    DISKS.iter().for_each(|disk| recorded.sim.record_disk(recorded.node, disk));
    recorded.repair(false).unwrap();
    let mut crashes = recorded.sim.crash_images(recorded.node, &DISKS);
    assert!(crashes.points() >= 4);
    for point in 0..crashes.points() {
        for tear in [TearChoice::AllLost, TearChoice::LastTornAtSector(3), TearChoice::Random(point as u64)] {
            let what = format!("{}, {tear:?}", crashes.describe(point));
            let cut = Image { files: image.files.clone(), disks: crashes.image(point, tear) };
            let world = World::new(3);
            world.set_image(&cut);
            let report = world.check(ALL);
            assert_eq!(report.count_of(Kind::LinkCount), 1, "{what}: as before\n{}", report.to_text(Severity::Info));
            world.repair(false).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_clean(&world.check(ALL), &what);
            let env = world.env();
            let generation = world.sim.block_on(async {
                let store = Store::open(&env, DIR, &quick()).await.unwrap();
                store.identity().generation
            });
            assert_eq!(generation, 2, "{what}");
        }
    }
    // Once the identity is replaced, the target has the new generation in full.
    let last = Image {
        files: recorded.sim.files(recorded.node),
        disks: crashes.image(crashes.points() - 1, TearChoice::AllLost),
    };
    recorded.set_image(&last);
    assert_clean(&recorded.check(ALL), "done");
}

#[test]
fn a_target_repaired_twice_has_the_third_generation() {
    let world = world(&wrong_counts());
    world.repair(false).unwrap();
    world.open(async |store| put(store, &[0x29, 0], vec![1, 60]).await);
    assert_eq!(world.repair(false).unwrap().exit_code(), exit::REPAIRED);
    assert_clean(&world.check(ALL), "twice");
    world.open(async |store| assert_eq!(store.identity().generation, 3));
}
