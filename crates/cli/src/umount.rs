//! `forebay umount MNT`: takes a mount away and waits until everything is durable.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use crate::{
    error::{CliError, CliResult},
    mount::prepare_point,
    mounts, posix, processes, progress,
};

/// How long a mount may take to make everything durable and end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to unmount.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount
    #[arg(value_name = "MNT")]
    pub mnt: PathBuf,
    /// Take it away even while programs use it
    #[arg(short = 'l', long)]
    pub lazy: bool,
}

/// Unmounts.
pub fn run(args: &UmountArgs) -> CliResult {
    let mnt = prepare_point(&args.mnt)?;
    if !mounts::is_mounted(&mnt) {
        return Err(CliError::failed(format!("{} is not a mount", mnt.display())));
    }
    unmount(&mnt, args.lazy)
}

/// Takes the mount at `mnt` away; not an error if there is none.
pub fn unmount(mnt: &Path, lazily: bool) -> CliResult {
    if mounts::is_mounted(mnt) {
        posix::unmount(mnt, lazily).map_err(|error| {
            let hint = match error.raw_os_error() {
                Some(libc::EBUSY) => "; programs still use it: end them (`fuser -vm` names them), or add --lazy",
                Some(libc::EPERM) => "; only root may",
                _ => "",
            };
            CliError::failed(format!("cannot unmount {}: {error}{hint}", mnt.display()))
        })?;
    }
    let _waiting = progress::spinner("waiting until everything is durable");
    let pid_file = mounts::pid_file(mnt);
    if processes::wait_until(PATIENCE, || pid_file.running().is_none()) {
        pid_file.remove();
        return Ok(());
    }
    Err(CliError::failed(format!(
        "the mount is gone, but its process {} still tries to make changes durable; are the servers up?",
        pid_file.running().unwrap_or(0),
    )))
}
