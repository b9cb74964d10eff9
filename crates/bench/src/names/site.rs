//! The working directories of a run: a new directory in each directory on the command line. Those may be mounts of one
//! file system or of several.
//!
//! Invariant: when a run fails, what it created is removed, and nothing that existed before is touched.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    paths::utf8,
    progress,
};

/// The directories of a run.
pub struct Site {
    bases: Vec<PathBuf>,
    /// For each directory, the first one that shows the same files.
    homes: Vec<usize>,
    /// The directories that this run created and has to remove.
    made: Vec<PathBuf>,
}

impl Site {
    /// Makes a directory `name` in each of `dirs`.
    pub fn make(dirs: &[PathBuf], name: &str) -> CliResult<Self> {
        let bases = bases(dirs, name)?;
        if let Some(base) = bases.iter().find(|base| base.symlink_metadata().is_ok()) {
            return Err(CliError::failed(format!(
                "{} is there already: remove it if an earlier run left it, or give another name with -o",
                base.display()
            )));
        }
        let mut site = Self { bases, homes: Vec::new(), made: Vec::new() };
        for base in &site.bases {
            match fs::create_dir(base) {
                Ok(()) => site.made.push(base.clone()),
                // Created a moment ago, through another mount.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(CliError::failed(format!("cannot make {}: {error}", base.display()))),
            }
        }
        site.homes = homes(&site.bases)?;
        Ok(site)
    }

    /// Finds what an earlier run kept.
    pub fn find(dirs: &[PathBuf], name: &str) -> CliResult<Self> {
        let bases = bases(dirs, name)?;
        if let Some(base) = bases.iter().find(|base| !base.is_dir()) {
            return Err(CliError::failed(format!("{} is not there: make it with -C first", base.display())));
        }
        Ok(Self { homes: homes(&bases)?, bases, made: Vec::new() })
    }

    /// The directory that `rank` works in: the processes are spread over all directories.
    pub fn base(&self, rank: u32) -> CliResult<String> {
        utf8(&self.bases[self.place(rank)])
    }

    /// Where `rank` finds the items of `of_rank`, if not in its own directory.
    pub fn elsewhere(&self, rank: u32, of_rank: u32) -> CliResult<Option<String>> {
        let (own, other) = (self.homes[self.place(rank)], self.homes[self.place(of_rank)]);
        if own == other { Ok(None) } else { self.base(of_rank).map(Some) }
    }

    /// Whether `rank` creates the tree that all processes with the same files share.
    pub fn makes_shared_tree(&self, rank: u32) -> bool {
        let home = |rank: u32| self.homes[self.place(rank)];
        (0..rank).all(|before| home(before) != home(rank))
    }

    /// Keeps everything for a later run.
    pub fn keep(mut self) {
        self.made.clear();
    }

    /// Removes directories that are empty now: the end of a run that has removed its items.
    pub fn finish(mut self) -> CliResult {
        self.made.clear();
        let homes = self.homes.iter().enumerate().filter(|(place, home)| place == *home).map(|(place, _)| place);
        homes
            .map(|place| &self.bases[place])
            .try_for_each(|base| fs::remove_dir(base).doing(|| format!("cannot remove {} at the end", base.display())))
    }

    fn place(&self, rank: u32) -> usize {
        rank as usize % self.bases.len()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for base in &self.made {
            let _bar = progress::spinner(&format!("removing {}", base.display()));
            match fs::remove_dir_all(base) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    eprintln!("forebay: cannot remove {}, which this run has made: {error}", base.display());
                }
                _ => {}
            }
        }
    }
}

fn bases(dirs: &[PathBuf], name: &str) -> CliResult<Vec<PathBuf>> {
    let base = |dir: &PathBuf| {
        let dir = dir.canonicalize().doing(|| format!("{} is not there; make it first", dir.display()))?;
        Ok(dir.join(name))
    };
    dirs.iter().map(base).collect()
}

/// For each directory the first one through which files created in it are visible: mounts of one file system.
fn homes(bases: &[PathBuf]) -> CliResult<Vec<usize>> {
    let mut homes = Vec::new();
    for (place, base) in bases.iter().enumerate() {
        let probe = format!("probe.{}.{place}", std::process::id());
        let made = base.join(&probe);
        fs::create_dir(&made).doing(|| format!("cannot make {}", made.display()))?;
        let seen = |other: &Path| other.join(&probe).symlink_metadata().is_ok();
        homes.push(bases[..place].iter().position(|other| seen(other)).unwrap_or(place));
        fs::remove_dir(&made).doing(|| format!("cannot remove {}", made.display()))?;
    }
    Ok(homes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("forebay-site-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("a")).and_then(|()| fs::create_dir_all(path.join("b"))).expect("made");
            Self(path)
        }

        /// `a`, `b`, and `a` by another path, as a second mount would show it.
        fn dirs(&self) -> Vec<PathBuf> {
            let link = self.0.join("again");
            if link.symlink_metadata().is_err() {
                std::os::unix::fs::symlink(self.0.join("a"), &link).expect("linked");
            }
            vec![self.0.join("a"), self.0.join("b"), link]
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn directories_that_show_the_same_files_are_told_from_others() {
        let scratch = Scratch::new("homes");
        let site = Site::make(&scratch.dirs(), "x").expect("made");
        assert_eq!(site.homes, [0, 1, 0]);
        assert_eq!([0, 1, 2, 3].map(|rank| site.makes_shared_tree(rank)), [true, true, false, false]);
        assert_eq!(site.elsewhere(0, 2).expect("UTF-8"), None);
        assert_eq!(site.elsewhere(0, 1).expect("UTF-8"), Some(site.base(1).expect("UTF-8")));
        site.finish().expect("removed");
        assert!(!scratch.0.join("a/x").exists() && !scratch.0.join("b/x").exists());
    }

    #[test]
    fn a_run_that_fails_removes_what_it_made_and_leaves_what_was_there() {
        let scratch = Scratch::new("clean");
        fs::create_dir(scratch.0.join("b/x")).expect("made");
        assert!(Site::make(&scratch.dirs(), "x").is_err_and(|error| error.message.contains("b/x is there already")));
        assert!(scratch.0.join("b/x").exists() && !scratch.0.join("a/x").exists());
        let site = Site::make(&scratch.dirs()[..1], "x").expect("made");
        fs::write(scratch.0.join("a/x/file"), "1").expect("written");
        drop(site);
        assert!(!scratch.0.join("a/x").exists());
    }

    #[test]
    fn a_failed_run_does_not_remove_the_files_that_an_earlier_run_kept() {
        let scratch = Scratch::new("keep");
        assert!(Site::find(&scratch.dirs(), "x").is_err_and(|error| error.message.contains("with -C first")));
        Site::make(&scratch.dirs(), "x").expect("made").keep();
        drop(Site::find(&scratch.dirs(), "x").expect("found"));
        assert!(scratch.0.join("a/x").exists() && scratch.0.join("b/x").exists());
    }
}
