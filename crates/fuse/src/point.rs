//! mount(2), umount(2).
//!
//! This process calls them itself where its user may, so that the mount's type names its file system (`fuse.forebay`).
//! Otherwise the system's helper (`helper`) does. Errors name the step that failed: the reason is never guessed from an
//! error number alone.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // mount(2) and umount(2) block: the caller has a thread

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::Path,
    sync::{Arc, Weak},
};

use forebay_client::{AccessTimes, ClientError, ClientResult};
use forebay_proto::Errno;
use fuser::Session;

use crate::{FuseOptions, helper, transport::Greeting};

const DEVICE: &str = "/dev/fuse";

/// The file system type in mount(2) and /proc/self/mountinfo.
const KIND: &str = "fuse.forebay";

/// Unmounts. Holds the mount's descriptor while the mount is held; the descriptor shows whether it is still mounted.
pub(crate) struct Unmounter(Weak<OwnedFd>);

impl Unmounter {
    /// Errors: EBUSY while programs use it.
    pub fn unmount(self, point: &str) -> io::Result<()> {
        match self.0.upgrade() {
            Some(descriptor) if !is_gone(&descriptor) => umount(point, 0),
            _ => Ok(()),
        }
    }
}

/// Keeps a mount alive: its session with the kernel.
pub(crate) struct Held {
    session: Session<Greeting>,
    descriptor: Arc<OwnedFd>,
}

impl Held {
    /// Unmounts what is still mounted at `point`, which is no longer served.
    pub fn end(self, point: &str) {
        if !is_gone(&self.descriptor) {
            // If this fails, another process unmounted it first.
            let _ = umount(point, libc::MNT_DETACH);
        }
        // Now programs that still use the mount get an error.
        drop((self.session, self.descriptor));
    }
}

/// Mounts at `point`, and completes the kernel's FUSE_INIT. Returns what keeps the mount, its descriptor, and how to
/// unmount it.
pub(crate) fn mount(
    greeting: Greeting,
    point: &str,
    options: &FuseOptions,
) -> ClientResult<(Held, OwnedFd, Unmounter)> {
    let descriptor = match mount_directly(point, options)? {
        Some(descriptor) => descriptor,
        None => helper::mount(point, options).map_err(|words| refused(point, Errno::EPERM, &words))?,
    };
    let config = options.to_fuser();
    let begin = || {
        let (descriptor, served) = (Arc::new(descriptor.try_clone()?), descriptor);
        let (session, of_session) = (served.try_clone()?, Arc::downgrade(&descriptor));
        let session = Session::from_fd(greeting, session, config.acl, config)?;
        Ok((Held { session, descriptor }, served, Unmounter(of_session)))
    };
    let begun: io::Result<_> = begin();
    begun.map_err(|error| {
        drop(umount(point, libc::MNT_DETACH));
        refused(point, errno(&error), &format!("its session with the kernel did not begin: {error}"))
    })
}

/// `None`: this user may not call mount(2).
fn mount_directly(point: &str, options: &FuseOptions) -> ClientResult<Option<OwnedFd>> {
    let root = fs::metadata(point).map_err(|error| no_point(point, &error))?;
    let descriptor = OwnedFd::from(open_device().map_err(|(code, words)| refused(point, code, &words))?);
    // SAFETY: no memory is involved.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let mode = root.mode() & libc::S_IFMT | root.permissions().mode();
    // The kernel checks permissions, because it knows everything about the process (see `caller`).
    let mut data =
        format!("fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions", descriptor.as_raw_fd());
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let flag = |on: bool, flag: libc::c_ulong| if on { flag } else { 0 };
    let flags = flag(options.read_only, libc::MS_RDONLY)
        | flag(!options.devices, libc::MS_NODEV)
        | flag(!options.set_ids, libc::MS_NOSUID)
        | flag(options.no_exec, libc::MS_NOEXEC)
        | flag(options.access_times == AccessTimes::Never, libc::MS_NOATIME)
        | flag(options.access_times == AccessTimes::Always, libc::MS_STRICTATIME)
        | flag(options.no_directory_access_times, libc::MS_NODIRATIME);
    match call_mount(&options.source, point, flags, &data) {
        Ok(()) => Ok(Some(descriptor)),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(None),
        Err(error) => Err(refused(point, errno(&error), &format!("mount(2): {error}"))),
    }
}

fn call_mount(source: &str, point: &str, flags: libc::c_ulong, data: &str) -> io::Result<()> {
    let [source, target, kind, data] =
        [source, point, KIND, data].map(|text: &str| CString::new(text).map_err(io::Error::from));
    let (source, target, kind, data) = (source?, target?, kind?, data?);
    // SAFETY: all four are C strings that outlive the call.
    let done = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast::<libc::c_void>())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this process may open the kernel's device for file systems, and whether it is that device. Errors: the
/// reason, and what to do.
pub fn check_device() -> Result<(), String> {
    open_device().map_err(|(_, words)| words)?;
    let device = fs::metadata(DEVICE);
    match device.is_ok_and(|meta| meta.file_type().is_char_device() && meta.rdev() == libc::makedev(10, 229)) {
        true => Ok(()),
        false => {
            Err(format!("{DEVICE} is not the kernel's device: make it anew (`mknod -m 666 {DEVICE} c 10 229` as root)"))
        }
    }
}

fn open_device() -> Result<File, (Errno, String)> {
    OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| {
        let of_device = fs::metadata(DEVICE).ok().map(|meta| (meta.mode() & 0o7777, meta.uid()));
        (errno(&error), device_words(&error, of_device))
    })
}

/// Why the device cannot be opened. `of_device`: its mode and its owner, if they can be read.
fn device_words(error: &io::Error, of_device: Option<(u32, u32)>) -> String {
    match (error.raw_os_error(), of_device) {
        (Some(libc::ENOENT), _) => {
            format!(
                "there is no {DEVICE}: load the kernel's module as root (`modprobe fuse`), or give the container the device"
            )
        }
        (Some(libc::EACCES), Some((mode, owner))) => format!(
            "this user may not open {DEVICE} (mode {mode:04o}, of user {owner}): `chmod 666 {DEVICE}` as root lets users mount"
        ),
        (Some(libc::EPERM), _) => {
            format!("this container may not open {DEVICE}: start it with that device (`--device {DEVICE}`)")
        }
        (Some(libc::ENODEV | libc::ENXIO), _) => {
            format!("the kernel has nothing behind {DEVICE}: load its module as root (`modprobe fuse`)")
        }
        _ => format!("cannot open {DEVICE}: {error}"),
    }
}

fn no_point(point: &str, error: &io::Error) -> ClientError {
    let words = match error.raw_os_error() {
        Some(libc::ENOTCONN) => "a dead mount lies there: take it away with `umount -l` first".to_owned(),
        Some(libc::ENOENT) => "there is no such directory: make it first".to_owned(),
        _ => error.to_string(),
    };
    refused(point, errno(error), &words)
}

fn refused(point: &str, errno: Errno, words: &str) -> ClientError {
    ClientError::new(errno, format!("cannot mount at {point}: {words}"))
}

pub(crate) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().and_then(|code| u32::try_from(code).ok()).map_or(Errno::EIO, Errno)
}

/// Whether the kernel no longer has this mount.
fn is_gone(descriptor: &OwnedFd) -> bool {
    let mut asked = libc::pollfd { fd: descriptor.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: `asked` is one pollfd, valid for the call.
    let answered = unsafe { libc::poll(&mut asked, 1, 0) };
    answered > 0 && asked.revents & libc::POLLERR != 0
}

/// Unmounts `point`, through the helper where this user may not call umount(2).
pub(crate) fn umount(point: &str, flags: libc::c_int) -> io::Result<()> {
    let path = CString::new(point)?;
    // SAFETY: `path` is a C string that outlives the call.
    match unsafe { libc::umount2(path.as_ptr(), flags) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EPERM) && !is_root() => {
                helper::unmount(point, flags & libc::MNT_DETACH != 0)
            }
            error => Err(error),
        },
    }
}

/// Unmounts `point`, also for a user who may not call umount(2). `flags`: those of umount2(2).
pub fn unmount(point: &Path, flags: libc::c_int) -> io::Result<()> {
    umount(point.to_str().ok_or(io::ErrorKind::InvalidInput)?, flags)
}

fn is_root() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// /dev/fuse missing, mode 0600, forbidden to a container, or without a driver | each has its own message
    #[test]
    fn a_device_that_cannot_be_opened_is_told_of_by_its_own_reason() {
        let said = |code: i32, of_device| device_words(&io::Error::from_raw_os_error(code), of_device);
        assert!(said(libc::ENOENT, None).contains("modprobe fuse"));
        let closed = said(libc::EACCES, Some((0o600, 0)));
        assert!(closed.contains("mode 0600") && closed.contains("chmod 666"), "{closed}");
        assert!(!closed.contains("there is no") && !closed.contains("fusermount3"), "{closed}");
        assert!(said(libc::EPERM, Some((0o666, 0))).contains("--device"));
        assert!(said(libc::ENODEV, Some((0o666, 0))).contains("modprobe fuse"));
        assert!(said(libc::EMFILE, Some((0o666, 0))).contains("Too many open files"));
    }
}
