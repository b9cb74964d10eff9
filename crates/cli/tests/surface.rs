//! The rarer calls of POSIX and Linux through a mount, compared with what the local file system does where it can be. Needs root
//! and /dev/fuse; says so and does nothing where they are not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    collections::BTreeSet,
    ffi::{CString, OsStr},
    fs::{self, File, OpenOptions},
    io::Error,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use common::{
    Scratch, forebay,
    mounts::{Mounts, run, soon},
};

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().expect("an errno")
}

/// What a system call returned, or its errno.
fn done(returned: i64) -> Result<i64, i32> {
    if returned >= 0 { Ok(returned) } else { Err(errno()) }
}

fn tmpfile(dir: &Path, flags: i32) -> Result<File, i32> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE | flags).mode(0o640).open(dir);
    opened.map_err(|error| error.raw_os_error().expect("an errno"))
}

fn link_descriptor(file: &File, to: &Path) -> Result<i64, i32> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no zero byte");
    let to = c(to);
    // SAFETY: strings that outlive the call.
    done(
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) }
            .into(),
    )
}

fn inodes_used(mnt: &Path) -> u64 {
    // SAFETY: all zeros are an answer, which the call fills in.
    let mut space: libc::statvfs = unsafe { std::mem::zeroed() };
    let path = c(mnt);
    // SAFETY: a string and an answer that outlive the call.
    assert_eq!(unsafe { libc::statvfs(path.as_ptr(), &mut space) }, 0);
    space.f_files - space.f_ffree
}

/// A program that holds a file without a name in `dir`, and sleeps.
fn holder(dir: &Path) -> Child {
    let dir = c(dir);
    let mut command = Command::new("sleep");
    command.arg("60").stdin(Stdio::null());
    // SAFETY: open(2) may be called between fork and exec; the path outlives the call.
    unsafe {
        command.pre_exec(move || {
            let descriptor = libc::open(dir.as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600);
            if descriptor < 0 { Err(Error::last_os_error()) } else { Ok(()) }
        });
    }
    command.spawn().expect("it starts")
}

#[test]
fn a_file_without_a_name_survives_every_server_and_may_be_given_one() {
    let Some(mounts) = Mounts::new("nameless") else { return };
    let dir = mounts.first.join("d");
    fs::create_dir(&dir).expect("made");
    let before = (fs::metadata(&dir).expect("there").mtime_nsec(), inodes_used(&mounts.first));
    let (file, never) = (tmpfile(&dir, 0).expect("made"), tmpfile(&dir, libc::O_EXCL).expect("made"));
    file.write_all_at(&[7; 100_000], 0).expect("written");
    assert_eq!(
        file.metadata().map(|meta| (meta.nlink(), meta.len(), meta.mode() & 0o777)).ok(),
        Some((0, 100_000, 0o640))
    );
    assert_eq!((fs::read_dir(&dir).expect("listed").count(), inodes_used(&mounts.second)), (0, before.1 + 2));
    assert_eq!(fs::metadata(&dir).expect("there").mtime_nsec(), before.0);

    mounts.kill_servers();
    mounts.bring_back();
    file.write_all_at(&[8; 50_000], 100_000).expect("written");
    assert_eq!(link_descriptor(&never, &dir.join("never")), Err(libc::ENOENT));
    assert_eq!(link_descriptor(&file, &dir.join("named")), Ok(0));
    assert_eq!(link_descriptor(&file, &dir.join("named")), Err(libc::EEXIST));
    assert_eq!(link_descriptor(&file, &dir.join("again")), Ok(0));
    let seen = fs::read(mounts.second.join("d/named")).expect("the other mount sees it");
    assert!(seen == [vec![7; 100_000], vec![8; 50_000]].concat());
    assert_eq!(fs::metadata(mounts.second.join("d/named")).expect("there").nlink(), 2);

    // One that was given a name stays; one that was not goes with its holder, whether that ends well or not.
    drop((file, never));
    assert!(soon(|| inodes_used(&mounts.first) == before.1 + 1), "{} {}", inodes_used(&mounts.first), before.1);
    let mut holder = holder(&dir);
    assert!(soon(|| inodes_used(&mounts.first) == before.1 + 2));
    holder.kill().and_then(|()| holder.wait()).expect("killed");
    assert!(soon(|| inodes_used(&mounts.first) == before.1 + 1));

    // A directory may go while such a file was made in it.
    let file = tmpfile(&dir, 0).expect("made");
    fs::remove_dir_all(&dir).expect("removed");
    file.write_all_at(b"x", 0).expect("written");
    assert_eq!(link_descriptor(&file, &mounts.first.join("elsewhere")), Ok(0));
    assert_eq!(fs::read(mounts.second.join("elsewhere")).expect("read"), b"x");
    for (path, expected) in [(mounts.first.join("elsewhere"), libc::ENOTDIR), (mounts.first.join("gone"), libc::ENOENT)]
    {
        assert_eq!(tmpfile(&path, 0).map(drop), Err(expected));
    }
}

fn copy(from: (&File, i64), to: (&File, i64), bytes: usize) -> Result<i64, i32> {
    let (mut from_at, mut to_at) = (from.1, to.1);
    let (from, to) = (from.0.as_raw_fd(), to.0.as_raw_fd());
    // SAFETY: open descriptors, and offsets that outlive the call.
    done(unsafe { libc::copy_file_range(from, &mut from_at, to, &mut to_at, bytes, 0) } as i64)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 4096) as u8).collect()
}

#[test]
fn a_range_is_copied_from_file_to_file_as_on_the_local_file_system() {
    let Some(mounts) = Mounts::new("copy") else { return };
    run(forebay().args(["setstripe", "-c", "2", "-S", "64KiB"]).arg(&mounts.first));
    let content = pattern(9_000_001);
    let local = Scratch::new("copy-local");
    let answers = |dir: &Path| {
        fs::write(dir.join("from"), &content).expect("written");
        let open =
            |name: &str| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join(name));
        let (from, to) = (open("from").expect("open"), open("to").expect("open"));
        let append = OpenOptions::new().append(true).create(true).open(dir.join("append")).expect("open");
        let read_only = File::open(dir.join("from")).expect("open");
        vec![
            copy((&from, 0), (&to, 0), content.len()),
            copy((&from, 8_999_990), (&to, 9_000_001), 1000),
            copy((&from, 9_000_001), (&to, 0), 1000),
            copy((&from, 100), (&to, 20_000_000), 5000),
            copy((&from, 0), (&from, 10), 1000),
            copy((&from, 0), (&from, 9_000_001), 1000),
            copy((&from, 0), (&append, 0), 1000),
            copy((&to, 0), (&read_only, 0), 1000),
            copy((&from, 0), (&to, i64::MAX - 1), 1000),
            copy((&from, -1), (&to, 0), 1000),
            copy((&from, 0), (&to, 0), 0),
        ]
    };
    let here = answers(&mounts.first);
    let there = answers(Path::new(local.path()));
    assert_eq!(here, there);
    for name in ["from", "to"] {
        let (here, there) = (fs::read(mounts.second.join(name)), fs::read(Path::new(local.path()).join(name)));
        assert!(here.expect("read") == there.expect("read"), "{name}");
    }
    // Who copies more than one request does is told how much was, and goes on.
    run(Command::new("cp").arg(mounts.first.join("to")).arg(mounts.first.join("cp")));
    run(Command::new("cmp").arg(mounts.first.join("to")).arg(mounts.second.join("cp")));
}

/// A handle as name_to_handle_at(2) gives it: the kernel's structure, with room for 128 bytes.
#[repr(C, align(8))]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

fn handle_of(path: &Path) -> Handle {
    let mut handle = Handle { bytes: 128, kind: 0, handle: [0; 128] };
    let (path, mut mount) = (c(path), 0);
    // SAFETY: a string, a handle with the room it tells of, and a number that outlive the call.
    let told = unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), &raw mut handle, &raw mut mount, 0)
    };
    assert_eq!(told, 0, "{}", Error::last_os_error());
    handle
}

fn open_handle(mnt: &Path, handle: &mut Handle, flags: i32) -> Result<File, i32> {
    let mnt = File::open(mnt).expect("it opens");
    // SAFETY: an open descriptor, and a handle that outlives the call.
    let opened = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mnt.as_raw_fd(), &raw mut *handle, flags) };
    // SAFETY: a descriptor that was just opened, and is nobody else's.
    done(opened).map(|descriptor| unsafe { File::from_raw_fd(descriptor as i32) })
}

#[test]
fn handles_of_files_outlive_the_mount_and_the_servers() {
    let Some(mounts) = Mounts::new("handles") else { return };
    let dir = mounts.first.join("a/b");
    fs::create_dir_all(&dir).expect("made");
    fs::write(dir.join("file"), b"found again").expect("written");
    fs::write(dir.join("gone"), b"x").expect("written");
    let [mut file, mut gone] = ["file", "gone"].map(|name| handle_of(&dir.join(name)));
    let mut directory = handle_of(&dir);
    fs::remove_file(dir.join("gone")).expect("removed");
    run(forebay().arg("umount").arg(&mounts.first));
    mounts.kill_servers();
    // Together with the mount that `up` made.
    mounts.bring_back();
    let found = open_handle(&mounts.first, &mut file, libc::O_RDONLY).expect("it opens");
    assert_eq!(std::io::read_to_string(found).expect("read"), "found again");
    assert_eq!(open_handle(&mounts.first, &mut gone, libc::O_RDONLY).map(drop), Err(libc::ESTALE));
    let found = open_handle(&mounts.first, &mut directory, libc::O_RDONLY | libc::O_DIRECTORY).expect("it opens");
    // The kernel finds the way up from there.
    let way = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).expect("a path");
    assert_eq!(way, dir);
    let names: Vec<_> = fs::read_dir(format!("/proc/self/fd/{}", found.as_raw_fd())).expect("listed").collect();
    assert_eq!(names.len(), 1);
}

/// A call in a directory: what it returned, or its errno.
type Ask<'a> = &'a dyn Fn(&Path) -> Result<i64, i32>;

/// Runs the same calls here and on the local file system, and expects the same answers.
fn same_answers(mnt: &Path, calls: &[(&str, Ask<'_>)]) {
    let local =
        Scratch::new(&format!("{}-local", mnt.parent().and_then(Path::file_name).expect("a name").to_string_lossy()));
    for (what, call) in calls {
        let (here, there) = (call(mnt), call(Path::new(local.path())));
        assert_eq!(here, there, "{what}: here, and on the local file system");
    }
}

fn of<T>(result: std::io::Result<T>) -> Result<i64, i32> {
    result.map(|_| 0).map_err(|error| error.raw_os_error().expect("an errno"))
}

fn make(path: &Path) -> Result<i64, i32> {
    of(File::create(path))
}

#[test]
fn names_are_any_bytes_up_to_their_longest() {
    use std::os::unix::fs::symlink;
    let Some(mounts) = Mounts::new("names") else { return };
    let long = |bytes: usize| "n".repeat(bytes);
    same_answers(
        &mounts.first,
        &[
            ("255 bytes", &|dir| make(&dir.join(long(255)))),
            ("256 bytes", &|dir| make(&dir.join(long(256)))),
            ("a directory of 256", &|dir| of(fs::create_dir(dir.join(long(256))))),
            ("to look for 256", &|dir| of(fs::metadata(dir.join(long(256))))),
            ("a link with 4095", &|dir| of(symlink(long(4095), dir.join("l1")))),
            ("a link with 4096", &|dir| of(symlink(long(4096), dir.join("l2")))),
            ("an empty link", &|dir| of(symlink("", dir.join("l3")))),
            ("a file as a directory", &|dir| make(&dir.join(long(255)).join("x"))),
            ("dot", &|dir| of(fs::create_dir(dir.join(".")))),
            ("to remove dot", &|dir| of(fs::remove_dir(dir.join(".")))),
            ("to rename a directory into itself", &|dir| {
                of(fs::create_dir(dir.join("d")).and_then(|()| fs::rename(dir.join("d"), dir.join("d/e"))))
            }),
        ],
    );
    let dir = mounts.first.join("bytes");
    fs::create_dir(&dir).expect("made");
    let names: BTreeSet<Vec<u8>> =
        (1..=255u8).filter(|byte| *byte != b'/').map(|byte| vec![byte, b'x', byte]).collect();
    names.iter().for_each(|name| assert_eq!(make(&dir.join(OsStr::from_bytes(name))), Ok(0), "{name:?}"));
    let seen = fs::read_dir(mounts.second.join("bytes")).expect("listed");
    let seen: BTreeSet<Vec<u8>> = seen.map(|entry| entry.expect("an entry").file_name().into_vec()).collect();
    assert_eq!(seen, names);
    let mut deep = mounts.first.clone();
    for _ in 0..200 {
        deep.push("deep");
        fs::create_dir(&deep).expect("made");
    }
    fs::write(deep.join("f"), b"x").expect("written");
    assert_eq!(fs::metadata(deep.join("f")).expect("there").len(), 1);
    // Deeper than any path that the kernel takes.
    let mut held = File::open(&deep).expect("open");
    for _ in 0..20 {
        let at = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())).join(long(255));
        fs::create_dir(&at).expect("made");
        (deep, held) = (deep.join(long(255)), File::open(&at).expect("open"));
    }
    fs::write(format!("/proc/self/fd/{}/g", held.as_raw_fd()), b"x").expect("written");
    let deepest = deep.join("g").display().to_string();
    for words in [&["find", "-name", "g", "-stripe-count", "1"][..], &["getstripe", "-r", "-q"]] {
        let output =
            forebay().arg(words[0]).arg(mounts.first.join("deep")).args(&words[1..]).output().expect("it runs");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && shown.lines().any(|line| line == deepest), "{}", common::words(&output));
    }
}

#[test]
fn offsets_at_the_limits_are_answered_as_by_the_local_file_system() {
    let Some(mounts) = Mounts::new("offsets") else { return };
    let open = |dir: &Path| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join("f")).expect("open")
    };
    // SAFETY: an open descriptor, and a byte that outlives the call.
    let write =
        |dir: &Path, at: i64| done(unsafe { libc::pwrite(open(dir).as_raw_fd(), c"x".as_ptr().cast(), 1, at) } as i64);
    let read = |dir: &Path, at: i64| {
        let mut byte = [0u8; 1];
        // SAFETY: an open descriptor, and what is given outlives the call.
        done(unsafe { libc::pread(open(dir).as_raw_fd(), byte.as_mut_ptr().cast(), 1, at) } as i64)
    };
    // SAFETY: an open descriptor, and what is given outlives the call.
    let seek = |dir: &Path, at: i64, whence: i32| done(unsafe { libc::lseek(open(dir).as_raw_fd(), at, whence) });
    // SAFETY: an open descriptor, and what is given outlives the call.
    let cut = |dir: &Path, at: i64| done(unsafe { libc::ftruncate(open(dir).as_raw_fd(), at) }.into());
    let allocate = |dir: &Path, mode: i32, at: i64, bytes: i64| {
        // SAFETY: an open descriptor, and what is given outlives the call.
        done(unsafe { libc::fallocate(open(dir).as_raw_fd(), mode, at, bytes) }.into())
    };
    let (keep, punch, zero) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE);
    same_answers(
        &mounts.first,
        &[
            ("write before the start", &|dir| write(dir, -1)),
            ("write at the end of all", &|dir| write(dir, i64::MAX)),
            ("write beyond what a file can hold", &|dir| write(dir, i64::MAX - 1)),
            ("read before the start", &|dir| read(dir, -1)),
            ("read at the end of all", &|dir| read(dir, i64::MAX)),
            ("read far beyond the end", &|dir| read(dir, 1 << 40)),
            ("cut to less than nothing", &|dir| cut(dir, -1)),
            ("cut to more than all", &|dir| cut(dir, i64::MAX)),
            ("write", &|dir| write(dir, 9999)),
            ("seek before the start", &|dir| seek(dir, -1, libc::SEEK_SET)),
            ("seek from the end", &|dir| seek(dir, -1, libc::SEEK_END)),
            ("seek data before the start", &|dir| seek(dir, -1, libc::SEEK_DATA)),
            ("seek data at the end", &|dir| seek(dir, 10_000, libc::SEEK_DATA)),
            ("seek a hole beyond the end", &|dir| seek(dir, 10_001, libc::SEEK_HOLE)),
            ("seek nothing known", &|dir| seek(dir, 0, 77)),
            ("allocate nothing", &|dir| allocate(dir, 0, 0, 0)),
            ("allocate before the start", &|dir| allocate(dir, 0, -1, 10)),
            ("allocate less than nothing", &|dir| allocate(dir, 0, 0, -10)),
            ("allocate to the end of all", &|dir| allocate(dir, 0, i64::MAX - 5, 10)),
            ("punch and extend", &|dir| allocate(dir, punch, 0, 10)),
            ("punch and zero", &|dir| allocate(dir, punch | zero | keep, 0, 10)),
            ("punch", &|dir| allocate(dir, punch | keep, 0, 4096)),
            ("zero beyond the end", &|dir| allocate(dir, zero, 8192, 8192)),
            ("zero beyond the end, the size kept", &|dir| allocate(dir, zero | keep, 16384, 8192)),
            ("the size after it", &|dir| seek(dir, 0, libc::SEEK_END)),
            ("allocate, the size kept", &|dir| allocate(dir, keep, 65536, 4096)),
            ("the size after that", &|dir| seek(dir, 0, libc::SEEK_END)),
            ("allocate a directory", &|dir| {
                // SAFETY: an open descriptor, and what is given outlives the call.
                done(unsafe { libc::fallocate(File::open(dir).expect("open").as_raw_fd(), 0, 0, 10) }.into())
            }),
            ("an unknown mode", &|dir| allocate(dir, 0x100, 0, 10)),
        ],
    );
    // Sparse, and longer than ext4 has files.
    let file = open(&mounts.first);
    let far = (16 << 40) - 5;
    file.write_all_at(b"the end is near", far).expect("written");
    assert_eq!(fs::metadata(mounts.second.join("f")).expect("there").len(), far + 15);
    let mut seen = [1; 20];
    File::open(mounts.second.join("f")).expect("open").read_exact_at(&mut seen, far - 5).expect("read");
    assert_eq!(&seen, b"\0\0\0\0\0the end is near");
    assert!(seek(&mounts.second, 1 << 20, libc::SEEK_DATA).expect("there is data") >= far as i64 - 65536);
    assert!(fs::metadata(mounts.second.join("f")).expect("there").blocks() < 1000);
    assert_eq!(cut(&mounts.first, 1 << 60), Ok(0));
    assert_eq!(
        (cut(&mounts.first, (1 << 60) + 1), write(&mounts.first, 1 << 60)),
        (Err(libc::EFBIG), Err(libc::EFBIG))
    );
    assert_eq!(allocate(&mounts.first, 0, 1 << 60, 1), Err(libc::EFBIG));
}

/// `words` of a shell, as user and group `user`, in `dir`.
fn as_user(user: u32, dir: &Path, words: &str) -> bool {
    let user = user.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", words]).current_dir(dir);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs").success()
}

/// 40 groups beside one's own, the one that counts among the last | the kernel's check, and the server's: names made, lists set
#[test]
fn supplementary_groups_count_however_many() {
    let Some(mounts) = Mounts::new("groups") else { return };
    let local = Scratch::new("groups-local");
    fs::set_permissions(local.path(), PermissionsExt::from_mode(0o755)).expect("set");
    let numbers: Vec<String> = (60_000..60_040).map(|group: u32| group.to_string()).collect();
    let answers = |base: &Path| {
        let dir = base.join("d");
        fs::create_dir(&dir).expect("made");
        fs::write(dir.join("f"), b"x").expect("written");
        for (name, mode) in [("", 0o2070), ("f", 0o060)] {
            std::os::unix::fs::chown(dir.join(name), Some(0), Some(60_038)).expect("given");
            fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).expect("set");
        }
        let with = |groups: &[String], words: &str| {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", "4242", "--regid", "4242", "--groups", &groups.join(",")])
                .args(["sh", "-c", words]);
            command.current_dir(base).stderr(Stdio::null()).status().expect("it runs").success()
        };
        let words = [
            "cat d/f > /dev/null",
            "echo y >> d/f",
            ": > d/made",
            "mkdir d/dir",
            "ln -s x d/link",
            "ln d/made d/again",
            "mv d/made d/moved",
            "chgrp 60031 d/moved",
            "chgrp 60050 d/moved",
            "chmod 2755 d/moved",
            "rm d/again && rmdir d/dir",
        ];
        let mut answers = Vec::new();
        for words in words {
            answers.push((words, with(&numbers[..38], words), with(&numbers, words)));
        }
        let moved = fs::metadata(dir.join("moved")).expect("made");
        (answers, moved.gid(), moved.mode())
    };
    let (ours, theirs) = (answers(&mounts.first), answers(Path::new(local.path())));
    assert_eq!(ours, theirs);
    let refused = |words: &str| words.contains("60050");
    assert!(ours.0.iter().all(|(words, without, with)| !without && *with != refused(words)), "{ours:?}");
}

fn set_attribute(path: &Path, name: &str, value: &[u8], flags: i32) -> Result<i64, i32> {
    let (path, name) = (c(path), CString::new(name).expect("no zero byte"));
    // SAFETY: strings and bytes that outlive the call.
    done(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) }.into())
}

fn attribute(path: &Path, name: &str) -> Result<Vec<u8>, i32> {
    let (path, name) = (c(path), CString::new(name).expect("no zero byte"));
    let mut value = vec![0_u8; 1 << 16];
    // SAFETY: strings, and room for the value, that outlive the call.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(done(length as i64)? as usize);
    Ok(value)
}

fn attributes(path: &Path) -> BTreeSet<String> {
    let path = c(path);
    let mut names = vec![0_u8; 1 << 16];
    // SAFETY: a string, and room for the names, that outlive the call.
    let length = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).expect("they are listed"));
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// user, trusted and security attributes of files, directories and links, and flags | the answers of the local file system; the
/// same from the other mount after the servers died; others see no trusted ones
#[test]
fn extended_attributes_of_each_kind_are_those_of_the_local_file_system() {
    let Some(mounts) = Mounts::new("attributes") else { return };
    let local = Scratch::new("attributes-local");
    fs::set_permissions(local.path(), PermissionsExt::from_mode(0o755)).expect("set");
    let answers = |base: &Path| {
        let (file, dir, fifo) = (base.join("xf"), base.join("xd"), base.join("xp"));
        fs::write(&file, b"").expect("made");
        fs::create_dir(&dir).expect("made");
        // SAFETY: a string that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(c(&fifo).as_ptr(), 0o644) }, 0);
        let mut answers = Vec::new();
        for path in [&file, &dir, &fifo] {
            for name in ["user.a", "trusted.b", "security.c", "nothing.d", "user.", "user.long"] {
                let value = if name == "user.long" { vec![7; 3000] } else { vec![0, 1, 255] };
                answers.push((set_attribute(path, name, &value, libc::XATTR_REPLACE), Ok(vec![])));
                answers.push((set_attribute(path, name, &value, 0), attribute(path, name)));
                answers.push((set_attribute(path, name, b"", libc::XATTR_CREATE), attribute(path, name)));
            }
            answers.push((Ok(0), attribute(path, "user.none")));
        }
        let seen: Vec<_> = [&file, &dir, &fifo].map(|path| attributes(path)).to_vec();
        (answers, seen)
    };
    let (ours, theirs) = (answers(&mounts.first), answers(Path::new(local.path())));
    assert_eq!(ours, theirs);
    assert!(ours.1[0].contains("trusted.b") && ours.1[0].contains("security.c") && ours.1[0].contains("user.long"));
    mounts.kill_servers();
    mounts.bring_back();
    let other = mounts.second.join("xf");
    assert_eq!((attributes(&other), attribute(&other, "trusted.b")), (ours.1[0].clone(), Ok(vec![0, 1, 255])));
    let python = "import os,sys; names=os.listxattr('xf'); sys.exit('trusted.b' in names or 'user.a' not in names)";
    for base in [&mounts.first, Path::new(local.path())] {
        assert!(as_user(4242, base, &format!("command -v python3 >/dev/null || exit 0; python3 -c \"{python}\"")));
    }
}

#[test]
fn groups_sticky_bits_and_times_follow_the_rules_of_the_local_file_system() {
    let Some(mounts) = Mounts::new("rules") else { return };
    let local = Scratch::new("rules-local");
    fs::set_permissions(local.path(), PermissionsExt::from_mode(0o755)).expect("set");
    let answers = |base: &Path| {
        let dir = base.join("d");
        fs::create_dir(&dir).expect("made");
        std::os::unix::fs::chown(&dir, Some(0), Some(77)).expect("given");
        let mode = |mode: u32| fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).expect("set");
        let of =
            |name: &str| fs::symlink_metadata(dir.join(name)).map(|meta| (meta.mode(), meta.uid(), meta.gid())).ok();
        let mut answers = Vec::new();
        let mut say = |what: &str, did: bool, of: Option<(u32, u32, u32)>| answers.push((what.to_owned(), did, of));

        mode(0o2777);
        say("a file takes the group", as_user(4242, &dir, "umask 022; : > f; chmod 2755 f"), of("f"));
        say("a directory the bit too", as_user(4242, &dir, "mkdir s"), of("s"));
        say("a link the group", as_user(4242, &dir, "ln -s f l"), of("l"));
        mode(0o1777);
        say("sticky: others' names stay", as_user(4343, &dir, "rm -f f"), of("f"));
        say("nor are they moved", as_user(4343, &dir, "mv f g"), of("f"));
        say("nor replaced", as_user(4343, &dir, ": > h; mv h f"), of("f"));
        say("one's own go", as_user(4242, &dir, "rm -f l"), of("l"));
        mode(0o777);
        say("not sticky: they go", as_user(4343, &dir, "mv f g"), of("g"));

        fs::write(dir.join("t"), b"x").expect("written");
        fs::set_permissions(dir.join("t"), PermissionsExt::from_mode(0o666)).expect("set");
        say("who may write may say now", as_user(4343, &dir, "touch t"), of("t"));
        say("but no other time", as_user(4343, &dir, "touch -d 2001-02-03 t"), None);
        say("nor one of the two", as_user(4343, &dir, "touch -a t"), None);
        fs::set_permissions(dir.join("t"), PermissionsExt::from_mode(0o644)).expect("set");
        say("who may not write says nothing", as_user(4343, &dir, "touch t"), None);
        std::os::unix::fs::chown(dir.join("t"), Some(4343), Some(1)).expect("given");
        say("the owner says any", as_user(4343, &dir, "touch -d 2001-02-03 t && touch -a -d 2002-02-03 t"), of("t"));
        let times = fs::metadata(dir.join("t")).map(|meta| (meta.atime(), meta.mtime())).expect("there");
        say(&format!("{times:?}"), true, None);
        say("the owner gives no file away", as_user(4343, &dir, "chown 0 t"), of("t"));
        say("nor takes a foreign group", as_user(4343, &dir, "chgrp 77 t"), of("t"));
        say("set-group-id goes with a foreign group", as_user(4343, &dir, "chmod 2755 t"), of("t"));
        answers
    };
    assert_eq!(answers(&mounts.first), answers(Path::new(local.path())));
    // Left alone is left alone, to the nanosecond.
    let path = c(&mounts.first.join("d/t"));
    let before = fs::metadata(mounts.second.join("d/t")).expect("there");
    let omit = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let exact = libc::timespec { tv_sec: 5, tv_nsec: 123_456_789 };
    // SAFETY: a string and two times that outlive the call.
    assert_eq!(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), [omit, exact].as_ptr(), 0) }, 0);
    let after = fs::metadata(mounts.second.join("d/t")).expect("there");
    assert_eq!((after.atime(), after.atime_nsec()), (before.atime(), before.atime_nsec()));
    assert_eq!((after.mtime(), after.mtime_nsec()), (5, 123_456_789));
}

/// A directory as readdir(3) gives it: names and, before each, telldir(3).
struct Listing(*mut libc::DIR);

impl Listing {
    fn open(path: &Path) -> Self {
        // SAFETY: a string that outlives the call.
        let dir = unsafe { libc::opendir(c(path).as_ptr()) };
        assert!(!dir.is_null());
        Self(dir)
    }

    fn tell(&self) -> libc::c_long {
        // SAFETY: an open directory.
        unsafe { libc::telldir(self.0) }
    }

    fn seek(&self, to: libc::c_long) {
        // SAFETY: an open directory, and a place it told.
        unsafe { libc::seekdir(self.0, to) }
    }

    fn next(&self) -> Option<String> {
        loop {
            // SAFETY: an open directory that nobody else reads.
            let entry = unsafe { libc::readdir(self.0) };
            // SAFETY: the entry is the directory's until its next call; its name ends in NUL.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.as_ref()?.d_name.as_ptr()) };
            let name = name.to_str().expect("UTF-8").to_owned();
            if name != "." && name != ".." {
                return Some(name);
            }
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        // SAFETY: an open directory, used no more.
        unsafe { libc::closedir(self.0) };
    }
}

#[test]
fn a_directory_that_others_change_is_listed_without_a_name_missed_or_told_twice() {
    let Some(mounts) = Mounts::new("listing") else { return };
    let dir = |mnt: &Path| mnt.join("d");
    fs::create_dir(dir(&mounts.first)).expect("made");
    let stays: BTreeSet<String> = (0..3000).map(|number| format!("stays-{number}")).collect();
    stays.iter().for_each(|name| drop(File::create(dir(&mounts.first).join(name)).expect("made")));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (who, mnt) in [&mounts.first, &mounts.second].into_iter().enumerate() {
            let over = &over;
            scope.spawn(move || {
                for round in 0.. {
                    let name = dir(mnt).join(format!("comes-{who}-{}", round % 300));
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    match round / 300 % 2 {
                        0 => drop(File::create(name).expect("made")),
                        _ => fs::remove_file(name).expect("removed"),
                    }
                }
            });
        }
        for round in 0..6 {
            let listing = Listing::open(&dir(if round % 2 == 0 { &mounts.first } else { &mounts.second }));
            let (mut seen, mut places) = (Vec::new(), Vec::new());
            loop {
                let place = listing.tell();
                let Some(name) = listing.next() else { break };
                places.push((place, name.clone()));
                seen.push(name);
            }
            let all: BTreeSet<&String> = seen.iter().collect();
            let twice = seen.len() - all.len();
            let missed = stays.iter().filter(|name| !all.contains(name)).count();
            // A name that went and came again while the list was read may have come twice, in two places or in one.
            let stayed: Vec<&String> = seen.iter().filter(|name| stays.contains(*name)).collect();
            assert_eq!((stayed.len(), missed), (stays.len(), 0), "round {round}, {twice} names twice");
            // From a place that was told, what follows is what followed, as far as it stayed.
            for (place, name) in places.iter().filter(|(_, name)| stays.contains(name)).step_by(311) {
                listing.seek(*place);
                let found = std::iter::from_fn(|| listing.next()).find(|name| stays.contains(name));
                assert_eq!(found.as_ref(), Some(name), "round {round}, place {place}");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_mount_covers_what_lies_there_and_is_refused_where_one_is_or_nothing_answers() {
    let Some(mounts) = Mounts::new("points") else { return };
    let busy = PathBuf::from(mounts.scratch.path()).join("busy");
    fs::create_dir(&busy).expect("made");
    fs::write(busy.join("under"), b"x").expect("written");
    let held = File::open(busy.join("under")).expect("open");
    fs::write(mounts.first.join("over"), b"y").expect("written");
    let mount = |what: &str, at: &Path, options: &[&str]| {
        let output = forebay().arg("mount").args(options).arg(what).arg(at).output().expect("it runs");
        (output.status.code(), common::words(&output))
    };
    let cluster = mounts.cluster();
    assert_eq!(mount(&cluster, &busy, &[]).0, Some(0));
    assert!(!busy.join("under").exists() && busy.join("over").exists());
    let (code, said) = mount(&cluster, &busy, &[]);
    assert!(code == Some(1) && said.contains("is a mount already"), "{said}");
    run(forebay().arg("umount").arg(&busy));
    assert_eq!(std::io::read_to_string(&held).expect("read"), "x");
    for (options, words) in [("frobnicate", "no such option"), ("commit=soon", "memory, data or commit")] {
        let (code, said) = mount(&cluster, &busy, &["-o", options]);
        assert!(code == Some(2) && said.contains(words), "{options}: {said}");
    }
    // One whose description says that it is another cluster than the one that answers there.
    let file = format!("{cluster}/cluster.toml");
    let described = fs::read_to_string(&file).expect("a description");
    let uuid = described.split('"').nth(1).expect("its uuid");
    fs::write(&file, described.replace(uuid, "01234567-89ab-cdef-0123-456789abcdef")).expect("changed");
    let (code, said) = mount(&cluster, &busy, &[]);
    assert!(code == Some(1) && said.contains(uuid) && said.contains("01234567-89ab"), "{said}");
    fs::write(&file, described).expect("changed back");
    let (code, said) = mount(&cluster, &busy.join("under"), &[]);
    assert!(code == Some(2) && said.contains("not a directory"), "{said}");
    assert!(busy.join("under").exists(), "nothing is mounted there");
    let missing = busy.join("missing");
    let (code, said) = mount(&cluster, &missing, &[]);
    assert!(code == Some(1) && said.contains(&format!("`mkdir {}`", missing.display())), "{said}");
    let helper = Path::new(mounts.scratch.path()).join("mount.forebay");
    let helped = Command::new(&helper).arg(&cluster).arg(&missing).args(["-o", "rw"]).output().expect("it runs");
    assert!(helped.status.code() == Some(32) && common::words(&helped).contains("does not exist"), "{helped:?}");
    assert!(!missing.exists(), "nothing is made");
}

fn allocate(file: &File, mode: i32, offset: i64, bytes: i64) -> Result<i64, i32> {
    // SAFETY: an open descriptor.
    done(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) }.into())
}

#[test]
fn room_that_fallocate_set_aside_is_there_when_the_file_system_is_full() {
    let Some(mounts) = Mounts::new("aside") else { return };
    run(forebay().args(["setstripe", "-c", "2", "-S", "1MiB"]).arg(&mounts.first));
    let available = || {
        let output = Command::new("df").args(["--output=avail", "-B1"]).arg(&mounts.second).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.lines().nth(1).and_then(|line| line.trim().parse::<u64>().ok()).expect("a number")
    };
    let make = |name: &str| File::create_new(mounts.first.join(name)).expect("made");
    // Others are told when the file is closed.
    let blocks = |name: &str| fs::metadata(mounts.first.join(name)).expect("there").blocks() * 512;
    let (before, aside) = (available(), 100 << 20);
    let file = make("aside");
    assert_eq!(allocate(&file, 0, 0, aside), Ok(0));
    let kept = make("kept");
    assert_eq!(allocate(&kept, libc::FALLOC_FL_KEEP_SIZE, 0, 10 << 20), Ok(0));
    assert_eq!((file.metadata().expect("there").len(), kept.metadata().expect("there").len()), (aside as u64, 0));
    assert_eq!((blocks("aside"), blocks("kept")), (aside as u64, 10 << 20));
    assert!(available() <= before - aside as u64 - (10 << 20), "{} of {before}", available());
    // SAFETY: an open descriptor.
    assert_eq!(unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) }, -1, "nothing is written yet");
    assert_eq!(allocate(&file, 0, 0, 1 << 40), Err(libc::ENOSPC));
    assert_eq!(file.metadata().expect("there").len(), aside as u64);

    let filler = make("filler");
    let piece = vec![5; 1 << 20];
    let mut filled = 0;
    let error = loop {
        match filler.write_all_at(&piece, filled) {
            Ok(()) => filled += 1 << 20,
            Err(error) => break error,
        }
        assert!(filled < 1200 << 20);
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    mounts.kill_servers();
    mounts.bring_back();
    assert_eq!(
        filler.write_all_at(&[5; 8 << 20], filled + (1 << 20)).expect_err("still full").raw_os_error(),
        Some(libc::ENOSPC)
    );
    for at in 0..aside as u64 >> 20 {
        file.write_all_at(&piece, at << 20).unwrap_or_else(|error| panic!("MiB {at} of what was set aside: {error}"));
    }
    file.sync_all().expect("durable");
    assert_eq!(blocks("aside"), aside as u64);
    assert!(fs::read(mounts.second.join("aside")).expect("read").iter().all(|byte| *byte == 5));
    // It is given back by a hole, a truncate and a delete.
    assert_eq!(allocate(&kept, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4 << 20), Ok(0));
    assert_eq!(blocks("kept"), 6 << 20);
    kept.set_len(1 << 20).expect("cut");
    assert_eq!(blocks("kept"), 0, "the part that was left is the hole");
    drop((file, filler));
    ["aside", "filler"].iter().for_each(|name| fs::remove_file(mounts.first.join(name)).expect("removed"));
    assert!((0..5).any(|_| soon(|| available() > before - (8 << 20))), "{} of {before}", available());
}

/// fallocate(2) of 100 places far from each other; of one range that is then written, with 100 holes | all are granted; the holes
/// give their room back
#[test]
fn room_may_be_set_aside_in_many_places_and_many_holes_give_it_back() {
    let Some(mounts) = Mounts::new("places") else { return };
    let file = File::create_new(mounts.first.join("many")).expect("made");
    for place in 0..100 {
        assert_eq!(allocate(&file, libc::FALLOC_FL_KEEP_SIZE, place * (1 << 20), 4096), Ok(0), "place {place}");
    }
    let holes = File::create_new(mounts.first.join("holes")).expect("made");
    let bytes = 32 << 20;
    assert_eq!(allocate(&holes, 0, 0, bytes), Ok(0));
    holes.write_all_at(&vec![1; bytes as usize], 0).expect("written");
    holes.sync_all().expect("durable");
    for hole in 0..100 {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(allocate(&holes, mode, hole * (256 << 10), 128 << 10), Ok(0));
    }
    let blocks = || holes.metadata().expect("there").blocks() * 512;
    assert!(soon(|| blocks() == (bytes - (100 << 17)) as u64), "{} bytes", blocks());
}

/// over half of all room is set aside, or written, and deleted, again and again | there is room each time, at once
#[test]
fn room_of_a_deleted_file_is_there_for_the_next() {
    let Some(mounts) = Mounts::new("rotate") else { return };
    let bytes: i64 = 640 << 20;
    for (name, stripes) in [("striped", "2"), ("round", "1")] {
        let dir = mounts.first.join(name);
        fs::create_dir(&dir).expect("made");
        run(forebay().args(["setstripe", "-c", stripes]).arg(&dir));
        let path = dir.join("checkpoint");
        for round in 0..6 {
            let file = File::create_new(&path).expect("made");
            if stripes == "2" {
                assert_eq!(allocate(&file, 0, 0, bytes), Ok(0), "round {round}");
            }
            for at in (0..bytes as u64).step_by(4 << 20) {
                if stripes == "1" || at % (64 << 20) == 0 {
                    file.write_all_at(&vec![round; 4 << 20], at)
                        .unwrap_or_else(|error| panic!("{name} {round} {at}: {error}"));
                }
            }
            drop(file);
            fs::remove_file(&path).expect("removed");
        }
    }
}

/// The process that serves a mount.
fn process_of(mnt: &Path) -> i32 {
    let is_it = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.contains(&&b"mount"[..]) && words.contains(&mnt.as_os_str().as_bytes())
    };
    let pids = fs::read_dir("/proc").expect("listed").flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(is_it).expect("somebody serves it")
}

/// pwritev2(2) with RWF_DSYNC |SIGKILL of the mount's process| | the bytes are there
#[test]
fn one_write_that_is_asked_to_be_durable_is() {
    let Some(mounts) = Mounts::new("dsync") else { return };
    let path = mounts.first.join("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("made");
    file.sync_all().expect("synced");
    let server = process_of(&mounts.first);
    let bytes = [7_u8; 4096];
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    for (number, flag) in [libc::RWF_DSYNC, libc::RWF_SYNC].into_iter().enumerate() {
        // SAFETY: an open descriptor, and bytes that outlive the call.
        let written = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, number as i64 * 4096, flag) };
        assert_eq!(written, 4096, "{}", Error::last_os_error());
    }
    // SAFETY: a process of ours.
    assert_eq!(unsafe { libc::kill(server, libc::SIGKILL) }, 0);
    let seen = fs::read(mounts.second.join("f")).expect("read by the other mount");
    assert!(seen == [7; 8192], "{} bytes", seen.len());
}
