//! A new directory of keys, which is complete or not there.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::error::{CliResult, Doing};

/// A directory that is being filled. Dropped before it is kept, it is removed with its files: a second attempt finds
/// nothing in its way.
pub struct NewDir {
    path: PathBuf,
    is_complete: bool,
}

impl NewDir {
    /// Makes a directory for its owner alone. Errors: it is there already.
    pub fn make(path: &Path) -> CliResult<Self> {
        DirBuilder::new().mode(0o700).create(path).doing(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path: path.to_owned(), is_complete: false })
    }

    /// It is complete, and stays.
    pub fn keep(mut self) {
        self.is_complete = true;
    }
}

impl Drop for NewDir {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        // What cannot be removed is named by the next attempt.
        for file in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let _ = fs::remove_file(file.path());
        }
        let _ = fs::remove_dir(&self.path);
    }
}
