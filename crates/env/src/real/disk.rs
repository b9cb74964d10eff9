//! An open real disk: checks requests, hands them to the device's thread, waits for answers.

use std::{rc::Rc, sync::Arc, thread::JoinHandle};

use bytes::Bytes;

use super::{
    device_queue::Device,
    errors::file_error,
    open::{self, OpenedDisk},
    plain,
    transfer::Request,
    uring, uring_forbidden,
};
use crate::{
    AlignedBuf, Disk, DiskInfo, EnvError, EnvErrorKind, EnvResult, OpenDisk,
    disk::{DiskHalf, check_range},
    sync::oneshot,
};

pub(crate) struct RealDisk {
    device: Arc<Device>,
    info: DiskInfo,
    read_only: bool,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct RealWriteTicket(EnvResult<oneshot::Receiver<EnvResult<()>>>);

/// Starts the device's thread, which opens the disk.
pub(super) async fn open(path: &str, options: OpenDisk) -> EnvResult<Disk> {
    let doing = || format!("cannot start a thread for the disk {path}");
    let device = Arc::new(Device::new(path).map_err(|e| file_error(&doing(), &e))?);
    let (opened, answer) = oneshot::channel();
    let thread_device = device.clone();
    let thread = std::thread::Builder::new().name(thread_name(path));
    let thread = thread.spawn(move || run_device(&thread_device, options, opened));
    let thread = thread.map_err(|e| file_error(&doing(), &e))?;
    // Made before the wait: if the caller stops waiting, dropping it ends the thread.
    let mut disk = RealDisk { device, info: DiskInfo { bytes: 0 }, read_only: options.read_only, thread: Some(thread) };
    disk.info.bytes = answer.await.unwrap_or_else(|_| Err(ended(path)))?;
    Ok(Disk { half: DiskHalf::Real(Rc::new(disk)) })
}

fn run_device(device: &Device, options: OpenDisk, opened: oneshot::Sender<EnvResult<u64>>) {
    let _abandon = AbandonQueue(device);
    match open::open(&device.path, options) {
        Err(e) => drop(opened.send(Err(e))),
        Ok(disk) => {
            drop(opened.send(Ok(disk.bytes)));
            serve(device, &disk);
        }
    }
}

/// However the thread ends, nobody waits for it any more.
struct AbandonQueue<'a>(&'a Device);

impl Drop for AbandonQueue<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn serve(device: &Device, disk: &OpenedDisk) {
    let ring = if uring_forbidden() { None } else { uring::ring().ok() };
    match ring {
        Some(ring) => uring::serve(device, disk, ring),
        None => plain::serve(device, disk),
    }
}

/// At most 15 bytes, which is what Linux keeps.
fn thread_name(path: &str) -> String {
    let name: String = path.rsplit('/').next().unwrap_or(path).chars().filter(|c| *c != '\0').collect();
    format!("disk-{name}")
}

fn ended(path: &str) -> EnvError {
    EnvError::new(EnvErrorKind::Other, format!("the thread of the disk {path} ended; see its panic in the log"))
}

impl RealDisk {
    pub(crate) fn info(&self) -> DiskInfo {
        self.info
    }

    pub(crate) async fn read(&self, offset: u64, len: usize) -> EnvResult<AlignedBuf> {
        check_range(&self.device.path, self.info.bytes, offset, len)?;
        let (reply, answer) = oneshot::channel();
        self.device.submit(Request::Read { offset, len, reply })?;
        answer.await.unwrap_or_else(|_| Err(ended(&self.device.path)))
    }

    pub(crate) fn submit_write(&self, offset: u64, parts: Vec<Bytes>) -> RealWriteTicket {
        RealWriteTicket(self.submit(offset, parts, false))
    }

    pub(crate) async fn flush(&self) -> EnvResult<()> {
        self.device.check_flushed()?;
        let (reply, answer) = oneshot::channel();
        self.device.submit(Request::Flush { reply })?;
        answer.await.unwrap_or_else(|_| Err(ended(&self.device.path)))
    }

    pub(crate) async fn write_durable(&self, offset: u64, parts: Vec<Bytes>) -> EnvResult<()> {
        self.device.check_flushed()?;
        RealWriteTicket(self.submit(offset, parts, true)).wait().await
    }

    fn submit(&self, offset: u64, parts: Vec<Bytes>, durable: bool) -> EnvResult<oneshot::Receiver<EnvResult<()>>> {
        let path = &self.device.path;
        check_range(path, self.info.bytes, offset, parts.iter().map(Bytes::len).sum())?;
        if self.read_only {
            return Err(EnvError::new(EnvErrorKind::InvalidInput, format!("{path} was opened read-only")));
        }
        let (reply, answer) = oneshot::channel();
        self.device.submit(Request::Write { offset, parts, durable, reply })?;
        Ok(answer)
    }
}

impl Drop for RealDisk {
    /// Waits for what is in flight, so that whoever opens the disk next does not meet writes of this one.
    fn drop(&mut self) {
        self.device.close();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl RealWriteTicket {
    pub(crate) async fn wait(self) -> EnvResult<()> {
        self.0?.await.unwrap_or_else(|_| Err(ended("that was written")))
    }
}
