//! Offsets and sizes at their limits.

use std::{
    fs::{self, File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
};

use crate::{common::mounts::Mounts, done, same_answers};

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
    // Sparse, and longer than the longest file of ext4.
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
