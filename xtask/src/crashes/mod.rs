//! `xtask crashes`: real processes of a cluster under load are killed, paused and lose power, again and again. After
//! each fault everything is compared with what was acknowledged and what was synced (docs/promises.md, P1 to P3).
//! Mounts have different commit levels.
//!
//! Needs root and /dev/fuse. The first faults hit servers with ordinary disks, where a kill leaves what the kernel has
//! (`--kills`). The others hit servers with disks that lose unflushed writes (`--power-cuts`).

mod course;
mod crew;
mod faults;
mod file;
mod hands;
mod image;
mod level;
mod model;
mod notes;
mod probe;
mod recovery;
mod settle;
mod site;
mod stamp;
mod tally;
mod worker;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use forebay_history::Dice;
use forebay_proto::message::CommitLevel;

use crate::figures::{Outcome, forebay};
use course::Course;
use faults::Fault;
pub use probe::run as run_probe;
use site::{Disks, Site};
pub use worker::run as run_worker;

const NO_FAULTS: &str = "no faults are asked for: --kills or --power-cuts has to be above 0";

/// Kill, pause and cut the power of servers and mounts under load, and compare everything with what was promised
#[derive(Args)]
pub struct Plan {
    /// Kills while disks keep what they were given
    #[arg(long, default_value_t = 500)]
    kills: u64,
    /// Kills while disks forget what was not flushed
    #[arg(long, default_value_t = 200)]
    power_cuts: u64,
    /// SIGSTOPs among them
    #[arg(long, default_value_t = 50)]
    pauses: u64,
    /// Two of level data, then one of level commit, one of level memory, and so on
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=16))]
    mounts: u16,
    /// Processes on each mount
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=4))]
    workers: u64,
    /// Measure recovery instead, with 256 MiB of 8 mounts to replay
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u64).range(1..=1000))]
    recovery: Option<u64>,
    /// Servers on one host and mounts on another: network namespaces, with encrypted connections between them
    #[arg(long)]
    hosts: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where: about 5 GB
    #[arg(long, default_value_os_t = std::env::temp_dir().join("forebay-crashes"))]
    dir: PathBuf,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
}

impl Plan {
    /// The faults of both parts, drawn from the seed.
    fn faults(&self) -> [(Disks, Vec<Fault>); 2] {
        let mut dice = Dice::new(self.seed);
        let all = (self.kills + self.power_cuts).max(1);
        let mut part = |disks, kills: u64| {
            let (mut kills, mut pauses) = (kills, self.pauses * kills / all);
            let mut faults = Vec::new();
            while kills + pauses > 0 {
                if dice.below(kills + pauses) < pauses {
                    pauses -= 1;
                    faults.push(Fault::pause(&mut dice, self.mounts.into()));
                } else {
                    kills -= 1;
                    faults.push(Fault::kill(&mut dice, self.mounts.into()));
                }
            }
            (disks, faults)
        };
        [part(Disks::Keep, self.kills), part(Disks::Forget, self.power_cuts)]
    }
}

/// Runs the command. An error tells which promise was broken.
pub fn run(plan: &Plan) -> Outcome {
    if plan.recovery.is_none() && plan.kills + plan.power_cuts == 0 {
        return Err(NO_FAULTS.into());
    }
    let forebay = match &plan.program {
        Some(path) => forebay::Forebay::at(path),
        None => forebay::build()?,
    };
    let levels = match plan.recovery {
        Some(_) => vec![CommitLevel::Data; recovery::MOUNTS],
        None => (0..plan.mounts.into()).map(level::of_mount).collect(),
    };
    // Each round of replay leaves 256 MiB.
    let ost_size = if plan.recovery.is_some() { "2GiB" } else { "512MiB" };
    let site = Site::make(&forebay, &plan.dir, levels, ost_size, plan.hosts)?;
    let done = match plan.recovery {
        Some(rounds) => measure_recovery(site, rounds),
        None => crash(plan, site),
    };
    done.map_err(|error| {
        let hosts = if plan.hosts { " --hosts" } else { "" };
        let numbers = format!("--kills {} --power-cuts {} --pauses {}{hosts}", plan.kills, plan.power_cuts, plan.pauses);
        format!(
            "{error}\nseed {}; the disks, logs and notes are in {}\nagain: cargo run --release -p xtask -- crashes --seed {} \
             {numbers} --mounts {} --workers {}",
            plan.seed,
            plan.dir.display(),
            plan.seed,
            plan.mounts,
            plan.workers
        )
    })
}

fn measure_recovery(mut site: Site, rounds: u64) -> Outcome {
    site.disks = Disks::Forget;
    let (site, words) = recovery::run(site, rounds)?;
    println!("recovery: {words}");
    site.remove();
    Ok(())
}

fn crash(plan: &Plan, mut site: Site) -> Outcome {
    let begun = Instant::now();
    let mut parts = plan.faults().into_iter().filter(|(_, faults)| !faults.is_empty());
    let Some((disks, faults)) = parts.next() else { return Err(NO_FAULTS.into()) };
    site.disks = disks;
    let mut course = Course::start(site, plan.workers, plan.seed)?;
    run_part(&mut course, &faults)?;
    for (disks, faults) in parts {
        course.resume(disks)?;
        run_part(&mut course, &faults)?;
    }
    let took = Duration::from_secs(begun.elapsed().as_secs());
    println!("crashes: seed {}, {} mounts with {} workers each, {took:?}", plan.seed, plan.mounts, plan.workers);
    println!("{}", course.figures);
    course.site.remove();
    Ok(())
}

fn run_part(course: &mut Course, faults: &[Fault]) -> Outcome {
    let disks = course.site.disks;
    for (number, fault) in faults.iter().enumerate() {
        if number % 25 == 0 {
            eprintln!("disks that {disks:?}: fault {number} of {}", faults.len());
        }
        course.site.log(&format!("fault {number}: {fault:?}"))?;
        let before = |at: usize| format!("\n  {at}: {:?}", faults[at]);
        let done = course.fault(fault);
        done.map_err(|error| {
            let history: String = (number.saturating_sub(4)..=number).map(before).collect();
            format!("{error}\ndisks that {disks:?}, fault {number}; the last faults were{history}")
        })?;
    }
    let found = course.finish().map_err(|error| format!("{error}\ndisks that {disks:?}, at the end"))?;
    eprintln!("disks that {disks:?}: fsck: {found}");
    Ok(())
}
