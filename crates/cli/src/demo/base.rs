//! The demo's directory, and the end of everything in it: mounts, processes, files; and the end of its hosts.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use forebay_command::processes::{self, PidFile};

use super::hosts;
use crate::mounts::{self, Unmount};

/// Set when a signal ends the demo: no process may be started any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The demo's directory, and whether to remove it.
#[derive(Clone, Debug)]
pub struct Base {
    /// The directory of the demo.
    pub dir: PathBuf,
    /// The demo made the directory.
    pub made: bool,
    /// Hosts of the demo; `None` = everything is on this one.
    pub hosts: Option<usize>,
}

impl Base {
    /// Where programs write.
    pub fn mnt(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// Where programs on another host read.
    pub fn other_mnt(&self) -> PathBuf {
        self.dir.join("mnt-other")
    }

    /// Where a host that only mounts has its keys.
    pub fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    /// The directory of a host's targets. Hosts count from 1.
    pub fn cluster_of(&self, host: usize) -> PathBuf {
        self.dir.join(if self.hosts.is_some() { format!("host{host}") } else { "cluster".into() })
    }

    /// The directories of all targets.
    pub fn clusters(&self) -> Vec<PathBuf> {
        (1..=self.hosts.unwrap_or(1)).map(|host| self.cluster_of(host)).collect()
    }

    /// What the names of this demo's hosts begin with.
    pub fn prefix() -> String {
        format!("fb{}", std::process::id())
    }
}

/// True once the demo is being ended by a signal, or because a server died.
pub fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

/// After a signal: nothing is started any more, everything is ended.
pub fn end_now(base: &Base) {
    ENDING.store(true, Ordering::SeqCst);
    // The programs too: files that they continue to write could not be removed.
    processes::kill_children();
    clear(base, false);
}

/// Unmounts, ends all processes, removes the hosts, and the directory unless it is to be kept. Continues after errors.
pub fn clear(base: &Base, keep: bool) {
    end_mounts(base);
    kill_servers(base);
    for name in hosts::existing(&Base::prefix()) {
        if let Err(error) = hosts::remove(&name) {
            eprintln!("forebay: cannot remove the host {name}: {error}");
        }
    }
    if !keep && !is_mounted(base) {
        remove(base);
    }
}

/// Ends the mounts at once, whatever they have not made durable.
pub fn end_mounts(base: &Base) {
    for mnt in [base.mnt(), base.other_mnt()] {
        if mounts::is_mounted(&mnt)
            && let Err(error) = mounts::unmount(&mnt, Unmount::Lazily)
        {
            eprintln!("forebay: cannot unmount {}: {error}", mnt.display());
        }
        mounts::pid_file(&mnt).kill();
    }
}

/// Kills every server.
pub fn kill_servers(base: &Base) {
    let all = base.clusters().into_iter().flat_map(|dir| PidFile::all(&dir.join("run")));
    all.for_each(|(_, pid_file)| pid_file.kill());
}

/// Whether something is mounted still.
pub fn is_mounted(base: &Base) -> bool {
    mounts::is_mounted(&base.mnt()) || mounts::is_mounted(&base.other_mnt())
}

fn remove(base: &Base) {
    let others = [base.mnt(), base.other_mnt(), base.home(), base.dir.join("local")];
    for dir in base.clusters().into_iter().chain(others) {
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                eprintln!("forebay: cannot remove {}: {error}", dir.display());
            }
            _ => {}
        }
    }
    if base.made {
        // If it is not empty, the user put something there.
        let _ = std::fs::remove_dir(&base.dir);
    }
}
