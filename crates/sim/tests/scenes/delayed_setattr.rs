//! Delayed SETATTRs on files that are being written: the close carries them. Nobody can tell, except by the number of
//! requests.

use std::time::Duration;

use forebay_client::{Client, OpenFile, SetAttributes, SetTime};
use forebay_proto::{
    Errno, Fid,
    message::{Attr, attr_flags},
};

use crate::scene::{Scene, begin, caller, content};

/// The clients' machines.
const CLIENTS: &[&str] = &["maker", "looker"];

/// The attributes that tar sets.
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

/// The attributes that programs see.
fn seen(attr: &Attr) -> (u64, i64, i64, u32, u32, u32) {
    (attr.size, attr.mtime_ns, attr.ctime_ns, attr.mode & 0o7777, attr.uid, attr.gid)
}

/// The maker writes a file, sets its attributes like tar, and closes it. Before the close no request is sent; the close
/// of a small file is the only one. Both clients see exactly what the maker was told.
#[test]
fn a_file_is_written_given_its_attributes_and_closed_by_two_requests() {
    let scene = Scene::new(1, CLIENTS);
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
            // Before it changes an owner, the kernel asks for the file's attributes and capabilities.
            let again = maker.getattr(file.fid(), None).await.expect("it is open");
            assert_eq!(seen(&again), seen(&told));
            let value = maker.getxattr(&caller(), file.fid(), b"security.capability").await;
            assert_eq!(value.map(drop).expect_err("it has none").errno, Errno::ENODATA);
            assert_eq!(maker.stats().rpcs - before, 0, "{length} bytes: nobody is asked");
            maker.close(file).await.expect("it closes");
            // One request for the close, and about two for the bytes of a file that is not inline.
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

/// The maker writes 1 MiB in full requests, of which some are in flight, and sets attributes. The size in the reply
/// covers all writes.
#[test]
fn the_size_after_a_setattr_covers_writes_in_flight() {
    let scene = Scene::new(5, CLIENTS);
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

/// The maker sets attributes and has not closed the file. The looker sees them at once, and the same ones after the
/// close.
#[test]
fn another_client_sees_delayed_attributes_at_once() {
    for seed in 0..40 {
        let scene = Scene::new(seed, CLIENTS);
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

/// The maker writes and sets a time; the attributes are sent before the bytes. The later write-back of the bytes does
/// not change the time.
#[test]
fn a_write_back_after_a_setattr_does_not_change_the_set_time() {
    for seed in 0..20 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            maker.write(&file, 0, vec![1; 5000]).await.expect("it is written");
            set(&maker, &file, &tar(77)[0]).await;
            // Any request to the MDT sends the delayed attributes first.
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

/// The maker sets a time, then writes more and closes. The looker sees the time of that write.
#[test]
fn a_write_after_a_set_time_moves_the_time() {
    for seed in 0..40 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let file = begin(&maker, b"a").await;
            maker.write(&file, 0, vec![1; 5000]).await.expect("it is written");
            let told = set_as_tar(&maker, &file, 77).await;
            if seed % 2 == 1 {
                // The SETATTR is in flight.
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

/// write, setattr |the MDT dies| close
///
/// The MDT crashes while the maker's close carries the delayed attributes. The looker sees what the maker was told,
/// before and after the close returns.
#[test]
fn delayed_dir_ops_survive_mdt_crash() {
    for seed in 0..60 {
        let scene = Scene::new(seed, CLIENTS);
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

/// The maker is cut off from the MDT with delayed attributes. The looker sets other ones. When the link heals, nothing
/// of the maker arrives late, and its fsync reports EIO.
#[test]
fn cut_off_client_loses_delayed_dir_ops_and_fsync_reports_eio() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
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

/// All OSTs are down while the maker truncates a file to zero, writes, sets attributes, and closes it. When the OSTs
/// are back, both clients see what the maker was told.
#[test]
fn a_close_with_attributes_does_not_wait_for_a_truncate() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
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

/// write, setattr, sync by either client |the maker and all servers die| stat
///
/// The looker syncs everything, or the maker syncs its file. The maker and all servers crash. The looker sees the
/// maker's attributes.
#[test]
fn synced_delayed_attributes_survive_client_and_servers() {
    for seed in 0..20 {
        let scene = Scene::new(seed, CLIENTS);
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
