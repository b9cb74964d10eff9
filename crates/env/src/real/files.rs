//! Small files and locks.
//!
//! Invariant: after [`write`] returns, a crash leaves the new content. Before, a crash leaves the old or the new
//! content, never a mixture.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{Read, Seek, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::Path,
};

use super::errors::file_error;
use crate::{EnvError, EnvErrorKind, EnvResult, FileLock, limits::SMALL_FILE_BYTES};

pub(super) fn read(path: &str) -> EnvResult<Vec<u8>> {
    let doing = || format!("cannot read {path}");
    let file = File::open(path).map_err(|e| file_error(&doing(), &e))?;
    let mut bytes = Vec::new();
    file.take(SMALL_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|e| file_error(&doing(), &e))?;
    if bytes.len() as u64 > SMALL_FILE_BYTES {
        let message = format!("{path} is larger than {SMALL_FILE_BYTES} bytes; is it the right file?");
        return Err(EnvError::new(EnvErrorKind::InvalidInput, message));
    }
    Ok(bytes)
}

pub(super) fn write(path: &str, bytes: &[u8]) -> EnvResult<()> {
    let aside = format!("{path}.new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&aside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| std::fs::rename(&aside, path));
    renamed.and_then(|()| sync_parent(path)).map_err(|e| file_error(&format!("cannot write {path}"), &e))
}

pub(super) fn remove(path: &str) -> EnvResult<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        answer => answer.and_then(|()| sync_parent(path)).map_err(|e| file_error(&format!("cannot remove {path}"), &e)),
    }
}

/// Creates a directory that only its owner can access.
pub(super) fn create_dir(path: &str) -> EnvResult<()> {
    let parent = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty());
    let parents = parent.map_or(Ok(()), std::fs::create_dir_all);
    let made = parents.and_then(|()| match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        answer => answer,
    });
    let made = made.and_then(|()| sync_parent(path));
    made.map_err(|e| file_error(&format!("cannot make the directory {path}"), &e))
}

/// Removes a directory and its content; for scratch directories only.
pub(crate) fn remove_tree(path: &str) {
    drop(std::fs::remove_dir_all(path));
}

/// Makes the entries of the directory that holds `path` durable.
pub(super) fn sync_parent(path: &str) -> std::io::Result<()> {
    let parent = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The lock belongs to the open file: it ends with the guard, or with the process however that ends.
pub(super) fn lock(path: &str) -> EnvResult<FileLock> {
    let doing = || format!("cannot lock {path}");
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let mut file = open.map_err(|e| file_error(&doing(), &e))?;
    // SAFETY: `file` owns an open descriptor.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EWOULDBLOCK) {
            return Err(EnvError::new(EnvErrorKind::InUse, held(path, &mut file)));
        }
        return Err(file_error(&doing(), &error));
    }
    let noted = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    noted.map_err(|e| file_error(&doing(), &e))?;
    Ok(FileLock { _keep: Box::new(file) })
}

fn held(path: &str, file: &mut File) -> String {
    let mut pid = String::new();
    match file.take(32).read_to_string(&mut pid) {
        Ok(_) if !pid.trim().is_empty() => format!("{path} is locked by process {}; stop it first", pid.trim()),
        _ => format!("{path} is locked by another process; stop it first"),
    }
}
