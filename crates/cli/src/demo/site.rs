//! The demo's own cluster: started as separate processes, killed, restarted, and removed when the demo ends.
//!
//! Invariant: dropping a site unmounts it and leaves none of its processes behind, even after errors.

use std::path::PathBuf;

use super::{
    base::{Base, clear, is_ending},
    library::Library,
    volume::{Directory, Volume},
    watchdog::{self, Watchdog},
};
use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    posix,
    processes::{self, PidFile},
};
use forebay_env::real;
use forebay_proto::TargetId;
use serde_json::Value;

use crate::{
    cluster_arg::{ClusterArg, KeysArgs},
    down, mount, mount_point,
    serve::DisksArgs,
    server_processes, status, sync,
    up::{self, UpArgs},
};

/// A cluster of the demo.
pub struct Site {
    cluster: Cluster,
    mnt: PathBuf,
    keep: bool,
    base: Base,
    /// Whether the cluster is mounted. If not, the programs use the library.
    mounts: bool,
    watchdog: Watchdog,
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
    /// Formats the targets and starts a process for each, without mounting.
    ///
    /// `mounts`: the programs use a mount; otherwise the library.
    pub fn start(base: &Base, shape: Shape, keep: bool, mounts: bool) -> CliResult<Self> {
        let args = UpArgs {
            dir: base.dir.join("cluster"),
            osts: Some(shape.osts),
            mdts: 1,
            ost_size: Some(shape.ost_bytes),
            mdt_size: Some(shape.mdt_bytes),
            mount: None,
            no_mount: true,
            foreground: false,
            listen: Vec::new(),
            commit: None,
            separate: true,
            metrics: None,
            metrics_public: false,
            recovery_window: None,
            insecure_loopback: false,
            integrity_only: false,
            in_silence: true,
            disks: DisksArgs::default(),
        };
        let mut cluster = up::open(&args)?;
        let mnt = mount_point::make(&base.dir.join("mnt"))?;
        cluster.description.mount = mounts.then(|| mnt.clone());
        cluster.save()?;
        let watchdog = Watchdog::new(cluster.run_dir(), cluster.log_dir(), base.clone());
        let site = Self { cluster, mnt, keep, base: base.clone(), mounts, watchdog };
        site.start_servers()?;
        Ok(site)
    }

    /// One sentence about the cluster.
    pub fn headline(&self) -> String {
        let osts = self.cluster.ost_count();
        let reached =
            if self.mounts { format!("mounted at {}", self.mnt.display()) } else { "used through the library".into() };
        format!("Forebay: 1 MDT and {osts} OSTs, each served by a process of its own, {reached}")
    }

    /// The volume that the programs use.
    pub fn volume(&self) -> CliResult<Box<dyn Volume>> {
        if self.mounts {
            return Ok(Box::new(Directory::new(&self.mnt)?));
        }
        Ok(Box::new(Library::new(self.cluster.mgs())))
    }

    /// Bytes in use on each OST.
    pub fn stored_bytes(&self) -> CliResult<Vec<u64>> {
        let report = self.status()?;
        let targets = report["targets"].as_array().map_or(&[][..], Vec::as_slice);
        let osts = targets.iter().filter(|target| target["kind"] == "ost");
        Ok(osts.map(|target| status::space(target, "used").unwrap_or(0)).collect())
    }

    /// The description of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Mounts it, if the programs use a mount.
    pub fn mount(&self) -> CliResult {
        refuse_when_ending()?;
        if !self.mounts {
            return Ok(());
        }
        mount::ensure(&self.cluster, &self.mnt)
    }

    /// Unmounts, stops every server cleanly.
    pub fn stop(&self) -> CliResult {
        self.watchdog.sleep();
        down::stop(&self.cluster, false)
    }

    /// Starts every server that is not running.
    pub fn start_servers(&self) -> CliResult {
        refuse_when_ending()?;
        up::start_servers(&self.cluster, DisksArgs::default())?;
        self.watchdog.wake();
        Ok(())
    }

    /// Sends SIGKILL to a target's process.
    pub fn kill(&self, id: TargetId) -> CliResult {
        self.watchdog.sleep();
        let pid = PidFile::of(&self.cluster.run_dir(), &id.to_string());
        let running = pid.running().ok_or_else(|| CliError::failed(format!("{id} ended by itself; see its log")))?;
        posix::send_signal(running, libc::SIGKILL).map_err(|e| CliError::failed(format!("cannot kill {id}: {e}")))?;
        processes::wait_until(std::time::Duration::from_secs(10), || pid.running().is_none());
        Ok(())
    }

    /// Restarts a killed target. Returns when it accepts clients; it may still be recovering.
    pub fn bring_back(&self, id: TargetId) -> CliResult {
        refuse_when_ending()?;
        let processes = server_processes::of(&self.cluster);
        let (name, targets) =
            processes.iter().find(|(name, _)| *name == id.to_string()).expect("every target has its process");
        up::start_server(&self.cluster, name, targets, DisksArgs::default())?.wait_ready()?;
        self.watchdog.wake();
        Ok(())
    }

    /// A target's own status.
    pub fn status_of(&self, id: TargetId) -> Option<Value> {
        let report = self.status().ok()?;
        let targets = report["targets"].as_array()?;
        targets.iter().find(|target| target["name"] == id.to_string().as_str()).cloned()
    }

    /// The output of `forebay status`.
    pub fn status(&self) -> CliResult<Value> {
        let cluster = ClusterArg::Described(self.cluster.clone());
        let network = cluster.network(&KeysArgs::default())?;
        real::run(|env| async move { status::gather(&env.with_network(network), &cluster).await })
    }

    /// Makes everything that was written durable.
    pub fn sync(&self) -> CliResult {
        let cluster = ClusterArg::Described(self.cluster.clone());
        let network = cluster.network(&KeysArgs::default())?;
        real::run(|env| async move { sync::sync(&env.with_network(network), &cluster).await })
    }

    /// Ends the demo now: programs might wait forever for a server that does not come back.
    pub fn abandon(&self, why: &str) -> ! {
        watchdog::abandon(&self.base, &self.cluster.log_dir(), why)
    }

    /// The last lines of the logs, for a demo that failed.
    pub fn log_tails(&self) -> String {
        watchdog::log_tails(&self.cluster.log_dir())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.watchdog.sleep();
        clear(&self.base, self.keep);
    }
}

fn refuse_when_ending() -> CliResult {
    if is_ending() { Err(CliError::failed("interrupted")) } else { Ok(()) }
}
