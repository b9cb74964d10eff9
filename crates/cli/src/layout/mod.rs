//! Layouts of files, with the flags of Lustre's `lfs`: `setstripe`, `getstripe`, `find`, `migrate`.
//!
//! The commands use virtual extended attributes of the mount. Reads of `forebay.layout` return JSON: a file's layout,
//! or the default layout of a directory. Writes take text in the flags of `setstripe`. `forebay.pools` is JSON of the
//! OSTs and pools that a layout can name. With it, the commands explain why a layout is impossible; an errno cannot.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // speaks with a mount, as a program does

mod deep;
pub mod find;
pub mod flags;
pub mod getstripe;
pub mod migrate;
pub mod setstripe;

use std::{ffi::CStr, path::Path};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
};
use serde_json::Value;

use self::deep::Place;

/// The layout's attribute.
pub const LAYOUT: &CStr = c"forebay.layout";
/// The attribute with the OSTs and pools that layouts can name.
const POOLS: &CStr = c"forebay.pools";

/// The layout of a file, or the default layout of a directory.
pub fn layout_of(path: &Path) -> CliResult<Value> {
    layout_of_place(&Place::new(path))
}

fn layout_of_place(place: &Place) -> CliResult<Value> {
    let shown = place.path.display();
    let text = posix::get_xattr(&place.at, LAYOUT)
        .map_err(|error| CliError::failed(format!("cannot tell the layout of {shown}: {}", without_mount(&error))))?;
    serde_json::from_slice(&text).doing(|| format!("the mount described the layout of {shown} in a way not understood"))
}

/// A text for an error of a virtual attribute.
pub fn without_mount(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENODATA) => "it is not on a Forebay mount".to_owned(),
        _ => error.to_string(),
    }
}

/// The directory that contains the last component of a path.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The OSTs and pools that layouts can name, on the mount of `path` or of the directory in which it will be made.
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

/// Stripes new files of `dir` over `count` OSTs.
pub fn set_layout(dir: &Path, count: usize) -> CliResult {
    setstripe::apply(dir, &format!("-c {count} -S 0 -i -1"))
}
