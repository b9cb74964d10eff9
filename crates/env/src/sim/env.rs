//! The simulated half of [`crate::Env`]: one shard of one life of one node.

use std::{cell::Cell, future::Future, rc::Rc, time::Duration};

use super::{
    NodeId,
    executor::{Sleep, nanos},
    world::World,
};
use crate::{
    Address, Boxed, Disk, Env, EnvError, EnvErrorKind, EnvResult, Network, OpenDisk, Side, Stream, Time, UnixTime,
    env::Half, files::FileLock, net::ListenerHalf, sync::oneshot,
};

/// Unix time when virtual time is zero: 2026-01-01.
const EPOCH_UNIX_NS: i64 = 1_767_225_600 * 1_000_000_000;

pub(crate) struct SimEnv {
    world: Rc<World>,
    node: NodeId,
    life: u64,
    /// When this shard's thread is done with the work charged to it.
    busy_until: Cell<u64>,
}

/// The environment of a new shard.
pub(crate) fn shard(world: &Rc<World>, node: NodeId, life: u64) -> Env {
    let env = SimEnv { world: world.clone(), node, life, busy_until: Cell::new(0) };
    let network = world.node(node, |n| n.network.clone());
    Env { half: Half::Sim(Rc::new(env)), network: Rc::new(network), encrypts: false }
}

impl SimEnv {
    pub(crate) fn now(&self) -> Time {
        Time(self.world.now())
    }

    pub(crate) fn unix_time(&self) -> UnixTime {
        let offset = self.world.node(self.node, |n| n.clock_offset_ns);
        UnixTime(EPOCH_UNIX_NS.saturating_add(self.world.now() as i64).saturating_add(offset))
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        Sleep::new(&self.world, duration).await;
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.world.node(self.node, |n| n.chance.clone()).u64()
    }

    pub(crate) fn spawn(&self, future: Boxed<'static, ()>) -> Box<dyn Fn()> {
        let id = self.world.spawn_on(self.node, self.life, future);
        let world = Rc::downgrade(&self.world);
        Box::new(move || {
            if let (Some(world), Some(id)) = (world.upgrade(), id) {
                world.exec.remove(id);
            }
        })
    }

    pub(crate) fn begin(&self, future: Boxed<'static, ()>) {
        drop(self.spawn(future));
    }

    pub(crate) fn spawn_shard<M, F>(&self, _name: &str, main: M) -> oneshot::Receiver<F::Output>
    where
        M: FnOnce(Env) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (done, value) = oneshot::channel();
        let env = shard(&self.world, self.node, self.life);
        let task = async move { drop(done.send(main(env).await)) };
        self.world.spawn_on(self.node, self.life, Box::pin(task));
        value
    }

    pub(crate) async fn listen(&self, address: &Address, _: &Network) -> EnvResult<ListenerHalf> {
        self.check_alive()?;
        self.world.listen(self.node, address)
    }

    pub(crate) async fn connect(&self, address: &Address, _: &Network) -> EnvResult<Stream> {
        self.check_alive()?;
        let stream = self.world.connect(self.node, address).await?;
        self.check_alive()?;
        Ok(stream)
    }

    pub(crate) async fn open_disk(&self, path: &str, options: OpenDisk) -> EnvResult<Disk> {
        self.check_alive()?;
        self.world.open_disk(self.node, self.life, path, options)
    }

    pub(crate) fn read_file(&self, path: &str) -> EnvResult<Vec<u8>> {
        self.check_alive()?;
        let missing = || EnvError::new(EnvErrorKind::NotFound, format!("{path} does not exist"));
        self.world.node(self.node, |n| n.files.get(path).cloned()).ok_or_else(missing)
    }

    pub(crate) fn write_file(&self, path: &str, bytes: &[u8]) -> EnvResult<()> {
        self.check_alive()?;
        self.world.node(self.node, |n| n.files.insert(path.to_string(), bytes.to_vec()));
        Ok(())
    }

    pub(crate) fn remove_file(&self, path: &str) -> EnvResult<()> {
        self.check_alive()?;
        self.world.node(self.node, |n| n.files.remove(path));
        let device = self.world.node(self.node, |n| n.devices.remove(path));
        drop(device);
        Ok(())
    }

    pub(crate) fn create_dir(&self, _path: &str) -> EnvResult<()> {
        self.check_alive()
    }

    pub(crate) fn lock_file(&self, path: &str) -> EnvResult<FileLock> {
        self.check_alive()?;
        self.world.lock(self.node, self.life, path).ok_or_else(|| {
            let message = format!("{path} is locked by process {} of this machine; stop it first", self.life);
            EnvError::new(EnvErrorKind::InUse, message)
        })
    }

    pub(crate) async fn charge_cpu(&self, work: Duration) {
        let thread = self.world.node(self.node, |n| n.thread.clone());
        if let Some(thread) = thread {
            return thread.work(&self.world, work).await;
        }
        let now = self.world.now();
        let ready = now.max(self.busy_until.get());
        let end = self.world.node(self.node, |n| match n.cores.iter_mut().min() {
            None => ready.saturating_add(nanos(work)),
            Some(core) => {
                *core = ready.max(*core).saturating_add(nanos(work));
                *core
            }
        });
        self.busy_until.set(end);
        if end > now {
            Sleep::until(&self.world, end).await;
        }
    }

    pub(crate) async fn charge_message(&self, side: Side, op: u16, bytes: usize) {
        if let Some(costs) = self.world.node(self.node, |n| n.costs.clone()) {
            self.charge_cpu(costs.message(side, op, bytes)).await;
        }
    }

    pub(crate) async fn charge_bytes(&self, side: Side, op: u16, bytes: usize) {
        if let Some(costs) = self.world.node(self.node, |n| n.costs.clone()) {
            self.charge_cpu(costs.bytes(side, op, bytes)).await;
        }
    }

    pub(crate) fn log(&self, line: &str) {
        let name = self.world.node_name(self.node);
        self.world.trace.log(self.world.now(), self.node.0, &name, line);
    }

    fn check_alive(&self) -> EnvResult<()> {
        if self.world.is_alive(self.node, self.life) {
            return Ok(());
        }
        let name = self.world.node_name(self.node);
        Err(EnvError::new(EnvErrorKind::Other, format!("life {} of {name} is over", self.life)))
    }
}
