//! `xtask differential`: makes one sequence of calls on a mount and on a local file system, and compares every answer.
//!
//! The sequence depends on the seed alone, and one call ends before the next begins. Two programs take turns; with
//! `--mounts 2` each has its own mount. A difference that the documented ones (`known.rs`) do not cover is a failure.
//! Not here: overlapping calls (see `histories`), and crashes under load (see `crashes`).

mod actor;
mod answer;
mod attributes;
mod call;
mod data;
mod known;
mod locks;
mod looks;
mod mapping;
mod names;
mod place;
mod sequence;
mod shrink;
mod stage;
mod sys;

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;

use crate::{
    figures::{Outcome, forebay},
    suites::cluster::{Cluster, Shape},
};
use call::Step;
use stage::{Failure, Stage, Tally};

/// From this many steps on every kind of call must have succeeded at least once.
const MANY_STEPS: usize = 10_000;

/// Make the same calls on a mount and on a local file system, and compare every answer
#[derive(Args)]
pub struct Plan {
    /// Which sequences: FROM..TO, or one
    #[arg(long, default_value = "0..4", value_parser = seeds)]
    seeds: Range<u64>,
    /// Calls of each
    #[arg(long, default_value_t = 1000)]
    steps: usize,
    /// Mounts of the cluster that take turns
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    mounts: u32,
    /// Options of the mounts, as `forebay mount -o` takes them
    #[arg(long, value_name = "OPTIONS")]
    options: Option<String>,
    /// Files lie over two OSTs, in stripes of 64 KiB
    #[arg(long)]
    striped: bool,
    /// All servers are killed and brought back in the middle of each sequence
    #[arg(long)]
    restarts: bool,
    /// Leave out these kinds of call, by the names that the summary shows
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    without: Vec<String>,
    /// Stop behind this step
    #[arg(long, value_name = "STEP")]
    until: Option<usize>,
    /// Print every step and both answers
    #[arg(long)]
    trace: bool,
    /// Leave out steps of the first sequence that fails, as long as it fails in the same way, and print the rest
    #[arg(long)]
    shrink: bool,
    /// Where: some GB for the cluster, and a local directory to compare with (ext4)
    #[arg(long, default_value_os_t = std::env::temp_dir().join("forebay-differential"))]
    dir: PathBuf,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
}

fn seeds(words: &str) -> Result<Range<u64>, String> {
    let number = |word: &str| word.parse::<u64>().map_err(|error| format!("{word}: {error}"));
    let range = match words.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => number(words)?..number(words)?.saturating_add(1),
    };
    if range.is_empty() { Err("no seed is in that range".into()) } else { Ok(range) }
}

/// Runs the command. An error says how many sequences differ; each of them has been printed.
pub fn run(plan: &Plan) -> Outcome {
    let forebay = plan.program.as_deref().map_or_else(forebay::build, |path| Ok(forebay::Forebay::at(path)))?;
    let shape = Shape {
        osts: 2,
        ost_size: "1GiB",
        mdt_size: "512MiB",
        separate: false,
        mounts: 2,
        options: None,
        hosts: false,
    };
    // The local directory has no access times either: two clocks decide at different moments whether a read comes after
    // a change.
    let options = plan.options.iter().fold("noatime".to_owned(), |all, more| format!("{all},{more}"));
    let cluster = Cluster::make(&forebay, &plan.dir, &Shape { options: Some(&options), ..shape })?;
    let run = Run { plan, cluster: &cluster, local: plan.dir.join("local") };
    fs::create_dir_all(&run.local).map_err(|error| format!("{}: {error}", run.local.display()))?;
    refuse_other_than_ext4(&run.local)?;
    if plan.striped {
        cluster.striped_dir("differential", "2")?;
    }
    let (begun, mut tally, mut failed) = (Instant::now(), Tally::new(), Vec::new());
    for seed in plan.seeds.clone() {
        let steps = run.steps_of(seed);
        let Some(failure) = run.play(&steps, &format!("seed-{seed}"), &mut tally)? else { continue };
        run.report(seed, &failure);
        failed.push(seed);
        if plan.shrink {
            run.print_shrunk(&steps, &failure)?;
            break;
        }
    }
    let _ = fs::remove_dir_all(&run.local);
    summarize(&tally, begun.elapsed().as_secs());
    cluster.check()?;
    if !failed.is_empty() {
        return Err(format!("{} of {} sequences differ: seeds {failed:?}", failed.len(), plan.seeds.clone().count()));
    }
    all_kinds_succeeded(plan, &tally)
}

/// Other file systems than ext4 differ in more than the documented differences.
fn refuse_other_than_ext4(dir: &Path) -> Outcome {
    // SAFETY: all zeros are a structure for the kernel to fill.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    let path = call::Path(dir.as_os_str().as_encoded_bytes().to_vec());
    // SAFETY: a string and a structure that outlive the call.
    let asked = unsafe { libc::statfs(place::text(&path).as_ptr(), &mut found) };
    if asked == 0 && found.f_type == libc::EXT4_SUPER_MAGIC {
        return Ok(());
    }
    Err(format!("{} is not on ext4, which a mount is compared with: give another --dir", dir.display()))
}

struct Run<'a> {
    plan: &'a Plan,
    cluster: &'a Cluster<'a>,
    local: PathBuf,
}

impl Run<'_> {
    fn steps_of(&self, seed: u64) -> Vec<Step> {
        let mut steps = sequence::steps(seed, self.plan.steps);
        steps.truncate(self.plan.until.map_or(steps.len(), |until| until + 1));
        steps.retain(|step| !self.plan.without.contains(&step.call.kind()));
        steps
    }

    /// Plays the steps in new directories, and compares what they left.
    fn play(&self, steps: &[Step], name: &str, tally: &mut Tally) -> Outcome<Option<Failure>> {
        let mounts: Vec<PathBuf> = self.mounts().map(|mount| mount.join("differential")).collect();
        let mut stage = Stage::make(&self.local, &mounts, name, self.plan.trace)?;
        let mut failure = None;
        for (place, step) in steps.iter().enumerate() {
            if self.plan.restarts && place == steps.len() / 2 {
                self.cluster.kill_servers()?;
            }
            failure = stage.play(step)?;
            if failure.is_some() {
                break;
            }
        }
        if failure.is_none() {
            failure = stage.compare_trees()?;
        }
        for (kind, (made, succeeded)) in &stage.tally {
            let count = tally.entry(kind.clone()).or_default();
            *count = (count.0 + made, count.1 + succeeded);
        }
        Ok(failure)
    }

    fn mounts(&self) -> impl Iterator<Item = &Path> {
        self.cluster.mounts().into_iter().take(self.plan.mounts as usize)
    }

    fn report(&self, seed: u64, failure: &Failure) {
        println!("seed {seed}: {}", shown(failure));
        println!("    again: {}", self.command(seed, failure.step.number));
    }

    /// The command that plays a sequence up to a step, with a trace.
    fn command(&self, seed: u64, until: usize) -> String {
        let Plan { steps, mounts, options, striped, restarts, without, .. } = self.plan;
        let mut command = format!("cargo run --release -p xtask -- differential --seeds {seed} --steps {steps}");
        command += &if *mounts > 1 { format!(" --mounts {mounts}") } else { String::new() };
        command += &options.as_ref().map_or(String::new(), |options| format!(" --options {options}"));
        command += if *striped { " --striped" } else { "" };
        command += if *restarts { " --restarts" } else { "" };
        command += &if without.is_empty() { String::new() } else { format!(" --without {}", without.join(",")) };
        command += &if until < *steps && !restarts { format!(" --until {until}") } else { String::new() };
        command + " --trace"
    }

    fn print_shrunk(&self, steps: &[Step], failure: &Failure) -> Outcome {
        let mut played = 0;
        let kept = shrink::shrink(steps, failure, |steps| {
            played += 1;
            self.play(steps, &format!("shrink-{played}"), &mut Tally::new())
        })?;
        println!("{} of {} steps are enough:", kept.len(), steps.len());
        kept.iter().for_each(|step| println!("    {step}"));
        let last = self.play(&kept, "shrunk", &mut Tally::new())?;
        println!("they end so: {}", last.as_ref().map_or("this time without a difference".to_owned(), shown));
        Ok(())
    }
}

fn shown(failure: &Failure) -> String {
    let Failure { step, differs, answers } = failure;
    let mut shown = match step.number {
        usize::MAX => format!("when all is done, actor {}: {:?}", step.actor, step.call),
        _ => step.to_string(),
    };
    for differ in differs {
        shown += &format!("\n    {}: local {}, mount {}", differ.what, differ.local, differ.mount);
    }
    shown + &format!("\n    local answered {}\n    mount answered {}", answers[0], answers[1])
}

fn summarize(tally: &Tally, seconds: u64) {
    let calls: u64 = tally.values().map(|(made, _)| made).sum();
    println!("differential: {calls} calls of {} kinds in {seconds} s (made, succeeded):", tally.len());
    let each: Vec<String> = tally.iter().map(|(kind, (made, good))| format!("{kind} {made} {good}")).collect();
    println!("    {}", each.join(", "));
}

/// Checks that every kind of call succeeded: one that always fails compares nothing.
fn all_kinds_succeeded(plan: &Plan, tally: &Tally) -> Outcome {
    // With several mounts nothing is mapped, so there is nothing to load, store or unmap.
    let left_out: &[&str] = if plan.mounts > 1 { &["mapload", "mapstore", "unmap"] } else { &[] };
    let never = tally.iter().filter(|(kind, (_, good))| *good == 0 && !left_out.contains(&kind.as_str()));
    let never: Vec<&str> = never.map(|(kind, _)| kind.as_str()).collect();
    let few = plan.seeds.clone().count() * plan.steps < MANY_STEPS;
    if few || never.is_empty() { Ok(()) } else { Err(format!("calls that never succeeded: {}", never.join(", "))) }
}
