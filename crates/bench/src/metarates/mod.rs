//! `forebay bench metarates`: rates of create, stat and utime, by several processes, on any directory.
//!
//! As the original metarates does: files without data, in one directory for all or one for each process. It reports the
//! total rate, and those of the slowest and the fastest process. It removes its files, and reports that rate too.

use std::path::PathBuf;

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult},
    units::{parse_count, show_count},
};
use serde_json::{Value, json};

use super::{
    names::{Layout, Op, Plan, Run, Site, TASKS, TaskConfig, Tree, end_at_signals, or_interrupted},
    report::{Report, Row},
};

/// The phases, in this order.
const PHASES: [Op; 4] = [Op::Create, Op::Stat, Op::Utime, Op::Remove];
/// The directory of a run.
const NAME: &str = "metarates.files";

/// What to measure where.
#[derive(Debug, Args)]
pub struct MetaratesArgs {
    /// Directories to work in; several: mounts that the processes are spread over
    #[arg(default_value = ".")]
    pub dirs: Vec<PathBuf>,
    /// Processes
    #[arg(short = 'N', long, default_value_t = 2, value_name = "N")]
    pub procs: u32,
    /// Files of each process: 1000, 10k
    #[arg(short = 'n', long, default_value = "1000", value_parser = parse_count, value_name = "N")]
    pub files: u64,
    /// A directory for each process instead of one for all
    #[arg(short = 'u', long)]
    pub own_directories: bool,
    /// Look at the files of the process this many further, so that no cache has them
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub stride: u32,
    /// Repetitions
    #[arg(short = 'i', long, default_value_t = 1, value_name = "N")]
    pub repetitions: u32,
    /// Report the CPU time of these processes too (the servers and the mount)
    #[arg(long, value_delimiter = ',', value_name = "PID,...")]
    pub cpu_of: Vec<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl MetaratesArgs {
    fn validate(&self) -> CliResult {
        if self.procs == 0 || self.procs > TASKS {
            return Err(CliError::usage(format!("-N {}: use 1 to {TASKS} processes", self.procs)));
        }
        if self.files == 0 || self.repetitions == 0 {
            return Err(CliError::usage("-n and -i must be at least 1"));
        }
        Ok(())
    }

    fn plan(&self) -> Plan {
        let tree = Tree { branching: 1, depth: 0, leaves_only: false };
        let layout = Layout { tree, own: self.own_directories, items: self.files };
        let named = |op: Op| op.name().to_owned();
        Plan { layout, tasks: self.procs, stride: self.stride, cpu_of: self.cpu_of.clone(), named }
    }

    fn parameters(&self) -> Value {
        let dirs: Vec<String> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        json!({
            "dirs": dirs, "procs": self.procs, "files": self.files,
            "own_directories": self.own_directories, "stride": self.stride,
        })
    }

    fn headline(&self) -> String {
        let (files, procs) = (show_count(self.files), self.procs);
        let place = if self.own_directories { "a directory of its own" } else { "one shared directory" };
        format!("metarates: {procs} processes, {files} files each in {place}")
    }
}

/// Runs the benchmark and prints its report.
pub fn run(args: &MetaratesArgs) -> CliResult {
    args.validate()?;
    end_at_signals();
    let rows = measure(args).map_err(or_interrupted)?;
    Report { bench: "metarates", headline: args.headline(), parameters: args.parameters(), rows }.print(args.json);
    Ok(())
}

fn measure(args: &MetaratesArgs) -> CliResult<Vec<Row>> {
    let plan = args.plan();
    let (rank, base, random_seed) = (0, String::new(), None);
    let config =
        TaskConfig { rank, layout: plan.layout, base, write_bytes: 0, read_bytes: 0, sync: false, random_seed };
    let site = Site::make(&args.dirs, NAME)?;
    let mut run = Run::start(&plan, site, |rank| TaskConfig { rank, ..config.clone() })?;
    for repetition in 0..args.repetitions {
        let phases = [&[Op::MakeTree][..], &PHASES, &[Op::RemoveTree]].concat();
        phases.into_iter().try_for_each(|op| run.phase(op, repetition))?;
    }
    let (site, mut rows) = run.end();
    site.finish()?;
    rows.retain(|row| PHASES.iter().any(|op| row.phase == op.name()));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        metarates: MetaratesArgs,
    }

    fn parse(line: &str) -> MetaratesArgs {
        Line::try_parse_from(format!("metarates {line}").split_whitespace()).expect(line).metarates
    }

    #[test]
    fn files_lie_in_one_directory_or_in_one_for_each_process() {
        let plan = parse("/tmp -N 4 -n 10k").plan();
        assert_eq!(
            (plan.layout.items, plan.layout.root(0), plan.layout.root(3)),
            (10_000, "shared".into(), "shared".into())
        );
        assert_eq!(parse("/a /b -u").plan().layout.root(3), "task.3");
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused_with_words() {
        for (line, words) in [("-N 0", "1 to 4096"), ("-n 0", "at least 1"), ("-i 0", "at least 1")] {
            let error = parse(line).validate().expect_err(line);
            assert!(error.exit_code() == 2 && error.message.contains(words), "{line}: {error}");
        }
    }
}
