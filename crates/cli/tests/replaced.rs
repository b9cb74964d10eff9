//! Names that constantly lead to new inodes: files replaced by rename(2), and links that name the current version.
//! Calls that use them by path find the old or the new inode, never ESTALE. Through another mount than the one that
//! replaces, and through the same. Needs root and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions, Permissions},
    io::{Error, Result},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, fs::symlink},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::mounts::Mounts;

/// How long each call is repeated.
const TIME: Duration = Duration::from_millis(400);
/// Longer than a call waits for a recall from another client. Shorter than the time after which the other client sends
/// its changes anyway (1.6 s).
const TIMEOUT: Duration = Duration::from_millis(1500);
const NAMES: [&str; 5] = ["read", "changed", "current", "even/replaced", "odd/replaced"];

type Call = (&'static str, fn(&Path) -> Result<()>);

/// Calls by path, in a directory of [`NAMES`].
const CALLS: [Call; 16] = [
    ("open", |dir| File::open(dir.join("read")).map(drop)),
    ("read", |dir| {
        let bytes = fs::read(dir.join("read"))?;
        assert!(bytes.len() == 64 && bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
        Ok(())
    }),
    ("stat", |dir| fs::metadata(dir.join("read")).map(drop)),
    ("open to write", |dir| OpenOptions::new().write(true).open(dir.join("changed")).map(drop)),
    ("open to cut", |dir| OpenOptions::new().write(true).truncate(true).open(dir.join("changed")).map(drop)),
    ("open or create", |dir| {
        OpenOptions::new().write(true).create(true).truncate(false).open(dir.join("changed")).map(drop)
    }),
    ("chmod", |dir| fs::set_permissions(dir.join("changed"), Permissions::from_mode(0o640))),
    ("truncate", |dir| {
        let path = c_path(&dir.join("changed"));
        // SAFETY: a string that outlives the call.
        done(unsafe { libc::truncate(path.as_ptr(), 7) })
    }),
    ("setxattr", |dir| {
        let path = c_path(&dir.join("changed"));
        // SAFETY: strings and a value that outlive the call.
        done(unsafe { libc::setxattr(path.as_ptr(), c"user.a".as_ptr(), b"1".as_ptr().cast(), 1, 0) })
    }),
    ("readlink", |dir| fs::read_link(dir.join("current")).map(drop)),
    ("lstat", |dir| fs::symlink_metadata(dir.join("current")).map(drop)),
    ("lutimes", |dir| {
        let path = c_path(&dir.join("current"));
        // SAFETY: a string that outlives the call.
        done(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), libc::AT_SYMLINK_NOFOLLOW) })
    }),
    ("llistxattr", |dir| {
        let path = c_path(&dir.join("current"));
        // SAFETY: a string that outlives the call, and no list.
        done(unsafe { libc::llistxattr(path.as_ptr(), std::ptr::null_mut(), 0) } as i32)
    }),
    ("open through a link", |dir| File::open(dir.join("current").join("file")).map(drop)),
    ("open what a link leads to", |dir| File::open(dir.join("current").join("replaced")).map(drop)),
    ("create beside it", |dir| {
        let path = dir.join("current").join("made");
        OpenOptions::new().write(true).create(true).truncate(true).open(path).map(drop)
    }),
];

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path")
}

fn done(result: i32) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Replaces `name` by a new inode.
fn replace(dir: &Path, name: &str, round: u64) {
    let new = dir.join(format!("{name}-new"));
    if name == "current" {
        symlink(if round.is_multiple_of(2) { "even" } else { "odd" }, &new).expect("a link");
    } else {
        fs::write(&new, [round as u8; 64]).expect("a file");
    }
    fs::rename(&new, dir.join(name)).expect("renamed");
}

/// Makes a call again and again. The longest that it took.
fn repeat(dir: &Path, call: fn(&Path) -> Result<()>) -> Result<Duration> {
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < TIME {
        let asked = Instant::now();
        call(dir)?;
        longest = longest.max(asked.elapsed());
    }
    Ok(longest)
}

#[test]
fn a_name_that_is_replaced_leads_to_the_old_or_the_new() {
    let Some(mounts) = Mounts::new("replaced") else { return };
    for version in ["even", "odd"] {
        fs::create_dir(mounts.first.join(version)).expect("a directory");
        fs::write(mounts.first.join(version).join("file"), version).expect("a file");
    }
    NAMES.iter().for_each(|name| replace(&mounts.first, name, 0));
    let (over, replaced) = (AtomicBool::new(false), NAMES.map(|_| AtomicU64::new(0)));
    let wrong: Vec<String> = thread::scope(|scope| {
        for (name, replaced) in NAMES.into_iter().zip(&replaced) {
            let (dir, over) = (&mounts.first, &over);
            scope.spawn(move || {
                for round in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    replace(dir, name, round);
                    replaced.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut wrong = Vec::new();
        for dir in [&mounts.second, &mounts.first] {
            for (what, call) in CALLS {
                // A machine with other work may hold up a call, but not each time.
                let mut slow = Vec::new();
                while slow.len() < 3 {
                    match repeat(dir, call) {
                        Ok(longest) if longest < TIMEOUT => break,
                        Ok(longest) => slow.push(longest),
                        Err(error) => {
                            wrong.push(format!("{what} in {}: {error}", dir.display()));
                            break;
                        }
                    }
                }
                if slow.len() == 3 {
                    wrong.push(format!("{what} in {} took {slow:?}", dir.display()));
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        wrong
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let replaced = replaced.map(AtomicU64::into_inner);
    assert!(replaced.iter().all(|times| *times > 100), "{replaced:?}: nothing was tested");
}
