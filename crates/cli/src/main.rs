//! `forebay`: the one program. One file per subcommand.
//!
//! Invariant: exit code 0 = success; 1 = the command failed; 2 = the arguments are wrong; 3 = bytes or names differ
//! from the expected ones (`fsck`: as fsck(8)). Messages go to stderr, results to stdout. Progress is shown on
//! terminals only.

mod ask;
mod cluster_arg;
mod command_tree;
mod demo;
mod device;
mod df;
mod down;
mod format;
mod fsck;
mod fuse_mount;
mod health;
mod hides;
mod holders;
mod join;
mod journal;
mod keys;
mod layout;
mod listen_address;
mod lost;
mod manual;
mod memory;
mod metrics;
mod mirror;
mod mount;
mod mount_options;
mod mount_point;
mod mounts;
mod node;
mod open_files;
mod pool;
mod refused;
mod remount;
mod renewal;
mod serve;
mod server;
mod server_processes;
mod setattr;
mod sim;
mod status;
mod stop;
mod sync;
mod tenant;
mod token;
mod umount;
mod up;

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};
use forebay_bench::BenchCommand;
use forebay_command::{
    error::{CliResult, complain},
    posix,
};

/// Requests make many small allocations in one thread: with glibc's allocator they take an eighth of a mount's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Tell within a time limit whether this host's mounts and servers work, whatever hangs
    Health(health::HealthArgs),
    #[command(hide = true, name = health::PROBE_COMMAND)]
    HealthProbe(health::ProbeArgs),
    /// Show the space of every target
    Df(df::DfArgs),
    /// Make everything durable that any client has written
    Sync(sync::SyncArgs),
    /// Choose over how many and which OSTs new files are striped
    Setstripe(layout::setstripe::SetstripeArgs),
    /// Show where files lie
    Getstripe(layout::getstripe::GetstripeArgs),
    /// Give files with data another layout
    Migrate(layout::migrate::MigrateArgs),
    /// Choose when changes of files and directories are acknowledged, and which files lie with the MDT
    Setattr(setattr::SetattrArgs),
    /// Find files by name, age, size, owner and layout
    Find(layout::find::FindArgs),
    /// Make and change pools of OSTs
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    #[command(hide = true, name = "pool_new")]
    PoolNew(pool::ChangeArgs),
    #[command(hide = true, name = "pool_add")]
    PoolAdd(pool::ChangeArgs),
    #[command(hide = true, name = "pool_remove")]
    PoolRemove(pool::ChangeArgs),
    #[command(hide = true, name = "pool_destroy")]
    PoolDestroy(pool::ChangeArgs),
    #[command(hide = true, name = "pool_list")]
    PoolList(pool::ListArgs),
    /// Make an empty target
    Format(format::FormatArgs),
    /// Make keys for TCP connections: of a cluster that is set up by hand, or of another host
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Make tokens, with which other hosts join the cluster
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Make this host part of a cluster, with a token, and serve its OSTs
    Join(join::JoinArgs),
    /// Show, ban and remove hosts that have joined
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Share the cluster with hosts that are trusted with one directory of it only
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// A metadata target kept twice: replace a copy, or go on with one
    #[command(subcommand)]
    Mirror(mirror::MirrorCommand),
    /// Journals on devices of their own: move one, see and free the parts of a shared device
    #[command(subcommand)]
    Journal(journal::JournalCommand),
    /// Serve targets in the foreground
    Serve(serve::ServeArgs),
    /// Check targets that are not served; with --repair mend them
    Fsck(fsck::FsckArgs),
    /// Measure: this machine's disks, any directory, any file system
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run an experiment of the papers, or predict a described machine, with the real servers on modelled devices
    Sim(sim::SimArgs),
    #[command(hide = true, name = forebay_bench::ior::TASK_COMMAND)]
    BenchIorTask,
    #[command(hide = true, name = forebay_bench::names::TASK_COMMAND)]
    BenchNamesTask,
    #[command(hide = true, name = demo::copier::COMMAND)]
    DemoCopier(demo::copier::CopierArgs),
    #[command(hide = true, name = manual::COMMAND)]
    Manual(manual::ManualArgs),
    #[command(hide = true, name = command_tree::COMMAND)]
    Tree,
}

fn main() -> ExitCode {
    posix::be_called(c"forebay");
    let called: Vec<OsString> = std::env::args_os().collect();
    let is_helper = ["mount.forebay", "mount.fuse.forebay"].iter().any(|name| called_as(&called, name))
        || mount::is_called_by_fuse(&called);
    if is_helper && mount::is_for_show(&called) {
        return ExitCode::SUCCESS;
    }
    // Called as `lfs` it replies as lfs; called as a helper of mount(8) it mounts.
    let arguments = if is_helper { mount::as_helper(called) } else { called };
    match parse(&arguments).and_then(|line| open_files::raise().and_then(|()| run(&line.command))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(if is_helper { mount::helper_exit_code(&error) } else { error.exit_code() })
        }
    }
}

/// Parses the command line. For help and most errors clap prints and exits.
fn parse(arguments: &[OsString]) -> CliResult<CommandLine> {
    CommandLine::try_parse_from(arguments)
        .map_err(|error| refused::explain(arguments, &error).unwrap_or_else(|| error.exit()))
}

/// Whether the program was called through a link of this name.
fn called_as(arguments: &[OsString], name: &str) -> bool {
    arguments.first().and_then(|program| Path::new(program).file_name()).is_some_and(|called| called == name)
}

fn run(command: &Command) -> CliResult {
    // These print a lot, and hold nothing that others wait for.
    if matches!(
        command,
        Command::Getstripe(_)
            | Command::Migrate(_)
            | Command::Find(_)
            | Command::Sim(_)
            | Command::Status(_)
            | Command::Df(_)
            | Command::PoolList(_)
            | Command::Pool(pool::PoolCommand::List(_))
            | Command::Journal(journal::JournalCommand::List(_))
            | Command::Node(node::NodeCommand::List(_))
            | Command::Tenant(tenant::TenantCommand::List(_))
            | Command::Tree
    ) {
        posix::end_with_closed_pipes();
    }
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Up(args) => up::run(args),
        Command::Down(args) => down::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Status(args) => status::run(args),
        Command::Health(args) => health::run(args),
        Command::HealthProbe(args) => health::probe_mount(args),
        Command::Df(args) => df::run(args),
        Command::Sync(args) => sync::run(args),
        Command::Setstripe(args) => layout::setstripe::run(args),
        Command::Getstripe(args) => layout::getstripe::run(args),
        Command::Migrate(args) => layout::migrate::run(args),
        Command::Setattr(args) => setattr::run(args),
        Command::Find(args) => layout::find::run(args),
        Command::Pool(command) => pool::run(command),
        Command::PoolNew(args) => pool::run_as(args, "new"),
        Command::PoolAdd(args) => pool::run_as(args, "add"),
        Command::PoolRemove(args) => pool::run_as(args, "remove"),
        Command::PoolDestroy(args) => pool::run_as(args, "destroy"),
        Command::PoolList(args) => pool::list(args),
        Command::Format(args) => format::run(args),
        Command::Keys(command) => keys::run(command),
        Command::Token(command) => token::run(command),
        Command::Join(args) => join::run(args),
        Command::Node(command) => node::run(command),
        Command::Tenant(command) => tenant::run(command),
        Command::Mirror(command) => mirror::run(command),
        Command::Journal(command) => journal::run(command),
        Command::Serve(args) => serve::run(args),
        Command::Fsck(args) => fsck::run(args),
        Command::Bench(command) => forebay_bench::run(command),
        Command::Sim(args) => sim::run(args),
        Command::BenchIorTask => forebay_bench::serve::<forebay_bench::ior::Task>(),
        Command::BenchNamesTask => forebay_bench::serve::<forebay_bench::names::Task>(),
        Command::DemoCopier(args) => demo::copier::run(args),
        Command::Manual(args) => manual::run(args, CommandLine::command()),
        Command::Tree => {
            println!("{}", command_tree::of(CommandLine::command()));
            Ok(())
        }
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
