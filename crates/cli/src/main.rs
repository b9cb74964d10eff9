//! `forebay`: the one program. One file per subcommand; `docs/cli.md` has the contract.

mod bench;
mod error;
mod posix;
mod processes;
mod progress;
mod summary;
mod units;

use std::process::ExitCode;

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
    /// Measure: this machine's disks, any directory, any file system
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    #[command(hide = true, name = bench::ior::TASK_COMMAND)]
    BenchIorTask(bench::ior::TaskArgs),
}

fn main() -> ExitCode {
    match run(&CommandLine::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forebay: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: &Command) -> CliResult {
    match command {
        Command::Bench(command) => bench::run(command),
        Command::BenchIorTask(args) => bench::ior::run_task(args),
    }
}
