//! The measured cluster: one MDT and some OSTs, each in its own process, started and stopped as `up` and `down` do.
//!
//! Invariant: dropping it leaves no process and no directory behind.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult, Doing},
    keys, posix,
    processes::{PidFile, this_program},
};
use forebay_env::{Address, Network};
use forebay_proto::{TargetId, TargetKind};

/// Where they listen.
#[derive(Clone, Copy, Debug)]
pub enum Listen<'a> {
    /// At Unix sockets.
    Sockets,
    /// At this loopback TCP address and those behind it, without keys.
    InsecureLoopback(&'a str),
    /// The same with keys.
    Tls(&'a str),
    /// The same address with integrity only.
    IntegrityOnly(&'a str),
}

/// See the module.
pub struct Servers {
    dir: PathBuf,
    cluster: Cluster,
    pids: Vec<u32>,
    stopped: bool,
}

impl Servers {
    /// Formats and starts the targets in `dir`, with `ost_bytes` for the data of each OST.
    pub fn start(dir: &Path, listen: Listen<'_>, osts: u32, ost_bytes: u64) -> CliResult<Self> {
        let shown = dir.display().to_string();
        if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(CliError::failed(format!("{shown} is not empty; give a new directory")));
        }
        let (osts, ost_bytes) = (osts.to_string(), ost_bytes.to_string());
        let mut up = this_program();
        up.arg("up").arg(dir).args(["--separate", "--no-mount", "--osts", &osts, "--ost-size", &ost_bytes]);
        up.args(["--mdt-size", "512MiB"]);
        match listen {
            Listen::Sockets => {}
            Listen::InsecureLoopback(address) => drop(up.args(["--listen", address, "--insecure-loopback"])),
            Listen::Tls(address) => drop(up.args(["--listen", address])),
            Listen::IntegrityOnly(address) => drop(up.args(["--listen", address, "--integrity-only"])),
        }
        up.stdout(Stdio::null());
        let status = up.status().doing(|| "cannot start the cluster".into())?;
        if !status.success() {
            return Err(CliError::failed(format!("the cluster in {shown} did not start")));
        }
        let cluster = Cluster::load(dir)?;
        let pids = PidFile::all(&cluster.run_dir()).into_iter().filter_map(|(_, file)| file.running()).collect();
        Ok(Self { dir: dir.to_owned(), cluster, pids, stopped: false })
    }

    /// The connections that their clients need.
    pub fn network(&self) -> CliResult<Network> {
        keys::of_cluster(&self.cluster, keys::ADMIN)
    }

    /// The addresses of MDT0000.
    pub fn mgs(&self) -> Vec<Address> {
        self.cluster.mgs()
    }

    /// The OSTs and their addresses.
    pub fn osts(&self) -> Vec<(TargetId, Vec<Address>)> {
        let osts = self.cluster.targets().into_iter().filter(|target| target.id.kind == TargetKind::Ost);
        osts.map(|target| (target.id, target.addresses)).collect()
    }

    /// CPU seconds of all servers so far.
    pub fn cpu_seconds(&self) -> f64 {
        self.pids.iter().filter_map(|pid| posix::cpu_clock_of(*pid)).sum()
    }

    /// Stops them and removes the directory.
    pub fn stop(mut self) -> CliResult {
        self.stopped = true;
        let done = down(&self.dir).doing(|| "cannot stop the cluster".into())?;
        if !done {
            return Err(CliError::failed(format!("the cluster in {} did not stop", self.dir.display())));
        }
        std::fs::remove_dir_all(&self.dir).doing(|| format!("cannot remove {}", self.dir.display()))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if !self.stopped {
            // The user is told the original error, not this one.
            let _ = down(&self.dir);
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn down(dir: &Path) -> std::io::Result<bool> {
    let status = this_program().arg("down").arg(dir).arg("--force").stdout(Stdio::null()).status()?;
    Ok(status.success())
}
