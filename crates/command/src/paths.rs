//! Paths as the environment takes them.

use std::path::Path;

use crate::error::{CliError, CliResult, Doing};

/// The environment takes paths as text.
pub fn utf8(path: &Path) -> CliResult<String> {
    let text = path.to_str().ok_or_else(|| CliError::usage(format!("the path {} is not UTF-8", path.display())))?;
    Ok(text.to_owned())
}

/// A path that does not depend on the current directory.
pub fn absolute(path: &Path) -> CliResult<String> {
    utf8(&std::path::absolute(path).doing(|| format!("cannot use {}", path.display()))?)
}
