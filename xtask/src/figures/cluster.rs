//! A cluster on this machine, started like a user would. Its data files are written once before anything is measured.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Outcome, Plan,
    forebay::Forebay,
    process::{Pids, output},
};

/// One MDT, four OSTs and a mount. Dropping it takes the cluster down.
pub struct Cluster<'a> {
    forebay: &'a Forebay,
    dir: PathBuf,
    /// The mount point.
    pub mnt: PathBuf,
    /// The server process.
    pub servers: Pids,
    /// The mount's process.
    pub mount: Pids,
}

/// Number of OSTs.
pub const OSTS: usize = 4;

impl<'a> Cluster<'a> {
    /// Formats the cluster, writes its data files once, and starts it.
    pub fn make(forebay: &'a Forebay, plan: &Plan) -> Outcome<Self> {
        Self::make_in(forebay, plan, "cluster")
    }

    /// The same under another name.
    pub fn make_in(forebay: &'a Forebay, plan: &Plan, name: &str) -> Outcome<Self> {
        let (dir, mnt) = (plan.dir.join(name), plan.dir.join(format!("mnt-{name}")));
        std::fs::create_dir_all(&mnt).map_err(|error| format!("cannot make {}: {error}", mnt.display()))?;
        let mut cluster = Self { forebay, dir, mnt, servers: Pids::default(), mount: Pids::default() };
        let dir = cluster.dir.to_string_lossy().into_owned();
        let (osts, ost_size) = (OSTS.to_string(), plan.size("4GiB", "1GiB", "256MiB"));
        let mdt_size = plan.size("1GiB", "1GiB", "256MiB");
        let up = ["up", &dir, "--osts", &osts, "--ost-size", ost_size, "--mdt-size", mdt_size, "--no-mount"];
        output(&mut forebay.command(&up))?;
        output(&mut forebay.command(&["down", &dir]))?;
        (0..OSTS).try_for_each(|ost| write_once(&cluster.dir.join(format!("OST{ost:04x}/data"))))?;
        write_once(&cluster.dir.join("MDT0000/data"))?;
        cluster.up()?;
        Ok(cluster)
    }

    /// Starts servers and mount.
    pub fn up(&mut self) -> Outcome {
        let (dir, mnt) = (self.dir.to_string_lossy(), self.mnt.to_string_lossy());
        output(&mut self.forebay.command(&["up", &dir, "--mount", &mnt]))?;
        output(&mut self.forebay.command(&["setstripe", "-c", "1", &mnt]))?;
        (self.servers, self.mount) = (Pids::of("serve", &self.dir), Pids::of("mount", &self.dir));
        let found = !self.servers.0.is_empty() && !self.mount.0.is_empty();
        if found { Ok(()) } else { Err("the servers' and the mount's processes are not found".into()) }
    }

    /// Mounts at `more` further places. Returns all mount points.
    pub fn mount_more(&mut self, more: usize) -> Outcome<Vec<PathBuf>> {
        let mut all = vec![self.mnt.clone()];
        for number in 0..more {
            let mnt = self.mnt.with_file_name(format!("mnt{number}"));
            std::fs::create_dir_all(&mnt).map_err(|error| format!("cannot make {}: {error}", mnt.display()))?;
            output(self.forebay.command(&["mount", &self.dir.to_string_lossy()]).arg(&mnt))?;
            all.push(mnt);
        }
        self.mount = Pids::of("mount", &self.dir);
        Ok(all)
    }

    /// The processes of mount and servers, as an argument of `--cpu-of`.
    pub fn pids(&self) -> String {
        self.mount.0.iter().chain(&self.servers.0).map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    /// Restarts both: their caches are empty, and their peak memory starts over.
    pub fn restart(&mut self) -> Outcome {
        let dir = self.dir.to_string_lossy().into_owned();
        output(&mut self.forebay.command(&["down", &dir]))?;
        self.up()
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let dir = self.dir.to_string_lossy().into_owned();
        if let Err(error) = output(&mut self.forebay.command(&["down", "--force", &dir])) {
            eprintln!("xtask: {error}");
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Reads a file and writes it back to the same offsets, past the page cache. Then the file system below has nothing
/// left to allocate, like in the image of the ext4 that it is compared with.
pub fn write_once(path: &Path) -> Outcome {
    let path = path.display();
    let mut dd = Command::new("dd");
    dd.args([format!("if={path}"), format!("of={path}")]);
    dd.args(["bs=8M", "iflag=direct", "oflag=direct", "conv=notrunc,fsync", "status=none"]);
    output(&mut dd).map(drop)
}
