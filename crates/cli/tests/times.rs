//! Times of files as two mounts see them, compared with a local file system step by step: they change in the same
//! steps. Needs root and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs::{self, File, FileTimes, OpenOptions, Permissions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use common::{
    forebay,
    mounts::{Mounts, run, soon},
};

/// Steps per seed; each is done on the cluster and on a local file system.
const STEPS: usize = 60;

/// Random numbers without a clock: the same seed gives the same steps (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

/// The change of one step, through an open descriptor or by name.
#[derive(Clone, Copy, Debug)]
enum Step {
    SetTimes { seconds: u64 },
    SetTimesNow,
    Mode(u32),
    Owner(u32),
    Truncate { bytes: u64 },
    CutOpen { bytes: u64 },
    Write { offset: u64, bytes: usize },
    Append { bytes: usize },
    Mapped { page: u64 },
    Allocate { mode: i32, offset: i64, bytes: i64 },
    Copy { from: i64, to: i64, bytes: usize },
    Sync,
    Reopen,
    Restart,
}

impl Step {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(20) {
            0..=3 => Self::SetTimes { seconds: [1, 1_000_000_000, 4_000_000_000][dice.below(3) as usize] },
            4 => Self::SetTimesNow,
            5 => Self::Mode(0o600 + dice.below(8) as u32),
            6 => Self::Owner(dice.below(5) as u32),
            7 => Self::Truncate { bytes: dice.below(200_000) },
            8 => Self::CutOpen { bytes: dice.below(200_000) },
            9..=11 => Self::Write { offset: dice.below(200_000), bytes: 1 + dice.below(5000) as usize },
            12 => Self::Write { offset: dice.below(200_000), bytes: 300_000 + dice.below(1_000_000) as usize },
            13 => Self::Append { bytes: 1 + dice.below(5000) as usize },
            14 => Self::Mapped { page: dice.below(16) },
            15 => {
                let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                let mode = [0, libc::FALLOC_FL_KEEP_SIZE, punch, libc::FALLOC_FL_ZERO_RANGE][dice.below(4) as usize];
                Self::Allocate { mode, offset: dice.below(300_000) as i64, bytes: 1 + dice.below(100_000) as i64 }
            }
            16 => Self::Copy { from: 0, to: 400_000, bytes: 1 + dice.below(3000) as usize },
            17 => Self::Sync,
            18 => Self::Reopen,
            _ => Self::Restart,
        }
    }

    /// Applies the step to the file at `path`, which `file` has open. The caller does a restart.
    fn apply(self, path: &Path, file: &mut File) {
        match self {
            Self::SetTimes { seconds } => set_time(path, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
            Self::SetTimesNow => {
                let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
                // SAFETY: a string that outlives the call.
                let done = unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0) };
                assert_eq!(done, 0);
            }
            Self::Mode(mode) => fs::set_permissions(path, Permissions::from_mode(mode)).expect("it has a mode"),
            Self::Owner(uid) => chown(path, Some(uid), None).expect("it has an owner"),
            Self::Truncate { bytes } => {
                let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
                // SAFETY: a string that outlives the call.
                assert_eq!(unsafe { libc::truncate(path.as_ptr(), bytes as i64) }, 0);
            }
            Self::CutOpen { bytes } => file.set_len(bytes).expect("it is cut"),
            Self::Write { offset, bytes } => file.write_all_at(&vec![7; bytes], offset).expect("it is written"),
            Self::Append { bytes } => {
                let end = OpenOptions::new().append(true).open(path).expect("it opens");
                std::io::Write::write_all(&mut &end, &vec![8; bytes]).expect("it is appended");
            }
            Self::Mapped { page } => store(file, page),
            Self::Allocate { mode, offset, bytes } => {
                // SAFETY: a call on a descriptor that is open.
                let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) };
                assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
            }
            Self::Copy { mut from, mut to, bytes } => {
                // The kernel limits the copy by the size that it knows, so it asks for the size first.
                file.metadata().expect("it is open");
                let fd = file.as_raw_fd();
                // SAFETY: a call on a descriptor that is open, and two offsets that outlive it.
                let copied = unsafe { libc::copy_file_range(fd, &mut from, fd, &mut to, bytes, 0) };
                assert!(copied >= 0, "{}", std::io::Error::last_os_error());
            }
            Self::Sync => file.sync_all().expect("it is synced"),
            Self::Reopen => *file = open(path),
            Self::Restart => {}
        }
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it opens")
}

fn set_time(path: &Path, to: SystemTime) {
    // By name: a writable descriptor would be another writer.
    let times = FileTimes::new().set_modified(to).set_accessed(to);
    OpenOptions::new().read(true).open(path).expect("it opens").set_times(times).expect("it has a time");
}

/// Stores to a page through a mapping, within the file, and waits until it is written back.
fn store(file: &File, page: u64) {
    let bytes = file.metadata().expect("it is open").len();
    if bytes <= page * 4096 {
        return;
    }
    let (both, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a mapping of a page that the file has, of which a byte is written before it ends.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 4096, both, shared, file.as_raw_fd(), (page * 4096) as i64);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>().write_volatile(9);
        assert_eq!(libc::msync(at, 4096, libc::MS_SYNC), 0);
        libc::munmap(at, 4096);
    }
}

/// Modification and change time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    mtime: i128,
    ctime: i128,
}

impl Times {
    fn of(path: &Path) -> Self {
        let meta = fs::metadata(path).expect("it is there");
        let ns = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self { mtime: ns(meta.mtime(), meta.mtime_nsec()), ctime: ns(meta.ctime(), meta.ctime_nsec()) }
    }

    /// What a program sees that checks the times twice: has the modification time changed, is it the one that was set,
    /// and how has the change time moved. The change time never goes back.
    fn since(self, before: Self, given: Option<u64>) -> (bool, bool, std::cmp::Ordering) {
        let is_given = given.is_some_and(|seconds| self.mtime == i128::from(seconds) * 1_000_000_000);
        (self.mtime != before.mtime, is_given, self.ctime.cmp(&before.ctime))
    }
}

/// One file, open on all mounts, and its counterpart on a local file system.
struct Scene {
    mounts: Mounts,
    /// A mount that sends every write before it acknowledges it.
    plain: PathBuf,
    local: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Option<Self> {
        let mounts = Mounts::new(name)?;
        let base = PathBuf::from(mounts.scratch.path());
        let (plain, local) = (base.join("plain"), base.join("local"));
        fs::create_dir(&plain).expect("a directory is made");
        fs::create_dir(&local).expect("a directory is made");
        run(forebay().args(["mount", &mounts.cluster()]).arg(&plain).args(["-o", "writeback=0"]));
        for (name, count) in [("striped", "2"), ("single", "1")] {
            fs::create_dir(mounts.first.join(name)).expect("a directory is made");
            fs::create_dir(local.join(name)).expect("a directory is made");
            run(forebay().args(["setstripe", "-S", "64KiB", "-c", count]).arg(mounts.first.join(name)));
        }
        Some(Self { mounts, plain, local })
    }

    /// Runs the same steps on the cluster and locally. After each step it compares which times have changed, on a
    /// random mount.
    fn compare(&self, dir: &str, name: &str, seed: u64, steps: usize, restarts: bool) {
        let mut dice = Dice(seed);
        let path = |base: &Path| base.join(dir).join(name);
        let here = [path(&self.mounts.first), path(&self.mounts.second), path(&self.plain)];
        let there = path(&self.local);
        let first = 1 + dice.below(3000) as usize;
        // Closed at once the file is inline on the MDT; if it stays open it goes to OSTs.
        fs::write(&here[0], vec![1; first]).expect("it is written");
        fs::write(&there, vec![1; first]).expect("it is written");
        let mut files: Vec<(File, File)> = here.iter().map(|path| (open(path), open(&there))).collect();
        let mut before = (Times::of(&here[0]), Times::of(&there));
        // `is_replayed`: a replayed change gets a new time from the server, until the next change.
        let (mut trace, mut is_given, mut is_replayed) = (Vec::new(), false, false);
        for _ in 0..steps {
            let (step, actor) = (Step::any(&mut dice), dice.below(3) as usize);
            trace.push((actor, step));
            step.apply(&here[actor], &mut files[actor].0);
            step.apply(&there, &mut files[actor].1);
            if matches!(step, Step::Restart) && restarts {
                self.mounts.kill_servers();
                self.mounts.bring_back();
            }
            let given = if let Step::SetTimes { seconds } = step { Some(seconds) } else { None };
            let looker = dice.below(3) as usize;
            let after = (Times::of(&here[looker]), Times::of(&there));
            let (ours, theirs) = (after.0.since(before.0, given), after.1.since(before.1, given));
            let is_still = !theirs.0 && !theirs.1;
            is_replayed = match step {
                Step::Restart if restarts => !is_given,
                _ => is_replayed && is_still,
            };
            let may_differ = matches!(step, Step::Restart) && is_replayed && after.0.ctime >= before.0.ctime;
            assert!(
                ours == theirs || may_differ,
                "seed {seed}, {dir}: mount {looker} sees {after:?} after {before:?}: {trace:?}"
            );
            is_given = given.is_some() || is_given && is_still;
            before = after;
        }
        drop(files);
        let seen = Times::of(&here[1]);
        let words = format!("seed {seed}, {dir}: closing moved it: {seen:?} after {before:?}: {trace:?}");
        assert!(seen.mtime == before.0.mtime || is_replayed, "{words}");
        assert!(
            seen.ctime >= before.0.ctime || is_replayed,
            "seed {seed}, {dir}: {seen:?} after {before:?}: {trace:?}"
        );
        // Each close sends the times that its writer knows; close(2) does not wait for that.
        let agree = || here.iter().all(|path| Times::of(path) == Times::of(&here[1]));
        assert!(soon(agree), "seed {seed}, {dir}: {trace:?}");
        fs::remove_file(&here[0]).expect("it is removed");
        fs::remove_file(&there).expect("it is removed");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = forebay().args(["umount", "--force"]).arg(&self.plain).output();
    }
}

/// open |on A, times set on B| write, close | both times change
#[test]
fn a_write_after_another_mount_has_set_the_times_moves_them() {
    let Some(mounts) = Mounts::new("set-times") else { return };
    for count in ["1", "2"] {
        let (dir, name) = (mounts.first.join(count), format!("{count}/f"));
        fs::create_dir(&dir).expect("a directory is made");
        run(forebay().args(["setstripe", "-S", "64KiB", "-c", count]).arg(&dir));
        for bytes in [100, 100_000, 2_000_000] {
            let (ours, theirs) = (mounts.first.join(&name), mounts.second.join(&name));
            let file = open(&ours);
            file.write_all_at(&vec![1; 200_000], 0).expect("it is written");
            file.sync_all().expect("it is synced");
            set_time(&theirs, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
            let before = Times::of(&theirs);
            assert_eq!(before.mtime, 1_000_000_000_000_000_000);
            file.write_all_at(&vec![2; bytes], 100).expect("it is written");
            let between = Times::of(&theirs);
            assert!(between.mtime > before.mtime && between.ctime > before.ctime, "{bytes} bytes: {between:?}");
            file.write_all_at(&vec![2; bytes], 100).expect("it is written");
            drop(file);
            let after = Times::of(&theirs);
            assert!(after.mtime > between.mtime && after.ctime > between.ctime, "{bytes} bytes: {after:?}");
            fs::remove_file(&ours).expect("it is removed");
        }
    }
}

#[test]
fn times_move_as_on_a_local_file_system_whoever_changes_what() {
    let Some(scene) = Scene::new("times-moves") else { return };
    for seed in 0..30 {
        let dir = ["", "striped", "single"][seed as usize % 3];
        scene.compare(dir, &format!("f{seed}"), seed, STEPS, false);
    }
}

#[test]
fn times_move_as_on_a_local_file_system_while_servers_die() {
    let Some(scene) = Scene::new("times-restarts") else { return };
    for seed in 100..103 {
        let dir = ["", "striped", "single"][seed as usize % 3];
        scene.compare(dir, &format!("f{seed}"), seed, STEPS / 2, true);
    }
}

#[test]
fn nothing_is_left_on_osts_of_an_unwritten_file_whose_times_another_mount_set() {
    let Some(mounts) = Mounts::new("times-left") else { return };
    let [path, there] = [&mounts.first, &mounts.second].map(|mount| mount.join("unwritten"));
    let file = File::create_new(&path).expect("it is made");
    let set = File::open(&there).expect("it opens");
    set.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).expect("set");
    drop((file, set));
    fs::remove_file(&there).expect("gone");
    for mount in [&mounts.second, &mounts.first] {
        run(forebay().arg("umount").arg(mount));
    }
    run(forebay().args(["down", &mounts.cluster()]));
    run(forebay().args(["fsck", &mounts.cluster()]));
}

/// An open directory is removed, through this mount and through another | its change time moves once, and its listing
/// is ENOENT
#[test]
fn a_removed_directory_that_is_open_has_changed_once() {
    let Some(mounts) = Mounts::new("removed-times") else { return };
    for by in [&mounts.first, &mounts.second] {
        let dir = mounts.first.join("d");
        fs::create_dir(&dir).expect("made");
        let open = File::open(&dir).expect("opened");
        let before = open.metadata().expect("there");
        fs::remove_dir(by.join("d")).expect("removed");
        let looks = [(); 2].map(|()| open.metadata().expect("it is open"));
        let changed = looks.each_ref().map(|look| (look.ctime(), look.ctime_nsec()));
        assert!(changed[0] > (before.ctime(), before.ctime_nsec()), "{changed:?}");
        assert_eq!(changed[0], changed[1]);
        assert_eq!((looks[0].nlink(), looks[0].mtime_nsec()), (0, before.mtime_nsec()));
        let mut room = [0_u8; 4096];
        // SAFETY: an open descriptor and room for entries.
        let listed = unsafe { libc::syscall(libc::SYS_getdents64, open.as_raw_fd(), room.as_mut_ptr(), room.len()) };
        assert_eq!((listed, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOENT)));
    }
}
