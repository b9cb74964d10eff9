//! `forebay down DIR`: unmounts and stops what `up` started.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clap::Args;
use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    paths::utf8,
    posix,
    processes::PidFile,
    progress,
};
use forebay_env::{EnvErrorKind, real};

use crate::{
    holders,
    lost::{self, Lost},
    mounts::{self, Unmount},
    server_processes::{self, STOP_TIMEOUT},
    umount::{self, Unmounted},
    up::Lock,
};

/// What to stop.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Directory of the cluster
    pub dir: PathBuf,
    /// Kill servers that do not stop within a minute, and unmount even while programs use the mount
    #[arg(long)]
    pub force: bool,
}

/// Unmounts and stops the cluster.
pub fn run(args: &DownArgs) -> CliResult {
    let cluster = Cluster::load(&args.dir)?;
    posix::leave_directory();
    let _lock = Lock::take(&cluster)?;
    stop(&cluster, args.force)?;
    refuse_served(&cluster)?;
    let lost = Lost::among(cluster.targets());
    println!("{} is down", cluster.dir.display());
    if lost.is_empty() { Ok(()) } else { Err(CliError::failed(lost::show(&lost))) }
}

/// Refuses if servers run that `up` did not start: `down` must not stop them.
fn refuse_served(cluster: &Cluster) -> CliResult {
    for target in cluster.targets() {
        let lock = target.dir.join("lock");
        if lock.exists() {
            let path = utf8(&lock)?;
            let held = real::run(async |env| env.lock_file(&path).map(drop));
            held.map_err(|error| match error.kind {
                EnvErrorKind::InUse => CliError::failed(format!(
                    "{} is still served, by a process that `up` did not start: {error}",
                    target.id
                )),
                _ => CliError::failed(format!("it cannot be told whether {} is still served: {error}", target.id)),
            })?;
        }
    }
    Ok(())
}

/// Unmounts `mnt`. Fails if it is still in use, because its users need the servers.
fn unmount(dir: &Path, mnt: &Path) -> CliResult<Unmounted> {
    match umount::unmount(mnt, Unmount::Unused)? {
        // A mount that only mount namespaces have, without users, can end.
        Unmounted::Held(holders) if !holders.is_empty() && !holders.iter().any(|holder| holder.is_user) => {
            umount::end(mnt)
        }
        ended @ (Unmounted::Ended | Unmounted::Lost(_)) => Ok(ended),
        Unmounted::Held(holders) => Err(CliError::failed(format!(
            "{} is unmounted, and still in use by {}: end them, or `forebay down --force {}` does without them",
            mnt.display(),
            holders::show(mnt, &holders),
            dir.display()
        ))),
    }
}

/// Unmounts, then stops the servers. The MDT's server is first: it sends the OSTs what to destroy.
pub fn stop(cluster: &Cluster, force: bool) -> CliResult {
    let processes = server_processes::of(cluster);
    let is_served = processes.iter().any(|(name, _)| PidFile::of(&cluster.run_dir(), name).running().is_some());
    // Where nothing is mounted, the process of the previous mount may still run. What others have mounted there since
    // is left alone.
    let remembered = cluster.description.mount.iter().filter(|mnt| !mounts::is_mounted(mnt)).cloned();
    let points: BTreeSet<PathBuf> = mounts::of_cluster(&cluster.dir).into_iter().chain(remembered).collect();
    let is_seen = |mnt: &&PathBuf| mounts::shows_cluster(&cluster.dir, mnt) || !mounts::is_mounted(mnt);
    for mnt in points.iter().filter(is_seen).filter(|_| !force) {
        umount::refuse_in_use(mnt, &format!("`forebay down --force {}` does without them", cluster.dir.display()))?;
    }
    let mut lost = Vec::new();
    for mnt in &points {
        if let Some((kind, source)) = mounts::seen(mnt).filter(|_| !mounts::shows_cluster(&cluster.dir, mnt)) {
            let mnt = mnt.display();
            let words =
                format!("{mnt} lies under another mount ({kind}, of {source}): take that away first (`umount {mnt}`)");
            return Err(CliError::failed(words));
        }
        let done = match (force, is_served) {
            (false, _) => unmount(&cluster.dir, mnt),
            (true, true) => umount::end(mnt),
            // No server would reply.
            (true, false) => umount::unmount(mnt, Unmount::Forcibly),
        };
        match done {
            Err(_) if force => mounts::pid_file(mnt).kill(),
            Ok(Unmounted::Lost(what)) => lost.push(what),
            result => drop(result?),
        }
        umount::end_earlier(mnt);
    }
    let _waiting = progress::spinner("stopping the servers");
    for (name, _) in processes {
        let pid_file = PidFile::of(&cluster.run_dir(), &name);
        if !pid_file.stop(STOP_TIMEOUT) {
            if !force {
                let pid = pid_file.running().unwrap_or(0);
                return Err(CliError::failed(format!(
                    "{name} (process {pid}) does not stop; see {}/{name}.log, or add --force (it recovers at the next start)",
                    cluster.log_dir().display(),
                )));
            }
            pid_file.kill();
        }
    }
    match lost.is_empty() {
        true => Ok(()),
        false => Err(CliError::failed(format!("the cluster is down; {}", lost.join("; ")))),
    }
}
