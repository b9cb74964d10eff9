//! A store on two devices: one may fail, rot, vanish or come back. Nothing that was called durable is lost, and no copy
//! that was left behind counts again.

use std::time::Duration;

use crate::common::{history::*, tears::Contents, *};
use forebay_env::{
    Env,
    sim::{DiskImage, Fault, NodeId, Sim, TearChoice},
};
use forebay_store::{CopyState, MirrorPlace, Store, StoreErrorKind};

/// Directories of the copies.
const DIRS: [&str; 2] = [DIR, MIRROR];

fn simulated(seed: u64) -> (Sim, NodeId, Env) {
    let sim = Sim::new(seed);
    let node = sim.add_node("mds0");
    let env = sim.env(node);
    (sim, node, env)
}

async fn expect(store: &Store, object: u64, sequence: u64) {
    let bytes = read(store, fid(object), 0..20_000).await.unwrap();
    assert!((0..20_000).zip(bytes.iter()).all(|(at, byte)| *byte == stamp(fid(object), at, sequence)), "{object}");
}

/// Writes an object of 20,000 bytes durably.
async fn put(store: &Store, object: u64, sequence: u64) {
    write(store, fid(object), 0, 20_000, sequence).await.unwrap();
    store.sync().await.unwrap();
}

/// States of the copies in a directory: data, journal.
fn states(store: &Store, dir: &str) -> Vec<CopyState> {
    let status = store.mirror().expect("it is mirrored");
    let of_dir = |part: &forebay_store::PartStatus| {
        part.copies.iter().find(|copy| copy.path.starts_with(dir)).map(|copy| copy.state.clone())
    };
    status.parts.iter().filter_map(of_dir).collect()
}

fn is_lost(store: &Store, dir: &str) -> bool {
    states(store, dir).iter().any(|state| matches!(state, CopyState::Lost { .. }))
}

async fn until_in_sync(env: &Env, store: &Store) {
    for _ in 0..2000 {
        if !store.mirror().expect("it is mirrored").is_degraded() {
            return;
        }
        env.sleep(Duration::from_millis(50)).await;
    }
    panic!("never in sync: {:?}", store.mirror());
}

/// Every request to the disks of a copy fails from now on.
fn break_copy(sim: &Sim, node: NodeId, dir: &str) {
    for part in ["data", "journal"] {
        let path = format!("{dir}/{part}");
        sim.disk_fault(node, &path, Fault::ReadEio { range: 0..u64::MAX });
        sim.disk_fault(node, &path, Fault::WriteEio { range: 0..u64::MAX });
    }
}

fn heal_copy(sim: &Sim, node: NodeId, dir: &str) {
    ["data", "journal"].iter().for_each(|part| sim.clear_disk_faults(node, &format!("{dir}/{part}")));
}

/// Files and disks of a copy, to be taken away and brought back.
struct Away {
    dir: &'static str,
    disks: Vec<(String, DiskImage)>,
    files: Vec<(String, Vec<u8>)>,
}

/// Takes a copy away while nothing runs.
fn take_away(sim: &Sim, node: NodeId, dir: &'static str) -> Away {
    let prefix = format!("{dir}/");
    let files: Vec<_> = sim.files(node).into_iter().filter(|(path, _)| path.starts_with(&prefix)).collect();
    let disks: Vec<_> = sim.disks(node).into_iter().filter(|path| path.starts_with(&prefix)).collect();
    let disks: Vec<_> = disks.into_iter().map(|path| (path.clone(), sim.disk_image(node, &path))).collect();
    let env = sim.env(node);
    files.iter().map(|(path, _)| path).chain(disks.iter().map(|(path, _)| path)).for_each(|path| {
        env.remove_file(path).unwrap();
    });
    sim.crash(node);
    Away { dir, disks, files }
}

fn bring_back(sim: &Sim, node: NodeId, away: &Away) {
    away.files.iter().for_each(|(path, bytes)| sim.set_file(node, path, bytes));
    away.disks.iter().for_each(|(path, image)| sim.set_disk_image(node, path, image.clone()));
    assert!(!away.dir.is_empty());
}

async fn open_error(env: &Env, dir: &str) -> String {
    let error = Store::open(env, dir, &quick()).await.err().expect("it must be refused");
    assert_eq!(error.kind, StoreErrorKind::Foreign, "{error}");
    error.message
}

#[test]
fn both_copies_hold_the_same_and_either_directory_can_be_served() {
    let (sim, node, env) = simulated(1);
    sim.block_on(async {
        let store = fresh(&env, &mirrored(tiny()), &quick()).await;
        put(&store, 1, 1).await;
        assert!(!store.mirror().unwrap().is_degraded());
        store.close().await.unwrap();
        let store = Store::open(&env, MIRROR, &quick()).await.unwrap();
        expect(&store, 1, 1).await;
        let busy = Store::open(&env, DIR, &quick()).await.err().map(|error| error.kind);
        assert_eq!(busy, Some(StoreErrorKind::Busy), "the other directory is locked, too");
        put(&store, 2, 2).await;
        store.close().await.unwrap();
    });
    for part in ["data", "journal"] {
        let [a, b] = [DIR, MIRROR].map(|dir| sim.disk_bytes(node, &format!("{dir}/{part}")));
        let bytes = a.len() - 8192;
        assert!(a[..bytes] == b[..bytes], "the {part} differs");
    }
}

/// write, copy fails, write |X| open
#[test]
fn a_copy_that_fails_is_left_behind_and_never_comes_back_as_current() {
    for (seed, bad, good) in [(2, MIRROR, DIR), (3, DIR, MIRROR)] {
        let (sim, node, env) = simulated(seed);
        sim.block_on(async {
            let store = fresh(&env, &mirrored(tiny()), &quick()).await;
            put(&store, 1, 1).await;
            break_copy(&sim, node, bad);
            put(&store, 2, 2).await;
            assert!(is_lost(&store, bad) && !is_lost(&store, good), "{:?}", store.mirror());
            expect(&store, 1, 1).await;
            expect(&store, 2, 2).await;
        });
        sim.power_cut(node);
        heal_copy(&sim, node, bad);
        // Only the copy that was left behind is there.
        let away = take_away(&sim, node, good);
        let env = sim.env(node);
        sim.block_on(async { open_error(&env, bad).await });
        sim.crash(node);
        // Only the copy that continued is there.
        bring_back(&sim, node, &away);
        let behind = take_away(&sim, node, bad);
        let env = sim.env(node);
        sim.block_on(async {
            let store = Store::open(&env, good, &quick()).await.unwrap();
            expect(&store, 2, 2).await;
            store.close().await.unwrap();
        });
        sim.crash(node);
        // Both are there: the copy that was left behind is filled.
        bring_back(&sim, node, &behind);
        let env = sim.env(node);
        sim.block_on(async {
            let store = Store::open(&env, DIR, &quick()).await.unwrap();
            put(&store, 3, 3).await;
            until_in_sync(&env, &store).await;
            put(&store, 4, 4).await;
            store.close().await.unwrap();
        });
        sim.crash(node);
        take_away(&sim, node, good);
        let env = sim.env(node);
        sim.block_on(async {
            assert!(open_error(&env, bad).await.contains("mirror alone"), "it cannot know");
            Store::mirror_alone(&env, bad).await.unwrap();
            let store = Store::open(&env, bad, &quick()).await.unwrap();
            for number in 1..=4 {
                expect(&store, number, number).await;
            }
        });
    }
}

#[test]
fn a_copy_whose_files_vanish_or_become_others_is_noticed_and_left_behind() {
    let (sim, node, env) = simulated(4);
    sim.block_on(async {
        for what in ["deleted", "empty", "foreign"] {
            let store = fresh(&env, &mirrored(tiny()), &quick()).await;
            put(&store, 1, 1).await;
            let path = "mirror/journal";
            env.remove_file(path).unwrap();
            match what {
                "empty" => sim.set_disk_image(node, path, DiskImage::zeroed((256 << 10) + 8192)),
                "foreign" => sim.set_disk_bytes(node, path, &vec![7; 1 << 20]),
                _ => {}
            }
            env.sleep(Duration::from_secs(3)).await;
            assert!(matches!(states(&store, MIRROR)[1], CopyState::Lost { .. }), "{what}: {:?}", store.mirror());
            put(&store, 2, 2).await;
            store.close().await.unwrap();
            // What lies there now may not be overwritten, and is left alone.
            let store = Store::open(&env, DIR, &quick()).await.unwrap();
            expect(&store, 2, 2).await;
            env.sleep(Duration::from_secs(60)).await;
            assert!(is_lost(&store, MIRROR));
            if what == "foreign" {
                assert!(sim.disk_bytes(node, path).iter().all(|byte| *byte == 7));
            }
            store.close().await.unwrap();
            for path in sim.disks(node).into_iter().chain(sim.files(node).into_keys()) {
                env.remove_file(&path).unwrap();
            }
        }
    });
}

#[test]
fn a_lost_copy_is_replaced_and_filled_while_the_store_is_served() {
    let (sim, node, env) = simulated(5);
    sim.block_on(async {
        let store = fresh(&env, &mirrored(tiny()), &quick()).await;
        for number in 1..60 {
            put(&store, number % 20, number).await;
        }
        break_copy(&sim, node, MIRROR);
        put(&store, 20, 60).await;
        let place = MirrorPlace { dir: "spare".into(), ..MirrorPlace::default() };
        assert_eq!(Store::mirror_replace(&env, DIR, &place, false).await.unwrap(), DIR);
        let mut number = 61;
        while store.mirror().unwrap().is_degraded() {
            put(&store, number % 20, number).await;
            env.sleep(Duration::from_millis(5)).await;
            number += 1;
            assert!(number < 5000, "{:?}", store.mirror());
        }
        assert!(number > 70, "writes went on meanwhile");
        put(&store, 20, number).await;
        let last = number;
        assert!(states(&store, "spare").iter().all(|state| *state == CopyState::InSync));
        drop(store);
        sim.power_cut(node);
        take_away(&sim, node, DIR);
        let env = sim.env(node);
        Store::mirror_alone(&env, "spare").await.unwrap();
        let store = Store::open(&env, "spare", &quick()).await.unwrap();
        for object in 0..20 {
            let newest = (1..last).rev().find(|number| *number != 60 && number % 20 == object).unwrap();
            expect(&store, object, newest).await;
        }
        expect(&store, 20, last).await;
    });
}

/// fill, the device hangs for an hour, write | the hour is over | it is left behind, and filled again when it answers
#[test]
fn hung_copy_during_resync_does_not_block_writes() {
    for delay_ms in [0, 1, 5, 20, 80, 300] {
        let (sim, node, env) = simulated(delay_ms);
        sim.block_on(async {
            let store = fresh(&env, &mirrored(tiny()), &quick()).await;
            for number in 1..60 {
                put(&store, number % 20, number).await;
            }
            break_copy(&sim, node, MIRROR);
            put(&store, 20, 60).await;
            let place = MirrorPlace { dir: "spare".into(), ..MirrorPlace::default() };
            Store::mirror_replace(&env, DIR, &place, false).await.unwrap();
            let is_known = || states(&store, "spare").iter().any(|state| !matches!(state, CopyState::Lost { .. }));
            while !is_known() {
                env.sleep(Duration::from_millis(1)).await;
            }
            env.sleep(Duration::from_millis(delay_ms)).await;
            for part in ["data", "journal"] {
                sim.disk_fault(node, &format!("spare/{part}"), Fault::Stuck(Duration::from_secs(3600)));
            }
            let begun = env.now();
            for number in 61..100 {
                let put = env.timeout(Duration::from_secs(200), put(&store, number % 20, number));
                put.await.unwrap_or_else(|_| panic!("delay {delay_ms}: {number} waits: {:?}", store.mirror()));
            }
            assert!(env.now().since(begun) < Duration::from_secs(300), "delay {delay_ms}");
            env.sleep(Duration::from_secs(60)).await;
            assert!(is_lost(&store, "spare"), "delay {delay_ms}: {:?}", store.mirror());
            env.sleep(Duration::from_secs(3600)).await;
            until_in_sync(&env, &store).await;
            for object in 0..20 {
                let newest = (1..100).rev().find(|number| *number != 60 && number % 20 == object).unwrap();
                expect(&store, object, newest).await;
            }
        });
    }
}

#[test]
fn two_copies_that_went_on_alone_are_refused_with_words() {
    let (sim, node, env) = simulated(6);
    sim.block_on(async {
        fresh(&env, &mirrored(tiny()), &quick()).await.close().await.unwrap();
    });
    sim.crash(node);
    let mut away = Vec::new();
    for (serve, hide) in [(DIR, MIRROR), (MIRROR, DIR)] {
        let hidden = take_away(&sim, node, hide);
        let env = sim.env(node);
        sim.block_on(async {
            Store::mirror_alone(&env, serve).await.unwrap();
            let store = Store::open(&env, serve, &quick()).await.unwrap();
            put(&store, 1, 1).await;
            store.close().await.unwrap();
        });
        sim.crash(node);
        away.push(take_away(&sim, node, serve));
        bring_back(&sim, node, &hidden);
    }
    let env = sim.env(node);
    drop(env);
    sim.crash(node);
    away.iter().for_each(|copy| bring_back(&sim, node, copy));
    let env = sim.env(node);
    sim.block_on(async {
        assert!(open_error(&env, DIR).await.contains("each without the other"));
        assert!(Store::mirror_alone(&env, DIR).await.is_err());
    });
}

#[test]
fn swapped_halves_are_told_apart_by_their_labels() {
    let (sim, node, env) = simulated(7);
    sim.block_on(async {
        let store = fresh(&env, &mirrored(tiny()), &quick()).await;
        put(&store, 1, 1).await;
        break_copy(&sim, node, DIR);
        put(&store, 2, 2).await;
    });
    sim.power_cut(node);
    heal_copy(&sim, node, DIR);
    for part in ["data", "journal"] {
        let (a, b) = (format!("{DIR}/{part}"), format!("{MIRROR}/{part}"));
        let (one, two) = (sim.disk_image(node, &a), sim.disk_image(node, &b));
        sim.set_disk_image(node, &a, two);
        sim.set_disk_image(node, &b, one);
    }
    let env = sim.env(node);
    sim.block_on(async {
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        expect(&store, 2, 2).await;
        until_in_sync(&env, &store).await;
    });
}

#[test]
fn rot_and_unreadable_places_of_one_copy_are_mended_from_the_other() {
    let (sim, node, env) = simulated(8);
    sim.block_on(async {
        let store = fresh(&env, &mirrored(tiny()), &quick()).await;
        for number in 1..20 {
            put(&store, number, number).await;
        }
        store.checkpoint().await.unwrap();
        for number in 20..40 {
            put(&store, number, number).await;
        }
    });
    sim.crash(node);
    // Every fifth sector of each device rots or cannot be read in one of the copies, headers and anchors included.
    for (part, bytes) in [("data", sim.disk_bytes(node, "target/data").len()), ("journal", 256 << 10)] {
        for (turn, at) in (0..(bytes - 8192) as u64).step_by(5 * 4096).enumerate() {
            let path = format!("{}/{part}", [DIR, MIRROR][turn % 2]);
            if turn % 3 == 0 && part == "data" {
                sim.disk_fault(node, &path, Fault::ReadEio { range: at..at + 1 });
            } else {
                sim.disk_fault(node, &path, Fault::Rot { offset: at + 100, bits: 0x11 });
            }
        }
    }
    let env = sim.env(node);
    sim.block_on(async {
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        // A location that stays unreadable after it was rewritten takes its copy out: the rest must suffice then.
        for number in 1..40 {
            expect(&store, number, number).await;
        }
        assert_eq!(store.stats().read_corruptions, 0);
        let mended: u64 = store.mirror().unwrap().parts.iter().map(|part| part.mended).sum();
        assert!(mended > 0);
    });
}

/// crash, one copy gone: a third place knows whether the other one is the last
#[test]
fn a_witness_tells_the_last_copy_from_one_that_was_left_behind() {
    for seed in [9, 10] {
        let (sim, node, env) = simulated(seed);
        sim.block_on(async {
            let place =
                MirrorPlace { dir: MIRROR.into(), witness: Some("third/witness".into()), ..MirrorPlace::default() };
            let format = forebay_store::FormatOptions { mirror: Some(place), ..tiny() };
            let store = fresh(&env, &format, &quick()).await;
            put(&store, 1, 1).await;
            if seed == 10 {
                break_copy(&sim, node, MIRROR);
                put(&store, 2, 2).await;
            }
        });
        sim.power_cut(node);
        heal_copy(&sim, node, MIRROR);
        let (gone, here) = if seed == 9 { (MIRROR, DIR) } else { (DIR, MIRROR) };
        take_away(&sim, node, gone);
        let env = sim.env(node);
        sim.block_on(async {
            if seed == 10 {
                assert!(open_error(&env, here).await.contains("left behind"));
                return;
            }
            let store = Store::open(&env, here, &quick()).await.unwrap();
            expect(&store, 1, 1).await;
            put(&store, 2, 2).await;
        });
    }
}

/// Checks the state after a crash with either copy alone; then with both copies, and with one of them after both were
/// served. Each content of the disks is checked once.
#[derive(Default)]
struct MirroredContents {
    /// By copy.
    alone: [Contents<u64>; 2],
    /// By the copy that is lost later.
    together: [Contents<u64>; 2],
}

impl MirroredContents {
    fn check(&mut self, history: &History, point: usize, images: &[DiskImage], what: &str) {
        let least = history.committed_at(point);
        let is_enough = |recovered: u64, of: &str| {
            assert!(recovered >= least, "{what}, {of}: {least} operations were committed, {recovered} recovered");
        };
        for (copy, dir) in DIRS.into_iter().enumerate() {
            let images = images[copy * 2..copy * 2 + 2].to_vec();
            let check = |images: Vec<DiskImage>| recovered_alone(history, copy, &images, what);
            is_enough(self.alone[copy].checked(images, false, check), dir);
        }
        let lost = point % 2;
        let check = |images: Vec<DiskImage>| recovered_together(history, lost, &images, what);
        is_enough(self.together[lost].checked(images.to_vec(), false, check), "both");
    }
}

/// A machine with the disks of some copies.
fn machine(history: &History, copies: &[usize], images: &[DiskImage]) -> (Sim, NodeId, Env) {
    let (sim, node, env) = simulated(history.seed);
    sim.set_files(node, history.files.clone());
    let paths = copies.iter().flat_map(|copy| [MIRRORED_DISKS[copy * 2], MIRRORED_DISKS[copy * 2 + 1]]);
    paths.zip(images).for_each(|(path, image)| sim.set_disk_image(node, path, image.clone()));
    (sim, node, env)
}

/// Opens a copy without the other one; returns how many operations it holds.
fn recovered_alone(history: &History, copy: usize, images: &[DiskImage], what: &str) -> u64 {
    let (sim, _, env) = machine(history, &[copy], images);
    let dir = DIRS[copy];
    sim.block_on(async {
        Store::mirror_alone(&env, dir).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let store = Store::open(&env, dir, &open_options()).await.unwrap_or_else(|e| panic!("{what}, {dir}: {e}"));
        let prefix = store.recovery().last_transno.0;
        verify(&store, &history.states[prefix as usize], what).await;
        prefix
    })
}

/// Opens both copies, then the one that is not lost; returns how many operations they hold.
fn recovered_together(history: &History, lost: usize, images: &[DiskImage], what: &str) -> u64 {
    let (sim, node, env) = machine(history, &[0, 1], images);
    let prefix = sim.block_on(async {
        let store = Store::open(&env, DIR, &open_options()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let prefix = store.recovery().last_transno.0;
        verify(&store, &history.states[prefix as usize], what).await;
        prefix
    });
    // What was served once must be there whichever copy is lost.
    sim.power_cut(node);
    let (lost, kept) = (DIRS[lost], DIRS[1 - lost]);
    take_away(&sim, node, lost);
    let env = sim.env(node);
    sim.block_on(async {
        Store::mirror_alone(&env, kept).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let store = Store::open(&env, kept, &open_options()).await.unwrap_or_else(|e| panic!("{what}, {kept}: {e}"));
        assert_eq!(store.recovery().last_transno.0, prefix, "{what}: {kept} after {lost} was lost");
        verify(&store, &history.states[prefix as usize], what).await;
    });
    prefix
}

/// |X| at each write, then one copy is gone
#[test]
fn either_copy_alone_holds_what_was_committed_at_any_point() {
    for seed in 0..6 {
        let mut history = record_on(seed, &mirrored(format_options()), &MIRRORED_DISKS);
        let points = history.recorder.points();
        let mut contents = MirroredContents::default();
        for point in (seed as usize % 5..points).step_by(5) {
            for tear in [TearChoice::AllLost, TearChoice::Random(seed ^ (point as u64) << 20)] {
                let images = history.recorder.image(point, tear);
                let what = format!("history {seed}, {}, {tear:?}", history.recorder.describe(point));
                contents.check(&history, point, &images, &what);
            }
        }
    }
}

/// fill |X| fill |X| ... until in sync, then the copy it was filled from is gone
#[test]
fn filling_a_copy_survives_crashes_anywhere() {
    for seed in 100..112u64 {
        let (sim, node, env) = simulated(seed);
        let mut states = vec![State::empty()];
        sim.block_on(async {
            let store = fresh(&env, &mirrored(format_options()), &open_options()).await;
            operate(&sim, &env, &store, &mut states, 40, &|| ()).await;
            break_copy(&sim, node, MIRROR);
            operate(&sim, &env, &store, &mut states, 80, &|| ()).await;
            store.sync().await.unwrap();
            let place = MirrorPlace { dir: "spare".into(), ..MirrorPlace::default() };
            Store::mirror_replace(&env, DIR, &place, false).await.unwrap();
        });
        sim.power_cut(node);
        let mut lives = 0;
        loop {
            let env = sim.env(node);
            lives += 1;
            let done = sim.block_on(async {
                let what = format!("seed {seed}, life {lives}");
                let store = Store::open(&env, DIR, &open_options()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
                let prefix = store.recovery().last_transno.0 as usize;
                assert!(prefix + 40 >= states.len(), "{what}");
                states.truncate(prefix + 1);
                verify(&store, &states[prefix], &what).await;
                let until = states.len() as u64 + sim.random_below(30);
                let work = operate(&sim, &env, &store, &mut states, until, &|| ());
                // The work is cut off at some point. Only the last life waits until the copies are in sync.
                let _ = env.timeout(Duration::from_micros(sim.random_below(20_000)), work).await;
                if lives < 6 {
                    return None;
                }
                store.sync().await.unwrap();
                until_in_sync(&env, &store).await;
                Some(store.last_committed().0 as usize)
            });
            sim.power_cut(node);
            let Some(committed) = done else { continue };
            take_away(&sim, node, DIR);
            let env = sim.env(node);
            sim.block_on(async {
                Store::mirror_alone(&env, "spare").await.unwrap();
                let store = Store::open(&env, "spare", &open_options()).await.unwrap();
                assert!(store.recovery().last_transno.0 as usize >= committed, "seed {seed}");
                let prefix = store.recovery().last_transno.0 as usize;
                verify(&store, &states[prefix], &format!("seed {seed}, filled")).await;
            });
            break;
        }
    }
}
