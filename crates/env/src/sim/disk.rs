//! An open simulated disk: checks requests and waits for the device.

use std::{cell::Cell, rc::Rc};

use bytes::Bytes;

use super::{NodeId, device::Device, image::StoredWrite, world::World};
use crate::{
    AlignedBuf, Disk, DiskInfo, EnvError, EnvErrorKind, EnvResult, OpenDisk, SECTOR_BYTES,
    disk::{DiskHalf, check_range, check_size},
    files::FileLock,
    sync::oneshot,
};

pub(crate) struct SimDisk {
    world: Rc<World>,
    node: NodeId,
    life: u64,
    device: Rc<Device>,
    read_only: bool,
    /// A flush failed: all later ones do.
    flush_failed: Rc<Cell<bool>>,
    /// Lock of the part, if it is open for writing.
    _lock: Option<FileLock>,
}

pub(crate) struct SimWriteTicket(EnvResult<oneshot::Receiver<EnvResult<()>>>);

impl World {
    pub(crate) fn open_disk(
        self: &Rc<Self>,
        node: NodeId,
        life: u64,
        path: &str,
        options: OpenDisk,
    ) -> EnvResult<Disk> {
        let existing = self.node(node, |n| n.devices.get(path).cloned());
        let device = match (existing, options.create_bytes) {
            (Some(device), _) => device,
            (None, Some(bytes)) => {
                check_size(path, bytes)?;
                self.set_disk(node, path, super::DiskImage::zeroed(bytes))
            }
            (None, None) => {
                let message = format!("{path} does not exist; was the target formatted?");
                return Err(EnvError::new(EnvErrorKind::NotFound, message));
            }
        };
        let read_only = options.read_only;
        let lock = match options.part {
            None => None,
            Some(part) => {
                part.check(path, device.bytes())?;
                let lock = || self.lock(node, life, &format!("{path} from {}", part.offset));
                if read_only { None } else { Some(lock().ok_or_else(|| part.in_use(path))?) }
            }
        };
        let disk =
            SimDisk { world: self.clone(), node, life, device, read_only, flush_failed: Rc::default(), _lock: lock };
        Ok(Disk::new(DiskHalf::Sim(Rc::new(disk)), options.part))
    }

    /// Creates a disk, or replaces the contents of one.
    pub(crate) fn set_disk(&self, node: NodeId, path: &str, image: super::DiskImage) -> Rc<Device> {
        if let Some(device) = self.node(node, |n| n.devices.get(path).cloned()) {
            device.set_image(self, image);
            return device;
        }
        let model = self.node(node, |n| n.models.get(path).copied().unwrap_or_default());
        let device = Device::new(self, node, path, image, model);
        if let Some(placement) = self.node(node, |n| n.placements.get(path).cloned()) {
            device.place(placement);
        }
        self.node(node, |n| n.devices.insert(path.to_string(), device.clone()));
        device
    }
}

impl SimDisk {
    pub(crate) fn info(&self) -> DiskInfo {
        DiskInfo { bytes: self.device.bytes() / SECTOR_BYTES as u64 * SECTOR_BYTES as u64 }
    }

    pub(crate) async fn read(&self, offset: u64, len: usize) -> EnvResult<AlignedBuf> {
        self.check(offset, len)?;
        let (done, answer) = oneshot::channel();
        self.device.read(&self.world, offset, len, |result| drop(done.send(result)));
        answer.await.unwrap_or_else(|_| Err(self.down()))
    }

    pub(crate) fn submit_write(&self, offset: u64, parts: Vec<Bytes>) -> SimWriteTicket {
        SimWriteTicket(self.submit(offset, parts, false))
    }

    pub(crate) async fn flush(&self) -> EnvResult<()> {
        self.check(0, 0)?;
        if self.flush_failed.get() {
            return Err(self.device.flush_error());
        }
        let (done, answer) = oneshot::channel();
        let flush_failed = self.flush_failed.clone();
        self.device.flush(&self.world, move |result| {
            flush_failed.set(flush_failed.get() || result.is_err());
            drop(done.send(result));
        });
        let result = answer.await.unwrap_or_else(|_| Err(self.down()));
        if self.flush_failed.get() { Err(self.device.flush_error()) } else { result }
    }

    pub(crate) async fn write_durable(&self, offset: u64, parts: Vec<Bytes>) -> EnvResult<()> {
        if self.flush_failed.get() {
            return Err(self.device.flush_error());
        }
        SimWriteTicket(self.submit(offset, parts, true)).wait().await
    }

    fn submit(&self, offset: u64, parts: Vec<Bytes>, durable: bool) -> EnvResult<oneshot::Receiver<EnvResult<()>>> {
        self.check(offset, parts.iter().map(Bytes::len).sum())?;
        if self.read_only {
            let message = format!("{} was opened read-only", self.device.path);
            return Err(EnvError::new(EnvErrorKind::InvalidInput, message));
        }
        let (done, answer) = oneshot::channel();
        let flush_failed = self.flush_failed.clone();
        self.device.write(&self.world, StoredWrite::new(offset, parts), durable, move |result| {
            let failed = result.as_ref().is_err_and(|error| error.kind == EnvErrorKind::FlushFailed);
            flush_failed.set(flush_failed.get() || failed);
            drop(done.send(result));
        });
        Ok(answer)
    }

    fn check(&self, offset: u64, len: usize) -> EnvResult<()> {
        if !self.world.is_alive(self.node, self.life) {
            return Err(self.down());
        }
        check_range(&self.device.path, self.device.bytes(), offset, len)
    }

    fn down(&self) -> EnvError {
        EnvError::new(EnvErrorKind::Other, format!("the machine of {} is down", self.device.path))
    }
}

impl SimWriteTicket {
    pub(crate) async fn wait(self) -> EnvResult<()> {
        let down = || EnvError::new(EnvErrorKind::Other, "the machine went down during a write");
        self.0?.await.unwrap_or_else(|_| Err(down()))
    }
}
