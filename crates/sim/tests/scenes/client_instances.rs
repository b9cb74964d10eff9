//! A client that the MDT evicted and that is fenced on OSTs continues as a new client instance, without a new mount. It
//! reports its losses, and what it does from then on counts.

use std::{ops::Range, time::Duration};

use forebay_client::{Client, LockSpec, OpenFile, OpenMode, SetAttributes, lock_kind, lock_mode};
use forebay_proto::{ClientId, Errno, Fid};

use crate::scene::{self, Scene, caller, on_ost, striped};

/// The clients' machines.
const CLIENTS: &[&str] = &["first", "second"];

const RECORD: usize = 3000;
/// Over all OSTs.
const LARGE: usize = 1 << 20;
/// A client continues within this time after its link is back.
const SOON: Duration = Duration::from_secs(5);

impl Scene {
    /// Cuts the first client off from these servers.
    fn cut(&self, servers: Range<usize>) {
        servers.for_each(|server| self.sim.cut_both(self.nodes[0], self.cluster.servers[server].node));
    }

    fn heal(&self, servers: Range<usize>) {
        servers.for_each(|server| self.sim.heal(self.nodes[0], self.cluster.servers[server].node));
    }

    /// The MDT alone, or all servers.
    fn servers(&self, seed: u64) -> Range<usize> {
        0..if seed.is_multiple_of(2) { 1 } else { self.cluster.servers.len() }
    }

    async fn until_it_is_another(&self, client: &Client, was: ClientId) {
        let begun = self.sim.now();
        while client.id() == was {
            assert!(self.sim.now().since(begun) < SOON, "it is still who it was");
            self.sim.sleep(Duration::from_millis(1)).await;
        }
    }

    fn power_cycle_osts(&self) {
        (1..self.cluster.servers.len()).for_each(|server| self.power_cycle(server));
    }
}

async fn create(client: &Client, name: &[u8]) -> OpenFile {
    scene::create(client, name, striped(3)).await
}

/// A file on one OST.
async fn create_on(client: &Client, name: &[u8], stripe_index: u32) -> OpenFile {
    scene::create(client, name, on_ost(stripe_index)).await
}

async fn open(client: &Client, file: &OpenFile) -> OpenFile {
    client.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens")
}

async fn write(client: &Client, file: &OpenFile, record: u64) {
    let written = client.write(file, record * RECORD as u64, vec![record as u8 + 1; RECORD]).await;
    assert_eq!(written, Ok(RECORD));
}

fn records(count: u64) -> Vec<u8> {
    (0..count).flat_map(|record| vec![record as u8 + 1; RECORD]).collect()
}

async fn read(client: &Client, file: &OpenFile) -> Vec<u8> {
    client.read(file, 0, 8 << 20).await.expect("it reads").to_vec()
}

fn whole_file() -> LockSpec {
    let (kind, mode) = (lock_kind::FCNTL, lock_mode::EXCLUSIVE);
    LockSpec { kind, owner: 1, mode, start: 0, end: i64::MAX as u64, pid: 1, handle: 0 }
}

/// write, lock |cut off, evicted, fenced| link back: fsync, new files, old handles, no late bytes
///
/// The first client has a buffered write and a lock when it is cut off. The second client opens the files, gets the
/// lock, and overwrites the bytes. When the link is back, nothing of the first client's old writes arrives, and its
/// fsync reports any loss. New files and its old handles work; only the handle that had the lock is dead.
#[test]
fn fenced_client_reports_loss_and_continues_as_new_instance() {
    for seed in 0..12 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let file = create(&first, b"f").await;
            let locked = create(&first, b"locked").await;
            first.lock(&locked, whole_file()).await.expect("it is free");
            for file in [&file, &locked] {
                first.write(file, 0, vec![9; LARGE]).await.expect("written");
                write(&first, file, 0).await;
                first.fsync(file, false).await.expect("it syncs");
            }
            write(&first, &file, 1).await;
            let (was, servers) = (first.id(), scene.servers(seed));
            scene.cut(servers.clone());
            let same = open(&second, &file).await;
            let theirs = open(&second, &locked).await;
            second.lock(&theirs, whole_file()).await.expect("it comes free");
            let seen = read(&second, &same).await;
            // Over bytes that the first client has buffered.
            second.write(&same, 0, vec![77; 2 * RECORD]).await.expect("written");
            scene.heal(servers);
            scene.until_it_is_another(&first, was).await;
            scene.sim.sleep(SOON).await;
            let over = [&vec![77; 2 * RECORD], &seen[2 * RECORD..]].concat();
            assert!(read(&second, &same).await == over, "seed {seed}: bytes came after the fence");
            if seen[RECORD] != 2 {
                let error = first.fsync(&file, false).await.expect_err("it has lost some");
                assert_eq!(error.errno, Errno::EIO, "seed {seed}: {error}");
            }
            // Newly opened files work everywhere, and so do handles from before.
            let new = create(&first, b"new").await;
            for (file, name) in [(&new, b"new".as_slice()), (&file, b"f")] {
                let _ = first.fsync(file, false).await;
                first.write(file, 0, vec![5; LARGE]).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                write(&first, file, 0).await;
                write(&first, file, 1).await;
                first.fsync(file, false).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let found = second.lookup(&caller(), Fid::ROOT, name).await.expect("it is there");
                let there = second.open(&caller(), found.fid, OpenMode::READ).await.expect("it opens");
                let expected = [records(2), vec![5; LARGE - 2 * RECORD]].concat();
                assert!(read(&second, &there).await == expected, "seed {seed}");
            }
            // Except for the handle that had a lock.
            let error = first.write(&locked, 0, vec![1]).await.expect_err("its lock is lost");
            assert_eq!(error.errno, Errno::EIO, "seed {seed}: {error}");
            assert_eq!(first.stats().mdt_evictions, 1, "seed {seed}");
            first.sync_all().await.ok();
            first.sync_all().await.expect("nothing is lost any more");
            // Without a sync, and across a power cut.
            write(&first, &new, 2).await;
            first.write(&new, LARGE as u64, vec![6; LARGE]).await.expect("written");
            scene.power_cycle_osts();
            let theirs = open(&second, &new).await;
            let expected = [records(3), vec![5; LARGE - 3 * RECORD], vec![6; LARGE]].concat();
            assert!(read(&second, &theirs).await == expected, "seed {seed}: acknowledged by the new client");
            first.fsync(&new, false).await.expect("it syncs");
            first.unmount().await.ok();
        });
    }
}

/// evicted |link back, evicted| link back, three times
///
/// The first client is evicted three times in a row, each time with a buffered write. Each time it continues as a new
/// client instance, and nothing of the previous one arrives late.
#[test]
fn a_client_evicted_three_times_continues_each_time() {
    for seed in 0..8 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let mut lives = vec![first.id()];
            for round in 0..3 {
                let file = create(&first, format!("{round}").as_bytes()).await;
                write(&first, &file, 0).await;
                first.fsync(&file, false).await.unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
                write(&first, &file, 1).await;
                let servers = scene.servers(seed + round);
                scene.cut(servers.clone());
                let same = open(&second, &file).await;
                second.write(&same, 0, vec![50; 2 * RECORD]).await.expect("written");
                second.fsync(&same, false).await.expect("it syncs");
                scene.heal(servers);
                scene.until_it_is_another(&first, *lives.last().expect("there is one")).await;
                assert!(!lives.contains(&first.id()));
                lives.push(first.id());
                scene.sim.sleep(SOON).await;
                assert!(read(&second, &same).await == vec![50; 2 * RECORD], "seed {seed}: bytes came late");
                second.close(same).await.expect("closed");
                // fsync reports the loss, if there is one.
                first.fsync(&file, false).await.ok();
                assert!(read(&first, &file).await == vec![50; 2 * RECORD], "seed {seed}");
            }
        });
    }
}

/// large writes in flight |evicted| each returns success or EIO; a create in flight succeeds
///
/// The first client has three large writes in flight when it is evicted. Each write returns success or EIO, and success
/// only if the second client saw its bytes. A file that the first client creates meanwhile exists afterwards.
#[test]
fn calls_in_flight_at_an_eviction_end() {
    for seed in 0..12 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let file = create(&first, b"f").await;
            write(&first, &file, 0).await;
            first.fsync(&file, false).await.expect("it syncs");
            let (was, servers) = (first.id(), scene.servers(seed));
            scene.cut(servers.clone());
            let env = scene.sim.env(scene.nodes[0]);
            let writes = [1, 2, 3].map(|place| {
                let (client, file) = (first.clone(), file.clone());
                env.spawn(async move {
                    client
                        .write(&file, place * LARGE as u64, vec![place as u8; LARGE])
                        .await
                        .map_err(|error| error.errno)
                })
            });
            let same = open(&second, &file).await;
            let seen = read(&second, &same).await;
            // The first client has no connection any more. This create is sent by the new client instance, with a fid
            // from the old one's lease.
            scene.sim.sleep(Duration::from_secs(15)).await;
            let client = first.clone();
            let making = env.spawn(async move { create(&client, b"asked for meanwhile").await });
            scene.sim.sleep(Duration::from_secs(1)).await;
            scene.heal(servers);
            scene.until_it_is_another(&first, was).await;
            for (place, write) in writes.into_iter().enumerate() {
                let came = seen.get((place + 1) * LARGE).is_some_and(|byte| usize::from(*byte) == place + 1);
                match write.await.expect("it ends") {
                    Ok(LARGE) => {
                        assert!(came, "seed {seed}: it was acknowledged, and was not there when it was looked for")
                    }
                    other => assert_eq!(other, Err(Errno::EIO), "seed {seed}"),
                }
            }
            let made = making.await.expect("it ends");
            write(&first, &made, 0).await;
            first.fsync(&made, false).await.expect("it syncs");
            scene.sim.sleep(SOON).await;
            assert!(read(&second, &same).await == seen, "seed {seed}: bytes came after the fence");
        });
    }
}

/// acknowledged, uncommitted writes to an OST that the MDT cannot fence |evicted; power, OST| all there, or fsync
/// reports
///
/// The first client writes to an OST that is cut off from the MDT until it notices its eviction; then the OST loses
/// power. The second client reads all acknowledged writes, unless the first client's fsync reports the loss. Nothing
/// arrives late.
#[test]
fn writes_of_an_earlier_client_instance_are_durable_or_reported_by_fsync() {
    let mut kept = 0;
    for seed in 0..20 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let (mdt, ost) = (scene.cluster.servers[0].node, scene.cluster.servers[1].node);
            let file = create_on(&first, b"f", 0).await;
            let shared = open(&second, &file).await;
            write(&first, &file, 0).await;
            first.fsync(&file, false).await.expect("it syncs");
            let (was, other) = (first.id(), create_on(&first, b"wanted", 1).await);
            write(&first, &other, 0).await;
            scene.sim.cut_both(mdt, ost);
            scene.cut(0..1);
            // The second client's open conflicts with the first client's buffered write to this file.
            open(&second, &other).await;
            scene.heal(0..1);
            // The file `f` is open on both clients, so each write goes to the OST at once.
            let mut acknowledged = 1;
            while first.id() == was {
                let data = vec![acknowledged as u8 + 1; RECORD];
                assert_eq!(first.write(&file, acknowledged * RECORD as u64, data).await, Ok(RECORD), "seed {seed}");
                acknowledged += 1;
                assert!(acknowledged < 255, "seed {seed}: it is still who it was");
                scene.sim.sleep(Duration::from_millis(1)).await;
            }
            scene.sim.power_cut(ost);
            scene.cluster.boot(1);
            scene.sim.sleep(Duration::from_millis(200 * seed)).await;
            scene.sim.heal(mdt, ost);
            let told = first.fsync(&file, false).await;
            let there = read(&second, &shared).await;
            if told.is_ok() {
                kept += acknowledged - 1;
                assert!(there.starts_with(&records(acknowledged)), "seed {seed}: lost, and not told");
            }
            scene.sim.sleep(SOON).await;
            assert!(read(&second, &shared).await == there, "seed {seed}: bytes came late");
            let new = create(&first, b"new").await;
            write(&first, &new, 0).await;
            first.fsync(&new, false).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
    }
    assert!(kept > 0, "all was lost, always");
}

/// buffered write, names of a directory |evicted while two calls of each kind of sync wait| all four report it, later ones do not
///
/// Two tasks of the first client call `sync_all`, and two call fsync of a directory, while the client is cut off. What
/// was acknowledged to them is lost with the eviction. None of the four may say that it is durable.
#[test]
fn a_loss_is_reported_by_every_sync_that_was_waiting_when_it_happened() {
    for seed in 0..8 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let dir = first.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("made").fid;
            let file = create_on(&first, b"f", 0).await;
            write(&first, &file, 0).await;
            first.sync_all().await.expect("it syncs");
            let (was, servers) = (first.id(), 0..scene.cluster.servers.len());
            scene.cut(servers.clone());
            write(&first, &file, 1).await;
            first.mkdir(&caller(), dir, b"lost", 0o755).await.expect("acknowledged ahead");
            let env = scene.sim.env(scene.nodes[0]);
            let all = [0, 1].map(|_| {
                let client = first.clone();
                env.spawn(async move { client.sync_all().await })
            });
            let of_dir = [0, 1].map(|_| {
                let client = first.clone();
                env.spawn(async move { client.fsync_dir(dir).await })
            });
            open(&second, &file).await;
            second.lookup(&caller(), dir, b"lost").await.expect_err("it never got there");
            scene.heal(servers);
            scene.until_it_is_another(&first, was).await;
            for waiting in all.into_iter().chain(of_dir) {
                let told = waiting.await.expect("it ends").map_err(|error| error.errno);
                assert_eq!(told, Err(Errno::EIO), "seed {seed}");
            }
            first.sync_all().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            first.fsync_dir(dir).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
    }
}

async fn cut_to_nothing(client: &Client, file: &OpenFile) -> Result<(), Errno> {
    let nothing = SetAttributes { size: Some(0), ..SetAttributes::default() };
    client.setattr(&caller(), file.fid(), nothing, Some(file)).await.map(drop).map_err(|error| error.errno)
}

/// lock, ftruncate in flight |evicted| another client locks and writes
///
/// The first client holds a lock and is cut off. The second client gets the lock and writes. The first client's
/// truncate fails with EIO, before and after it continues as a new client instance: the second client's bytes stay. A
/// handle without a lost lock still truncates.
#[test]
fn a_truncate_of_an_evicted_lock_holder_fails_and_cuts_nothing_off() {
    for seed in 0..8 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let (file, open_only) = (create(&first, b"f").await, create(&first, b"open only").await);
            first.lock(&file, whole_file()).await.expect("it is free");
            for file in [&file, &open_only] {
                write(&first, file, 0).await;
                first.fsync(file, false).await.expect("it syncs");
            }
            let (was, servers) = (first.id(), scene.servers(seed));
            scene.cut(servers.clone());
            let theirs = open(&second, &file).await;
            second.lock(&theirs, whole_file()).await.expect("it comes free");
            write(&second, &theirs, 0).await;
            write(&second, &theirs, 1).await;
            second.fsync(&theirs, false).await.expect("it syncs");
            // The first client has no connection any more and does not know that it is evicted: the truncate is not
            // sent yet.
            scene.sim.sleep(Duration::from_secs(15)).await;
            let (client, cut) = (first.clone(), file.clone());
            let cutting = scene.sim.env(scene.nodes[0]).spawn(async move { cut_to_nothing(&client, &cut).await });
            scene.sim.sleep(Duration::from_secs(1)).await;
            scene.heal(servers);
            scene.until_it_is_another(&first, was).await;
            assert_eq!(cutting.await.expect("it ends"), Err(Errno::EIO), "seed {seed}");
            assert_eq!(cut_to_nothing(&first, &file).await, Err(Errno::EIO), "seed {seed}");
            scene.sim.sleep(SOON).await;
            assert_eq!(cut_to_nothing(&first, &file).await, Err(Errno::EIO), "seed {seed}");
            assert!(read(&second, &theirs).await == records(2), "seed {seed}: it was cut");
            // This handle has lost nothing, so it works as before.
            assert_eq!(cut_to_nothing(&first, &open_only).await, Ok(()), "seed {seed}");
            assert!(read(&first, &open_only).await.is_empty(), "seed {seed}");
        });
    }
}
