//! `forebay bench`: workloads on this machine.
//!
//! Benchmarks act as user programs, so they use plain files, threads and clocks. They are exempt from the rule that
//! only `env` accesses the outside world.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod aligned;
mod cpu_costs;
mod crew;
mod fuse_floor;
pub mod ior;
mod line;
mod machine;
mod mdtest;
mod metarates;
pub mod names;
mod namespace;
mod obdfilter_survey;
mod report;
mod scratch;
mod store;
mod xdd;

pub use crew::{Crew, serve};

use clap::Subcommand;
use forebay_command::error::CliResult;

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Processes that write and read files together, as IOR does, on any directory
    Ior(ior::IorArgs),
    /// Processes that make, look at and remove directories and files together, as mdtest does, on any directory
    Mdtest(mdtest::MdtestArgs),
    /// Rates of create, stat and utime, as metarates measures them, on any directory
    Metarates(metarates::MetaratesArgs),
    /// Throughput of devices, files or directories, as XDD measures it
    Xdd(xdd::XddArgs),
    /// Sequential I/O of many threads on many objects: the stores alone, the network alone, both, and files over several OSTs
    ObdfilterSurvey(obdfilter_survey::SurveyArgs),
    /// The store alone, without RPC, against the raw device under it
    Store(store::StoreArgs),
    /// Millions of files on a metadata server: memory, rates, restarts
    Namespace(namespace::NamespaceArgs),
    /// Names through the kernel and our FUSE layer, with nothing behind it: what no server can beat
    FuseFloor(fuse_floor::FuseFloorArgs),
    /// CPU time of each kind of message at client and server, and of each byte: what the laboratory charges
    CpuCosts(cpu_costs::CpuCostsArgs),
    /// What the laboratory has to know of this machine: `forebay sim FILE` predicts what `bench ior` shows here
    Machine(machine::MachineArgs),
}

/// Runs one of them.
pub fn run(command: &BenchCommand) -> CliResult {
    match command {
        BenchCommand::Ior(args) => ior::run(args),
        BenchCommand::Mdtest(args) => mdtest::run(args),
        BenchCommand::Metarates(args) => metarates::run(args),
        BenchCommand::Xdd(args) => xdd::run(args),
        BenchCommand::ObdfilterSurvey(args) => obdfilter_survey::run(args),
        BenchCommand::Store(args) => store::run(args),
        BenchCommand::Namespace(args) => namespace::run(args),
        BenchCommand::FuseFloor(args) => fuse_floor::run(args),
        BenchCommand::CpuCosts(args) => cpu_costs::run(args),
        BenchCommand::Machine(args) => machine::run(args),
    }
}
