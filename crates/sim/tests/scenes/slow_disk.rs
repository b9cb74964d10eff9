//! An OST whose disks are a hundred times slower than those of the others, or complete nothing for a while. Programs on
//! other OSTs do not notice, new files avoid the OST, and no client is evicted.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use forebay_client::{Client, CommitLevel, LayoutSpec, OpenMode};
use forebay_env::{
    Env,
    sim::{Fault, Sim},
};
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::caller;

const OSTS: u32 = 4;
/// How long the programs are measured.
const TERM: Duration = Duration::from_secs(30);
/// Time within which the MDT notices the slow OST.
const SEEN: Duration = Duration::from_secs(12);
const FILES: usize = 200;
const RECORD: usize = 20_000;
/// The simulator's disks are fast; with this factor they take some milliseconds, like spinning ones.
const USUAL: f64 = 20.0;

/// A program that writes a record to a file on one OST and syncs, again and again. It records the time of each round.
async fn program(
    env: Env,
    client: Client,
    ost: u32,
    number: usize,
    times: Rc<RefCell<Vec<Duration>>>,
    ends: Rc<Cell<bool>>,
) {
    let layout = LayoutSpec { stripe_count: 1, stripe_index: ost, ..LayoutSpec::inherit() };
    let name = format!("ost{ost}.{number}");
    let opened = client.create(&caller(), Fid::ROOT, name.as_bytes(), 0o644, OpenMode::READ_WRITE, layout).await;
    let file = opened.expect("it opens").1;
    for n in 0u64.. {
        if ends.get() {
            return;
        }
        let begun = env.now();
        client.write(&file, n % 50 * RECORD as u64, vec![n as u8; RECORD]).await.expect("it writes");
        client.fsync(&file, false).await.expect("it syncs");
        times.borrow_mut().push(env.now().since(begun));
        env.sleep(Duration::from_millis(env.random_u64() % 20)).await;
    }
}

fn p99(times: &RefCell<Vec<Duration>>) -> Duration {
    let mut times = times.take();
    assert!(times.len() > 500, "{} records in {TERM:?}", times.len());
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Makes new files, and returns how many of them are on OST0000.
async fn on_the_first(client: &Client, prefix: &str) -> usize {
    let mut count = 0;
    for number in 0..FILES {
        let name = format!("{prefix}{number}");
        let layout = LayoutSpec { stripe_count: 1, ..LayoutSpec::inherit() };
        let opened = client.create(&caller(), Fid::ROOT, name.as_bytes(), 0o644, OpenMode::READ_WRITE, layout).await;
        let file = opened.expect("it opens").1;
        count += usize::from(file.layout().home() == 0);
        client.close(file).await.expect("it closes");
    }
    count
}

/// write and fsync on every OST |one OST's disks are slow, or stuck| new files
///
/// Programs on two clients write to all four OSTs; then the disks of OST0000 become slow or stuck. The 99th percentile
/// of the programs on other OSTs at most doubles, new files avoid OST0000, and no client is evicted. When the disks are
/// normal again, new files use it again.
#[test]
fn a_slow_or_stuck_disk_delays_files_on_its_ost_only_and_new_files_avoid_that_ost() {
    for fault in [Fault::Slow(100.0 * USUAL), Fault::Stuck(2 * TERM)] {
        let sim = Sim::new(3);
        sim.block_on(async {
            let options = ClusterOptions { osts: OSTS, ..ClusterOptions::default() };
            let cluster = Cluster::format(&sim, options).await;
            let slow = |server: usize, fault: &Fault| {
                let disks = ["/store/data", "/store/journal"];
                disks.iter().for_each(|disk| sim.disk_fault(cluster.servers[server].node, disk, fault.clone()));
            };
            (1..cluster.servers.len()).for_each(|server| slow(server, &Fault::Slow(USUAL)));
            cluster.boot_all();
            let (nodes, ends) = ([sim.add_node("first"), sim.add_node("second")], Rc::new(Cell::new(false)));
            let (mut clients, mut others, mut its) = (Vec::new(), Vec::new(), Vec::new());
            for (number, node) in nodes.into_iter().enumerate() {
                let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
                for ost in 0..OSTS {
                    let times = Rc::<RefCell<Vec<Duration>>>::default();
                    if ost == 0 { &mut its } else { &mut others }.push(times.clone());
                    let env = sim.env(node);
                    env.clone().spawn(program(env, client.clone(), ost, number, times, ends.clone()));
                }
                clients.push(client);
            }
            sim.sleep(TERM).await;
            let before = others.iter().map(|times| p99(times)).max().expect("programs");
            let usual = on_the_first(&clients[0], "before").await;
            slow(1, &fault);
            sim.sleep(SEEN).await;
            let avoiding = on_the_first(&clients[0], "meanwhile").await;
            its.iter().chain(&others).for_each(|times| times.borrow_mut().clear());
            sim.sleep(TERM).await;
            let meanwhile = others.iter().map(|times| p99(times)).max().expect("programs");
            let slowed: usize = its.iter().map(|times| times.borrow().len()).sum();
            sim.clear_disk_faults(cluster.servers[1].node, "/store/data");
            sim.clear_disk_faults(cluster.servers[1].node, "/store/journal");
            slow(1, &Fault::Slow(USUAL));
            sim.sleep(2 * TERM).await;
            let after = on_the_first(&clients[0], "after").await;
            println!("{fault:?}: p99 {before:?}, then {meanwhile:?}; files {usual}, {avoiding}, {after} of {FILES}; {slowed} there");
            assert!(meanwhile < 2 * before, "{fault:?}: p99 {before:?}, then {meanwhile:?}");
            assert!(slowed < 500, "it is not slow: {slowed} records");
            assert!(usual > FILES / 8 && after > FILES / 8, "{usual}, {after} of {FILES}");
            assert!(avoiding < FILES / 16, "{fault:?}: {avoiding} of {FILES} new files lie there");
            let evictions: u64 = clients.iter().map(|client| client.stats().evictions).sum();
            assert_eq!(evictions, 0, "{fault:?}");
            ends.set(true);
        });
    }
}
