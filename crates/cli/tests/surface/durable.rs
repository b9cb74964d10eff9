//! pwritev2(2) with RWF_DSYNC.

use std::{
    fs::{self, OpenOptions},
    io::Error,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
};

use crate::common::mounts::Mounts;

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
