//! The server dies at any moment. Names, handles and objects are then as before an operation or as after it, never in
//! between.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, time::Duration};

use crate::common::*;
use forebay_proto::{
    Errno, Fid,
    message::{SetAttr, attr_flags, open_flags, set_attr},
};

const INODE: u8 = 0x21;
const ORPHAN: u8 = 0x24;
const HANDLE: u8 = 0x25;
const DESTROY: u8 = 0x27;
const TRUNCATE: u8 = 0x28;

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_file_is_made_written_closed_listed_and_deleted_with_its_objects() {
    let world = World::new(1, Setup::default());
    let client = world.client("a");
    world.sim.block_on(async {
        let dir = client.mkdir(Fid::ROOT, "d").await.unwrap();
        let (fid, handle, ost) = client.create(dir, "f").await.unwrap();
        client.write(fid, ost, 1234).await.unwrap();
        client.close(fid, handle, 1234).await.unwrap();
        assert_eq!(client.lookup(dir, "f").await.unwrap().size, 1234);
        assert_eq!(client.names(dir).await, BTreeMap::from([("f".to_owned(), fid)]));
        assert_eq!(client.rmdir(Fid::ROOT, "d").await, Err(Errno::ENOTEMPTY));
        client.unlink(dir, "f").await.unwrap();
        client.rmdir(Fid::ROOT, "d").await.unwrap();
    });
    assert_eq!(world.objects().len(), 1);
    world.sim.run_for(Duration::from_secs(2));
    assert_eq!((world.objects().len(), world.rows(DESTROY), world.rows(INODE)), (0, 0, 1));
}

/// A client changes names in its own directory and compares with a model, while the server crashes again and again.
async fn churn(client: Rc<Client>, name: &'static str, steps: u64, seed: u64) {
    let dir = client.mkdir(Fid::ROOT, name).await.unwrap();
    let mut names: BTreeMap<String, Fid> = BTreeMap::new();
    let mut state = seed;
    let mut below = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for step in 0..steps {
        let (a, b) = (format!("n{}", below(8)), format!("n{}", below(8)));
        let there = names.get(&a).copied();
        match below(5) {
            0 | 1 => match (client.create(dir, &a).await, there) {
                (Ok((fid, handle, ost)), None) => {
                    client.write(fid, ost, step + 1).await.unwrap();
                    client.close(fid, handle, step + 1).await.unwrap();
                    names.insert(a, fid);
                }
                (Err(Errno::EEXIST), Some(_)) => {}
                other => panic!("seed {seed} step {step}: create {a}: {other:?}"),
            },
            2 => {
                let expected = there.map(drop).ok_or(Errno::ENOENT);
                assert_eq!(client.unlink(dir, &a).await, expected, "seed {seed} step {step}: unlink {a}");
                names.remove(&a);
            }
            3 => {
                let expected = there.map(drop).ok_or(Errno::ENOENT);
                let got = client.rename((dir, &a), (dir, &b)).await;
                assert_eq!(got, expected, "seed {seed} step {step}: rename {a} {b}");
                if let Some(fid) = there {
                    if names.get(&b) != Some(&fid) {
                        names.remove(&a);
                    }
                    names.insert(b, fid);
                }
            }
            _ => {
                let Some(fid) = there else { continue };
                let expected = if names.contains_key(&b) { Err(Errno::EEXIST) } else { Ok(()) };
                assert_eq!(client.link(fid, dir, &b).await, expected, "seed {seed} step {step}: link {a} {b}");
                names.entry(b).or_insert(fid);
            }
        }
    }
    assert_eq!(client.names(dir).await, names, "seed {seed}");
    for name in names.into_keys() {
        client.unlink(dir, &name).await.unwrap();
    }
    client.rmdir(Fid::ROOT, name).await.unwrap();
}

/// create, rename, link, unlink |SIGKILL, power| replay
#[test]
fn two_clients_keep_every_name_through_many_crashes_and_nothing_leaks() {
    let mut replays = 0;
    for seed in 0..12 {
        let world = World::new(seed, Setup::default());
        let (a, b) = (world.client("a"), world.client("b"));
        let tasks = vec![
            a.env.spawn(churn(a.clone(), "a", 150, seed)),
            a.env.spawn(churn(a.clone(), "a2", 150, seed + 100)),
            b.env.spawn(churn(b.clone(), "b", 150, seed + 200)),
        ];
        for _ in 0..6 {
            world.sim.run_for(millis(5 + world.sim.random_below(40)));
            if world.sim.chance(0.5) {
                world.kill_mds()
            } else {
                world.power_cut_mds()
            }
            world.sim.run_for(millis(world.sim.random_below(50)));
            world.start_mds();
        }
        world.finish(tasks, &format!("seed {seed}"));
        world.sim.run_for(Duration::from_secs(5));
        assert_eq!((a.lost.get(), b.lost.get()), (0, 0), "seed {seed}: nobody was evicted");
        replays += a.mdt.stats().replays + b.mdt.stats().replays;
        let rows = [INODE, ORPHAN, HANDLE, DESTROY].map(|kind| world.rows(kind));
        assert_eq!((rows, world.objects().len()), ([1, 0, 0, 0], 0), "seed {seed}: {}", world.status());
    }
    assert!(replays > 100, "only {replays} replays: the crashes came too early or too late");
}

/// create in a directory of another's |power, that client is gone| nothing to replay upon
#[test]
fn a_create_in_another_clients_uncommitted_directory_commits_the_directory_before_the_reply() {
    let setup = Setup { commit_interval: Duration::from_secs(3600), window: millis(500), ..Setup::default() };
    let world = World::new(3, setup);
    let (a, b) = (world.client("a"), world.client("b"));
    let fid = world.sim.block_on(async {
        let dir = a.mkdir(Fid::ROOT, "d").await.unwrap();
        a.give_back(dir).await;
        b.create(dir, "f").await.unwrap().0
    });
    world.sim.crash(a.node);
    world.power_cut_mds();
    world.start_mds();
    world.sim.block_on(async { assert_eq!(b.getattr(fid).await.unwrap().fid, fid) });
    assert_eq!((b.lost.get(), b.mdt.stats().replays), (0, 0));
}

/// unlinks by two, rmdir by one of them |power, the other is gone| nothing of the first is lost
#[test]
fn rmdir_commits_the_unlinks_of_another_client_in_the_directory_first() {
    let setup = Setup { commit_interval: Duration::from_secs(2), window: millis(500), ..Setup::default() };
    let world = World::new(3, setup);
    let (a, b) = (world.client("a"), world.client("b"));
    let dir = world.sim.block_on(async {
        let dir = a.mkdir(Fid::ROOT, "d").await.unwrap();
        a.mknod(dir, "f1").await.unwrap();
        a.mknod(dir, "f2").await.unwrap();
        dir
    });
    world.sim.run_for(Duration::from_secs(10));
    world.sim.block_on(async {
        a.unlink(dir, "f1").await.unwrap();
        a.give_back(dir).await;
        b.unlink(dir, "f2").await.unwrap();
        b.rmdir(Fid::ROOT, "d").await.unwrap();
    });
    world.sim.crash(a.node);
    world.power_cut_mds();
    world.start_mds();
    world.sim.block_on(async { assert_eq!(b.lookup(Fid::ROOT, "d").await.err(), Some(Errno::ENOENT)) });
    assert_eq!((b.lost.get(), a.mdt.stats().evictions), (0, 0));
}

/// unlink of an open file |power| its opener is back, then closes
#[test]
fn an_unlinked_open_file_lives_until_its_last_close_across_a_crash() {
    let world = World::new(4, Setup::default());
    let client = world.client("a");
    let (fid, handle) = world.sim.block_on(async {
        let (fid, handle, ost) = client.create(Fid::ROOT, "f").await.unwrap();
        client.write(fid, ost, 10).await.unwrap();
        client.unlink(Fid::ROOT, "f").await.unwrap();
        (fid, handle)
    });
    world.power_cut_mds();
    world.start_mds();
    world.sim.block_on(async { assert_eq!(client.getattr(fid).await.unwrap().nlink, 0) });
    world.sim.run_for(Duration::from_secs(3));
    assert_eq!((world.rows(ORPHAN), world.objects().len()), (1, 1));
    world.sim.block_on(async { client.close(fid, handle, 10).await.unwrap() });
    world.sim.run_for(Duration::from_secs(3));
    assert_eq!((world.rows(ORPHAN), world.rows(INODE), world.objects().len()), (0, 1, 0));
}

/// unlink of an open file |power, the opener is gone too| reaped
#[test]
fn an_orphan_whose_opener_does_not_come_back_is_reaped_with_its_objects() {
    let world = World::new(5, Setup::default());
    let (gone, other) = (world.client("a"), world.client("b"));
    world.sim.block_on(async {
        let (fid, _, ost) = gone.create(Fid::ROOT, "f").await.unwrap();
        gone.write(fid, ost, 10).await.unwrap();
        gone.unlink(Fid::ROOT, "f").await.unwrap();
        other.mkdir(Fid::ROOT, "d").await.unwrap();
    });
    world.sim.run_for(millis(200));
    world.sim.crash(gone.node);
    world.power_cut_mds();
    world.start_mds();
    world.sim.run_for(Duration::from_secs(10));
    let rows = [INODE, ORPHAN, HANDLE, DESTROY].map(|kind| world.rows(kind));
    assert_eq!((rows, world.objects().len()), ([2, 0, 0, 0], 0), "{}", world.status());
}

/// create, write |MDT and client die before the commit| collection
#[test]
fn an_object_whose_create_was_lost_with_client_and_mdt_is_collected() {
    let setup = Setup { commit_interval: Duration::from_secs(3600), window: millis(500), ..Setup::default() };
    let world = World::new(6, setup);
    let (gone, other) = (world.client("a"), world.client("b"));
    world.sim.block_on(async {
        let (kept, handle, ost) = gone.create(Fid::ROOT, "kept").await.unwrap();
        gone.write(kept, ost, 10).await.unwrap();
        gone.close(kept, handle, 10).await.unwrap();
        other.lookup(Fid::ROOT, "kept").await.unwrap();
        for number in 0..7 {
            let (fid, _, ost) = gone.create(Fid::ROOT, &format!("lost{number}")).await.unwrap();
            gone.write(fid, ost, 10).await.unwrap();
        }
    });
    assert_eq!(world.objects().len(), 8);
    world.sim.crash(gone.node);
    world.power_cut_mds();
    world.start_mds();
    world.sim.run_for(Duration::from_secs(60));
    assert_eq!(world.sim.block_on(other.names(Fid::ROOT)).len(), 1);
    assert_eq!((world.rows(INODE), world.objects().len(), world.rows(DESTROY)), (2, 1, 0), "{}", world.status());
}

/// mknod, open for writing, write |MDT and client die before anything else is committed| unlink
#[test]
fn unlink_destroys_the_objects_of_a_file_whose_first_writer_died_with_the_mdt() {
    let setup = Setup { commit_interval: Duration::from_secs(3600), window: millis(500), ..Setup::default() };
    let world = World::new(8, setup);
    let (gone, other) = (world.client("a"), world.client("b"));
    let fid = world.sim.block_on(async {
        let (fid, ost) = other.mknod(Fid::ROOT, "f").await.unwrap();
        // It is committed before it is shown.
        gone.lookup(Fid::ROOT, "f").await.unwrap();
        gone.open(fid, open_flags::WRITE).await.unwrap();
        gone.write(fid, ost, 10).await.unwrap();
        fid
    });
    assert_eq!(world.objects().len(), 1);
    world.sim.crash(gone.node);
    world.power_cut_mds();
    world.start_mds();
    world.sim.run_for(Duration::from_secs(10));
    assert_eq!(world.sim.block_on(other.getattr(fid)).unwrap().size, 10);
    world.sim.block_on(other.unlink(Fid::ROOT, "f")).unwrap();
    world.sim.run_for(Duration::from_secs(3));
    assert_eq!((world.objects().len(), world.rows(DESTROY)), (0, 0));
}

/// The same for a second writer: the open of the first is not committed either when it asks.
#[test]
fn unlink_destroys_the_objects_of_a_file_whose_second_writer_died_with_the_mdt() {
    for later in (0..2000).step_by(50).map(Duration::from_micros) {
        let setup = Setup { commit_interval: Duration::from_secs(3600), window: millis(500), ..Setup::default() };
        let world = World::new(9, setup);
        let (first, gone, other) = (Rc::new(world.client("a")), Rc::new(world.client("b")), world.client("c"));
        let (fid, ost) = world.sim.block_on(async {
            let (fid, ost) = other.mknod(Fid::ROOT, "f").await.unwrap();
            gone.open(fid, open_flags::READ).await.unwrap();
            (fid, ost)
        });
        world.sim.run_for(Duration::from_secs(10));
        let opener = first.clone();
        drop(world.sim.env(first.node).spawn(async move { opener.open(fid, open_flags::WRITE).await }));
        world.sim.run_for(later);
        let (stage, writer) = (Rc::new(Cell::new(0)), gone.clone());
        let reached = stage.clone();
        drop(world.sim.env(gone.node).spawn(async move {
            writer.open(fid, open_flags::WRITE).await.unwrap();
            reached.set(1);
            writer.write(fid, ost, 10).await.unwrap();
            reached.set(2);
        }));
        let until = |wanted| {
            while stage.get() < wanted {
                world.sim.run_for(Duration::from_micros(1));
            }
        };
        until(1);
        world.power_cut_mds();
        until(2);
        [first.node, gone.node].into_iter().for_each(|node| world.sim.crash(node));
        world.start_mds();
        world.sim.run_for(Duration::from_secs(10));
        assert_eq!(world.sim.block_on(other.getattr(fid)).unwrap().size, 10, "{later:?}");
        world.sim.block_on(other.unlink(Fid::ROOT, "f")).unwrap();
        world.sim.run_for(Duration::from_secs(3));
        assert_eq!((world.objects().len(), world.rows(DESTROY)), (0, 0), "{later:?}");
    }
}

#[test]
fn the_size_of_a_file_whose_writer_died_comes_from_the_osts() {
    let world = World::new(7, Setup { session_timeout: Duration::from_secs(3), ..Setup::default() });
    let (gone, other) = (world.client("a"), world.client("b"));
    let fid = world.sim.block_on(async {
        let (fid, _, ost) = gone.create(Fid::ROOT, "f").await.unwrap();
        gone.write(fid, ost, 4321).await.unwrap();
        other.lookup(Fid::ROOT, "f").await.unwrap();
        fid
    });
    world.sim.crash(gone.node);
    world.sim.run_for(Duration::from_secs(20));
    let attr = world.sim.block_on(other.getattr(fid)).unwrap();
    // The dead writer can no longer report whether the file has holes.
    assert_eq!((attr.size, attr.flags), (4321, attr_flags::SPARSE));
    assert_eq!(world.rows(HANDLE), 0);
    // Nor that it has written: the object is destroyed with the file all the same.
    world.sim.block_on(other.unlink(Fid::ROOT, "f")).unwrap();
    world.sim.run_for(Duration::from_secs(2));
    assert_eq!((world.objects().len(), world.rows(DESTROY)), (0, 0));
}

fn cut(fid: Fid, size: u64) -> SetAttr {
    let (mask, mode, uid, gid, atime_ns, mtime_ns, handle) = (set_attr::SIZE, 0, 0, 0, 0, 0, 0);
    SetAttr { caller: root(), fid, mask, mode, uid, gid, size, atime_ns, mtime_ns, handle, at_ns: 0 }
}

/// truncate |MDT dies while an OST is away| driven from the log
#[test]
fn logged_truncate_completes_after_any_crash() {
    let world = World::new(8, Setup::default());
    let client = world.client("a");
    let (fid, ost) = world.sim.block_on(async {
        let (fid, handle, ost) = client.create(Fid::ROOT, "f").await.unwrap();
        client.write(fid, ost, 1000).await.unwrap();
        client.close(fid, handle, 1000).await.unwrap();
        client.osts[ost as usize].committed(forebay_proto::Transno(1)).await.unwrap();
        (fid, ost)
    });
    world.sim.run_for(millis(200));
    world.kill_ost(ost);
    let (cutter, replied) = (client.clone(), Rc::new(Cell::new(false)));
    let done = replied.clone();
    let task = client.env.spawn(async move {
        assert_eq!(cutter.ask(&cut(fid, 10)).await.unwrap().attr.size, 10);
        done.set(true);
    });
    world.sim.run_for(millis(500));
    assert_eq!(world.rows(TRUNCATE), 1);
    world.power_cut_mds();
    world.start_mds();
    world.sim.run_for(Duration::from_secs(30));
    assert!(!replied.get(), "the kept reply left before the OST has heard of the truncate: it would cut later writes");
    world.start_ost(ost);
    world.finish(vec![task], "truncate");
    world.sim.run_for(Duration::from_secs(5));
    assert_eq!((world.rows(TRUNCATE), world.objects()[&(ost, fid)]), (0, 10));
    let attr = world.sim.block_on(client.getattr(fid)).unwrap();
    assert_eq!((attr.size, attr.truncate_epoch), (10, 1));
}

#[test]
fn destroys_wait_for_an_ost_that_is_away_without_holding_up_the_others() {
    let world = World::new(9, Setup::default());
    let client = world.client("a");
    world.sim.block_on(async {
        for number in 0..10 {
            let name = format!("f{number}");
            let (fid, handle, ost) = client.create(Fid::ROOT, &name).await.unwrap();
            client.write(fid, ost, 10).await.unwrap();
            client.close(fid, handle, 10).await.unwrap();
        }
    });
    world.sim.run_for(millis(500));
    world.kill_ost(0);
    world.sim.block_on(async {
        for number in 0..10 {
            client.unlink(Fid::ROOT, &format!("f{number}")).await.unwrap();
        }
    });
    world.sim.run_for(Duration::from_secs(3));
    let left = world.rows(DESTROY);
    assert!(left > 0 && left < 10, "{left}");
    world.start_ost(0);
    world.sim.run_for(Duration::from_secs(20));
    assert_eq!((world.rows(DESTROY), world.objects().len()), (0, 0));
}

#[test]
fn new_files_avoid_an_ost_that_is_away() {
    let world = World::new(10, Setup::default());
    let client = world.client("a");
    world.kill_ost(0);
    world.sim.run_for(Duration::from_secs(15));
    world.sim.block_on(async {
        for number in 0..10 {
            assert_eq!(client.create(Fid::ROOT, &format!("f{number}")).await.unwrap().2, 1);
        }
    });
}

#[test]
fn a_table_larger_than_its_memory_gives_the_same_answers() {
    // The cache must hold the changed leaves (up to 1 MiB on so small a device) and a little more.
    let world = World::new(11, Setup { cache_bytes: Some(1536 << 10), ..Setup::default() });
    let client = world.client("a");
    let name = |number: u32| format!("{number:0>240}");
    let user = client.clone();
    let task = client.env.spawn(async move {
        for number in 0..6000 {
            let (fid, handle, _) = user.create(Fid::ROOT, &name(number)).await.unwrap();
            user.close(fid, handle, 1).await.unwrap();
        }
        assert_eq!(user.names(Fid::ROOT).await.len(), 6000);
        for number in (0..6000).step_by(7) {
            user.rename((Fid::ROOT, &name(number)), (Fid::ROOT, &format!("x{number}"))).await.unwrap();
        }
        for number in (0..6000).step_by(5) {
            let name = if number % 7 == 0 { format!("x{number}") } else { name(number) };
            user.unlink(Fid::ROOT, &name).await.unwrap();
        }
        assert_eq!(user.names(Fid::ROOT).await.len(), 4800);
    });
    world.finish(vec![task], "paged");
    let store = world.mds.borrow().as_ref().expect("the server runs").1.store().clone();
    assert!(store.stats().pages_loaded > 0, "everything fitted: {:?}", store.stats());
}

#[test]
fn a_directory_that_others_fill_without_pause_can_still_be_listed() {
    let world = World::new(12, Setup { commit_interval: Duration::from_secs(3600), ..Setup::default() });
    let (a, b) = (world.client("a"), world.client("b"));
    let filler = a.clone();
    let _filling = a.env.spawn(async move {
        for number in 0u32.. {
            // Closed, as this client does not listen for recalls of data leases.
            let (fid, handle, _) = filler.create(Fid::ROOT, &format!("f{number}")).await.unwrap();
            filler.close(fid, handle, 0).await.unwrap();
        }
    });
    world.sim.run_for(millis(20));
    let listed = world.sim.block_on(b.names(Fid::ROOT));
    assert!(!listed.is_empty());
    let opened = world.sim.block_on(b.open(*listed.values().next().unwrap(), open_flags::READ));
    assert!(opened.is_ok());
}

/// mkdir, create, write, close, chmod, rename, link, unlink, truncate |power at every moment| replay
#[test]
fn a_crash_at_any_moment_of_a_short_history_is_survived() {
    // Repeats with a later power failure each time, until the history is over before it.
    let mut is_over = false;
    let mut step = 0;
    while !is_over {
        let what = format!("crash after {step} steps of 29 us");
        let world = World::new(77, Setup { commit_interval: millis(2), ..Setup::default() });
        let client = world.client("a");
        let (history, ended) = (short_history(client.clone()), Rc::new(Cell::new(false)));
        let tell = ended.clone();
        let task = client.env.spawn(async move {
            history.await;
            tell.set(true);
        });
        world.sim.run_for(Duration::from_micros(29) * step);
        is_over = ended.get();
        step += 1;
        world.power_cut_mds();
        world.start_mds();
        world.finish(vec![task], &what);
        world.sim.run_for(Duration::from_secs(3));
        let rows = [INODE, ORPHAN, HANDLE, DESTROY, TRUNCATE].map(|kind| world.rows(kind));
        assert_eq!((rows, world.objects().len(), client.lost.get()), ([1, 0, 0, 0, 0], 0, 0), "{what}");
    }
    assert!((60..400).contains(&step), "{step} crashes");
}

async fn short_history(client: Rc<Client>) {
    let dir = client.mkdir(Fid::ROOT, "d").await.unwrap();
    let (fid, handle, ost) = client.create(dir, "f").await.unwrap();
    client.write(fid, ost, 100).await.unwrap();
    client.close(fid, handle, 100).await.unwrap();
    let chmod = SetAttr { mask: set_attr::MODE, mode: 0o601, ..cut(fid, 0) };
    assert_eq!(client.ask(&chmod).await.unwrap().attr.mode & 0o777, 0o601);
    client.rename((dir, "f"), (Fid::ROOT, "g")).await.unwrap();
    client.link(fid, dir, "h").await.unwrap();
    assert_eq!(client.ask(&cut(fid, 10)).await.unwrap().attr.size, 10);
    client.unlink(Fid::ROOT, "g").await.unwrap();
    let handle = client.open(fid, open_flags::READ).await.unwrap();
    client.unlink(dir, "h").await.unwrap();
    let attr = client.getattr(fid).await.unwrap();
    assert_eq!((attr.nlink, attr.mode & 0o777), (0, 0o601));
    client.close(fid, handle, 0).await.unwrap();
    client.rmdir(Fid::ROOT, "d").await.unwrap();
}
