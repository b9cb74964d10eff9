//! `forebay umount MNT`: unmounts and waits until everything is durable.
//!
//! A mount's process ends once nothing holds the mount any more: no program by a directory or a file, and no other
//! mount namespace. While there are holders the command does not wait: it names them at once.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult},
    posix,
    processes::{self, Ending, PidFile},
    progress,
};

use crate::{
    device::Device,
    holders::{self, Holder},
    mount_point,
    mounts::{self, LossReport, Noted, Unmount},
};

/// How long a mount may take to make everything durable and end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The same for a forced unmount.
const TIMEOUT_WHEN_FORCED: Duration = Duration::from_secs(4);

/// How long unmounting a busy mount is retried, and how often the holders of an unmounted one are checked.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// How long an unmounted mount may continue without a visible holder. After that an invisible one is assumed.
const UNSEEN_TIMEOUT: Duration = Duration::from_secs(10);

/// What to unmount.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount
    #[arg(value_name = "MNT")]
    pub mnt: PathBuf,
    /// Take it away even while programs use it: they keep what they have open, and it ends with the last of them
    #[arg(short = 'l', long)]
    pub lazy: bool,
    /// Also end what programs wait for, and the mount's process, if servers do not answer: what is not durable yet is lost
    #[arg(short = 'f', long, conflicts_with = "lazy")]
    pub force: bool,
}

/// The outcome of an unmount.
pub enum Unmounted {
    /// Everything is durable, and the process of the mount has ended.
    Ended,
    /// The process of the mount has ended, and not everything is durable: what was lost.
    Lost(String),
    /// It is detached here, and continues for these holders.
    Held(Vec<Holder>),
}

/// Unmounts.
pub fn run(args: &UmountArgs) -> CliResult {
    let mnt = mount_point::resolve(&args.mnt)?;
    posix::leave_directory();
    let shown = mnt.display();
    let (mounted, pid) = (mounts::is_mounted(&mnt), mounts::pid_file(&mnt).running());
    // If its process still makes changes durable, it can be waited for or killed.
    if !mounted && pid.is_none() {
        return Err(CliError::failed(format!("{shown} is not a mount")));
    }
    if let Some(kind) = mounts::foreign(&mnt) {
        return Err(CliError::usage(format!(
            "{shown} is a mount of {kind} and not ours: `umount {shown}` takes it away"
        )));
    }
    refuse_others(&mnt)?;
    if args.lazy {
        return detach(&mnt);
    }
    let how = if args.force { Unmount::Forcibly } else { Unmount::Unused };
    match unmount(&mnt, how)? {
        Unmounted::Ended => Ok(()),
        Unmounted::Lost(what) => Err(CliError::failed(what)),
        Unmounted::Held(holders) if mounted => {
            say_held(&mnt, pid, &holders);
            Ok(())
        }
        Unmounted::Held(holders) => Err(CliError::failed(format!(
            "{shown} was taken away before, and is still in use by {}: end them, or `forebay umount --force {shown}` does \
             without them",
            holders::show(&mnt, &holders)
        ))),
    }
}

/// Detaches the mount at once, even if it is in use.
fn detach(mnt: &Path) -> CliResult {
    let (pid_file, noted) = (mounts::pid_file(mnt), Noted::of(mnt));
    let (pid, device) = (pid_file.running(), mounts::device(mnt).or_else(|| noted.read()));
    if mounts::is_mounted(mnt) {
        mounts::unmount(mnt, Unmount::Lazily).map_err(|error| cannot(mnt, &error.to_string()))?;
    }
    let Some(pid) = pid else { return Ok(()) };
    if pid_file.has_ended(pid, BUSY_TIMEOUT) {
        return Ok(());
    }
    let holders =
        device.filter(|_| noted.read().is_some()).map_or_else(Vec::new, |device| holders::of(device, Some(pid)));
    match holders.is_empty() {
        true => {
            eprintln!("forebay: process {pid} of the mount ends when everything is durable and nobody uses it any more")
        }
        false => say_held(mnt, Some(pid), &holders),
    }
    Ok(())
}

fn say_held(mnt: &Path, pid: Option<u32>, holders: &[Holder]) {
    let process = pid.map_or_else(String::new, |pid| format!(", process {pid},"));
    eprintln!(
        "forebay: {} is no mount any more; what was mounted there{process} goes on for {}, and ends with them",
        mnt.display(),
        holders::show(mnt, holders)
    );
}

/// Refuses the mount of another user: only that user and root may unmount it.
fn refuse_others(mnt: &Path) -> CliResult {
    let owner = mounts::options(mnt).iter().find_map(|option| option.strip_prefix("user_id=")?.parse::<u32>().ok());
    match owner.filter(|owner| !posix::is_root() && *owner != posix::user_id()) {
        None => Ok(()),
        Some(owner) => {
            let (mnt, owner) = (mnt.display(), posix::show_user(owner));
            Err(CliError::failed(format!("{mnt} is a mount of {owner}: only that user and root may take it away")))
        }
    }
}

fn cannot(mnt: &Path, words: &str) -> CliError {
    CliError::failed(format!("cannot unmount {}: {words}", mnt.display()))
}

/// Detaches the mount at `mnt` and asks its process to end, even if programs use it. Acknowledged changes become
/// durable; later calls fail.
pub fn end(mnt: &Path) -> CliResult<Unmounted> {
    if mounts::is_mounted(mnt) {
        mounts::unmount(mnt, Unmount::Lazily).map_err(|error| cannot(mnt, &error.to_string()))?;
    }
    let _waiting = progress::spinner("waiting until everything is durable");
    let pid_file = mounts::pid_file(mnt);
    let pid = pid_file.running().unwrap_or_default();
    match pid_file.end(TIMEOUT) {
        Ending::Own => Ok(ended(mnt)),
        Ending::Killed => Ok(Unmounted::Lost(killed(mnt, pid))),
        Ending::None => Err(CliError::failed(format!("the process of the mount at {} does not end", mnt.display()))),
    }
}

/// Refuses, without any change, if a program uses the mount at `mnt`, or an earlier one there that was detached lazily.
/// A mount namespace without a program that uses the mount is no user.
pub fn refuse_in_use(mnt: &Path, instead: &str) -> CliResult {
    let pid = mounts::pid_file(mnt).running();
    let now =
        mounts::device(mnt).or_else(|| Noted::of(mnt).read().filter(|_| pid.is_some())).map(|device| (device, pid));
    let earlier =
        mounts::earlier(mnt).into_iter().filter_map(|(pid_file, noted)| Some((noted.read()?, pid_file.running())));
    for (device, pid) in now.into_iter().chain(earlier) {
        let mut seen = Vec::new();
        let is_free = processes::wait_until(BUSY_TIMEOUT, || {
            seen = holders::of(device, pid);
            seen.retain(|holder| holder.is_user);
            seen.is_empty()
        });
        if !is_free {
            return Err(in_use(mnt, &seen, instead));
        }
    }
    Ok(())
}

/// Ends the processes of earlier mounts at `mnt`.
pub fn end_earlier(mnt: &Path) {
    for (pid_file, noted) in mounts::earlier(mnt) {
        if !pid_file.stop(TIMEOUT) {
            pid_file.kill();
        }
        noted.forget();
    }
}

fn in_use(mnt: &Path, holders: &[Holder], instead: &str) -> CliError {
    CliError::failed(format!("{} is in use by {}: end them, or {instead}", mnt.display(), holders::show(mnt, holders)))
}

/// Retries for a moment, because programs such as disk indexers or a shell's path completion use mounts briefly.
fn try_unmount(mnt: &Path, how: Unmount) -> io::Result<()> {
    let mut last = Ok(());
    let is_busy = |result: &io::Result<()>| result.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY));
    processes::wait_until(BUSY_TIMEOUT, || {
        last = mounts::unmount(mnt, how);
        !is_busy(&last)
    });
    last
}

/// Unmounts `mnt`; not an error if nothing is mounted there.
pub fn unmount(mnt: &Path, how: Unmount) -> CliResult<Unmounted> {
    let (pid_file, noted) = (mounts::pid_file(mnt), Noted::of(mnt));
    let (pid, device) = (pid_file.running(), mounts::device(mnt).or_else(|| noted.read()));
    let mounted = mounts::is_mounted(mnt);
    if mounted
        && let Err(error) = try_unmount(mnt, how)
        // Otherwise the mount's process has unmounted it meanwhile.
        && mounts::is_mounted(mnt)
    {
        return Err(match (error.raw_os_error(), device) {
            (Some(libc::EBUSY), Some(device)) => {
                let instead = format!("detach it from them with `forebay umount --lazy {}`", mnt.display());
                in_use(mnt, &holders::of(device, pid), &instead)
            }
            (Some(libc::EPERM), _) => cannot(mnt, "only root may"),
            _ => cannot(mnt, &error.to_string()),
        });
    }
    let _waiting = progress::spinner("waiting until everything is durable");
    let Some(pid) = pid else {
        if pid_file.running().is_none() {
            pid_file.remove();
        }
        return Ok(ended(mnt));
    };
    if how == Unmount::Forcibly {
        give_up(mnt, &pid_file, pid, mounted);
        return Ok(Unmounted::Ended);
    }
    wait(mnt, &pid_file, pid, device)
}

/// The process of the mount at `mnt` has come to its end.
fn ended(mnt: &Path) -> Unmounted {
    LossReport::of(mnt).take().map_or(Unmounted::Ended, Unmounted::Lost)
}

fn killed(mnt: &Path, pid: u32) -> String {
    let mnt = mnt.display();
    format!("{mnt} is unmounted, but its process {pid} was killed: what was not durable yet is lost")
}

/// Waits until process `pid` of an unmounted mount has ended, or a holder is visible.
fn wait(mnt: &Path, pid_file: &PidFile, pid: u32, device: Option<Device>) -> CliResult<Unmounted> {
    let noted = Noted::of(mnt);
    let mut held_by_nobody = Duration::ZERO;
    for _ in 0..TIMEOUT.as_millis() / BUSY_TIMEOUT.as_millis() {
        match pid_file.ending_of(pid, BUSY_TIMEOUT) {
            Ending::None => {}
            Ending::Own => return Ok(ended(mnt)),
            Ending::Killed => return Ok(Unmounted::Lost(killed(mnt, pid))),
        }
        // The session with the kernel ends when there is no holder any more.
        if let (Some(device), true) = (device, noted.read().is_some()) {
            let holders = holders::of(device, Some(pid));
            held_by_nobody += BUSY_TIMEOUT;
            // The session may be ending right now, which takes a while on a busy machine.
            if noted.read().is_some() && (!holders.is_empty() || held_by_nobody >= UNSEEN_TIMEOUT) {
                return Ok(Unmounted::Held(holders));
            }
        }
    }
    let awaited = mounts::awaited(mnt).map_or_else(String::new, |awaited| format!(", and waits for {awaited}"));
    let mnt = mnt.display();
    Err(CliError::failed(format!(
        "the mount is gone, but its process {pid} still makes changes durable{awaited}; `forebay umount --force {mnt}` gives \
         them up",
    )))
}

/// Ends the process of a mount after a forced unmount.
fn give_up(mnt: &Path, pid_file: &PidFile, pid: u32, mounted: bool) {
    let has_ended = match mounted {
        true => pid_file.has_ended(pid, TIMEOUT_WHEN_FORCED),
        // A holder keeps the process alive, until the process is asked to end.
        false => pid_file.stop(TIMEOUT_WHEN_FORCED),
    };
    if has_ended {
        return;
    }
    pid_file.kill();
    mounts::Notes::of(mnt).keep(None);
    Noted::of(mnt).forget();
    eprintln!(
        "forebay: servers did not answer; the mount's process {pid} was ended, and what was not durable yet is lost"
    );
}
