//! Where the bytes of files lie, with the flags of Lustre's `lfs`: `setstripe`, `getstripe`, `find`, `migrate`.
//!
//! They speak with the mount through virtual extended attributes. `forebay.layout`: read, it is JSON (a file's layout, or what
//! new files of a directory get); written, it is text in the flags of `setstripe`. `forebay.pools`: JSON of the OSTs and
//! pools that a layout can name, so that what cannot be is refused in words (an attribute's errno has none).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // speaks with a mount, as a program does

mod deep;
pub mod find;
pub mod flags;
pub mod getstripe;
pub mod migrate;
pub mod setstripe;

use std::{ffi::CStr, path::Path};

use serde_json::Value;

use self::deep::Place;
use crate::{
    error::{CliError, CliResult, Doing},
    posix,
};

/// The layout's attribute.
pub const LAYOUT: &CStr = c"forebay.layout";
/// What layouts can name.
const POOLS: &CStr = c"forebay.pools";

/// The layout of a file, or what new files of a directory get.
pub fn layout_of(path: &Path) -> CliResult<Value> {
    layout_of_place(&Place::new(path))
}

fn layout_of_place(place: &Place) -> CliResult<Value> {
    let shown = place.path.display();
    let text = posix::get_xattr(&place.at, LAYOUT)
        .map_err(|error| CliError::failed(format!("cannot tell the layout of {shown}: {}", without_mount(&error))))?;
    serde_json::from_slice(&text).doing(|| format!("the mount described the layout of {shown} in a way not understood"))
}

/// Words for an error of a virtual attribute.
pub fn without_mount(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENODATA) => "it is not on a Forebay mount".to_owned(),
        _ => error.to_string(),
    }
}

/// The directory that a path names something in.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What layouts can name on the mount that `path`, or the directory it is to be made in, lies on.
pub fn choices(path: &Path) -> CliResult<Choices> {
    let at = if path.symlink_metadata().is_ok() { path } else { parent_of(path) };
    let text = posix::get_xattr(at, POOLS)
        .map_err(|error| CliError::failed(format!("cannot look at {}: {}", at.display(), without_mount(&error))))?;
    let told: Value = serde_json::from_slice(&text)
        .doing(|| format!("the mount described the OSTs of {} in a way not understood", at.display()))?;
    let numbers = |list: &Value| list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect::<Vec<u64>>();
    let pools = told["pools"].as_object().into_iter().flatten();
    Ok(Choices {
        osts: numbers(&told["osts"]),
        pools: pools.map(|(name, list)| (name.clone(), numbers(list))).collect(),
    })
}

/// OSTs and pools.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Indices.
    pub osts: Vec<u64>,
    /// Names and members.
    pub pools: Vec<(String, Vec<u64>)>,
}

/// A field as it is printed.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Lets new files of `dir` lie over `count` OSTs.
pub fn set_layout(dir: &Path, count: usize) -> CliResult {
    setstripe::apply(dir, &format!("-c {count} -S 0 -i -1"))
}
