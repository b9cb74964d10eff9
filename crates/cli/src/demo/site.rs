//! The demo's own cluster: started as separate processes, killed, brought back, and gone when the demo ends.
//!
//! Invariant: dropping a site unmounts it and leaves none of its processes behind, whatever went wrong before.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use forebay_env::real;
use forebay_proto::TargetId;
use serde_json::Value;

use crate::{
    cluster::{Cluster, ClusterArg},
    down,
    error::{CliError, CliResult},
    mount, mounts, posix,
    processes::PidFile,
    status, sync,
    up::{self, UpArgs, server_processes},
};

/// Set when a signal ends the demo: nothing may be started any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// A cluster of the demo.
pub struct Site {
    cluster: Cluster,
    mnt: PathBuf,
    keep: bool,
    base: Base,
}

/// The demo's directory, and what to remove of it.
#[derive(Clone, Debug)]
pub struct Base {
    /// Where everything lies.
    pub dir: PathBuf,
    /// It was not there before.
    pub made: bool,
}

/// Sizes of the targets.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// OSTs.
    pub osts: u32,
    /// Data bytes of each.
    pub ost_bytes: u64,
    /// Data bytes of the MDT.
    pub mdt_bytes: u64,
}

impl Site {
    /// Formats the targets and starts a process for each; not mounted yet.
    pub fn start(base: &Base, shape: Shape, keep: bool) -> CliResult<Self> {
        let args = UpArgs {
            dir: base.dir.join("cluster"),
            osts: Some(shape.osts),
            mdts: 1,
            ost_size: Some(shape.ost_bytes),
            mdt_size: Some(shape.mdt_bytes),
            mount: None,
            no_mount: true,
            listen: None,
            commit: None,
            separate: true,
        };
        let mut cluster = up::open(&args)?;
        let mnt = mount::prepare_point(&base.dir.join("mnt"))?;
        cluster.description.mount = Some(mnt.clone());
        cluster.save()?;
        let site = Self { cluster, mnt, keep, base: base.clone() };
        up::start_servers(&site.cluster)?;
        Ok(site)
    }

    /// Where it is mounted.
    pub fn mnt(&self) -> &Path {
        &self.mnt
    }

    /// Its description.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Mounts it.
    pub fn mount(&self) -> CliResult {
        refuse_when_ending()?;
        mount::ensure(&self.cluster, &self.mnt)
    }

    /// Unmounts, stops every server cleanly.
    pub fn stop(&self) -> CliResult {
        down::stop(&self.cluster, false)
    }

    /// Starts every server that does not run.
    pub fn start_servers(&self) -> CliResult {
        refuse_when_ending()?;
        up::start_servers(&self.cluster)
    }

    /// SIGKILL to a target's process.
    pub fn kill(&self, id: TargetId) -> CliResult {
        let pid = PidFile::of(&self.cluster.run_dir(), &id.to_string());
        let running = pid.running().ok_or_else(|| CliError::failed(format!("{id} ended by itself; see its log")))?;
        posix::send_signal(running, libc::SIGKILL).map_err(|e| CliError::failed(format!("cannot kill {id}: {e}")))?;
        crate::processes::wait_until(std::time::Duration::from_secs(10), || pid.running().is_none());
        Ok(())
    }

    /// Brings a killed target back; returns when it accepts clients (it may still be recovering).
    pub fn bring_back(&self, id: TargetId) -> CliResult {
        refuse_when_ending()?;
        let processes = server_processes(&self.cluster);
        let (name, targets) =
            processes.iter().find(|(name, _)| *name == id.to_string()).expect("every target has its process");
        up::start_server(&self.cluster, name, targets)?.wait_ready().map(drop)
    }

    /// Where everything of the demo lies.
    pub fn base_dir(&self) -> PathBuf {
        self.base.dir.clone()
    }

    /// What a target says of itself.
    pub fn status_of(&self, id: TargetId) -> Option<Value> {
        let report = self.status().ok()?;
        let targets = report["targets"].as_array()?;
        targets.iter().find(|target| target["name"] == id.to_string().as_str()).cloned()
    }

    /// What `forebay status` tells.
    pub fn status(&self) -> CliResult<Value> {
        let cluster = ClusterArg::Described(self.cluster.clone());
        real::run(|env| async move { status::gather(&env, &cluster).await })
    }

    /// Makes everything durable that was written.
    pub fn sync(&self) -> CliResult {
        let cluster = ClusterArg::Described(self.cluster.clone());
        real::run(|env| async move { sync::sync(&env, &cluster).await })
    }

    /// What the logs say at their ends, for a demo that went wrong.
    pub fn log_tails(&self) -> String {
        let logs = std::fs::read_dir(self.cluster.log_dir()).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = logs.map(|entry| entry.path()).collect();
        paths.sort();
        let tail = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let last = &lines[lines.len().saturating_sub(5)..];
            (!last.is_empty()).then(|| format!("--- {name}\n{}\n", last.join("\n")))
        };
        paths.iter().filter_map(tail).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        clear(&self.base, self.keep);
    }
}

fn refuse_when_ending() -> CliResult {
    if ENDING.load(Ordering::SeqCst) { Err(CliError::failed("interrupted")) } else { Ok(()) }
}

/// At a signal: nothing is started any more, everything is ended.
pub fn end_now(base: &Base) {
    ENDING.store(true, Ordering::SeqCst);
    clear(base, false);
}

/// Unmounts, ends all processes, removes the directory unless it is to be kept. Goes on whatever fails.
pub fn clear(base: &Base, keep: bool) {
    let (mnt, run_dir) = (base.dir.join("mnt"), base.dir.join("cluster/run"));
    if mounts::is_mounted(&mnt)
        && let Err(error) = posix::unmount(&mnt, true)
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
        // Not empty = the user put something there.
        let _ = std::fs::remove_dir(&base.dir);
    }
}
