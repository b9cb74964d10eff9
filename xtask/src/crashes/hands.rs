//! System calls of a worker.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{model::DIRS, stamp};

/// Why a worker ends.
#[derive(Debug)]
pub enum Trouble {
    /// A call returned an error that reports a loss: unsynced changes that were acknowledged may be lost.
    Told(String),
    /// A broken promise.
    Broken(String),
}

/// Errors that a call may return after its mount was evicted. P2 says EIO; a handle that the MDT has ended gives
/// ESTALE.
const LOST: [i32; 2] = [libc::EIO, libc::ESTALE];

/// Requires success. Only an error that reports a loss may be excused, and only after a mount was away.
pub fn expect<T>(result: io::Result<T>, doing: &str, path: &Path) -> Result<T, Trouble> {
    result.map_err(|error| {
        let words = format!("{doing} {}: {error}", path.display());
        if error.raw_os_error().is_some_and(|code| LOST.contains(&code)) {
            Trouble::Told(words)
        } else {
            Trouble::Broken(words)
        }
    })
}

/// Milliseconds of CLOCK_MONOTONIC, which all processes of a machine share.
pub fn now_ms() -> u64 {
    now_us() / 1000
}

/// Microseconds of the same clock.
pub fn now_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// The path of a directory.
pub fn dir(base: &Path, number: u32) -> PathBuf {
    base.join(format!("d{number}"))
}

/// The path of a name.
pub fn path(base: &Path, name: u32) -> PathBuf {
    dir(base, name % DIRS).join(format!("n{name}"))
}

/// Creates a file, and returns its inode number too.
pub fn create(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let ino = file.metadata()?.ino();
    Ok((file, ino))
}

/// Inode and size.
pub fn stat(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.ino(), meta.len()))
}

/// Writes the record of a write, at the end of the file if it is appended to. After a short write it continues, as
/// programs do: the next call reports what failed.
pub fn write(file: &File, number: u32, seq: u32, range: Range<u64>, append: bool) -> io::Result<()> {
    const PAGE: usize = 4096;
    let len = (range.end - range.start) as usize;
    // Page-aligned, so that the kernel makes one request of it.
    let mut memory = vec![0; len + PAGE];
    let from = memory.as_ptr().align_offset(PAGE);
    let bytes = &mut memory[from..from + len];
    stamp::fill(bytes, number, seq, range.start);
    if append { (&mut &*file).write_all(bytes) } else { file.write_all_at(bytes, range.start) }
}

/// Reads up to `len` bytes.
pub fn read(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let (mut bytes, mut done) = (vec![0; len as usize], 0);
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Files kept open.
#[derive(Default)]
pub struct Open {
    files: BTreeMap<u32, File>,
}

impl Open {
    /// Keeps a file open.
    pub fn put(&mut self, number: u32, file: File) {
        self.files.insert(number, file);
    }

    /// A handle. One with O_SYNC or O_APPEND is only for this call.
    pub fn get(&mut self, number: u32, path: &Path, append: bool, synced: bool) -> Result<File, Trouble> {
        let special = append || synced;
        if !special && let Some(file) = self.files.get(&number) {
            return expect(file.try_clone(), "dup", path);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).append(append).custom_flags(if synced { libc::O_SYNC } else { 0 });
        let file = expect(options.open(path), "open", path)?;
        if !special {
            self.put(number, expect(file.try_clone(), "dup", path)?);
        }
        Ok(file)
    }

    /// Closes the file, if `close` says so.
    pub fn perhaps_close(&mut self, number: u32, close: bool) {
        if close {
            self.files.remove(&number);
        }
    }
}
