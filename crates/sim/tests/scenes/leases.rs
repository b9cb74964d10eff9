//! What kernels cache. One client changes a name and a time again and again, while programs above three mounts look at
//! them. Once any program has seen a version, no kernel shows an older one. That includes the kernel of the client that
//! makes the change, which learns of it by a late reply. It also includes kernels whose mount is stopped, cut off, or
//! asked again.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use forebay_client::{Client, CommitLevel, Dropped, LayoutSpec, OpenMode, SetAttributes};
use forebay_env::{
    Env, Time,
    sim::{NodeId, Sim},
    sync::RwLock,
};
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::caller;

const MOUNTS: usize = 3;
const CHANGES: u64 = 60;
const NAME: &[u8] = b"n";

/// A value that only grows, and the newest version that any program has seen.
#[derive(Default)]
struct Register {
    seen: Cell<u64>,
    looks: Cell<u64>,
    believed: Cell<u64>,
}

impl Register {
    /// A program that started to look when `before` had been seen has seen `version`.
    fn saw(&self, what: &str, who: usize, before: u64, version: u64) {
        assert!(version >= before, "{what}: mount {who} shows version {version} after {before} was seen");
        self.seen.set(self.seen.get().max(version));
        self.looks.set(self.looks.get() + 1);
    }
}

#[derive(Default)]
struct Seen {
    name: Register,
    time: Register,
    /// Version of each file that the name has referred to.
    versions: RefCell<BTreeMap<u64, u64>>,
}

#[derive(Clone, Copy)]
struct Belief {
    version: u64,
    until: Time,
    epoch: u64,
}

/// A mount, and the kernel above it. The kernel has a separate node, as it continues when the mount's process is
/// stopped.
struct Mount {
    number: usize,
    node: NodeId,
    process: Env,
    kernel: Env,
    client: Client,
    seen: Rc<Seen>,
    file: Fid,
    name: Cell<Option<Belief>>,
    time: Cell<Option<Belief>>,
    /// How often the mount invalidated names, and attributes.
    epochs: [Cell<u64>; 2],
    /// The kernel's lock on the directory.
    dir: RwLock<()>,
}

impl Mount {
    fn believes(&self, belief: &Cell<Option<Belief>>, epoch: &Cell<u64>) -> Option<u64> {
        let now = self.kernel.now();
        belief.get().filter(|belief| belief.epoch == epoch.get() && belief.until > now).map(|belief| belief.version)
    }

    /// The time from the mount's reply to its effect on the program's thread.
    async fn answer_comes(&self) {
        let us = self.kernel.random_u64() % if self.kernel.random_u64().is_multiple_of(8) { 5000 } else { 100 };
        self.kernel.sleep(Duration::from_micros(us)).await;
    }

    async fn ask<T: 'static>(&self, call: impl AsyncFnOnce(Client) -> T + 'static) -> T {
        let client = self.client.clone();
        let answer = self.process.spawn(async move { call(client).await }).await.expect("the mount lives");
        self.answer_comes().await;
        answer
    }

    async fn look_at_name(&self) {
        let before = self.seen.name.seen.get();
        if let Some(version) = self.believes(&self.name, &self.epochs[0]) {
            self.seen.name.believed.set(self.seen.name.believed.get() + 1);
            return self.seen.name.saw("the name", self.number, before, version);
        }
        let _shared = self.dir.read().await;
        let epoch = self.epochs[0].get();
        let looked = self.ask(async |client: Client| {
            let attr = client.lookup(&caller(), Fid::ROOT, NAME).await.expect("the name is always there");
            let name_for = client.name_for(Fid::ROOT, NAME, Some(attr.fid));
            (attr, name_for)
        });
        let (attr, name_for) = looked.await;
        let version = self.seen.versions.borrow()[&attr.fid.low];
        self.name.set(Some(self.belief(version, name_for, epoch)));
        self.seen.name.saw("the name", self.number, before, version);
    }

    async fn look_at_time(&self) {
        let before = self.seen.time.seen.get();
        if let Some(version) = self.believes(&self.time, &self.epochs[1]) {
            self.seen.time.believed.set(self.seen.time.believed.get() + 1);
            return self.seen.time.saw("the time", self.number, before, version);
        }
        let (file, epoch) = (self.file, self.epochs[1].get());
        let looked = self.ask(async move |client: Client| {
            let attr = client.getattr(file, None).await.expect("it is there");
            let valid_for = client.attributes_for(&attr);
            (attr, valid_for)
        });
        let (attr, valid_for) = looked.await;
        let version = attr.mtime_ns as u64;
        self.time.set(Some(self.belief(version, valid_for, epoch)));
        self.seen.time.saw("the time", self.number, before, version);
    }

    /// The kernel counts the validity from when it takes the reply.
    fn belief(&self, version: u64, lasts: Duration, epoch: u64) -> Belief {
        Belief { version, until: self.kernel.now() + lasts, epoch }
    }

    /// Renames another file to the name.
    async fn change_name(&self, version: u64) {
        let _alone = self.dir.write().await;
        let file = self.make(format!("t{version}").as_bytes()).await;
        self.seen.versions.borrow_mut().insert(file.low, version);
        let renamed = self.ask(async move |client: Client| {
            let from = format!("t{version}");
            client.rename(&caller(), (Fid::ROOT, from.as_bytes()), (Fid::ROOT, NAME), 0).await
        });
        renamed.await.expect("it is renamed");
        self.name.set(None);
        self.seen.name.saw("a rename", self.number, 0, version);
    }

    async fn make(&self, name: &[u8]) -> Fid {
        let name = name.to_vec();
        let made = self.ask(async move |client: Client| {
            let mode = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
            let made = client.create(&caller(), Fid::ROOT, &name, 0o644, mode, LayoutSpec::inherit()).await;
            let (attr, _closed_when_dropped) = made.expect("it is made");
            attr.fid
        });
        made.await
    }

    /// Sets another time on the file.
    async fn change_time(&self, version: u64) {
        let file = self.file;
        let set = self.ask(async move |client: Client| {
            let changes =
                SetAttributes { mtime: Some(forebay_client::SetTime::At(version as i64)), ..Default::default() };
            client.setattr(&caller(), file, changes, None).await
        });
        set.await.expect("it is set");
        self.time.set(None);
        // A reply to an earlier request does not count any more: the kernel numbers attributes (`attr_version`).
        self.epochs[1].set(self.epochs[1].get() + 1);
        self.seen.time.saw("utimens", self.number, 0, version);
    }

    async fn pause(&self, most_us: u64) {
        self.kernel.sleep(Duration::from_micros(self.kernel.random_u64() % most_us)).await;
    }
}

/// Causes one fault between a mount and the MDT.
async fn trouble(sim: &Sim, cluster: &Cluster, mount: NodeId) {
    let mdt = cluster.servers[0].node;
    let long = Duration::from_millis(sim.random_below(2500));
    match sim.random_below(12) {
        0 | 1 => {
            sim.pause(mount);
            sim.sleep(long).await;
            sim.resume(mount);
        }
        2..=4 => {
            match sim.random_below(3) {
                0 => sim.cut(mount, mdt),
                1 => sim.cut(mdt, mount),
                _ => sim.cut_both(mount, mdt),
            }
            sim.sleep(long).await;
            sim.heal(mount, mdt);
        }
        5 => sim.reset_connections(mount, mdt),
        6 => {
            sim.crash(mdt);
            sim.sleep(long).await;
            cluster.boot_all();
        }
        _ => {}
    }
}

/// Runs one seed. Returns how many looks kernels answered from their caches.
fn run(seed: u64) -> u64 {
    let sim = Sim::new(seed);
    sim.set_trace(std::env::var("FOREBAY_TRACE").is_ok());
    let cluster = Rc::new(sim.block_on(Cluster::format(&sim, ClusterOptions::default())));
    cluster.boot_all();
    let (seen, done) = (Rc::new(Seen::default()), Rc::new(Cell::new(0)));
    sim.block_on(async {
        let mut mounts: Vec<Rc<Mount>> = Vec::new();
        for number in 0..MOUNTS {
            let (node, above) = (sim.add_node(&format!("mount{number}")), sim.add_node(&format!("kernel{number}")));
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let file = mounts.first().map_or(Fid::ROOT, |first| first.file);
            let (process, kernel, seen) = (sim.env(node), sim.env(above), seen.clone());
            let (name, time, epochs, dir) = Default::default();
            let mut mount = Mount { number, node, process, kernel, client, seen, file, name, time, epochs, dir };
            if number == 0 {
                mount.file = mount.make(b"file").await;
                mount.change_name(1).await;
                mount.change_time(1).await;
            }
            let mount = Rc::new(mount);
            let forgetful = Rc::downgrade(&mount);
            mount.client.set_dropped(move |dropped| {
                let Some(mount) = forgetful.upgrade() else { return true };
                let epoch = &mount.epochs[usize::from(!matches!(dropped, Dropped::Names))];
                epoch.set(epoch.get() + 1);
                true
            });
            mounts.push(mount);
        }
        for what in 0..2 {
            let (writer, counts) = (mounts[0].clone(), done.clone());
            drop(writer.kernel.clone().spawn(async move {
                for version in 2..CHANGES {
                    writer.pause(60_000).await;
                    if what == 0 { writer.change_name(version).await } else { writer.change_time(version).await }
                }
                counts.set(counts.get() + 1);
            }));
            for mount in &mounts {
                let (mount, done) = (mount.clone(), done.clone());
                drop(mount.kernel.clone().spawn(async move {
                    while done.get() < 2 {
                        if what == 0 {
                            mount.look_at_name().await
                        } else {
                            mount.look_at_time().await
                        }
                        mount.pause(1500).await;
                    }
                }));
            }
        }
        while done.get() < 2 {
            sim.sleep(Duration::from_millis(sim.random_below(100))).await;
            trouble(&sim, &cluster, mounts[sim.random_below(MOUNTS as u64) as usize].node).await;
        }
    });
    seen.name.believed.get() + seen.time.believed.get()
}

/// Seeds of the test command; `FOREBAY_SEEDS=FROM..TO` runs others, `FOREBAY_TRACE=1` prints the trace.
const SEEDS: std::ops::Range<u64> = 0..60;

/// Mount 0 renames a file and sets a time 58 times each, while programs above three mounts look at both. Mounts are
/// stopped and cut off, and the MDT crashes. No program sees an older version than any program saw before.
#[test]
fn no_mount_shows_an_older_version_than_any_mount_showed_before() {
    let parse = |text: String| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(parse).unwrap_or(SEEDS);
    let all = seeds.end - seeds.start;
    let believed: u64 = seeds.map(run).sum();
    assert!(believed * 60 > 10_000 * all, "only {believed} looks were answered from what kernels believed");
}
