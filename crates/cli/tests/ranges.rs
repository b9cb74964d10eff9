//! Ranges of files: which lock conflicts, where holes are, how much space there is. Needs root and /dev/fuse; without
//! them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs::{self, File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
};

use common::{
    forebay,
    mounts::{Mounts, run, soon},
};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it opens")
}

/// A lock of the open file description.
fn lock(file: &File, command: i32, kind: i32, start: i64, length: i64) -> (i32, i64, i64) {
    // SAFETY: all zeros are a lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_start, lock.l_len) = (kind as i16, libc::SEEK_SET as i16, start, length);
    // SAFETY: a descriptor that is open, and a lock that outlives the call.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) }, 0);
    (lock.l_type.into(), lock.l_start, lock.l_len)
}

#[test]
fn of_several_locks_the_first_one_in_the_way_is_told() {
    let Some(mounts) = Mounts::new("first-lock") else { return };
    let holder = open(&mounts.first.join("f"));
    for (kind, start) in [(libc::F_WRLCK, 50), (libc::F_RDLCK, 10), (libc::F_WRLCK, 30)] {
        lock(&holder, libc::F_OFD_SETLK, kind, start, 5);
    }
    for mount in [&mounts.first, &mounts.second] {
        let asker = open(&mount.join("f"));
        let first = |kind, start| lock(&asker, libc::F_OFD_GETLK, kind, start, 0);
        assert_eq!(first(libc::F_WRLCK, 0), (libc::F_RDLCK, 10, 5));
        assert_eq!(first(libc::F_RDLCK, 0), (libc::F_WRLCK, 30, 5));
        assert_eq!(first(libc::F_WRLCK, 36), (libc::F_WRLCK, 50, 5));
        assert_eq!(first(libc::F_WRLCK, 55).0, libc::F_UNLCK);
    }
}

/// The next data and the next hole, as lseek(2) reports them; -1: there is none.
fn seek(file: &File, offset: i64) -> [i64; 2] {
    // SAFETY: calls on a descriptor that is open.
    [libc::SEEK_DATA, libc::SEEK_HOLE].map(|whence| unsafe { libc::lseek(file.as_raw_fd(), offset, whence) })
}

#[test]
fn holes_begin_and_end_with_blocks_as_on_a_local_file_system() {
    let Some(mounts) = Mounts::new("blocks") else { return };
    let local = Path::new(mounts.scratch.path()).join("local");
    run(forebay().args(["setstripe", "-c", "2", "-S", "64KiB"]).arg(&mounts.first));
    let files = [open(&mounts.first.join("f")), open(&local)];
    let far = 1_i64 << 38;
    // A few bytes each, in the middle of large holes.
    let places = [0, 5000, 40_960, 131_071, (3 << 20) + 7, far - 4096, far + 100, far + 70_000];
    for file in &files {
        places.iter().for_each(|at| file.write_all_at(b"some data", *at as u64).expect("it is written"));
        file.set_len(far as u64 + (1 << 20)).expect("it grows");
        file.sync_all().expect("it is synced");
    }
    let around = |at: &i64| [at - 8192, at - 4096, at - 1, *at, at + 3, at + 9, at + 4095, at + 4096, at + 9000];
    for offset in places.iter().flat_map(around).filter(|offset| *offset >= 0) {
        let [ours, theirs] = [seek(&files[0], offset), seek(&files[1], offset)];
        assert_eq!(ours, theirs, "from {offset}");
    }
    // The last bytes of a file are in its last block.
    files.iter().for_each(|file| file.set_len(far as u64 + 70_009).expect("it is cut"));
    let last = far + 70_004;
    assert_eq!(seek(&files[0], last), [last, far + 70_009]);
    assert_eq!(seek(&files[1], last), [last, far + 70_009]);
    assert_eq!(seek(&open(&mounts.second.join("f")), last), [last, far + 70_009]);
}

/// Bytes that df(1) shows as used, and as available.
fn space(mount: &Path) -> (u64, u64) {
    let path = std::ffi::CString::new(mount.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: a string and a buffer that outlive the call.
    let told = unsafe {
        let mut told: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(path.as_ptr(), &mut told), 0);
        told
    };
    ((told.f_blocks - told.f_bfree) * told.f_frsize, told.f_bavail * told.f_frsize)
}

#[test]
fn available_space_can_be_reserved_and_grants_count_as_free() {
    let Some(mounts) = Mounts::new("set-aside") else { return };
    let (used, _) = space(&mounts.first);
    fs::write(mounts.first.join("small"), vec![1; 100_000]).expect("it is written");
    let file = open(&mounts.first.join("records"));
    file.write_all_at(&[1; 1000], 0).expect("it is written");
    // The mount was granted space for such writes.
    let (after, available) = space(&mounts.first);
    assert!(after < used + (2 << 20), "{after} bytes are used, {used} before");
    let large = open(&mounts.second.join("large"));
    let most = available - (1 << 20);
    // SAFETY: a call on a descriptor that is open.
    let done = unsafe { libc::fallocate(large.as_raw_fd(), 0, 0, most as i64) };
    assert_eq!(done, 0, "{most} of {available}: {}", std::io::Error::last_os_error());
    let meta = large.metadata().expect("it is open");
    assert_eq!(meta.len(), most);
    assert!(space(&mounts.first).1 < 32 << 20, "{:?}", space(&mounts.first));
    // The space is reserved: write at both ends, and in the middle.
    for at in [0, most / 2, most - 10_000] {
        large.write_all_at(&[3; 10_000], at).expect("it is written");
    }
    large.sync_all().expect("it is synced");
    // There is no more space, and the failed request changes nothing.
    let other = open(&mounts.first.join("other"));
    // SAFETY: a call on a descriptor that is open.
    let refused = unsafe { libc::fallocate(other.as_raw_fd(), 0, 0, 1 << 30) };
    assert_eq!((refused, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOSPC)));
    assert_eq!(other.metadata().expect("it is open").size(), 0);
    drop((large, other));
    fs::remove_file(mounts.second.join("large")).expect("it is removed");
    assert!(soon(|| space(&mounts.first).1 + (8 << 20) > available), "{:?} of {available}", space(&mounts.first));
}
