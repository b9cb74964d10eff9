//! Two mounts of one cluster, as programs use them. Needs root and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod attributes;
mod clusters;
#[path = "../common/mod.rs"]
mod common;
mod data;
mod locks;
mod names;
mod options;
mod programs;

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    path::Path,
};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it opens")
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).expect("a path")
}
