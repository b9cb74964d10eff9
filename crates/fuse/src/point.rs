//! mount(2), umount(2).
//!
//! Called by ourselves where this user may, so that the mount's type says whose it is (`fuse.forebay`); else the system's
//! helper (fusermount3) does it.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // mount(2) and umount(2) block: who calls has a thread

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    sync::{Arc, Weak},
};

use fuser::{Session, SessionUnmounter};

use crate::{FuseOptions, transport::Greeting};

/// How mount(2) and /proc/self/mountinfo call it.
const KIND: &str = "fuse.forebay";

/// Takes a mount away; of its first attempt: it may have forgotten the mount also where it failed.
pub(crate) enum Unmounter {
    /// Of a mount of ours: its descriptor while it is held, which tells whether it is mounted.
    Ours(Weak<OwnedFd>),
    Helper(SessionUnmounter),
}

impl Unmounter {
    /// EBUSY while programs use it.
    pub fn unmount(self, point: &str) -> io::Result<()> {
        match self {
            Self::Ours(held) => match held.upgrade() {
                Some(descriptor) if !is_gone(&descriptor) => umount(point, 0),
                _ => Ok(()),
            },
            Self::Helper(mut helper) => helper.unmount(),
        }
    }
}

/// What keeps a mount: its session with the kernel.
pub(crate) struct Held {
    session: Session<Greeting>,
    /// Else the session takes it away itself.
    ours: Option<Arc<OwnedFd>>,
}

impl Held {
    /// Nobody serves it any more: takes away what is still mounted at `point`.
    pub fn end(self, point: &str) {
        if self.ours.is_some_and(|descriptor| !is_gone(&descriptor)) {
            // Else somebody was faster.
            let _ = umount(point, libc::MNT_DETACH);
        }
        // Now programs that are still in it are told that it is gone.
        drop(self.session);
    }
}

/// Mounts at `point`, and answers the kernel's first question: what keeps it, its descriptor, and how to take it away.
pub(crate) fn mount(greeting: Greeting, point: &str, options: &FuseOptions) -> io::Result<(Held, OwnedFd, Unmounter)> {
    let config = options.to_fuser();
    let Some(descriptor) = mount_directly(point, options)? else {
        let mut session = Session::new(greeting, point, &config)?;
        let descriptor = session.as_fd().try_clone_to_owned()?;
        let helper = session.unmount_callable();
        return Ok((Held { session, ours: None }, descriptor, Unmounter::Helper(helper)));
    };
    let begin = || {
        let (ours, served) = (Arc::new(descriptor.try_clone()?), descriptor.try_clone()?);
        let session = Session::from_fd(greeting, descriptor, config.acl, config)?;
        let unmounter = Unmounter::Ours(Arc::downgrade(&ours));
        Ok((Held { session, ours: Some(ours) }, served, unmounter))
    };
    begin().inspect_err(|_| drop(umount(point, libc::MNT_DETACH)))
}

/// `None`: this user may not.
fn mount_directly(point: &str, options: &FuseOptions) -> io::Result<Option<OwnedFd>> {
    let root = fs::metadata(point)?;
    let descriptor = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/fuse")?);
    // SAFETY: no memory is involved.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let mode = root.mode() & libc::S_IFMT | root.permissions().mode();
    // The kernel checks permissions, with all it knows of the process (see `caller`).
    let mut data =
        format!("fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions", descriptor.as_raw_fd());
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let flag = |on: bool, flag: libc::c_ulong| if on { flag } else { 0 };
    let flags = flag(options.read_only, libc::MS_RDONLY)
        | flag(!options.devices, libc::MS_NODEV)
        | flag(!options.set_ids, libc::MS_NOSUID)
        | flag(options.no_exec, libc::MS_NOEXEC);
    let [source, target, kind, data] =
        [&options.source, point, KIND, &data].map(|text: &str| CString::new(text).map_err(io::Error::from));
    let (source, target, kind, data) = (source?, target?, kind?, data?);
    // SAFETY: all four are C strings that outlive the call.
    let done = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast::<libc::c_void>())
    };
    match io::Error::last_os_error() {
        _ if done == 0 => Ok(Some(descriptor)),
        error if error.raw_os_error() == Some(libc::EPERM) => Ok(None),
        error => Err(error),
    }
}

/// The kernel has no such mount any more.
fn is_gone(descriptor: &OwnedFd) -> bool {
    let mut asked = libc::pollfd { fd: descriptor.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: `asked` is one pollfd, valid for the call.
    let answered = unsafe { libc::poll(&mut asked, 1, 0) };
    answered > 0 && asked.revents & libc::POLLERR != 0
}

/// Takes away what is mounted at `point`.
pub(crate) fn umount(point: &str, flags: libc::c_int) -> io::Result<()> {
    let point = CString::new(point)?;
    // SAFETY: `point` is a C string that outlives the call.
    match unsafe { libc::umount2(point.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
