//! A cluster with at least two mounts, on one host or on two. Its processes can be stopped, and its servers killed and
//! restarted.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use crate::{
    figures::{
        Outcome,
        forebay::Forebay,
        process::{Pids, output},
    },
    hosts::Apart,
};

/// The shape of a cluster.
pub struct Shape<'a> {
    /// Number of OSTs.
    pub osts: u32,
    /// Size of an OST, in the syntax of `forebay up`.
    pub ost_size: &'static str,
    /// Size of the MDT.
    pub mdt_size: &'static str,
    /// Run one process per target.
    pub separate: bool,
    /// Number of mounts: two or more.
    pub mounts: u32,
    /// Options of all mounts.
    pub options: Option<&'a str>,
    /// Servers on one host and mounts on another, with encrypted connections.
    pub hosts: bool,
}

/// One MDT, some OSTs, and mounts. Dropping it takes the cluster down.
pub struct Cluster<'a> {
    /// The program.
    pub forebay: &'a Forebay,
    dir: PathBuf,
    /// The first mount.
    pub first: PathBuf,
    /// The second.
    pub second: PathBuf,
    /// The further mounts.
    others: Vec<PathBuf>,
    /// Its hosts, if it is on two.
    apart: Option<Arc<Apart>>,
    /// True if something is wrong on its disks; then they are left for inspection.
    is_kept: Cell<bool>,
}

impl<'a> Cluster<'a> {
    /// Formats the targets, starts the servers, and mounts.
    pub fn make(forebay: &'a Forebay, dir: &Path, shape: &Shape<'_>) -> Outcome<Self> {
        fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
        let mount = |number: u32| dir.join(format!("m{number}"));
        let others = (3..=shape.mounts).map(mount).collect();
        let cluster = Self {
            forebay,
            first: mount(1),
            second: mount(2),
            others,
            apart: None,
            dir: dir.join("cluster"),
            is_kept: Cell::default(),
        };
        let osts = shape.osts.to_string();
        let sizes = ["--osts", &osts, "--ost-size", shape.ost_size, "--mdt-size", shape.mdt_size];
        let separate = shape.separate.then_some("--separate");
        let mut up = forebay.command(&["up", &text(&cluster.dir)]);
        up.args(sizes).args(separate);
        match shape.hosts {
            true => cluster.start_apart(up, shape.options),
            false => cluster.start_here(up, shape.options),
        }
    }

    /// Starts everything on this host.
    fn start_here(self, mut up: Command, options: Option<&str>) -> Outcome<Self> {
        output(up.arg("--mount").arg(&self.first))?;
        self.mounts()[1..].iter().try_for_each(|mount| self.mount(mount, options))?;
        if options.is_some() {
            output(self.forebay.command(&["umount"]).arg(&self.first))?;
            self.mount(&self.first, options)?;
        }
        Ok(self)
    }

    /// Makes two hosts, and starts the servers on one and the mounts on the other.
    fn start_apart(mut self, mut up: Command, options: Option<&str>) -> Outcome<Self> {
        let apart = Arc::new(Apart::make(&self.dir)?);
        self.apart = Some(apart.clone());
        output(apart.with_servers(up.arg("--no-mount").args(apart.up_options()))?)?;
        apart.admit(self.forebay, &self.dir)?;
        self.mounts().iter().try_for_each(|mount| self.mount(mount, options))?;
        Ok(self)
    }

    fn mount(&self, mount: &Path, options: Option<&str>) -> Outcome {
        fs::create_dir_all(mount).map_err(|error| format!("cannot make {}: {error}", mount.display()))?;
        let options = options.map(|options| ["-o", options]);
        let mut command = self.forebay.command(&["mount"]);
        command.args(options.iter().flatten());
        match &self.apart {
            Some(apart) => output(apart.with_mounts(command.args(apart.mount_arguments()).arg(mount))?).map(drop),
            None => output(command.arg(&self.dir).arg(mount)).map(drop),
        }
    }

    /// All mounts.
    pub fn mounts(&self) -> Vec<&Path> {
        [&self.first, &self.second].into_iter().chain(&self.others).map(PathBuf::as_path).collect()
    }

    /// The mounts that `down` does not take away.
    fn not_of_up(&self) -> Vec<&Path> {
        self.mounts().split_off(if self.apart.is_some() { 0 } else { 1 })
    }

    /// The processes of its servers, for use by another thread.
    pub fn servers(&self) -> Servers {
        Servers { forebay: self.forebay.clone(), dir: self.dir.clone(), apart: self.apart.clone() }
    }

    /// Kills every server with SIGKILL and restarts it.
    pub fn kill_servers(&self) -> Outcome {
        let servers = self.servers();
        servers.kill(&servers.pids()?)?;
        servers.bring_back()
    }

    /// Makes a directory through the first mount. Its files are striped over this many OSTs (-1: all) in small stripes.
    pub fn striped_dir(&self, name: &str, stripes: &str) -> Outcome {
        let dir = self.first.join(name);
        fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        output(self.forebay.command(&["setstripe", "-c", stripes, "-S", "64KiB"]).arg(&dir)).map(drop)
    }

    /// Stops everything and runs fsck, which must find the disks as they should be.
    pub fn check(&self) -> Outcome {
        for mount in self.not_of_up() {
            output(self.forebay.command(&["umount"]).arg(mount))?;
        }
        output(&mut self.forebay.command(&["down", &text(&self.dir)]))?;
        let targets = fs::read_dir(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))?;
        let is_target = |path: &PathBuf| path.join("identity").exists();
        let targets = targets.filter_map(|entry| Some(entry.ok()?.path())).filter(is_target);
        let found = output(self.forebay.command(&["fsck"]).args(targets)).map_err(|error| {
            self.is_kept.set(true);
            format!("{error}\nthe targets are left in {}", self.dir.display())
        })?;
        println!("fsck: {}", found.lines().last().unwrap_or_default());
        Ok(())
    }
}

/// The processes of servers and mounts.
#[derive(Clone)]
pub struct Servers {
    forebay: Forebay,
    dir: PathBuf,
    apart: Option<Arc<Apart>>,
}

impl Servers {
    /// The pids of running servers.
    pub fn pids(&self) -> Outcome<Vec<u32>> {
        let pids = Pids::of("serve", &self.dir).0;
        if pids.is_empty() { Err("the servers' processes are not found".into()) } else { Ok(pids) }
    }

    /// The pids of mounts.
    pub fn mount_pids(&self) -> Outcome<Vec<u32>> {
        let source = self.apart.as_ref().map_or(&*self.dir, |apart| apart.member());
        let pids = Pids::of("mount", source).0;
        if pids.is_empty() { Err("the mounts' processes are not found".into()) } else { Ok(pids) }
    }

    /// Sends SIGKILL.
    pub fn kill(&self, pids: &[u32]) -> Outcome {
        signal(libc::SIGKILL, pids)
    }

    /// Sends SIGSTOP, and SIGCONT after a while.
    pub fn stop(&self, pids: &[u32], time: Duration) -> Outcome {
        let stopped = signal(libc::SIGSTOP, pids);
        std::thread::sleep(time);
        stopped.and(signal(libc::SIGCONT, pids))
    }

    /// Starts the servers that do not run.
    pub fn bring_back(&self) -> Outcome {
        let mut up = self.forebay.command(&["up", &text(&self.dir)]);
        match &self.apart {
            Some(apart) => output(apart.with_servers(up.arg("--no-mount"))?).map(drop),
            None => output(&mut up).map(drop),
        }
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for mount in self.not_of_up() {
            let _ = self.forebay.command(&["umount", "--lazy"]).arg(mount).output();
        }
        let _ = self.forebay.command(&["down", "--force", &text(&self.dir)]).output();
        if !self.is_kept.get() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Sends a signal from this process. A child process would close the files that are open here. For files on a stopped
/// mount, exec(2) then waits until the mount continues.
fn signal(signal: i32, pids: &[u32]) -> Outcome {
    pids.iter().try_for_each(|pid| {
        // SAFETY: no memory is passed.
        match unsafe { libc::kill(*pid as i32, signal) } {
            0 => Ok(()),
            _ => Err(format!("signal {signal} to process {pid}: {}", std::io::Error::last_os_error())),
        }
    })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
