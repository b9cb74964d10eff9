//! `forebay down DIR`: unmounts and stops what `up` started.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    cluster::Cluster,
    error::{CliError, CliResult},
    posix::Unmount,
    processes::PidFile,
    progress, umount,
    up::{Lock, server_processes},
};

/// How long a server may take to stop cleanly.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to stop.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Directory of the cluster
    pub dir: PathBuf,
    /// Kill servers that do not stop within a minute, and unmount even while programs use the mount
    #[arg(long)]
    pub force: bool,
}

/// Stops it.
pub fn run(args: &DownArgs) -> CliResult {
    let cluster = Cluster::load(&args.dir)?;
    let _lock = Lock::take(&cluster)?;
    stop(&cluster, args.force)?;
    println!("{} is down", cluster.dir.display());
    Ok(())
}

/// Unmounts, then stops the servers, the MDT's first: it tells the OSTs what to destroy.
pub fn stop(cluster: &Cluster, force: bool) -> CliResult {
    if let Some(mnt) = &cluster.description.mount {
        match umount::unmount(mnt, if force { Unmount::Lazily } else { Unmount::Unused }) {
            Err(_) if force => crate::mounts::pid_file(mnt).kill(),
            result => result?,
        }
    }
    let _waiting = progress::spinner("stopping the servers");
    for (name, _) in server_processes(cluster) {
        let pid_file = PidFile::of(&cluster.run_dir(), &name);
        if !pid_file.stop(PATIENCE) {
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
    Ok(())
}
