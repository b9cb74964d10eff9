//! `forebay bench ior`: processes that write and read files together, on any directory.
//!
//! The flags are IOR's where IOR has one. Like IOR, a phase lasts from the first open to the last close.
//! Not here: MPI-IO and HDF5 back ends; MPI codes run through a mount.

mod args;
mod phase;
mod plan;
mod stamp;
mod task;

pub use args::IorArgs;
pub use phase::{ServerCpu, drop_caches};
pub use plan::{Shape, SplitMix64, shuffled};
pub use task::{Action, Order, Task, TaskConfig, TaskResult};

use std::path::{Path, PathBuf};

use forebay_command::{
    error::{CliResult, Doing},
    progress::{self, Counts},
    units::{show_bytes, show_count},
};

use crate::{
    crew::Crew,
    report::{Report, Row, Sample},
};

/// Name of the hidden command that is one process of a run.
pub const TASK_COMMAND: &str = "bench-ior-task";

/// Runs the benchmark and prints its report.
pub fn run(args: &IorArgs) -> CliResult {
    args.validate()?;
    let mut run = Run::new(args)?;
    for repetition in 0..args.repetitions {
        run.repetition(repetition)?;
    }
    run.report().print(args.json);
    Ok(())
}

/// A run in progress.
struct Run<'a> {
    args: &'a IorArgs,
    shape: Shape,
    /// In each directory the path of the file, or the common prefix of the paths of all processes.
    bases: Vec<PathBuf>,
    crew: Crew<Task>,
    /// Transfers that each rank completed in the last write phase.
    written: Vec<u64>,
    write: Vec<Sample>,
    read: Vec<Sample>,
    check: Vec<Sample>,
}

impl<'a> Run<'a> {
    fn new(args: &'a IorArgs) -> CliResult<Self> {
        let shape = args.shape();
        let base = |dir: &PathBuf| {
            let dir = dir.canonicalize().doing(|| format!("{} is not there; make it first", dir.display()))?;
            Ok(dir.join(&args.name))
        };
        let bases = args.dirs.iter().map(base).collect::<CliResult<Vec<_>>>()?;
        let config = |rank: u32| args.task_config(rank, &shape, &bases[rank as usize % bases.len()]);
        let configs: Vec<TaskConfig> = (0..shape.tasks).map(config).collect();
        let crew = Crew::start(&configs)?;
        let written = vec![shape.transfers(); shape.tasks as usize];
        Ok(Self { args, shape, bases, crew, written, write: Vec::new(), read: Vec::new(), check: Vec::new() })
    }

    fn repetition(&mut self, repetition: u32) -> CliResult {
        let stamped = if self.args.write_phase() { repetition } else { 0 };
        if self.args.write_phase() {
            self.remove_files()?;
            let sample = self.phase(Action::Write, stamped)?;
            self.write.push(sample);
        }
        if self.args.check_write {
            self.drop_caches();
            let sample = self.phase(Action::Check, stamped)?;
            self.check.push(sample);
        }
        if self.args.read_phase() {
            self.drop_caches();
            let sample = self.phase(Action::Read, stamped)?;
            self.read.push(sample);
        }
        if !self.args.keep {
            self.remove_files()?;
        }
        Ok(())
    }

    fn phase(&mut self, action: Action, repetition: u32) -> CliResult<Sample> {
        let shift = if self.args.reorder && action != Action::Write { 1 } else { 0 };
        let order = |rank: u32| {
            let of_rank = (rank + shift) % self.shape.tasks;
            let transfers = if action == Action::Write { u64::MAX } else { self.written[of_rank as usize] };
            Order { action, repetition, of_rank, transfers }
        };
        let orders: Vec<Order> = (0..self.shape.tasks).map(order).collect();
        let what = format!("{} {}", action.name(), repetition + 1);
        let bar = progress::bar(&what, self.shape.task_bytes() * u64::from(self.shape.tasks), Counts::Bytes);
        let servers = phase::ServerCpu::begin(&self.args.cpu_of)?;
        let results = self.crew.phase(&orders, |bytes| bar.set(bytes))?;
        let server_cpu_s = servers.end()?;
        if action == Action::Write {
            self.written = results.iter().map(|result| result.transfers).collect();
        }
        Ok(phase::sample(&results, server_cpu_s))
    }

    fn drop_caches(&self) {
        if !self.args.keep_caches {
            phase::drop_caches(&self.bases.iter().flat_map(|base| self.files(base)).collect::<Vec<_>>());
        }
    }

    fn files(&self, base: &Path) -> Vec<PathBuf> {
        let base = base.to_str().expect("the crew was started with it as UTF-8");
        let count = if self.shape.file_per_process { self.shape.tasks } else { 1 };
        (0..count).map(|rank| self.shape.file_name(base, rank).into()).collect()
    }

    fn remove_files(&self) -> CliResult {
        self.files(&self.bases[0])
            .iter()
            .filter(|path| path.exists())
            .try_for_each(|path| std::fs::remove_file(path).doing(|| format!("cannot remove {}", path.display())))
    }

    fn report(self) -> Report {
        let row = |phase: &str, samples| Row { phase: phase.into(), labels: Vec::new(), unit: "MiB/s", samples };
        let rows = [row("write", self.write), row("check", self.check), row("read", self.read)];
        Report {
            bench: "ior",
            headline: headline(self.args, &self.shape),
            parameters: self.args.parameters(),
            rows: rows.into_iter().filter(|row| !row.samples.is_empty()).collect(),
        }
    }
}

fn headline(args: &IorArgs, shape: &Shape) -> String {
    format!(
        "ior: {} processes, {}, {} each in transfers of {}{}{}{} on {}",
        shape.tasks,
        if shape.file_per_process { "a file per process" } else { "one shared file" },
        show_bytes(shape.task_bytes()),
        show_bytes(shape.transfer_bytes),
        if args.random { " in random order" } else { "" },
        if args.direct { ", O_DIRECT" } else { "" },
        if args.fsync { ", fsync before close" } else { "" },
        args.dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(" and "),
    ) + &format!(" ({} transfers each)", show_count(shape.transfers()))
}
