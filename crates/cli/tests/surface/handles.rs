//! File handles: name_to_handle_at(2), open_by_handle_at(2); handles of programs that are running.

use std::{
    fs::{self, File},
    io::Error,
    os::fd::{AsRawFd, FromRawFd},
    path::Path,
    process::Command,
};

use crate::{
    c,
    common::{
        Scratch, forebay,
        mounts::{Mounts, run, soon},
    },
    done,
};

/// A handle of name_to_handle_at(2): the kernel's structure, with space for 128 bytes.
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
    // Also restarts the mount that `up` made.
    mounts.bring_back();
    let found = open_handle(&mounts.first, &mut file, libc::O_RDONLY).expect("it opens");
    assert_eq!(std::io::read_to_string(found).expect("read"), "found again");
    assert_eq!(open_handle(&mounts.first, &mut gone, libc::O_RDONLY).map(drop), Err(libc::ESTALE));
    let found = open_handle(&mounts.first, &mut directory, libc::O_RDONLY | libc::O_DIRECTORY).expect("it opens");
    // The kernel finds the parent directories from there.
    let way = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).expect("a path");
    assert_eq!(way, dir);
    let names: Vec<_> = fs::read_dir(format!("/proc/self/fd/{}", found.as_raw_fd())).expect("listed").collect();
    assert_eq!(names.len(), 1);
}

/// Makes the kernel drop unused dentries and inodes, as when memory is short.
fn forget_all() {
    fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
}

/// The path of an open file or directory, as the kernel knows it.
fn place(file: &File) -> std::path::PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a path")
}

/// Handles of directories and files that the mount has cached, after the kernel has dropped them: at their old path,
/// renamed here, moved by another mount, removed while open
#[test]
fn handles_stay_good_when_the_kernel_has_forgotten_what_they_are_of() {
    let Some(mounts) = Mounts::new("forgotten") else { return };
    let top = mounts.first.join("top");
    let (deep, file) = (top.join("a/deep"), top.join("file"));
    fs::create_dir_all(&deep).expect("made");
    fs::create_dir(top.join("b")).expect("made");
    fs::write(&file, b"found again").expect("written");
    fs::write(deep.join("inner"), b"x").expect("written");
    let open = |handle: &mut Handle| open_handle(&mounts.first, handle, libc::O_RDONLY);
    let [mut of_top, mut of_deep, mut of_file] = [&top, &deep, &file].map(|path| handle_of(path));
    // Now the mount has all names of these directories cached.
    for directory in [&top, &deep] {
        fs::read_dir(directory).expect("listed").for_each(|entry| drop(entry.expect("an entry").metadata()));
    }
    forget_all();
    for (handle, path) in [(&mut of_deep, &deep), (&mut of_top, &top)] {
        assert_eq!(open(handle).map(|found| place(&found)), Ok(path.clone()));
    }
    forget_all();
    let found = open(&mut of_file).expect("it opens");
    assert_eq!(std::io::read_to_string(found).expect("read"), "found again");
    // Renamed by this mount, then moved by the other.
    fs::rename(top.join("a"), top.join("c")).expect("renamed");
    forget_all();
    assert_eq!(open(&mut of_deep).map(|found| place(&found)), Ok(top.join("c/deep")));
    fs::rename(mounts.second.join("top/c/deep"), mounts.second.join("top/b/deeper")).expect("moved");
    forget_all();
    let found = open(&mut of_deep).expect("it opens");
    assert_eq!(place(&found), top.join("b/deeper"));
    assert_eq!(fs::read_dir(place(&found)).expect("listed").count(), 1);
    // Without a name it exists as long as it is open.
    fs::remove_dir_all(&top).expect("removed");
    assert_eq!(open(&mut of_file).map(drop), Err(libc::ESTALE));
    assert_eq!(open(&mut of_deep).map(drop), Ok(()));
    drop(found);
    // The kernel sends a RELEASE for the last close a moment later.
    let of_deep = std::cell::RefCell::new(of_deep);
    assert!(soon(|| open(&mut of_deep.borrow_mut()).map(drop) == Err(libc::ESTALE)));
}

/// run a program of the mount; open it with O_TRUNC and each access mode; end it; open it again | ETXTBSY and the program is whole, as
/// on the local file system; then it is truncated
#[test]
fn a_program_that_is_running_is_not_truncated() {
    let Some(mounts) = Mounts::new("running") else { return };
    let here = Scratch::new("running-here");
    for dir in [Path::new(here.path()), &mounts.first] {
        let program = dir.join("program");
        // Not by this process: another test may fork while it has the program open for writing, which is ETXTBSY, too.
        run(Command::new("cp").args(["/bin/sleep"]).arg(&program));
        let bytes = program.metadata().expect("there").len();
        let opened = |access: i32| {
            let path = c(&program);
            // SAFETY: a string that outlives the call.
            let opened = done(unsafe { libc::open(path.as_ptr(), access | libc::O_TRUNC) }.into())?;
            // SAFETY: it was just opened.
            done(unsafe { libc::close(opened as i32) }.into())
        };
        let mut running = Command::new(&program).arg("100").spawn().expect("it runs");
        for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
            assert_eq!(opened(access), Err(libc::ETXTBSY), "{program:?} with access mode {access}");
            assert_eq!(program.metadata().expect("there").len(), bytes);
        }
        running.kill().expect("killed");
        running.wait().expect("ended");
        // Whoever looks at the process in /proc just then keeps its memory, and the program, a moment longer.
        assert!(soon(|| opened(libc::O_RDONLY) == Ok(0)), "{program:?}");
        assert_eq!(program.metadata().expect("there").len(), 0);
    }
}
