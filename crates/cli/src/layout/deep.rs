//! Trees of any depth, where the kernel takes paths of at most 4,096 bytes (PATH_MAX): what lies deep is reached through a
//! directory above it that is held open.
//!
//! Invariant: no walk takes more stack, or more than one descriptor for every 2 KiB of path, the deeper it goes.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use crate::error::CliResult;

/// A path of this length and a name behind it are taken by the kernel.
const LONG: usize = 2048;

/// A file or directory in a tree.
#[derive(Clone, Debug)]
pub struct Place {
    /// As it is shown.
    pub path: PathBuf,
    /// As the kernel takes it.
    pub at: PathBuf,
    /// The directory that `at` begins at, if it was too long otherwise.
    above: Option<Rc<File>>,
}

impl Place {
    /// What a user named.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), at: path.to_owned(), above: None }
    }

    /// What lies in this directory, by name, and why that may not be all.
    pub fn entries(&self) -> io::Result<(Vec<Self>, Option<io::Error>)> {
        let here = self.shortened()?;
        let (mut names, mut failed) = (Vec::new(), None);
        for entry in std::fs::read_dir(&here.at)? {
            match entry {
                Ok(entry) => names.push(entry.file_name()),
                Err(error) => failed = Some(error),
            }
        }
        names.sort();
        let place = |name| Self { path: here.path.join(&name), at: here.at.join(&name), above: here.above.clone() };
        Ok((names.into_iter().map(place).collect(), failed))
    }

    /// This directory by a path that has room for a name behind it.
    fn shortened(&self) -> io::Result<Self> {
        if self.at.as_os_str().as_bytes().len() <= LONG {
            return Ok(self.clone());
        }
        let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&self.at)?;
        let at = format!("/proc/self/fd/{}", held.as_raw_fd()).into();
        Ok(Self { path: self.path.clone(), at, above: Some(Rc::new(held)) })
    }
}

/// Visits `places`, each with its depth below them, and right after it what `visit` returns: what is to be visited in it.
pub fn walk(places: Vec<Place>, mut visit: impl FnMut(&Place, u64) -> CliResult<Vec<Place>>) -> CliResult {
    let mut pending = vec![places.into_iter()];
    while let Some(siblings) = pending.last_mut() {
        let Some(place) = siblings.next() else {
            pending.pop();
            continue;
        };
        let below = visit(&place, pending.len() as u64 - 1)?;
        pending.push(below.into_iter());
    }
    Ok(())
}
