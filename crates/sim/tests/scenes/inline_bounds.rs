//! Inline bounds of directories and files: they take precedence over the mount's.

use std::time::Duration;

use bytes::Bytes;
use forebay_client::{
    Client, CommitLevel, INLINE_XATTR, InlineBound, LayoutSpec, MountOptions, OpenFile, OpenMode, PendingFile,
};
use forebay_proto::{Fid, message::attr_flags};

use crate::scene::{Scene, caller};

/// The clients' machines.
const CLIENTS: &[&str] = &["maker", "looker"];

/// Mounts the scene's first node with an inline bound of `bytes`.
async fn mount(scene: &Scene, bytes: usize) -> Client {
    let node = scene.nodes[0];
    let options = MountOptions { inline_bytes: bytes, ..scene.cluster.mount_options(node, CommitLevel::Data) };
    Client::mount(&scene.sim.env(node), options).await.expect("it mounts")
}

async fn mkdir(client: &Client, parent: Fid, name: &[u8]) -> Fid {
    client.mkdir(&caller(), parent, name, 0o755).await.expect("it is made").fid
}

async fn give(client: &Client, fid: Fid, size: &str) {
    client.setxattr(&caller(), fid, INLINE_XATTR, size.as_bytes(), 0).await.expect("it is set");
}

async fn begin(client: &Client, dir: Fid, name: &[u8]) -> OpenFile {
    let (open, layout) = (OpenMode::READ_WRITE, LayoutSpec::inherit());
    client.create(&caller(), dir, name, 0o644, open, layout).await.expect("it is made").1
}

/// The client makes, writes and closes a file. Returns true if it is inline; the looker reads its bytes.
async fn lies_inline(client: &Client, looker: &Client, dir: Fid, name: &[u8], bytes: usize) -> bool {
    let file = begin(client, dir, name).await;
    let fid = file.fid();
    client.write(&file, 0, vec![7; bytes]).await.expect("it is written");
    client.close(file).await.expect("it closes");
    is_inline(looker, fid, bytes).await
}

async fn is_inline(looker: &Client, fid: Fid, bytes: usize) -> bool {
    let file = looker.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
    assert_eq!(looker.read(&file, 0, 1 << 20).await.expect("it reads"), vec![7; bytes][..]);
    looker.close(file).await.expect("it closes");
    looker.getattr(fid, None).await.expect("it is there").flags & attr_flags::INLINE != 0
}

/// The looker sets an inline bound on a directory that contradicts the maker's mount. It holds for files that the maker
/// makes there, and in directories made below it afterwards. A different bound on a subdirectory holds there; once
/// removed, the mount's bound holds.
#[test]
fn the_inline_bound_of_a_directory_precedes_that_of_the_mount() {
    for (mounts, directorys) in [(16 << 10, "0"), (0, "16KiB")] {
        let scene = Scene::new(1, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (mount(&scene, mounts).await, scene.mount(1).await);
            let by_mount = mounts > 0;
            let dir = mkdir(&maker, Fid::ROOT, b"d").await;
            let before = mkdir(&maker, dir, b"before").await;
            assert_eq!(lies_inline(&maker, &looker, dir, b"a", 100).await, by_mount);
            give(&looker, dir, directorys).await;
            let below = mkdir(&maker, dir, b"below").await;
            let deeper = mkdir(&maker, below, b"deeper").await;
            for dir in [dir, below, deeper] {
                assert_eq!(lies_inline(&maker, &looker, dir, b"b", 16_384).await, !by_mount, "{directorys}");
                let attr = looker.getattr(dir, None).await.expect("it is there");
                assert_eq!(attr.inline_bound(), InlineBound::named(directorys));
            }
            for dir in [before, Fid::ROOT] {
                assert_eq!(lies_inline(&maker, &looker, dir, b"b", 100).await, by_mount);
            }
            give(&looker, below, "2KiB").await;
            assert!(lies_inline(&maker, &looker, below, b"most", 2048).await);
            assert!(!lies_inline(&maker, &looker, below, b"more", 2049).await);
            maker.removexattr(&caller(), below, INLINE_XATTR).await.expect("it is removed");
            assert_eq!(lies_inline(&maker, &looker, below, b"c", 100).await, by_mount);
            assert_eq!(lies_inline(&maker, &looker, deeper, b"c", 100).await, !by_mount);
        });
    }
}

/// The maker sets a bound on an open file. The close respects it, whatever the mount's bound is.
#[test]
fn the_inline_bound_of_a_file_precedes_that_of_the_mount() {
    for (mounts, files) in [(16 << 10, "0"), (0, "1KiB")] {
        let scene = Scene::new(2, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (mount(&scene, mounts).await, scene.mount(1).await);
            let file = begin(&maker, Fid::ROOT, b"a").await;
            let fid = file.fid();
            give(&maker, fid, files).await;
            maker.write(&file, 0, vec![7; 1000]).await.expect("it is written");
            maker.close(file).await.expect("it closes");
            assert_eq!(is_inline(&looker, fid, 1000).await, mounts == 0, "{files}");
        });
    }
}

/// Starts a delayed create.
fn begin_ahead(maker: &Client, dir: Fid, name: &str) -> PendingFile {
    let ahead = maker.create_delayed(&caller(), dir, name.as_bytes(), 0o600, OpenMode::WRITE);
    ahead.expect("it is answered at once").1
}

/// Writes this many bytes to a pending create. Returns whether the write was accepted early, and whether the file is
/// inline after its close.
async fn written_early((maker, looker): (&Client, &Client), dir: Fid, bytes: usize) -> (bool, bool) {
    let coming = begin_ahead(maker, dir, &format!("f{bytes}"));
    let is_early = coming.write(0, &Bytes::from(vec![7; bytes]));
    let file = coming.file().await.expect("it comes");
    if !is_early {
        maker.write(&file, 0, vec![7; bytes]).await.expect("it is written");
    }
    let fid = file.fid();
    maker.close(file).await.expect("it closes");
    (is_early, is_inline(looker, fid, bytes).await)
}

/// A directory that is leased to the maker, below one with this bound.
async fn child(maker: &Client, name: &[u8], size: &str) -> Fid {
    let dir = mkdir(maker, Fid::ROOT, name).await;
    give(maker, dir, size).await;
    mkdir(maker, dir, b"child").await
}

/// The maker writes to pending creates in a directory with a bound, and in one that it made below with a delayed mkdir.
/// Writes up to the bound are accepted early and stay inline; larger ones are accepted, and go to OSTs.
#[test]
fn pending_creates_follow_the_inline_bound_of_their_directory() {
    for mounts in [0, 16 << 10] {
        let scene = Scene::new(3, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = (mount(&scene, mounts).await, scene.mount(1).await);
            let (some, none) = (child(&maker, b"some", "4KiB").await, child(&maker, b"none", "0").await);
            // Until the maker knows that the OSTs have space.
            for number in 0..50 {
                let coming = begin_ahead(&maker, some, &format!("warm{number}"));
                let is_early = coming.write(0, &Bytes::from_static(b"up"));
                maker.close(coming.file().await.expect("it comes")).await.expect("it closes");
                if is_early {
                    break;
                }
                assert!(number < 49, "nothing is ever taken early");
                scene.sim.sleep(Duration::from_millis(3)).await;
            }
            let clients = (&maker, &looker);
            let below = mkdir(&maker, some, b"below").await;
            for dir in [some, below] {
                assert_eq!(written_early(clients, dir, 4096).await, (true, true), "{mounts}");
                assert_eq!(written_early(clients, dir, 4097).await, (true, false), "{mounts}");
            }
            assert_eq!(written_early(clients, none, 100).await, (true, false), "{mounts}");
        });
    }
}
