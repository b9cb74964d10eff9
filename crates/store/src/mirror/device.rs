//! What a part of a store lies on: one disk, or two with equal contents.
//!
//! The store writes as to one disk. It checks what it reads by sums. If a sum does not match and there are two copies,
//! the other one is read: [`Device::read_checked`].

use std::{ops::Range, rc::Rc};

use bytes::Bytes;
use forebay_env::{AlignedBuf, Disk, DiskRequests, EnvResult};

use super::mirror::Mirror;

/// See the module. Clones share it.
#[derive(Clone)]
pub(crate) enum Device {
    /// One disk.
    Plain(Disk),
    /// Two disks.
    Mirrored(Rc<Mirror>),
}

impl From<Disk> for Device {
    fn from(disk: Disk) -> Self {
        Self::Plain(disk)
    }
}

impl From<&Disk> for Device {
    fn from(disk: &Disk) -> Self {
        Self::Plain(disk.clone())
    }
}

impl From<&Device> for Device {
    fn from(device: &Device) -> Self {
        device.clone()
    }
}

impl Device {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Plain(disk) => disk.info().bytes,
            Self::Mirrored(mirror) => mirror.bytes(),
        }
    }

    /// As [`Disk::read`]. What one copy cannot read comes from the other, and unreadable sectors are repaired.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> EnvResult<AlignedBuf> {
        match self {
            Self::Plain(disk) => disk.read(offset, len).await,
            Self::Mirrored(mirror) => mirror.read_checked(offset, len, None).await,
        }
    }

    /// Bytes that are `good`, from whichever copy has them; the other copy is repaired. If no copy has them, returns
    /// those of one copy anyway: the caller finds out what is wrong with them.
    pub(crate) async fn read_checked(
        &self,
        offset: u64,
        len: usize,
        good: impl Fn(&[u8]) -> bool,
    ) -> EnvResult<AlignedBuf> {
        match self {
            Self::Plain(disk) => disk.read(offset, len).await,
            Self::Mirrored(mirror) => mirror.read_checked(offset, len, Some(&good)).await,
        }
    }

    /// As [`Disk::write`]; completes when the write has completed on every copy in sync.
    pub(crate) fn write(&self, offset: u64, parts: Vec<Bytes>) -> impl Future<Output = EnvResult<()>> + 'static {
        let (plain, mirrored) = match self {
            Self::Plain(disk) => (Some(disk.write(offset, parts)), None),
            Self::Mirrored(mirror) => (None, Some(mirror.write(offset, parts, false))),
        };
        async move {
            match (plain, mirrored) {
                (Some(write), _) => write.await,
                (None, Some(write)) => write.await,
                (None, None) => unreachable!("a device is plain or mirrored"),
            }
        }
    }

    /// As [`Disk::flush`]: durable on every copy in sync.
    pub(crate) async fn flush(&self) -> EnvResult<()> {
        match self {
            Self::Plain(disk) => disk.flush().await,
            Self::Mirrored(mirror) => mirror.flush().await,
        }
    }

    /// As [`Disk::write_durable`]: durable on every copy in sync.
    pub(crate) async fn write_durable(&self, offset: u64, parts: Vec<Bytes>) -> EnvResult<()> {
        match self {
            Self::Plain(disk) => disk.write_durable(offset, parts).await,
            Self::Mirrored(mirror) => mirror.write(offset, parts, true).await,
        }
    }

    /// The copies that hold everything, for [`Device::read_copy`].
    pub(crate) fn copies(&self) -> Vec<usize> {
        match self {
            Self::Plain(_) => vec![0],
            Self::Mirrored(mirror) => mirror.members(),
        }
    }

    /// Bytes of one copy, unchecked. Errors: `Medium` if it no longer holds everything.
    pub(crate) async fn read_copy(&self, copy: usize, offset: u64, len: usize) -> EnvResult<AlignedBuf> {
        match self {
            Self::Plain(disk) => disk.read(offset, len).await,
            Self::Mirrored(mirror) => mirror.read_copy(copy, offset, len).await,
        }
    }

    /// Makes every other copy equal to `from` within `range`.
    pub(crate) async fn mend(&self, range: Range<u64>, from: usize) -> EnvResult<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Mirrored(mirror) => mirror.mend(range, from).await,
        }
    }

    /// The path of its file, if that was deleted while it was open. A pair watches its own disks.
    pub(crate) fn deleted(&self) -> Option<String> {
        match self {
            Self::Plain(disk) => disk.deleted(),
            Self::Mirrored(_) => None,
        }
    }

    /// Requests to each disk that is in use.
    pub(crate) fn requests(&self) -> Vec<(usize, DiskRequests)> {
        match self {
            Self::Plain(disk) => vec![(0, disk.requests())],
            Self::Mirrored(mirror) => mirror.requests(),
        }
    }

    /// True if a copy takes every write, but does not hold everything yet.
    pub(crate) fn is_being_filled(&self) -> bool {
        self.mirror().is_some_and(|mirror| mirror.is_being_filled())
    }

    /// Ends background work, and waits for its end.
    pub(crate) async fn close(&self) {
        if let Self::Mirrored(mirror) = self {
            mirror.close().await;
        }
    }

    /// As [`Device::close`], without waiting.
    pub(crate) fn stop(&self) {
        if let Self::Mirrored(mirror) = self {
            mirror.stop();
        }
    }

    /// The pair, if it is one.
    pub(crate) fn mirror(&self) -> Option<&Rc<Mirror>> {
        match self {
            Self::Plain(_) => None,
            Self::Mirrored(mirror) => Some(mirror),
        }
    }
}
