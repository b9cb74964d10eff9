//! What the real servers leave: clean targets that agree with each other, at rest and after every server lost power.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};

use forebay_client::{Caller, Client, ClientResult, LayoutSpec, MountOptions, OpenMode, SetAttributes};
use forebay_env::{
    Address, Env,
    sim::{NodeId, Sim},
};
use forebay_fsck::{CheckOptions, ClusterOptions, Kind, Quiet, Report, Severity, check_cluster};
use forebay_mds::{Mds, MdsOptions};
use forebay_oss::Oss;
use forebay_proto::{
    Fid, TargetId, TargetKind, Uuid,
    message::{ClusterMap, MapTarget},
};
use forebay_store::{FormatOptions, OpenOptions, Store};
use forebay_target::TargetOptions;

const DIR: &str = "target";
const CLUSTER: Uuid = Uuid([3; 16]);
const TARGETS: [TargetId; 3] = [TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)];

struct World {
    sim: Sim,
    nodes: Vec<NodeId>,
}

fn address(target: TargetId) -> Address {
    Address::Mem(target.to_string())
}

fn map() -> ClusterMap {
    let target =
        |id: &TargetId| MapTarget { id: *id, uuid: Uuid::default(), addresses: vec![address(*id).to_string()] };
    ClusterMap { cluster: CLUSTER, epoch: 1, targets: TARGETS.iter().map(target).collect() }
}

impl World {
    fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let nodes: Vec<NodeId> = TARGETS.iter().map(|target| sim.add_node(&target.to_string())).collect();
        for (target, node) in TARGETS.iter().zip(&nodes) {
            let options = FormatOptions {
                slab_bytes: 256 << 10,
                stripe_bytes: 64 << 10,
                journal_bytes: 1 << 20,
                ..FormatOptions::new(CLUSTER, *target, 16 << 20)
            };
            sim.block_on(Store::format(&sim.env(*node), DIR, &options)).unwrap();
            sim.crash(*node);
        }
        Self { sim, nodes }
    }

    fn boot(&self) {
        for (target, node) in TARGETS.iter().zip(&self.nodes) {
            let target = *target;
            self.sim.start(*node, move |env| async move { serve(&env, target).await });
        }
    }

    fn power_cut(&self) {
        self.nodes.iter().for_each(|node| self.sim.power_cut(*node));
    }

    /// Runs fsck on each target while all servers are down.
    fn check(&self) -> Vec<Report> {
        let check = |node: &NodeId| {
            let env = self.sim.env(*node);
            let report =
                self.sim.block_on(forebay_fsck::check(&env, DIR, CheckOptions { verify_data: true, rows: true }));
            self.sim.crash(*node);
            report.unwrap()
        };
        self.nodes.iter().map(check).collect()
    }

    async fn mount(&self, node: NodeId) -> Client {
        Client::mount(&self.sim.env(node), MountOptions::new(vec![address(TARGETS[0])])).await.unwrap()
    }
}

async fn serve(env: &Env, id: TargetId) {
    let open = OpenOptions { commit_interval: Duration::from_millis(50), ..OpenOptions::default() };
    let store = Store::open(env, DIR, &open).await.unwrap();
    let listener = env.listen(&address(id)).await.unwrap();
    let options =
        TargetOptions { recovery_window: Duration::from_secs(5), map: Some(Rc::new(map)), ..TargetOptions::default() };
    let target = match id.kind {
        TargetKind::Mdt => {
            let osts = TARGETS[1..].iter().map(|ost| (ost.index, vec![address(*ost)])).collect();
            let (_mds, target) =
                Mds::start(env, store, MdsOptions { target: options, ..MdsOptions::new(CLUSTER, osts) }).await.unwrap();
            target
        }
        TargetKind::Ost => Oss::start(env, store, options).await.unwrap().1,
    };
    target.serve(listener).await;
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// One step of a program that uses all kinds of calls. Names may or may not exist.
async fn step(client: &Client, sim: &Sim, number: u64) -> ClientResult<()> {
    let who = caller();
    let name = |n: u64| format!("n{n}").into_bytes();
    let (a, b) = (name(sim.random_below(12)), name(sim.random_below(12)));
    let dir = match sim.random_below(3) {
        0 => Fid::ROOT,
        n => client.make_dirs(&who, &format!("/d{n}")).await?,
    };
    match sim.random_below(12) {
        0..=3 => {
            let layout =
                LayoutSpec { stripe_count: 1 + (number % 2) as u32, stripe_bytes: 64 << 10, ..LayoutSpec::inherit() };
            let (_, file) = client.create(&who, dir, &a, 0o644, OpenMode::WRITE, layout).await?;
            let bytes = vec![number as u8; 1 + sim.random_below(200_000) as usize];
            client.write(&file, sim.random_below(100_000), bytes).await?;
            if sim.chance(0.3) {
                client.fsync(&file, false).await?;
            }
            if sim.chance(0.3) {
                let _ = client.unlink(&who, dir, &a).await;
                sim.sleep(Duration::from_millis(sim.random_below(200))).await;
            }
            client.close(file).await
        }
        4 => client.unlink(&who, dir, &a).await,
        5 => client.rename(&who, (dir, &a), (Fid::ROOT, &b), 0).await,
        6 => client.rename(&who, (dir, &a), (dir, &b), 2).await,
        7 => {
            let attr = client.lookup(&who, dir, &a).await?;
            client.link(&who, attr.fid, dir, &b).await.map(drop)
        }
        8 => client.symlink(&who, dir, &a, b"to/somewhere").await.map(drop),
        9 => {
            client.mkdir(&who, dir, &a, 0o755).await?;
            if sim.chance(0.5) { client.rmdir(&who, dir, &a).await } else { Ok(()) }
        }
        10 => {
            let attr = client.lookup(&who, dir, &a).await?;
            let value = vec![7; sim.random_below(3000) as usize];
            client.setxattr(&who, attr.fid, b"user.test", &value, 0).await
        }
        _ => {
            let attr = client.lookup(&who, dir, &a).await?;
            let changes = SetAttributes { size: Some(sim.random_below(120_000)), ..SetAttributes::default() };
            client.setattr(&who, attr.fid, changes, None).await.map(drop)
        }
    }
}

fn assert_clean(reports: &[Report], quiet: Quiet, what: &str) {
    for report in reports {
        assert!(report.is_clean(), "{what}:\n{}", report.to_text(Severity::Info));
    }
    let cluster = check_cluster(reports, ClusterOptions { quiet });
    assert!(cluster.is_clean(), "{what}:\n{}", cluster.to_text(Severity::Info));
}

#[test]
fn a_cluster_that_was_used_and_is_at_rest_is_clean_and_without_leaks() {
    for seed in 0..4 {
        let world = World::new(seed);
        world.boot();
        let node = world.sim.add_node("client");
        world.sim.block_on(async {
            let client = world.mount(node).await;
            for number in 0..150 {
                let _ = step(&client, &world.sim, number).await;
            }
            client.unmount().await.unwrap();
        });
        world.sim.run_for(Duration::from_secs(20));
        world.nodes.iter().for_each(|node| world.sim.crash(*node));
        let reports = world.check();
        assert!(reports[0].stats.files > 10 && reports[1].stats.files + reports[2].stats.files > 5);
        assert_clean(&reports, Quiet::All, &format!("seed {seed}"));
    }
}

#[test]
fn a_cluster_whose_servers_all_lost_power_is_clean_then_and_without_leaks_after_recovery() {
    let (mut orphans, mut underway, mut seen) = (0, 0, BTreeSet::new());
    for seed in 0..12 {
        let world = World::new(seed);
        world.boot();
        let node = world.sim.add_node("client");
        let steps = Rc::new(RefCell::new(0u64));
        let env = world.sim.env(node);
        let task = {
            let (sim, steps, env2) = (world.sim.clone(), steps.clone(), env.clone());
            env.spawn(async move {
                let client = Client::mount(&env2, MountOptions::new(vec![address(TARGETS[0])])).await.unwrap();
                for number in 0..250 {
                    let _ = step(&client, &sim, number).await;
                    *steps.borrow_mut() += 1;
                    sim.sleep(Duration::from_millis(sim.random_below(8))).await;
                }
                client.unmount().await.unwrap();
            })
        };
        for round in 0..3 {
            world
                .sim
                .run_for(Duration::from_millis(30 + world.sim.random_below(if seed % 2 == 0 { 400 } else { 4000 })));
            world.power_cut();
            let reports = world.check();
            seen.insert(*steps.borrow());
            assert_clean(&reports, Quiet::No, &format!("seed {seed}, cut {round}, after {} steps", steps.borrow()));
            orphans += reports[0].stats.orphans;
            let cluster = check_cluster(&reports, ClusterOptions::default());
            underway += cluster.count_of(Kind::LeakedObject);
            world.boot();
        }
        world.sim.block_on(async { task.await.expect("the client ends well") });
        world.sim.run_for(Duration::from_secs(60));
        world.power_cut();
        assert_clean(&world.check(), Quiet::All, &format!("seed {seed}, at rest"));
    }
    assert!(seen.len() > 12 && orphans > 0, "the cuts came at the wrong time: {seen:?}, {orphans} orphans");
    println!("{orphans} orphans, {underway} objects on their way; steps at the cuts: {seen:?}");
}
