//! A cluster with two mounts, whose servers can all be killed and brought back.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::figures::{
    Outcome,
    forebay::Forebay,
    process::{Pids, output},
};

/// One MDT, four OSTs, two mounts. Dropping it takes it down.
pub struct Cluster<'a> {
    forebay: &'a Forebay,
    dir: PathBuf,
    /// The first mount.
    pub first: PathBuf,
    /// The second.
    pub second: PathBuf,
}

impl<'a> Cluster<'a> {
    /// Formats, starts, mounts twice.
    pub fn make(forebay: &'a Forebay, dir: &Path) -> Outcome<Self> {
        fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
        let cluster = Self { forebay, first: dir.join("m1"), second: dir.join("m2"), dir: dir.join("cluster") };
        let sizes = ["--osts", "4", "--ost-size", "2GiB", "--mdt-size", "1GiB", "--mount"];
        output(forebay.command(&["up", &text(&cluster.dir)]).args(sizes).arg(&cluster.first))?;
        output(forebay.command(&["mount", &text(&cluster.dir)]).arg(&cluster.second))?;
        Ok(cluster)
    }

    /// Kills every server with SIGKILL and brings it back.
    pub fn kill_servers(&self) -> Outcome {
        let pids = Pids::of("serve", &self.dir).0;
        if pids.is_empty() {
            return Err("the servers' processes are not found".into());
        }
        output(Command::new("kill").arg("-9").args(pids.iter().map(u32::to_string)))?;
        output(&mut self.forebay.command(&["up", &text(&self.dir)])).map(drop)
    }

    /// A directory, made through the first mount, whose files are striped over all OSTs in small stripes.
    pub fn striped_dir(&self, name: &str) -> Outcome {
        let dir = self.first.join(name);
        fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        output(self.forebay.command(&["setstripe", "-c", "-1", "-S", "64KiB"]).arg(&dir)).map(drop)
    }

    /// The option of `forebay` that was run last with all targets stopped: their disks hold what they should.
    pub fn check(&self) -> Outcome {
        output(self.forebay.command(&["umount"]).arg(&self.second))?;
        output(&mut self.forebay.command(&["down", &text(&self.dir)]))?;
        let targets = fs::read_dir(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))?;
        let is_target = |path: &PathBuf| path.join("identity").exists();
        let targets = targets.filter_map(|entry| Some(entry.ok()?.path())).filter(is_target);
        let found = output(self.forebay.command(&["fsck"]).args(targets))?;
        println!("fsck: {}", found.lines().last().unwrap_or_default());
        Ok(())
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let _ = self.forebay.command(&["umount", "--lazy"]).arg(&self.second).output();
        let _ = self.forebay.command(&["down", "--force", &text(&self.dir)]).output();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
