//! Access times: a read sends no request for them, the close carries them, and other clients keep their cached
//! attributes.

use std::time::Duration;

use bytes::Bytes;
use forebay_client::{AccessTimes, Client, CommitLevel, MountOptions, OpenFile, OpenMode, SetAttributes, SetTime};
use forebay_proto::{Fid, message::Attr};

use crate::scene::{Scene, begin, caller};

/// The clients' machines.
const CLIENTS: &[&str] = &["maker", "looker"];

const NAME: &[u8] = b"f";

async fn mount(scene: &Scene, name: &str, choose: impl Fn(&mut MountOptions)) -> Client {
    let node = scene.sim.add_node(name);
    let mut options = scene.cluster.mount_options(node, CommitLevel::Data);
    choose(&mut options);
    Client::mount(&scene.sim.env(node), options).await.expect("it mounts")
}

/// A file of 100,000 bytes. Its maker has unmounted, and some seconds have passed.
async fn file(scene: &Scene) -> Fid {
    let maker = mount(scene, "author", |_| {}).await;
    let file = begin(&maker, NAME).await;
    maker.write(&file, 0, vec![7; 100_000]).await.expect("it is written");
    let fid = file.fid();
    maker.close(file).await.expect("it is closed");
    maker.unmount().await.expect("it ends");
    scene.sim.sleep(Duration::from_secs(5)).await;
    fid
}

async fn open(client: &Client, fid: Fid) -> OpenFile {
    client.open(&caller(), fid, OpenMode::READ).await.expect("it opens")
}

async fn read(client: &Client, file: &OpenFile) {
    assert_eq!(client.read(file, 0, 10).await.expect("it is read"), Bytes::from_static(&[7; 10]));
}

async fn open_and_read(client: &Client, fid: Fid) {
    let file = open(client, fid).await;
    read(client, &file).await;
    client.close(file).await.expect("it is closed");
}

async fn look(client: &Client, fid: Fid) -> Attr {
    client.getattr(fid, None).await.expect("it is there")
}

/// How many requests each of two mounts with `access_times` sends to open, read and close the file: the first reader,
/// the other reader, and the other reader again after the first has changed the file's mode.
fn requests(access_times: AccessTimes) -> [u64; 3] {
    let scene = Scene::new(1, CLIENTS);
    scene.sim.block_on(async {
        let fid = file(&scene).await;
        let reader = mount(&scene, "reader", |options| options.access_times = access_times).await;
        let other = mount(&scene, "other reader", |options| options.access_times = access_times).await;
        let requests = async |client: &Client| {
            scene.sim.sleep(Duration::from_secs(1)).await;
            let before = client.stats().rpcs;
            open_and_read(client, fid).await;
            client.stats().rpcs - before
        };
        let (first, second) = (requests(&reader).await, requests(&other).await);
        let changes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        reader.setattr(&caller(), fid, changes, None).await.expect("it is changed");
        [first, second, requests(&other).await]
    })
}

/// Two readers open, read and close a file, on mounts with noatime, relatime and strictatime. They send the same number
/// of requests in all three cases.
#[test]
fn reads_that_move_access_times_send_no_more_requests_than_those_that_move_none() {
    let plain = requests(AccessTimes::Never);
    assert!(plain.iter().all(|count| *count >= 2), "{plain:?}");
    assert_eq!((requests(AccessTimes::Relative), requests(AccessTimes::Always)), (plain, plain));
}

/// The reader reads a file that has not been read since its last change. Its own stat shows the new access time at
/// once, the other client's stat after the close. A later read by the other client does not move the time. After the
/// reader has changed the file's mode, the other client's next read does.
#[test]
fn the_first_read_after_a_change_moves_the_access_time() {
    let scene = Scene::new(1, CLIENTS);
    scene.sim.block_on(async {
        let fid = file(&scene).await;
        let (reader, other) = scene.mounts().await;
        let before_all = look(&reader, fid).await;
        let file = open(&reader, fid).await;
        scene.sim.sleep(Duration::from_secs(1)).await;
        read(&reader, &file).await;
        let here = look(&reader, fid).await;
        assert!(here.atime_ns > before_all.ctime_ns && here.ctime_ns == before_all.ctime_ns);
        reader.close(file).await.expect("it is closed");
        let there = look(&other, fid).await;
        assert_eq!((there.atime_ns, there.ctime_ns, there.mtime_ns), (here.atime_ns, here.ctime_ns, here.mtime_ns));
        scene.sim.sleep(Duration::from_secs(1)).await;
        open_and_read(&other, fid).await;
        assert_eq!(look(&other, fid).await.atime_ns, here.atime_ns);
        let changes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let changed = reader.setattr(&caller(), fid, changes, None).await.expect("it is changed");
        scene.sim.sleep(Duration::from_secs(1)).await;
        open_and_read(&other, fid).await;
        assert!(look(&other, fid).await.atime_ns > changed.ctime_ns);
    });
}

/// The keeper has the file's attributes cached. The reader opens, reads and closes the file. The keeper still shows the
/// attributes without a request.
#[test]
fn a_read_by_another_client_recalls_no_cached_attributes() {
    let scene = Scene::new(2, CLIENTS);
    scene.sim.block_on(async {
        let fid = file(&scene).await;
        let (reader, keeper) = scene.mounts().await;
        look(&keeper, fid).await;
        let before = keeper.stats().rpcs;
        look(&keeper, fid).await;
        assert_eq!(keeper.stats().rpcs, before, "it keeps them");
        open_and_read(&reader, fid).await;
        look(&keeper, fid).await;
        assert_eq!(keeper.stats().rpcs, before, "and still does");
    });
}

/// The reader reads a file, then sets its access time to 77. The close must not overwrite that: the other client sees
/// 77.
#[test]
fn a_set_access_time_overrides_a_deferred_one() {
    let scene = Scene::new(3, CLIENTS);
    scene.sim.block_on(async {
        let fid = file(&scene).await;
        let (reader, other) = scene.mounts().await;
        let file = open(&reader, fid).await;
        read(&reader, &file).await;
        let changes = SetAttributes { atime: Some(SetTime::At(77)), ..SetAttributes::default() };
        assert_eq!(reader.setattr(&caller(), fid, changes, None).await.expect("it is set").atime_ns, 77);
        assert_eq!(look(&reader, fid).await.atime_ns, 77);
        reader.close(file).await.expect("it is closed");
        assert_eq!(look(&other, fid).await.atime_ns, 77);
    });
}

/// Three mounts choose differently. Each read on the strictatime mount moves the file's access time; no read on the
/// noatime mount does. A listing moves the directory's access time, except on the mount with nodiratime.
#[test]
fn the_mount_chooses_which_reads_move_access_times() {
    let scene = Scene::new(4, CLIENTS);
    scene.sim.block_on(async {
        let fid = file(&scene).await;
        let strict = mount(&scene, "strict", |options| options.access_times = AccessTimes::Always).await;
        let never = mount(&scene, "never", |options| options.access_times = AccessTimes::Never).await;
        let mut last = look(&strict, fid).await.atime_ns;
        for _ in 0..3 {
            scene.sim.sleep(Duration::from_secs(1)).await;
            open_and_read(&strict, fid).await;
            let now = look(&strict, fid).await.atime_ns;
            assert!(now > last);
            last = now;
            // The noatime mount may show its cached attributes; its read moves nothing.
            let kept = look(&never, fid).await.atime_ns;
            open_and_read(&never, fid).await;
            assert!([kept, last].contains(&look(&never, fid).await.atime_ns));
            assert_eq!(look(&strict, fid).await.atime_ns, last);
        }
        let blind = mount(&scene, "blind", |options| options.no_directory_access_times = true).await;
        let root = look(&strict, Fid::ROOT).await;
        blind.listed(Fid::ROOT, root.atime_ns, root.ctime_ns);
        assert_eq!(look(&blind, Fid::ROOT).await.atime_ns, root.atime_ns);
        strict.listed(Fid::ROOT, root.atime_ns, root.ctime_ns);
        assert!(look(&strict, Fid::ROOT).await.atime_ns > root.atime_ns);
    });
}

/// The reader keeps a file open that it has read, and has listed the root. Within 100 s the other client sees both
/// access times. The reader then reads again through the open handle, and unmounts: the unmount sends the new time.
#[test]
fn access_times_of_open_files_and_listed_directories_are_sent_after_a_while() {
    let scene = Scene::new(5, CLIENTS);
    scene.sim.block_on(async {
        let fid = file(&scene).await;
        let (reader, other) = scene.mounts().await;
        let file = open(&reader, fid).await;
        read(&reader, &file).await;
        let root = look(&reader, Fid::ROOT).await;
        reader.listed(Fid::ROOT, root.atime_ns, root.ctime_ns);
        let here = [look(&reader, fid).await.atime_ns, look(&reader, Fid::ROOT).await.atime_ns];
        scene.sim.sleep(Duration::from_secs(100)).await;
        let there = [look(&other, fid).await.atime_ns, look(&other, Fid::ROOT).await.atime_ns];
        assert_eq!(here, there);
        scene.sim.sleep(Duration::from_secs(1)).await;
        let file_changed = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
        other.setattr(&caller(), fid, file_changed, None).await.expect("it is changed");
        let again = open(&reader, fid).await;
        read(&reader, &again).await;
        reader.close(again).await.expect("it is closed");
        read(&reader, &file).await;
        reader.unmount().await.expect("it ends");
        assert!(look(&other, fid).await.atime_ns > here[0]);
    });
}
