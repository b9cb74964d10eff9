//! Writes and SETATTRs on a pending create: they are part of the file before another client sees it.

use std::time::Duration;

use bytes::Bytes;
use forebay_client::{Attr, Client, OpenMode, PendingFile, SetAttributes, SetTime};
use forebay_proto::{Errno, Fid};

use crate::scene::{Scene, caller};

/// The clients' machines.
const CLIENTS: &[&str] = &["maker", "looker"];

/// A directory that is leased to the maker, which also knows by now that the OSTs have space.
async fn directory(scene: &Scene, maker: &Client) -> Fid {
    let dir = maker.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
    for number in 0..50 {
        let (_, coming) = begin(maker, dir, format!("warm{number}").as_bytes());
        let is_early = coming.write(0, &Bytes::from_static(b"up"));
        maker.close(coming.file().await.expect("it comes")).await.expect("it closes");
        if is_early {
            return dir;
        }
        scene.sim.sleep(Duration::from_millis(3)).await;
    }
    panic!("nothing is ever taken early");
}

fn begin(maker: &Client, dir: Fid, name: &[u8]) -> (Attr, PendingFile) {
    maker.create_delayed(&caller(), dir, name, 0o600, OpenMode::WRITE).expect("it is answered at once")
}

async fn tar(maker: &Client, fid: Fid) -> Attr {
    let none = SetAttributes::default();
    let times = SetAttributes { mtime: Some(SetTime::At(77)), ..none.clone() };
    let owner = SetAttributes { uid: Some(5), gid: Some(6), mode: Some(0o640), ..none };
    maker.setattr(&caller(), fid, times, None).await.expect("it is set");
    maker.setattr(&caller(), fid, owner, None).await.expect("it is set")
}

async fn look(client: &Client, dir: Fid, name: &[u8]) -> Attr {
    let attr = client.lookup(&caller(), dir, name).await.expect("it is there");
    client.getattr(attr.fid, None).await.expect("it is there")
}

async fn content(client: &Client, dir: Fid, name: &[u8]) -> Vec<u8> {
    let attr = client.lookup(&caller(), dir, name).await.expect("it is there");
    let file = client.open(&caller(), attr.fid, OpenMode::READ).await.expect("it opens");
    let read = client.read(&file, 0, 1 << 20).await.expect("it reads").to_vec();
    client.close(file).await.expect("it closes");
    read
}

fn seen(attr: &Attr) -> (u64, i64, i64, u32, u32) {
    (attr.size, attr.mtime_ns, attr.ctime_ns, attr.mode & 0o7777, attr.uid)
}

/// The maker creates a file, writes 5000 bytes and sets attributes, all in zero virtual time and before the create's
/// reply. The looker sees all of it at any moment, and so do both clients after the close.
#[test]
fn looker_sees_writes_on_pending_create() {
    for seed in 0..60 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let dir = directory(&scene, &maker).await;
            let now = scene.sim.now();
            let (made, coming) = begin(&maker, dir, b"a");
            assert!(coming.write(0, &vec![1; 3000].into()) && coming.write(3000, &vec![2; 2000].into()));
            let told = tar(&maker, made.fid).await;
            let again = maker.getattr(made.fid, None).await.expect("it is told");
            assert_eq!((scene.sim.now().since(now), seen(&again)), (Duration::ZERO, seen(&told)));
            scene.sim.sleep(Duration::from_micros(seed % 20 * 40)).await;
            assert_eq!(seen(&look(&looker, dir, b"a").await), seen(&told), "seed {seed}");
            let bytes = [vec![1; 3000], vec![2; 2000]].concat();
            assert_eq!(content(&looker, dir, b"a").await, bytes, "seed {seed}");
            let file = coming.file().await.expect("it comes");
            maker.close(file).await.expect("it closes");
            for client in [&looker, &maker] {
                assert_eq!(seen(&look(client, dir, b"a").await), seen(&told), "seed {seed}");
                assert_eq!(content(client, dir, b"a").await, bytes, "seed {seed}");
            }
        });
    }
}

/// A program stats, or opens to read, a file whose create is pending. Meanwhile another program on the same mount sets the file's
/// mode, which is acknowledged at once. From then on every stat shows that mode, also when the reply to the first program arrives.
#[test]
fn mode_set_while_a_request_waits_for_the_create_stays_shown() {
    let mut met = 0;
    for seed in 0..40 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, _) = scene.mounts().await;
            let dir = directory(&scene, &maker).await;
            let (made, coming) = begin(&maker, dir, b"a");
            let first = maker.clone();
            let asking = scene.sim.env(scene.nodes[0]).spawn(async move {
                if seed % 2 == 0 {
                    first.getattr(made.fid, None).await.expect("it is there");
                } else {
                    let file = first.open(&caller(), made.fid, OpenMode::READ).await.expect("it opens");
                    first.close(file).await.expect("it closes");
                }
            });
            scene.sim.sleep(Duration::from_micros(seed % 8 * 10)).await;
            let is_pending = coming.arrived().is_none();
            let mode = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
            let begun = scene.sim.now();
            maker.setattr(&caller(), made.fid, mode, None).await.expect("it is set");
            met += u32::from(is_pending && scene.sim.now() == begun);
            asking.await.expect("it ends");
            for _ in 0..3 {
                let shown = maker.getattr(made.fid, None).await.expect("it is there").mode & 0o7777;
                assert_eq!(shown, 0o640, "seed {seed}");
            }
            maker.close(coming.file().await.expect("it comes")).await.expect("it closes");
        });
    }
    assert!(met > 10, "{met} of 40 set the mode while the create was pending");
}

/// The maker creates twelve small files, writes them, sets their attributes and closes them. The OSTs are stopped
/// meanwhile: no request needs them, and the looker reads all files.
#[test]
fn a_file_takes_two_requests() {
    let scene = Scene::new(3, CLIENTS);
    scene.sim.block_on(async {
        let (maker, looker) = scene.mounts().await;
        let dir = directory(&scene, &maker).await;
        let (before, mut closing) = (maker.stats().rpcs, Vec::new());
        for number in 0..12u8 {
            let (made, coming) = begin(&maker, dir, &[b'f', number + 1]);
            assert!(coming.write(0, &vec![number; 1000].into()));
            tar(&maker, made.fid).await;
            let client = maker.clone();
            closing.push(scene.sim.env(scene.nodes[0]).spawn(async move {
                client.close(coming.file_batched().await.expect("it comes")).await.expect("it closes");
            }));
        }
        scene.stop_osts();
        for closed in closing {
            closed.await.expect("it ends");
        }
        // Besides: a grant of space, and fids for later.
        let requests = maker.stats().rpcs - before;
        assert!((24..=26).contains(&requests), "{requests} requests for twelve files");
        for number in 0..12u8 {
            assert_eq!(content(&looker, dir, &[b'f', number + 1]).await, [number; 1000]);
        }
    });
}

/// The maker writes 10,000 bytes to a pending create. Writes that are not small, not sequential, or too late are not
/// accepted early. The maker sends such a write after the create's reply, and it overwrites the earlier bytes.
#[test]
fn large_or_late_writes_on_a_pending_create_wait_and_overwrite_earlier_bytes() {
    for seed in 0..30 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let dir = directory(&scene, &maker).await;
            let (_, coming) = begin(&maker, dir, b"a");
            assert!(!coming.write(5, &vec![9; 10].into()), "not the first");
            assert!(coming.write(0, &vec![1; 10_000].into()));
            assert!(!coming.write(0, &vec![9; 10].into()), "over it");
            assert!(!coming.write(10_000, &vec![9; 1 << 20].into()), "too many");
            let file = coming.file().await.expect("it comes");
            assert!(!coming.write(10_000, &vec![9; 10].into()), "it is there");
            let length = [4usize, 20_000, 3 << 20][seed as usize % 3];
            maker.write(&file, 9_998, vec![2; length]).await.expect("it is written");
            maker.close(file).await.expect("it closes");
            let expected = [vec![1; 9_998], vec![2; length]].concat();
            let read = content(&looker, dir, b"a").await;
            assert!(read == expected[..expected.len().min(1 << 20)], "seed {seed}");
        });
    }
}

/// The maker writes to a pending create, then truncates the file to zero, through another handle or by its fid. The
/// earlier bytes do not come back, neither for the looker nor for the maker.
#[test]
fn bytes_truncated_on_a_pending_create_do_not_come_back() {
    for seed in 0..60 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let dir = directory(&scene, &maker).await;
            let (made, coming) = begin(&maker, dir, b"a");
            assert!(coming.write(0, &vec![1; 5000].into()));
            scene.sim.sleep(Duration::from_micros(seed % 6 * 30)).await;
            let mut expected = Vec::new();
            match seed % 2 {
                0 => {
                    let mode = OpenMode { truncate: true, ..OpenMode::WRITE };
                    let file = maker.open(&caller(), made.fid, mode).await.expect("it opens");
                    maker.write(&file, 0, vec![2; 3]).await.expect("it is written");
                    maker.close(file).await.expect("it closes");
                    expected = vec![2; 3];
                }
                _ => {
                    let changes = SetAttributes { size: Some(0), ..SetAttributes::default() };
                    maker.setattr(&caller(), made.fid, changes, None).await.expect("it is cut");
                }
            }
            if seed % 3 == 0 {
                scene.sim.sleep(Duration::from_millis(200)).await;
            }
            maker.close(coming.file().await.expect("it comes")).await.expect("it closes");
            assert_eq!(content(&looker, dir, b"a").await, expected, "seed {seed}");
            assert_eq!(content(&maker, dir, b"a").await, expected, "seed {seed}");
        });
    }
}

/// create, write, setattr |the MDT dies| lookup, read
///
/// The MDT crashes while the maker has a pending create with a write and attributes. After its restart the looker sees
/// the size, times, owner and bytes that the maker was told.
#[test]
fn a_pending_create_with_writes_survives_an_mdt_crash() {
    for seed in 0..60 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let dir = directory(&scene, &maker).await;
            let (made, coming) = begin(&maker, dir, b"a");
            assert!(coming.write(0, &vec![1; 5000].into()));
            let told = tar(&maker, made.fid).await;
            let client = maker.clone();
            let close = scene.sim.env(scene.nodes[0]).spawn(async move {
                client.close(coming.file_batched().await.expect("it comes")).await.expect("it closes");
            });
            scene.sim.sleep(Duration::from_micros(seed * 50)).await;
            scene.sim.crash(scene.mdt());
            scene.cluster.boot(0);
            // The create was replayed without a lease, so the MDT sets the ctime.
            let seen = |attr: Attr| (attr.size, attr.mtime_ns, attr.mode & 0o7777, attr.uid);
            assert_eq!(seen(look(&looker, dir, b"a").await), seen(told.clone()), "seed {seed}");
            assert_eq!(content(&looker, dir, b"a").await, [1; 5000], "seed {seed}");
            close.await.expect("it ends");
            assert_eq!(seen(look(&looker, dir, b"a").await), seen(told), "seed {seed}");
        });
    }
}

/// The maker is cut off from the MDT with a pending create. The looker does not see the file. When the link heals, the
/// maker's open file and its next sync report EIO; after that the maker continues.
#[test]
fn a_client_that_is_cut_off_loses_a_pending_create_and_reports_eio() {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let dir = directory(&scene, &maker).await;
            scene.sim.cut_both(scene.nodes[0], scene.mdt());
            let (made, coming) = begin(&maker, dir, b"a");
            assert!(coming.write(0, &vec![1; 5000].into()));
            tar(&maker, made.fid).await;
            let absent = looker.lookup(&caller(), dir, b"a").await;
            assert_eq!(absent.map(drop).expect_err("it did not happen").errno, Errno::ENOENT, "seed {seed}");
            scene.sim.heal(scene.nodes[0], scene.mdt());
            assert_eq!(coming.file().await.map(drop).expect_err("it was lost").errno, Errno::EIO);
            assert_eq!(maker.sync_all().await.expect_err("it was lost").errno, Errno::EIO);
            // Nothing is left of it that later requests would wait for.
            maker.sync_all().await.expect("it was said");
            maker.mkdir(&caller(), dir, b"other", 0o755).await.expect("it goes on");
        });
    }
}

/// create, write, setattr, sync of everything by either client |maker and all servers die| lookup, read
///
/// The maker or the looker syncs everything while the maker's create is pending. The maker and all servers crash. The
/// looker sees the file with its bytes and attributes.
#[test]
fn a_synced_pending_create_survives_client_and_servers() {
    for seed in 0..20 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let dir = directory(&scene, &maker).await;
            let (made, coming) = begin(&maker, dir, b"a");
            assert!(coming.write(0, &vec![1; 5000].into()));
            tar(&maker, made.fid).await;
            match seed % 2 {
                0 => looker.sync_all().await.expect("it syncs"),
                _ => maker.sync_all().await.expect("it syncs"),
            }
            scene.sim.crash(scene.nodes[0]);
            scene.cluster.servers.iter().for_each(|server| scene.sim.crash(server.node));
            scene.cluster.boot_all();
            std::mem::forget(coming);
            let attr = look(&looker, dir, b"a").await;
            assert_eq!((attr.size, attr.mtime_ns, attr.uid), (5000, 77, 5), "seed {seed}");
            assert_eq!(content(&looker, dir, b"a").await, [1; 5000], "seed {seed}");
        });
    }
}

/// create, write early |maker stopped| evicted; another client overwrites the file |maker continues| read
///
/// The maker is stopped with a pending create that has a write and attributes. The looker opens the file, truncates it,
/// writes to it and sets its mode, so the MDT evicts the maker. When the maker continues, nothing of its old writes
/// arrives: both clients read the looker's bytes.
#[test]
fn writes_on_a_pending_create_do_not_arrive_after_an_eviction() {
    let mut late = 0;
    for seed in 0..80 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (maker, looker) = scene.mounts().await;
            let dir = directory(&scene, &maker).await;
            let (made, coming) = begin(&maker, dir, b"a");
            assert!(coming.write(0, &vec![1; 3000].into()));
            tar(&maker, made.fid).await;
            scene.sim.sleep(Duration::from_micros(seed * 30)).await;
            scene.sim.pause(scene.nodes[0]);
            let Ok(attr) = looker.lookup(&caller(), dir, b"a").await else { return };
            let mode = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
            let file = looker.open(&caller(), attr.fid, mode).await.expect("it opens");
            looker.write(&file, 0, vec![2; 2000]).await.expect("it writes");
            let mine = SetAttributes { mode: Some(0o604), ..SetAttributes::default() };
            looker.setattr(&caller(), attr.fid, mine, None).await.expect("it is set");
            looker.fsync(&file, false).await.expect("it syncs");
            scene.sim.resume(scene.nodes[0]);
            scene.sim.sleep(Duration::from_secs(20)).await;
            late += u32::from(maker.stats().mdt_evictions > 0);
            let opened = maker.open(&caller(), attr.fid, OpenMode::READ).await.expect("it opens");
            for (client, file) in [(&looker, &file), (&maker, &opened)] {
                let read = client.read(file, 0, 1 << 20).await.expect("it reads");
                assert!(read == vec![2; 2000], "seed {seed}: {} bytes, first {:?}", read.len(), read.first());
            }
            let attr = looker.getattr(attr.fid, None).await.expect("it is told");
            assert_eq!(attr.mode & 0o777, 0o604, "seed {seed}");
        });
    }
    assert!(late > 20, "only {late} were evicted with a file on its way");
}

/// The maker is 20 ms away. It unpacks more files than the session has slots for; each is a create and a SETATTR, which wait for slots,
/// and not for all that are delayed.
#[test]
fn a_program_that_unpacks_many_files_far_away_waits_for_few_round_trips() {
    const ROUND_TRIP: Duration = Duration::from_millis(20);
    const FILES: u32 = 300;
    let scene = Scene::new(9, CLIENTS);
    scene.sim.block_on(async {
        let (maker, looker) = scene.mounts().await;
        let dir = directory(&scene, &maker).await;
        for server in &scene.cluster.servers {
            let link = forebay_env::sim::Link { latency: ROUND_TRIP / 2, ..Default::default() };
            scene.sim.set_link(scene.nodes[0], server.node, link);
        }
        let begun = scene.sim.now();
        for number in 0..FILES {
            let name = format!("f{number}");
            let pending = maker.create_pending(&caller(), dir, name.as_bytes(), 0o600, OpenMode::WRITE).await;
            let (attr, coming) = pending.expect("it is made");
            assert!(coming.write(0, &vec![7; 1000].into()), "{name}");
            tar(&maker, attr.fid).await;
            let maker = maker.clone();
            drop(scene.sim.env(scene.nodes[0]).spawn(async move {
                maker.close(coming.file_batched().await.expect("it comes")).await.expect("it closes");
            }));
        }
        let took = scene.sim.now().since(begun);
        assert!(took < 30 * ROUND_TRIP, "{took:?} for {FILES} files");
        for number in [0, FILES / 2, FILES - 1] {
            assert_eq!(content(&looker, dir, format!("f{number}").as_bytes()).await, [7; 1000]);
        }
    });
}
