//! `forebay umount MNT`: takes a mount away and waits until everything is durable.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use crate::{
    error::{CliError, CliResult},
    mount::resolve_point,
    mounts,
    posix::{self, Unmount},
    processes, progress,
};

/// How long a mount may take to make everything durable and end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same where it is forced.
const PATIENCE_WHEN_FORCED: Duration = Duration::from_secs(4);

/// How long one that is in use is tried again.
const BUSY_PATIENCE: Duration = Duration::from_millis(500);

/// What to unmount.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount
    #[arg(value_name = "MNT")]
    pub mnt: PathBuf,
    /// Take it away even while programs use it
    #[arg(short = 'l', long)]
    pub lazy: bool,
    /// Also end what programs wait for, and the mount's process, if servers do not answer: what is not durable yet is lost
    #[arg(short = 'f', long, conflicts_with = "lazy")]
    pub force: bool,
}

/// Unmounts.
pub fn run(args: &UmountArgs) -> CliResult {
    let mnt = resolve_point(&args.mnt)?;
    // One whose process still makes changes durable can be waited for, or given up.
    if !mounts::is_mounted(&mnt) && mounts::pid_file(&mnt).running().is_none() {
        return Err(CliError::failed(format!("{} is not a mount", mnt.display())));
    }
    if let Some(kind) = mounts::foreign(&mnt) {
        let mnt = mnt.display();
        return Err(CliError::usage(format!("{mnt} is a mount of {kind} and not ours: `umount {mnt}` takes it away")));
    }
    match (args.force, args.lazy) {
        (true, _) => unmount(&mnt, Unmount::Forcibly),
        (_, true) => unmount(&mnt, Unmount::Lazily),
        _ => unmount(&mnt, Unmount::Unused),
    }
}

/// Takes the mount at `mnt` away and asks its process to end, whatever programs still do there: what they were told is done
/// is made durable, and the rest fails.
pub fn end(mnt: &Path) -> CliResult {
    if mounts::is_mounted(mnt) {
        posix::unmount(mnt, Unmount::Lazily)
            .map_err(|error| CliError::failed(format!("cannot unmount {}: {error}", mnt.display())))?;
    }
    let _waiting = progress::spinner("waiting until everything is durable");
    match mounts::pid_file(mnt).stop(PATIENCE) {
        true => Ok(()),
        false => Err(CliError::failed(format!("the process of the mount at {} does not end", mnt.display()))),
    }
}

/// Who looks at mounts for a moment (what indexes disks, a shell that completes a path) makes nobody try twice.
fn try_unmount(mnt: &Path, how: Unmount) -> io::Result<()> {
    let mut last = Ok(());
    let is_busy = |result: &io::Result<()>| result.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY));
    processes::wait_until(BUSY_PATIENCE, || {
        last = posix::unmount(mnt, how);
        !is_busy(&last)
    });
    last
}

/// Takes the mount at `mnt` away; not an error if there is none.
pub fn unmount(mnt: &Path, how: Unmount) -> CliResult {
    let pid_file = mounts::pid_file(mnt);
    let pid = pid_file.running();
    if mounts::is_mounted(mnt)
        && let Err(error) = try_unmount(mnt, how)
        // Else its process, which was told first, was faster.
        && mounts::is_mounted(mnt)
    {
        let hint = match error.raw_os_error() {
            Some(libc::EBUSY) => {
                "; programs still use it: end them (`fuser -vm` names them), or add --lazy (`down`: --force)"
            }
            Some(libc::EPERM) => "; only root may",
            _ => "",
        };
        return Err(CliError::failed(format!("cannot unmount {}: {error}{hint}", mnt.display())));
    }
    let _waiting = progress::spinner("waiting until everything is durable");
    let patience = if how == Unmount::Forcibly { PATIENCE_WHEN_FORCED } else { PATIENCE };
    let Some(pid) = pid else {
        if pid_file.running().is_none() {
            pid_file.remove();
        }
        return Ok(());
    };
    if pid_file.has_ended(pid, patience) {
        return Ok(());
    }
    if how == Unmount::Forcibly {
        pid_file.kill();
        mounts::Notes::of(mnt).keep(None);
        eprintln!(
            "forebay: servers did not answer; the mount's process {pid} was ended, and what was not durable yet is lost"
        );
        return Ok(());
    }
    Err(CliError::failed(format!(
        "the mount is gone, but its process {pid} still tries to make changes durable; are the servers up? (--force gives up)",
    )))
}
