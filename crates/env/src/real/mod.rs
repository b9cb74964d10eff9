//! The real half: Linux's clock, sockets, files and devices.
//!
//! Each shard is a thread with a current-thread tokio runtime. It drives the io_uring of each disk it has open; where
//! io_uring is forbidden, each open disk has a thread of its own that uses plain system calls. Only this module names
//! tokio's runtime, threads, sockets and files.
//!
//! No system call here raises SIGPIPE, whatever the process does with that signal.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod busy_poll;
mod descriptor;
mod device;
mod device_queue;
mod disk;
mod env;
mod errors;
mod files;
mod forgetful;
mod fuse_memory;
mod fuse_ring;
mod mem;
mod net;
mod open;
mod plain;
mod socket;
#[cfg(test)]
mod tests;
mod transfer;
mod uring;
mod volatile;

use std::{future::Future, rc::Rc};

use crate::{Boxed, Env};

pub use busy_poll::expect_another;
pub use descriptor::Descriptor;
pub(crate) use disk::{RealDisk, RealWriteTicket};
pub(crate) use env::RealEnv;
pub(crate) use files::remove_tree;
pub use fuse_memory::{FUSE_HEAD_BYTES, FuseHead};
pub use fuse_ring::FuseRing;
pub(crate) use net::{RealListener, RealReadHalf, RealWriteHalf};

/// Runs `main` on a shard of its own on the calling thread, until it returns; the shard's other tasks end with it.
///
/// Panics if the system cannot give a runtime (no file descriptors left), or when called from within a shard.
pub fn run<M, F>(main: M) -> F::Output
where
    M: FnOnce(Env) -> F,
    F: Future,
{
    run_with(Disks::Keep, main)
}

/// What happens to writes to this process's disks when the process is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disks {
    /// The kernel keeps it.
    #[default]
    Keep,
    /// Unflushed writes are lost, as in a power cut: for crash tests. At most 64 MiB of each disk are in memory.
    Forget,
}

/// As [`run`], with such disks, also in the shards that it starts.
pub fn run_with<M, F>(disks: Disks, main: M) -> F::Output
where
    M: FnOnce(Env) -> F,
    F: Future,
{
    let mut output = None;
    let place = &mut output;
    run_boxed(disks, Box::new(move |env| Box::pin(async move { *place = Some(main(env).await) })));
    output.expect("the shard ran until its main future ended")
}

fn run_boxed<'a>(disks: Disks, main: Box<dyn FnOnce(Env) -> Boxed<'a, ()> + 'a>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a shard needs an epoll and an eventfd descriptor");
    let tasks = Rc::new(tokio::task::LocalSet::new());
    let env = env::shard(Rc::downgrade(&tasks), disks);
    drop(tasks.spawn_local(busy_poll::run()));
    tasks.block_on(&runtime, main(env))
}

/// True if the environment variable `FOREBAY_NO_URING` is `1`: disks then use plain system calls, one request at a
/// time. They also do so automatically if the kernel refuses io_uring (containers often forbid it).
pub fn uring_forbidden() -> bool {
    std::env::var_os("FOREBAY_NO_URING").is_some_and(|value| value == "1")
}
