//! Commit levels of directories and files: they hold whatever the mount's level is, and whoever dies.

use std::{cell::RefCell, rc::Rc, time::Duration};

use forebay_client::{COMMIT_XATTR, Client, CommitLevel, OpenFile, OpenMode};
use forebay_proto::{Errno, Fid};

use crate::scene::{Scene, caller, create_in, striped};

/// The clients' machines.
const CLIENTS: &[&str] = &["writer", "other"];

const RECORD: usize = 3000;
const SEEDS: u64 = 24;

impl Scene {
    async fn mount_at(&self, number: usize, level: CommitLevel) -> Client {
        self.cluster.mount(self.nodes[number], level).await.expect("it mounts")
    }

    /// The first client crashes, and every server loses power and restarts.
    fn die(&self) {
        self.sim.crash(self.nodes[0]);
        self.cluster.servers.iter().for_each(|server| self.sim.power_cut(server.node));
        self.cluster.boot_all();
    }
}

async fn give(client: &Client, fid: Fid, level: CommitLevel) {
    client.setxattr(&caller(), fid, COMMIT_XATTR, level.name().as_bytes(), 0).await.expect("it is set");
}

/// A directory of this level in the root.
async fn directory(client: &Client, level: Option<CommitLevel>) -> Fid {
    let dir = client.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
    if let Some(level) = level {
        give(client, dir, level).await;
    }
    client.sync_all().await.expect("it syncs");
    dir
}

async fn create(client: &Client, dir: Fid, name: &[u8]) -> OpenFile {
    create_in(client, dir, name, striped(3)).await
}

async fn write(client: &Client, file: &OpenFile, record: u64) {
    let written = client.write(file, record * RECORD as u64, vec![(record as u8).wrapping_add(1); RECORD]).await;
    assert_eq!(written, Ok(RECORD));
}

fn records(count: u64) -> Vec<u8> {
    (0..count).flat_map(|record| vec![(record as u8).wrapping_add(1); RECORD]).collect()
}

async fn seen(client: &Client, fid: Fid) -> Vec<u8> {
    let file = client.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
    client.read(&file, 0, 4 << 20).await.expect("it reads").to_vec()
}

/// Names of files with the number of bytes acknowledged for each.
type Acknowledged = Rc<RefCell<Vec<(String, usize)>>>;

/// Makes files and writes two records to each until the client dies: a small one, and through a new handle one over all
/// OSTs.
async fn work(client: Client, dir: Fid, acknowledged: Acknowledged) {
    let mut open = Vec::new();
    for number in 0..200 {
        let name = format!("f{number}");
        let file = match client.create_delayed(&caller(), dir, name.as_bytes(), 0o644, OpenMode::READ_WRITE) {
            Some((_, coming)) => {
                acknowledged.borrow_mut().push((name, 0));
                coming.file().await.expect("it comes")
            }
            None => {
                let file = create(&client, dir, name.as_bytes()).await;
                acknowledged.borrow_mut().push((name, 0));
                file
            }
        };
        let append = async |file: &OpenFile, offset: usize, length: usize| {
            let written = client.write(file, offset as u64, vec![number as u8 + 1; length]).await;
            assert_eq!(written, Ok(length));
            acknowledged.borrow_mut().last_mut().expect("it was made").1 = offset + length;
        };
        append(&file, 0, RECORD).await;
        let fid = file.fid();
        client.close(file).await.expect("it closes");
        let again = client.open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens");
        append(&again, RECORD, 200_000).await;
        open.push(again);
    }
}

/// Client and servers die together. Returns how many acknowledged files were lost, whole or in part.
fn lost(seed: u64, level: Option<CommitLevel>) -> usize {
    let scene = Scene::new(seed, CLIENTS);
    let acknowledged = Acknowledged::default();
    scene.sim.block_on(async {
        let other = scene.mount(1).await;
        let dir = directory(&other, level).await;
        let (cluster, node, told) = (scene.cluster.clone(), scene.nodes[0], acknowledged.clone());
        scene.sim.start(node, move |_| async move {
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            work(client, dir, told).await;
        });
        scene.sim.sleep(Duration::from_micros(300_000 + seed * 7_919)).await;
        assert!(!acknowledged.borrow().is_empty(), "seed {seed}: it was too slow");
        scene.die();
        let mut lost = 0;
        let acknowledged = acknowledged.take();
        for (number, (name, bytes)) in acknowledged.iter().enumerate() {
            let (size, there) = match other.lookup(&caller(), dir, name.as_bytes()).await {
                Ok(attr) => (attr.size, seen(&other, attr.fid).await),
                Err(error) => {
                    assert_eq!(error.errno, Errno::ENOENT, "seed {seed}: {name}: {error}");
                    lost += 1;
                    continue;
                }
            };
            let whole = there.len() >= *bytes && there[..*bytes].iter().all(|byte| *byte == number as u8 + 1);
            lost += usize::from(!whole || size < *bytes as u64);
        }
        lost
    })
}

/// create, write |client and all servers lose power| lookup, read
///
/// The writer makes and writes files in a directory of level commit, on a mount of level data. It crashes and all
/// servers lose power. The other client finds every acknowledged file and byte.
#[test]
fn changes_in_a_directory_of_level_commit_survive_client_and_servers() {
    for seed in 0..SEEDS {
        assert_eq!(lost(seed, Some(CommitLevel::Commit)), 0, "seed {seed}");
    }
    // Without the level something is lost in some seed; otherwise the check above would prove nothing.
    assert!((0..SEEDS).any(|seed| lost(seed, None) > 0));
}

/// write (buffered), set level commit, write |client and all servers lose power| read
///
/// The writer has a buffered write to an open file when it sets level commit on it. The buffered write is flushed then,
/// and later writes are synchronous: the other client reads all records.
#[test]
fn setting_a_level_flushes_buffered_writes_of_an_open_file_and_applies_to_later_ones() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
            let dir = directory(&other, None).await;
            let file = create(&writer, dir, b"f").await;
            write(&writer, &file, 0).await;
            writer.fsync(&file, false).await.expect("it syncs");
            let before = writer.stats().rpcs;
            write(&writer, &file, 1).await;
            assert_eq!(writer.stats().rpcs, before, "seed {seed}: it is kept back");
            give(&writer, file.fid(), CommitLevel::Commit).await;
            if seed % 2 == 0 {
                write(&writer, &file, 2).await;
            }
            scene.die();
            let attr = other.lookup(&caller(), dir, b"f").await.expect("it is there");
            assert!(seen(&other, attr.fid).await == records(2 + u64::from(seed % 2 == 0)), "seed {seed}");
        });
    }
}

/// A client on a mount of level commit writes 50 records to a file. With level data on the file the writes are
/// coalesced. An O_SYNC handle to it sends each write again. The file's level takes precedence over the mount's, and
/// the handle's over both.
#[test]
fn a_file_of_level_data_on_a_mount_of_level_commit_is_gathered() {
    let scene = Scene::new(1, CLIENTS);
    scene.sim.block_on(async {
        let client = scene.mount_at(0, CommitLevel::Commit).await;
        let requests = async |file: &OpenFile| {
            write(&client, file, 0).await;
            client.fsync(file, false).await.expect("it syncs");
            let before = client.stats().rpcs;
            for record in 0..50 {
                write(&client, file, record).await;
            }
            client.stats().rpcs - before
        };
        let file = create(&client, Fid::ROOT, b"f").await;
        assert!(requests(&file).await >= 50);
        give(&client, file.fid(), CommitLevel::Data).await;
        assert!(requests(&file).await < 10);
        let sync = OpenMode { sync: true, ..OpenMode::READ_WRITE };
        let synced = client.open(&caller(), file.fid(), sync).await.expect("it opens");
        assert!(requests(&synced).await >= 50);
        client.removexattr(&caller(), file.fid(), COMMIT_XATTR).await.expect("it is removed");
        assert!(requests(&file).await >= 50, "as the mount says");
    });
}

/// delayed create, set level commit on the directory, create, unlink, mkdir |client and all servers lose power| lookup
///
/// The maker delays directory operations in a directory. The maker or another client sets level commit on it. From then
/// on the maker asks the MDT first, and nothing that it was acknowledged is lost.
#[test]
fn changes_of_entries_of_a_directory_of_level_commit_are_not_delayed() {
    for by_other in [false, true] {
        let scene = Scene::new(5, CLIENTS);
        scene.sim.block_on(async {
            let (maker, other) = (scene.mount(0).await, scene.mount(1).await);
            let dir = maker.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
            maker.settled(dir).await;
            let open = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
            let ahead = |name: &[u8]| maker.create_delayed(&caller(), dir, name, 0o644, open).map(|(_, coming)| coming);
            let coming = ahead(b"a").expect("it is answered at once");
            let setter = if by_other { &other } else { &maker };
            give(setter, dir, CommitLevel::Commit).await;
            maker.close(coming.file().await.expect("it is made")).await.expect("it closes");
            for name in [&b"b"[..], b"c"] {
                assert!(ahead(name).is_none());
                let file = create(&maker, dir, name).await;
                maker.close(file).await.expect("it closes");
                maker.getattr(dir, None).await.expect("it is there");
                scene.sim.sleep(Duration::from_secs(1)).await;
            }
            let before = maker.stats().delayed_operations;
            maker.unlink(&caller(), dir, b"b").await.expect("it goes");
            maker.mkdir(&caller(), dir, b"s", 0o755).await.expect("it is made");
            assert_eq!(maker.stats().delayed_operations, before);
            scene.die();
            let has = async |name: &[u8]| other.lookup(&caller(), dir, name).await.map(drop);
            assert!(has(b"a").await.is_ok() && has(b"c").await.is_ok() && has(b"s").await.is_ok());
            assert_eq!(has(b"b").await.map_err(|error| error.errno), Err(Errno::ENOENT));
        });
    }
}

/// unlink of a file of level commit |client and all servers lose power| lookup
///
/// The maker unlinks a file of level commit in a directory without a level. The unlink is not delayed: the other client
/// does not find the name afterwards.
#[test]
fn the_name_of_a_file_of_level_commit_goes_when_the_mdt_has_committed_that() {
    let scene = Scene::new(6, CLIENTS);
    scene.sim.block_on(async {
        let (maker, other) = (scene.mount(0).await, scene.mount(1).await);
        let dir = maker.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
        maker.settled(dir).await;
        for (name, level) in [(&b"data"[..], CommitLevel::Data), (b"commit", CommitLevel::Commit)] {
            let file = create(&maker, dir, name).await;
            give(&maker, file.fid(), level).await;
            maker.close(file).await.expect("it closes");
            maker.lookup(&caller(), dir, name).await.expect("it is there");
            let before = maker.stats().delayed_operations;
            maker.unlink(&caller(), dir, name).await.expect("it goes");
            let ahead = maker.stats().delayed_operations - before;
            assert!(level == CommitLevel::Data || ahead == 0, "{ahead} were answered ahead");
        }
        scene.die();
        let error = other.lookup(&caller(), dir, b"commit").await.expect_err("it is gone");
        assert_eq!(error.errno, Errno::ENOENT);
    });
}

/// Two clients write interleaved records to one file. A third one sets a level on it, which they do not know yet. With
/// level commit they get no byte-range write lease; with level data they do.
#[test]
fn a_file_of_level_commit_gets_no_byte_range_write_leases() {
    for level in [CommitLevel::Data, CommitLevel::Commit] {
        let scene = Scene::new(7, CLIENTS);
        scene.sim.block_on(async {
            let clients = [scene.mount(0).await, scene.mount(1).await];
            let dir = directory(&clients[0], None).await;
            let mut files = Vec::new();
            for client in &clients {
                files.push(create(client, dir, b"f").await);
            }
            let setter = scene.cluster.mount(scene.sim.add_node("setter"), CommitLevel::Data).await.expect("it mounts");
            give(&setter, files[0].fid(), level).await;
            for step in 0..100 {
                for (rank, client) in clients.iter().enumerate() {
                    write(client, &files[rank], step * 2 + rank as u64).await;
                }
                scene.sim.sleep(Duration::from_millis(5)).await;
            }
            let shares: u64 = clients.iter().map(|client| client.stats().shares).sum();
            assert_eq!(shares == 0, level == CommitLevel::Commit, "{level:?}: {shares} shares");
        });
    }
}

/// Two clients buffer interleaved writes to one file under byte-range write leases. One of them sets level commit on
/// the file. The other one's lease is recalled: it sends each later write at once.
#[test]
fn setting_a_level_recalls_the_byte_range_write_leases_of_other_clients() {
    let scene = Scene::new(8, CLIENTS);
    scene.sim.block_on(async {
        let clients = [scene.mount(0).await, scene.mount(1).await];
        let dir = directory(&clients[0], None).await;
        let mut files = Vec::new();
        for client in &clients {
            files.push(create(client, dir, b"f").await);
        }
        let mut step = 0;
        while clients.iter().any(|client| client.stats().shares == 0) {
            assert!(step < 1000, "they never share it");
            for (rank, client) in clients.iter().enumerate() {
                write(client, &files[rank], step * 2 + rank as u64).await;
            }
            step += 1;
            scene.sim.sleep(Duration::from_millis(5)).await;
        }
        give(&clients[1], files[1].fid(), CommitLevel::Commit).await;
        for step in step..step + 20 {
            let before = clients[0].stats().rpcs;
            write(&clients[0], &files[0], step * 2).await;
            assert!(clients[0].stats().rpcs > before, "it is kept back");
        }
    });
}

/// write, set level commit by another client, look, write |client and all servers lose power| read
///
/// The other client sets level commit on a file that the writer has open. The writer learns of the level with the
/// file's attributes, by a stat or a lookup. Its next write survives.
#[test]
fn another_client_learns_a_new_commit_level_with_the_attributes() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
            let dir = directory(&other, None).await;
            let file = create(&writer, dir, b"f").await;
            write(&writer, &file, 0).await;
            give(&other, file.fid(), CommitLevel::Commit).await;
            let attr = match seed % 2 {
                0 => writer.getattr(file.fid(), None).await,
                _ => writer.lookup(&caller(), dir, b"f").await,
            };
            assert_eq!(attr.expect("it is there").level(), Some(CommitLevel::Commit));
            write(&writer, &file, 1).await;
            scene.die();
            assert!(seen(&other, file.fid()).await == records(2), "seed {seed}");
        });
    }
}
