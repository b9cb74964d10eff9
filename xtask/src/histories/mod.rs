//! `xtask histories`: processes on several mounts of one cluster use the same names, bytes and locks. Meanwhile its
//! servers are killed, and servers and mounts are stopped and continued. Some order must explain every answer (crate
//! `forebay-history`).
//!
//! It needs root and /dev/fuse. Times are from CLOCK_MONOTONIC, which all processes of a machine share.

mod killer;
mod place;
mod worker;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use clap::Args;
use forebay_history::{Event, Kind, Summary, judge};

use crate::{
    figures::{Outcome, forebay},
    suites::cluster::{Cluster, Shape},
};
use killer::Killer;
use place::Place;
pub use worker::run as run_worker;

/// Operations per worker and round. Short rounds keep the search for an order short.
const OPERATIONS: u64 = 150;
/// A worker that takes longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Let processes on some mounts work on the same names, bytes and locks while servers are killed, and these and mounts stopped, and check every answer
#[derive(Args)]
pub struct Plan {
    /// How long
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// How long, instead of minutes
    #[arg(long, conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// So many rounds, however long they take
    #[arg(long, conflicts_with_all = ["minutes", "seconds"], value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Mounts, a client each
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=8))]
    mounts: u32,
    /// Processes on each mount
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    workers: u32,
    /// Servers on one host and mounts on another: network namespaces, with encrypted connections between them
    #[arg(long)]
    hosts: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where: about 3 GB
    #[arg(long, default_value_os_t = std::env::temp_dir().join("forebay-histories"))]
    dir: PathBuf,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
}

/// Runs the command. An error describes what no order explains.
pub fn run(plan: &Plan) -> Outcome {
    let time = Duration::from_secs(plan.seconds.unwrap_or(plan.minutes * 60));
    let forebay = match &plan.program {
        Some(path) => forebay::Forebay::at(path),
        None => forebay::build()?,
    };
    let shape = Shape {
        osts: 3,
        ost_size: "512MiB",
        mdt_size: "256MiB",
        separate: true,
        mounts: plan.mounts,
        options: None,
        hosts: plan.hosts,
    };
    let cluster = Cluster::make(&forebay, &plan.dir, &shape)?;
    for (base, stripes) in [("one", "1"), ("two", "2")] {
        cluster.striped_dir(base, stripes)?;
    }
    let made = fs::create_dir_all(cluster.first.join("names"));
    made.map_err(|error| format!("a directory of names: {error}"))?;
    let (begun, mut summary, mut rounds) = (Instant::now(), Summary::default(), 0);
    let killer = Killer::start(cluster.servers(), plan.seed);
    while plan.rounds.map_or_else(|| begun.elapsed() < time, |wanted| rounds < wanted) {
        let judged = round(plan, &cluster, rounds).map_err(|error| format!("round {rounds}: {error}"))?;
        summary.add(&judged);
        rounds += 1;
        killer.check()?;
    }
    let done = killer.end()?;
    let took = Duration::from_secs(begun.elapsed().as_secs());
    println!("histories: {rounds} rounds of {} mounts in {took:?}, {done}: {summary}", plan.mounts);
    cluster.check()
}

fn round(plan: &Plan, cluster: &Cluster<'_>, round: u64) -> Outcome<Summary> {
    let (all, mounts) = (plan.workers * plan.mounts, cluster.mounts());
    let kinds = Kind::usual(all);
    let place = |mount: &Path| Place::new(mount, round, &kinds);
    place(mounts[0]).make()?;
    let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    let mut running = Vec::new();
    for number in 0..all {
        let notes = plan.dir.join(format!("notes-{number}"));
        let mount = mounts[number as usize % mounts.len()];
        let seed = plan.seed.wrapping_mul(1 << 40).wrapping_add(round * 1000 + u64::from(number));
        let numbers = [u64::from(number), u64::from(all), seed, round, OPERATIONS].map(|n| n.to_string());
        let child = Command::new(&own).arg("histories-worker").arg(mount).arg(&notes).args(numbers).spawn();
        running.push((child.map_err(|error| format!("a worker: {error}"))?, notes));
    }
    let mut events: Vec<Event> = Vec::new();
    for (number, (mut child, notes)) in running.into_iter().enumerate() {
        wait(&mut child).map_err(|error| format!("worker {number}: {error}"))?;
        events.extend(worker::read_notes(&notes)?);
        let _ = fs::remove_file(&notes);
    }
    for (auditor, mount) in (all..).zip(mounts) {
        events.extend(worker::audit(place(mount), auditor)?);
    }
    judge(&kinds, &events)
}

fn wait(child: &mut Child) -> Outcome {
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        match child.try_wait().map_err(|error| error.to_string())? {
            None => std::thread::sleep(Duration::from_millis(5)),
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
        }
    }
    let _ = child.kill();
    Err(format!("it hangs for {TIMEOUT:?}"))
}
