//! The demo's own cluster: started as separate processes, killed, restarted, and removed when the demo ends. It is on
//! this host, or on several that the demo makes.
//!
//! Invariant: dropping a site unmounts it and leaves none of its processes and hosts behind, even after errors.

use std::{path::Path, time::Duration};

use super::{
    base::{self, Base, clear, is_ending},
    hosts::Hosts,
    library::Library,
    on_hosts::{self, WRITER_BEFORE_LAST},
    volume::{Directory, Volume},
    watchdog::{self, Watchdog},
};
use forebay_command::{
    cluster::{Cluster, Target},
    error::{CliError, CliResult},
    posix,
    processes::{self, PidFile},
};
use forebay_env::{Network, real};
use forebay_proto::TargetId;
use serde_json::Value;

use crate::{
    cluster_arg::{ClusterArg, KeysArgs},
    down, fsck, mount, mount_point,
    mounts::{self, Unmount},
    serve::DisksArgs,
    server_processes, status, sync,
    umount::{self, Unmounted},
    up::{self, UpArgs},
};

/// A cluster of the demo.
pub struct Site {
    /// What each host has of it. The first has the MDT.
    parts: Vec<Cluster>,
    /// The hosts, if it is on several.
    hosts: Option<Hosts>,
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
            dir: base.cluster_of(1),
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
        let mnt = mount_point::make(&base.mnt())?;
        cluster.description.mount = mounts.then_some(mnt);
        cluster.save()?;
        let watchdog = Watchdog::new(base.clone());
        let site = Self { parts: vec![cluster], hosts: None, keep, base: base.clone(), mounts, watchdog };
        site.start_servers()?;
        Ok(site)
    }

    /// Makes hosts and a cluster that all of them have joined, without mounting.
    pub fn start_on_hosts(base: &Base, shape: Shape) -> CliResult<Self> {
        let (hosts, parts) = on_hosts::build(base, shape.ost_bytes, shape.mdt_bytes)?;
        let watchdog = Watchdog::new(base.clone());
        let site = Self { parts, hosts: Some(hosts), keep: false, base: base.clone(), mounts: true, watchdog };
        site.watchdog.wake();
        Ok(site)
    }

    /// One sentence about the cluster.
    pub fn headline(&self) -> String {
        let osts = self.ost_count();
        if self.hosts.is_some() {
            let (hosts, writer) = (self.parts.len(), self.writer());
            return format!(
                "Forebay: 1 MDT and {osts} OSTs on {hosts} hosts (network namespaces) that trust each other by keys; written \
                 on host {writer}, read on host {hosts}"
            );
        }
        let reached = if self.mounts {
            format!("mounted at {}", self.base.mnt().display())
        } else {
            "used through the library".into()
        };
        format!("Forebay: 1 MDT and {osts} OSTs, each served by a process of its own, {reached}")
    }

    /// The volume that the programs write to.
    pub fn volume(&self) -> CliResult<Box<dyn Volume>> {
        if self.mounts {
            return Ok(Box::new(Directory::new(&self.base.mnt())?));
        }
        Ok(Box::new(Library::new(self.parts[0].mgs())))
    }

    /// The volume that the programs read: the same one, on another host if there are several.
    pub fn read_volume(&self) -> CliResult<Box<dyn Volume>> {
        match &self.hosts {
            Some(_) => Ok(Box::new(Directory::new(&self.base.other_mnt())?)),
            None => self.volume(),
        }
    }

    /// OSTs of all hosts.
    pub fn ost_count(&self) -> usize {
        self.parts.iter().map(Cluster::ost_count).sum()
    }

    /// The host whose mount the programs write to. They read on the last host.
    fn writer(&self) -> usize {
        self.parts.len() - WRITER_BEFORE_LAST
    }

    /// Does something on the host (from 1) of a part.
    fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> CliResult<T> + Send) -> CliResult<T> {
        match &self.hosts {
            Some(hosts) => hosts.on(host, work).map_err(CliError::failed)?,
            None => work(),
        }
    }

    /// Bytes in use on each OST.
    pub fn stored_bytes(&self) -> CliResult<Vec<u64>> {
        let report = self.status()?;
        let targets = report["targets"].as_array().map_or(&[][..], Vec::as_slice);
        let osts = targets.iter().filter(|target| target["kind"] == "ost");
        Ok(osts.map(|target| status::space(target, "used").unwrap_or(0)).collect())
    }

    /// Mounts it, if the programs use a mount.
    pub fn mount(&self) -> CliResult {
        refuse_when_ending()?;
        if !self.mounts {
            return Ok(());
        }
        let writer = self.hosts.as_ref().map_or(1, |_| self.writer());
        self.on(writer, || mount::ensure(&self.parts[writer - 1], &self.base.mnt()))?;
        match &self.hosts {
            Some(hosts) => on_hosts::mount_as_client(hosts, &self.base),
            None => Ok(()),
        }
    }

    /// Unmounts, stops every server cleanly.
    pub fn stop(&self) -> CliResult {
        self.watchdog.sleep();
        if self.hosts.is_some() {
            // All of them first: they need the servers of all hosts.
            [self.base.mnt(), self.base.other_mnt()].iter().try_for_each(|mnt| unmount(mnt))?;
        }
        (1..).zip(&self.parts).try_for_each(|(host, part)| self.on(host, || down::stop(part, false)))
    }

    /// What [`Site::restart`] does.
    pub fn restarting(&self) -> &'static str {
        match self.hosts {
            Some(_) => "killing every process on every host, and starting all again",
            None => "stopping everything and starting it again",
        }
    }

    /// What [`Site::restart`] did.
    pub fn interruption(&self) -> &'static str {
        match self.hosts {
            Some(_) => "every process on every host was killed, and all were started again",
            None => "everything was stopped and started again",
        }
    }

    /// Starts everything again: after a clean stop, or, of several hosts, as if all of them had crashed. What was written
    /// is durable before that.
    pub fn restart(&self) -> CliResult {
        if self.hosts.is_some() {
            self.sync()?;
            self.watchdog.sleep();
            [self.base.mnt(), self.base.other_mnt()].iter().for_each(|mnt| mounts::pid_file(mnt).kill());
            base::kill_servers(&self.base);
            base::end_mounts(&self.base);
        } else {
            self.stop()?;
        }
        self.start_servers()?;
        self.mount()
    }

    /// Starts every server that is not running.
    pub fn start_servers(&self) -> CliResult {
        refuse_when_ending()?;
        for (host, part) in (1..).zip(&self.parts) {
            self.on(host, || up::start_servers(part, DisksArgs::default()))?;
        }
        self.watchdog.wake();
        Ok(())
    }

    /// Checks the stopped targets' bytes.
    pub fn fsck(&self) -> CliResult {
        fsck::check_stopped(&self.parts)
    }

    /// Sends SIGKILL to a target's process.
    pub fn kill(&self, id: TargetId) -> CliResult {
        self.watchdog.sleep();
        let (part, (name, _)) = self.server_of(id);
        let pid = PidFile::of(&self.parts[part].run_dir(), &name);
        let running = pid.running().ok_or_else(|| CliError::failed(format!("{id} ended by itself; see its log")))?;
        posix::send_signal(running, libc::SIGKILL).map_err(|e| CliError::failed(format!("cannot kill {id}: {e}")))?;
        processes::wait_until(Duration::from_secs(10), || pid.running().is_none());
        Ok(())
    }

    /// Restarts a killed target. Returns when it accepts clients; it may still be recovering.
    pub fn bring_back(&self, id: TargetId) -> CliResult {
        refuse_when_ending()?;
        let (part, (name, targets)) = self.server_of(id);
        let cluster = &self.parts[part];
        self.on(part + 1, || up::start_server(cluster, &name, &targets, DisksArgs::default())?.wait_ready().map(drop))?;
        self.watchdog.wake();
        Ok(())
    }

    /// The process of a target, and the number of its part.
    fn server_of(&self, id: TargetId) -> (usize, (String, Vec<Target>)) {
        let serves = |(_, targets): &(String, Vec<Target>)| targets.iter().any(|target| target.id == id);
        let process = |part: &Cluster| server_processes::of(part).into_iter().find(serves);
        let mut all = self.parts.iter().enumerate().filter_map(|(number, part)| Some((number, process(part)?)));
        all.next().expect("every target has its process")
    }

    /// A target's own status.
    pub fn status_of(&self, id: TargetId) -> Option<Value> {
        let report = self.status().ok()?;
        let targets = report["targets"].as_array()?;
        targets.iter().find(|target| target["name"] == id.to_string().as_str()).cloned()
    }

    /// The output of `forebay status`.
    pub fn status(&self) -> CliResult<Value> {
        self.ask(|network, cluster| {
            real::run(|env| async move { status::gather(&env.with_network(network), &cluster).await })
        })
    }

    /// Makes everything that was written durable.
    pub fn sync(&self) -> CliResult {
        self.ask(|network, cluster| {
            real::run(|env| async move { sync::sync(&env.with_network(network), &cluster).await })
        })
    }

    /// Asks the cluster something from the first host.
    fn ask<T: Send>(&self, ask: impl FnOnce(Network, ClusterArg) -> CliResult<T> + Send) -> CliResult<T> {
        self.on(1, || {
            let cluster = ClusterArg::Described(self.parts[0].clone());
            let network = cluster.network(&KeysArgs::default())?;
            ask(network, cluster)
        })
    }

    /// Ends the demo now: programs might wait forever for a server that does not come back.
    pub fn abandon(&self, why: &str) -> ! {
        watchdog::abandon(&self.base, why)
    }

    /// The last lines of the logs, for a demo that failed.
    pub fn log_tails(&self) -> String {
        watchdog::log_tails(&self.base)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.watchdog.sleep();
        clear(&self.base, self.keep);
    }
}

/// Unmounts, and waits until everything is durable.
fn unmount(mnt: &Path) -> CliResult {
    match umount::unmount(mnt, Unmount::Unused)? {
        Unmounted::Ended => Ok(()),
        Unmounted::Lost(what) => Err(CliError::failed(what)),
        Unmounted::Held(_) => Err(CliError::failed(format!("a program still uses {}", mnt.display()))),
    }
}

fn refuse_when_ending() -> CliResult {
    if is_ending() { Err(CliError::failed("interrupted")) } else { Ok(()) }
}
