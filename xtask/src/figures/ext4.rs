//! The local file system for comparison: bench/ext4-loop.sh.

use std::{path::PathBuf, process::Command};

use super::{Outcome, Plan, forebay::root, process::output};

/// A mounted ext4. Dropping it unmounts and removes it.
pub struct Ext4 {
    dir: PathBuf,
    /// The mount point.
    pub mnt: PathBuf,
}

impl Ext4 {
    /// Makes and mounts it.
    pub fn make(plan: &Plan) -> Outcome<Self> {
        let dir = plan.dir.join("ext4");
        let ext4 = Self { mnt: dir.join("mnt"), dir };
        let size_gib = plan.size("8", "3", "1");
        output(ext4.script("up").arg(size_gib))?;
        Ok(ext4)
    }

    /// Makes a new file system in the same image.
    pub fn renew(&self) -> Outcome {
        output(&mut self.script("down"))?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(self.dir.join("image"));
        output(&mut mkfs)?;
        output(&mut self.script("up")).map(drop)
    }

    fn script(&self, what: &str) -> Command {
        let mut command = Command::new(root().join("bench/ext4-loop.sh"));
        command.arg(what).arg(&self.dir);
        command
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if let Err(error) = output(&mut self.script("down")) {
            eprintln!("xtask: {error}");
            return;
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
