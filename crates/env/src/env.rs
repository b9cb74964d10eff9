//! The handle through which all code above this crate reaches the world.

use std::{future::Future, rc::Rc, time::Duration};

use crate::{
    Address, Boxed, Disk, Elapsed, EnvResult, Network, OpenDisk, Stream, Task, Time, UnixTime,
    net::ListenerHalf,
    real, sim,
    task::{Timed, Told},
};

/// The environment of one shard. Cheap to clone; not `Send`.
#[derive(Clone)]
pub struct Env {
    pub(crate) half: Half,
    pub(crate) network: Rc<Network>,
    /// Connections that it opens are encrypted, also where both sides allow integrity only.
    pub(crate) encrypts: bool,
}

/// A side of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that sends requests.
    Client,
    /// The side that replies.
    Server,
}

/// The half that an [`Env`] uses.
#[derive(Clone)]
pub(crate) enum Half {
    Real(Rc<real::RealEnv>),
    Sim(Rc<sim::SimEnv>),
}

macro_rules! half {
    ($self:ident, $env:ident => $call:expr) => {
        match &$self.half {
            Half::Real($env) => $call,
            Half::Sim($env) => $call,
        }
    };
}

impl Env {
    /// Monotonic time of this node.
    pub fn now(&self) -> Time {
        half!(self, env => env.now())
    }

    /// Unix time of this node; may jump, never used to decide.
    pub fn unix_time(&self) -> UnixTime {
        half!(self, env => env.unix_time())
    }

    /// Waits for at least `duration`.
    pub async fn sleep(&self, duration: Duration) {
        half!(self, env => env.sleep(duration).await)
    }

    /// Waits for `future`, for at most `duration`; if it takes longer, it is dropped with the returned future. If both
    /// are ready, `future` wins.
    pub fn timeout<F: Future>(
        &self,
        duration: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> {
        Timed { future, sleep: self.sleep(duration) }
    }

    /// Gives every other ready task of this shard a turn.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|cx| {
            if yielded {
                return std::task::Poll::Ready(());
            }
            yielded = true;
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await
    }

    /// 64 random bits: from the system in the real half, from the seed in the simulated one.
    pub fn random_u64(&self) -> u64 {
        half!(self, env => env.random_u64())
    }

    /// Starts a task on this shard. Dropping the [`Task`] lets it run on; [`Task::abort`] ends it.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (future, value) = Told::new(future);
        Task { value, abort: self.spawn_boxed(Box::pin(future)) }
    }

    /// Not generic, so that each half's part of a task is compiled once, not for each type of future.
    fn spawn_boxed(&self, future: Boxed<'static, ()>) -> Box<dyn Fn()> {
        half!(self, env => env.spawn(future))
    }

    /// Starts a task whose result nobody awaits, and runs it at once up to its first wait. A future that does not wait
    /// costs no task. (In the simulator it is a task like any other.)
    ///
    /// Not for code that may call this again from within, without end.
    pub fn begin<F>(&self, future: F)
    where
        F: Future<Output = ()> + 'static,
    {
        self.begin_boxed(Box::pin(future));
    }

    fn begin_boxed(&self, future: Boxed<'static, ()>) {
        half!(self, env => env.begin(future))
    }

    /// Starts `main` on a shard of its own: a thread in the real half, a task of the same node in the simulated one.
    ///
    /// The receiver yields what `main` returned; it errs if the shard panicked or was killed.
    pub fn spawn_shard<M, F>(&self, name: &str, main: M) -> crate::sync::oneshot::Receiver<F::Output>
    where
        M: FnOnce(Env) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let network = (*self.network).clone();
        half!(self, env => env.spawn_shard(name, move |env: Self| main(env.with_network(network))))
    }

    /// Listens without asking for keys.
    pub(crate) async fn listen_plain(&self, address: &Address, network: &Network) -> EnvResult<ListenerHalf> {
        half!(self, env => env.listen(address, network).await)
    }

    /// Connects without asking for keys.
    pub(crate) async fn connect_plain(&self, address: &Address, network: &Network) -> EnvResult<Stream> {
        half!(self, env => env.connect(address, network).await)
    }

    /// Opens the file or block device at `path` as a disk (see [`OpenDisk`]).
    pub async fn open_disk(&self, path: &str, options: OpenDisk) -> EnvResult<Disk> {
        half!(self, env => env.open_disk(path, options).await)
    }

    /// Reads a whole small file (identities, maps). Errors: `NotFound`.
    pub fn read_file(&self, path: &str) -> EnvResult<Vec<u8>> {
        half!(self, env => env.read_file(path))
    }

    /// Replaces a small file atomically and durably (writes a new file, syncs it, renames it, syncs the directory).
    pub fn write_file(&self, path: &str, bytes: &[u8]) -> EnvResult<()> {
        half!(self, env => env.write_file(path, bytes))
    }

    /// Removes a small file durably. Not an error if it does not exist.
    pub fn remove_file(&self, path: &str) -> EnvResult<()> {
        half!(self, env => env.remove_file(path))
    }

    /// Creates a directory and its parents.
    pub fn create_dir(&self, path: &str) -> EnvResult<()> {
        half!(self, env => env.create_dir(path))
    }

    /// Takes an exclusive lock on the file at `path` (created if missing), until the guard is dropped or the process
    /// ends. Errors: `InUse` if another process holds it; the message contains its pid if known.
    pub fn lock_file(&self, path: &str) -> EnvResult<crate::files::FileLock> {
        half!(self, env => env.lock_file(path))
    }

    /// CPU cost of `work` charged to this shard: nothing in the real half, virtual time on a virtual core in the
    /// simulated one.
    pub async fn charge_cpu(&self, work: Duration) {
        half!(self, env => env.charge_cpu(work).await)
    }

    /// CPU cost of a message with `bytes` of data, at this side of the wire. The real half pays it anyway and charges
    /// nothing; the simulated half charges the cost that the machine was configured with.
    pub async fn charge_message(&self, side: Side, op: u16, bytes: usize) {
        half!(self, env => env.charge_message(side, op, bytes).await)
    }

    /// As [`Env::charge_message`], for `bytes` more of the same message.
    pub async fn charge_bytes(&self, side: Side, op: u16, bytes: usize) {
        half!(self, env => env.charge_bytes(side, op, bytes).await)
    }

    /// True in the simulator; for tests and reports only, never to choose behaviour.
    pub fn is_simulated(&self) -> bool {
        matches!(self.half, Half::Sim(_))
    }

    /// Writes a line for the operator: to stderr in the real half, to the trace in the simulated one.
    pub fn log(&self, line: &str) {
        half!(self, env => env.log(line))
    }
}
