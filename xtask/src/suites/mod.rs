//! `xtask suites`: other people's test suites and real programs, on mounts of a cluster of this machine.
//!
//! Needs root, /dev/fuse, a registry for `cargo install` the first time, and about 12 GB under --dir. With --quick a program
//! that is not installed is named and passed over; else all have to be there, and to pass.

pub mod cluster;
mod fsx;
mod packages;
mod pjdfstest;
mod programs;
mod tools;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::figures::{
    Outcome,
    forebay::{self, Forebay},
};
use cluster::{Cluster, Shape};

/// Usage, for whoever asks wrongly.
pub const USAGE: &str =
    "suites [--quick] [--dir DIR] [--program FOREBAY] [--only NAME,NAME] [--operations N] [--seeds N,N]";

/// What to run, how long, where.
pub struct Plan {
    dir: PathBuf,
    /// The program, if it is built.
    program: Option<PathBuf>,
    only: Vec<String>,
    operations: u64,
    seeds: Vec<u64>,
    quick: bool,
}

impl Plan {
    fn parse(args: &[String]) -> Outcome<Self> {
        let dir = std::env::temp_dir().join("forebay-suites");
        let (program, only) = (None, Vec::new());
        let mut plan = Self { dir, program, only, operations: 500_000, seeds: vec![1, 2, 3], quick: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{arg} needs numbers, not {text}"));
            match arg.as_str() {
                "--quick" => (plan.quick, plan.operations, plan.seeds) = (true, 10_000, vec![1]),
                "--dir" => plan.dir = value()?.into(),
                "--program" => plan.program = Some(value()?.into()),
                "--only" => plan.only = value()?.split(',').map(str::to_owned).collect(),
                "--operations" => plan.operations = number(value()?)?,
                "--seeds" => plan.seeds = value()?.split(',').map(number).collect::<Outcome<_>>()?,
                _ => return Err(format!("unknown argument {arg}; {USAGE}")),
            }
        }
        Ok(plan)
    }
}

/// Runs the suites; an error names those that failed.
pub fn run(args: &[String]) -> Outcome {
    let plan = Plan::parse(args)?;
    type Suite = fn(&Cluster<'_>, &Plan) -> Outcome<String>;
    let all: [(&str, Suite); 6] = [
        ("pjdfstest", pjdfstest::run),
        ("programs", programs::run),
        ("fsx", fsx::one_mount),
        ("fsx-two", fsx::two_mounts),
        ("fsx-mmap", fsx::mapped),
        ("fsx-two-mmap", fsx::two_mapped),
    ];
    if let Some(unknown) = plan.only.iter().find(|only| !all.iter().any(|(name, _)| name == only)) {
        return Err(format!("there is no suite {unknown}"));
    }
    let forebay = plan.program.as_deref().map_or_else(forebay::build, |path| Ok(Forebay::at(path)))?;
    let shape = Shape { osts: 4, ost_size: "2GiB", mdt_size: "1GiB", separate: false };
    let cluster = Cluster::make(&forebay, &plan.dir, &shape)?;
    let mut failed = Vec::new();
    for (name, suite) in all.into_iter().filter(|(name, _)| plan.only.is_empty() || plan.only.iter().any(|o| o == name))
    {
        eprintln!("== {name}");
        let begun = Instant::now();
        let result = suite(&cluster, &plan);
        let took = Duration::from_secs(begun.elapsed().as_secs());
        match result {
            Ok(words) => println!("{name}: passed in {took:?}: {words}"),
            Err(error) => {
                println!("{name}: FAILED after {took:?}: {error}");
                failed.push(name);
            }
        }
    }
    cluster.check()?;
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}
