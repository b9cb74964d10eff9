//! A run in progress: its processes, its phases, their results.

use std::sync::atomic::{AtomicI32, Ordering};

use forebay_command::{
    error::{CliError, CliResult},
    posix, processes,
    progress::{self, Counts},
};

use super::{
    site::Site,
    task::{Op, Order, Task, TaskConfig, TaskResult},
    tree::Layout,
};
use crate::{
    crew::Crew,
    ior::ServerCpu,
    report::{Row, Sample},
};

/// The signal that ends the run, once it has arrived.
static ENDING: AtomicI32 = AtomicI32::new(0);

/// Running processes.
pub struct Run<'a> {
    // Dropped first, so that no process creates anything while the site is removed.
    crew: Crew<Task>,
    /// Their working directories.
    pub site: Site,
    plan: &'a Plan,
    rows: Vec<Row>,
}

/// The plan of a run.
pub struct Plan {
    /// All items of all processes.
    pub layout: Layout,
    /// Processes.
    pub tasks: u32,
    /// Read-only phases use the items of the process this many ranks further.
    pub stride: u32,
    /// Processes whose CPU time is reported too.
    pub cpu_of: Vec<u32>,
    /// The name of a phase.
    pub named: fn(Op) -> String,
}

impl<'a> Run<'a> {
    /// Starts the processes. `config` is the configuration of each, except the directory it works in.
    pub fn start(plan: &'a Plan, site: Site, config: impl Fn(u32) -> TaskConfig) -> CliResult<Self> {
        let placed = |rank| Ok(TaskConfig { base: site.base(rank)?, ..config(rank) });
        let configs = (0..plan.tasks).map(placed).collect::<CliResult<Vec<_>>>()?;
        Ok(Self { crew: Crew::start(&configs)?, site, plan, rows: Vec::new() })
    }

    /// All processes apply `op` to all their items; they begin together.
    pub fn phase(&mut self, op: Op, repetition: u32) -> CliResult {
        let orders = (0..self.plan.tasks).map(|rank| self.order(op, rank)).collect::<CliResult<Vec<_>>>()?;
        let name = (self.plan.named)(op);
        let each = if op.is_of_tree() { self.plan.layout.tree.directories() } else { Some(self.plan.layout.items) };
        let total = each.unwrap_or(0) * orders.iter().filter(|order| !order.idle).count() as u64;
        let bar = progress::bar(&format!("{name} {}", repetition + 1), total, Counts::Things);
        let servers = ServerCpu::begin(&self.plan.cpu_of)?;
        let results = self.crew.phase(&orders, |done| bar.set(done)).map_err(or_interrupted)?;
        if ENDING.load(Ordering::SeqCst) != 0 {
            return Err(or_interrupted(CliError::failed("")));
        }
        let sample = sample(&results, servers.end()?);
        match self.rows.iter_mut().find(|row| row.phase == name) {
            Some(row) => row.samples.push(sample),
            None => self.rows.push(Row { phase: name, labels: Vec::new(), unit: "ops/s", samples: vec![sample] }),
        }
        Ok(())
    }

    fn order(&self, op: Op, rank: u32) -> CliResult<Order> {
        let layout = &self.plan.layout;
        let shift = if op.only_looks() { self.plan.stride % self.plan.tasks } else { 0 };
        let of_rank = (rank + shift) % self.plan.tasks;
        let idle = op.is_of_tree() && !layout.own && !self.site.makes_shared_tree(rank);
        Ok(Order { op, of_rank, elsewhere: self.site.elsewhere(rank, of_rank)?, idle })
    }

    /// Ends the processes.
    pub fn end(self) -> (Site, Vec<Row>) {
        (self.site, self.rows)
    }
}

/// The rate of a phase, from the first begin to the last end, and the slowest and the fastest process.
fn sample(results: &[TaskResult], server_cpu_s: Option<f64>) -> Sample {
    let worked = || results.iter().filter(|result| result.ops > 0);
    let begin_ns = worked().map(|result| result.begin_ns).min().unwrap_or(0);
    let end_ns = worked().map(|result| result.end_ns).max().unwrap_or(0);
    let ops: u64 = results.iter().map(|result| result.ops).sum();
    let rate = |ops: u64, ns: u64| if ns == 0 { 0.0 } else { ops as f64 * 1e9 / ns as f64 };
    let rates: Vec<f64> = worked().map(|result| rate(result.ops, result.end_ns - result.begin_ns)).collect();
    let slowest = rates.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0);
    let fastest = rates.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0);
    let longest_ns = results.iter().map(|result| result.longest_ns).max().unwrap_or(0);
    let us_per_op = |cpu_s: f64| cpu_s * 1e6 / ops.max(1) as f64;
    let mut details = vec![
        ("ops", ops as f64),
        ("seconds", (end_ns - begin_ns) as f64 / 1e9),
        ("slowest_process", slowest),
        ("fastest_process", fastest),
        ("longest_s", longest_ns as f64 / 1e9),
        ("cpu_us_per_op", us_per_op(results.iter().map(|result| result.cpu_s).sum())),
    ];
    if let Some(cpu_s) = server_cpu_s {
        details.push(("server_cpu_us_per_op", us_per_op(cpu_s)));
    }
    Sample { value: rate(ops, end_ns - begin_ns), details }
}

/// After Ctrl-C or SIGTERM the processes end, and the run ends as after an error: it removes what it created. A second
/// signal ends it at once.
pub fn end_at_signals() {
    posix::catch_signals();
    std::thread::spawn(|| {
        let signal = posix::wait_for_stop_signal();
        ENDING.store(signal, Ordering::SeqCst);
        eprintln!("\nforebay: interrupted; removing what was made (once more: leaving it)");
        processes::kill_children();
        std::process::exit(128 + posix::wait_for_stop_signal());
    });
}

/// The error of a run that was interrupted; the errors that follow from the interrupt are less useful.
pub fn or_interrupted(error: CliError) -> CliError {
    match ENDING.load(Ordering::SeqCst) {
        0 => error,
        signal => CliError::with_code((128 + signal) as u8, "interrupted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lasts_from_the_first_beginning_to_the_last_end_and_the_idle_do_not_count() {
        let quick = TaskResult { begin_ns: 1_000_000_000, end_ns: 2_000_000_000, ops: 100, ..Default::default() };
        let slow = TaskResult { begin_ns: 1_000_000_000, end_ns: 3_000_000_000, longest_ns: 5_000_000, ..quick };
        let idle = TaskResult { begin_ns: 1, end_ns: 1, ..Default::default() };
        let sample = sample(&[quick, slow, idle], Some(0.002));
        let detail = |name: &str| sample.details.iter().find(|(n, _)| *n == name).expect("a detail").1;
        assert_eq!((sample.value, detail("seconds"), detail("ops")), (100.0, 2.0, 200.0));
        assert_eq!((detail("slowest_process"), detail("fastest_process")), (50.0, 100.0));
        assert_eq!((detail("longest_s"), detail("server_cpu_us_per_op")), (0.005, 10.0));
    }
}
