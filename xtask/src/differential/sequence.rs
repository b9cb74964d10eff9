//! The sequence of calls of a seed. It depends on the seed alone, not on the answers of a file system.

use forebay_history::Dice;

use super::{
    call::{Call, Data, Given, Path, SlotId, Step, Target, User},
    place::{BASIC, MAPS, PAGE, SLOTS},
};

/// Number of programs that take turns.
pub const ACTORS: usize = 2;

/// Names of files, then of directories and links, then names that are refused or rare.
const FILES: [&[u8]; 11] =
    [b"f0", b"f1", b"f2", b"f3", b"d0/f0", b"d0/f1", b"d1/f0", b"d1/f1", b"d0/d2/f0", b"\xff\xfe new\nline*", b"f4"];
const DIRECTORIES: [&[u8]; 5] = [b"d0", b"d1", b"d0/d2", b"d2", b"d1/d3"];
const LINKS: [&[u8]; 4] = [b"s0", b"s1", b"d0/s0", b"d1/s1"];
const ODD: [&[u8]; 12] =
    [b"", b".", b"d0/..", b"f0/", b"d0/", b"d0/.", b"f0/x", b"s0/f0", b"s1/f1", b"none/x", b"..", b"d0//f0"];
const LEADS: [&[u8]; 10] = [b"f0", b"d0", b"../f1", b"s1", b"s0", b"d0/f0", b"none", b"../d1", b"f1/", b"d0/../f2"];
const MODES: [u32; 12] = [0o644, 0o600, 0o666, 0o755, 0o777, 0o777, 0o400, 0o444, 0, 0o640, 0o1777, 0o311];
const SET_ID: [u32; 4] = [0o4755, 0o2755, 0o6775, 0o6711];
const XATTRS: [&[u8]; 9] = [
    b"user.a",
    b"user.a",
    b"user.b",
    b"user.c",
    b"trusted.t",
    b"security.t",
    b"user.",
    b"nonsense.x",
    b"security.selinux",
];

type Make = fn(&mut Maker) -> Call;

/// The weight of each call.
const WEIGHTS: [(u64, Make); 65] = [
    (90, Maker::open),
    (12, Maker::openat),
    (25, Maker::close),
    (6, |m| Call::Dup { slot: m.file_slot(), to: m.file_slot() }),
    (4, |m| Call::SetFlags {
        slot: m.file_slot(),
        flags: m.one(&[0, libc::O_APPEND, libc::O_NONBLOCK]) | libc::O_NONBLOCK,
    }),
    (3, |m| Call::GetFlags { slot: m.file_slot() }),
    (8, |m| Call::Reopen { slot: m.file_slot(), from: m.file_slot(), flags: m.access() | libc::O_NONBLOCK }),
    (25, |m| Call::Read { slot: m.file_slot(), count: m.length() }),
    (30, |m| Call::Pread { slot: m.file_slot(), count: m.length(), at: m.offset() }),
    (10, |m| Call::Readv { slot: m.file_slot(), counts: m.lengths() }),
    (10, |m| Call::Preadv2 { slot: m.file_slot(), counts: m.lengths(), at: m.offset_or_position(), flags: 0 }),
    (40, |m| Call::Write { slot: m.file_slot(), data: m.data() }),
    (50, |m| Call::Pwrite { slot: m.file_slot(), data: m.data(), at: m.offset() }),
    (12, |m| Call::Writev { slot: m.file_slot(), data: m.several() }),
    (16, Maker::pwritev2),
    (20, |m| Call::Lseek {
        slot: m.file_slot(),
        offset: m.offset(),
        whence: m.one(&[libc::SEEK_SET, libc::SEEK_SET, libc::SEEK_END, libc::SEEK_CUR]),
    }),
    (12, |m| Call::SeekData {
        slot: m.file_slot(),
        offset: m.offset(),
        whence: m.one(&[libc::SEEK_DATA, libc::SEEK_HOLE]),
    }),
    (12, |m| Call::Truncate { path: m.file(), size: m.offset() }),
    (18, |m| Call::Ftruncate { slot: m.file_slot(), size: m.offset() }),
    (22, Maker::fallocate),
    (16, |m| Call::CopyFileRange {
        from: m.file_slot(),
        from_at: m.maybe_offset(),
        to: m.file_slot(),
        to_at: m.maybe_offset(),
        count: m.length(),
    }),
    (10, |m| Call::Sendfile { from: m.file_slot(), at: m.maybe_offset(), to: m.file_slot(), count: m.length() }),
    (10, |m| Call::SpliceIn { slot: m.file_slot(), at: m.maybe_offset(), data: m.data() }),
    (10, |m| Call::SpliceOut { slot: m.file_slot(), at: m.maybe_offset(), count: m.length() }),
    (16, |m| Call::Load { slot: m.file_slot(), page: m.page(), count: m.length() }),
    (20, |m| Call::Store {
        slot: m.file_slot(),
        page: m.page(),
        skip: m.below(5000),
        data: m.data(),
        msync: m.chance(2),
    }),
    (5, |m| Call::Map {
        map: m.below(MAPS),
        slot: m.file_slot(),
        page: m.page(),
        pages: 1 + m.below(20),
        private: m.chance(8),
    }),
    (12, |m| Call::MapLoad { map: m.below(MAPS), at: m.below(80_000), count: m.length() }),
    (12, |m| Call::MapStore { map: m.below(MAPS), at: m.below(80_000), data: m.data() }),
    (4, |m| Call::Unmap { map: m.below(MAPS) }),
    (8, |m| Call::Fsync { slot: m.file_slot() }),
    (8, |m| Call::Fdatasync { slot: m.file_slot() }),
    (3, |m| Call::SyncFileRange {
        slot: m.file_slot(),
        at: m.offset(),
        length: m.length() as i64,
        flags: m.one(&[0, 2, 7]),
    }),
    (4, |m| Call::Fadvise {
        slot: m.file_slot(),
        at: m.offset(),
        length: m.length() as i64,
        advice: m.one(&[0, 1, 2, 3, 4, 5]),
    }),
    (35, |m| Call::Stat { path: m.path() }),
    (25, |m| Call::Lstat { path: m.path() }),
    (40, |m| Call::Fstat { slot: m.file_slot() }),
    (12, Maker::statx),
    (10, |m| Call::Access {
        path: m.path(),
        mode: m.below(8) as i32,
        flags: m.one(&[0, libc::AT_EACCESS, libc::AT_SYMLINK_NOFOLLOW]),
    }),
    (20, |m| Call::Chmod { path: m.path(), mode: m.any_mode() }),
    (10, |m| Call::Fchmod { slot: m.file_slot(), mode: m.any_mode() }),
    (10, |m| Call::Chown { path: m.path(), uid: m.id(), gid: m.id() }),
    (6, |m| Call::Lchown { path: m.path(), uid: m.id(), gid: m.id() }),
    (6, |m| Call::Fchown { slot: m.file_slot(), uid: m.id(), gid: m.id() }),
    (16, |m| Call::Utimensat {
        path: m.path(),
        atime: m.given(),
        mtime: m.given(),
        flags: m.one(&[0, libc::AT_SYMLINK_NOFOLLOW]),
    }),
    (12, |m| Call::Futimens { slot: m.file_slot(), atime: m.given(), mtime: m.given() }),
    (30, |m| Call::Mkdir { path: m.directory(), mode: m.mode() }),
    (8, |m| Call::Rmdir { path: m.directory() }),
    (18, |m| Call::Unlink { path: m.file_or_link() }),
    (6, |m| Call::Unlinkat { dir: m.dir_slot(), path: m.name(), flags: m.one(&[0, 0, libc::AT_REMOVEDIR]) }),
    (18, |m| Call::Rename { from: m.path(), to: m.path() }),
    (12, |m| Call::Renameat2 {
        from: m.path(),
        to: m.path(),
        flags: m.one(&[libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE, 0, 3]),
    }),
    (14, |m| Call::Link { from: m.path(), to: m.file() }),
    (8, |m| Call::LinkSlot { slot: m.file_slot(), to: m.file(), by_proc: m.chance(2) }),
    (14, |m| Call::Symlink { target: m.lead(), path: m.link() }),
    (8, |m| Call::Readlink { path: m.path() }),
    (5, |m| Call::Mkfifo { path: m.file(), mode: m.mode() }),
    (10, |m| Call::List { path: m.directory(), flags: m.one(&[libc::O_DIRECTORY, libc::O_NOFOLLOW]) }),
    (4, |m| Call::ListSlot { slot: m.dir_slot() }),
    (6, |m| Call::ListChanging { path: m.directory(), first: m.below(2), remove: m.name(), make: m.name() }),
    (14, |m| Call::Setxattr {
        of: m.target(),
        name: m.xattr(),
        value: m.value(),
        flags: m.one(&[0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE]),
    }),
    (12, |m| Call::Getxattr { of: m.target(), name: m.xattr(), room: m.one(&[0, 10, 300]) }),
    (8, |m| Call::Listxattr { of: m.target() }),
    (8, |m| Call::Removexattr { of: m.target(), name: m.xattr() }),
    (8, Maker::acl),
];

const RARE: [(u64, Make); 6] = [
    (10, |m| Call::Flock { slot: m.file_slot(), how: m.one(&[libc::LOCK_SH, libc::LOCK_EX, libc::LOCK_UN]) }),
    (20, |m| Call::Lock {
        slot: m.file_slot(),
        open_file: m.chance(3),
        kind: m.lock_kind(),
        start: m.tens(10),
        length: m.tens(5),
    }),
    (12, |m| Call::GetLock {
        slot: m.file_slot(),
        open_file: m.chance(3),
        kind: m.one(&[libc::F_RDLCK, libc::F_WRLCK]),
        start: m.tens(10),
        length: m.tens(5),
    }),
    (6, |m| Call::Contents { path: m.file() }),
    (3, |m| Call::Pause { ms: 20 + m.below(60) as u64 }),
    (2, |m| Call::Mkdir { path: m.deep(), mode: 0o777 }),
];

/// All steps of a seed.
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut maker = Maker { dice: Dice::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(46)) };
    let (mut actor, mut steps) = (0, Vec::with_capacity(count));
    for call in furniture().into_iter().take(count) {
        let number = steps.len();
        steps.push(Step { number, actor: number % ACTORS, user: User::Root, umask: 0, call });
    }
    for number in steps.len()..count {
        if maker.chance(4) {
            actor = maker.below(ACTORS);
        }
        let user = maker.one(&[User::Root, User::Root, User::Root, User::Owner, User::Owner, User::Member]);
        let umask = maker.one(&[0, 0, 0o022, 0o002, 0o077]);
        steps.push(Step { number, actor, user, umask, call: maker.call() });
    }
    steps
}

/// What exists before the random calls begin: directories, files with contents, and all of them open.
fn furniture() -> Vec<Call> {
    let path = |name: &&[u8]| Path(name.to_vec());
    let mut calls: Vec<Call> = DIRECTORIES.iter().map(|name| Call::Mkdir { path: path(name), mode: 0o777 }).collect();
    for actor in 0..ACTORS {
        for slot in 0..SLOTS - 1 {
            let flags = libc::O_CREAT | libc::O_RDWR | libc::O_NONBLOCK;
            let one = Call::Open { slot, path: path(&FILES[slot + actor]), flags, mode: 0o666 };
            calls.extend([one, Call::Pwrite { slot, data: Data { tag: slot as u64, length: 3000 * slot }, at: 0 }]);
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        calls.push(Call::Open { slot: SLOTS - 1, path: path(&DIRECTORIES[actor]), flags, mode: 0 });
    }
    calls
}

struct Maker {
    dice: Dice,
}

impl Maker {
    fn call(&mut self) -> Call {
        let all = || WEIGHTS.iter().chain(&RARE);
        let mut place = self.dice.below(all().map(|(weight, _)| weight).sum());
        for (weight, make) in all() {
            if place < *weight {
                return make(self);
            }
            place -= weight;
        }
        unreachable!("the place is below the sum of the weights")
    }

    fn below(&mut self, n: usize) -> usize {
        self.dice.below(n as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn one<T: Copy>(&mut self, items: &[T]) -> T {
        *self.dice.pick(items).expect("there are some")
    }

    fn slot(&mut self) -> SlotId {
        self.below(SLOTS)
    }

    /// Mostly the slot in which directories are opened.
    fn dir_slot(&mut self) -> SlotId {
        if self.chance(6) { self.slot() } else { SLOTS - 1 }
    }

    fn file_slot(&mut self) -> SlotId {
        if self.chance(20) { self.slot() } else { self.below(SLOTS - 1) }
    }

    fn tens(&mut self, n: usize) -> i64 {
        self.below(n) as i64 * 10
    }

    fn open(&mut self) -> Call {
        let flags = self.open_flags();
        let directory = flags & libc::O_DIRECTORY != 0;
        let (slot, path) = match directory || self.chance(12) {
            true => (self.dir_slot(), self.directory()),
            false => (self.file_slot(), self.file_or_link()),
        };
        Call::Open { slot, path, flags, mode: self.mode() }
    }

    fn openat(&mut self) -> Call {
        Call::Openat {
            slot: self.file_slot(),
            dir: self.dir_slot(),
            path: self.name(),
            flags: self.open_flags(),
            mode: self.mode(),
        }
    }

    fn close(&mut self) -> Call {
        Call::Close { slot: self.slot() }
    }

    fn access(&mut self) -> i32 {
        self.one(&[libc::O_RDWR, libc::O_RDWR, libc::O_RDONLY, libc::O_WRONLY])
    }

    fn open_flags(&mut self) -> i32 {
        if self.chance(30) {
            return libc::O_TMPFILE | libc::O_RDWR | self.one(&[0, libc::O_EXCL]) | libc::O_NONBLOCK;
        }
        let mut flags = self.access() | libc::O_NONBLOCK;
        let choices = [
            (2, libc::O_CREAT),
            (10, libc::O_EXCL),
            (10, libc::O_TRUNC),
            (7, libc::O_APPEND),
            (14, libc::O_DIRECTORY),
            (12, libc::O_NOFOLLOW),
            (25, libc::O_PATH),
            (25, libc::O_SYNC),
            (25, libc::O_DSYNC),
            (30, libc::O_DIRECT),
        ];
        for (one_in, flag) in choices {
            flags |= if self.chance(one_in) { flag } else { 0 };
        }
        // A local file system refuses a direct request that is not a whole aligned page. The end of the file seldom is.
        if flags & (libc::O_APPEND | libc::O_DIRECTORY) != 0 { flags & !libc::O_DIRECT } else { flags }
    }

    fn path(&mut self) -> Path {
        match self.below(10) {
            0..5 => self.file(),
            5..7 => self.directory(),
            7..9 => self.link(),
            _ => self.odd(),
        }
    }

    fn file_or_link(&mut self) -> Path {
        if self.chance(8) { self.link() } else { self.file() }
    }

    fn file(&mut self) -> Path {
        match self.below(40) {
            0 => self.odd(),
            1 => Path(vec![b'n'; 255]),
            2 => self.directory(),
            _ => Path(self.one(&FILES).to_vec()),
        }
    }

    fn directory(&mut self) -> Path {
        match self.below(20) {
            0 => self.odd(),
            1 => self.file(),
            2 => self.deep(),
            _ => Path(self.one(&DIRECTORIES).to_vec()),
        }
    }

    fn link(&mut self) -> Path {
        if self.chance(20) { self.file() } else { Path(self.one(&LINKS).to_vec()) }
    }

    fn odd(&mut self) -> Path {
        match self.below(16) {
            0 => Path(vec![b'n'; 256]),
            1 => Path(b"d0/".repeat(1366)),
            2 => Path(b"./".repeat(300)),
            _ => Path(self.one(&ODD).to_vec()),
        }
    }

    fn deep(&mut self) -> Path {
        let names = vec!["p"; 1 + self.below(12)];
        Path(names.join("/").into())
    }

    /// The name of an entry.
    fn name(&mut self) -> Path {
        let path = if self.chance(4) { self.directory() } else { self.file() };
        let last = path.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        Path(if self.chance(30) { path.0.clone() } else { last.to_vec() })
    }

    fn lead(&mut self) -> Path {
        if self.chance(30) {
            Path(vec![b'l'; self.one(&[59, 60, 61, 255, 256, 4000, 4095, 4096])])
        } else {
            Path(self.one(&LEADS).to_vec())
        }
    }

    fn mode(&mut self) -> u32 {
        self.one(&MODES)
    }

    fn any_mode(&mut self) -> u32 {
        if self.chance(6) { self.one(&SET_ID) } else { self.one(&MODES) }
    }

    fn id(&mut self) -> i64 {
        self.one(&[-1, -1, 0, 1000, 1001])
    }

    fn length(&mut self) -> usize {
        match self.below(100) {
            0..2 => 0,
            2..40 => self.below(200),
            40..55 => 4096,
            55..90 => self.below(20_000),
            90..99 => self.below(200_000),
            _ => self.below(1_500_000),
        }
    }

    fn lengths(&mut self) -> Vec<usize> {
        (0..1 + self.below(3)).map(|_| self.length()).collect()
    }

    fn data(&mut self) -> Data {
        Data { length: self.length(), tag: self.dice.roll() % 1_000_000 }
    }

    fn several(&mut self) -> Vec<Data> {
        (0..1 + self.below(3)).map(|_| self.data()).collect()
    }

    fn offset(&mut self) -> i64 {
        match self.below(100) {
            0..15 => 0,
            15..30 => self.below(200) as i64,
            30..45 => self.below(20) as i64 * PAGE,
            45..55 => (self.below(20) as i64 * PAGE + self.below(3) as i64 - 1).max(0),
            55..60 => self.below(8) as i64 * (64 << 10) + self.below(3) as i64,
            60..90 => self.below(80_000) as i64,
            90..97 => self.below(1 << 20) as i64,
            97..99 => self.below(3 << 20) as i64,
            _ => self.one(&[-1, -4096, 1 << 31, (1 << 32) + 5, (1 << 38) - 1, 1 << 38, (1 << 40) + 4097]),
        }
    }

    fn maybe_offset(&mut self) -> Option<i64> {
        let offset = self.offset();
        self.chance(2).then_some(offset)
    }

    fn offset_or_position(&mut self) -> i64 {
        if self.chance(5) { -1 } else { self.offset() }
    }

    fn page(&mut self) -> i64 {
        if self.chance(2) { 0 } else { self.below(20) as i64 }
    }

    fn pwritev2(&mut self) -> Call {
        let flags = self.one(&[0, libc::RWF_APPEND, libc::RWF_DSYNC, libc::RWF_SYNC]);
        Call::Pwritev2 { slot: self.file_slot(), data: self.several(), at: self.offset_or_position(), flags }
    }

    fn fallocate(&mut self) -> Call {
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let modes = [
            0,
            0,
            keep,
            libc::FALLOC_FL_PUNCH_HOLE | keep,
            libc::FALLOC_FL_PUNCH_HOLE | keep,
            libc::FALLOC_FL_PUNCH_HOLE,
            libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_ZERO_RANGE | keep,
            libc::FALLOC_FL_COLLAPSE_RANGE,
            libc::FALLOC_FL_INSERT_RANGE,
        ];
        Call::Fallocate {
            slot: self.file_slot(),
            mode: self.one(&modes),
            at: self.offset(),
            length: self.length() as i64,
        }
    }

    fn statx(&mut self) -> Call {
        let flags = self.one(&[0, libc::AT_STATX_FORCE_SYNC, libc::AT_SYMLINK_NOFOLLOW]);
        let mask = self.one(&[BASIC, libc::STATX_SIZE, libc::STATX_MTIME, libc::STATX_NLINK | libc::STATX_MODE, 0]);
        Call::Statx { path: self.path(), flags, mask }
    }

    fn given(&mut self) -> Given {
        match self.below(8) {
            0..2 => Given::Now,
            2..4 => Given::Omit,
            4 => Given::At(0, 0),
            5 => Given::At(1_000_000_000, 999_999_999),
            6 => Given::At(self.one(&[-1, 4_102_444_800, 1 << 31]), self.one(&[0, 1, 1_000_000_000])),
            _ => Given::At(1_000_000_000 + self.below(1_000_000) as i64, self.below(1_000_000_000) as i64),
        }
    }

    fn target(&mut self) -> Target {
        match self.below(5) {
            0 => Target::Link(self.path()),
            1..3 => Target::Slot(self.slot()),
            _ => Target::Path(self.path()),
        }
    }

    fn xattr(&mut self) -> Path {
        match self.below(20) {
            0 => Path([&b"user."[..], &[b'x'; 250]].concat()),
            1 => Path([&b"user."[..], &[b'x'; 251]].concat()),
            _ => Path(self.one(&XATTRS).to_vec()),
        }
    }

    /// Short, as a local file system has 4 KiB for all values of a file.
    fn value(&mut self) -> Data {
        Data { length: self.below(200), tag: self.dice.roll() % 1_000_000 }
    }

    fn acl(&mut self) -> Call {
        const ANY: u32 = u32::MAX;
        let entries: &[(u16, u16, u32)] = self.one(&[
            &[(1, 7, ANY), (4, 5, ANY), (32, 5, ANY)][..],
            &[(1, 6, ANY), (4, 4, ANY), (32, 0, ANY)],
            &[(1, 7, ANY), (2, 6, 1001), (4, 4, ANY), (16, 6, ANY), (32, 0, ANY)],
            &[(1, 6, ANY), (4, 6, ANY), (8, 7, 1000), (16, 7, ANY), (32, 4, ANY)],
            &[(1, 6, ANY), (2, 7, 1000), (2, 5, 1001), (4, 6, ANY), (16, 5, ANY), (32, 4, ANY)],
            &[(1, 7, ANY)],
            &[],
        ]);
        let path = if self.chance(2) { self.directory() } else { self.path() };
        Call::SetAcl { path, default: self.chance(2), entries: entries.to_vec() }
    }

    fn lock_kind(&mut self) -> i32 {
        self.one(&[libc::F_RDLCK, libc::F_WRLCK, libc::F_WRLCK, libc::F_UNLCK])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_one_sequence() {
        let shown = |seed| steps(seed, 500).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
    }

    #[test]
    fn a_thousand_steps_make_nearly_every_kind_of_call() {
        let kinds = |seed| steps(seed, 1000).iter().map(|step| step.call.kind()).collect::<BTreeSet<_>>();
        for seed in 0..4 {
            assert!(kinds(seed).len() >= 60, "seed {seed}: {:?}", kinds(seed));
        }
    }
}
