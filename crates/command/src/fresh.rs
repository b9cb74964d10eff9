//! Directories in which a target is about to be formatted. They must be empty, and a failed format leaves nothing
//! behind.
//!
//! Invariant: files in a directory are removed only if the directory is marked as one whose format did not finish. A
//! format that is killed leaves the mark, and the next one removes its files. It never takes over their content.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // directories of this machine; nothing here serves

use std::{
    fs::{DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::error::{CliError, CliResult, Doing};

/// Marks a directory in which formatting began and did not finish. The file is locked while formatting runs.
const UNFINISHED: &str = "format.unfinished";
/// A file that every target has.
const IDENTITY: &str = "identity";
/// Files that a store may make in its directory; while each is made it may also exist with the suffix `.new`.
const MADE: [&str; 8] =
    ["lock", "data", "journal", IDENTITY, "data.path", "journal.path", "mirror.path", "witness.path"];
/// Content of a new file system.
const HARMLESS: &str = "lost+found";

/// Directories, and files outside them, that a format may make.
#[derive(Default)]
pub struct Fresh {
    /// Directories that did not exist, parents first.
    made: Vec<PathBuf>,
    /// Directories that are formatted, with their marks.
    taken: Vec<(PathBuf, File)>,
    /// Files outside of them that did not exist.
    outside: Vec<PathBuf>,
}

impl Fresh {
    /// Takes `dir`, which is made if missing. Errors: it holds a target, or other files.
    pub fn take(&mut self, dir: &Path) -> CliResult {
        let shown = dir.display();
        let missing = dir.ancestors().take_while(|above| !above.as_os_str().is_empty());
        let mut missing: Vec<PathBuf> =
            missing.take_while(|above| above.symlink_metadata().is_err()).map(Path::to_owned).collect();
        missing.reverse();
        self.made.extend(missing);
        make_private(dir).doing(|| format!("cannot make {shown}"))?;
        refuse_target(dir)?;
        let marked = dir.join(UNFINISHED).exists();
        if !marked {
            refuse_others(dir)?;
        }
        let mark = File::create(dir.join(UNFINISHED)).doing(|| format!("cannot write in {shown}"))?;
        // A file system without locks is assumed to have one user at a time.
        if let Err(TryLockError::WouldBlock) = mark.try_lock() {
            return Err(CliError::failed(format!("another `forebay format` works in {shown}: wait for it")));
        }
        if marked {
            clear(dir);
            refuse_others(dir)?;
        }
        self.taken.push((dir.to_owned(), mark));
        Ok(())
    }

    /// Takes `dir` unless it already holds a target, which the caller has to check.
    pub fn take_unless_target(&mut self, dir: &Path) -> CliResult {
        if dir.join(IDENTITY).exists() { Ok(()) } else { self.take(dir) }
    }

    /// Takes a file outside the directories, which the format may make.
    pub fn take_file(&mut self, path: &Path) {
        if path.symlink_metadata().is_err() {
            self.outside.push(path.to_owned());
        }
    }

    /// The target is complete: keeps everything.
    pub fn keep(mut self) -> CliResult {
        for (dir, _) in self.taken.drain(..) {
            std::fs::remove_file(dir.join(UNFINISHED)).doing(|| format!("cannot write in {}", dir.display()))?;
        }
        (self.made, self.outside) = Default::default();
        Ok(())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // What cannot be removed here is recognized by its mark at the next attempt.
        for (dir, _) in &self.taken {
            clear(dir);
            let _ = std::fs::remove_file(dir.join(UNFINISHED));
        }
        self.outside.iter().for_each(|path| drop(std::fs::remove_file(path)));
        self.made.iter().rev().for_each(|dir| drop(std::fs::remove_dir(dir)));
    }
}

/// Refuses a file that is not empty.
pub fn refuse_full_file(path: &Path) -> CliResult {
    match path.metadata() {
        Ok(meta) if meta.is_dir() || meta.len() > 0 => Err(CliError::failed(format!(
            "{} holds something already: remove it if it is of no worth, or give another file",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Makes a directory that only its owner may use.
fn make_private(dir: &Path) -> io::Result<()> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or(Ok(()), std::fs::create_dir_all)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        made => made,
    }
}

/// Refuses a directory that holds a target. The identity is written last: if it exists, the target is complete, even
/// with the mark.
fn refuse_target(dir: &Path) -> CliResult {
    if !dir.join(IDENTITY).exists() {
        return Ok(());
    }
    let shown = dir.display();
    Err(CliError::failed(format!(
        "{shown} holds a target already; remove the directory first if it is to be made anew"
    )))
}

fn refuse_others(dir: &Path) -> CliResult {
    let shown = dir.display();
    let entries = std::fs::read_dir(dir).doing(|| format!("cannot list {shown}"))?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.filter(|name| name != HARMLESS && name != UNFINISHED).min() {
        None => Ok(()),
        Some(name) => Err(CliError::failed(format!(
            "{shown} holds other things ({name}): give a directory of its own, such as {}",
            dir.join("target").display()
        ))),
    }
}

/// Removes the files that a store makes.
fn clear(dir: &Path) {
    for name in MADE {
        for name in [name.to_owned(), format!("{name}.new")] {
            let _ = std::fs::remove_file(dir.join(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("there").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_failed_first_use_leaves_nothing_and_the_next_use_clears_up_behind_a_killed_one() {
        let base = std::env::temp_dir().join(format!("forebay-fresh-{}", std::process::id()));
        let dir = base.join("a/t");
        let mut fresh = Fresh::default();
        fresh.take(&dir).expect("taken");
        fresh.take_file(&base.join("journal"));
        std::fs::write(dir.join("data"), "x").expect("written");
        std::fs::write(base.join("journal"), "x").expect("written");
        let twice = Fresh::default().take(&dir).expect_err("one at a time").message;
        assert!(twice.contains("another `forebay format`"), "{twice}");
        drop(fresh);
        assert!(!base.exists());

        std::fs::create_dir_all(&dir).expect("made");
        for name in [UNFINISHED, "journal", "journal.new", "identity.new"] {
            std::fs::write(dir.join(name), "x").expect("written");
        }
        let mut fresh = Fresh::default();
        fresh.take(&dir).expect("a rest");
        assert_eq!(names(&dir), [UNFINISHED]);
        std::fs::write(dir.join("identity"), "x").expect("written");
        fresh.keep().expect("kept");
        assert_eq!(names(&dir), ["identity"]);
        let target = Fresh::default().take(&dir).expect_err("a target").message;
        assert!(target.contains("holds a target already"), "{target}");

        std::fs::remove_file(dir.join("identity")).expect("removed");
        std::fs::write(dir.join("lock"), "mine").expect("written");
        let other = Fresh::default().take(&dir).expect_err("other things").message;
        assert!(other.contains("other things (lock)"), "{other}");
        assert_eq!(std::fs::read(dir.join("lock")).expect("there"), b"mine");
        std::fs::remove_dir_all(&base).expect("removed");
    }
}
