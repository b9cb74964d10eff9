//! `xtask crashes`: a cluster of real processes under load whose servers and mounts are killed, paused and lose power, again
//! and again; after each fault everything is compared with what was acknowledged and what was synced (docs/promises.md, P1
//! to P3).
//!
//! Needs root and /dev/fuse. The first faults come to servers with ordinary disks, where a kill leaves what the kernel has
//! (`--kills`), the others to servers with disks that forget what was not flushed (`--power-cuts`).

mod course;
mod crew;
mod faults;
mod file;
mod hands;
mod image;
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

use forebay_history::Dice;

use crate::figures::{Outcome, forebay};
use course::Course;
use faults::Fault;
pub use probe::run as run_probe;
use site::{Disks, Site};
pub use worker::run as run_worker;

/// Usage, for whoever asks wrongly.
pub const USAGE: &str = "crashes [--kills N] [--power-cuts N] [--pauses N] [--mounts N] [--workers N] [--recovery ROUNDS] \
                         [--seed N] [--dir DIR] [--program FOREBAY]";

struct Plan {
    kills: u64,
    power_cuts: u64,
    pauses: u64,
    mounts: usize,
    workers: u64,
    recovery: Option<u64>,
    seed: u64,
    dir: PathBuf,
    program: Option<PathBuf>,
}

impl Plan {
    fn parse(args: &[String]) -> Outcome<Self> {
        let dir = std::env::temp_dir().join("forebay-crashes");
        let (recovery, program) = (None, None);
        let mut plan =
            Self { kills: 500, power_cuts: 200, pauses: 50, mounts: 2, workers: 2, recovery, seed: 1, dir, program };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let value = args.next().ok_or(format!("{arg} needs a value; {USAGE}"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{arg} needs a number, not {value}"));
            match arg.as_str() {
                "--kills" => plan.kills = number()?,
                "--power-cuts" => plan.power_cuts = number()?,
                "--pauses" => plan.pauses = number()?,
                "--mounts" => plan.mounts = number()?.clamp(1, 16) as usize,
                "--workers" => plan.workers = number()?.clamp(1, 4),
                "--recovery" => plan.recovery = Some(number()?.clamp(1, 1000)),
                "--seed" => plan.seed = number()?,
                "--dir" => plan.dir = value.into(),
                "--program" => plan.program = Some(value.into()),
                _ => return Err(format!("unknown argument {arg}; {USAGE}")),
            }
        }
        Ok(plan)
    }

    /// Faults of both parts, drawn from the seed.
    fn faults(&self) -> [(Disks, Vec<Fault>); 2] {
        let mut dice = Dice::new(self.seed);
        let all = (self.kills + self.power_cuts).max(1);
        let mut part = |disks, kills: u64| {
            let (mut kills, mut pauses) = (kills, self.pauses * kills / all);
            let mut faults = Vec::new();
            while kills + pauses > 0 {
                if dice.below(kills + pauses) < pauses {
                    pauses -= 1;
                    faults.push(Fault::pause(&mut dice, self.mounts));
                } else {
                    kills -= 1;
                    faults.push(Fault::kill(&mut dice, self.mounts));
                }
            }
            (disks, faults)
        };
        [part(Disks::Keep, self.kills), part(Disks::Forget, self.power_cuts)]
    }
}

/// Runs; an error tells which promise was broken.
pub fn run(args: &[String]) -> Outcome {
    let plan = Plan::parse(args)?;
    let forebay = match &plan.program {
        Some(path) => forebay::Forebay::at(path),
        None => forebay::build()?,
    };
    let mounts = if plan.recovery.is_some() { recovery::MOUNTS } else { plan.mounts };
    // Rounds of replay leave 256 MiB each.
    let ost_size = if plan.recovery.is_some() { "2GiB" } else { "512MiB" };
    let site = Site::make(&forebay, &plan.dir, mounts, ost_size)?;
    let done = match plan.recovery {
        Some(rounds) => measure_recovery(site, rounds),
        None => crash(&plan, site),
    };
    done.map_err(|error| {
        let numbers = format!("--kills {} --power-cuts {} --pauses {}", plan.kills, plan.power_cuts, plan.pauses);
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
    let Some((disks, faults)) = parts.next() else { return Err(format!("no faults are asked for; {USAGE}")) };
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
