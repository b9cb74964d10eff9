//! Inline files: small files whose bytes are with the MDT. Nobody can tell, except by what it takes.

use std::time::Duration;

use forebay_client::{Client, OpenMode, SetAttributes};
use forebay_proto::{Fid, message::attr_flags};

use crate::scene::{Scene, begin, caller, content, make, open};

/// The clients' machines.
const CLIENTS: &[&str] = &["maker", "looker"];

async fn is_inline(client: &Client, name: &[u8]) -> bool {
    let attr = client.lookup(&caller(), Fid::ROOT, name).await.expect("it is there");
    client.getattr(attr.fid, None).await.expect("it is there").flags & attr_flags::INLINE != 0
}

/// The maker makes a small file while all OSTs are down. The looker reads it, seeks in it, and reads on after the maker
/// has unlinked it.
#[test]
fn a_small_file_needs_no_ost() {
    let scene = Scene::new(1, CLIENTS);
    scene.sim.block_on(async {
        let (maker, looker) = scene.mounts().await;
        // The maker asks the OSTs now and then whether they have space.
        for number in 0..20 {
            make(&maker, format!("warm{number}").as_bytes(), b"up").await;
        }
        scene.stop_osts();
        make(&maker, b"a", b"twelve bytes").await;
        assert_eq!(content(&looker, b"a").await, b"twelve bytes");
        assert_eq!(content(&maker, b"a").await, b"twelve bytes");
        let file = open(&looker, b"a", OpenMode::READ).await;
        assert_eq!(looker.read(&file, 7, 100).await.expect("it reads"), b"bytes"[..]);
        assert_eq!(looker.read(&file, 12, 100).await.expect("it reads"), b""[..]);
        assert_eq!(looker.seek_data(&file, 3).await.expect("it is data"), 3);
        assert_eq!(looker.seek_hole(&file, 3).await.expect("it ends"), 12);
        let attr = looker.getattr(file.fid(), Some(&file)).await.expect("it is there");
        assert_eq!((attr.size, looker.used_bytes(&attr).await.expect("told")), (12, 12));
        maker.unlink(&caller(), Fid::ROOT, b"a").await.expect("it goes");
        assert_eq!(looker.read(&file, 0, 6).await.expect("it is open"), b"twelve"[..]);
    });
}

/// The maker rewrites a small file ten times; each time the close is still in flight when the looker opens the file.
/// The looker always reads the bytes of the latest close.
#[test]
fn an_open_returns_the_inline_bytes_of_the_latest_close() {
    for seed in 0..60 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            for round in 0..10u8 {
                let bytes = vec![round; 1000 + usize::from(round)];
                let file = begin(&maker, b"a").await;
                maker.write(&file, 0, bytes.clone()).await.expect("it is written");
                let closing = maker.clone();
                // close(2) returns at once.
                maker.flush(&file).await.expect("it is flushed");
                let closed = scene.sim.env(scene.nodes[0]).spawn(async move { closing.close(file).await });
                scene.sim.sleep(Duration::from_micros(seed * 60)).await;
                assert_eq!(content(&looker, b"a").await, bytes, "seed {seed}, round {round}");
                closed.await.expect("it ends").expect("it closes");
            }
        });
    }
}

/// The looker writes to the maker's inline file at different offsets, then appends. The file moves to an OST, and both
/// clients read all bytes, the maker also through a handle from before.
#[test]
fn an_inline_file_that_another_client_writes_moves_to_an_ost_with_all_bytes() {
    for seed in 0..30 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let at = [0usize, 5, 100, 16_380, 100_000][seed as usize % 5];
            let mut expected = vec![1; 10_000];
            make(&maker, b"a", &expected).await;
            let before = open(&maker, b"a", OpenMode::READ).await;
            assert_eq!(maker.read(&before, 0, 3).await.expect("it reads"), [1, 1, 1][..]);
            assert!(is_inline(&looker, b"a").await);
            let file = open(&looker, b"a", OpenMode::READ_WRITE).await;
            assert_eq!(looker.read(&file, 9_990, 100).await.expect("it reads"), [1; 10][..]);
            looker.write(&file, at as u64, vec![2; 300]).await.expect("it is written");
            expected.resize(expected.len().max(at + 300), 0);
            expected[at..at + 300].fill(2);
            looker.close(file).await.expect("it closes");
            let read = maker.read(&before, 0, 1 << 20).await.expect("it reads");
            assert!(read == expected, "seed {seed}");
            maker.close(before).await.expect("it closes");
            assert!(content(&looker, b"a").await == expected && !is_inline(&maker, b"a").await, "seed {seed}");
            let file = open(&looker, b"a", OpenMode::WRITE).await;
            looker.append(&file, vec![3; 7]).await.expect("it is appended");
            expected.extend([3; 7]);
            looker.close(file).await.expect("it closes");
            assert!(content(&maker, b"a").await == expected, "seed {seed}");
        });
    }
}

/// write to an inline file |power: MDT, OSTs, or all, at any moment| read
///
/// The looker writes to the maker's inline file when the MDT, the OSTs or all servers lose power. The write completes,
/// and the maker reads all bytes.
#[test]
fn outlining_survives_server_power_cut() {
    for seed in 0..60u64 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            make(&maker, b"a", &[1; 10_000]).await;
            assert!(is_inline(&looker, b"a").await);
            let (client, which) = (looker.clone(), seed % 3);
            let writing = scene.sim.env(scene.nodes[1]).spawn(async move {
                let file = open(&client, b"a", OpenMode::READ_WRITE).await;
                for at in [100, 20_000] {
                    client.write(&file, at, vec![2; 100]).await.expect("it is written");
                }
                client.close(file).await
            });
            scene.sim.sleep(Duration::from_micros(seed * 100)).await;
            if which != 1 {
                scene.sim.power_cut(scene.cluster.servers[0].node);
            }
            if which != 0 {
                scene.cluster.servers[1..].iter().for_each(|server| scene.sim.power_cut(server.node));
            }
            scene.sim.sleep(Duration::from_millis(50)).await;
            if which != 1 {
                scene.cluster.boot(0);
            }
            if which != 0 {
                scene.boot_osts();
            }
            writing.await.expect("it ends").expect("it closes");
            let mut expected = vec![1; 10_000];
            expected.resize(20_000, 0);
            expected.extend([2; 100]);
            expected[100..200].fill(2);
            assert!(content(&maker, b"a").await == expected, "seed {seed}");
            assert!(!is_inline(&looker, b"a").await, "seed {seed}");
        });
    }
}

/// The maker truncates and extends an inline file. Within the bound its bytes stay with the MDT, beyond it they move to
/// an OST. The looker reads the right bytes after each step. A file that is made again is inline again.
#[test]
fn an_inline_file_is_truncated_and_extended_in_place_and_beyond_the_bound_on_an_ost() {
    let scene = Scene::new(3, CLIENTS);
    scene.sim.block_on(async {
        let (maker, looker) = scene.mounts().await;
        make(&maker, b"a", &[1; 5000]).await;
        let file = open(&looker, b"a", OpenMode::READ).await;
        assert_eq!(looker.read(&file, 0, 9000).await.expect("it reads").len(), 5000);
        let mut expected = vec![1; 5000];
        for (size, stays) in [(3000, true), (8000, true), (16_384, true), (40_000, false), (10, false)] {
            let change = SetAttributes { size: Some(size), ..SetAttributes::default() };
            maker.setattr(&caller(), file.fid(), change, None).await.expect("it is cut");
            expected.resize(size as usize, 0);
            let read = looker.read(&file, 0, 1 << 20).await.expect("it reads");
            assert!(read == expected, "{size}");
            assert!(content(&maker, b"a").await == expected, "{size}");
            assert_eq!(is_inline(&looker, b"a").await, stays, "{size}");
        }
        looker.close(file).await.expect("it closes");
        // Made again, the file is small. Nobody gets a lease on an inode that was recalled a moment ago, hence the
        // pause.
        scene.sim.sleep(Duration::from_secs(1)).await;
        make(&maker, b"a", b"new").await;
        assert!(content(&looker, b"a").await == b"new" && is_inline(&looker, b"a").await);
    });
}

/// The maker makes files that are too large, closed late, open at the looker, synced, or with a hole. All of these go
/// to the OSTs; a file of exactly the bound stays inline.
#[test]
fn large_late_synced_sparse_and_shared_files_go_to_the_osts() {
    let scene = Scene::new(4, CLIENTS);
    scene.sim.block_on(async {
        let (maker, looker) = scene.mounts().await;
        make(&maker, b"large", &[1; 16_385]).await;
        make(&maker, b"most", &[1; 16_384]).await;
        assert!(!is_inline(&looker, b"large").await && is_inline(&looker, b"most").await);
        assert_eq!(content(&looker, b"most").await, [1; 16_384]);
        let file = begin(&maker, b"slow").await;
        maker.write(&file, 0, vec![1; 10]).await.expect("it is written");
        scene.sim.sleep(Duration::from_millis(100)).await;
        maker.close(file).await.expect("it closes");
        let file = begin(&maker, b"open").await;
        maker.write(&file, 0, vec![1; 10]).await.expect("it is written");
        let other = open(&looker, b"open", OpenMode::READ).await;
        maker.close(file).await.expect("it closes");
        let file = begin(&maker, b"synced").await;
        maker.write(&file, 0, vec![1; 10]).await.expect("it is written");
        maker.fsync(&file, false).await.expect("it is synced");
        maker.close(file).await.expect("it closes");
        let file = begin(&maker, b"holes").await;
        maker.write(&file, 100, vec![1; 10]).await.expect("it is written");
        maker.close(file).await.expect("it closes");
        for name in [&b"slow"[..], b"open", b"synced"] {
            assert_eq!((content(&looker, name).await, is_inline(&looker, name).await), (vec![1; 10], false));
        }
        assert_eq!((content(&looker, b"holes").await.len(), is_inline(&looker, b"holes").await), (110, false));
        looker.close(other).await.expect("it closes");
    });
}
