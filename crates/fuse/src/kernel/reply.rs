//! Replies to the kernel: one type for each kind. Sending a reply consumes it, so each request gets one.
#![allow(clippy::disallowed_types)] // points in time, as the kernel's structures have them; never the clock

use std::{
    ffi::OsStr,
    io::IoSlice,
    os::unix::ffi::OsStrExt,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use fuser::{Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo};

use super::device::{Device, Waiter, Way};

const OUT_HEADER_BYTES: usize = 16;
/// `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 128;
/// Directory entries are aligned to this many bytes.
const ENTRY_ALIGN: usize = 8;

/// What a reply says about the inode behind a name, and how long the kernel may cache it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub attr: FileAttr,
    pub attributes_for: Duration,
    pub name_for: Duration,
}

impl Told {
    /// Attributes that the kernel must not cache.
    pub fn once(attr: FileAttr) -> Self {
        Self { attr, attributes_for: Duration::ZERO, name_for: Duration::ZERO }
    }
}

/// The right and the duty to reply to one request.
pub(crate) struct Reply {
    device: Rc<Device>,
    unique: u64,
    answered: bool,
}

impl Reply {
    pub(super) fn new(device: &Rc<Device>, unique: u64, way: Way, waiter: Waiter) -> Self {
        device.begin(unique, way, waiter);
        Self { device: device.clone(), unique, answered: false }
    }

    /// Sends a reply that names an inode. False if the kernel does not take it.
    fn name(self, told: &Told, parts: &[&[u8]]) -> bool {
        let device = self.device.clone();
        let taken = self.send(0, parts);
        if taken {
            device.known.told(told.attr.ino.0);
        }
        taken
    }

    /// False if the kernel does not take the reply.
    fn send(mut self, error: i32, parts: &[&[u8]]) -> bool {
        self.answered = true;
        send(&self.device, self.unique, error, parts)
    }

    fn fail(self, errno: Errno) {
        let code = self.of_over(errno.code());
        self.send(code, &[]);
    }

    /// The error for a request that was in flight when the mount ended. Its handle or the client's session was closed
    /// meanwhile.
    fn of_over(&self, code: i32) -> i32 {
        let is_closed = matches!(code, libc::EBADF | libc::ENXIO | libc::EIO);
        if is_closed && self.device.is_over() { libc::ENOTCONN } else { code }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered {
            error(&self.device, self.unique, self.of_over(libc::EIO));
        }
    }
}

/// Replies with an error to a request that has no [`Reply`] object at this point, or whose object may be in use
/// elsewhere.
pub(super) fn error(device: &Device, unique: u64, error: i32) {
    send(device, unique, error, &[]);
}

fn send(device: &Device, unique: u64, error: i32, parts: &[&[u8]]) -> bool {
    let bytes = OUT_HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut header = [0; OUT_HEADER_BYTES];
    header[..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-error).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    let header = IoSlice::new(&header);
    match parts {
        [] => device.answer(unique, &[header]),
        [one] => device.answer(unique, &[header, IoSlice::new(one)]),
        parts => {
            let parts = parts.iter().map(|part| IoSlice::new(part));
            device.answer(unique, &std::iter::once(header).chain(parts).collect::<Vec<_>>())
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        pub(crate) struct $name(Reply);

        impl From<Reply> for $name {
            fn from(reply: Reply) -> Self {
                Self(reply)
            }
        }

        impl $name {
            pub fn error(self, errno: Errno) {
                self.0.fail(errno);
            }
        })*
    };
}

replies! {
    /// Success, without data.
    ReplyEmpty;
    /// Bytes.
    ReplyData;
    /// The inode that a name leads to.
    ReplyEntry;
    /// Attributes.
    ReplyAttr;
    /// An open file or directory.
    ReplyOpen;
    /// A file that was created and opened.
    ReplyCreate;
    /// Number of bytes written.
    ReplyWrite;
    /// Space and inodes.
    ReplyStatfs;
    /// A value, or its length.
    ReplyXattr;
    /// A conflicting lock, or none.
    ReplyLock;
    /// An offset in a file.
    ReplyLseek;
}

impl ReplyEmpty {
    pub fn ok(self) {
        self.0.send(0, &[]);
    }

    /// Whether the kernel has reported a signal for the waiting thread.
    pub fn has_signal(&self) -> bool {
        self.0.device.is_interrupted(self.0.unique)
    }
}

impl ReplyData {
    pub fn data(self, data: &[u8]) {
        self.0.send(0, &[data]);
    }

    /// Replies with the concatenated parts.
    pub fn parts(self, parts: &[Bytes]) {
        let slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        match slices.len() {
            // A vectored write takes at most 1024 parts.
            0..1024 => self.0.send(0, &slices),
            _ => self.0.send(0, &[&slices.concat()]),
        };
    }
}

impl ReplyEntry {
    pub fn entry(self, told: &Told, generation: Generation) {
        self.0.name(told, &[&entry(told, generation)]);
    }

    /// The name does not exist. The kernel may cache that for `name_for`.
    pub fn absent(self, name_for: Duration) {
        let mut out = Out::default();
        out.u64(0).u64(0).u64(name_for.as_secs()).u64(0).u32(name_for.subsec_nanos()).u32(0);
        out.0.resize(ENTRY_BYTES, 0);
        self.0.send(0, &[&out.0]);
    }
}

impl ReplyAttr {
    /// `valid_for`: how long the kernel may cache the attributes.
    pub fn attr(self, valid_for: Duration, attr: &FileAttr) {
        let mut out = Out::default();
        out.u64(valid_for.as_secs()).u32(valid_for.subsec_nanos()).u32(0).attr(attr);
        self.0.send(0, &[&out.0]);
    }
}

impl ReplyOpen {
    /// False if the kernel does not take the handle. The caller must then close it, as no RELEASE follows.
    pub fn opened(self, handle: FileHandle, flags: FopenFlags) -> bool {
        self.0.send(0, &[&opened(handle, flags)])
    }
}

impl ReplyCreate {
    /// False if the kernel does not take the handle. The caller must then close it, as no RELEASE follows.
    pub fn created(self, told: &Told, generation: Generation, handle: FileHandle, flags: FopenFlags) -> bool {
        self.0.name(told, &[&entry(told, generation), &opened(handle, flags)])
    }
}

impl ReplyWrite {
    pub fn written(self, bytes: u32) {
        let mut out = Out::default();
        out.u32(bytes).u32(0);
        self.0.send(0, &[&out.0]);
    }
}

impl ReplyStatfs {
    #[allow(clippy::too_many_arguments)] // as the kernel's structure
    pub fn statfs(
        self,
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
    ) {
        let mut out = Out::default();
        out.u64(blocks).u64(bfree).u64(bavail).u64(files).u64(ffree).u32(bsize).u32(namelen).u32(frsize);
        out.0.resize(80, 0);
        self.0.send(0, &[&out.0]);
    }
}

impl ReplyXattr {
    pub fn size(self, bytes: u32) {
        let mut out = Out::default();
        out.u32(bytes).u32(0);
        self.0.send(0, &[&out.0]);
    }

    pub fn data(self, data: &[u8]) {
        self.0.send(0, &[data]);
    }
}

impl ReplyLock {
    pub fn locked(self, start: u64, end: u64, kind: i32, pid: u32) {
        let mut out = Out::default();
        out.u64(start).u64(end).u32(kind as u32).u32(pid);
        self.0.send(0, &[&out.0]);
    }
}

impl ReplyLseek {
    pub fn offset(self, offset: i64) {
        self.0.send(0, &[&offset.to_ne_bytes()]);
    }
}

/// Number of bytes copied.
pub(crate) struct ReplyCopied {
    reply: Reply,
    wide: bool,
}

impl ReplyCopied {
    /// `wide`: the kernel expects a 64-bit count.
    pub(super) fn new(reply: Reply, wide: bool) -> Self {
        Self { reply, wide }
    }

    /// Whether the copy may stop early: the program has a pending signal, and accepts fewer bytes than it asked for.
    pub fn is_enough(&self) -> bool {
        self.reply.device.is_interrupted(self.reply.unique)
    }

    pub fn copied(self, bytes: u64) {
        let mut out = Out::default();
        match (self.wide, u32::try_from(bytes)) {
            (false, Ok(bytes)) => out.u32(bytes).u32(0),
            _ => out.u64(bytes),
        };
        self.reply.send(0, &[&out.0]);
    }

    pub fn error(self, errno: Errno) {
        self.reply.fail(errno);
    }
}

/// Directory entries, as many as fit into the kernel's buffer.
pub(crate) struct ReplyDirectory {
    reply: Reply,
    list: Names,
}

struct Names {
    out: Out,
    room: usize,
}

impl ReplyDirectory {
    pub(super) fn new(reply: Reply, room: usize) -> Self {
        Self { reply, list: Names { out: Out::default(), room } }
    }

    /// Adds an entry; true if it does not fit.
    pub fn add(&mut self, ino: INodeNo, cookie: u64, kind: FileType, name: impl AsRef<OsStr>) -> bool {
        self.list.add(ino, cookie, kind, name.as_ref())
    }

    pub fn ok(self) {
        self.reply.send(0, &[&self.list.out.0]);
    }

    pub fn error(self, errno: Errno) {
        self.reply.fail(errno);
    }
}

impl Names {
    fn add(&mut self, ino: INodeNo, cookie: u64, kind: FileType, name: &OsStr) -> bool {
        let name = name.as_bytes();
        let end = self.out.0.len() + (24 + name.len()).next_multiple_of(ENTRY_ALIGN);
        if end > self.room {
            return true;
        }
        self.out.u64(ino.0).u64(cookie).u32(name.len() as u32).u32(format_bits(kind) >> 12);
        self.out.0.extend_from_slice(name);
        self.out.0.resize(end, 0);
        false
    }
}

fn entry(told: &Told, generation: Generation) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(ENTRY_BYTES));
    out.u64(told.attr.ino.0).u64(generation.0).u64(told.name_for.as_secs()).u64(told.attributes_for.as_secs());
    out.u32(told.name_for.subsec_nanos()).u32(told.attributes_for.subsec_nanos()).attr(&told.attr);
    out.0
}

fn opened(handle: FileHandle, flags: FopenFlags) -> Vec<u8> {
    let mut out = Out::default();
    out.u64(handle.0).u32(flags.bits()).u32(0);
    out.0
}

/// Structures of a reply, in the machine's byte order.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    /// `struct fuse_attr`, 88 bytes.
    fn attr(&mut self, attr: &FileAttr) -> &mut Self {
        let times = [attr.atime, attr.mtime, attr.ctime].map(seconds_and_rest);
        self.u64(attr.ino.0).u64(attr.size).u64(attr.blocks);
        for (seconds, _) in times {
            self.u64(seconds as u64);
        }
        for (_, nanoseconds) in times {
            self.u32(nanoseconds);
        }
        self.u32(format_bits(attr.kind) | u32::from(attr.perm)).u32(attr.nlink).u32(attr.uid).u32(attr.gid);
        self.u32(attr.rdev).u32(attr.blksize).u32(0)
    }
}

fn format_bits(kind: FileType) -> u32 {
    match kind {
        FileType::NamedPipe => libc::S_IFIFO,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::BlockDevice => libc::S_IFBLK,
        FileType::Directory => libc::S_IFDIR,
        FileType::RegularFile => libc::S_IFREG,
        FileType::Symlink => libc::S_IFLNK,
        FileType::Socket => libc::S_IFSOCK,
    }
}

/// Whole seconds since 1970, rounded down, and the nanoseconds after them.
fn seconds_and_rest(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match (before.as_secs() as i64, before.subsec_nanos()) {
                (seconds, 0) => (-seconds, 0),
                (seconds, rest) => (-seconds - 1, 1_000_000_000 - rest),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr() -> FileAttr {
        let time = UNIX_EPOCH - Duration::new(1, 250_000_000);
        FileAttr {
            ino: INodeNo(0x1122),
            size: 5000,
            blocks: 10,
            atime: time,
            mtime: UNIX_EPOCH + Duration::new(7, 8),
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            perm: 0o1755,
            nlink: 3,
            uid: 4,
            gid: 5,
            rdev: 6,
            blksize: 4096,
            flags: 0,
        }
    }

    #[test]
    fn a_reply_with_an_entry_has_the_layout_of_the_kernel() {
        let told = Told { attr: attr(), attributes_for: Duration::new(3, 4), name_for: Duration::new(1, 2) };
        let bytes = entry(&told, Generation(9));
        let mut expected = Vec::new();
        for word in [0x1122u64, 9, 1, 3] {
            expected.extend(word.to_ne_bytes());
        }
        for word in [2u32, 4] {
            expected.extend(word.to_ne_bytes());
        }
        for word in [0x1122u64, 5000, 10, -2i64 as u64, 7, 0] {
            expected.extend(word.to_ne_bytes());
        }
        for word in [750_000_000u32, 8, 0, 0o041_755, 3, 4, 5, 6, 4096, 0] {
            expected.extend(word.to_ne_bytes());
        }
        assert_eq!(bytes.len(), ENTRY_BYTES);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn names_fill_the_kernels_room_and_no_more() {
        let mut names = Names { out: Out::default(), room: 72 };
        assert!(!names.add(INodeNo(1), 2, FileType::RegularFile, OsStr::new("abc")));
        assert_eq!(names.out.0.len(), 32);
        assert_eq!(names.out.0[16..27], [3, 0, 0, 0, 8, 0, 0, 0, b'a', b'b', b'c']);
        assert!(!names.add(INodeNo(1), 3, FileType::Directory, OsStr::new("0123456789abcdef")));
        assert_eq!(names.out.0.len(), 72);
        assert!(names.add(INodeNo(1), 4, FileType::Directory, OsStr::new("a")));
    }

    #[test]
    fn times_before_1970_are_rounded_down() {
        assert_eq!(seconds_and_rest(UNIX_EPOCH - Duration::from_nanos(1)), (-1, 999_999_999));
        assert_eq!(seconds_and_rest(UNIX_EPOCH - Duration::from_secs(5)), (-5, 0));
        assert_eq!(seconds_and_rest(UNIX_EPOCH + Duration::new(5, 6)), (5, 6));
    }
}
