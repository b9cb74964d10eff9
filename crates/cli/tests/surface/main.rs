//! The rarer calls of POSIX and Linux through a mount, compared with the local file system where possible. Needs root
//! and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod access_times;
mod attributes;
#[path = "../common/mod.rs"]
mod common;
mod durable;
mod handles;
mod listing;
mod nameless;
mod names;
mod offsets;
mod owners;
mod points;
mod ranges;
mod room;
mod set_ids;

use std::{ffi::CString, fs::File, io::Error, os::unix::ffi::OsStrExt, path::Path};

use common::Scratch;

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().expect("an errno")
}

/// The result of a system call, or its errno.
fn done(returned: i64) -> Result<i64, i32> {
    if returned >= 0 { Ok(returned) } else { Err(errno()) }
}

/// A call in a directory, with its result or errno.
type Ask<'a> = &'a dyn Fn(&Path) -> Result<i64, i32>;

/// Runs the same calls here and on the local file system, and expects the same results.
fn same_answers(mnt: &Path, calls: &[(&str, Ask<'_>)]) {
    let local =
        Scratch::new(&format!("{}-local", mnt.parent().and_then(Path::file_name).expect("a name").to_string_lossy()));
    for (what, call) in calls {
        let (here, there) = (call(mnt), call(Path::new(local.path())));
        assert_eq!(here, there, "{what}: here, and on the local file system");
    }
}

fn of<T>(result: std::io::Result<T>) -> Result<i64, i32> {
    result.map(|_| 0).map_err(|error| error.raw_os_error().expect("an errno"))
}

fn make(path: &Path) -> Result<i64, i32> {
    of(File::create(path))
}
