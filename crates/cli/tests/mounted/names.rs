//! Names that another mount changes.

use std::{
    fs::{self, OpenOptions},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};

use crate::{c_path, common::mounts::Mounts};

/// As on a local file system: ESTALE is for the kernel, which retries the lookup once.
#[test]
fn a_link_to_a_file_whose_last_name_went_through_another_mount_is_enoent() {
    let Some(mounts) = Mounts::new("late-link") else { return };
    fs::write(mounts.first.join("f"), b"x").expect("written");
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(mounts.first.join("f")).expect("found");
    fs::remove_file(mounts.second.join("f")).expect("removed");
    let (from, to) = (format!("/proc/self/fd/{}", file.as_raw_fd()), mounts.first.join("g"));
    for _ in 0..3 {
        let (from, to) = (c_path(Path::new(&from)), c_path(&to));
        // SAFETY: two strings that outlive the call.
        let linked = unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((linked, error), (-1, Some(libc::ENOENT)));
    }
}

#[test]
fn a_mount_below_stays_when_another_mount_changes_names_beside_it() {
    let Some(mounts) = Mounts::new("below") else { return };
    let (point, q) = (mounts.first.join("d"), mounts.first.join("q"));
    fs::create_dir(&point).expect("made");
    fs::create_dir(&q).expect("made");
    let names = [c"tmpfs".as_ptr(), c"tmpfs".as_ptr()];
    let target = c_path(&point);
    // SAFETY: C strings that outlive the call; tmpfs takes no data.
    let done = unsafe { libc::mount(names[0], target.as_ptr(), names[1], 0, std::ptr::null()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    fs::write(point.join("here"), "x").expect("written");
    for round in 0..3 {
        let name = format!("f{round}");
        // The names of q are leased, and the kernel caches them.
        assert!(!q.join(&name).exists() && !q.join(&name).exists());
        let begun = Instant::now();
        fs::write(mounts.second.join("q").join(&name), "y").expect("written");
        assert!(begun.elapsed() < Duration::from_secs(8), "it waits no longer than a name is believed");
        assert!(q.join(&name).exists(), "and nothing stale is seen");
    }
    let stays = point.join("here").exists();
    // SAFETY: as above.
    unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    assert!(stays, "the mount below is gone");
}

#[test]
fn renamed_entry_timeout_is_that_of_its_new_directory() {
    let Some(mounts) = Mounts::new("moved") else { return };
    let (first, second) = (&mounts.first, &mounts.second);
    for dir in ["a", "b"] {
        fs::create_dir(first.join(dir)).expect("made");
    }
    for round in 0..5 {
        // Both mounts change b, so neither keeps its entries lease for long.
        for number in 0..4 {
            fs::write(first.join(format!("b/m{round}.{number}")), "").expect("written");
            fs::write(second.join(format!("b/n{round}.{number}")), "").expect("written");
        }
        fs::write(first.join("a/x"), "old").expect("written");
        assert_eq!(fs::read_to_string(first.join("a/x")).expect("read"), "old");
        fs::write(second.join("b/z"), "").expect("written");
        fs::rename(first.join("a/x"), first.join("b/x")).expect("moved");
        fs::write(second.join("b/new"), "new").expect("written");
        fs::hard_link(second.join("b/x"), second.join(format!("b/kept{round}"))).expect("linked");
        fs::rename(second.join("b/new"), second.join("b/x")).expect("moved");
        assert_eq!(fs::read_to_string(first.join("b/x")).expect("read"), "new", "round {round}");
    }
}
