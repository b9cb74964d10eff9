//! The real half: Linux's clock, sockets, files and devices.

use std::{future::Future, time::Duration};

use bytes::Bytes;

use crate::{
    Address, AlignedBuf, Disk, DiskInfo, Env, EnvResult, Listener, OpenDisk, Stream, Task, Time, UnixTime,
    files::FileLock, sync::oneshot,
};

/// Runs `main` on a shard of its own on the calling thread, until it returns; its other tasks end with it.
pub fn run<M, F>(_main: M) -> F::Output
where
    M: FnOnce(Env) -> F,
    F: Future,
{
    unimplemented!()
}

pub(crate) fn remove_tree(_p: &str) {
    unimplemented!()
}
pub(crate) struct RealEnv;
impl RealEnv {
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
pub(crate) struct RealListener;
impl RealListener {
    pub(crate) fn address(&self) -> Address {
        unimplemented!()
    }
    pub(crate) async fn accept(&mut self) -> EnvResult<(Stream, String)> {
        unimplemented!()
    }
}
pub(crate) struct RealReadHalf;
impl RealReadHalf {
    pub(crate) async fn read_exact(&mut self, _b: &mut [u8]) -> EnvResult<()> {
        unimplemented!()
    }
}
pub(crate) struct RealWriteHalf;
impl RealWriteHalf {
    pub(crate) async fn write_all(&mut self, _p: &[Bytes]) -> EnvResult<()> {
        unimplemented!()
    }
}
pub(crate) struct RealDisk;
pub(crate) struct RealWriteTicket;
impl RealWriteTicket {
    pub(crate) async fn wait(self) -> EnvResult<()> {
        unimplemented!()
    }
}
impl RealDisk {
    pub(crate) fn info(&self) -> DiskInfo {
        unimplemented!()
    }
    pub(crate) async fn read(&self, _o: u64, _l: usize) -> EnvResult<AlignedBuf> {
        unimplemented!()
    }
    pub(crate) fn submit_write(&self, _o: u64, _p: Vec<Bytes>) -> RealWriteTicket {
        unimplemented!()
    }
    pub(crate) async fn flush(&self) -> EnvResult<()> {
        unimplemented!()
    }
    pub(crate) async fn write_durable(&self, _o: u64, _p: Vec<Bytes>) -> EnvResult<()> {
        unimplemented!()
    }
}
