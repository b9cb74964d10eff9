//! Files without a name: O_TMPFILE.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::Error,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{FileExt, MetadataExt, OpenOptionsExt},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{
    c,
    common::mounts::{Mounts, soon},
    done,
};

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

/// A program that holds a nameless file in `dir` open, and sleeps.
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

    // A file that was given a name stays. One without a name ends with its holder, whether the holder exits or is
    // killed.
    drop((file, never));
    assert!(soon(|| inodes_used(&mounts.first) == before.1 + 1), "{} {}", inodes_used(&mounts.first), before.1);
    let mut holder = holder(&dir);
    assert!(soon(|| inodes_used(&mounts.first) == before.1 + 2));
    holder.kill().and_then(|()| holder.wait()).expect("killed");
    assert!(soon(|| inodes_used(&mounts.first) == before.1 + 1));

    // A directory can be removed while a nameless file made in it is open.
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
