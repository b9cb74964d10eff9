//! A first use that may fail: it leaves nothing behind, and takes over nothing of others.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use forebay_command::{
    cluster::{self, Cluster},
    error::{CliError, CliResult, Doing},
    keys,
};
use forebay_proto::TargetId;

/// Marks a directory in which formatting began and did not finish.
pub const UNFINISHED: &str = "cluster.toml.unfinished";
/// Entries that the directory of a new cluster may contain: those of a new file system, and of an earlier attempt.
const HARMLESS: [&str; 5] = ["lost+found", "run", "log", "mnt", UNFINISHED];

/// A first use. If it fails before the description is written, everything it made is removed.
pub struct Attempt {
    /// The directory of the cluster, absolute.
    pub dir: PathBuf,
    /// Directories that it made, parents first.
    made: Vec<PathBuf>,
    /// Held by one attempt at a time, so unfinished targets there belong to it.
    lock: Option<File>,
}

impl Attempt {
    /// Makes `dir` if it does not exist.
    pub fn begin(dir: &Path) -> CliResult<Self> {
        let shown = dir.display();
        let absolute = std::path::absolute(dir).doing(|| format!("cannot use {shown}"))?;
        let mut attempt = Self { dir: absolute, made: Vec::new(), lock: None };
        attempt.make(&attempt.dir.clone())?;
        attempt.dir = dir.canonicalize().doing(|| format!("cannot use {shown}"))?;
        let lock = File::open(&attempt.dir).doing(|| format!("cannot use {shown}"))?;
        // A file system without locks is assumed to have one user at a time.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            let words = format!("another `forebay up` is making a cluster in {shown}: try again when it is done");
            return Err(CliError::failed(words));
        }
        attempt.lock = Some(lock);
        Ok(attempt)
    }

    /// Makes a directory of the attempt, and those above it.
    pub fn make(&mut self, dir: &Path) -> CliResult {
        let missing = dir.ancestors().take_while(|above| above.symlink_metadata().is_err());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        self.made.extend(missing);
        std::fs::create_dir_all(dir).doing(|| format!("cannot make {}", dir.display()))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // The MGS may know the key of a host that has not heard its reply.
        if Cluster::exists(&self.dir) || keys::is_joining(&self.dir.join(keys::DIR)) {
            return;
        }
        if self.lock.is_some() {
            // What cannot be removed here is recognized by the mark at the next attempt.
            let _ = clear_unfinished(&self.dir);
            let _ = std::fs::remove_file(self.dir.join(UNFINISHED));
        }
        self.made.iter().rev().for_each(|dir| drop(std::fs::remove_dir(dir)));
    }
}

/// Removes the targets and keys of an interrupted format. They hold nothing of value, because the description is written last.
pub fn clear_unfinished(dir: &Path) -> CliResult {
    if !dir.join(UNFINISHED).exists() {
        return Ok(());
    }
    let keys = dir.join(keys::DIR).exists().then(|| keys::DIR.to_owned());
    for name in target_dirs(dir).into_iter().chain(keys) {
        std::fs::remove_dir_all(dir.join(&name)).doing(|| format!("cannot remove the unfinished {name}"))?;
    }
    Ok(())
}

/// Refuses a directory with targets of a cluster that has no description, or with other files.
pub fn refuse_foreign_content(dir: &Path) -> CliResult {
    let shown = dir.display();
    if let Some(name) = target_dirs(dir).first() {
        return Err(CliError::failed(format!(
            "{shown}/{name} is there but {} is not; bring it back, or remove {name} if it is of no value",
            cluster::FILE,
        )));
    }
    let entries = std::fs::read_dir(dir).doing(|| format!("cannot list {shown}"))?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_harmless =
        |name: &str| HARMLESS.contains(&name) || name == keys::DIR && keys::is_joining(&dir.join(keys::DIR));
    match names.filter(|name| !is_harmless(name)).min() {
        None => Ok(()),
        Some(name) => Err(CliError::failed(format!(
            "{shown} holds other things ({name}) and no cluster; give a directory of its own, such as {shown}/forebay"
        ))),
    }
}

fn target_dirs(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.parse::<TargetId>().is_ok()).collect();
    names.sort();
    names
}
