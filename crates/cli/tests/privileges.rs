//! Rights that a file gives to its programs beyond those of their user are removed by a write. Needs root and
//! /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use common::mounts::{Mounts, run};

const CAPABILITY: &std::ffi::CStr = c"security.capability";

/// `struct vfs_cap_data`, second revision: CAP_NET_BIND_SERVICE, effective.
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn give(path: &Path) {
    let (name, value) = (CString::new(path.as_os_str().as_encoded_bytes()).expect("a path"), capability());
    // SAFETY: strings and a value that outlive the call.
    let done = unsafe { libc::setxattr(name.as_ptr(), CAPABILITY.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn has(path: &Path) -> bool {
    let (name, mut value) = (CString::new(path.as_os_str().as_encoded_bytes()).expect("a path"), [0_u8; 64]);
    // SAFETY: strings and a value that outlive the call.
    let length = unsafe { libc::getxattr(name.as_ptr(), CAPABILITY.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    assert!(length > 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::ENODATA));
    length > 0
}

#[test]
fn a_capability_goes_with_the_next_write_whoever_writes() {
    let Some(mounts) = Mounts::new("capability") else { return };
    let (first, second) = (mounts.first.join("f"), mounts.second.join("f"));
    fs::write(&first, vec![b'x'; 100_000]).expect("written");
    for round in 0..3 {
        // Written through a descriptor that was open before, through a new one, and through another mount.
        let open = OpenOptions::new().write(true).open(&first).expect("it opens");
        give(&first);
        assert!(has(&first) && has(&second), "round {round}");
        assert_eq!(fs::read(&second).expect("read").len(), 100_000, "who only reads takes nothing away");
        assert!(has(&first) && has(&second), "round {round}");
        match round {
            0 => open.write_all_at(b"y", 5).expect("written"),
            1 => fs::write(&first, vec![b'z'; 100_000]).expect("written"),
            _ => {
                drop(open);
                let other = OpenOptions::new().write(true).open(&second).expect("it opens");
                other.write_all_at(b"w", 7).expect("written");
            }
        }
        assert!(!has(&first) && !has(&second), "round {round}");
    }
    // The capability of a program that is copied in stays until a write.
    give(&first);
    mounts.kill_servers();
    mounts.bring_back();
    assert!(has(&first) && has(&second), "it outlives the servers");
}

#[test]
fn set_id_bits_go_with_the_write_of_an_ordinary_user() {
    let Some(mounts) = Mounts::new("setid") else { return };
    let (first, second) = (mounts.first.join("f"), mounts.second.join("f"));
    fs::write(&first, b"x").expect("written");
    for by in [&mounts.first, &mounts.second] {
        fs::set_permissions(&first, fs::Permissions::from_mode(0o6777)).expect("changed");
        run(Command::new("sh").args(["-c", "echo x >> f"]).current_dir(by));
        assert_eq!(fs::metadata(&second).expect("it is there").mode() & 0o7777, 0o6777, "root keeps them");
        let user = ["--reuid", "4242", "--regid", "4242", "--clear-groups", "sh", "-c", "echo y >> f"];
        run(Command::new("setpriv").args(user).current_dir(by));
        for path in [&first, &second] {
            assert_eq!(fs::metadata(path).expect("it is there").mode() & 0o7777, 0o777);
        }
    }
}
