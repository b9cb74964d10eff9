//! Delayed directory operations: the client acknowledges them before it asks the MDT. Nobody can tell the difference,
//! and the client reports every loss.

use std::{cell::Cell, time::Duration};

use forebay_client::{
    Attr, Caller, Client, ClientResult, CommitLevel, LayoutSpec, OpenMode, PendingFile, SetAttributes,
};
use forebay_proto::{Errno, Fid};

use crate::scene::{Scene, caller};

/// The clients' machines.
const CLIENTS: &[&str] = &["maker", "looker"];

impl Scene {
    /// A directory for which the maker has an entries-write lease.
    async fn directory(&self, maker: &Client) -> Fid {
        let dir = maker.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
        maker.settled(dir).await;
        dir
    }
}

fn name(number: u32) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

fn begin(maker: &Client, dir: Fid, number: u32) -> (Attr, PendingFile) {
    let open = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
    maker.create_delayed(&caller(), dir, &name(number), 0o644, open).expect("it is answered at once")
}

async fn make(client: &Client, dir: Fid, number: u32) -> ClientResult<Attr> {
    let open = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
    let (attr, file) = client.create(&caller(), dir, &name(number), 0o644, open, LayoutSpec::inherit()).await?;
    client.close(file).await?;
    Ok(attr)
}

async fn names(client: &Client, dir: Fid) -> Vec<Vec<u8>> {
    let page = client.readdir(dir, 0, 1 << 18, false).await.expect("it can be read");
    let mut names: Vec<Vec<u8>> = page.entries.into_iter().map(|entry| entry.name.to_vec()).collect();
    names.retain(|name| !name.starts_with(b"."));
    names.sort();
    names
}

fn first(count: u32) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..count).map(name).collect();
    all.sort();
    all
}

/// The maker creates 30 files and a directory, then removes all of them. Each call returns in zero virtual time, and so
/// does a stat of the directory with these changes.
#[test]
fn delayed_dir_ops_take_no_virtual_time() {
    let scene = Scene::new(1, CLIENTS);
    scene.sim.block_on(async {
        let maker = scene.mount(0).await;
        let dir = scene.directory(&maker).await;
        let begun = scene.sim.now();
        let made: Vec<PendingFile> = (0..30).map(|number| begin(&maker, dir, number).1).collect();
        assert_eq!(scene.sim.now(), begun);
        let attr = maker.getattr(dir, None).await.expect("it is known");
        assert_eq!(scene.sim.now(), begun, "the directory as it will be is known too");
        let sub = maker.mkdir(&caller(), dir, b"sub", 0o700).await.expect("it is made");
        assert_eq!((scene.sim.now(), sub.nlink), (begun, 2));
        for file in made {
            maker.close(file.file().await.expect("it comes")).await.expect("it closes");
        }
        let after = maker.getattr(dir, None).await.expect("it is there");
        assert_eq!((attr.mtime_ns <= after.mtime_ns, after.nlink), (true, attr.nlink + 1));
        let looked = scene.sim.now();
        for number in 0..30 {
            maker.unlink(&caller(), dir, &name(number)).await.expect("it goes");
        }
        maker.rmdir(&caller(), dir, b"sub").await.expect("it goes");
        assert_eq!(scene.sim.now(), looked, "they were taken away at once");
        assert!(names(&maker, dir).await.is_empty());
        assert_eq!(maker.stats().delayed_operations, 62);
    });
}

/// The maker creates a file, a symlink and a directory. The looker sees exactly the attributes that the maker was told.
#[test]
fn another_client_sees_the_attributes_that_the_maker_was_shown() {
    let scene = Scene::new(2, CLIENTS);
    scene.sim.block_on(async {
        let (maker, looker) = (scene.mount(0).await, scene.mount(1).await);
        let dir = scene.directory(&maker).await;
        let (told, file) = begin(&maker, dir, 0);
        let link = maker.symlink(&caller(), dir, b"l", b"target").await.expect("it is made");
        let sub = maker.mkdir(&caller(), dir, b"s", 0o750 | forebay_client::mode::UMASK & (0o022 << 20)).await;
        let sub = sub.expect("it is made");
        let parent = maker.getattr(dir, None).await.expect("it is known");
        maker.close(file.file().await.expect("it comes")).await.expect("it closes");
        let mut seen = Vec::new();
        for name in [&b"f0"[..], b"l", b"s"] {
            seen.push(looker.lookup(&caller(), dir, name).await.expect("it is there"));
        }
        let told = Attr { flags: 0, ..told };
        assert_eq!(seen, [told, link, sub]);
        assert_eq!(looker.getattr(dir, None).await.expect("it is there"), parent);
        assert_eq!(looker.readlink(seen[1].fid).await.expect("it is a link"), b"target"[..]);
    });
}

/// The maker has ten delayed creates. The looker lists the directory, looks up a name, creates an existing name, or
/// removes the directory: each shows all ten files. After that the maker has no entries-write lease, and it sees the
/// looker's new file.
#[test]
fn another_client_sees_delayed_creates_at_once() {
    for seed in 0..40 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (scene.mount(0).await, scene.mount(1).await);
            let dir = scene.directory(&maker).await;
            let made: Vec<_> = (0..10).map(|number| begin(&maker, dir, number)).collect();
            match seed % 4 {
                0 => assert_eq!(names(&looker, dir).await, first(10), "seed {seed}"),
                1 => {
                    let attr = looker.lookup(&caller(), dir, &name(9)).await.expect("it is there");
                    assert_eq!(attr.fid, made[9].0.fid);
                }
                2 => {
                    let error = make(&looker, dir, 9).await.expect_err("it is there already");
                    assert_eq!(error.errno, Errno::EEXIST, "seed {seed}");
                }
                _ => {
                    let error = looker.rmdir(&caller(), Fid::ROOT, b"d").await.expect_err("it has names");
                    assert_eq!(error.errno, Errno::ENOTEMPTY, "seed {seed}");
                }
            }
            // The directory is leased to nobody now.
            let open = OpenMode::READ_WRITE;
            assert!(maker.create_delayed(&caller(), dir, b"g", 0o644, open).is_none(), "seed {seed}");
            make(&looker, dir, 11).await.expect("it is made");
            let theirs = maker.lookup(&caller(), dir, &name(11)).await;
            assert!(theirs.is_ok(), "seed {seed}: {theirs:?}");
        });
    }
}

/// The looker has a file open, and the maker unlinks it. If the looker has cached the file's attributes, the maker asks
/// the MDT first; otherwise it delays the unlink. In both cases the looker then sees a link count of 0.
#[test]
fn unlink_of_a_file_open_elsewhere_shows_there_a_link_count_of_zero() {
    for seed in 0..20 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (scene.mount(0).await, scene.mount(1).await);
            let dir = scene.directory(&maker).await;
            let made = make(&maker, dir, 0).await.expect("it is made");
            let file = looker.open(&caller(), made.fid, OpenMode::READ).await.expect("it opens");
            // A lease that was just recalled is not granted again for a moment.
            scene.sim.sleep(Duration::from_millis(100)).await;
            let has_looked = seed % 2 == 0;
            if has_looked {
                assert_eq!(looker.getattr(made.fid, Some(&file)).await.expect("it is there").nlink, 1);
            }
            scene.sim.sleep(Duration::from_millis(500)).await;
            // The looker asked for names in the directory: the maker gets the lease back with its next change.
            make(&maker, dir, 1).await.expect("it is made");
            maker.lookup(&caller(), dir, &name(0)).await.expect("it is there");
            maker.getattr(dir, None).await.expect("it is there");
            let before = maker.stats().delayed_operations;
            maker.unlink(&caller(), dir, &name(0)).await.expect("it goes");
            assert_eq!(maker.stats().delayed_operations - before, u64::from(!has_looked), "seed {seed}");
            assert_eq!(looker.getattr(made.fid, Some(&file)).await.expect("it is open").nlink, 0, "seed {seed}");
        });
    }
}

/// The maker is cut off from the MDT with a delayed unlink and a delayed create. The looker waits less than 15 s, sees
/// neither change, and makes both files itself. When the link heals, nothing of the maker arrives late. The maker's
/// open file and its fsync of the directory report EIO.
#[test]
fn cut_off_client_loses_delayed_dir_ops_and_fsync_reports_eio() {
    for seed in 0..20 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (scene.mount(0).await, scene.mount(1).await);
            let dir = scene.directory(&maker).await;
            // The name existed before. The maker unlinks it, and the looker creates it again.
            make(&maker, dir, 0).await.expect("it is made");
            maker.lookup(&caller(), dir, &name(0)).await.expect("it is there");
            scene.sim.cut_both(scene.nodes[0], scene.mdt());
            let answered =
                scene.sim.env(scene.nodes[0]).timeout(Duration::ZERO, maker.unlink(&caller(), dir, &name(0))).await;
            answered.expect("it is answered at once").expect("it goes");
            let (_, lost) = begin(&maker, dir, 1);
            let begun = scene.sim.now();
            assert_eq!(names(&looker, dir).await, first(1), "seed {seed}: what did not come did not happen");
            let waited = scene.sim.now().since(begun);
            assert!(waited < Duration::from_secs(15), "seed {seed}: it waited {waited:?}");
            looker.unlink(&caller(), dir, &name(0)).await.expect("it goes");
            let (zero, one) =
                (make(&looker, dir, 0).await.expect("made").fid, make(&looker, dir, 1).await.expect("made").fid);
            scene.sim.heal(scene.nodes[0], scene.mdt());
            scene.sim.sleep(Duration::from_secs(5)).await;
            for (number, fid) in [(0, zero), (1, one)] {
                for client in [&looker, &maker] {
                    let seen = client.lookup(&caller(), dir, &name(number)).await.map(|attr| attr.fid);
                    assert_eq!(seen, Ok(fid), "seed {seed}: a change was made late");
                }
            }
            assert_eq!(lost.file().await.map(drop).expect_err("it was lost").errno, Errno::EIO);
            assert_eq!(maker.fsync_dir(dir).await.expect_err("some were lost").errno, Errno::EIO);
            maker.fsync_dir(dir).await.expect("it was said");
        });
    }
}

/// The MDT crashes while the maker has delayed creates in flight. The maker creates more files before it notices. The
/// looker tries to create one of them. After the MDT's restart all of the maker's files exist, and the looker gets
/// EEXIST.
#[test]
fn delayed_dir_ops_survive_mdt_crash() {
    for seed in 0..60 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (scene.mount(0).await, scene.mount(1).await);
            let dir = scene.directory(&maker).await;
            let early: Vec<_> = (0..seed as u32 % 7).map(|number| begin(&maker, dir, number)).collect();
            scene.sim.sleep(Duration::from_micros(scene.sim.random_below(2500))).await;
            scene.sim.crash(scene.mdt());
            // The maker has not noticed the crash yet.
            let late: Vec<_> = (7..10).map(|number| begin(&maker, dir, number)).collect();
            let rival = {
                let looker = looker.clone();
                scene.sim.env(scene.nodes[1]).spawn(async move { make(&looker, dir, 8).await })
            };
            scene.sim.sleep(Duration::from_millis(300)).await;
            scene.cluster.boot_all();
            let rival = rival.await.expect("the looker lives");
            assert_eq!(rival.expect_err("it was there first").errno, Errno::EEXIST, "seed {seed}");
            let mut all: Vec<_> = (0..seed as u32 % 7).chain(7..10).map(name).collect();
            all.sort();
            assert_eq!(names(&looker, dir).await, all, "seed {seed}");
            for (_, file) in early.into_iter().chain(late) {
                maker.close(file.file().await.expect("it comes")).await.expect("it closes");
            }
            maker.fsync_dir(dir).await.expect("nothing was lost");
        });
    }
}

/// The looker's create makes the MDT recall the directory from the maker, which has a delayed create of the same name.
/// The MDT crashes before it has executed that. The maker must not release the lease before: its file exists after the
/// restart, and the looker gets EEXIST.
#[test]
fn entries_lease_is_released_only_after_delayed_ops_are_applied() {
    const SEEDS: u64 = 60;
    let delayed_operations = Cell::new(0);
    for seed in 0..SEEDS {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (scene.mount(0).await, scene.mount(1).await);
            let dir = scene.directory(&maker).await;
            let rival = {
                let looker = looker.clone();
                scene.sim.env(scene.nodes[1]).spawn(async move { make(&looker, dir, 1).await })
            };
            scene.sim.sleep(Duration::from_micros(scene.sim.random_below(120))).await;
            let open = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
            // `None`: the lease was recalled before the create.
            let made = maker.create_delayed(&caller(), dir, &name(1), 0o644, open);
            scene.sim.sleep(Duration::from_micros(scene.sim.random_below(300))).await;
            scene.sim.crash(scene.mdt());
            scene.sim.sleep(Duration::from_millis(300)).await;
            scene.cluster.boot_all();
            let rival = rival.await.expect("the looker lives");
            let Some((attr, coming)) = made else { return };
            delayed_operations.set(delayed_operations.get() + 1);
            assert_eq!(rival.expect_err("it was there first").errno, Errno::EEXIST, "seed {seed}");
            maker.close(coming.file().await.expect("it comes")).await.expect("it closes");
            for client in [&maker, &looker] {
                let seen = client.lookup(&caller(), dir, &name(1)).await.map(|attr| attr.fid);
                assert_eq!(seen, Ok(attr.fid), "seed {seed}");
            }
        });
    }
    assert!(
        delayed_operations.get() * 3 > SEEDS * 2,
        "only {} of {SEEDS} seeds show something",
        delayed_operations.get()
    );
}

/// The maker creates five files that reach the MDT (by fsync or after 20 ms), then five more, and crashes at once. The
/// looker sees exactly the first five.
#[test]
fn a_client_crash_loses_only_delayed_creates_that_the_mdt_does_not_have_yet() {
    for seed in 0..20 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (scene.mount(0).await, scene.mount(1).await);
            let dir = scene.directory(&maker).await;
            let first_ones: Vec<_> = (0..5).map(|number| begin(&maker, dir, number)).collect();
            if seed % 2 == 0 {
                maker.fsync_dir(dir).await.expect("it syncs");
            } else {
                scene.sim.sleep(Duration::from_millis(20)).await;
            }
            let rest: Vec<_> = (5..10).map(|number| begin(&maker, dir, number)).collect();
            scene.sim.crash(scene.nodes[0]);
            drop((first_ones, rest, maker));
            assert_eq!(names(&looker, dir).await, first(5), "seed {seed}");
        });
    }
}

/// The maker asks the MDT where it cannot decide:
/// - the caller has no permission, or the mode has setgid;
/// - the name exists, is invalid, or its unlink is in flight;
/// - the file has two links;
/// - the directory has a new owner and mode, or a default ACL.
#[test]
fn a_delayed_operation_that_the_client_cannot_decide_goes_to_the_mdt_first() {
    let scene = Scene::new(3, CLIENTS);
    scene.sim.block_on(async {
        let maker = scene.mount(0).await;
        let dir = scene.directory(&maker).await;
        let ahead =
            |who: &Caller, name: &[u8], mode| maker.create_delayed(who, dir, name, mode, OpenMode::WRITE).is_some();
        assert!(ahead(&caller(), b"a", 0o644));
        let other = Caller { uid: 7, gid: 7, groups: Vec::new() };
        assert!(!ahead(&other, b"b", 0o644), "it may not be allowed to");
        assert!(!ahead(&caller(), b"b", 0o2755), "bits may be lost");
        assert!(!ahead(&caller(), b"a", 0o644), "it is there");
        assert!(!ahead(&caller(), &[b'x'; 256], 0o644) && !ahead(&caller(), b".", 0o644));
        assert!(!ahead(&caller(), b"nul\0", 0o644));
        // A name whose unlink is in flight still exists: the MDT may execute the create first.
        maker.settled(dir).await;
        maker.unlink(&caller(), dir, b"a").await.expect("it goes");
        assert!(!ahead(&caller(), b"a", 0o644));
        maker.settled(dir).await;
        assert!(ahead(&caller(), b"a", 0o644));
        // The file has two links, so it survives the unlink.
        let made = make(&maker, dir, 0).await.expect("it is made");
        maker.link(&caller(), made.fid, dir, b"again").await.expect("it is linked");
        maker.lookup(&caller(), dir, b"again").await.expect("it is there");
        let before = maker.stats().delayed_operations;
        maker.unlink(&caller(), dir, b"again").await.expect("it goes");
        assert_eq!(maker.stats().delayed_operations, before);
        // The directory's owner and mode change; the next create asks the MDT.
        let chmod = SetAttributes { mode: Some(0o700), uid: Some(7), ..SetAttributes::default() };
        maker.setattr(&caller(), dir, chmod, None).await.expect("it is changed");
        assert!(!ahead(&caller(), b"c", 0o644));
        make(&maker, dir, 1).await.expect("it is made");
        assert!(maker.getattr(dir, None).await.is_ok() && ahead(&other, b"d", 0o644), "its owner may");
        // A default ACL determines the modes of new files.
        let list = [
            2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ];
        maker.setxattr(&caller(), dir, b"system.posix_acl_default", &list, 0).await.expect("it is set");
        make(&maker, dir, 2).await.expect("it is made");
        maker.getattr(dir, None).await.expect("it is there");
        assert!(!ahead(&caller(), b"e", 0o644));
        assert_eq!(make(&maker, dir, 3).await.expect("it is made").mode & 0o777, 0o640);
    });
}

/// The maker sets a layout on a directory. Files from delayed creates have it, in that directory and in one made below
/// it. The looker reads their bytes.
#[test]
fn delayed_creates_in_a_directory_with_a_layout_have_that_layout() {
    let scene = Scene::new(5, CLIENTS);
    scene.sim.block_on(async {
        let maker = scene.mount(0).await;
        let dir = scene.directory(&maker).await;
        let two = LayoutSpec { stripe_count: 2, stripe_bytes: 128 << 10, ..LayoutSpec::inherit() };
        maker.set_layout(&caller(), dir, two).await.expect("it is set");
        make(&maker, dir, 0).await.expect("it is made");
        let below = maker.mkdir(&caller(), dir, b"below", 0o755).await.expect("it is made").fid;
        maker.settled(below).await;
        for (number, dir) in [(1, dir), (2, below)] {
            let (attr, coming) = begin(&maker, dir, number);
            let names = maker.listxattr(attr.fid).await.expect("listed");
            assert!(names.iter().any(|name| name.as_ref() == b"user.forebay.layout"), "{names:?}");
            let layout = maker.get_layout(attr.fid).await.expect("told").0.expect("of a file");
            let first = &layout.components[0];
            assert_eq!((first.osts.len(), first.stripe_bytes), (2, 128 << 10));
            let file = coming.file().await.expect("it is made");
            let bytes: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
            maker.write(&file, 0, bytes.clone()).await.expect("written");
            let looker = scene.mount(1).await;
            let other = looker.open(&caller(), attr.fid, OpenMode::READ).await.expect("it opens");
            assert!(looker.read(&other, 0, 300_000).await.expect("read")[..] == bytes[..]);
        }
    });
}

/// The maker mounts with level commit. Its creates wait for the MDT: no directory operation is delayed.
#[test]
fn creates_on_a_mount_of_level_commit_are_not_delayed() {
    let scene = Scene::new(4, CLIENTS);
    scene.sim.block_on(async {
        let maker = scene.cluster.mount(scene.nodes[0], CommitLevel::Commit).await.expect("it mounts");
        let dir = maker.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
        make(&maker, dir, 0).await.expect("it is made");
        assert!(maker.create_delayed(&caller(), dir, b"x", 0o644, OpenMode::WRITE).is_none());
        assert_eq!(maker.stats().delayed_operations, 0);
    });
}

/// create (delayed), fsync of the directory by another client |power, everybody| list
///
/// The maker has 30 delayed creates when the looker syncs the directory. Both clients and all servers lose power. A
/// third client sees all 30 names.
#[test]
fn fsync_of_a_directory_by_another_client_makes_delayed_creates_durable() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (scene.mount(0).await, scene.mount(1).await);
            let dir = scene.directory(&maker).await;
            let coming: Vec<_> = (0..30).map(|number| begin(&maker, dir, number)).collect();
            looker.fsync_dir(dir).await.expect("synced");
            let nodes = scene.cluster.servers.iter().map(|server| server.node);
            scene.nodes.iter().copied().chain(nodes).for_each(|node| scene.sim.power_cut(node));
            drop(coming);
            (0..scene.cluster.servers.len()).for_each(|server| scene.cluster.boot(server));
            let third = scene.cluster.mount(scene.sim.add_node("third"), CommitLevel::Data).await.expect("it mounts");
            assert_eq!(names(&third, dir).await, first(30), "seed {seed}");
        });
    }
}
