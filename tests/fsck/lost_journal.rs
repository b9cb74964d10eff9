//! Stores whose journal is lost: clean ones, and ones that crashed at any write. They are rebuilt from their
//! slabs.
//!
//! Oracle: no byte is older than what was committed when the journal was lost. Each byte is what some state from then
//! on has there. Exception: bytes that did not exist then, and whose later write was torn within the object, are listed
//! and unreadable. A store that was stopped cleanly is as it was, rows included.

use std::{ops::Range, time::Duration};

use forebay_env::sim::{DiskImage, Sim, TearChoice};
use forebay_fsck::{Finding, FsckErrorKind, Kind, Place, RepairOptions, Report, Severity, check, exit, repair};
use forebay_proto::{Fid, TargetId};
use forebay_store::{FormatOptions, Store};

use crate::{
    common::{history::*, *},
    damage::sectors,
    world::{ALL, STORE, World, assert_clean, ost},
};

const HISTORIES: u64 = 24;
/// One in this many points of a history is tested.
const EVERY: usize = 7;

fn store_only() -> RepairOptions {
    RepairOptions { check: STORE, ..RepairOptions::default() }
}

/// A machine with the data of a crashed store, and with a missing or blank journal.
fn without_journal(history: &History, data: DiskImage, missing: bool) -> World {
    let world = World::new(history.seed);
    world.sim.set_files(world.node, history.files.clone());
    world.sim.set_disk_image(world.node, DISKS[0], data);
    if !missing {
        world.sim.set_disk_image(world.node, DISKS[1], DiskImage::zeroed(format_options().journal_bytes));
    }
    world
}

fn rebuilt(world: &World, what: &str) -> Report {
    let env = world.env();
    let report = world.sim.block_on(repair(&env, DIR, store_only())).unwrap_or_else(|e| panic!("{what}: {e}"));
    let text = report.to_text(Severity::Info);
    let left = if unreadable(&report).is_empty() { exit::CLEAN } else { exit::LEFT };
    assert!(report.exit_code() == exit::REPAIRED | left, "{what}: {text}");
    assert_eq!(report.count_of(Kind::JournalLost), 1, "{what}: {text}");
    assert_only_listed(&world.check(STORE), &report, what);
    report
}

/// The bytes that the rebuild lists as unreadable.
fn unreadable(report: &Report) -> Vec<(Fid, Range<u64>)> {
    let listed =
        report.findings.iter().filter(|f| f.kind == Kind::MayBeMissing && f.what.contains("reads of them fail"));
    let range = |finding: &Finding| {
        let Place::Row(key) = &finding.place else { panic!("{finding}: of no object") };
        let mut numbers = finding.what.split(' ').filter_map(|word| word.parse().ok());
        let (Some(from), Some(to)) = (numbers.next(), numbers.next()) else { panic!("{finding}: no range") };
        (Fid::from_key(&key[1..17]).expect("a fid"), from..to)
    };
    listed.map(range).collect()
}

/// Panics if anything is wrong besides what the rebuild listed.
fn assert_only_listed(after: &Report, rebuilt: &Report, what: &str) {
    let text = after.to_text(Severity::Info);
    if unreadable(rebuilt).is_empty() {
        assert_clean(after, what);
    }
    assert_eq!(after.count(Severity::Warning), 0, "{what}: {text}");
    assert_eq!(after.count(Severity::Error), after.count_of(Kind::Data), "{what}: {text}");
}

/// Each byte is what some state from `committed` on has there. Bytes that the rebuild listed as unreadable cannot be
/// read, and did not exist in the committed state.
async fn is_not_older(store: &Store, states: &[State], committed: usize, rebuilt: &Report, what: &str) {
    let unreadable = unreadable(rebuilt);
    for object in 0..states[0].objects.len() {
        let length = states[0].objects[object].len() as u64;
        let fid = fid(object as u64);
        let mut at = 0;
        let lost = unreadable.iter().filter(|(of, _)| *of == fid).map(|(_, range)| range.clone());
        for lost in lost.chain(std::iter::once(length..length)) {
            for byte in lost.start..lost.end.min(length) {
                assert_eq!(states[committed].objects[object][byte as usize], 0, "{what}: object {object}, byte {byte}");
                assert!(read(store, fid, byte..byte + 1).await.is_err(), "{what}: object {object}, byte {byte}");
            }
            let got = read(store, fid, at..lost.start.min(length)).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_possible(&got, at as usize, &states[committed..], object, what);
            at = lost.end;
        }
    }
}

/// Panics unless each byte is what one of the states has there. `got` begins at byte `from` of the object.
fn assert_possible(got: &[u8], from: usize, states: &[State], object: usize, what: &str) {
    let is_all = |state: &State| state.objects[object][from..from + got.len()] == *got;
    // Most objects have one state as a whole.
    if states.iter().any(is_all) {
        return;
    }
    for (at, byte) in (from..).zip(got) {
        let possible = states.iter().any(|state| state.objects[object][at] == *byte);
        assert!(possible, "{what}: object {object}, byte {at}: {byte} is older than what was committed");
    }
}

#[test]
fn synced_data_is_all_there_wherever_the_target_was_when_it_lost_its_journal() {
    let (mut rebuilds, mut with_base, mut torn) = (0, 0, 0);
    for seed in 1..=HISTORIES {
        let mut history = record(seed);
        for point in (0..history.recorder.points()).step_by(EVERY) {
            let tear = [TearChoice::AllLost, TearChoice::AllKept][point % 2];
            let images = history.recorder.image(point, tear);
            let what = format!("history {seed}, {}, {tear:?}", history.recorder.describe(point));
            let world = without_journal(&history, images[0].clone(), point % 3 == 0);
            let report = rebuilt(&world, &what);
            torn += unreadable(&report).len();
            with_base += u64::from(report.findings.iter().any(|f| f.what.contains("the last checkpoint")));
            let committed = history.committed_at(point) as usize;
            world.open(async |store| {
                is_not_older(store, &history.states, committed, &report, &what).await;
                // The store continues like any other.
                write(store, fid(3), 100, 9000, 1 << 60).await.unwrap();
                store.sync().await.unwrap();
            });
            world.open(async |store| {
                let bytes = read(store, fid(3), 100..9100).await.unwrap();
                assert!((100..).zip(bytes.iter()).all(|(at, byte)| *byte == stamp(fid(3), at, 1 << 60)), "{what}");
            });
            assert_only_listed(&world.check(STORE), &report, &what);
            rebuilds += 1;
        }
    }
    println!("{rebuilds} rebuilds, {with_base} of them from a checkpoint; {torn} ranges were torn within an object");
    assert!(with_base > rebuilds / 2, "{with_base} of {rebuilds} from a checkpoint");
}

#[test]
fn a_clean_stop_loses_nothing_with_the_journal() {
    for seed in 1..=HISTORIES {
        let mut history = record(seed);
        let last = history.recorder.points() - 1;
        let images = history.recorder.image(last, TearChoice::AllKept);
        let what = format!("history {seed}, clean");
        let world = without_journal(&history, images[0].clone(), true);
        rebuilt(&world, &what);
        let expected = history.states.last().expect("states").clone();
        world.open(async |store| verify(store, &expected, &what).await);
    }
}

#[test]
fn a_slab_whose_header_is_damaged_as_well_keeps_what_it_holds() {
    let mut damaged = 0;
    for seed in 1..=HISTORIES / 4 {
        let mut history = record(seed);
        let last = history.recorder.points() - 1;
        let images = history.recorder.image(last, TearChoice::AllKept);
        for header in sectors(&images[0], b"FBYSLAB1") {
            let mut data = images[0].clone();
            data.write(header, &[0x55; 4096]);
            let what = format!("history {seed}, no header at {header}");
            let world = without_journal(&history, data, true);
            let env = world.env();
            let report = world.sim.block_on(repair(&env, DIR, store_only())).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(report.count_of(Kind::JournalLost), 1, "{what}");
            let expected = history.states.last().expect("states").clone();
            world.open(async |store| verify(store, &expected, &what).await);
            damaged += 1;
        }
    }
    assert!(damaged > 50, "{damaged} headers were damaged");
}

#[test]
fn a_rebuild_cut_off_anywhere_can_begin_again() {
    let mut history = record(3);
    let point = history.recorder.points() * 2 / 3;
    let images = history.recorder.image(point, TearChoice::AllLost);
    let committed = history.committed_at(point) as usize;
    let mut cuts = 0;
    loop {
        let world = without_journal(&history, images[0].clone(), cuts % 2 == 0);
        let (sim, node): (&Sim, _) = (&world.sim, world.node);
        let done = std::rc::Rc::new(std::cell::Cell::new(false));
        let told = done.clone();
        sim.start(node, |env| async move {
            repair(&env, DIR, store_only()).await.unwrap();
            told.set(true);
        });
        sim.run_for(Duration::from_micros(40) * cuts);
        sim.power_cut(node);
        let what = format!("cut {cuts}");
        let mut report = Report::default();
        if world.check(STORE).count_of(Kind::JournalLost) > 0 {
            assert!(!done.get(), "{what}");
            report = rebuilt(&world, &what);
        }
        world.open(async |store| is_not_older(store, &history.states, committed, &report, &what).await);
        assert_only_listed(&world.check(STORE), &report, &what);
        cuts += 1;
        if done.get() {
            break;
        }
    }
    assert!(cuts > 20, "{cuts} cuts");
}

#[test]
fn nothing_is_rebuilt_that_is_not_lost_or_cannot_be() {
    // A target that still has its journal.
    let world = ost(1);
    let before = world.image();
    assert_clean(&world.repair(false).unwrap(), "whole");
    assert!(world.image().disks == before.disks);
    // An OST with files needs what the MDT knows of them.
    world.sim.set_disk_image(world.node, DISKS[1], DiskImage::zeroed(before.disks[1].bytes()));
    let error = world.repair(false).unwrap_err();
    assert!(error.kind == FsckErrorKind::CannotRepair && error.message.contains("the MDT's directory"), "{error}");
    assert!(world.image().disks[0] == before.disks[0] && world.image().files == before.files);
    // Another target's journal is in its place.
    world.sim.set_disk_image(world.node, DISKS[1], ost(2).image().disks[1].clone());
    let error = world.check(ALL);
    assert!(error.count_of(Kind::WrongDevice) > 0 && error.count_of(Kind::JournalLost) == 0);
    let theirs = world.image().disks[1].clone();
    drop(world.repair(false));
    assert!(world.image().disks[1] == theirs, "another target's journal was written over");
    // An MDT: its names are only in the journal.
    let world = World::new(3);
    let mdt = FormatOptions { target: TargetId::mdt(0), ..tiny() };
    world.filled(&mdt, &quick(), async |_| {});
    world.sim.set_disk_image(world.node, DISKS[1], DiskImage::zeroed(before.disks[1].bytes()));
    let env = world.env();
    let error = world.sim.block_on(repair(&env, DIR, store_only())).unwrap_err();
    assert!(error.kind == FsckErrorKind::CannotRepair && error.message.contains("--mirror"), "{error}");
    let report = world.sim.block_on(check(&env, DIR, STORE)).unwrap();
    assert_eq!((report.count_of(Kind::JournalLost), report.exit_code()), (1, exit::LEFT));
}

#[test]
fn a_journal_in_a_slot_is_checked_and_rebuilt_there() {
    let world = World::new(4);
    let device = "/dev/fast";
    world.sim.set_disk_image(world.node, device, DiskImage::zeroed(8 << 20));
    let shared = FormatOptions { journal_path: Some(device.into()), journal_shared: true, ..tiny() };
    let env = world.env();
    world.sim.block_on(async {
        let other = FormatOptions { target: TargetId::ost(1), ..shared.clone() };
        Store::format(&env, "other", &other).await.unwrap();
    });
    world.filled(&shared, &quick(), async |store| {
        write(store, fid(1), 0, 90_000, 1).await.unwrap();
    });
    assert_clean(&world.check(STORE), "in a slot");
    let slots = world.sim.block_on(Store::journal_slots(&env, device)).unwrap();
    let slot = slots.iter().find(|slot| slot.name == TargetId::ost(0)).expect("its slot");
    let mut image = world.sim.disk_image(world.node, device);
    image.write(slot.offset, &vec![0; slot.bytes as usize]);
    world.sim.set_disk_image(world.node, device, image);
    rebuilt(&world, "in a slot");
    world.open(async |store| {
        let bytes = read(store, fid(1), 0..90_000).await.unwrap();
        assert!((0..).zip(bytes.iter()).all(|(at, byte)| *byte == stamp(fid(1), at, 1)));
    });
    assert_eq!(world.sim.block_on(Store::journal_slots(&env, device)).unwrap(), slots);
    let other = world.sim.block_on(check(&env, "other", STORE)).unwrap();
    assert_clean(&other, "the neighbour");
}
