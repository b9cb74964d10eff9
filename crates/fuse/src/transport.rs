//! Kernel requests become tasks of the client's shard if they have to wait for something.
#![allow(clippy::disallowed_types)] // points in time, as the kernel's structures have them; never the clock

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::Path,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use forebay_client::{ClientResult, DirEntry, SetAttributes, mode::with_umask};
use fuser::{
    FileHandle, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, TimeOrNow, WriteFlags,
};

use crate::{
    answer::{Answer, GENERATION, answer, opened, refuse},
    caller::Asker,
    convert,
    kernel::{
        Filesystem, ReplyAttr, ReplyCopied, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock,
        ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Told,
    },
    limits,
    locks::Wanted,
    server::Server,
};

/// The mount's end of the connection to the kernel.
pub(crate) struct Transport {
    pub server: Rc<Server>,
}

/// The capabilities requested from the kernel when the mount begins.
pub(crate) struct Greeting {
    /// FUSE over io_uring: `Some` if it is wanted. The value becomes true if the kernel offers it.
    pub uring: Option<Arc<AtomicBool>>,
    /// Refuse the mount without it.
    pub needs_uring: bool,
}

/// The error for a mount that needs FUSE over io_uring and does not get it.
pub(crate) const NO_URING: &str = "the kernel has no FUSE over io_uring for us: it needs Linux 6.14, and as root \
    `echo Y > /sys/module/fuse/parameters/enable_uring`; without `-o transport=uring` it does without";

/// Capabilities that are requested if the kernel has them.
const WANTED: [InitFlags; 9] = [
    // File handles (open_by_handle_at(2), NFS) stay valid when the kernel drops the inode: it looks up `.` in them.
    InitFlags::FUSE_EXPORT_SUPPORT,
    // Access control lists. The umask applies only where a directory has no default list, which the server knows.
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    // The MDT keeps locks, so they hold across mounts.
    InitFlags::FUSE_POSIX_LOCKS,
    InitFlags::FUSE_FLOCK_LOCKS,
    // O_TRUNC comes with the open: one request, and atomic.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // Lookups and creates in one directory run in parallel.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // One large asynchronous call becomes many parallel requests.
    InitFlags::FUSE_ASYNC_DIO,
    // Shared mappings of files opened with FOPEN_DIRECT_IO (Linux 6.6).
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

impl fuser::Filesystem for Greeting {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for flag in WANTED {
            // A kernel without it sends more requests for the same work, or refuses shared mappings.
            let _ = config.add_capabilities(flag);
        }
        // A larger value would make requests longer than the buffers for them.
        let _ = config.set_max_readahead(limits::REQUEST_BYTES);
        if let Some(granted) = &self.uring {
            let offered = config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok();
            if !offered && self.needs_uring {
                return Err(std::io::Error::other(NO_URING));
            }
            granted.store(offered, Ordering::Release);
        }
        let bounded = |wish: Result<_, _>| wish.map(drop).map_err(|_| std::io::Error::other("the kernel's limits"));
        bounded(config.set_max_write(limits::REQUEST_BYTES).map(u64::from).map_err(u64::from))?;
        bounded(config.set_max_background(limits::BACKGROUND_REQUESTS).map(u64::from).map_err(u64::from))
    }
}

impl Transport {
    /// Serves a request: at once, or in a task if it has to wait. If the shard ends, the dropped reply sends EIO.
    fn serve<T, R, F>(&self, reply: R, call: F)
    where
        T: 'static,
        R: Answer<T>,
        F: AsyncFnOnce(&Rc<Server>) -> ClientResult<T> + 'static,
    {
        self.send(async move |server: &Rc<Server>| answer(server, reply, call(server).await));
    }

    /// The same for a request without a handle. The name under which the kernel found the inode may lead elsewhere by
    /// now.
    fn serve_named<T, R, F>(&self, request: &Request, ino: INodeNo, reply: R, call: F)
    where
        T: 'static,
        R: Answer<T>,
        F: AsyncFnOnce(&Rc<Server>) -> ClientResult<T> + 'static,
    {
        let thread = request.pid();
        self.send(async move |server: &Rc<Server>| {
            let result = call(server).await;
            server.told(thread, ino.0, &result);
            answer(server, reply, result);
        });
    }

    /// The same for a change of entries of the directories `parents`.
    fn serve_in<T, R, F, const N: usize>(&self, request: &Request, parents: [INodeNo; N], reply: R, call: F)
    where
        T: 'static,
        R: Answer<T>,
        F: AsyncFnOnce(&Rc<Server>) -> ClientResult<T> + 'static,
    {
        let (thread, parents) = (request.pid(), parents.map(|parent| parent.0));
        self.send(async move |server: &Rc<Server>| {
            let result = server.in_directories(thread, &parents, call(server).await).await;
            server.told(thread, parents[0], &result);
            answer(server, reply, result);
        });
    }

    fn send<F>(&self, serve: F)
    where
        F: AsyncFnOnce(&Rc<Server>) + 'static,
    {
        let server = self.server.clone();
        self.server.env.begin(async move { serve(&server).await });
    }
}

/// An owned copy of a name or a value.
fn owned(name: impl AsRef<OsStr>) -> Bytes {
    Bytes::copy_from_slice(name.as_ref().as_bytes())
}

impl Filesystem for Transport {
    fn knows(&self, ino: INodeNo) {
        self.server.known(ino.0);
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (thread, name) = (request.pid(), owned(name));
        self.send(async move |server: &Rc<Server>| {
            let holds = server.races.holds(thread, server.env.now());
            let found = server.lookup(parent.0, &name, holds).await;
            if found.is_err() {
                server.told(thread, parent.0, &found);
            } else if holds {
                server.races.goes_on(thread, server.env.now());
            }
            answer(server, reply, found);
        });
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let call = async move |server: &Rc<Server>| server.getattr(ino.0, fh).await;
        match fh {
            Some(_) => self.serve(reply, call),
            None => self.serve_named(request, ino, reply, call),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let mode = mode.map(|mode| mode & forebay_client::mode::PERMISSIONS);
        let (atime, mtime) = (atime.map(convert::set_time), mtime.map(convert::set_time));
        let changes = SetAttributes { mode, uid, gid, size, atime, mtime };
        let asker = Asker::of(request);
        self.serve_named(request, ino, reply, async move |server: &Rc<Server>| {
            server.setattr(asker, ino.0, fh, changes).await
        });
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.serve_named(request, ino, reply, async move |server: &Rc<Server>| server.readlink(ino.0).await);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (asker, name, mode) = (Asker::of(request), owned(name), with_umask(mode, umask));
        self.serve_in(request, [parent], reply, async move |server: &Rc<Server>| {
            server.mknod(asker, parent.0, &name, mode, rdev).await
        });
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (asker, name, mode) = (Asker::of(request), owned(name), with_umask(mode, umask));
        self.serve_in(request, [parent], reply, async move |server: &Rc<Server>| {
            server.mkdir(asker, parent.0, &name, mode).await
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        self.serve_in(request, [parent], reply, async move |server: &Rc<Server>| server.unlink(parent.0, &name).await);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        self.serve_in(request, [parent], reply, async move |server: &Rc<Server>| server.rmdir(parent.0, &name).await);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (asker, name, target) = (Asker::of(request), owned(name), owned(target));
        self.serve_in(request, [parent], reply, async move |server: &Rc<Server>| {
            server.symlink(asker, parent.0, &name, &target).await
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (owned(name), owned(newname));
        self.serve_in(request, [parent, newparent], reply, async move |server: &Rc<Server>| {
            server.rename((parent.0, &from), (newparent.0, &to), flags).await
        });
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (thread, name) = (request.pid(), owned(newname));
        self.serve_named(request, ino, reply, async move |server: &Rc<Server>| {
            server.link(thread, ino.0, newparent.0, &name).await
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (asker, name, mode) = (Asker::of(request), owned(name), with_umask(mode, umask));
        let thread = request.pid();
        self.send(async move |server: &Rc<Server>| {
            let result = server.create(asker, parent.0, &name, mode, flags).await;
            let result = server.in_directories(thread, &[parent.0], result).await;
            server.told(thread, parent.0, &result);
            match result {
                Ok((entry, handle, flags)) => {
                    let taken = reply.created(&entry, GENERATION, handle, flags);
                    opened(server, handle, taken).await;
                }
                Err(error) => refuse(server, &error, |errno| reply.error(errno)),
            }
        });
    }

    fn tmpfile(&self, request: &Request, parent: INodeNo, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        let (asker, mode) = (Asker::of(request), with_umask(mode, umask));
        let thread = request.pid();
        self.send(async move |server: &Rc<Server>| {
            let result = server.tmpfile(asker, parent.0, mode, flags).await;
            let result = server.in_directories(thread, &[parent.0], result).await;
            server.told(thread, parent.0, &result);
            match result {
                Ok((attr, handle, flags)) => {
                    let taken = reply.created(&Told::once(attr), GENERATION, handle, flags);
                    opened(server, handle, taken).await;
                }
                Err(error) => refuse(server, &error, |errno| reply.error(errno)),
            }
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let asker = Asker::of(request);
        let thread = request.pid();
        self.send(async move |server: &Rc<Server>| {
            let result = server.open(asker, ino.0, flags.0).await;
            server.told(thread, ino.0, &result);
            match result {
                Ok((handle, flags)) => opened(server, handle, reply.opened(handle, flags)).await,
                Err(error) => refuse(server, &error, |errno| reply.error(errno)),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.serve(reply, async move |server: &Rc<Server>| {
            // Reads without a lock owner fill pages of the kernel; the others are for programs.
            let read = match lock_owner {
                None => server.read_pages(ino.0, fh, offset, size).await?,
                Some(_) => server.read(ino.0, fh, offset, size).await?,
            };
            // The read has succeeded, so an error here does not matter.
            let _ = server.note_access(fh, flags.0).await;
            Ok(read)
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: Bytes,
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let asker = Asker::of(request);
        self.serve(reply, async move |server: &Rc<Server>| {
            server.write(asker, ino.0, fh, offset, data, write_flags, flags.0).await
        });
    }

    fn flush(&self, _: &Request, _ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        self.serve(reply, async move |server: &Rc<Server>| server.flush(fh, lock_owner.0).await);
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(reply, async move |server: &Rc<Server>| server.release(fh).await);
    }

    fn fsync(&self, _: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.serve(reply, async move |server: &Rc<Server>| server.fsync(fh, datasync).await);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let thread = request.pid();
        self.send(async move |server: &Rc<Server>| {
            let result = server.opendir(ino.0).await;
            server.told(thread, ino.0, &result);
            match result {
                Ok(handle) => {
                    if !reply.opened(handle, FopenFlags::empty()) {
                        server.drop_directory(handle);
                    }
                }
                Err(error) => refuse(server, &error, |errno| reply.error(errno)),
            }
        });
    }

    fn readdir(&self, _: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.send(async move |server: &Rc<Server>| {
            let add = |entry: &DirEntry| {
                let kind = convert::file_type(entry.mode);
                reply.add(INodeNo(server.ino(entry.fid)), entry.cookie, kind, OsStr::from_bytes(&entry.name))
            };
            match server.readdir(fh, offset, add).await {
                Ok(()) => reply.ok(),
                Err(error) => refuse(server, &error, |errno| reply.error(errno)),
            }
        });
    }

    fn releasedir(&self, _: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.serve(reply, async move |server: &Rc<Server>| {
            server.drop_directory(fh);
            Ok(())
        });
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.serve(reply, async move |server: &Rc<Server>| server.fsyncdir(ino.0).await);
    }

    fn statfs(&self, _: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.serve(reply, async move |server: &Rc<Server>| server.statfs().await);
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (asker, name, value) = (Asker::of(request), owned(name), Bytes::copy_from_slice(value));
        self.serve_named(request, ino, reply, async move |server: &Rc<Server>| {
            server.setxattr(asker, ino.0, &name, &value, flags).await
        });
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = owned(name);
        self.serve_named(request, ino, reply, async move |server: &Rc<Server>| {
            server.getxattr(ino.0, &name, size).await
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let asker = Asker::of(request);
        self.serve_named(request, ino, reply, async move |server: &Rc<Server>| {
            server.listxattr(asker, ino.0, size).await
        });
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (asker, name) = (Asker::of(request), owned(name));
        self.serve_named(request, ino, reply, async move |server: &Rc<Server>| {
            server.removexattr(asker, ino.0, &name).await
        });
    }

    fn lseek(&self, _: &Request, _ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.serve(reply, async move |server: &Rc<Server>| server.lseek(fh, offset, whence).await);
    }

    fn getlk(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let (flock, thread) = (false, request.pid());
        let wanted = Wanted { owner: lock_owner.0, start, end, kind: typ, flock, pid, thread };
        self.serve(reply, async move |server: &Rc<Server>| server.test_lock(fh, wanted).await);
    }

    fn setlk(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        flock: bool,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let wanted = Wanted { owner: lock_owner.0, start, end, kind: typ, flock, pid, thread: request.pid() };
        self.send(async move |server: &Rc<Server>| {
            let signal = || reply.has_signal();
            match server.set_lock(fh, wanted, sleep, signal).await {
                Ok(()) => reply.ok(),
                Err(error) => refuse(server, &error, |errno| reply.error(errno)),
            }
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let asker = Asker::of(request);
        self.serve(reply, async move |server: &Rc<Server>| {
            server.fallocate(asker, ino.0, fh, offset, length, mode).await
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        reply: ReplyCopied,
    ) {
        let asker = Asker::of(request);
        self.send(async move |server: &Rc<Server>| {
            let (enough, to) = (|| reply.is_enough(), (fh_out, offset_out));
            match server.copy_range(asker, (fh_in, offset_in), ino_out.0, to, len, enough).await {
                Ok(bytes) => reply.copied(bytes),
                Err(error) => refuse(server, &error, |errno| reply.error(errno)),
            }
        });
    }
}
