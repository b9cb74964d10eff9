//! Opening files and block devices as disks.
//!
//! Invariant: a disk file is visible under its name only when complete: allocated, written if requested, and flushed.
//! Invariant: a part of a device is open for writing only once: its range is locked by the open file.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    },
    sync::Arc,
};

use super::{errors::file_error, files::sync_parent};
use crate::{AlignedBuf, DiskPart, EnvError, EnvErrorKind, EnvResult, OpenDisk, SECTOR_BYTES, disk::check_size};

/// Zeros are written in pieces of this many bytes.
const PREWRITE_BYTES: usize = 1 << 20;

/// `BLKGETSIZE64` of linux/fs.h: `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

pub(super) struct OpenedDisk {
    pub(super) file: Arc<File>,
    pub(super) bytes: u64,
    /// Bypasses the page cache: memory must be aligned.
    pub(super) direct: bool,
}

/// How an open disk uses the page cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cache {
    /// Not at all, if the file system supports that.
    PastIt,
    Through,
}

/// Opens the disk; creates it if requested and missing. Blocks.
pub(super) fn open(path: &str, options: OpenDisk, cache: Cache) -> EnvResult<OpenedDisk> {
    match (open_existing(path, options, cache), options.create_bytes) {
        (Err(e), Some(bytes)) if e.kind() == io::ErrorKind::NotFound => {
            check_size(path, bytes)?;
            let made = make(path, bytes, options.prewrite);
            made.map_err(|e| file_error(&format!("cannot make the disk file {path} of {bytes} bytes"), &e))?;
            open_existing(path, options, cache)
        }
        (answer, _) => answer,
    }
    .map_err(|e| file_error(&format!("cannot open the disk {path}"), &e))
    .and_then(|opened| check_not_empty(path, opened))
    .and_then(|opened| take_part(path, opened, options))
}

/// The requested part, locked unless it is read only.
fn take_part(path: &str, opened: OpenedDisk, options: OpenDisk) -> EnvResult<OpenedDisk> {
    let Some(part) = options.part else { return Ok(opened) };
    part.check(path, opened.bytes)?;
    if options.read_only {
        return Ok(opened);
    }
    match lock_range(&opened.file, part) {
        Ok(()) => Ok(opened),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Err(part.in_use(path)),
        Err(e) => Err(file_error(&format!("cannot lock {} bytes at {} of {path}", part.bytes, part.offset), &e)),
    }
}

/// The lock belongs to the open file: it ends with that, or with the process however it ends.
fn lock_range(file: &File, part: DiskPart) -> io::Result<()> {
    let offset = |bytes: u64| libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    // SAFETY: zeros are a valid flock.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    (range.l_type, range.l_whence) = (libc::F_WRLCK as _, libc::SEEK_SET as _);
    (range.l_start, range.l_len) = (offset(part.offset)?, offset(part.bytes)?);
    // SAFETY: `file` owns an open descriptor, and the call reads `range`.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn check_not_empty(path: &str, opened: OpenedDisk) -> EnvResult<OpenedDisk> {
    if opened.bytes > 0 {
        return Ok(opened);
    }
    let message = format!(
        "{path} is shorter than a sector of {SECTOR_BYTES} bytes: cut short, or the wrong device? bring back the right one"
    );
    Err(EnvError::new(EnvErrorKind::InvalidInput, message))
}

fn open_existing(path: &str, options: OpenDisk, cache: Cache) -> io::Result<OpenedDisk> {
    let read_only = options.read_only;
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    // On a block device O_EXCL refuses one that is mounted or opened with O_EXCL elsewhere. If it has parts, each part
    // is locked instead.
    let exclusive = if kind.is_block_device() && !read_only && options.part.is_none() { libc::O_EXCL } else { 0 };
    let mut flags = OpenOptions::new();
    flags.read(true).write(!read_only);
    let (file, direct) = match cache {
        Cache::PastIt => open_direct(&mut flags, path, exclusive)?,
        Cache::Through => (flags.custom_flags(exclusive).open(path)?, false),
    };
    let bytes = if kind.is_block_device() { device_bytes(&file)? } else { file.metadata()?.len() };
    Ok(OpenedDisk { file: Arc::new(file), bytes: bytes / SECTOR_BYTES as u64 * SECTOR_BYTES as u64, direct })
}

/// Opens without the page cache if the file system supports that.
fn open_direct(options: &mut OpenOptions, path: &str, flags: i32) -> io::Result<(File, bool)> {
    match options.custom_flags(flags | libc::O_DIRECT).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok((options.custom_flags(flags).open(path)?, false)),
        answer => Ok((answer?, true)),
    }
}

fn device_bytes(file: &File) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: BLKGETSIZE64 writes 64 bits to its argument.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64 as _, &raw mut bytes) };
    if answer == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// Creates the file under another name, and renames it when it is complete.
fn make(path: &str, bytes: u64, prewrite: bool) -> io::Result<()> {
    let aside = format!("{path}.new");
    let mut options = OpenOptions::new();
    // Accessible to its owner only: a file system's permissions are useless if everybody may read its disks.
    options.write(true).create(true).truncate(true).mode(0o600);
    let (file, _) = open_direct(&mut options, &aside, 0)?;
    let made = allocate(&file, bytes).and_then(|()| if prewrite { write_zeros(&file, bytes) } else { Ok(()) });
    if let Err(e) = made.and_then(|()| file.sync_all()) {
        drop(std::fs::remove_file(&aside));
        return Err(e);
    }
    std::fs::rename(&aside, path)?;
    sync_parent(path)
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let len = libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: `file` owns an open descriptor.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // File systems that cannot preallocate (NFS, some overlays) still accept the length.
    if error.raw_os_error() == Some(libc::EOPNOTSUPP) { file.set_len(bytes) } else { Err(error) }
}

fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = AlignedBuf::zeroed(PREWRITE_BYTES);
    let mut offset = 0;
    while offset < bytes {
        let n = (bytes - offset).min(PREWRITE_BYTES as u64) as usize;
        file.write_all_at(&zeros[..n], offset)?;
        offset += n as u64;
    }
    Ok(())
}
