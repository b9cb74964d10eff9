//! `xtask suites`: other projects' test suites and real programs, on mounts of a local cluster.
//!
//! Needs root, /dev/fuse, a registry for `cargo install` the first time, and about 12 GB under --dir. With --quick a
//! program that is not installed is listed and skipped; otherwise all must be installed and pass.

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

use clap::Args;

use crate::figures::{
    Outcome,
    forebay::{self, Forebay},
};
use cluster::{Cluster, Shape};

type Suite = fn(&Cluster<'_>, &Plan) -> Outcome<String>;

/// All suites, in the order in which they run.
const SUITES: [(&str, Suite); 6] = [
    ("pjdfstest", pjdfstest::run),
    ("programs", programs::run),
    ("fsx", fsx::one_mount),
    ("fsx-two", fsx::two_mounts),
    ("fsx-mmap", fsx::mapped),
    ("fsx-two-mmap", fsx::two_mapped),
];

/// Run other people's test suites and real programs on a cluster of this machine
#[derive(Args)]
pub struct Plan {
    /// Shorter: fsx does 10,000 operations from seed 1, and programs that are not installed are passed over
    #[arg(long)]
    quick: bool,
    /// Servers on one host and mounts on another: network namespaces, with encrypted connections between them
    #[arg(long)]
    hosts: bool,
    /// Where: about 12 GB
    #[arg(long, default_value_os_t = std::env::temp_dir().join("forebay-suites"))]
    dir: PathBuf,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
    /// These suites only
    #[arg(long, value_delimiter = ',', value_parser = SUITES.map(|(name, _)| name), value_name = "NAME")]
    only: Vec<String>,
    /// Operations of fsx
    #[arg(long, default_value_t = 500_000, default_value_if("quick", "true", "10000"))]
    operations: u64,
    /// Seeds of fsx
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3], default_value_if("quick", "true", "1"))]
    seeds: Vec<u64>,
}

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Runs the suites. An error names those that failed.
pub fn run(plan: &Plan) -> Outcome {
    if plan.wants("programs") {
        programs::all_there(plan)?;
    }
    let forebay = plan.program.as_deref().map_or_else(forebay::build, |path| Ok(Forebay::at(path)))?;
    let shape = Shape {
        osts: 4,
        ost_size: "2GiB",
        mdt_size: "1GiB",
        separate: false,
        mounts: 2,
        options: None,
        hosts: plan.hosts,
    };
    let cluster = Cluster::make(&forebay, &plan.dir, &shape)?;
    let mut failed = Vec::new();
    for (name, suite) in SUITES.into_iter().filter(|(name, _)| plan.wants(name)) {
        eprintln!("== {name}");
        let begun = Instant::now();
        let result = suite(&cluster, plan);
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
