//! One file system as one actor sees it: the run's root there, and what the actor has open.

use std::{
    ffi::CString,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use super::{
    answer::{Answer, Stat},
    call::{Call, Path, SlotId, Step, User},
    known::{About, Setup},
    sys::{Arg::*, Asked, sys},
};

/// Descriptor slots per actor.
pub const SLOTS: usize = 6;
/// Mappings per actor.
pub const MAPS: usize = 2;
/// Page size.
pub const PAGE: i64 = 4096;
/// `struct statx` without STATX_BTIME.
pub const BASIC: u32 = libc::STATX_BASIC_STATS;

/// An open file.
pub struct Slot {
    /// Its descriptor.
    pub fd: OwnedFd,
    /// With O_DIRECT: offsets, lengths and memory are multiples of a page.
    pub direct: bool,
}

/// A mapping.
pub struct Map {
    /// Its address.
    pub address: i64,
    /// Its length.
    pub length: usize,
}

/// One file system as one actor sees it.
pub struct Place {
    /// The root of the run.
    pub root: OwnedFd,
    /// True for the local one: it reuses inode numbers, and birth times tell files apart.
    pub local: bool,
    /// The setup of the run.
    pub setup: Setup,
    /// The open files.
    pub slots: [Option<Slot>; SLOTS],
    /// The kind of each open file, according to the local file system.
    pub about: [About; SLOTS],
    /// The mappings.
    pub maps: [Option<Map>; MAPS],
    /// A memory file through which mappings are read and written. So a store beyond the end of a file returns EFAULT
    /// instead of raising SIGBUS.
    pub bounce: OwnedFd,
}

/// A path as a C string.
pub fn text(path: &Path) -> CString {
    CString::new(path.0.clone()).expect("no path here has a zero")
}

/// Takes ownership of the descriptor that a call returned.
pub fn owned(fd: i64) -> OwnedFd {
    // SAFETY: the kernel has just returned it, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

impl Place {
    /// A place with nothing open, at `root`.
    pub fn new(root: &std::path::Path, local: bool, setup: Setup) -> Asked2<Self> {
        let path = Path(root.as_os_str().as_encoded_bytes().to_vec());
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let root = owned(open_at(libc::AT_FDCWD.into(), &path, flags, 0)?);
        let bounce = owned(sys(libc::SYS_memfd_create, &mut [Text(c"differential"), Int(0)])?);
        Ok(Self {
            root,
            local,
            setup,
            slots: Default::default(),
            about: Default::default(),
            maps: Default::default(),
            bounce,
        })
    }

    /// The kinds of the open files before a call.
    pub fn abouts(&self) -> [About; SLOTS] {
        std::array::from_fn(|slot| {
            let fd = self.fd(slot);
            let flags = sys(libc::SYS_fcntl, &mut [Int(fd), Int(libc::F_GETFL.into())]).unwrap_or(0);
            let path_only = flags & i64::from(libc::O_PATH) != 0;
            let stat = if fd < 0 { Err(libc::EBADF) } else { self.stat_of(fd) };
            stat.map_or(About::default(), |stat| About {
                kind: stat.kind(),
                removed: stat.nlink == 0,
                path_only,
                inode: stat.inode,
            })
        })
    }

    /// Makes the call as the step's user, with paths relative to the root.
    pub fn perform(&mut self, step: &Step, about: &[About; SLOTS]) -> Answer {
        self.about = *about;
        let at_root = sys(libc::SYS_fchdir, &mut [Int(self.root.as_raw_fd().into())]);
        at_root.expect("the root of the run is a directory");
        sys(libc::SYS_umask, &mut [Int(step.umask.into())]).expect("umask(2) always works");
        become_user(step.user);
        let answer = self.call(&step.call);
        become_user(User::Root);
        answer
    }

    fn call(&mut self, call: &Call) -> Answer {
        if let Some(row) = self.setup.not_made(call) {
            return Answer::from(Ok(0)).with(super::answer::Fact::Words("not made", row.to_owned()));
        }
        if let Some(answer) = self.data_call(call) {
            return answer;
        }
        if let Some(answer) = self.mapping_call(call) {
            return answer;
        }
        if let Some(answer) = self.attribute_call(call) {
            return answer;
        }
        if let Some(answer) = self.lock_call(call) {
            return answer;
        }
        self.name_call(call)
    }

    /// The descriptor of a slot, or -1.
    pub fn fd(&self, slot: SlotId) -> i64 {
        self.slots[slot].as_ref().map_or(-1, |open| open.fd.as_raw_fd().into())
    }

    /// Attributes of an open file.
    pub fn stat_of(&self, fd: i64) -> Result<Stat, i32> {
        self.statx(fd, c"", libc::AT_EMPTY_PATH, BASIC)
    }

    /// statx(2).
    pub fn statx(&self, dir: i64, path: &std::ffi::CStr, flags: i32, mask: u32) -> Result<Stat, i32> {
        let mut bytes = [0; 256];
        let asked = if self.local { mask | libc::STATX_BTIME } else { mask };
        let mut args = [Int(dir), Text(path), Int(flags.into()), Int(asked.into()), Struct(&mut bytes)];
        sys(libc::SYS_statx, &mut args)?;
        Ok(Stat::parse(&bytes, mask))
    }
}

/// A value, or an errno.
pub type Asked2<T> = Result<T, i32>;

/// openat(2) with O_CLOEXEC.
pub fn open_at(dir: i64, path: &Path, flags: i32, mode: u32) -> Asked {
    let flags = flags | libc::O_CLOEXEC;
    sys(libc::SYS_openat, &mut [Int(dir), Text(&text(path)), Int(flags.into()), Int(mode.into())])
}

/// Sets the effective ids of this thread only.
fn become_user(user: User) {
    let (uid, gid, groups) = user.ids();
    let mut list: Vec<u8> = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
    let keep = -1;
    let root = |number| sys(number, &mut [Int(keep), Int(0), Int(keep)]);
    root(libc::SYS_setresuid).expect("the saved user is root");
    sys(libc::SYS_setgroups, &mut [Int(groups.len() as i64), Struct(&mut list)]).expect("root may choose groups");
    sys(libc::SYS_setresgid, &mut [Int(keep), Int(gid), Int(keep)]).expect("root may choose a group");
    sys(libc::SYS_setresuid, &mut [Int(keep), Int(uid), Int(keep)]).expect("root may choose a user");
    // Without this, another user's own /proc/thread-self/fd is inaccessible.
    sys(libc::SYS_prctl, &mut [Int(libc::PR_SET_DUMPABLE.into()), Int(1)]).expect("prctl(2) takes 1");
}
