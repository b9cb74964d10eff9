//! Journals of several targets on one device, and a journal that moves. Nothing of a neighbour is ever touched, and a
//! crash at any time leaves each target one complete journal.

use std::time::Duration;

use crate::common::*;
use forebay_env::{
    Env, OpenDisk,
    sim::{DiskImage, Fault, NodeId, Sim},
};
use forebay_proto::TargetId;
use forebay_store::{FormatOptions, Identity, MirrorPlace, Store, StoreErrorKind, StoreResult};

const DEVICE: &str = "/dev/fast";
const OTHER: &str = "/dev/faster";
const MIB: u64 = 1 << 20;
/// Less than any disk request takes.
const STEP: Duration = Duration::from_micros(15);

fn simulated(seed: u64) -> (Sim, NodeId) {
    let sim = Sim::new(seed);
    let node = sim.add_node("oss0");
    for device in [DEVICE, OTHER] {
        sim.set_disk_image(node, device, DiskImage::zeroed(8 * MIB));
    }
    (sim, node)
}

/// A tiny target whose journal is a slot.
fn slotted(index: u32, device: &str) -> FormatOptions {
    let journal_path = Some(device.to_owned());
    FormatOptions { target: TargetId::ost(index), journal_path, journal_shared: true, ..tiny() }
}

fn dir(index: u32) -> String {
    format!("ost{index}")
}

async fn format(env: &Env, index: u32, device: &str) -> StoreResult<Identity> {
    Store::format(env, &dir(index), &slotted(index, device)).await
}

async fn open(env: &Env, index: u32) -> Store {
    Store::open(env, &dir(index), &quick()).await.unwrap_or_else(|e| panic!("OST{index:04x}: {e}"))
}

/// Writes durably, so that the target can be told from others and from its earlier state.
async fn put(store: &Store, index: u32, sequence: u64) {
    write(store, fid(u64::from(index)), 0, 9000, sequence).await.unwrap();
    store.sync().await.unwrap();
}

async fn holds(store: &Store, index: u32, sequence: u64) {
    let object = fid(u64::from(index));
    let bytes = read(store, object, 0..9000).await.unwrap();
    assert!((0..9000).zip(bytes.iter()).all(|(at, byte)| *byte == stamp(object, at, sequence)), "OST{index:04x}");
}

/// Formats, writes to and cleanly stops a target.
async fn settled(env: &Env, index: u32, device: &str) {
    format(env, index, device).await.unwrap();
    let store = open(env, index).await;
    put(&store, index, 1).await;
    store.close().await.unwrap();
}

async fn slots(env: &Env, device: &str) -> Vec<(u32, u64, u64)> {
    let slots = Store::journal_slots(env, device).await.unwrap();
    assert!(slots.iter().all(|slot| !slot.unfinished), "{slots:?}");
    slots.iter().map(|slot| (slot.name.index, slot.offset, slot.bytes)).collect()
}

/// Runs `work` on the node and cuts its power after each step of time, until `work` completes. `check` examines what is
/// left. Returns the number of cuts.
fn cut_at_every_step<F: Future<Output = ()> + 'static>(
    prepare: impl Fn(&Sim, NodeId),
    work: impl Fn(Env) -> F,
    check: impl Fn(&Sim, NodeId, bool),
) -> u32 {
    for cuts in 0.. {
        let (sim, node) = simulated(u64::from(cuts));
        prepare(&sim, node);
        sim.power_cut(node);
        let done = std::rc::Rc::new(std::cell::Cell::new(false));
        let (told, work) = (done.clone(), &work);
        sim.start(node, |env| {
            let work = work(env);
            async move {
                work.await;
                told.set(true);
            }
        });
        sim.run_for(STEP * cuts);
        sim.power_cut(node);
        check(&sim, node, done.get());
        if done.get() {
            return cuts;
        }
    }
    unreachable!("the work ends")
}

#[test]
fn targets_share_a_device_and_each_keeps_its_own_through_a_power_cut() {
    let (sim, node) = simulated(1);
    let env = sim.env(node);
    sim.block_on(async {
        // All at once.
        let formats: Vec<_> = (0..4)
            .map(|index| {
                let env2 = env.clone();
                env.spawn(async move { format(&env2, index, DEVICE).await.map(drop) })
            })
            .collect();
        for task in formats {
            task.await.expect("it ends").unwrap();
        }
        let mut taken = slots(&env, DEVICE).await;
        assert_eq!(taken.iter().map(|slot| slot.1).collect::<Vec<_>>(), [MIB, 2 * MIB, 3 * MIB, 4 * MIB]);
        taken.sort_unstable();
        assert_eq!(taken.iter().map(|slot| (slot.0, slot.2)).collect::<Vec<_>>(), [0, 1, 2, 3].map(|n| (n, 256 << 10)));
        let mut stores = Vec::new();
        for index in 0..4 {
            stores.push(open(&env, index).await);
        }
        for sequence in 1..=200 {
            for (index, store) in (0..).zip(&stores) {
                put(store, index, sequence).await;
            }
        }
        let wraps = stores[0].stats().checkpoints;
        assert!(wraps > 1, "the journal never went around");
    });
    sim.power_cut(node);
    let env = sim.env(node);
    sim.block_on(async {
        for index in 0..4 {
            holds(&open(&env, index).await, index, 200).await;
        }
    });
}

#[test]
fn a_slot_is_open_once_and_is_not_freed_while_it_is() {
    let (sim, node) = simulated(2);
    let env = sim.env(node);
    sim.block_on(async {
        settled(&env, 0, DEVICE).await;
        settled(&env, 1, DEVICE).await;
        let store = open(&env, 0).await;
        // A copy of its directory, served beside it.
        for file in ["identity", "journal.path"] {
            env.write_file(&format!("copy/{file}"), &env.read_file(&format!("ost0/{file}")).unwrap()).unwrap();
        }
        env.write_file("copy/data.path", b"ost0/data\n").unwrap();
        assert_eq!(kind(Store::open(&env, "copy", &quick()).await.map(drop)), Some(StoreErrorKind::Busy));
        let target = store.identity().uuid;
        assert_eq!(kind(Store::free_journal_slot(&env, DEVICE, target).await), Some(StoreErrorKind::Busy));
        put(&store, 0, 2).await;
        store.close().await.unwrap();
        Store::free_journal_slot(&env, DEVICE, target).await.unwrap();
        assert_eq!(kind(Store::free_journal_slot(&env, DEVICE, target).await), Some(StoreErrorKind::Invalid));
        let error = Store::open(&env, &dir(0), &quick()).await.err().unwrap();
        assert!(error.kind == StoreErrorKind::Foreign && error.message.contains("forebay journal list"), "{error}");
        // The next target takes its slot, and the neighbour is unchanged.
        format(&env, 2, DEVICE).await.unwrap();
        assert_eq!(slots(&env, DEVICE).await.iter().map(|slot| slot.0).collect::<Vec<_>>(), [2, 1]);
        holds(&open(&env, 1).await, 1, 1).await;
    });
}

#[test]
fn a_device_that_holds_anything_or_has_no_room_is_refused_and_left_as_it_is() {
    let (sim, node) = simulated(3);
    let env = sim.env(node);
    sim.block_on(async {
        // Another target uses the whole device.
        let whole = FormatOptions { journal_shared: false, ..slotted(0, DEVICE) };
        let identity = Store::format(&env, &dir(0), &whole).await.unwrap();
        assert_eq!(identity.journal_bytes, 8 * MIB);
        let before = sim.disk_bytes(node, DEVICE);
        for share in [false, true] {
            let options = FormatOptions { journal_shared: share, ..slotted(1, DEVICE) };
            let error = Store::format(&env, &dir(1), &options).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Busy);
            assert!(error.message.contains(&identity.uuid.to_string()) && error.message.contains("--journal-size"));
        }
        assert!(sim.disk_bytes(node, DEVICE) == before);
        // A file system, or anything else.
        let mut foreign = DiskImage::zeroed(8 * MIB);
        foreign.write(0x438, &[0x53, 0xef]);
        sim.set_disk_image(node, OTHER, foreign.clone());
        let error = format(&env, 1, OTHER).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Busy && error.message.contains("--overwrite-journal"), "{error}");
        assert!(sim.disk_image(node, OTHER) == foreign);
        // The operator allows overwriting it.
        let options = FormatOptions { journal_overwrite: true, ..slotted(1, OTHER) };
        Store::format(&env, &dir(1), &options).await.unwrap();
        let before = sim.disk_bytes(node, OTHER);
        // A slot of a shared device may not be overwritten, and the device has no space for a journal of this size.
        let options = FormatOptions { journal_bytes: 7 * MIB, journal_overwrite: true, ..slotted(2, OTHER) };
        let error = Store::format(&env, &dir(2), &options).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Full && error.message.contains("smaller --journal-size"), "{error}");
        let options = FormatOptions { journal_bytes: 4096, ..slotted(2, OTHER) };
        assert_eq!(kind(Store::format(&env, &dir(2), &options).await), Some(StoreErrorKind::Invalid));
        assert!(sim.disk_bytes(node, OTHER) == before, "a refused format wrote to the device");
        // Blank, and too small for slots.
        sim.set_disk_image(node, DEVICE, DiskImage::zeroed(MIB));
        let error = format(&env, 3, DEVICE).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Full, "{error}");
        assert!(sim.disk_image(node, DEVICE) == DiskImage::zeroed(MIB));
    });
}

#[test]
fn a_format_cut_off_anywhere_costs_no_slot_and_no_neighbour() {
    let cuts = cut_at_every_step(
        |sim, node| {
            let env = sim.env(node);
            sim.block_on(settled(&env, 0, DEVICE));
        },
        |env| async move { format(&env, 1, DEVICE).await.map(|_| ()).unwrap() },
        |sim, node, done| {
            let env = sim.env(node);
            sim.block_on(async {
                let made = Store::peek_identity(&env, &dir(1)).is_ok();
                assert!(made || !done);
                if !made {
                    format(&env, 1, DEVICE).await.unwrap();
                }
                holds(&open(&env, 0).await, 0, 1).await;
                put(&open(&env, 1).await, 1, 1).await;
                let taken = slots(&env, DEVICE).await;
                // A slot is lost only by a crash between the last step before the identity and the identity.
                assert!(taken.len() == 2 || taken.len() == 3 && !made, "{taken:?}");
            });
        },
    );
    assert!(cuts > 20, "{cuts} cuts");
}

#[test]
fn a_first_format_cut_off_anywhere_leaves_a_device_that_can_be_shared() {
    let cuts = cut_at_every_step(
        |sim, node| drop(sim.env(node)),
        |env| async move { format(&env, 0, DEVICE).await.map(|_| ()).unwrap() },
        |sim, node, _| {
            let env = sim.env(node);
            sim.block_on(async {
                format(&env, 1, DEVICE).await.unwrap();
                put(&open(&env, 1).await, 1, 1).await;
            });
        },
    );
    assert!(cuts > 20, "{cuts} cuts");
}

/// Moves the journal of OST0000 from `from` to `to`, cut off at each step; then again, to the end.
fn moved_and_cut_off(from: Option<&'static str>, to: &'static str) {
    let cuts = cut_at_every_step(
        |sim, node| {
            let env = sim.env(node);
            sim.block_on(async {
                settled(&env, 1, DEVICE).await;
                settled(&env, 2, OTHER).await;
                let options = FormatOptions { journal_path: from.map(str::to_owned), ..slotted(0, DEVICE) };
                Store::format(&env, &dir(0), &options).await.unwrap();
                let store = open(&env, 0).await;
                put(&store, 0, 1).await;
                store.close().await.unwrap();
            });
        },
        move |env| async move { drop(Store::move_journal(&env, &dir(0), to).await.unwrap()) },
        |sim, node, _| {
            // Served as it is, with whichever journal it has.
            let env = sim.env(node);
            sim.block_on(async {
                let store = open(&env, 0).await;
                holds(&store, 0, 1).await;
                put(&store, 0, 2).await;
                store.close().await.unwrap();
                match Store::move_journal(&env, &dir(0), to).await {
                    Ok(moved) => assert!((moved.to.as_str(), moved.left_behind) == (to, None)),
                    // The move was complete: nothing was left to do.
                    Err(error) => assert!(error.kind == StoreErrorKind::Invalid, "{error}"),
                }
                let error = Store::move_journal(&env, &dir(0), to).await.unwrap_err();
                assert!(error.message.contains("already"), "{error}");
            });
            sim.power_cut(node);
            let env = sim.env(node);
            sim.block_on(async {
                let store = open(&env, 0).await;
                assert!(store.recovery().clean);
                holds(&store, 0, 2).await;
                holds(&open(&env, 1).await, 1, 1).await;
                holds(&open(&env, 2).await, 2, 1).await;
                let of = async |device| slots(&env, device).await.iter().filter(|slot| slot.0 == 0).count();
                let expected = |device| usize::from(to == device);
                assert_eq!((of(DEVICE).await, of(OTHER).await), (expected(DEVICE), expected(OTHER)));
                assert!(env.read_file("ost0/journal.move").is_err());
                assert_eq!(sim.disks(node).iter().any(|path| path == "ost0/journal"), to == "ost0/journal");
            });
        },
    );
    assert!(cuts > 20, "{cuts} cuts");
    println!("{from:?} to {to}: {cuts} cuts");
}

#[test]
fn a_move_from_slot_to_slot_cut_off_anywhere_leaves_one_whole_journal() {
    moved_and_cut_off(Some(DEVICE), OTHER);
}

#[test]
fn a_move_from_the_directory_to_a_slot_cut_off_anywhere_leaves_one_whole_journal() {
    moved_and_cut_off(None, OTHER);
}

#[test]
fn a_move_from_a_slot_to_the_directory_cut_off_anywhere_leaves_one_whole_journal() {
    moved_and_cut_off(Some(DEVICE), "ost0/journal");
}

#[test]
fn a_move_is_refused_where_it_cannot_be_made_and_changes_nothing() {
    let (sim, node) = simulated(5);
    let env = sim.env(node);
    sim.block_on(async {
        settled(&env, 0, DEVICE).await;
        let refused = async |to: &str, said: &str| {
            let error = Store::move_journal(&env, &dir(0), to).await.unwrap_err();
            assert!(error.message.contains(said), "{said}: {error}");
        };
        let store = open(&env, 0).await;
        refused(OTHER, "stop it first").await;
        put(&store, 0, 2).await;
        store.close().await.unwrap();
        refused(DEVICE, "already").await;
        // The same device by another name.
        sim.set_disk_image(node, "/dev/by-name", sim.disk_image(node, DEVICE));
        refused("/dev/by-name", "on which the journal lies already").await;
        sim.set_disk_image(node, "/dev/small", DiskImage::zeroed(64 << 10));
        refused("/dev/small", "larger").await;
        let whole = FormatOptions { journal_shared: false, ..slotted(1, OTHER) };
        Store::format(&env, &dir(1), &whole).await.unwrap();
        // The advice names no flag that a move does not have.
        refused(OTHER, "has all of it: give another place; if what is there is of no worth, remove the file first")
            .await;
        holds(&open(&env, 0).await, 0, 2).await;
        drop(open(&env, 1).await);
        // Not stopped cleanly: the last one was not closed.
        env.sleep(Duration::from_secs(1)).await;
        refused("ost0/journal", "not stopped cleanly").await;
        holds(&open(&env, 0).await, 0, 2).await;
    });
}

#[test]
fn one_copy_of_the_directory_may_rot_and_not_both() {
    for (rotten, survives) in [(vec![0u64], true), (vec![4096], true), (vec![0, 4096], false)] {
        let (sim, node) = simulated(6);
        let env = sim.env(node);
        sim.block_on(async {
            settled(&env, 0, DEVICE).await;
            // Both copies list it.
            settled(&env, 1, DEVICE).await;
        });
        for at in rotten {
            sim.disk_fault(node, DEVICE, Fault::Rot { offset: at + 70, bits: 4 });
        }
        sim.block_on(async {
            if survives {
                holds(&open(&env, 0).await, 0, 1).await;
                settled(&env, 2, DEVICE).await;
                return;
            }
            let error = Store::open(&env, &dir(0), &quick()).await.err().unwrap();
            assert!(error.kind == StoreErrorKind::Corrupt && error.message.contains("fsck"), "{error}");
            let before = sim.disk_image(node, DEVICE);
            assert_eq!(kind(format(&env, 2, DEVICE).await.map(drop)), Some(StoreErrorKind::Corrupt));
            assert!(sim.disk_image(node, DEVICE) == before);
        });
    }
}

#[test]
fn a_mirrored_target_has_a_slot_on_each_of_two_devices() {
    let (sim, node) = simulated(8);
    let env = sim.env(node);
    sim.block_on(async {
        settled(&env, 0, DEVICE).await;
        let place = |device: &str| MirrorPlace {
            dir: MIRROR.into(),
            journal_path: Some(device.to_owned()),
            ..MirrorPlace::default()
        };
        // Two copies on one device are not two copies.
        let both = FormatOptions { mirror: Some(place(DEVICE)), ..slotted(1, DEVICE) };
        assert_eq!(kind(Store::format(&env, DIR, &both).await), Some(StoreErrorKind::Busy));
        assert_eq!(slots(&env, DEVICE).await.len(), 1);
        let two = FormatOptions { mirror: Some(place(OTHER)), ..slotted(1, DEVICE) };
        Store::format(&env, DIR, &two).await.unwrap();
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        put(&store, 1, 1).await;
        assert!(!store.mirror().expect("it is mirrored").is_degraded());
        let moved = Store::move_journal(&env, MIRROR, OTHER).await;
        assert_eq!(kind(moved), Some(StoreErrorKind::Busy));
    });
    sim.power_cut(node);
    let env = sim.env(node);
    sim.block_on(async {
        let store = Store::open(&env, DIR, &quick()).await.unwrap();
        assert!(!store.mirror().expect("it is mirrored").is_degraded());
        holds(&store, 1, 1).await;
        holds(&open(&env, 0).await, 0, 1).await;
        let of = async |device| slots(&env, device).await.iter().map(|slot| slot.2).collect::<Vec<_>>();
        assert_eq!(
            (of(DEVICE).await, of(OTHER).await),
            (vec![256 << 10, (256 << 10) + 8192], vec![(256 << 10) + 8192])
        );
    });
}

#[test]
fn a_start_without_its_journal_is_refused_in_words() {
    let (sim, node) = simulated(7);
    let env = sim.env(node);
    sim.block_on(async {
        Store::format(&env, DIR, &tiny()).await.unwrap();
        env.remove_file("target/journal").unwrap();
        let error = Store::open(&env, DIR, &quick()).await.err().unwrap();
        assert!(error.kind == StoreErrorKind::Foreign && error.message.contains("forebay fsck --repair"), "{error}");
    });
}

/// a journal in a slot, looked for elsewhere | a new one is asked for in the same slot
#[test]
fn a_journal_that_is_in_its_slot_is_not_made_anew_there() {
    let (sim, node) = simulated(71);
    let env = sim.env(node);
    sim.block_on(async {
        settled(&env, 0, DEVICE).await;
        settled(&env, 1, DEVICE).await;
        let path_file = format!("{}/journal.path", dir(0));
        env.write_file(&path_file, format!("{OTHER}\n").as_bytes()).unwrap();
        let before = slots(&env, DEVICE).await;
        let error = Store::new_journal(&env, &dir(0), DEVICE).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Invalid && error.message.contains("not lost"), "{error}");
        assert_eq!(slots(&env, DEVICE).await, before);
        env.write_file(&path_file, format!("{DEVICE}\n").as_bytes()).unwrap();
        let store = open(&env, 0).await;
        holds(&store, 0, 1).await;
        store.close().await.unwrap();
    });
}

/// a journal in a file elsewhere | the file is removed
#[test]
fn a_journal_file_that_is_lost_is_made_anew_where_it_was_if_that_is_said() {
    const FILE: &str = "journals/ost0";
    let (sim, node) = simulated(72);
    let env = sim.env(node);
    sim.block_on(async {
        Store::format(&env, DIR, &FormatOptions { journal_path: Some(FILE.into()), ..tiny() }).await.unwrap();
        let error = Store::new_journal(&env, DIR, FILE).await.unwrap_err();
        assert!(error.message.contains("leave out --journal"), "{error}");
        env.remove_file(FILE).unwrap();
        let error = Store::open(&env, DIR, &quick()).await.err().unwrap();
        assert!(error.message.contains("forebay fsck --repair --journal PATH"), "{error}");
        Store::new_journal(&env, DIR, FILE).await.unwrap();
        assert!(env.open_disk(FILE, OpenDisk::default()).await.unwrap().info().bytes > 0);
        // A device that is away is not made as a file.
        env.write_file(&format!("{DIR}/journal.path"), b"/dev/away\n").unwrap();
        let error = Store::new_journal(&env, DIR, "/dev/away").await.unwrap_err();
        assert!(error.message.contains("bring the device back"), "{error}");
    });
}
