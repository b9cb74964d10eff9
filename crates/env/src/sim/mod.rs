//! The simulated half.

use std::{future::Future, ops::Range, time::Duration};

use bytes::Bytes;

use crate::{
    Address, AlignedBuf, Disk, DiskInfo, Env, EnvResult, Listener, OpenDisk, Stream, Task, Time, UnixTime,
    files::FileLock, sync::oneshot,
};

/// A simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// One direction of a path between two nodes.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Time from the last byte's departure to its arrival.
    pub latency: Duration,
    /// Up to this much more, by chance.
    pub jitter: Duration,
    /// Rate shared by all streams of this direction; `None`: infinite.
    pub bytes_per_s: Option<u64>,
    /// Chance of a message to be lost and sent again after a retransmission timeout.
    pub loss: f64,
}
impl Default for Link {
    fn default() -> Self {
        Self { latency: Duration::from_micros(50), jitter: Duration::from_micros(10), bytes_per_s: None, loss: 0.0 }
    }
}

/// How long a simulated disk takes.
#[derive(Clone, Copy, Debug)]
pub struct DiskModel {
    /// From the end of the transfer to the completion of a write.
    pub latency_write: Duration,
    /// The same of a read.
    pub latency_read: Duration,
    /// Of a flush.
    pub latency_flush: Duration,
    /// Transfer rate, shared by all requests; `None`: infinite.
    pub bytes_per_s: Option<u64>,
    /// Each latency grows by up to this fraction, by chance, so that requests in flight together complete in any order.
    pub jitter: f64,
}
impl Default for DiskModel {
    fn default() -> Self {
        Self {
            latency_write: Duration::from_micros(20),
            latency_read: Duration::from_micros(80),
            latency_flush: Duration::from_micros(100),
            bytes_per_s: Some(2 << 30),
            jitter: 0.25,
        }
    }
}

/// What goes wrong with a disk.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Reads that touch these bytes fail.
    ReadEio { range: Range<u64> },
    /// Writes that touch these bytes fail.
    WriteEio { range: Range<u64> },
    /// The next flush fails; what it covered may never become durable.
    FlushFails,
    /// The next write is acknowledged and stored nowhere.
    LoseNextWrite,
    /// The next write is acknowledged and stored at `to`.
    MisdirectNextWrite { to: u64 },
    /// The stored byte at `offset` is now XORed with `bits`.
    Rot { offset: u64, bits: u8 },
    /// Nothing completes for this long.
    Stuck(Duration),
    /// Everything takes this many times as long, until told otherwise.
    Slow(f64),
}

/// What becomes of unflushed writes at a power cut.
#[derive(Clone, Copy, Debug)]
pub enum TearChoice {
    /// None is kept.
    AllLost,
    /// All are kept.
    AllKept,
    /// All are kept but the last submitted, of which only this many 512-byte sectors are.
    LastTornAtSector(usize),
    /// Each 512-byte sector, each write, or all of them: by this seed.
    Random(u64),
}

/// The contents of a disk, sparse and cheap to clone.
#[derive(Clone)]
pub struct DiskImage;
impl DiskImage {
    /// All zeros.
    pub fn zeroed(_bytes: u64) -> Self {
        unimplemented!()
    }
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        unimplemented!()
    }
    /// The bytes at `offset`.
    pub fn read(&self, _offset: u64, _len: usize) -> Vec<u8> {
        unimplemented!()
    }
    /// Replaces the bytes at `offset`.
    pub fn write(&mut self, _offset: u64, _bytes: &[u8]) {
        unimplemented!()
    }
}

/// What recorded disks would hold after a power cut at any point of their history.
pub struct CrashRecorder;
impl CrashRecorder {
    /// Number of points: 0 is before everything, `n` after the n-th recorded write or flush.
    pub fn points(&self) -> usize {
        unimplemented!()
    }
    /// The event just before `point`, in words, for a failing test's message.
    pub fn describe(&self, _point: usize) -> String {
        unimplemented!()
    }
    /// Contents of the disks, in the order of the paths given, after a power cut at `point`. Ascending points are quick.
    pub fn image(&mut self, _point: usize, _tear: TearChoice) -> Vec<DiskImage> {
        unimplemented!()
    }
}

/// A simulated world: its nodes, links, disks and time.
#[derive(Clone)]
pub struct Sim;
impl Sim {
    /// A world whose every chance comes from `seed`.
    pub fn new(_seed: u64) -> Sim {
        unimplemented!()
    }
    /// A machine with disks, not yet running anything.
    pub fn add_node(&self, _name: &str) -> NodeId {
        unimplemented!()
    }
    /// The environment of the node's current life; begins a life if it has none.
    pub fn env(&self, _node: NodeId) -> Env {
        unimplemented!()
    }
    /// Boots: begins a new life whose first task is `main`. The node must not be running.
    pub fn start<M, F>(&self, _node: NodeId, _main: M)
    where
        M: FnOnce(Env) -> F,
        F: Future<Output = ()> + 'static,
    {
        unimplemented!()
    }
    /// SIGKILL.
    pub fn crash(&self, _node: NodeId) {
        unimplemented!()
    }
    /// As [`Sim::crash`], and the disks lose or tear what was not flushed.
    pub fn power_cut(&self, _node: NodeId) {
        unimplemented!()
    }
    /// SIGSTOP.
    pub fn pause(&self, _node: NodeId) {
        unimplemented!()
    }
    /// SIGCONT.
    pub fn resume(&self, _node: NodeId) {
        unimplemented!()
    }
    /// True from its start to its crash.
    pub fn is_running(&self, _node: NodeId) -> bool {
        unimplemented!()
    }
    /// Runs the world until `future` is ready.
    pub fn block_on<F: Future>(&self, _future: F) -> F::Output {
        unimplemented!()
    }
    /// Runs the world for this long.
    pub fn run_for(&self, _duration: Duration) {
        unimplemented!()
    }
    /// Virtual time.
    pub fn now(&self) -> Time {
        unimplemented!()
    }
    /// 64 random bits for the test.
    pub fn random_u64(&self) -> u64 {
        unimplemented!()
    }
    /// A random number below `n`.
    pub fn random_below(&self, _n: u64) -> u64 {
        unimplemented!()
    }
    /// True with probability `p`.
    pub fn chance(&self, _p: f64) -> bool {
        unimplemented!()
    }
    /// The link between nodes that have no own.
    pub fn set_default_link(&self, _link: Link) {
        unimplemented!()
    }
    /// The link from `a` to `b` and back.
    pub fn set_link(&self, _a: NodeId, _b: NodeId, _link: Link) {
        unimplemented!()
    }
    /// After how long without passage a cut stream resets (10 s).
    pub fn set_idle_timeout(&self, _timeout: Duration) {
        unimplemented!()
    }
    /// Nothing passes from `a` to `b`.
    pub fn cut(&self, _a: NodeId, _b: NodeId) {
        unimplemented!()
    }
    /// Nothing passes between `a` and `b`.
    pub fn cut_both(&self, _a: NodeId, _b: NodeId) {
        unimplemented!()
    }
    /// Ends a cut, both ways.
    pub fn heal(&self, _a: NodeId, _b: NodeId) {
        unimplemented!()
    }
    /// Ends all cuts.
    pub fn heal_all(&self) {
        unimplemented!()
    }
    /// Breaks every stream between `a` and `b`.
    pub fn reset_connections(&self, _a: NodeId, _b: NodeId) {
        unimplemented!()
    }
    /// Moves the node's Unix time by `delta_ns`.
    pub fn clock_jump(&self, _node: NodeId, _delta_ns: i64) {
        unimplemented!()
    }
    /// Gives the node this many virtual cores (unlimited before).
    pub fn set_cores(&self, _node: NodeId, _cores: usize) {
        unimplemented!()
    }
    /// How long the disk takes from now on; also before it exists.
    pub fn set_disk_model(&self, _node: NodeId, _path: &str, _model: DiskModel) {
        unimplemented!()
    }
    /// Lets something go wrong with a disk.
    pub fn disk_fault(&self, _node: NodeId, _path: &str, _fault: Fault) {
        unimplemented!()
    }
    /// Ends all faults of a disk but rot.
    pub fn clear_disk_faults(&self, _node: NodeId, _path: &str) {
        unimplemented!()
    }
    /// What reads of the disk see, whole.
    pub fn disk_bytes(&self, _node: NodeId, _path: &str) -> Vec<u8> {
        unimplemented!()
    }
    /// Replaces or makes a disk; all of it durable.
    pub fn set_disk_bytes(&self, _node: NodeId, _path: &str, _bytes: &[u8]) {
        unimplemented!()
    }
    /// What reads of the disk see, sparse.
    pub fn disk_image(&self, _node: NodeId, _path: &str) -> DiskImage {
        unimplemented!()
    }
    /// Replaces or makes a disk; all of it durable.
    pub fn set_disk_image(&self, _node: NodeId, _path: &str, _image: DiskImage) {
        unimplemented!()
    }
    /// From now on logs each submitted write and each completed flush of the disk.
    pub fn record_disk(&self, _node: NodeId, _path: &str) {
        unimplemented!()
    }
    /// The recorded history of these disks.
    pub fn crash_images(&self, _node: NodeId, _paths: &[&str]) -> CrashRecorder {
        unimplemented!()
    }
    /// A small file of the node, if it exists.
    pub fn read_file(&self, _node: NodeId, _path: &str) -> Option<Vec<u8>> {
        unimplemented!()
    }
    /// Makes or replaces a small file of the node.
    pub fn set_file(&self, _node: NodeId, _path: &str, _bytes: &[u8]) {
        unimplemented!()
    }
    /// All small files of the node.
    pub fn files(&self, _node: NodeId) -> std::collections::BTreeMap<String, Vec<u8>> {
        unimplemented!()
    }
    /// Replaces all small files of the node.
    pub fn set_files(&self, _node: NodeId, _files: std::collections::BTreeMap<String, Vec<u8>>) {
        unimplemented!()
    }
    /// Hash over every scheduling decision, message and disk request so far.
    pub fn trace_hash(&self) -> u64 {
        unimplemented!()
    }
    /// Prints log lines with virtual time to stderr.
    pub fn set_trace(&self, _on: bool) {
        unimplemented!()
    }
}

pub(crate) struct SimEnv;
impl SimEnv {
    pub(crate) fn now(&self) -> Time {
        unimplemented!()
    }
    pub(crate) fn unix_time(&self) -> UnixTime {
        unimplemented!()
    }
    pub(crate) async fn sleep(&self, _d: Duration) {
        unimplemented!()
    }
    pub(crate) fn random_u64(&self) -> u64 {
        unimplemented!()
    }
    pub(crate) fn spawn<F>(&self, _f: F) -> Task<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        unimplemented!()
    }
    pub(crate) fn spawn_shard<M, F>(&self, _n: &str, _m: M) -> oneshot::Receiver<F::Output>
    where
        M: FnOnce(Env) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        unimplemented!()
    }
    pub(crate) async fn listen(&self, _a: &Address) -> EnvResult<Listener> {
        unimplemented!()
    }
    pub(crate) async fn connect(&self, _a: &Address) -> EnvResult<Stream> {
        unimplemented!()
    }
    pub(crate) async fn open_disk(&self, _p: &str, _o: OpenDisk) -> EnvResult<Disk> {
        unimplemented!()
    }
    pub(crate) fn read_file(&self, _p: &str) -> EnvResult<Vec<u8>> {
        unimplemented!()
    }
    pub(crate) fn write_file(&self, _p: &str, _b: &[u8]) -> EnvResult<()> {
        unimplemented!()
    }
    pub(crate) fn remove_file(&self, _p: &str) -> EnvResult<()> {
        unimplemented!()
    }
    pub(crate) fn create_dir(&self, _p: &str) -> EnvResult<()> {
        unimplemented!()
    }
    pub(crate) fn lock_file(&self, _p: &str) -> EnvResult<FileLock> {
        unimplemented!()
    }
    pub(crate) async fn charge_cpu(&self, _w: Duration) {
        unimplemented!()
    }
    pub(crate) fn log(&self, _l: &str) {
        unimplemented!()
    }
}
pub(crate) struct SimListener;
impl SimListener {
    pub(crate) fn address(&self) -> Address {
        unimplemented!()
    }
    pub(crate) async fn accept(&mut self) -> EnvResult<(Stream, String)> {
        unimplemented!()
    }
}
pub(crate) struct SimReadHalf;
impl SimReadHalf {
    pub(crate) async fn read_exact(&mut self, _b: &mut [u8]) -> EnvResult<()> {
        unimplemented!()
    }
}
pub(crate) struct SimWriteHalf;
impl SimWriteHalf {
    pub(crate) async fn write_all(&mut self, _p: &[Bytes]) -> EnvResult<()> {
        unimplemented!()
    }
}
pub(crate) struct SimDisk;
pub(crate) struct SimWriteTicket;
impl SimWriteTicket {
    pub(crate) async fn wait(self) -> EnvResult<()> {
        unimplemented!()
    }
}
impl SimDisk {
    pub(crate) fn info(&self) -> DiskInfo {
        unimplemented!()
    }
    pub(crate) async fn read(&self, _o: u64, _l: usize) -> EnvResult<AlignedBuf> {
        unimplemented!()
    }
    pub(crate) fn submit_write(&self, _o: u64, _p: Vec<Bytes>) -> SimWriteTicket {
        unimplemented!()
    }
    pub(crate) async fn flush(&self) -> EnvResult<()> {
        unimplemented!()
    }
    pub(crate) async fn write_durable(&self, _o: u64, _p: Vec<Bytes>) -> EnvResult<()> {
        unimplemented!()
    }
}
