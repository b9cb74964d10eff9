//! What fsync promises for a file that several clients use: every loss is reported, and every OST of the file is asked.

use std::time::Duration;

use forebay_client::{Client, LayoutSpec, OpenFile, OpenMode};
use forebay_env::sim::Sim;
use forebay_proto::{Errno, FOR_EVER, Fid, message::ComponentSpec};

use crate::scene::{Scene, caller};

/// The clients' machines.
const CLIENTS: &[&str] = &["first", "second", "third"];

const MIB: u64 = 1 << 20;

/// One stripe up to 1 MiB, three stripes behind it.
fn composite() -> LayoutSpec {
    let part = |end, stripe_count| ComponentSpec {
        end,
        stripe_count,
        stripe_bytes: 64 << 10,
        stripe_index: u32::MAX,
        pool: String::new(),
    };
    LayoutSpec { components: vec![part(MIB, 1), part(FOR_EVER, 3)], ..LayoutSpec::inherit() }
}

impl Scene {
    /// The OSTs lose power while the first client is cut off from them, and they do not wait for it: its uncommitted
    /// writes are lost.
    async fn lose_what_is_not_committed(&self) {
        let osts = || (1..self.cluster.servers.len()).map(|server| (server, self.cluster.servers[server].node));
        for (server, node) in osts() {
            self.sim.cut_both(self.nodes[0], node);
            self.sim.power_cut(node);
            self.cluster.boot(server);
        }
        self.sim.sleep(Duration::from_secs(30)).await;
        osts().for_each(|(_, node)| self.sim.heal(self.nodes[0], node));
        self.sim.sleep(Duration::from_secs(5)).await;
    }
}

/// The MDT loses power while the first client is cut off from it, and does not wait for it: its uncommitted changes are
/// lost.
async fn lose_names_that_are_not_committed(scene: &Scene) {
    let mdt = scene.cluster.servers[0].node;
    scene.sim.cut_both(scene.nodes[0], mdt);
    scene.sim.power_cut(mdt);
    scene.cluster.boot(0);
    scene.sim.sleep(Duration::from_secs(30)).await;
    scene.sim.heal(scene.nodes[0], mdt);
    scene.sim.sleep(Duration::from_secs(5)).await;
}

async fn open(client: &Client, fid: Fid) -> OpenFile {
    client.open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens")
}

async fn synced(client: &Client, file: &OpenFile) -> Result<(), Errno> {
    client.fsync(file, false).await.map_err(|error| error.errno)
}

/// Checks that fsync reports the loss. It may do so again while the client learns of further targets that ended its
/// session. After that it succeeds.
async fn told(sim: &Sim, client: &Client, file: &OpenFile) {
    let mut answers = Vec::new();
    while answers.last() != Some(&Ok(())) {
        answers.push(synced(client, file).await);
        sim.sleep(Duration::from_secs(1)).await;
        assert!(answers.len() < 6, "it never stops: {answers:?}");
    }
    assert_eq!(answers[0], Err(Errno::EIO));
    assert_eq!(synced(client, file).await, Ok(()));
}

/// write |power, evicted| flush, fsync, open, fsync
///
/// The writer's unsynced bytes are lost with the OSTs. Its close(2) reports the loss, as the exit of a child process
/// would. The fsync of each handle that was open reports it too. A handle opened later does not.
#[test]
fn a_loss_is_reported_to_fsync_whatever_a_close_reported() {
    let scene = Scene::new(3, CLIENTS);
    scene.sim.block_on(async {
        let writer = scene.mount(0).await;
        let made = writer.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, LayoutSpec::inherit()).await;
        let file = made.expect("it is made").1;
        let second = open(&writer, file.fid()).await;
        assert_eq!(synced(&writer, &file).await, Ok(()));
        writer.write(&file, 0, vec![1; 300_000]).await.expect("written");
        scene.lose_what_is_not_committed().await;
        // The exit of a child process: nobody sees this error.
        assert!(writer.flush(&file).await.is_err());
        told(&scene.sim, &writer, &file).await;
        // This handle was open at the time of the loss, too.
        told(&scene.sim, &writer, &second).await;
        let third = open(&writer, file.fid()).await;
        assert_eq!(synced(&writer, &third).await, Ok(()), "it has been told");
    });
}

/// write |power, evicted| read, flush, close
///
/// The writer's unsynced bytes are lost with the OSTs. Its next read reports the loss, and so does its close(2) after
/// that.
#[test]
fn close_reports_a_loss_that_a_read_has_reported_before() {
    let scene = Scene::new(5, CLIENTS);
    scene.sim.block_on(async {
        let writer = scene.mount(0).await;
        let made = writer.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, LayoutSpec::inherit()).await;
        let file = made.expect("it is made").1;
        assert_eq!(synced(&writer, &file).await, Ok(()));
        writer.write(&file, 0, vec![1; 300_000]).await.expect("written");
        scene.lose_what_is_not_committed().await;
        // This errno may never reach a program, as a copy that was cut short returns its length instead.
        assert!(writer.read(&file, 0, 100).await.is_err());
        writer.read(&file, 0, 100).await.expect("it was told");
        assert!(writer.flush(&file).await.is_err());
        writer.flush(&file).await.expect("it was told");
        writer.close(file).await.expect("it was told");
    });
}

/// write |power, evicted| close, open, fsync
///
/// The writer's unsynced bytes are lost with the OSTs, and it closes the file. It opens the file again: fsync of that
/// handle reports EIO, as no fsync has reported the loss yet.
#[test]
fn a_loss_that_no_fsync_reported_waits_for_the_next() {
    let scene = Scene::new(4, CLIENTS);
    scene.sim.block_on(async {
        let writer = scene.mount(0).await;
        let made = writer.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, LayoutSpec::inherit()).await;
        let file = made.expect("it is made").1;
        let fid = file.fid();
        assert_eq!(synced(&writer, &file).await, Ok(()));
        writer.write(&file, 0, vec![1; 300_000]).await.expect("written");
        scene.lose_what_is_not_committed().await;
        let _ = writer.close(file).await;
        scene.sim.sleep(Duration::from_secs(5)).await;
        let file = open(&writer, fid).await;
        told(&scene.sim, &writer, &file).await;
        writer.close(file).await.expect("closed");
        let file = open(&writer, fid).await;
        assert_eq!(synced(&writer, &file).await, Ok(()), "it has been told");
    });
}

/// write, fsync, write by another client to new OSTs, fsync |power| read
///
/// The second client extends a file to OSTs that the first client does not know yet. The first client's fsync covers
/// them too: after the second client and all servers lost power, a third client reads everything.
#[test]
fn fsync_covers_writes_of_another_client_on_osts_added_since() {
    for seed in 0..5 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, second) = (scene.mount(0).await, scene.mount(1).await);
            let made = first.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, composite()).await;
            let file = made.expect("it is made").1;
            first.write(&file, 0, vec![1; 100_000]).await.expect("written");
            assert_eq!(synced(&first, &file).await, Ok(()));
            let same = open(&second, file.fid()).await;
            let bytes = 300_000;
            second.write(&same, 5 * MIB, vec![2; bytes]).await.expect("written");
            assert_eq!(synced(&first, &file).await, Ok(()));
            scene.sim.power_cut(scene.nodes[1]);
            for server in 0..scene.cluster.servers.len() {
                scene.sim.power_cut(scene.cluster.servers[server].node);
                scene.cluster.boot(server);
            }
            let third = scene.mount(2).await;
            let read = open(&third, file.fid()).await;
            let seen = third.read(&read, 5 * MIB, bytes).await.expect("it reads");
            assert!(seen == vec![2; bytes], "seed {seed}: {} bytes, others than were written", seen.len());
        });
    }
}

/// write, fsync, close, open, append, fsync |power, client and servers| stat
///
/// The first client appends to a committed file through a new handle and syncs it. The client and all servers lose
/// power. The second client's stat shows the full size.
#[test]
fn stat_after_a_power_cut_shows_an_append_synced_through_a_new_handle() {
    for seed in 0..5 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (first, bytes) = (scene.mount(0).await, 300_000);
            let made =
                first.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, LayoutSpec::inherit()).await;
            let file = made.expect("it is made").1;
            let fid = file.fid();
            first.write(&file, 0, vec![1; bytes]).await.expect("written");
            assert_eq!(synced(&first, &file).await, Ok(()));
            first.close(file).await.expect("closed");
            // Everything before is committed, so only the handle is new.
            scene.sim.sleep(Duration::from_secs(60)).await;
            let file = open(&first, fid).await;
            first.write(&file, bytes as u64, vec![2; bytes]).await.expect("written");
            assert_eq!(synced(&first, &file).await, Ok(()));
            scene.sim.power_cut(scene.nodes[0]);
            for server in 0..scene.cluster.servers.len() {
                scene.sim.power_cut(scene.cluster.servers[server].node);
                scene.cluster.boot(server);
            }
            let second = scene.mount(1).await;
            let seen = second.getattr(fid, None).await.expect("it is there");
            assert_eq!(seen.size, 2 * bytes as u64, "seed {seed}");
        });
    }
}

/// change of names |power, evicted| fsync of each directory it concerns
///
/// The client makes a change of names that the MDT executes but loses with its power. After the client's eviction,
/// fsync of each directory concerned reports EIO once. fsync of another directory succeeds.
#[test]
fn fsync_of_a_directory_reports_changes_of_names_lost_by_an_eviction() {
    for (number, what) in ["create", "mkdir", "link", "unlink", "rmdir", "rename"].into_iter().enumerate() {
        let scene = Scene::new(20 + number as u64, CLIENTS);
        scene.sim.block_on(async {
            let (client, who) = (scene.mount(0).await, caller());
            let mkdir = async |parent, name: &'static str| {
                client.mkdir(&who, parent, name.as_bytes(), 0o755).await.expect("made").fid
            };
            let (a, b, other) = (mkdir(Fid::ROOT, "a").await, mkdir(Fid::ROOT, "b").await, mkdir(Fid::ROOT, "c").await);
            let make = async |name: &'static str| {
                let (open, layout) = (OpenMode::READ_WRITE, LayoutSpec::inherit());
                let made = client.create(&who, a, name.as_bytes(), 0o644, open, layout).await;
                let file = made.expect("it is made").1;
                let fid = file.fid();
                client.close(file).await.expect("closed");
                fid
            };
            let file = make("file").await;
            mkdir(a, "empty").await;
            client.sync_all().await.expect("synced");
            match what {
                "create" => drop(make("new").await),
                "mkdir" => drop(mkdir(a, "new").await),
                "link" => drop(client.link(&who, file, a, b"new").await.expect("linked")),
                "unlink" => client.unlink(&who, a, b"file").await.expect("taken away"),
                "rmdir" => client.rmdir(&who, a, b"empty").await.expect("taken away"),
                _ => client.rename(&who, (a, b"file"), (b, b"file"), 0).await.expect("moved"),
            }
            // The MDT has executed the change and not committed it.
            scene.sim.sleep(Duration::from_millis(20)).await;
            lose_names_that_are_not_committed(&scene).await;
            let told = async |dir| client.fsync_dir(dir).await.map_err(|error| error.errno);
            assert_eq!(told(other).await, Ok(()), "{what}");
            assert_eq!(told(a).await, Err(Errno::EIO), "{what}");
            assert_eq!(told(b).await.is_err(), what == "rename", "{what}");
            for dir in [a, b] {
                assert_eq!(told(dir).await, Ok(()), "{what}: it has been told");
            }
        });
    }
}
