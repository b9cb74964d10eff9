//! Calls that the kernel decides by the size that it knows, on a file that another mount has extended. Needs root and
//! /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs::{self, File, OpenOptions},
    io::{Error, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::fs::FileExt,
    },
    path::Path,
};

use common::mounts::Mounts;

const BEFORE: usize = 1000;
const AFTER: usize = 10_000;

/// A descriptor on the first mount, whose kernel knows the size, of a file that is longer by now.
fn grown(mounts: &Mounts, name: &str, grow: impl Fn(&Path)) -> File {
    let path = mounts.first.join(name);
    fs::write(&path, contents(BEFORE)).expect("written");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
    assert_eq!(file.metadata().expect("attributes").len(), BEFORE as u64);
    grow(&mounts.second.join(name));
    file
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7) as u8 | 1).collect()
}

fn appended(path: &Path) {
    let mut file = OpenOptions::new().append(true).open(path).expect("it opens");
    file.write_all(&contents(AFTER)[BEFORE..]).expect("appended");
}

fn written(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).expect("it opens");
    file.write_all_at(&contents(AFTER)[BEFORE..], BEFORE as u64).expect("written");
}

/// The number of bytes that `step` moves, repeated until it moves none.
fn all(step: impl Fn(i64) -> isize) -> usize {
    let mut at = 0;
    loop {
        let moved = step(at);
        assert!(moved >= 0, "{}", Error::last_os_error());
        if moved == 0 {
            return at as usize;
        }
        at += moved as i64;
    }
}

fn target(mounts: &Mounts, name: &str) -> File {
    let path = mounts.first.join(name);
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).expect("it opens")
}

fn holds(target: &File) {
    let mut bytes = vec![0; AFTER + 1];
    let got = target.read_at(&mut bytes, 0).expect("read");
    assert!(got == AFTER && bytes[..got] == contents(AFTER), "{got} bytes, or others");
}

#[test]
fn copy_file_range_copies_all_of_a_file_that_another_mount_made_longer() {
    let Some(mounts) = Mounts::new("sizes-copy") else { return };
    for (name, grow) in [("a", appended as fn(&Path)), ("w", written)] {
        let (from, to) = (grown(&mounts, name, grow), target(&mounts, "to"));
        let copied = all(|at| {
            let (mut offset_in, mut offset_out) = (at, at);
            // SAFETY: open descriptors, and places that outlive the call.
            unsafe {
                libc::copy_file_range(from.as_raw_fd(), &mut offset_in, to.as_raw_fd(), &mut offset_out, 1 << 20, 0)
            }
        });
        assert_eq!(copied, AFTER, "{name}");
        holds(&to);
    }
}

#[test]
fn sendfile_sends_all_of_a_file_that_another_mount_made_longer() {
    let Some(mounts) = Mounts::new("sizes-send") else { return };
    for (name, grow) in [("a", appended as fn(&Path)), ("w", written)] {
        let (from, to) = (grown(&mounts, name, grow), target(&mounts, "to"));
        let sent = all(|at| {
            let mut offset = at;
            // SAFETY: open descriptors, and a place that outlives the call.
            unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &mut offset, 1 << 20) }
        });
        assert_eq!(sent, AFTER, "{name}");
        holds(&to);
    }
}

/// Also for a file that it has begun to send: the kernel has the page with the previous end.
#[test]
fn splice_moves_what_another_mount_adds_each_time() {
    let Some(mounts) = Mounts::new("sizes-splice") else { return };
    let from = grown(&mounts, "s", |_| ());
    let mut ends = [0; 2];
    // SAFETY: two numbers that the call fills in.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: descriptors that were just opened, and are nobody else's.
    let [mut read, write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    let (mut got, whole) = (Vec::new(), contents(AFTER));
    let other = OpenOptions::new().append(true).open(mounts.second.join("s")).expect("it opens");
    for end in [BEFORE, 1500, 4000, 4097, 8192, 8193, AFTER] {
        if end > BEFORE {
            (&other).write_all(&whole[got.len()..end]).expect("appended");
        }
        while got.len() < end {
            let mut at = got.len() as i64;
            // SAFETY: open descriptors, and a place that outlives the call.
            let n =
                unsafe { libc::splice(from.as_raw_fd(), &mut at, write.as_raw_fd(), std::ptr::null_mut(), 4096, 0) };
            assert!(n > 0, "{} bytes of {end}: {n}", got.len());
            let mut part = vec![0; n as usize];
            read.read_exact(&mut part).expect("what was moved is there");
            got.extend(part);
        }
        assert!(got == whole[..end], "the bytes up to {end}");
    }
}

#[test]
fn seek_end_and_holes_know_the_end_that_another_mount_made() {
    let Some(mounts) = Mounts::new("sizes-seek") else { return };
    let file = grown(&mounts, "e", appended);
    let seek = |offset: i64, whence: i32| {
        // SAFETY: an open descriptor.
        unsafe { libc::lseek(file.as_raw_fd(), offset, whence) }
    };
    assert_eq!(seek(0, libc::SEEK_END), AFTER as i64);
    let file = grown(&mounts, "h", appended);
    let seek = |offset: i64, whence: i32| {
        // SAFETY: an open descriptor.
        unsafe { libc::lseek(file.as_raw_fd(), offset, whence) }
    };
    assert_eq!(seek(BEFORE as i64 + 1, libc::SEEK_DATA), BEFORE as i64 + 1);
    assert_eq!(seek(0, libc::SEEK_HOLE), AFTER as i64);
}

/// Touched by a system call. That fails with EFAULT where a program would get SIGBUS.
#[test]
fn a_mapping_reaches_to_the_end_that_another_mount_made() {
    let Some(mounts) = Mounts::new("sizes-map") else { return };
    let file = grown(&mounts, "m", |_| ());
    // SAFETY: a new mapping, somewhere.
    let map =
        unsafe { libc::mmap(std::ptr::null_mut(), 4 * 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(map, libc::MAP_FAILED);
    let mut ends = [0; 2];
    // SAFETY: two numbers that the call fills in.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: descriptors that were just opened, and are nobody else's.
    let [mut read, write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    let touch = |at: usize| {
        // SAFETY: within the mapping; the kernel looks whether anything is there.
        unsafe { libc::write(write.as_raw_fd(), map.byte_add(at), 1) }
    };
    assert_eq!(touch(BEFORE), 1, "the rest of the last page is there");
    assert_eq!(touch(4096), -1, "and no more");
    appended(&mounts.second.join("m"));
    for at in [BEFORE, 4095, 4096, AFTER - 1] {
        assert_eq!(touch(at), 1, "at {at}: {}", Error::last_os_error());
    }
    let mut bytes = [0; 5];
    read.read_exact(&mut bytes).expect("they are there");
    let whole = contents(AFTER);
    assert_eq!(bytes[1..], [BEFORE, 4095, 4096, AFTER - 1].map(|at| whole[at]));
    assert_eq!(touch(3 * 4096), -1, "the end is where it is");
}

#[test]
fn an_append_by_its_flag_alone_goes_to_the_end_that_another_mount_made() {
    let Some(mounts) = Mounts::new("sizes-append") else { return };
    let file = grown(&mounts, "f", appended);
    let part = libc::iovec { iov_base: b"end".as_ptr().cast_mut().cast(), iov_len: 3 };
    // SAFETY: an open descriptor, and bytes that outlive the call.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, -1, libc::RWF_APPEND) };
    assert_eq!(written, 3);
    let whole = fs::read(mounts.second.join("f")).expect("read");
    assert_eq!(whole.len(), AFTER + 3);
    assert!(whole[..AFTER] == contents(AFTER) && whole[AFTER..] == *b"end");
}

#[test]
fn a_read_sees_all_of_an_empty_file_that_another_mount_made_longer_by_name() {
    let Some(mounts) = Mounts::new("sizes-truncate") else { return };
    for (name, bytes) in [("a", 100), ("b", 45_056), ("c", 300_000)] {
        let made = OpenOptions::new().write(true).create_new(true).open(mounts.second.join(name)).expect("it is made");
        drop(made);
        let file = File::open(mounts.first.join(name)).expect("it opens");
        let path = std::ffi::CString::new(mounts.second.join(name).into_os_string().into_encoded_bytes());
        // SAFETY: a string that outlives the call.
        assert_eq!(unsafe { libc::truncate(path.expect("no path has a zero").as_ptr(), bytes) }, 0);
        let mut read = vec![1; bytes as usize + 1];
        let got = file.read_at(&mut read, 0).expect("read");
        assert!(got == bytes as usize && read[..got].iter().all(|byte| *byte == 0), "{name}: {got} bytes");
    }
}
