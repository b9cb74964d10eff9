//! A short run of `xtask differential`, on one mount and on two.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

fn differ(args: &[&str], dir: &str) {
    if !on_ext4(&std::env::temp_dir()) {
        return eprintln!("there is no ext4 to compare with at {:?}: skipped", std::env::temp_dir());
    }
    // A short path, as sockets are made in it whose names have at most 107 bytes.
    common::run(&[&["differential", "--seeds", "0..4", "--steps", "1000"], args].concat(), std::env::temp_dir(), dir);
}

fn on_ext4(dir: &std::path::Path) -> bool {
    let name = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).expect("no path has a zero");
    // SAFETY: all zeros are a structure for the kernel to fill.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string and a structure that outlive the call.
    unsafe { libc::statfs(name.as_ptr(), &mut found) == 0 && found.f_type == libc::EXT4_SUPER_MAGIC }
}

/// Makes 4,000 calls of 70 kinds: the mount answers like the local file system.
#[test]
fn one_mount_answers_as_a_local_file_system() {
    differ(&[], "forebay-differential-1");
}

/// Makes 4,000 calls in turns on two mounts: together they answer like one local file system.
#[test]
fn two_mounts_in_turns_answer_as_one_local_file_system() {
    differ(&["--mounts", "2"], "forebay-differential-2");
}
