//! One MDT and one OST on a host, and a mount on another.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Outcome, Plan,
    cluster::write_once,
    forebay::{Forebay, Measured},
    process::{Pids, output},
};
use crate::hosts::Apart;

/// See the module. Dropping it takes the cluster down.
pub struct Site<'a> {
    forebay: &'a Forebay,
    apart: Apart,
    dir: PathBuf,
    mnt: PathBuf,
}

impl<'a> Site<'a> {
    /// On hosts that `wire` makes for a cluster in the directory that it is given.
    pub fn make(forebay: &'a Forebay, plan: &Plan, wire: impl FnOnce(&Path) -> Outcome<Apart>) -> Outcome<Self> {
        let (dir, mnt) = (plan.dir.join("apart"), plan.dir.join("mnt-apart"));
        std::fs::create_dir_all(&mnt).map_err(|error| format!("cannot make {}: {error}", mnt.display()))?;
        let site = Self { forebay, apart: wire(&dir)?, dir, mnt };
        let ost_size = plan.size("4GiB", "1GiB", "256MiB");
        let mut up = forebay.command(&["up", "--osts", "1", "--ost-size", ost_size, "--mdt-size"]);
        up.arg(plan.size("1GiB", "1GiB", "256MiB")).args(site.apart.up_options());
        site.run_with_servers(up.arg("--no-mount").arg(&site.dir))?;
        site.run_with_servers(forebay.command(&["down"]).arg(&site.dir))?;
        ["OST0000", "MDT0000"].iter().try_for_each(|target| write_once(&site.dir.join(target).join("data")))?;
        site.run_with_servers(forebay.command(&["up", "--no-mount"]).arg(&site.dir))?;
        site.apart.admit(forebay, &site.dir)?;
        Ok(site)
    }

    fn run_with_servers(&self, command: &mut Command) -> Outcome {
        output(self.apart.with_servers(command)?).map(drop)
    }

    /// Runs a benchmark in a new mount, whose caches are empty. It also measures the processor time of mount and servers.
    pub fn bench(&self, arguments: &[&str]) -> Outcome<Measured> {
        let mnt = self.mnt.to_string_lossy().into_owned();
        let mut mount = self.forebay.command(&["mount"]);
        output(self.apart.with_mounts(mount.args(self.apart.mount_arguments()).arg(&self.mnt))?)?;
        let (servers, mounts) = (Pids::of("serve", &self.dir), Pids::of("mount", Path::new(&mnt)));
        if servers.0.is_empty() || mounts.0.is_empty() {
            return Err("the servers' and the mount's processes are not found".into());
        }
        let pids: Vec<String> = servers.0.iter().chain(&mounts.0).map(u32::to_string).collect();
        let measured = self.forebay.bench(&[arguments, &["--cpu-of", &pids.join(","), &mnt]].concat())?;
        output(&mut self.forebay.command(&["umount", &mnt]))?;
        Ok(measured)
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        let _ = self.forebay.command(&["umount", "--force"]).arg(&self.mnt).output();
        if let Err(error) = self.run_with_servers(self.forebay.command(&["down", "--force"]).arg(&self.dir)) {
            eprintln!("xtask: {error}");
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
