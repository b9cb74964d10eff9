//! `xtask pairs`: uses mappings beside reads, writes, punches, copies and truncates of the same pages, on a mount of a
//! local cluster.
//!
//! Needs root and /dev/fuse. With --local nothing is mounted: the same threads work in a directory of a local file
//! system, which shows what they may expect.

mod slots;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use crate::{
    figures::{
        Outcome,
        forebay::{self, Forebay},
    },
    suites::cluster::{Cluster, Shape},
};

/// Run mappings beside all other ways to change a file, in the same pages
#[derive(Args)]
pub struct Plan {
    /// How long, for each number of threads
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Threads of one file
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8])]
    threads: Vec<usize>,
    /// Of the first round
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where: about 4 GB
    #[arg(long, default_value_os_t = std::env::temp_dir().join("forebay-pairs"))]
    dir: PathBuf,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
    /// In this directory, which is there, and without a cluster
    #[arg(long, value_name = "DIR")]
    local: Option<PathBuf>,
}

/// Runs the command. An error describes what was seen, with the seed.
pub fn run(plan: &Plan) -> Outcome {
    if let Some(dir) = &plan.local {
        return all(plan, &[dir]);
    }
    let forebay = plan.program.as_deref().map_or_else(forebay::build, |path| Ok(Forebay::at(path)))?;
    let shape = Shape {
        osts: 2,
        ost_size: "1GiB",
        mdt_size: "512MiB",
        separate: false,
        mounts: 2,
        options: None,
        hosts: false,
    };
    let cluster = Cluster::make(&forebay, &plan.dir, &shape)?;
    all(plan, &cluster.mounts())?;
    cluster.check()
}

fn all(plan: &Plan, mounts: &[&Path]) -> Outcome {
    for threads in &plan.threads {
        let time = Duration::from_secs(plan.seconds);
        let done = slots::run(mounts[0], mounts.get(1).copied(), *threads, time, plan.seed)?;
        let slots::Done { rounds, operations, met } = done;
        let missing = met.missing();
        println!(
            "pairs: {threads} threads, {rounds} rounds, {operations} operations, two met {} times: no difference",
            met.total()
        );
        if !missing.is_empty() {
            println!("pairs that did not meet: {}", missing.join(", "));
        }
    }
    Ok(())
}
