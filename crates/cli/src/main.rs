//! `forebay`: the one program. One file per subcommand.
//!
//! Invariant: exit code 0 = it was done; 1 = it was tried and did not work; 2 = the arguments are wrong; 3 = bytes or
//! names are not what they were (`fsck`: as fsck(8)). Words go to stderr, results to stdout; progress is shown on terminals only.

mod ask;
mod bench;
mod cluster;
mod demo;
mod df;
mod down;
mod error;
mod format;
mod fsck;
mod fuse_mount;
mod mount;
mod mount_options;
mod mounts;
mod posix;
mod processes;
mod progress;
mod serve;
mod server;
mod status;
mod stop;
mod stripe;
mod summary;
mod sync;
mod umount;
mod units;
mod up;

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::error::CliResult;

/// Forebay: a parallel file system in user space.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, propagate_version = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See it work: format, start, mount, checkpoint, kill servers, read back, verify, report
    Demo(demo::DemoArgs),
    /// Bring up a whole cluster in a directory of this machine, and mount it
    Up(up::UpArgs),
    /// Unmount and stop what `up` started
    Down(down::DownArgs),
    /// Mount a cluster
    Mount(mount::MountArgs),
    /// Take a mount away
    Umount(umount::UmountArgs),
    /// Show targets, space, sessions, recovery
    Status(status::StatusArgs),
    /// Show the space of every target
    Df(df::DfArgs),
    /// Make everything durable that any client has written
    Sync(sync::SyncArgs),
    /// Choose over how many and which OSTs new files are striped
    Setstripe(stripe::SetstripeArgs),
    /// Show where files lie
    Getstripe(stripe::GetstripeArgs),
    /// Make an empty target
    Format(format::FormatArgs),
    /// Serve targets in the foreground
    Serve(serve::ServeArgs),
    /// Check targets that are not served; with --repair mend them
    Fsck(fsck::FsckArgs),
    /// Measure: this machine's disks, any directory, any file system
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    #[command(hide = true, name = bench::ior::TASK_COMMAND)]
    BenchIorTask,
    #[command(hide = true, name = bench::names::TASK_COMMAND)]
    BenchNamesTask,
    #[command(hide = true, name = demo::copier::COMMAND)]
    DemoCopier(demo::copier::CopierArgs),
}

fn main() -> ExitCode {
    match run(&CommandLine::parse_from(arguments()).command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forebay: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Called as `lfs` it answers as lfs; called as `mount.forebay` (fstab) it mounts.
fn arguments() -> Vec<OsString> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments.first().and_then(|name| Path::new(name).file_name()).map(ToOwned::to_owned);
    if called.is_some_and(|name| name == "mount.forebay") { mount::as_helper(arguments) } else { arguments }
}

fn run(command: &Command) -> CliResult {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Up(args) => up::run(args),
        Command::Down(args) => down::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Status(args) => status::run(args),
        Command::Df(args) => df::run(args),
        Command::Sync(args) => sync::run(args),
        Command::Setstripe(args) => stripe::set(args),
        Command::Getstripe(args) => stripe::get(args),
        Command::Format(args) => format::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Fsck(args) => fsck::run(args),
        Command::Bench(command) => bench::run(command),
        Command::BenchIorTask => bench::serve::<bench::ior::Task>(),
        Command::BenchNamesTask => bench::serve::<bench::names::Task>(),
        Command::DemoCopier(args) => demo::copier::run(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_of_no_command_clash() {
        super::CommandLine::command().debug_assert();
    }
}
