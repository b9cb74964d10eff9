//! Trees of any depth. The kernel takes paths of at most 4,096 bytes (PATH_MAX), so deep files are reached through an
//! open directory above them.
//!
//! Invariant: however deep a walk goes, it needs no more stack, and at most one descriptor for every 2 KiB of path.

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

use forebay_command::error::CliResult;

/// The kernel accepts a path of this length with a name behind it.
const LONG: usize = 2048;

/// A file or directory in a tree.
#[derive(Clone, Debug)]
pub struct Place {
    /// The path to show.
    pub path: PathBuf,
    /// The path for the kernel.
    pub at: PathBuf,
    /// The open directory where `at` begins, if the path was too long otherwise.
    above: Option<Rc<File>>,
}

impl Place {
    /// A path from the command line.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), at: path.to_owned(), above: None }
    }

    /// The entries of this directory, by name, and the error if the list may be incomplete.
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

    /// This directory by a path that leaves space for a name behind it.
    fn shortened(&self) -> io::Result<Self> {
        if self.at.as_os_str().as_bytes().len() <= LONG {
            return Ok(self.clone());
        }
        let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&self.at)?;
        let at = format!("/proc/self/fd/{}", held.as_raw_fd()).into();
        Ok(Self { path: self.path.clone(), at, above: Some(Rc::new(held)) })
    }
}

/// Visits `places` and their descendants, each with its depth. The children that `visit` returns are visited directly
/// after their parent.
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
