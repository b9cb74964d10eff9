//! Mounting and unmounting.
//!
//! mount(2) and umount(2) make the kernel send requests that the shard must serve, so neither is called from its
//! thread.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // mount(2) and umount(2) block: each has a thread

use std::{
    io,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use forebay_client::{Client, ClientError, ClientResult};
use forebay_env::{
    Env,
    real::{Descriptor, FuseRing, uring_forbidden},
    sync::{oneshot, watch},
};
use forebay_proto::Errno;

use crate::{
    FuseOptions, FuseTransport,
    below::Below,
    floor::Floor,
    kernel::{self, Device, Filesystem, Known, Notifier},
    limits,
    point::{self, Unmounter, errno, umount},
    server::Server,
    transport::{Greeting, NO_URING, Transport},
};

/// A mounted file system. Dropping it unmounts, lazily if programs still use the mount.
pub struct Mounted {
    point: String,
    unmounter: Option<Unmounter>,
    ended: watch::Receiver<bool>,
    requests: Weak<Device>,
    transport: FuseTransport,
}

/// Mounts `client`'s file system at the directory `point`; requests are served by tasks of this shard from now on.
pub async fn mount(env: &Env, client: &Client, point: &str, options: &FuseOptions) -> ClientResult<Mounted> {
    let below = Below::new(point);
    let serve = |notifier: Notifier| {
        let server = Rc::new(Server::new(env, client, notifier, below));
        let told = Rc::downgrade(&server);
        client.set_dropped(move |dropped| told.upgrade().is_none_or(|server| server.forget(dropped)));
        let told = Rc::downgrade(&server);
        client.set_grown(move |fid, before, bytes| {
            let server = told.upgrade();
            Box::pin(async move {
                if let Some(server) = server {
                    server.grown(fid.low, before, bytes).await;
                }
            })
        });
        Transport { server }
    };
    mount_with(env, serve, point, options).await
}

/// Mounts an empty file system in memory that keeps names but no data: the cost of the kernel and this crate alone.
pub async fn mount_floor(env: &Env, point: &str, options: &FuseOptions) -> ClientResult<Mounted> {
    mount_with(env, |notifier| Floor::new(env, &notifier), point, options).await
}

async fn mount_with<F: Filesystem + 'static>(
    env: &Env,
    filesystem: impl FnOnce(Notifier) -> F,
    point: &str,
    options: &FuseOptions,
) -> ClientResult<Mounted> {
    let ring = ring(options.transport).map_err(|error| refused(point, &error))?;
    let granted = Arc::new(AtomicBool::new(false));
    let greeting = Greeting {
        uring: ring.as_ref().map(|_| granted.clone()),
        needs_uring: options.transport == FuseTransport::Uring,
    };
    let (ready, started) = oneshot::channel();
    let (served, over) = oneshot::channel::<()>();
    let (end, ended) = watch::channel(false);
    let (path, wanted) = (point.to_owned(), options.clone());
    let hold = move || {
        match point::mount(greeting, &path, &wanted) {
            Err(error) => drop(ready.send(Err(error))),
            Ok((held, descriptor, unmounter)) => {
                drop(ready.send(Ok((descriptor, unmounter))));
                // Wait until the shard stops serving. An error means that the shard has ended. The mount ends with the
                // session.
                drop(over.blocking_recv());
                held.end(&path);
                clear_dead(&path);
            }
        }
        let _ = end.send(true);
    };
    thread::Builder::new().name("fuse".into()).spawn(hold).map_err(|error| refused(point, &error))?;
    let (descriptor, unmounter) = match started.await {
        Ok(Ok(begun)) => begun,
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err(ClientError::new(Errno::EIO, format!("mounting {point} ended without a word"))),
    };
    let descriptor = Descriptor::new(descriptor).map_err(|error| ClientError::new(Errno::EIO, error.message))?;
    let descriptor = Rc::new(descriptor);
    let ring = ring.filter(|_| granted.load(Ordering::Acquire));
    // Until the ring is set up the kernel queues requests.
    if let Some(Err(error)) = ring.as_ref().map(|ring| ring.begin(&descriptor)) {
        if options.transport == FuseTransport::Uring {
            return Err(refused(point, &error));
        }
        env.log(&format!("no io_uring for requests of {point}, so by /dev/fuse: {error}"));
    }
    let ring = ring.filter(|ring| ring.is_alive());
    let transport = if ring.is_some() { FuseTransport::Uring } else { FuseTransport::Device };
    let known = Rc::<Known>::default();
    let filesystem = filesystem(Notifier::new(descriptor.clone(), known.clone()));
    let (log, path) = (env.clone(), point.to_owned());
    let device = Device::new(env, descriptor, ring, known);
    let requests = Rc::downgrade(&device);
    drop(env.spawn(async move {
        if let Err(error) = kernel::serve(device, filesystem).await {
            log.log(&format!("the mount at {path} ended: {error}"));
        }
        drop(served);
    }));
    Ok(Mounted { point: point.to_owned(), unmounter: Some(unmounter), ended, requests, transport })
}

/// The ring for requests. None if `transport` excludes it, or if it is optional and cannot be set up.
fn ring(transport: FuseTransport) -> io::Result<Option<Rc<FuseRing>>> {
    let needed = match transport {
        FuseTransport::Device => return Ok(None),
        FuseTransport::Auto => false,
        FuseTransport::Uring => true,
    };
    let made = match uring_forbidden() {
        true => Err(io::Error::other("FOREBAY_NO_URING is set")),
        false => FuseRing::new(limits::REQUEST_BYTES as usize),
    };
    match made {
        Ok(ring) => Ok(Some(ring)),
        Err(error) if needed => Err(io::Error::other(format!("{NO_URING} ({error})"))),
        Err(_) => Ok(None),
    }
}

impl Mounted {
    /// The mount point.
    pub fn point(&self) -> &str {
        &self.point
    }

    /// How requests arrive: never `Auto`.
    pub fn transport(&self) -> FuseTransport {
        self.transport
    }

    /// How many requests of programs have waited for `long`, and the longest wait. Lock requests are not counted.
    pub fn waiting(&self, long: Duration) -> Option<(usize, Duration)> {
        self.requests.upgrade()?.waiting(long)
    }

    /// From now on programs that still use the mount get ENOTCONN: its client is about to end.
    pub fn refuse(&self) {
        if let Some(device) = self.requests.upgrade() {
            device.end();
        }
    }

    /// Waits until the file system is unmounted, by this or another process.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that the thread is gone, so the mount has ended too.
        drop(ended.wait_for(|ended| *ended).await);
    }

    /// Unmounts and waits for the end of the mount. Errors: EBUSY while programs use it, unless `lazily`. A lazy
    /// unmount detaches the mount at once, and returns without waiting for those programs.
    pub async fn unmount(&mut self, lazily: bool) -> ClientResult<()> {
        if *self.ended.borrow() {
            return Ok(());
        }
        let (point, unmounter) = (self.point.clone(), self.unmounter.take());
        let (done, result) = oneshot::channel();
        let take_away = move || drop(done.send(take_away(&point, unmounter, lazily)));
        thread::Builder::new().name("umount".into()).spawn(take_away).map_err(|error| refused(&self.point, &error))?;
        match result.await {
            Ok(Ok(End::Ends)) => {
                self.ended().await;
                Ok(())
            }
            Ok(Ok(End::Hidden)) => Ok(()),
            Ok(Err(error)) => Err(busy(&self.point, &error)),
            Err(_) => Err(ClientError::new(Errno::EIO, format!("unmounting {} ended without a word", self.point))),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !*self.ended.borrow() {
            let (point, unmounter) = (self.point.clone(), self.unmounter.take());
            drop(thread::Builder::new().name("umount".into()).spawn(move || take_away(&point, unmounter, true)));
        }
    }
}

/// Detaches what is left after the kernel aborted the mount (`umount -f`) while programs used it.
fn clear_dead(point: &str) {
    if std::fs::metadata(point).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN)) {
        // Another process may have unmounted it first.
        let _ = umount(point, libc::MNT_DETACH);
    }
}

/// The outcome of an unmount.
enum End {
    /// The session ends now.
    Ends,
    /// The mount is detached. The session ends when its last user does.
    Hidden,
}

/// `unmounter`: for the first attempt. It is used up even if that attempt fails.
fn take_away(point: &str, unmounter: Option<Unmounter>, lazily: bool) -> io::Result<End> {
    let first = match unmounter {
        Some(unmounter) => unmounter.unmount(point),
        None => umount(point, 0),
    };
    match first {
        Ok(()) => Ok(End::Ends),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) && lazily => {
            umount(point, libc::MNT_DETACH).map(|()| End::Hidden)
        }
        // Another process unmounted it first, perhaps lazily too.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(if lazily { End::Hidden } else { End::Ends }),
        Err(error) => Err(error),
    }
}

fn refused(point: &str, error: &io::Error) -> ClientError {
    ClientError::new(errno(error), format!("cannot mount at {point}: {error}"))
}

fn busy(point: &str, error: &io::Error) -> ClientError {
    let hint = match error.raw_os_error() {
        Some(libc::EBUSY) => "; programs use it (`fuser -vm` names them): end them, or unmount lazily",
        _ => "",
    };
    ClientError::new(errno(error), format!("cannot unmount {point}: {error}{hint}"))
}
