//! The demo's directory, and the end of everything in it: mount, processes, files.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use forebay_command::processes::{self, PidFile};

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

/// Unmounts, ends all processes, and removes the directory unless it is to be kept. Continues after errors.
pub fn clear(base: &Base, keep: bool) {
    let (mnt, run_dir) = (base.dir.join("mnt"), base.dir.join("cluster/run"));
    if mounts::is_mounted(&mnt)
        && let Err(error) = mounts::unmount(&mnt, Unmount::Lazily)
    {
        eprintln!("forebay: cannot unmount {}: {error}", mnt.display());
    }
    mounts::pid_file(&mnt).kill();
    PidFile::all(&run_dir).iter().for_each(|(_, pid_file)| pid_file.kill());
    if !keep && !mounts::is_mounted(&mnt) {
        remove(base);
    }
}

fn remove(base: &Base) {
    for name in ["cluster", "mnt", "local"] {
        match std::fs::remove_dir_all(base.dir.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                eprintln!("forebay: cannot remove {}/{name}: {error}", base.dir.display());
            }
            _ => {}
        }
    }
    if base.made {
        // If it is not empty, the user put something there.
        let _ = std::fs::remove_dir(&base.dir);
    }
}
