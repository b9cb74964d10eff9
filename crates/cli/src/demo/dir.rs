//! A directory by its descriptor: names in it are used without a path walk, as `cp` and `tar` do.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use forebay_command::posix;

/// An open directory, for operations on names in it.
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens the directory `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        opened(libc::AT_FDCWD, path.as_os_str(), libc::O_PATH | libc::O_DIRECTORY, 0).map(Self)
    }

    /// Makes the file `name` and opens it for writing. It must be new.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.opened(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, mode)
    }

    /// Opens the file `name` for reading; ELOOP if it is a symbolic link.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        self.opened(name, libc::O_RDONLY | libc::O_NOFOLLOW, 0)
    }

    /// Makes the directory `name`.
    pub fn make_dir(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: the descriptor is open, `name` ends in NUL and lives across the call.
        posix::check(unsafe { libc::mkdirat(self.fd(), name.as_ptr(), 0o777) })
    }

    /// Makes the symbolic link `name` to `target`.
    pub fn make_link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        let (name, target) = (c_string(name)?, c_string(target.as_os_str())?);
        // SAFETY: as above, for both strings.
        posix::check(unsafe { libc::symlinkat(target.as_ptr(), self.fd(), name.as_ptr()) })
    }

    /// Sets the permission bits of `name`, which must not be a symbolic link.
    pub fn set_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: as above.
        posix::check(unsafe { libc::fchmodat(self.fd(), name.as_ptr(), mode, 0) })
    }

    /// Sets both times of `name` itself, in nanoseconds since 1970.
    pub fn set_times(&self, name: &OsStr, ns: i128) -> io::Result<()> {
        let (name, times) = (c_string(name)?, [posix::timespec(ns), posix::timespec(ns)]);
        // SAFETY: as above; `times` holds the two entries the call reads.
        posix::check(unsafe { libc::utimensat(self.fd(), name.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) })
    }

    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn opened(&self, name: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
        opened(self.fd(), name, flags, mode).map(File::from)
    }
}

fn opened(dir: RawFd, name: &OsStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let name = c_string(name)?;
    // SAFETY: `name` ends in NUL and lives across the call.
    let fd = unsafe { libc::openat(dir, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened the descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
