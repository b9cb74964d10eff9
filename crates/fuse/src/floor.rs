//! The floor: an empty file system in memory behind this crate's transport. Its cost is the cost of the kernel and this
//! crate alone, without any server.
//!
//! It has names and attributes with the same timeouts as a real file system, and replies to the same requests of the
//! kernel. Written bytes are held for a while, as a client holds them until they are committed, and are then discarded.
//! Reads return meaningless bytes.
#![allow(clippy::disallowed_types)] // points in time, as the kernel's structures have them; never the clock

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, VecDeque},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    rc::Rc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use forebay_env::{AlignedBuf, Env};
use forebay_proto::limits::LEASE_CLIENT_TERM;
use fuser::{Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, LockOwner, OpenFlags, TimeOrNow, WriteFlags};

use crate::{
    answer::GENERATION,
    convert,
    data::DATA_FLAGS,
    kernel::{
        Filesystem, Notifier, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
        ReplyWrite, ReplyXattr, Request, Told,
    },
    limits,
};

const ROOT: u64 = 1;
/// Most written bytes that are held.
const HELD_BYTES: usize = 256 << 20;
/// Reads return parts of a buffer of this size, so that no read finds the previous one's bytes in its core's cache.
const SOURCE_BYTES: usize = 64 << 20;
/// The most that the kernel requests at a time.
const READ_BYTES: u64 = 4 << 20;

/// See the module. Clones share it.
#[derive(Clone)]
pub(crate) struct Floor {
    env: Env,
    inodes: Rc<RefCell<Inodes>>,
    /// How long the kernel may cache names: as long as those of a real file system on this kernel.
    name_for: Duration,
    held: Rc<RefCell<Held>>,
    /// Created by the first read.
    source: Rc<OnceCell<Bytes>>,
}

/// The bytes that were written last.
#[derive(Default)]
struct Held {
    all: VecDeque<Bytes>,
    bytes: usize,
}

impl Held {
    fn add(&mut self, data: Bytes) {
        self.bytes += data.len();
        self.all.push_back(data);
        while self.bytes > HELD_BYTES {
            let Some(oldest) = self.all.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

struct Inodes {
    all: BTreeMap<u64, Inode>,
    last: u64,
}

struct Inode {
    attr: FileAttr,
    /// Entries of a directory.
    names: BTreeMap<Vec<u8>, u64>,
}

impl Inodes {
    fn directory(&mut self, ino: INodeNo) -> Result<&mut Inode, Errno> {
        let inode = self.all.get_mut(&ino.0).ok_or(Errno::ENOENT)?;
        if inode.attr.kind == FileType::Directory { Ok(inode) } else { Err(Errno::ENOTDIR) }
    }

    fn attr(&self, ino: u64) -> Result<FileAttr, Errno> {
        self.all.get(&ino).map(|inode| inode.attr).ok_or(Errno::ENOENT)
    }

    fn lookup(&mut self, parent: INodeNo, name: &[u8]) -> Result<FileAttr, Errno> {
        let ino = *self.directory(parent)?.names.get(name).ok_or(Errno::ENOENT)?;
        self.attr(ino)
    }

    fn make(&mut self, parent: INodeNo, name: &[u8], kind: FileType, mode: u32) -> Result<FileAttr, Errno> {
        let ino = self.last + 1;
        let names = &mut self.directory(parent)?.names;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_vec(), ino);
        self.last = ino;
        let inode = Inode { attr: attributes(ino, kind, mode), names: BTreeMap::new() };
        let attr = inode.attr;
        self.all.insert(ino, inode);
        Ok(attr)
    }

    fn remove(&mut self, parent: INodeNo, name: &[u8]) -> Result<(), Errno> {
        let ino = self.lookup(parent, name)?.ino.0;
        if !self.all.get(&ino).is_none_or(|inode| inode.names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.directory(parent)?.names.remove(name);
        self.all.remove(&ino);
        Ok(())
    }
}

fn attributes(ino: u64, kind: FileType, mode: u32) -> FileAttr {
    let time = convert::system_time(0);
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: (mode & 0o7777) as u16,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: limits::BLOCK_BYTES,
        flags: 0,
    }
}

impl Floor {
    pub fn new(env: &Env, notifier: &Notifier) -> Self {
        Self::with(env, if notifier.forgets_names() { LEASE_CLIENT_TERM } else { Duration::ZERO })
    }

    fn with(env: &Env, name_for: Duration) -> Self {
        let root = Inode { attr: attributes(ROOT, FileType::Directory, 0o755), names: BTreeMap::new() };
        let inodes = Inodes { all: BTreeMap::from([(ROOT, root)]), last: ROOT };
        Self {
            env: env.clone(),
            inodes: Rc::new(RefCell::new(inodes)),
            name_for,
            held: Rc::default(),
            source: Rc::default(),
        }
    }

    /// Serves a request in the same way as a real request that needs no server.
    fn serve(&self, work: impl FnOnce(&mut Inodes) + 'static) {
        let inodes = self.inodes.clone();
        self.env.begin(async move { work(&mut inodes.borrow_mut()) });
    }
}

fn told(attr: FileAttr, name_for: Duration) -> Told {
    Told { attr, attributes_for: LEASE_CLIENT_TERM, name_for }
}

fn entry(reply: ReplyEntry, name_for: Duration, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.entry(&told(attr, name_for), GENERATION),
        Err(Errno::ENOENT) if !name_for.is_zero() => reply.absent(name_for),
        Err(errno) => reply.error(errno),
    }
}

fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn attr(reply: ReplyAttr, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.attr(LEASE_CLIENT_TERM, &attr),
        Err(errno) => reply.error(errno),
    }
}

fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Filesystem for Floor {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, name_for) = (owned(name), self.name_for);
        self.serve(move |inodes| entry(reply, name_for, inodes.lookup(parent, &name)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.serve(move |inodes| attr(reply, inodes.attr(ino.0)));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.serve(move |inodes| attr(reply, inodes.attr(ino.0)));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let (name, name_for) = (owned(name), self.name_for);
        self.serve(move |inodes| entry(reply, name_for, inodes.make(parent, &name, FileType::Directory, mode)));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let (name, name_for) = (owned(name), self.name_for);
        self.serve(move |inodes| match inodes.make(parent, &name, FileType::RegularFile, mode) {
            Ok(attr) => {
                let handle = FileHandle(attr.ino.0);
                reply.created(&told(attr, name_for), GENERATION, handle, DATA_FLAGS);
            }
            Err(errno) => reply.error(errno),
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.serve(move |inodes| match inodes.attr(ino.0) {
            Ok(_) => {
                reply.opened(FileHandle(ino.0), DATA_FLAGS);
            }
            Err(errno) => reply.error(errno),
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: Bytes,
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let held = self.held.clone();
        self.serve(move |inodes| {
            if let Some(inode) = inodes.all.get_mut(&ino.0) {
                inode.attr.size = inode.attr.size.max(offset + data.len() as u64);
            }
            reply.written(data.len() as u32);
            held.borrow_mut().add(data);
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let source = self.source.clone();
        self.serve(move |inodes| {
            let source = source.get_or_init(|| {
                let mut bytes = AlignedBuf::zeroed(SOURCE_BYTES);
                bytes.fill(1);
                bytes.freeze()
            });
            let end = inodes.attr(ino.0).map_or(0, |attr| attr.size);
            let bytes = end.saturating_sub(offset).min(size.into()).min(READ_BYTES) as usize;
            let begin = (offset % (SOURCE_BYTES as u64 - READ_BYTES)) as usize;
            reply.parts(&[source.slice(begin..begin + bytes)]);
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.serve(move |_| reply.ok());
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.serve(move |_| reply.ok());
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(move |_| reply.ok());
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        self.serve(move |inodes| empty(reply, inodes.remove(parent, &name)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        self.serve(move |inodes| empty(reply, inodes.remove(parent, &name)));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.serve(move |_| {
            reply.opened(FileHandle(ino.0), FopenFlags::empty());
        });
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.serve(move |inodes| {
            let names = inodes.directory(ino).map(|inode| inode.names.clone()).unwrap_or_default();
            for (number, (name, ino)) in (1..).zip(&names).skip(offset as usize) {
                let kind = inodes.attr(*ino).map_or(FileType::RegularFile, |attr| attr.kind);
                if reply.add(INodeNo(*ino), number, kind, OsStr::from_bytes(name)) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.serve(move |_| reply.ok());
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        self.serve(move |_| reply.error(Errno::ENODATA));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_what_was_made_until_it_is_removed() {
        let sim = forebay_env::sim::Sim::new(1);
        let floor = Floor::with(&sim.env(sim.add_node("client")), Duration::ZERO);
        let mut inodes = floor.inodes.borrow_mut();
        let dir = inodes.make(INodeNo(ROOT), b"d", FileType::Directory, 0o755).expect("made").ino;
        let file = inodes.make(dir, b"f", FileType::RegularFile, 0o644).expect("made");
        assert_eq!(inodes.lookup(dir, b"f").expect("there").ino, file.ino);
        assert_eq!(inodes.make(dir, b"f", FileType::RegularFile, 0).err().map(|e| e.code()), Some(libc::EEXIST));
        assert_eq!(inodes.remove(INodeNo(ROOT), b"d").err().map(|e| e.code()), Some(libc::ENOTEMPTY));
        inodes.remove(dir, b"f").expect("removed");
        assert!(inodes.lookup(dir, b"f").is_err());
        inodes.remove(INodeNo(ROOT), b"d").expect("removed");
    }
}
