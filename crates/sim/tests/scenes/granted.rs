//! Room for what clients keep back: granted before a write is acknowledged, so that no later one, and no restart, takes it.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Caller, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode};
use forebay_env::sim::{Link, NodeId, Sim};
use forebay_proto::{Errno, Fid};
use forebay_sim::{Cluster, ClusterOptions};

const RECORD: u64 = 4096;

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// A cluster of one small OST.
struct Scene {
    sim: Sim,
    cluster: Rc<Cluster>,
    nodes: Vec<NodeId>,
}

impl Scene {
    fn new(seed: u64, clients: usize, write_back_bytes: u64) -> Self {
        let sim = Sim::new(seed);
        let options = ClusterOptions { osts: 1, ost_bytes: 32 << 20, write_back_bytes, ..ClusterOptions::default() };
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, options)));
        cluster.boot_all();
        let nodes = (0..clients).map(|number| sim.add_node(&format!("client {number}"))).collect();
        Self { sim, cluster, nodes }
    }

    async fn mount(&self, number: usize) -> Client {
        self.cluster.mount(self.nodes[number], CommitLevel::Data).await.expect("it mounts")
    }
}

async fn open(client: &Client, name: &str) -> OpenFile {
    let (layout, mode) = (LayoutSpec::inherit(), OpenMode::READ_WRITE);
    client.create(&caller(), Fid::ROOT, name.as_bytes(), 0o644, mode, layout).await.expect("the file opens").1
}

async fn available(client: &Client) -> u64 {
    client.statfs().await.expect("told").ungranted_bytes
}

/// Writes large requests until `left` bytes are available, or it is refused.
async fn fill(client: &Client, file: &OpenFile, left: u64) -> u64 {
    let mut end = 0;
    loop {
        let bytes = available(client).await.saturating_sub(left).min(1 << 20);
        if bytes < 64 << 10 {
            return end;
        }
        match client.write(file, end, vec![9; bytes as usize]).await {
            Ok(written) => end += written as u64,
            Err(error) if error.errno == Errno::ENOSPC => return end,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Records with gaps until one is refused: how many were acknowledged.
async fn write_until_refused(client: &Client, file: &OpenFile) -> u64 {
    for number in 0.. {
        match client.write(file, 2 * number * RECORD, vec![number as u8; RECORD as usize]).await {
            Ok(written) => assert_eq!(written as u64, RECORD),
            Err(error) => {
                assert_eq!(error.errno, Errno::ENOSPC, "{error}");
                return number;
            }
        }
    }
    unreachable!()
}

async fn check(client: &Client, file: &OpenFile, records: u64) {
    for number in 0..records {
        let read = client.read(file, 2 * number * RECORD, RECORD as usize).await.expect("it reads");
        assert!(read == vec![number as u8; RECORD as usize], "record {number} of {records}");
    }
}

/// many fill one OST with small writes at once | who is refused is refused by write, and nothing else is missing
#[test]
fn many_who_fill_an_ost_are_refused_nothing_that_was_acknowledged() {
    for seed in 0..4 {
        let scene = Scene::new(seed, 16, 512 << 10);
        scene.sim.block_on(async {
            let mut ends = Vec::new();
            for number in 0..scene.nodes.len() {
                let client = scene.mount(number).await;
                let [small, large] =
                    [open(&client, &format!("s{number}")).await, open(&client, &format!("l{number}")).await];
                ends.push((client, small, large, Rc::new(Cell::new(None))));
            }
            for (number, (client, small, large, done)) in ends.iter().enumerate() {
                let env = scene.sim.env(scene.nodes[number]);
                let (of, file, result) = (client.clone(), small.clone(), done.clone());
                env.spawn(async move { result.set(Some(write_until_refused(&of, &file).await)) });
                if number % 4 == 0 {
                    // And much at a time, which is not kept back.
                    let (of, file) = (client.clone(), large.clone());
                    env.spawn(async move { fill(&of, &file, 0).await });
                }
            }
            let mut all = 0;
            for (client, file, _, done) in &ends {
                while done.get().is_none() {
                    scene.sim.sleep(Duration::from_millis(100)).await;
                }
                client.fsync(file, false).await.expect("what was acknowledged is written");
                let records = done.get().expect("it has ended");
                check(client, file, records).await;
                all += records;
            }
            assert!(all * RECORD > 2 << 20, "only {all} records were taken");
            assert!(available(&ends[0].0).await < 1 << 20);
        });
    }
}

/// What is kept back while others fill all that is left; the OST may be started again meanwhile.
fn keep_while_others_fill(restarts: bool) {
    let scene = Scene::new(7, 2, 4 << 20);
    scene.sim.block_on(async {
        let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
        let (mine, large) = (open(&writer, "mine").await, open(&other, "large").await);
        let ost = scene.cluster.servers[1].node;
        let end = fill(&other, &large, 18 << 20).await;
        other.fsync(&large, false).await.expect("it syncs");
        // This asks for room; the next cannot be sent.
        writer.write(&mine, 0, vec![0; RECORD as usize]).await.expect("it writes");
        writer.fsync(&mine, false).await.expect("it syncs");
        scene.sim.cut_both(scene.nodes[0], ost);
        let mut kept = 1;
        loop {
            let write = writer.write(&mine, kept * 2 * RECORD, vec![kept as u8; RECORD as usize]);
            match scene.sim.env(scene.nodes[0]).timeout(Duration::from_millis(10), write).await {
                Ok(written) => assert_eq!(written, Ok(RECORD as usize)),
                Err(_) => break,
            }
            kept += 1;
        }
        assert!(kept > 900, "only {kept} records are kept back");
        if restarts {
            scene.sim.power_cut(ost);
            scene.sim.heal_all();
            // Whoever comes first has all the room there is, and this one comes late.
            let far = Link { latency: Duration::from_millis(300), ..Link::default() };
            scene.sim.set_link(scene.nodes[0], ost, far);
        }
        let filled = Rc::new(Cell::new(None));
        let (result, client, file) = (filled.clone(), other.clone(), large.clone());
        scene.sim.env(scene.nodes[1]).spawn(async move {
            let mut at = end;
            while let Ok(written) = client.write(&file, at, vec![8; 128 << 10]).await {
                at += written as u64;
            }
            result.set(Some(at - end));
        });
        if restarts {
            scene.cluster.boot(1);
        }
        while filled.get().is_none() {
            scene.sim.sleep(Duration::from_millis(50)).await;
        }
        scene.sim.heal_all();
        assert!(filled.get() > Some(12 << 20), "{:?} were left to others", filled.get());
        writer.fsync(&mine, false).await.expect("what was acknowledged is written");
        check(&writer, &mine, kept).await;
    });
}

/// keep back, others fill what is left | it is there
#[test]
fn nobody_takes_the_room_of_what_is_kept_back() {
    keep_while_others_fill(false);
}

/// keep back |X| others fill what is left as soon as the OST is there
#[test]
fn nobody_takes_it_after_a_restart() {
    keep_while_others_fill(true);
}

/// write a little, and then nothing | others have the room
#[test]
fn room_that_is_not_used_is_given_back() {
    let scene = Scene::new(3, 2, 512 << 10);
    scene.sim.block_on(async {
        let (writer, other) = (scene.mount(0).await, scene.mount(1).await);
        let before = available(&other).await;
        let file = open(&writer, "f").await;
        writer.write(&file, 0, vec![1; 100]).await.expect("it writes");
        writer.fsync(&file, false).await.expect("it syncs");
        assert!(available(&other).await < before - (512 << 10), "nothing was granted");
        scene.sim.sleep(Duration::from_secs(3)).await;
        assert!(available(&other).await > before - (64 << 10), "it is granted still");
        // A mount that ends in the middle gives its own back at once.
        writer.write(&file, 0, vec![1; 100]).await.expect("it writes");
        writer.close(file).await.expect("it closes");
        writer.unmount().await.expect("it unmounts");
        assert!(available(&other).await > before - (64 << 10), "it is granted still");
    });
}

/// write a little, then much | what is granted to oneself is in nobody's way
#[test]
fn a_client_may_fill_what_it_was_granted_itself() {
    let scene = Scene::new(4, 1, 512 << 10);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let (small, large) = (open(&client, "small").await, open(&client, "large").await);
        let before = available(&client).await;
        let mut end = 0;
        loop {
            // Each asks for room.
            client.write(&small, 0, vec![1; 100]).await.expect("there is room for what was there");
            match client.write(&large, end, vec![2; 128 << 10]).await {
                Ok(written) => end += written as u64,
                Err(error) => break assert_eq!(error.errno, Errno::ENOSPC),
            }
        }
        assert!(end > before - (768 << 10), "{end} of {before} bytes were taken");
        client.fsync(&small, false).await.expect("it syncs");
    });
}
