//! The calls: what a step requests, with all arguments. A call knows nothing of the file system that it is made on.

use std::fmt;

/// A descriptor slot. Each actor has several.
pub type SlotId = usize;

/// A path below the root of a run, or the name of an entry.
#[derive(Clone, PartialEq, Eq)]
pub struct Path(pub Vec<u8>);

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0..=80 => write!(f, "\"{}\"", self.0.escape_ascii()),
            length => write!(f, "\"{}...\" ({length} bytes)", self.0[..20].escape_ascii()),
        }
    }
}

/// Bytes to write, none of them zero. They are derived from a number, so that a report can be short.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// The number that they are derived from.
    pub tag: u64,
    /// Number of bytes.
    pub length: usize,
}

impl Data {
    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        let mut dice = forebay_history::Dice::new(self.tag);
        let words = (0..self.length.div_ceil(8)).flat_map(|_| (dice.roll() | 0x0101_0101_0101_0101).to_le_bytes());
        words.take(self.length).collect()
    }
}

/// A time that a call sets.
#[derive(Clone, Copy, Debug)]
pub enum Given {
    /// UTIME_NOW.
    Now,
    /// UTIME_OMIT.
    Omit,
    /// Seconds and nanoseconds.
    At(i64, i64),
}

/// The file that an extended attribute belongs to.
#[derive(Clone, Debug)]
pub enum Target {
    /// What the path leads to, with symlinks followed.
    Path(Path),
    /// What the path names, with a final symlink not followed.
    Link(Path),
    /// An open file.
    Slot(SlotId),
}

/// One call, or a short sequence of calls that only make sense together.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // The names are those of the calls and of their arguments.
pub enum Call {
    Open { slot: SlotId, path: Path, flags: i32, mode: u32 },
    Openat { slot: SlotId, dir: SlotId, path: Path, flags: i32, mode: u32 },
    Close { slot: SlotId },
    Dup { slot: SlotId, to: SlotId },
    SetFlags { slot: SlotId, flags: i32 },
    GetFlags { slot: SlotId },
    Read { slot: SlotId, count: usize },
    Pread { slot: SlotId, count: usize, at: i64 },
    Readv { slot: SlotId, counts: Vec<usize> },
    Preadv2 { slot: SlotId, counts: Vec<usize>, at: i64, flags: i32 },
    Write { slot: SlotId, data: Data },
    Pwrite { slot: SlotId, data: Data, at: i64 },
    Writev { slot: SlotId, data: Vec<Data> },
    Pwritev2 { slot: SlotId, data: Vec<Data>, at: i64, flags: i32 },
    Lseek { slot: SlotId, offset: i64, whence: i32 },
    SeekData { slot: SlotId, offset: i64, whence: i32 },
    Truncate { path: Path, size: i64 },
    Ftruncate { slot: SlotId, size: i64 },
    Fallocate { slot: SlotId, mode: i32, at: i64, length: i64 },
    CopyFileRange { from: SlotId, from_at: Option<i64>, to: SlotId, to_at: Option<i64>, count: usize },
    Sendfile { from: SlotId, at: Option<i64>, to: SlotId, count: usize },
    SpliceIn { slot: SlotId, at: Option<i64>, data: Data },
    SpliceOut { slot: SlotId, at: Option<i64>, count: usize },
    Load { slot: SlotId, page: i64, count: usize },
    Store { slot: SlotId, page: i64, skip: usize, data: Data, msync: bool },
    Map { map: usize, slot: SlotId, page: i64, pages: usize, private: bool },
    MapLoad { map: usize, at: usize, count: usize },
    MapStore { map: usize, at: usize, data: Data },
    Unmap { map: usize },
    Fsync { slot: SlotId },
    Fdatasync { slot: SlotId },
    SyncFileRange { slot: SlotId, at: i64, length: i64, flags: i32 },
    Fadvise { slot: SlotId, at: i64, length: i64, advice: i32 },
    Stat { path: Path },
    Lstat { path: Path },
    Fstat { slot: SlotId },
    Statx { path: Path, flags: i32, mask: u32 },
    Access { path: Path, mode: i32, flags: i32 },
    Chmod { path: Path, mode: u32 },
    Fchmod { slot: SlotId, mode: u32 },
    Chown { path: Path, uid: i64, gid: i64 },
    Lchown { path: Path, uid: i64, gid: i64 },
    Fchown { slot: SlotId, uid: i64, gid: i64 },
    Utimensat { path: Path, atime: Given, mtime: Given, flags: i32 },
    Futimens { slot: SlotId, atime: Given, mtime: Given },
    Mkdir { path: Path, mode: u32 },
    Rmdir { path: Path },
    Unlink { path: Path },
    Unlinkat { dir: SlotId, path: Path, flags: i32 },
    Rename { from: Path, to: Path },
    Renameat2 { from: Path, to: Path, flags: u32 },
    Link { from: Path, to: Path },
    LinkSlot { slot: SlotId, to: Path, by_proc: bool },
    Symlink { target: Path, path: Path },
    Readlink { path: Path },
    Mkfifo { path: Path, mode: u32 },
    List { path: Path, flags: i32 },
    ListSlot { slot: SlotId },
    ListChanging { path: Path, first: usize, remove: Path, make: Path },
    Setxattr { of: Target, name: Path, value: Data, flags: i32 },
    Getxattr { of: Target, name: Path, room: usize },
    Listxattr { of: Target },
    Removexattr { of: Target, name: Path },
    SetAcl { path: Path, default: bool, entries: Vec<(u16, u16, u32)> },
    Flock { slot: SlotId, how: i32 },
    Lock { slot: SlotId, open_file: bool, kind: i32, start: i64, length: i64 },
    GetLock { slot: SlotId, open_file: bool, kind: i32, start: i64, length: i64 },
    Reopen { slot: SlotId, from: SlotId, flags: i32 },
    Contents { path: Path },
    Pause { ms: u64 },
}

impl Call {
    /// The kind of call.
    pub fn kind(&self) -> String {
        let shown = format!("{self:?}");
        shown.split([' ', '{']).next().unwrap_or_default().to_lowercase()
    }

    /// The slot that gets another descriptor.
    pub fn fills(&self) -> Option<SlotId> {
        match self {
            Call::Open { slot, .. } | Call::Openat { slot, .. } | Call::Reopen { slot, .. } => Some(*slot),
            Call::Dup { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// The slot that a difference is about.
    pub fn slot(&self) -> Option<SlotId> {
        match self {
            Call::Openat { dir: slot, .. }
            | Call::Unlinkat { dir: slot, .. }
            | Call::Close { slot }
            | Call::Dup { slot, .. }
            | Call::SetFlags { slot, .. }
            | Call::GetFlags { slot }
            | Call::Read { slot, .. }
            | Call::Pread { slot, .. }
            | Call::Readv { slot, .. }
            | Call::Preadv2 { slot, .. }
            | Call::Write { slot, .. }
            | Call::Pwrite { slot, .. }
            | Call::Writev { slot, .. }
            | Call::Pwritev2 { slot, .. }
            | Call::Lseek { slot, .. }
            | Call::SeekData { slot, .. }
            | Call::Ftruncate { slot, .. }
            | Call::Fallocate { slot, .. }
            | Call::CopyFileRange { from: slot, .. }
            | Call::Sendfile { from: slot, .. }
            | Call::SpliceIn { slot, .. }
            | Call::SpliceOut { slot, .. }
            | Call::Load { slot, .. }
            | Call::Store { slot, .. }
            | Call::Map { slot, .. }
            | Call::Fsync { slot }
            | Call::Fdatasync { slot }
            | Call::SyncFileRange { slot, .. }
            | Call::Fadvise { slot, .. }
            | Call::Fstat { slot }
            | Call::Fchmod { slot, .. }
            | Call::Fchown { slot, .. }
            | Call::Futimens { slot, .. }
            | Call::LinkSlot { slot, .. }
            | Call::ListSlot { slot }
            | Call::Setxattr { of: Target::Slot(slot), .. }
            | Call::Getxattr { of: Target::Slot(slot), .. }
            | Call::Listxattr { of: Target::Slot(slot) }
            | Call::Removexattr { of: Target::Slot(slot), .. }
            | Call::Flock { slot, .. }
            | Call::Lock { slot, .. }
            | Call::GetLock { slot, .. }
            | Call::Reopen { from: slot, .. } => Some(*slot),
            _ => None,
        }
    }
}

/// The user that makes calls, with its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Root, with all permissions.
    Root,
    /// User and group 1000.
    Owner,
    /// User and group 1001, also in group 1000.
    Member,
}

impl User {
    /// User, group, and supplementary groups.
    pub fn ids(self) -> (i64, i64, &'static [u32]) {
        match self {
            User::Root => (0, 0, &[]),
            User::Owner => (1000, 1000, &[]),
            User::Member => (1001, 1001, &[1000]),
        }
    }
}

/// A call with its actor and user.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its number in the sequence, which stays the same when other steps are left out.
    pub number: usize,
    /// The actor.
    pub actor: usize,
    /// The user.
    pub user: User,
    /// The umask.
    pub umask: u32,
    /// The call.
    pub call: Call,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, actor, user, umask, call } = self;
        write!(f, "step {number}, actor {actor} as {user:?}, umask {umask:03o}: {call:?}")
    }
}
