//! Disks: files and block devices written in sectors, with explicit flushes.
//!
//! A write is durable only after a [`Disk::flush`] that began after the write completed. Until then a crash may keep
//! it, lose it, or tear it at any sector. Writes in flight together may reach the medium in any order.
//!
//! A disk may be a [`DiskPart`] of a device, while other parts of the device are open elsewhere. A part is locked as
//! long as the disk is open, and behaves like a device of its own.

use std::{cell::RefCell, rc::Rc};

use bytes::Bytes;
use forebay_proto::Histogram;

use crate::{AlignedBuf, EnvError, EnvErrorKind, EnvResult, SECTOR_BYTES};

/// An open disk. Clones share it; the last one closes it.
#[derive(Clone)]
pub struct Disk {
    half: DiskHalf,
    /// The part of the device that it is; none: all of it.
    part: Option<DiskPart>,
    requests: Rc<RefCell<DiskRequests>>,
}

/// Requests to a disk since it was opened: one count per request, of its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskRequests {
    /// Reads.
    pub reads: Histogram,
    /// Writes, durable ones among them.
    pub writes: Histogram,
    /// Writes that are durable when they complete.
    pub durable_writes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl DiskRequests {
    /// Adds the requests to another disk.
    pub fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.durable_writes += other.durable_writes;
        self.flushes += other.flushes;
    }
}

#[derive(Clone)]
pub(crate) enum DiskHalf {
    Real(std::rc::Rc<crate::real::RealDisk>),
    Sim(std::rc::Rc<crate::sim::SimDisk>),
}

/// How to open a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenDisk {
    /// Create the file with this many bytes if it does not exist (never for block devices); space is allocated.
    pub create_bytes: Option<u64>,
    /// With `create_bytes`: also write the file full of zeros and flush it, so that no later write pays for
    /// allocating extents (journals).
    pub prewrite: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Open only these bytes, as if they were a device. Other parts may be open at the same time. A part that is
    /// already open for writing is refused (`InUse`), unless it is opened to read only.
    pub part: Option<DiskPart>,
}

/// A range of a device: whole sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPart {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Properties of an open disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskInfo {
    /// Size in bytes, a multiple of the sector.
    pub bytes: u64,
}

impl Disk {
    pub(crate) fn new(half: DiskHalf, part: Option<DiskPart>) -> Self {
        Self { half, part, requests: Rc::default() }
    }

    /// Requests so far, through all clones.
    pub fn requests(&self) -> DiskRequests {
        self.requests.borrow().clone()
    }

    /// Size and other properties.
    pub fn info(&self) -> DiskInfo {
        match (&self.part, &self.half) {
            (Some(part), _) => DiskInfo { bytes: part.bytes },
            (None, DiskHalf::Real(d)) => d.info(),
            (None, DiskHalf::Sim(d)) => d.info(),
        }
    }

    /// The file's path, if it was deleted since it was opened: the file still accepts writes and keeps them until it is
    /// closed. Never set for a block device, and never in the simulator, where no file is deleted while its server
    /// runs.
    pub fn deleted(&self) -> Option<String> {
        match &self.half {
            DiskHalf::Real(d) => d.deleted(),
            DiskHalf::Sim(_) => None,
        }
    }

    /// Reads `len` bytes at `offset`; both are multiples of the sector. Errors: `Medium`, `InvalidInput` beyond the
    /// end.
    pub async fn read(&self, offset: u64, len: usize) -> EnvResult<AlignedBuf> {
        self.requests.borrow_mut().reads.record(len as u64);
        let offset = self.device_offset(offset, len)?;
        match &self.half {
            DiskHalf::Real(d) => d.read(offset, len).await,
            DiskHalf::Sim(d) => d.read(offset, len).await,
        }
    }

    /// Writes `parts` one after another at `offset`. Offset and total length are multiples of the sector. Parts that
    /// are aligned in memory and length go to the device without a copy; others are first copied into aligned memory.
    ///
    /// The write is submitted before this function first yields, so writes are submitted in the order of the calls; the
    /// future may be dropped without undoing it. Errors: `Medium`, `NoSpace`, `InvalidInput`.
    pub fn write(&self, offset: u64, parts: Vec<Bytes>) -> impl Future<Output = EnvResult<()>> + 'static {
        let disk = self.clone();
        self.requests.borrow_mut().writes.record(bytes_of(&parts));
        let offset = self.device_offset(offset, parts.iter().map(Bytes::len).sum());
        let ticket = match (offset, &disk.half) {
            (Err(error), _) => WriteTicket::Refused(error),
            (Ok(offset), DiskHalf::Real(d)) => WriteTicket::Real(d.submit_write(offset, parts)),
            (Ok(offset), DiskHalf::Sim(d)) => WriteTicket::Sim(d.submit_write(offset, parts)),
        };
        async move {
            let _keeps_open = disk;
            match ticket {
                WriteTicket::Refused(error) => Err(error),
                WriteTicket::Real(t) => t.wait().await,
                WriteTicket::Sim(t) => t.wait().await,
            }
        }
    }

    /// Makes every write that completed before this call durable. Errors: `FlushFailed`, which persists: every later
    /// flush of this disk fails too.
    pub async fn flush(&self) -> EnvResult<()> {
        self.requests.borrow_mut().flushes += 1;
        match &self.half {
            DiskHalf::Real(d) => d.flush().await,
            DiskHalf::Sim(d) => d.flush().await,
        }
    }

    /// Writes, and makes this write durable (and perhaps others). It is one request where the device can do that
    /// (RWF_DSYNC), as for the journal's commit; else a write and a flush.
    pub async fn write_durable(&self, offset: u64, parts: Vec<Bytes>) -> EnvResult<()> {
        {
            let mut requests = self.requests.borrow_mut();
            requests.writes.record(bytes_of(&parts));
            requests.durable_writes += 1;
        }
        let offset = self.device_offset(offset, parts.iter().map(Bytes::len).sum())?;
        match &self.half {
            DiskHalf::Real(d) => d.write_durable(offset, parts).await,
            DiskHalf::Sim(d) => d.write_durable(offset, parts).await,
        }
    }

    /// Offset of these bytes on the device. A request outside of the part never reaches the device.
    fn device_offset(&self, offset: u64, len: usize) -> EnvResult<u64> {
        let Some(part) = self.part else { return Ok(offset) };
        check_range("its part of the device", part.bytes, offset, len)?;
        Ok(part.offset + offset)
    }
}

impl DiskPart {
    /// A part must be whole sectors within the device.
    pub(crate) fn check(self, path: &str, device_bytes: u64) -> EnvResult<()> {
        let sector = SECTOR_BYTES as u64;
        let end = self.offset.checked_add(self.bytes).filter(|end| *end <= device_bytes);
        if end.is_some() && self.bytes > 0 && self.offset.is_multiple_of(sector) && self.bytes.is_multiple_of(sector) {
            return Ok(());
        }
        let message = format!(
            "{} bytes at {} do not lie within the {device_bytes} bytes of {path}: cut short, or the wrong device?",
            self.bytes, self.offset
        );
        Err(EnvError::new(EnvErrorKind::InvalidInput, message))
    }

    /// The error if another process has the part open.
    pub(crate) fn in_use(self, path: &str) -> EnvError {
        let message =
            format!("{} bytes at {} of {path} are in use by another process; stop it first", self.bytes, self.offset);
        EnvError::new(EnvErrorKind::InUse, message)
    }
}

fn bytes_of(parts: &[Bytes]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

enum WriteTicket {
    Refused(EnvError),
    Real(crate::real::RealWriteTicket),
    Sim(crate::sim::SimWriteTicket),
}

/// A request's range must be whole sectors within the disk.
pub(crate) fn check_range(path: &str, disk_bytes: u64, offset: u64, len: usize) -> EnvResult<()> {
    let sector = SECTOR_BYTES as u64;
    let end = offset.checked_add(len as u64);
    if offset.is_multiple_of(sector) && len.is_multiple_of(SECTOR_BYTES) && end.is_some_and(|end| end <= disk_bytes) {
        return Ok(());
    }
    let message = format!(
        "{len} bytes at {offset} of {path} are not whole sectors of {sector} bytes within its {disk_bytes} bytes"
    );
    Err(EnvError::new(EnvErrorKind::InvalidInput, message))
}

/// The size of a new disk must be whole sectors.
pub(crate) fn check_size(path: &str, bytes: u64) -> EnvResult<()> {
    if bytes > 0 && bytes.is_multiple_of(SECTOR_BYTES as u64) {
        return Ok(());
    }
    let message = format!("{path} cannot be {bytes} bytes long; use a multiple of {SECTOR_BYTES}");
    Err(EnvError::new(EnvErrorKind::InvalidInput, message))
}
