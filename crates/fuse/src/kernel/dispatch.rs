//! Decodes a request and calls the operation that it names.
#![allow(clippy::disallowed_types)] // points in time, as the kernel's structures have them; never the clock

use std::{
    ffi::OsStr,
    path::Path,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use fuser::{Errno, FileHandle, INodeNo, LockOwner, OpenFlags, RenameFlags, TimeOrNow, WriteFlags};

use super::{
    args::{Args, Malformed},
    device::{Device, Waiter, Way},
    reply::*,
};

/// Bytes of every request's header.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes of a write before its data. Of other requests, this many bytes are read apart from the rest.
pub(super) const WRITE_HEADER_BYTES: usize = HEADER_BYTES + 40;

/// Operation codes, as in linux/fuse.h.
mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

const GETATTR_FH: u32 = 1;
const READ_LOCKOWNER: u32 = 1 << 1;
const WRITE_LOCKOWNER: u32 = 1 << 1;
const RELEASE_FLUSH: u32 = 1;
const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
const FSYNC_FDATASYNC: u32 = 1;
const LK_FLOCK: u32 = 1;

/// Which attributes a SETATTR sets.
mod fattr {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
}

/// The header of every request.
pub(super) struct Header {
    pub bytes: usize,
    op: u32,
    unique: u64,
    node: INodeNo,
    request: Request,
    way: Way,
}

/// The process on whose behalf the kernel sends the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Request {
    pub fn uid(&self) -> u32 {
        self.uid
    }

    pub fn gid(&self) -> u32 {
        self.gid
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Header {
    pub fn parse(bytes: &[u8], way: Way) -> Option<Self> {
        let mut args = Args(bytes);
        let mut parse = || -> Result<Self, Malformed> {
            let (bytes, op, unique) = (args.u32()? as usize, args.u32()?, args.u64()?);
            let node = INodeNo(args.u64()?);
            let request = Request { uid: args.u32()?, gid: args.u32()?, pid: args.u32()? };
            args.skip(4)?;
            Ok(Self { bytes, op, unique, node, request, way })
        };
        parse().ok()
    }

    pub fn is_write(&self) -> bool {
        self.op == op::WRITE
    }

    pub fn is_destroy(&self) -> bool {
        self.op == op::DESTROY
    }

    pub fn wants_answer(&self) -> bool {
        !matches!(self.op, op::FORGET | op::BATCH_FORGET | op::INTERRUPT)
    }

    pub fn reply<R: From<Reply>>(&self, device: &Rc<Device>) -> R {
        self.reply_for(device, self.waiter())
    }

    fn reply_for<R: From<Reply>>(&self, device: &Rc<Device>, waiter: Waiter) -> R {
        Reply::new(device, self.unique, self.way, waiter).into()
    }

    /// The reply to a request whose arguments tell whether it `only_looks`.
    fn reply_to<R: From<Reply>>(&self, device: &Rc<Device>, only_looks: bool) -> R {
        let thread = self.request.pid;
        let waiter = if only_looks { Waiter::Onlooker(thread) } else { Waiter::Thread(thread) };
        self.reply_for(device, waiter)
    }

    fn waiter(&self) -> Waiter {
        let thread = self.request.pid;
        match self.op {
            op::SETLK | op::SETLKW => Waiter::Locker,
            op::RELEASE | op::RELEASEDIR => Waiter::Nobody,
            op if only_looks(op) => Waiter::Onlooker(thread),
            _ => Waiter::Thread(thread),
        }
    }
}

/// Whether a request leaves nothing half done when it is abandoned: it changes nothing, or only makes a file without a
/// name. An open that may truncate is not such a request.
fn only_looks(op: u32) -> bool {
    matches!(
        op,
        op::LOOKUP
            | op::GETATTR
            | op::READLINK
            | op::STATFS
            | op::FSYNC
            | op::FSYNCDIR
            | op::GETXATTR
            | op::LISTXATTR
            | op::OPENDIR
            | op::READDIR
            | op::LSEEK
            | op::GETLK
            | op::TMPFILE
    )
}

/// The same for an open: the program may repeat it.
fn opens_only(flags: i32) -> bool {
    flags & (libc::O_TRUNC | libc::O_EXCL) == 0
}

macro_rules! filesystem {
    ($($name:ident($($arg:ident: $type:ty),*; $reply:ty);)*) => {
        /// Serves the kernel's requests. Operations without an implementation reply ENOSYS.
        #[allow(clippy::too_many_arguments, unused_variables)] // as the kernel's structures
        pub(crate) trait Filesystem {
            /// The kernel refers to an inode that an earlier reply named: so it has taken the inode up.
            fn knows(&self, ino: INodeNo) {}

            $(fn $name(&self, request: &Request, $($arg: $type,)* reply: $reply) {
                reply.error(Errno::ENOSYS);
            })*
        }
    };
}

filesystem! {
    lookup(parent: INodeNo, name: &OsStr; ReplyEntry);
    getattr(ino: INodeNo, fh: Option<FileHandle>; ReplyAttr);
    setattr(
        ino: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
        atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>, fh: Option<FileHandle>; ReplyAttr
    );
    readlink(ino: INodeNo; ReplyData);
    mknod(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32; ReplyEntry);
    mkdir(parent: INodeNo, name: &OsStr, mode: u32, umask: u32; ReplyEntry);
    unlink(parent: INodeNo, name: &OsStr; ReplyEmpty);
    rmdir(parent: INodeNo, name: &OsStr; ReplyEmpty);
    symlink(parent: INodeNo, name: &OsStr, target: &Path; ReplyEntry);
    rename(parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr, flags: RenameFlags; ReplyEmpty);
    link(ino: INodeNo, newparent: INodeNo, newname: &OsStr; ReplyEntry);
    create(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32; ReplyCreate);
    tmpfile(parent: INodeNo, mode: u32, umask: u32, flags: i32; ReplyCreate);
    open(ino: INodeNo, flags: OpenFlags; ReplyOpen);
    read(
        ino: INodeNo, fh: FileHandle, offset: u64, size: u32, flags: OpenFlags, lock_owner: Option<LockOwner>; ReplyData
    );
    write(
        ino: INodeNo, fh: FileHandle, offset: u64, data: Bytes, write_flags: WriteFlags, flags: OpenFlags,
        lock_owner: Option<LockOwner>; ReplyWrite
    );
    flush(ino: INodeNo, fh: FileHandle, lock_owner: LockOwner; ReplyEmpty);
    release(
        ino: INodeNo, fh: FileHandle, flags: OpenFlags, lock_owner: Option<LockOwner>, flush: bool; ReplyEmpty
    );
    fsync(ino: INodeNo, fh: FileHandle, datasync: bool; ReplyEmpty);
    opendir(ino: INodeNo, flags: OpenFlags; ReplyOpen);
    readdir(ino: INodeNo, fh: FileHandle, offset: u64; ReplyDirectory);
    releasedir(ino: INodeNo, fh: FileHandle, flags: OpenFlags; ReplyEmpty);
    fsyncdir(ino: INodeNo, fh: FileHandle, datasync: bool; ReplyEmpty);
    statfs(ino: INodeNo; ReplyStatfs);
    setxattr(ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, position: u32; ReplyEmpty);
    getxattr(ino: INodeNo, name: &OsStr, size: u32; ReplyXattr);
    listxattr(ino: INodeNo, size: u32; ReplyXattr);
    removexattr(ino: INodeNo, name: &OsStr; ReplyEmpty);
    fallocate(ino: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32; ReplyEmpty);
    getlk(
        ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, start: u64, end: u64, typ: i32, pid: u32; ReplyLock
    );
    setlk(
        ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, start: u64, end: u64, typ: i32, pid: u32, flock: bool,
        sleep: bool; ReplyEmpty
    );
    lseek(ino: INodeNo, fh: FileHandle, offset: i64, whence: i32; ReplyLseek);
    copy_file_range(
        ino_in: INodeNo, fh_in: FileHandle, offset_in: u64, ino_out: INodeNo, fh_out: FileHandle, offset_out: u64,
        len: u64; ReplyCopied
    );
}

/// A write, whose data already lies in memory that the client may keep.
pub(super) fn write(device: &Rc<Device>, filesystem: &impl Filesystem, header: &Header, args: &[u8], data: Bytes) {
    if device.is_over() {
        return over(device, header);
    }
    let mut args = Args(args);
    let mut parse = || -> Result<_, Malformed> {
        let (handle, offset, bytes, write_flags) = (FileHandle(args.u64()?), args.u64()?, args.u32()?, args.u32()?);
        let (owner, flags) = (LockOwner(args.u64()?), OpenFlags(args.i32()?));
        let owner = (write_flags & WRITE_LOCKOWNER != 0).then_some(owner);
        let fits = bytes as usize == data.len() && i64::try_from(offset).is_ok();
        fits.then_some((handle, offset, WriteFlags::from_bits_retain(write_flags), flags, owner)).ok_or(Malformed)
    };
    let Ok((handle, offset, kind, flags, owner)) = parse() else { return malformed(device, header) };
    filesystem.write(&header.request, header.node, handle, offset, data, kind, flags, owner, header.reply(device));
}

/// Any other request.
pub(super) fn request(device: &Rc<Device>, filesystem: &impl Filesystem, header: &Header, args: &[u8]) {
    if device.is_over() && header.wants_answer() {
        return over(device, header);
    }
    if call(device, filesystem, header, Args(args)).is_err() {
        malformed(device, header);
    }
}

fn over(device: &Rc<Device>, header: &Header) {
    header.reply::<ReplyEmpty>(device).error(Errno::ENOTCONN);
}

fn malformed(device: &Rc<Device>, header: &Header) {
    header.reply::<ReplyEmpty>(device).error(Errno::EIO);
}

#[allow(clippy::too_many_lines)] // a table
fn call(device: &Rc<Device>, fs: &impl Filesystem, header: &Header, mut args: Args<'_>) -> Result<(), Malformed> {
    let (from, node) = (&header.request, header.node);
    if !matches!(header.op, op::FORGET | op::BATCH_FORGET) {
        fs.knows(node);
    }
    macro_rules! reply {
        () => {
            header.reply(device)
        };
    }
    match header.op {
        op::FORGET => device.known.forgotten(node.0, args.u64()?),
        op::BATCH_FORGET => {
            let count = args.u32()?;
            args.skip(4)?;
            for _ in 0..count {
                let (ino, answers) = (args.u64()?, args.u64()?);
                device.known.forgotten(ino, answers);
            }
        }
        op::LOOKUP => fs.lookup(from, node, args.name()?, reply!()),
        op::GETATTR => {
            let flags = args.u32()?;
            args.skip(4)?;
            let handle = FileHandle(args.u64()?);
            fs.getattr(from, node, (flags & GETATTR_FH != 0).then_some(handle), reply!());
        }
        op::SETATTR => setattr(device, fs, header, args)?,
        op::READLINK => fs.readlink(from, node, reply!()),
        op::SYMLINK => {
            let (name, target) = (args.name()?, args.name()?);
            fs.symlink(from, node, name, Path::new(target), reply!());
        }
        op::MKNOD => {
            let (mode, rdev, umask) = (args.u32()?, args.u32()?, args.u32()?);
            args.skip(4)?;
            fs.mknod(from, node, args.name()?, mode, umask, rdev, reply!());
        }
        op::MKDIR => {
            let (mode, umask) = (args.u32()?, args.u32()?);
            fs.mkdir(from, node, args.name()?, mode, umask, reply!());
        }
        op::UNLINK => fs.unlink(from, node, args.name()?, reply!()),
        op::RMDIR => fs.rmdir(from, node, args.name()?, reply!()),
        op::RENAME | op::RENAME2 => {
            let (parent, mut flags) = (INodeNo(args.u64()?), 0);
            if header.op == op::RENAME2 {
                flags = args.u32()?;
                args.skip(4)?;
            }
            let (name, new_name) = (args.name()?, args.name()?);
            fs.rename(from, node, name, parent, new_name, RenameFlags::from_bits_retain(flags), reply!());
        }
        op::LINK => {
            let linked = INodeNo(args.u64()?);
            fs.link(from, linked, node, args.name()?, reply!());
        }
        op::OPEN => {
            let flags = args.i32()?;
            fs.open(from, node, OpenFlags(flags), header.reply_to(device, opens_only(flags)));
        }
        op::CREATE | op::TMPFILE => {
            let (flags, mode, umask) = (args.i32()?, args.u32()?, args.u32()?);
            args.skip(4)?;
            match header.op {
                op::TMPFILE => fs.tmpfile(from, node, mode, umask, flags, reply!()),
                _ => {
                    fs.create(from, node, args.name()?, mode, umask, flags, header.reply_to(device, opens_only(flags)))
                }
            }
        }
        op::READ => {
            let (handle, offset, bytes, read_flags) = (FileHandle(args.u64()?), args.u64()?, args.u32()?, args.u32()?);
            let owner = LockOwner(args.u64()?);
            let flags = OpenFlags(args.i32()?);
            let owner = (read_flags & READ_LOCKOWNER != 0).then_some(owner);
            // A read without a lock owner fills a page of a mapping. The thread that touched the page can receive an
            // error only as SIGBUS.
            let reply = header.reply_to(device, owner.is_some());
            fs.read(from, node, handle, offset, bytes, flags, owner, reply);
        }
        op::FLUSH => {
            let handle = FileHandle(args.u64()?);
            args.skip(8)?;
            fs.flush(from, node, handle, LockOwner(args.u64()?), reply!());
        }
        op::RELEASE => {
            let (handle, flags, release_flags) = (FileHandle(args.u64()?), OpenFlags(args.i32()?), args.u32()?);
            let owner = LockOwner(args.u64()?);
            let owner = (release_flags & RELEASE_FLOCK_UNLOCK != 0).then_some(owner);
            fs.release(from, node, handle, flags, owner, release_flags & RELEASE_FLUSH != 0, reply!());
        }
        op::FSYNC | op::FSYNCDIR => {
            let (handle, datasync) = (FileHandle(args.u64()?), args.u32()? & FSYNC_FDATASYNC != 0);
            match header.op {
                op::FSYNC => fs.fsync(from, node, handle, datasync, reply!()),
                _ => fs.fsyncdir(from, node, handle, datasync, reply!()),
            }
        }
        op::OPENDIR => fs.opendir(from, node, OpenFlags(args.i32()?), reply!()),
        op::READDIR => {
            let (handle, offset, room) = (FileHandle(args.u64()?), args.u64()?, args.u32()? as usize);
            fs.readdir(from, node, handle, offset, ReplyDirectory::new(reply!(), room));
        }
        op::RELEASEDIR => {
            let handle = FileHandle(args.u64()?);
            fs.releasedir(from, node, handle, OpenFlags(args.i32()?), reply!());
        }
        op::STATFS => fs.statfs(from, node, reply!()),
        op::SETXATTR => {
            let (bytes, flags) = (args.u32()? as usize, args.i32()?);
            let name = args.name()?;
            fs.setxattr(from, node, name, args.bytes(bytes)?, flags, 0, reply!());
        }
        op::GETXATTR => {
            let room = args.u32()?;
            args.skip(4)?;
            fs.getxattr(from, node, args.name()?, room, reply!());
        }
        op::LISTXATTR => fs.listxattr(from, node, args.u32()?, reply!()),
        op::REMOVEXATTR => fs.removexattr(from, node, args.name()?, reply!()),
        op::FALLOCATE => {
            let (handle, offset, length) = (FileHandle(args.u64()?), args.u64()?, args.u64()?);
            fs.fallocate(from, node, handle, offset, length, args.i32()?, reply!());
        }
        op::GETLK | op::SETLK | op::SETLKW => {
            let (handle, owner) = (FileHandle(args.u64()?), LockOwner(args.u64()?));
            let (start, end, kind, pid) = (args.u64()?, args.u64()?, args.i32()?, args.u32()?);
            let flock = args.u32()? & LK_FLOCK != 0;
            match header.op {
                op::GETLK => fs.getlk(from, node, handle, owner, start, end, kind, pid, reply!()),
                op => fs.setlk(from, node, handle, owner, start, end, kind, pid, flock, op == op::SETLKW, reply!()),
            }
        }
        op::LSEEK => {
            let (handle, offset) = (FileHandle(args.u64()?), args.i64()?);
            fs.lseek(from, node, handle, offset, args.i32()?, reply!());
        }
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => {
            let (handle, offset) = (FileHandle(args.u64()?), args.u64()?);
            let (to, to_handle, to_offset) = (INodeNo(args.u64()?), FileHandle(args.u64()?), args.u64()?);
            let (length, _flags) = (args.u64()?, args.u64()?);
            let wide = header.op == op::COPY_FILE_RANGE_64;
            let reply = ReplyCopied::new(reply!(), wide);
            fs.copy_file_range(from, node, handle, offset, to, to_handle, to_offset, length, reply);
        }
        op::INTERRUPT => device.interrupted(args.u64()?),
        _ => header.reply::<ReplyEmpty>(device).error(Errno::ENOSYS),
    }
    Ok(())
}

fn setattr(device: &Rc<Device>, fs: &impl Filesystem, header: &Header, mut args: Args<'_>) -> Result<(), Malformed> {
    let valid = args.u32()?;
    args.skip(4)?;
    let (handle, size) = (FileHandle(args.u64()?), args.u64()?);
    args.skip(8)?;
    let seconds = [args.i64()?, args.i64()?, args.i64()?];
    let [atime, mtime, ctime] = [(seconds[0], args.u32()?), (seconds[1], args.u32()?), (seconds[2], args.u32()?)];
    let mode = args.u32()?;
    args.skip(4)?;
    let (uid, gid) = (args.u32()?, args.u32()?);
    let sets = |bit: u32| valid & bit != 0;
    let time = |bit, now, time| {
        let set = if sets(now) { TimeOrNow::Now } else { TimeOrNow::SpecificTime(system_time(time)) };
        sets(bit).then_some(set)
    };
    fs.setattr(
        &header.request,
        header.node,
        sets(fattr::MODE).then_some(mode),
        sets(fattr::UID).then_some(uid),
        sets(fattr::GID).then_some(gid),
        sets(fattr::SIZE).then_some(size),
        time(fattr::ATIME, fattr::ATIME_NOW, atime),
        time(fattr::MTIME, fattr::MTIME_NOW, mtime),
        sets(fattr::CTIME).then(|| system_time(ctime)),
        sets(fattr::FH).then_some(handle),
        header.reply(device),
    );
    Ok(())
}

fn system_time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    time + Duration::from_nanos(nanoseconds.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_forty_bytes_or_none() {
        let mut bytes = Vec::new();
        bytes.extend(80u32.to_ne_bytes());
        bytes.extend(op::WRITE.to_ne_bytes());
        bytes.extend(5u64.to_ne_bytes());
        bytes.extend(6u64.to_ne_bytes());
        for word in [7u32, 8, 9, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        assert_eq!(bytes.len(), HEADER_BYTES);
        let header = Header::parse(&bytes, Way::Device).unwrap();
        assert_eq!((header.bytes, header.unique, header.node), (80, 5, INodeNo(6)));
        assert_eq!((header.request.uid(), header.request.gid(), header.request.pid()), (7, 8, 9));
        assert!(header.is_write() && Header::parse(&bytes[..39], Way::Device).is_none());
    }

    #[test]
    fn times_before_1970_are_seconds_down_and_nanoseconds_up() {
        assert_eq!(system_time((-1, 999_999_999)), UNIX_EPOCH - Duration::from_nanos(1));
        assert_eq!(system_time((3, 4)), UNIX_EPOCH + Duration::new(3, 4));
    }
}
