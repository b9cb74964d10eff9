//! Attributes of files that are being written: they go with the close, and nobody can tell, but by what it takes.

use std::time::Duration;

use forebay_client::{Client, OpenFile, SetAttributes, SetTime};
use forebay_proto::{
    Errno, Fid,
    message::{Attr, attr_flags},
};

use crate::small::{Scene, begin, caller, content};

/// What tar sets.
fn tar(mtime_ns: i64) -> [SetAttributes; 3] {
    let none = SetAttributes::default();
    [
        SetAttributes { mtime: Some(SetTime::At(mtime_ns)), ..none.clone() },
        SetAttributes { uid: Some(5), gid: Some(6), ..none.clone() },
        SetAttributes { mode: Some(0o640), ..none },
    ]
}

async fn set(client: &Client, file: &OpenFile, changes: &SetAttributes) -> Attr {
    client.setattr(&caller(), file.fid(), changes.clone(), None).await.expect("it is set")
}

async fn set_as_tar(client: &Client, file: &OpenFile, mtime_ns: i64) -> Attr {
    let mut last = None;
    for changes in tar(mtime_ns) {
        last = Some(set(client, file, &changes).await);
    }
    last.expect("some were set")
}

async fn look(client: &Client, name: &[u8]) -> Attr {
    let attr = client.lookup(&caller(), Fid::ROOT, name).await.expect("it is there");
    client.getattr(attr.fid, None).await.expect("it is there")
}

/// What programs see.
fn seen(attr: &Attr) -> (u64, i64, i64, u32, u32, u32) {
    (attr.size, attr.mtime_ns, attr.ctime_ns, attr.mode & 0o7777, attr.uid, attr.gid)
}

/// create, write, set, close | two requests to the MDT, none to an OST | as it was told
#[test]
fn a_file_is_written_given_its_attributes_and_closed_by_two_requests() {
    let scene = Scene::new(1);
    scene.sim.block_on(async {
        let (maker, looker) = scene.mounts().await;
        for (number, length) in [(0, 12), (1, 12), (2, 12), (3, 0), (4, 100_000)] {
            let name = format!("f{number}").into_bytes();
            let file = begin(&maker, &name).await;
            if length > 0 {
                maker.write(&file, 0, vec![7; length]).await.expect("it is written");
            }
            let before = maker.stats().rpcs;
            let told = set_as_tar(&maker, &file, 77).await;
            assert_eq!(seen(&told), (length as u64, 77, told.ctime_ns, 0o640, 5, 6));
            // Before it changes an owner the kernel looks at the file.
            let again = maker.getattr(file.fid(), None).await.expect("it is open");
            assert_eq!(seen(&again), seen(&told));
            let value = maker.getxattr(&caller(), file.fid(), b"security.capability").await;
            assert_eq!(value.map(drop).expect_err("it has none").errno, Errno::ENODATA);
            assert_eq!(maker.stats().rpcs - before, 0, "{length} bytes: nobody is asked");
            maker.close(file).await.expect("it closes");
            // The close, and two or so of the bytes where they do not go with it.
            let asked = maker.stats().rpcs - before;
            assert!(length > 16 << 10 || asked == 1, "{length} bytes: {asked} requests");
            for client in [&maker, &looker] {
                assert_eq!(seen(&look(client, &name).await), seen(&told), "{length} bytes");
            }
            let is_inline = look(&looker, &name).await.flags & attr_flags::INLINE != 0;
            assert_eq!(is_inline, length == 12);
            assert_eq!(content(&looker, &name).await, vec![7; length]);
        }
    });
}

/// write whole requests, set | the size that is told is that of all that was written
#[test]
fn the_size_that_is_told_has_what_is_on_its_way() {
    let scene = Scene::new(5);
    scene.sim.block_on(async {
        let (maker, _) = scene.mounts().await;
        let file = begin(&maker, b"a").await;
        for part in 0..8u64 {
            maker.write(&file, part << 17, vec![1; 1 << 17]).await.expect("it is written");
        }
        assert_eq!(set_as_tar(&maker, &file, 77).await.size, 1 << 20);
        assert_eq!(maker.getattr(file.fid(), None).await.expect("it is open").size, 1 << 20);
        maker.close(file).await.expect("it closes");
    });
}

/// create, write, set | the other looks before it is closed | as it was told
#[test]
fn others_see_what_was_set_before_it_was_sent() {
    for seed in 0..40 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            maker.write(&file, 0, vec![1; 5000]).await.expect("it is written");
            let told = set_as_tar(&maker, &file, 77).await;
            scene.sim.sleep(Duration::from_millis(seed % 4 * 20)).await;
            assert_eq!(seen(&look(&looker, b"a").await), seen(&told), "seed {seed}");
            assert_eq!(content(&looker, b"a").await, [1; 5000]);
            maker.close(file).await.expect("it closes");
            assert_eq!(seen(&look(&looker, b"a").await), seen(&told), "seed {seed}: also when it is closed");
        });
    }
}

/// write, set, and the attributes leave before the bytes | the time is what was set
#[test]
fn bytes_that_are_sent_later_do_not_change_the_time() {
    for seed in 0..20 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            maker.write(&file, 0, vec![1; 5000]).await.expect("it is written");
            set(&maker, &file, &tar(77)[0]).await;
            // Whatever the MDT is asked, it is told of that first.
            maker.lookup(&caller(), Fid::ROOT, b"b").await.map(drop).expect_err("there is none");
            scene.sim.sleep(Duration::from_millis(seed * 10)).await;
            assert_eq!(maker.getattr(file.fid(), None).await.expect("it is open").mtime_ns, 77, "seed {seed}");
            scene.sim.sleep(Duration::from_millis(100)).await;
            assert_eq!(maker.getattr(file.fid(), None).await.expect("it is open").mtime_ns, 77, "seed {seed}");
            maker.close(file).await.expect("it closes");
            assert_eq!(look(&looker, b"a").await.mtime_ns, 77, "seed {seed}");
        });
    }
}

/// set, write, close | the time is that of the write
#[test]
fn what_is_written_later_does() {
    for seed in 0..40 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            maker.write(&file, 0, vec![1; 5000]).await.expect("it is written");
            let told = set_as_tar(&maker, &file, 77).await;
            if seed % 2 == 1 {
                // On its way.
                let (client, fid) = (maker.clone(), file.fid());
                drop(scene.sim.env(scene.nodes[0]).spawn(async move { client.listxattr(fid).await }));
                scene.sim.sleep(Duration::from_micros(seed * 10)).await;
            }
            let length = if seed % 4 < 2 { 3 } else { 1 << 20 };
            maker.write(&file, 5000, vec![2; length]).await.expect("it is written");
            maker.close(file).await.expect("it closes");
            let attr = look(&looker, b"a").await;
            assert!(attr.mtime_ns > told.btime_ns && attr.ctime_ns >= told.ctime_ns, "seed {seed}: {attr:?}");
            assert_eq!((attr.size, attr.mode & 0o7777, attr.uid), (5000 + length as u64, 0o640, 5), "seed {seed}");
        });
    }
}

/// write, set |the MDT dies| close | as it was told
#[test]
fn they_survive_the_mdt_while_their_client_lives() {
    for seed in 0..60 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            maker.write(&file, 0, vec![1; 5000]).await.expect("it is written");
            let told = set_as_tar(&maker, &file, 77).await;
            let closing = maker.clone();
            let close = scene.sim.env(scene.nodes[0]).spawn(async move { closing.close(file).await });
            scene.sim.sleep(Duration::from_micros(seed * 40)).await;
            scene.sim.crash(scene.mdt());
            scene.cluster.boot(0);
            assert_eq!(seen(&look(&looker, b"a").await), seen(&told), "seed {seed}");
            close.await.expect("it ends").expect("it closes");
            assert_eq!(seen(&look(&looker, b"a").await), seen(&told), "seed {seed}");
            assert_eq!(content(&looker, b"a").await, [1; 5000]);
        });
    }
}

/// The maker hears nobody any more: what it has set is lost, does not come later over what others set, and it says so.
#[test]
fn a_client_that_is_cut_off_loses_them_and_says_so() {
    for seed in 0..10 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            scene.sim.cut_both(scene.nodes[0], scene.mdt());
            set_as_tar(&maker, &file, 77).await;
            let fid = look(&looker, b"a").await.fid;
            let changes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
            looker.setattr(&caller(), fid, changes, None).await.expect("it is set");
            let expected = seen(&look(&looker, b"a").await);
            scene.sim.heal(scene.nodes[0], scene.mdt());
            scene.sim.sleep(Duration::from_secs(5)).await;
            assert_eq!(seen(&look(&looker, b"a").await), expected, "seed {seed}: it was set late");
            assert_eq!(maker.fsync(&file, false).await.expect_err("some were lost").errno, Errno::EIO);
            assert_eq!(maker.sync_all().await.expect_err("some were lost").errno, Errno::EIO);
        });
    }
}

/// a file on OSTs is cut to nothing, and no OST is there | write, set, close | as it was told, when they are back
#[test]
fn a_close_waits_for_no_truncate_with_them() {
    for seed in 0..10 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            maker.write(&file, 0, vec![1; 1 << 20]).await.expect("it is written");
            maker.close(file).await.expect("it closes");
            scene.stop_osts();
            let client = maker.clone();
            let written = scene.sim.env(scene.nodes[0]).spawn(async move {
                let file = begin(&client, b"a").await;
                client.write(&file, 0, vec![2; 500]).await.expect("it is written");
                let told = set_as_tar(&client, &file, 77).await;
                client.close(file).await.expect("it closes");
                told
            });
            scene.sim.sleep(Duration::from_millis(seed * 30)).await;
            scene.boot_osts();
            let told = written.await.expect("it ends");
            for client in [&looker, &maker] {
                assert_eq!(seen(&look(client, b"a").await), seen(&told), "seed {seed}");
                assert_eq!(content(client, b"a").await, [2; 500]);
            }
        });
    }
}

/// sync(2) by the other, and fsync | they are durable
#[test]
fn what_was_synced_is_there_after_everybody_died() {
    for seed in 0..20 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            maker.write(&file, 0, vec![1; 5000]).await.expect("it is written");
            let told = set_as_tar(&maker, &file, 77).await;
            match seed % 2 {
                0 => looker.sync_all().await.expect("it syncs"),
                _ => maker.fsync(&file, false).await.expect("it syncs"),
            }
            scene.sim.crash(scene.nodes[0]);
            scene.cluster.servers.iter().for_each(|server| scene.sim.crash(server.node));
            scene.cluster.boot_all();
            std::mem::forget(file);
            let attr = look(&looker, b"a").await;
            assert_eq!((seen(&attr).3, attr.mtime_ns, attr.uid, attr.size), (0o640, 77, 5, told.size), "seed {seed}");
        });
    }
}
