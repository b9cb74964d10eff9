//! Calls that read and change attributes.

use std::ffi::CStr;

use super::{
    answer::{Answer, Fact},
    call::{Call, Given, Target},
    place::{BASIC, Place, text},
    sys::{Arg::*, Asked, sys},
};

const HERE: i64 = libc::AT_FDCWD as i64;

impl Place {
    /// Makes the call, if it is one of these.
    pub fn attribute_call(&mut self, call: &Call) -> Option<Answer> {
        let nofollow = Int(libc::AT_SYMLINK_NOFOLLOW.into());
        Some(match call {
            Call::Stat { path } => self.stat(HERE, &text(path), 0, BASIC),
            Call::Lstat { path } => self.stat(HERE, &text(path), libc::AT_SYMLINK_NOFOLLOW, BASIC),
            Call::Fstat { slot } => self.stat(self.fd(*slot), c"", libc::AT_EMPTY_PATH, BASIC),
            Call::Statx { path, flags, mask } => self.stat(HERE, &text(path), *flags, *mask),
            Call::Access { path, mode, flags } => {
                let mut args = [Int(HERE), Text(&text(path)), Int((*mode).into()), Int((*flags).into())];
                sys(libc::SYS_faccessat2, &mut args).into()
            }
            Call::Chmod { path, mode } => {
                sys(libc::SYS_fchmodat, &mut [Int(HERE), Text(&text(path)), Int((*mode).into())]).into()
            }
            Call::Fchmod { slot, mode } => {
                sys(libc::SYS_fchmod, &mut [Int(self.fd(*slot)), Int((*mode).into())]).into()
            }
            Call::Chown { path, uid, gid } => {
                sys(libc::SYS_fchownat, &mut [Int(HERE), Text(&text(path)), Int(*uid), Int(*gid), Int(0)]).into()
            }
            Call::Lchown { path, uid, gid } => {
                sys(libc::SYS_fchownat, &mut [Int(HERE), Text(&text(path)), Int(*uid), Int(*gid), nofollow]).into()
            }
            Call::Fchown { slot, uid, gid } => {
                sys(libc::SYS_fchown, &mut [Int(self.fd(*slot)), Int(*uid), Int(*gid)]).into()
            }
            Call::Utimensat { path, atime, mtime, flags } => {
                let mut times = times(*atime, *mtime);
                let mut args = [Int(HERE), Text(&text(path)), Struct(&mut times), Int((*flags).into())];
                sys(libc::SYS_utimensat, &mut args).into()
            }
            Call::Futimens { slot, atime, mtime } => {
                let mut times = times(*atime, *mtime);
                let mut args = [Int(self.fd(*slot)), Int(0), Struct(&mut times), Int(0)];
                sys(libc::SYS_utimensat, &mut args).into()
            }
            Call::Setxattr { of, name, value, flags } => self.set_xattr(of, &text(name), &value.bytes(), *flags).into(),
            Call::Getxattr { of, name, room } => self.get_xattr(of, &text(name), *room),
            Call::Listxattr { of } => self.list_xattr(of),
            Call::Removexattr { of, name } => self.remove_xattr(of, &text(name)).into(),
            Call::SetAcl { path, default, entries } => {
                let name = if *default { c"system.posix_acl_default" } else { c"system.posix_acl_access" };
                self.set_xattr(&Target::Path(path.clone()), name, &acl(entries), 0).into()
            }
            _ => return None,
        })
    }

    fn stat(&self, dir: i64, path: &CStr, flags: i32, mask: u32) -> Answer {
        match self.statx(dir, path, flags, mask) {
            Ok(stat) => Answer::from(Ok(0)).with(Fact::Stat(stat)),
            Err(errno) => Err(errno).into(),
        }
    }

    fn set_xattr(&self, of: &Target, name: &CStr, value: &[u8], flags: i32) -> Asked {
        let flags = Int(flags.into());
        match of {
            Target::Path(path) => sys(libc::SYS_setxattr, &mut [Text(&text(path)), Text(name), In(value), flags]),
            Target::Link(path) => sys(libc::SYS_lsetxattr, &mut [Text(&text(path)), Text(name), In(value), flags]),
            Target::Slot(slot) => sys(libc::SYS_fsetxattr, &mut [Int(self.fd(*slot)), Text(name), In(value), flags]),
        }
    }

    fn get_xattr(&self, of: &Target, name: &CStr, room: usize) -> Answer {
        let mut room = vec![0; room];
        let result = match of {
            Target::Path(path) => sys(libc::SYS_getxattr, &mut [Text(&text(path)), Text(name), Out(&mut room)]),
            Target::Link(path) => sys(libc::SYS_lgetxattr, &mut [Text(&text(path)), Text(name), Out(&mut room)]),
            Target::Slot(slot) => sys(libc::SYS_fgetxattr, &mut [Int(self.fd(*slot)), Text(name), Out(&mut room)]),
        };
        room.truncate(result.unwrap_or(0).max(0) as usize);
        Answer::from(result).with(Fact::Bytes(room))
    }

    /// Lists the names in sorted order, as their order is the file system's choice. Names that only the mount has are
    /// not a difference.
    fn list_xattr(&self, of: &Target) -> Answer {
        let mut room = vec![0; 64 << 10];
        let result = match of {
            Target::Path(path) => sys(libc::SYS_listxattr, &mut [Text(&text(path)), Out(&mut room)]),
            Target::Link(path) => sys(libc::SYS_llistxattr, &mut [Text(&text(path)), Out(&mut room)]),
            Target::Slot(slot) => sys(libc::SYS_flistxattr, &mut [Int(self.fd(*slot)), Out(&mut room)]),
        };
        room.truncate(result.unwrap_or(0).max(0) as usize);
        let names = room.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.retain(|name| !self.setup.of_the_mount_alone(name));
        names.sort();
        Answer::from(result.map(|_| 0)).with(Fact::Words("names", format!("{names:?}")))
    }

    fn remove_xattr(&self, of: &Target, name: &CStr) -> Asked {
        match of {
            Target::Path(path) => sys(libc::SYS_removexattr, &mut [Text(&text(path)), Text(name)]),
            Target::Link(path) => sys(libc::SYS_lremovexattr, &mut [Text(&text(path)), Text(name)]),
            Target::Slot(slot) => sys(libc::SYS_fremovexattr, &mut [Int(self.fd(*slot)), Text(name)]),
        }
    }
}

/// Two `struct timespec`.
fn times(atime: Given, mtime: Given) -> Vec<u8> {
    let words = |given| match given {
        Given::Now => (0, libc::UTIME_NOW),
        Given::Omit => (0, libc::UTIME_OMIT),
        Given::At(seconds, nanos) => (seconds, nanos),
    };
    let both = [words(atime), words(mtime)];
    both.iter().flat_map(|(seconds, nanos)| [seconds.to_le_bytes(), nanos.to_le_bytes()]).flatten().collect()
}

/// An access control list as an extended attribute: tag, permissions, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
