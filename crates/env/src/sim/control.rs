//! The test's handle on a simulated world.

use std::{collections::BTreeMap, future::Future, rc::Rc, time::Duration};

use super::{
    CpuCosts, CrashRecorder, DiskImage, DiskModel, Fault, Link, NodeId, Placement, Processors, Waking, env,
    executor::Sleep, thread::Thread, trace::Kind, world::World,
};
use crate::{Env, Network, Time};

/// A simulated world: its nodes, links, disks and time. Clones share it; dropping the last one ends it.
///
/// Nothing here may be called from within a `Drop` of a simulated task.
#[derive(Clone)]
pub struct Sim {
    owner: Rc<Owner>,
}

/// Ends the world with the last handle: tasks hold the world, so it would never be dropped automatically.
struct Owner(Rc<World>);

impl Drop for Owner {
    fn drop(&mut self) {
        // In a panic the world leaks instead: a second panic, from the Drop of some task, would abort the process.
        if !std::thread::panicking() {
            self.0.close();
        }
    }
}

/// Time, tasks and chance.
impl Sim {
    /// A world in which all chance comes from `seed`.
    pub fn new(seed: u64) -> Sim {
        Sim { owner: Rc::new(Owner(World::new(seed))) }
    }

    /// Runs the world until `future` is ready. Panics with "deadlock at virtual time" if nothing can run any more.
    ///
    /// The future is the test's own task: it belongs to no node and outlives crashes and pauses.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut output = None;
        let place = &mut output;
        self.world().block_on(Box::pin(async move { *place = Some(future.await) }));
        output.expect("it ran until the future ended")
    }

    /// Runs the world for this long.
    pub fn run_for(&self, duration: Duration) {
        self.block_on(Sleep::new(self.world(), duration));
    }

    /// Waits in virtual time, for tests' own tasks.
    pub async fn sleep(&self, duration: Duration) {
        Sleep::new(self.world(), duration).await;
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        Time(self.world().now())
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.world().seed
    }

    /// 64 random bits for the test.
    pub fn random_u64(&self) -> u64 {
        self.world().test_chance.u64()
    }

    /// A random number below `n`.
    pub fn random_below(&self, n: u64) -> u64 {
        self.world().test_chance.below(n)
    }

    /// True with probability `p`.
    pub fn chance(&self, p: f64) -> bool {
        self.world().test_chance.chance(p)
    }

    /// Hash over every scheduling decision, message and disk request so far: the same seed gives the same hash.
    pub fn trace_hash(&self) -> u64 {
        self.world().trace.hash()
    }

    /// The log lines of all nodes since the last call, each with its node's name. The first call returns none: lines are
    /// kept from then on.
    pub fn take_log(&self) -> Vec<String> {
        self.world().trace.take_log()
    }

    /// Prints log lines, starts and ends of lives to stderr, with virtual time.
    pub fn set_trace(&self, on: bool) {
        self.world().trace.set_printing(on);
    }

    fn world(&self) -> &Rc<World> {
        &self.owner.0
    }
}

/// Nodes and their lives.
impl Sim {
    /// Adds a machine that runs nothing yet.
    pub fn add_node(&self, name: &str) -> NodeId {
        self.world().add_node(name)
    }

    /// Sets the connections over a network that shards of machines added from now on have. At first they need no keys.
    pub fn set_network_of_new_nodes(&self, network: Network) {
        *self.world().network_of_new_nodes.borrow_mut() = network;
    }

    /// Sets the connections over a network that shards of the node have from now on.
    pub fn set_network(&self, node: NodeId, network: Network) {
        self.world().node(node, |n| n.network = network);
    }

    /// An environment (a new shard) of the node's current life; begins a life if it has none.
    pub fn env(&self, node: NodeId) -> Env {
        let world = self.world();
        let life = if self.is_running(node) { world.node(node, |n| n.life) } else { world.begin_life(node) };
        env::shard(world, node, life)
    }

    /// Boots: begins a new life whose first task is `main`. Panics if the node is running. The node is running until it
    /// crashes, even if all its tasks end.
    pub fn start<M, F>(&self, node: NodeId, main: M)
    where
        M: FnOnce(Env) -> F,
        F: Future<Output = ()> + 'static,
    {
        let world = self.world();
        let life = world.begin_life(node);
        let future = main(env::shard(world, node, life));
        world.spawn_on(node, life, Box::pin(future));
    }

    /// SIGKILL: all tasks are dropped, listeners and locks end, and the peers' streams end after the link's time. By
    /// chance, data in flight still arrives or is lost. Writes in flight may or may not reach the disks.
    pub fn crash(&self, node: NodeId) {
        self.world().end_life(node, false);
    }

    /// As [`Sim::crash`], and every disk of the node loses or tears unflushed writes.
    pub fn power_cut(&self, node: NodeId) {
        self.world().end_life(node, true);
    }

    /// SIGSTOP: none of its tasks runs until [`Sim::resume`]; its system still accepts messages and connections.
    pub fn pause(&self, node: NodeId) {
        self.world().pause(node);
    }

    /// SIGCONT.
    pub fn resume(&self, node: NodeId) {
        self.world().resume(node);
    }

    /// True from its start to its crash.
    pub fn is_running(&self, node: NodeId) -> bool {
        self.world().node(node, |n| n.running)
    }

    /// Moves the node's Unix time by `delta_ns`; monotonic time stays.
    pub fn clock_jump(&self, node: NodeId, delta_ns: i64) {
        self.world().node(node, |n| n.clock_offset_ns = n.clock_offset_ns.saturating_add(delta_ns));
    }

    /// Gives the node this many virtual cores for `Env::charge_cpu`; before, each shard has its own.
    pub fn set_cores(&self, node: NodeId, cores: usize) {
        self.world().node(node, |n| n.cores = vec![0; cores]);
    }

    /// Makes the node one thread, on processors that others may share.
    pub fn run_on(&self, node: NodeId, processors: &Processors, waking: Waking) {
        self.world().node(node, |n| n.thread = Some(Thread::new(processors, waking)));
    }

    /// Acts as if a message of `bytes` bytes had arrived at the node's thread.
    pub fn heard(&self, node: NodeId, bytes: usize) {
        self.world().heard(node, bytes);
    }

    /// Sets the CPU cost of the node's messages; before, messages cost nothing.
    pub fn set_cpu_costs(&self, node: NodeId, costs: &Rc<CpuCosts>) {
        self.world().node(node, |n| n.costs = Some(costs.clone()));
    }
}

/// The network.
impl Sim {
    /// Sets the link between nodes that have no link of their own.
    pub fn set_default_link(&self, link: Link) {
        self.world().network.borrow_mut().links.set_default(link);
    }

    /// Sets the rate of the node's own port to the network, each way: all its links share it. Before, the port
    /// has no limit.
    pub fn set_nic(&self, node: NodeId, bytes_per_s: u64) {
        self.world().network.borrow_mut().links.set_nic(node, bytes_per_s);
    }

    /// Sets the link from `a` to `b`, and an equal one back.
    pub fn set_link(&self, a: NodeId, b: NodeId, link: Link) {
        let links = &mut self.world().network.borrow_mut().links;
        links.set(a, b, link);
        links.set(b, a, link);
    }

    /// Sets the time without passage after which a cut stream resets, and a connection attempt ends (10 s).
    pub fn set_idle_timeout(&self, timeout: Duration) {
        self.world().network.borrow_mut().links.idle_timeout = timeout;
    }

    /// From now on nothing passes from `a` to `b`.
    pub fn cut(&self, a: NodeId, b: NodeId) {
        self.world().network.borrow_mut().links.cut(a, b);
        self.note_network(a, b, 0);
    }

    /// From now on nothing passes between `a` and `b`.
    pub fn cut_both(&self, a: NodeId, b: NodeId) {
        self.cut(a, b);
        self.cut(b, a);
    }

    /// Ends the cuts between `a` and `b`; messages that were stalled arrive after the link's time.
    pub fn heal(&self, a: NodeId, b: NodeId) {
        {
            let links = &mut self.world().network.borrow_mut().links;
            links.heal(a, b);
            links.heal(b, a);
        }
        self.note_network(a, b, 1);
        self.world().unstall_pipes();
    }

    /// Ends all cuts.
    pub fn heal_all(&self) {
        self.world().network.borrow_mut().links.heal_all();
        self.note_network(NodeId(0), NodeId(0), 2);
        self.world().unstall_pipes();
    }

    /// Breaks every stream between `a` and `b`, at both ends, now.
    pub fn reset_connections(&self, a: NodeId, b: NodeId) {
        self.note_network(a, b, 3);
        self.world().reset_connections(a, b);
    }

    /// Breaks one of the streams between `a` and `b`, if there is one.
    pub fn reset_one_connection(&self, a: NodeId, b: NodeId) {
        self.note_network(a, b, 4);
        self.world().reset_one_connection(a, b);
    }

    fn note_network(&self, a: NodeId, b: NodeId, what: u64) {
        self.world().note(Kind::Fault, a, u64::from(b.0) + 1, what);
    }
}

/// Disks and files.
impl Sim {
    /// Sets how long the disk takes from now on; may be called before the disk exists.
    pub fn set_disk_model(&self, node: NodeId, path: &str, model: DiskModel) {
        let device = self.world().node(node, |n| {
            n.models.insert(path.to_string(), model);
            n.devices.get(path).cloned()
        });
        if let Some(device) = device {
            device.set_model(model);
        }
    }

    /// Puts a disk on a modelled device, which from now on decides how long it takes; may be called before the disk
    /// exists.
    pub fn place_disk(&self, node: NodeId, path: &str, placement: &Placement) {
        let device = self.world().node(node, |n| {
            n.placements.insert(path.to_string(), placement.clone());
            n.devices.get(path).cloned()
        });
        if let Some(device) = device {
            device.place(placement.clone());
        }
    }

    /// Injects a fault into a disk.
    pub fn disk_fault(&self, node: NodeId, path: &str, fault: Fault) {
        self.device(node, path).fault(self.world(), fault);
    }

    /// Ends all faults of a disk; rot stays in its bytes.
    pub fn clear_disk_faults(&self, node: NodeId, path: &str) {
        self.device(node, path).clear_faults();
    }

    /// The paths of the node's disks.
    pub fn disks(&self, node: NodeId) -> Vec<String> {
        self.world().node(node, |n| n.devices.keys().cloned().collect())
    }

    /// All of the disk's content, as reads see it.
    pub fn disk_bytes(&self, node: NodeId, path: &str) -> Vec<u8> {
        let image = self.disk_image(node, path);
        image.read(0, usize::try_from(image.bytes()).expect("a disk read whole fits in memory"))
    }

    /// Replaces or creates a disk; all of its content is durable.
    pub fn set_disk_bytes(&self, node: NodeId, path: &str, bytes: &[u8]) {
        let mut image = DiskImage::zeroed(bytes.len() as u64);
        image.write(0, bytes);
        self.set_disk_image(node, path, image);
    }

    /// The disk's content as reads see it, sparse.
    pub fn disk_image(&self, node: NodeId, path: &str) -> DiskImage {
        self.device(node, path).image()
    }

    /// Replaces or creates a disk; all of its content is durable.
    pub fn set_disk_image(&self, node: NodeId, path: &str, image: DiskImage) {
        self.world().set_disk(node, path, image);
    }

    /// From now on logs each submitted write and each completed flush of the disk; may be called before the disk
    /// exists.
    pub fn record_disk(&self, node: NodeId, path: &str) {
        let world = self.world();
        world.recording.borrow_mut().want(node, path);
        if let Some(device) = world.node(node, |n| n.devices.get(path).cloned()) {
            device.record(world);
        }
    }

    /// The recorded history of these disks.
    pub fn crash_images(&self, node: NodeId, paths: &[&str]) -> CrashRecorder {
        self.world().recording.borrow().recorder(node, paths)
    }

    /// A small file of the node, if it exists.
    pub fn read_file(&self, node: NodeId, path: &str) -> Option<Vec<u8>> {
        self.world().node(node, |n| n.files.get(path).cloned())
    }

    /// Creates or replaces a small file of the node.
    pub fn set_file(&self, node: NodeId, path: &str, bytes: &[u8]) {
        self.world().node(node, |n| n.files.insert(path.to_string(), bytes.to_vec()));
    }

    /// All small files of the node, by path.
    pub fn files(&self, node: NodeId) -> BTreeMap<String, Vec<u8>> {
        self.world().node(node, |n| n.files.clone())
    }

    /// Replaces all small files of the node.
    pub fn set_files(&self, node: NodeId, files: BTreeMap<String, Vec<u8>>) {
        self.world().node(node, |n| n.files = files);
    }

    fn device(&self, node: NodeId, path: &str) -> Rc<super::device::Device> {
        let found = self.world().node(node, |n| n.devices.get(path).cloned());
        found.unwrap_or_else(|| panic!("node {} has no disk {path}", self.world().node_name(node)))
    }
}
