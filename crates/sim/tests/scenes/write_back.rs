//! Small writes that a client keeps back for a moment: nobody can tell, and what is lost is said.

use std::{cell::RefCell, rc::Rc, time::Duration};

use forebay_client::{Caller, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode};
use forebay_env::sim::{NodeId, Sim};
use forebay_proto::{Errno, Fid};
use forebay_sim::{Cluster, ClusterOptions};

const RECORD: usize = 3000;

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// A cluster of three OSTs and two clients.
struct Scene {
    sim: Sim,
    cluster: Rc<Cluster>,
    nodes: [NodeId; 2],
}

impl Scene {
    fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, ClusterOptions::default())));
        cluster.boot_all();
        let nodes = [sim.add_node("writer"), sim.add_node("reader")];
        Self { sim, cluster, nodes }
    }

    async fn mount(&self, number: usize) -> Client {
        self.cluster.mount(self.nodes[number], CommitLevel::Data).await.expect("it mounts")
    }

    /// A writer that keeps a second record of its file back, and can send it to no OST; a reader; the file.
    async fn writer_without_osts(&self) -> (Client, Client, OpenFile) {
        let (writer, reader) = (self.mount(0).await, self.mount(1).await);
        let file = open(&writer, b"f").await;
        write(&writer, &file, 0).await;
        writer.fsync(&file, false).await.expect("it syncs");
        // Everything else that it keeps is given back for want of use.
        self.sim.sleep(Duration::from_secs(15)).await;
        // The OSTs say that they have room.
        write(&writer, &file, 0).await;
        writer.fsync(&file, false).await.expect("it syncs");
        let osts = &self.cluster.servers[1..];
        osts.iter().for_each(|ost| self.sim.cut_both(self.nodes[0], ost.node));
        write(&writer, &file, 1).await;
        (writer, reader, file)
    }
}

async fn open(client: &Client, name: &[u8]) -> OpenFile {
    let layout = LayoutSpec { stripe_count: 3, stripe_bytes: 64 << 10, ..LayoutSpec::inherit() };
    let opened = client.create(&caller(), Fid::ROOT, name, 0o644, OpenMode::READ_WRITE, layout).await;
    opened.expect("the file opens").1
}

async fn write(client: &Client, file: &OpenFile, record: u64) {
    let written = client.write(file, record * RECORD as u64, vec![record as u8 + 1; RECORD]).await;
    assert_eq!(written, Ok(RECORD));
}

fn records(count: u64) -> Vec<u8> {
    (0..count).flat_map(|record| vec![record as u8 + 1; RECORD]).collect()
}

#[test]
fn many_small_writes_are_few_requests() {
    let scene = Scene::new(1);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let file = open(&client, b"f").await;
        write(&client, &file, 0).await;
        client.fsync(&file, false).await.expect("it syncs");
        let before = client.stats().rpcs;
        for record in 0..100 {
            write(&client, &file, record).await;
        }
        client.fsync(&file, false).await.expect("it syncs");
        let rpcs = client.stats().rpcs - before;
        assert!(rpcs < 25, "{rpcs} requests for 100 writes");
        assert_eq!(client.read(&file, 0, 1 << 20).await.expect("it reads"), records(100));
    });
}

#[test]
fn another_client_sees_them_at_once() {
    for seed in 0..20 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
            let file = open(&writer, b"f").await;
            for record in 0..10 {
                write(&writer, &file, record).await;
            }
            if seed % 2 == 0 {
                let attr = reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
                assert_eq!(attr.size, 10 * RECORD as u64);
            }
            let same = reader.open(&caller(), file.fid(), OpenMode::READ).await.expect("it opens");
            assert_eq!(reader.read(&same, 0, 1 << 20).await.expect("it reads"), records(10));
            // Shared now: nothing is kept back.
            write(&writer, &file, 10).await;
            assert_eq!(reader.read(&same, 0, 1 << 20).await.expect("it reads"), records(11));
        });
    }
}

/// Somebody had a look at it: a while later writes are gathered again.
#[test]
fn a_look_costs_the_lease_only_for_a_while() {
    let scene = Scene::new(4);
    scene.sim.block_on(async {
        let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
        let file = open(&writer, b"f").await;
        write(&writer, &file, 0).await;
        reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
        for record in 0..50 {
            write(&writer, &file, record).await;
            scene.sim.sleep(Duration::from_millis(50)).await;
        }
        let before = writer.stats().rpcs;
        for record in 0..50 {
            write(&writer, &file, record).await;
        }
        assert!(writer.stats().rpcs - before < 10, "{} requests for 50 writes", writer.stats().rpcs - before);
        let attr = reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
        assert_eq!(attr.size, 50 * RECORD as u64);
    });
}

/// The writer hears nobody any more, with bytes that it has acknowledged: it loses them, and says so; nobody waits for long.
#[test]
fn a_writer_that_is_cut_off_is_fenced_before_others_read() {
    for seed in 0..10 {
        let scene = Scene::new(seed);
        scene.sim.block_on(async {
            let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
            let file = open(&writer, b"f").await;
            write(&writer, &file, 0).await;
            writer.fsync(&file, false).await.expect("it syncs");
            write(&writer, &file, 1).await;
            // From the MDT, or from all: then the bytes come late, or not at all.
            let servers = if seed % 2 == 0 { 0..1 } else { 0..scene.cluster.servers.len() };
            servers.clone().for_each(|server| scene.sim.cut_both(scene.nodes[0], scene.cluster.servers[server].node));
            let begun = scene.sim.now();
            let same = reader.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
            let waited = scene.sim.now().since(begun);
            assert!(waited < Duration::from_secs(15), "seed {seed}: it waited {waited:?}");
            let seen = reader.read(&same, 0, 1 << 20).await.expect("it reads");
            assert!(seen == records(2) || seen == records(1), "seed {seed}: {} bytes", seen.len());
            servers.for_each(|server| scene.sim.heal(scene.nodes[0], scene.cluster.servers[server].node));
            scene.sim.sleep(Duration::from_secs(5)).await;
            let later = reader.read(&same, 0, 1 << 20).await.expect("it reads");
            assert_eq!(later, seen, "seed {seed}: bytes came after the fence");
            if seen == records(1) {
                let error = writer.fsync(&file, false).await.expect_err("it has lost some");
                assert_eq!(error.errno, Errno::EIO, "seed {seed}: {error}");
            }
            // Fenced or not: it is told, and comes to an end.
            let (env, fid) = (scene.sim.env(scene.nodes[0]), file.fid());
            let closed = env.timeout(Duration::from_secs(5), writer.close(file)).await;
            closed.unwrap_or_else(|_| panic!("seed {seed}: its close hangs")).ok();
            let size = reader.getattr(same.fid(), None).await.expect("it has attributes").size;
            assert_eq!(size as usize, seen.len(), "seed {seed}: what was lost counts");
            reader.close(same).await.expect("closed");
            let size = reader.getattr(fid, None).await.expect("it has attributes").size;
            assert_eq!(size as usize, seen.len(), "seed {seed}: what was lost counts");
            let left = env.timeout(Duration::from_secs(5), writer.unmount()).await;
            left.unwrap_or_else(|_| panic!("seed {seed}: its unmount hangs")).ok();
        });
    }
}

/// The MDT restarts while bytes are kept back, as the OSTs are away: it may not show the file before they are there.
#[test]
fn a_restart_of_the_mdt_does_not_forget_who_keeps_something_back() {
    for seed in 0..10 {
        let scene = Scene::new(seed);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
            let file = open(&writer, b"f").await;
            write(&writer, &file, 0).await;
            writer.fsync(&file, false).await.expect("it syncs");
            (1..cluster.servers.len()).for_each(|ost| sim.cut_both(scene.nodes[0], cluster.servers[ost].node));
            write(&writer, &file, 1).await;
            sim.crash(cluster.servers[0].node);
            cluster.boot(0);
            let size = Rc::new(RefCell::new(None));
            let (seen, other, fid) = (size.clone(), reader.clone(), file.fid());
            sim.env(scene.nodes[1]).spawn(async move {
                *seen.borrow_mut() = Some(other.getattr(fid, None).await.expect("it is there").size);
            });
            sim.sleep(Duration::from_secs(4)).await;
            assert_eq!(*size.borrow(), None, "seed {seed}: it was shown without what is kept back");
            (1..cluster.servers.len()).for_each(|ost| sim.heal(scene.nodes[0], cluster.servers[ost].node));
            sim.sleep(Duration::from_secs(8)).await;
            assert_eq!(*size.borrow(), Some(2 * RECORD as u64), "seed {seed}");
        });
    }
}

#[test]
fn what_was_kept_back_for_long_survives_its_client_and_what_was_synced_always_does() {
    for seed in 0..10 {
        let scene = Scene::new(seed);
        let (sim, node) = (&scene.sim, scene.nodes[0]);
        sim.block_on(async {
            let reader = scene.mount(1).await;
            let written = Rc::new(RefCell::new(0));
            let (count, cluster) = (written.clone(), scene.cluster.clone());
            sim.start(node, move |env| async move {
                let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
                let file = open(&client, b"f").await;
                for record in 0..100 {
                    write(&client, &file, record).await;
                    *count.borrow_mut() = record + 1;
                    env.sleep(Duration::from_millis(5)).await;
                }
            });
            sim.sleep(Duration::from_millis(350)).await;
            let old = *written.borrow();
            assert!(old > 10, "seed {seed}");
            // All that was written by now is older than anything is kept.
            sim.sleep(Duration::from_millis(100)).await;
            sim.crash(node);
            let attr = reader.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there");
            let file = reader.open(&caller(), attr.fid, OpenMode::READ).await.expect("it opens");
            let seen = reader.read(&file, 0, 1 << 20).await.expect("it reads");
            let all = records(100);
            assert!(seen.len() >= old as usize * RECORD && seen == all[..seen.len()], "seed {seed}: {}", seen.len());
        });
    }
}

/// What is kept back cannot be sent for long: who wants it waits, and nobody is evicted.
#[test]
fn a_writer_that_is_heard_is_not_evicted_while_it_waits_for_an_ost() {
    for seed in 0..10 {
        let scene = Scene::new(seed);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let (writer, reader, file) = scene.writer_without_osts().await;
            let size = Rc::new(RefCell::new(None));
            let (seen, other, fid) = (size.clone(), reader.clone(), file.fid());
            sim.env(scene.nodes[1]).spawn(async move {
                *seen.borrow_mut() = Some(other.getattr(fid, None).await.expect("it is there").size);
            });
            sim.sleep(Duration::from_secs(30)).await;
            assert_eq!(*size.borrow(), None, "seed {seed}");
            (1..cluster.servers.len()).for_each(|ost| sim.heal(scene.nodes[0], cluster.servers[ost].node));
            sim.sleep(Duration::from_secs(10)).await;
            assert_eq!(*size.borrow(), Some(2 * RECORD as u64), "seed {seed}");
            writer.fsync(&file, false).await.expect("nothing was lost");
        });
    }
}

/// The writer alone has lost the way to the OSTs, which are well: who wants what it keeps waits for minutes, not for ever.
#[test]
fn a_writer_that_is_heard_and_sends_nothing_for_minutes_is_evicted() {
    for seed in 0..5 {
        let scene = Scene::new(seed);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let (writer, reader, file) = scene.writer_without_osts().await;
            let begun = sim.now();
            let size = reader.getattr(file.fid(), None).await.expect("it has attributes").size;
            let waited = sim.now().since(begun).as_secs();
            assert!((290..330).contains(&waited), "seed {seed}: it waited {waited} s");
            assert_eq!(size, RECORD as u64, "seed {seed}: what never arrived is not there");
            (1..cluster.servers.len()).for_each(|ost| sim.heal(scene.nodes[0], cluster.servers[ost].node));
            sim.sleep(Duration::from_secs(10)).await;
            let same = reader.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
            let seen = reader.read(&same, 0, 1 << 20).await.expect("it reads");
            assert_eq!(seen, records(1), "seed {seed}: bytes came after the fence");
            let error = writer.fsync(&file, false).await.expect_err("it has lost some");
            assert_eq!(error.errno, Errno::EIO, "seed {seed}: {error}");
            reader.close(same).await.expect("closed");
        });
    }
}

/// The handle that wrote is closed while another one reads: after a restart of the MDT nothing is believed that it forgot.
#[test]
fn a_reader_that_is_left_holds_no_lease() {
    for seed in 0..10 {
        let scene = Scene::new(seed);
        let (sim, cluster) = (&scene.sim, &scene.cluster);
        sim.block_on(async {
            let (writer, reader) = (scene.mount(0).await, scene.mount(1).await);
            let file = open(&writer, b"f").await;
            write(&writer, &file, 0).await;
            let fid = file.fid();
            let left = writer.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
            writer.close(file).await.expect("it closes");
            writer.sync_all().await.expect("it syncs");
            sim.crash(cluster.servers[0].node);
            cluster.boot(0);
            sim.sleep(Duration::from_secs(25)).await;
            let same = reader.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
            let again = writer.open(&caller(), fid, OpenMode::WRITE).await.expect("it opens");
            write(&writer, &again, 1).await;
            assert_eq!(reader.read(&same, 0, 1 << 20).await.expect("it reads"), records(2), "seed {seed}");
            drop(left);
        });
    }
}

/// Whoever syncs everything syncs what others keep back, too.
#[test]
fn sync_of_everything_has_everything_sent() {
    let scene = Scene::new(3);
    let (sim, cluster) = (&scene.sim, &scene.cluster);
    sim.block_on(async {
        let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
        let file = open(&writer, b"f").await;
        write(&writer, &file, 0).await;
        other.sync_all().await.expect("it syncs");
        sim.crash(scene.nodes[0]);
        cluster.servers.iter().for_each(|server| sim.power_cut(server.node));
        cluster.boot_all();
        let same = other.open(&caller(), file.fid(), OpenMode::READ).await.expect("it opens");
        assert_eq!(other.read(&same, 0, 1 << 20).await.expect("it reads"), records(1));
    });
}
