//! An open real disk: checks requests, passes them to the kernel or to a thread that does, and awaits the results.

use std::{fs::File, os::unix::fs::MetadataExt, rc::Rc, sync::Arc, thread::JoinHandle};

use bytes::Bytes;

use super::{
    device::Device,
    device_queue::DeviceQueue,
    errors::file_error,
    forgetful,
    open::{self, Cache, OpenedDisk},
    plain,
    transfer::Request,
    uring::UringDevice,
    uring_forbidden,
};
use crate::{
    AlignedBuf, Disk, DiskInfo, EnvError, EnvErrorKind, EnvResult, OpenDisk,
    disk::{DiskHalf, check_range},
    sync::oneshot,
};

pub(crate) struct RealDisk {
    server: Server,
    file: Arc<File>,
    info: DiskInfo,
    read_only: bool,
}

/// What serves the requests of a disk.
enum Server {
    /// The shard itself.
    Uring(Rc<UringDevice>),
    /// A thread, if the kernel refuses io_uring.
    Thread(Arc<DeviceQueue>, Option<JoinHandle<()>>),
}

pub(crate) struct RealWriteTicket(EnvResult<oneshot::Receiver<EnvResult<()>>>);

/// Opens the disk, on a separate thread: creating a file may take long.
pub(super) async fn open(path: &str, options: OpenDisk) -> EnvResult<Disk> {
    let opened = open_aside(path, options, Cache::PastIt).await?;
    let (info, file) = (DiskInfo { bytes: opened.bytes }, opened.file.clone());
    Ok(disk(serve(path, opened)?, file, info, options))
}

/// As [`open`], for a disk that loses unflushed writes, by `seed`, when this process is killed.
pub(super) async fn open_forgetful(path: &str, options: OpenDisk, seed: u64) -> EnvResult<Disk> {
    open_served(path, options, move |queue, opened| forgetful::serve(queue, opened, seed)).await
}

/// A disk that a thread serves through the page cache, which accepts pieces that are not whole sectors of the device.
pub(super) async fn open_served(
    path: &str,
    options: OpenDisk,
    serve: impl FnOnce(&DeviceQueue, &OpenedDisk) + Send + 'static,
) -> EnvResult<Disk> {
    let opened = open_aside(path, options, Cache::Through).await?;
    let (info, file) = (DiskInfo { bytes: opened.bytes }, opened.file.clone());
    let server = serve_by_thread(path, move |queue| serve(queue, &opened))?;
    Ok(disk(server, file, info, options))
}

async fn open_aside(path: &str, options: OpenDisk, cache: Cache) -> EnvResult<OpenedDisk> {
    let (opened, answer) = oneshot::channel();
    let name = path.to_string();
    let open = move || drop(opened.send(open::open(&name, options, cache)));
    let thread = std::thread::Builder::new().name(thread_name(path)).spawn(open);
    drop(thread.map_err(|e| file_error(&format!("cannot start a thread to open the disk {path}"), &e))?);
    answer.await.unwrap_or_else(|_| Err(ended(path)))
}

fn disk(server: Server, file: Arc<File>, info: DiskInfo, options: OpenDisk) -> Disk {
    let half = DiskHalf::Real(Rc::new(RealDisk { server, file, info, read_only: options.read_only }));
    Disk::new(half, options.part)
}

fn serve(path: &str, disk: OpenedDisk) -> EnvResult<Server> {
    let disk = match uring_forbidden() {
        true => disk,
        false => match UringDevice::start(Device::new(path), disk) {
            Ok(device) => return Ok(Server::Uring(device)),
            Err(disk) => disk,
        },
    };
    serve_by_thread(path, move |queue| plain::serve(queue, &disk))
}

fn serve_by_thread(path: &str, serve: impl FnOnce(&DeviceQueue) + Send + 'static) -> EnvResult<Server> {
    let doing = || format!("cannot start a thread for the disk {path}");
    let queue = Arc::new(DeviceQueue::new(path).map_err(|e| file_error(&doing(), &e))?);
    let thread_queue = queue.clone();
    let thread = std::thread::Builder::new().name(thread_name(path)).spawn(move || {
        let _abandon = AbandonQueue(&thread_queue);
        serve(&thread_queue);
    });
    Ok(Server::Thread(queue, Some(thread.map_err(|e| file_error(&doing(), &e))?)))
}

/// However the thread ends, no request goes on waiting for it.
struct AbandonQueue<'a>(&'a DeviceQueue);

impl Drop for AbandonQueue<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Linux keeps at most 15 bytes of it.
fn thread_name(path: &str) -> String {
    let name: String = path.rsplit('/').next().unwrap_or(path).chars().filter(|c| *c != '\0').collect();
    format!("disk-{name}")
}

fn ended(path: &str) -> EnvError {
    EnvError::new(EnvErrorKind::Other, format!("the thread of the disk {path} ended; see its panic in the log"))
}

impl Server {
    fn device(&self) -> &Device {
        match self {
            Self::Uring(device) => &device.device,
            Self::Thread(queue, _) => &queue.device,
        }
    }

    fn submit(&self, request: Request) -> EnvResult<()> {
        match self {
            Self::Uring(device) => device.submit(request),
            Self::Thread(queue, _) => queue.submit(request),
        }
    }
}

impl RealDisk {
    fn path(&self) -> &str {
        &self.server.device().path
    }

    pub(crate) fn info(&self) -> DiskInfo {
        self.info
    }

    /// The path, if the file has no name any more. (A device keeps the name of the file that it was opened by.)
    pub(crate) fn deleted(&self) -> Option<String> {
        let meta = self.file.metadata().ok()?;
        (meta.is_file() && meta.nlink() == 0).then(|| self.path().to_owned())
    }

    pub(crate) async fn read(&self, offset: u64, len: usize) -> EnvResult<AlignedBuf> {
        check_range(self.path(), self.info.bytes, offset, len)?;
        let (reply, answer) = oneshot::channel();
        self.server.submit(Request::Read { offset, len, reply })?;
        answer.await.unwrap_or_else(|_| Err(ended(self.path())))
    }

    pub(crate) fn submit_write(&self, offset: u64, parts: Vec<Bytes>) -> RealWriteTicket {
        RealWriteTicket(self.submit(offset, parts, false))
    }

    pub(crate) async fn flush(&self) -> EnvResult<()> {
        self.server.device().check_flushed()?;
        let (reply, answer) = oneshot::channel();
        self.server.submit(Request::Flush { reply })?;
        answer.await.unwrap_or_else(|_| Err(ended(self.path())))
    }

    pub(crate) async fn write_durable(&self, offset: u64, parts: Vec<Bytes>) -> EnvResult<()> {
        self.server.device().check_flushed()?;
        RealWriteTicket(self.submit(offset, parts, true)).wait().await
    }

    fn submit(&self, offset: u64, parts: Vec<Bytes>, durable: bool) -> EnvResult<oneshot::Receiver<EnvResult<()>>> {
        let path = self.path();
        check_range(path, self.info.bytes, offset, parts.iter().map(Bytes::len).sum())?;
        if self.read_only {
            return Err(EnvError::new(EnvErrorKind::InvalidInput, format!("{path} was opened read-only")));
        }
        let (reply, answer) = oneshot::channel();
        self.server.submit(Request::Write { offset, parts, durable, reply })?;
        Ok(answer)
    }
}

impl Drop for RealDisk {
    /// Waits for requests in flight, so that the next opener of the disk does not meet writes of this one.
    fn drop(&mut self) {
        match &mut self.server {
            Server::Uring(device) => device.close(),
            Server::Thread(queue, thread) => {
                queue.close();
                if let Some(thread) = thread.take() {
                    drop(thread.join());
                }
            }
        }
    }
}

impl RealWriteTicket {
    pub(crate) async fn wait(self) -> EnvResult<()> {
        self.0?.await.unwrap_or_else(|_| Err(ended("that was written")))
    }
}
