//! Set-id bits and file capabilities: a change of bytes removes them, as on the local file system.

use std::{
    fs::{self, File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
    thread,
};

use crate::{
    attributes::set_attribute,
    common::{Scratch, mounts::Mounts},
    done,
};

const USER: u32 = 4242;
const GROUP: u32 = 7;
const BYTES: usize = 8192;
const CAPABILITY: &str = "security.capability";

/// A descriptor of the directory, one of the file in it, and one of another file.
type Change = fn(i32, i32, i32) -> Result<i64, i32>;

fn opened_and(dir: i32, flags: i32, change: impl Fn(i32) -> i64) -> Result<i64, i32> {
    // SAFETY: an open directory and a string that outlives the call.
    let file = done(unsafe { libc::openat(dir, c"f".as_ptr(), flags) }.into())?;
    let changed = done(change(file as i32));
    // SAFETY: it was just opened.
    unsafe { libc::close(file as i32) };
    changed
}

fn allocate(file: i32, mode: i32) -> Result<i64, i32> {
    // SAFETY: an open descriptor.
    done(unsafe { libc::fallocate(file, mode, 0, 4096) }.into())
}

fn write(file: i32) -> i64 {
    // SAFETY: an open descriptor and a byte.
    unsafe { libc::write(file, b"x".as_ptr().cast(), 1) as i64 }
}

fn store(file: i32) -> Result<i64, i32> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a mapping of an open file that has these bytes, of which one is written.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), BYTES, access, libc::MAP_SHARED, file, 0);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>().write_volatile(1);
        let synced = libc::msync(at, BYTES, libc::MS_SYNC);
        libc::munmap(at, BYTES);
        done(synced.into())
    }
}

const CHANGES: [(&str, Change); 14] = [
    ("write", |_, file, _| done(write(file))),
    ("append", |dir, _, _| opened_and(dir, libc::O_WRONLY | libc::O_APPEND, write)),
    ("O_TRUNC", |dir, _, _| opened_and(dir, libc::O_WRONLY | libc::O_TRUNC, |_| 0)),
    // SAFETY: an open descriptor, here and below.
    ("ftruncate", |_, file, _| done(unsafe { libc::ftruncate(file, 10) }.into())),
    ("ftruncate to what it is", |_, file, _| done(unsafe { libc::ftruncate(file, BYTES as i64) }.into())),
    ("fallocate", |_, file, _| allocate(file, 0)),
    ("fallocate that keeps the size", |_, file, _| allocate(file, libc::FALLOC_FL_KEEP_SIZE)),
    ("punch", |_, file, _| allocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)),
    ("zero", |_, file, _| allocate(file, libc::FALLOC_FL_ZERO_RANGE)),
    ("zero that keeps the size", |_, file, _| allocate(file, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)),
    ("copy_file_range", |_, file, source| {
        let (mut from, mut to) = (0, 0);
        done(unsafe { libc::copy_file_range(source, &raw mut from, file, &raw mut to, 100, 0) } as i64)
    }),
    ("sendfile", |_, file, source| done(unsafe { libc::sendfile(file, source, &mut 0, 100) } as i64)),
    ("a store to a mapping", |_, file, _| store(file)),
    ("fsync", |_, file, _| done(unsafe { libc::fsync(file) }.into())),
];

/// The caller that changes the file: root, or a user with or without the file's group.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Root,
    Member,
    Other,
}

impl Who {
    /// Changes to this user, in a separate thread, which cannot change back.
    fn become_this(self) {
        let groups: &[u32] = if self == Self::Member { &[GROUP] } else { &[] };
        if self != Self::Root {
            // SAFETY: groups that outlive the call; the system calls themselves are about the calling thread alone.
            let became = unsafe {
                [
                    libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
                    libc::syscall(libc::SYS_setresgid, USER, USER, USER),
                    libc::syscall(libc::SYS_setresuid, USER, USER, USER),
                ]
            };
            assert_eq!(became, [0; 3]);
        }
    }
}

/// Makes a file of `mode` in `base`, opens it, and lets `who` change it. Returns its mode then, and whether it has
/// capabilities.
fn changed(base: &Path, (what, change): (&str, Change), who: Who, mode: u32) -> (Result<i64, i32>, u32, bool) {
    let dir = base.join("d");
    let _ = fs::create_dir(&dir);
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).expect("set");
    let (path, source) = (dir.join("f"), dir.join("source"));
    fs::write(&path, vec![7; BYTES]).expect("written");
    fs::write(&source, vec![8; BYTES]).expect("written");
    std::os::unix::fs::chown(&path, Some(USER + 1), Some(GROUP)).expect("given away");
    fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
    // Version 2, one capability.
    let capability: Vec<u8> = [0x0200_0001_u32, 0x400, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    set_attribute(&path, CAPABILITY, &capability, 0).expect("set");
    let (dir, source) = (File::open(&dir).expect("opened"), File::open(&source).expect("opened"));
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    let descriptors = (dir.as_raw_fd(), file.as_raw_fd(), source.as_raw_fd());
    let thread = thread::spawn(move || {
        who.become_this();
        change(descriptors.0, descriptors.1, descriptors.2)
    });
    let done = thread.join().unwrap_or_else(|_| panic!("{what} by {who:?}"));
    let mode = file.metadata().expect("there").mode() & 0o7777;
    let has_capability = crate::attributes::attribute(&path, CAPABILITY).is_ok();
    fs::remove_file(&path).expect("removed");
    (done, mode, has_capability)
}

/// Each way to change bytes, by root, by a member of the file's group and by another user, with each kind of set-id
/// bits
#[test]
fn every_change_of_bytes_clears_set_ids_and_capabilities_as_on_the_local_file_system() {
    let Some(mounts) = Mounts::new("set-ids") else { return };
    let local = Scratch::new("set-ids-local");
    for change in CHANGES {
        for who in [Who::Root, Who::Member, Who::Other] {
            for mode in [0o6777, 0o6767, 0o2767, 0o4766, 0o2777] {
                let here = changed(&mounts.first, change, who, mode);
                let there = changed(Path::new(local.path()), change, who, mode);
                assert_eq!(here, there, "{} by {who:?} of {mode:o}: here, and on the local file system", change.0);
            }
        }
    }
}
