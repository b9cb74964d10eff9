//! Mount points: the absolute path of one, found, made or refused.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // makes a directory; nothing here serves

use std::{
    io,
    path::{Path, PathBuf},
};

use forebay_command::error::{CliError, CliResult, Doing};

use crate::mounts;

/// As many links as Linux follows in a path.
const LINKS: usize = 40;

/// The absolute path of a mount point, which is made if it is missing. For commands that choose the mount point
/// themselves, such as `up`.
pub fn make(mnt: &Path) -> CliResult<PathBuf> {
    match find(mnt) {
        Err(_) if mnt.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) => {
            std::fs::create_dir_all(mnt).doing(|| format!("cannot make the mount point {}", mnt.display()))?;
            find(mnt)
        }
        found => found,
    }
}

/// Refuses a mount point that exists and is not a directory.
pub fn refuse_file(mnt: &Path) -> CliResult {
    find(mnt).map(drop).or_else(|error| if mnt.symlink_metadata().is_ok() { Err(error) } else { Ok(()) })
}

/// The absolute path of a mount point, which must exist.
pub fn find(mnt: &Path) -> CliResult<PathBuf> {
    if let Ok(point) = resolve(mnt)
        && mounts::is_mounted(&point)
    {
        return Ok(point);
    }
    let shown = mnt.display();
    match mnt.metadata() {
        Ok(meta) if meta.is_dir() => resolve(mnt),
        Ok(_) => Err(CliError::usage(format!("{shown} is not a directory"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(CliError::failed(format!("the mount point {shown} does not exist: `mkdir {shown}` makes it")))
        }
        Err(error) => Err(CliError::failed(format!("cannot use {shown}: {error}"))),
    }
}

/// The absolute path of a mount point, with links followed. Only its parent is resolved: resolving a mount itself may
/// need servers that are unreachable (readlink(2) needs none).
pub fn resolve(mnt: &Path) -> CliResult<PathBuf> {
    let shown = mnt.display();
    let mut mnt = mnt.to_owned();
    for _ in 0..LINKS {
        let parent = mnt.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Some(name) = mnt.file_name() else {
            return mnt.canonicalize().doing(|| format!("cannot use {shown}"));
        };
        match std::fs::read_link(&mnt) {
            Ok(target) => mnt = parent.join(target),
            Err(_) => return Ok(parent.canonicalize().doing(|| format!("cannot use {shown}"))?.join(name)),
        }
    }
    Err(CliError::usage(format!("{shown} leads through too many links")))
}
