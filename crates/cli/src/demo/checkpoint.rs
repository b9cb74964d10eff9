//! A checkpoint: processes write one file each, with all bytes stamped, and read them back later.

use std::path::Path;

use forebay_bench::{
    Crew,
    ior::{Action, Order, Shape, Task, TaskConfig, TaskResult},
};
use forebay_command::{error::CliResult, paths::utf8, units::MIB};

/// Bytes of one write, as in applications that write checkpoints efficiently.
pub const TRANSFER_BYTES: u64 = 1 << 20;

/// Processes and sizes of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Processes, each with a file of its own.
    pub processes: u32,
    /// Bytes of each.
    pub bytes: u64,
}

impl Size {
    /// Bytes of all.
    pub fn total(self) -> u64 {
        u64::from(self.processes) * self.bytes
    }
}

/// Rate and longest call of a phase, as its processes measured it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From the first open to the last close.
    pub mib_per_s: f64,
    /// The longest single call.
    pub longest_call_s: f64,
}

impl Pace {
    /// The pace of `bytes` in `seconds`.
    pub fn new(bytes: u64, seconds: f64, longest_call_s: f64) -> Self {
        Self { mib_per_s: bytes as f64 / MIB / seconds.max(1e-9), longest_call_s }
    }

    fn of(results: &[TaskResult]) -> Self {
        let begin_ns = results.iter().map(|r| r.begin_ns).min().unwrap_or(0);
        let end_ns = results.iter().map(|r| r.closed_ns).max().unwrap_or(0);
        let bytes: u64 = results.iter().map(|r| r.bytes).sum();
        let longest_ns = results.iter().map(|r| r.longest_call_ns).max().unwrap_or(0);
        Self::new(bytes, (end_ns - begin_ns) as f64 / 1e9, longest_ns as f64 / 1e9)
    }
}

/// A checkpoint in a directory of a volume; `number` is part of its stamps and of its files' names.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its size.
    pub size: Size,
    /// Its directory.
    pub dir: String,
    /// Its number.
    pub number: u32,
}

impl Checkpoint {
    /// Its files, relative to the volume.
    pub fn files(&self) -> Vec<String> {
        (0..self.size.processes).map(|rank| self.shape().file_name(&self.base(), rank)).collect()
    }

    /// Which process writes which bytes.
    pub fn shape(&self) -> Shape {
        Shape {
            tasks: self.size.processes,
            file_per_process: true,
            transfer_bytes: TRANSFER_BYTES,
            block_bytes: self.size.bytes,
            segments: 1,
            random_seed: None,
        }
    }

    fn base(&self) -> String {
        format!("{}/checkpoint-{}", self.dir, self.number)
    }
}

/// Writes the checkpoint below the directory `root`, with real processes.
pub fn write_files(checkpoint: &Checkpoint, root: &Path, on_progress: &mut dyn FnMut(u64)) -> CliResult<Pace> {
    // Each writes its own file.
    phase(checkpoint, root, Action::Write, 0, on_progress)
}

/// Reads the checkpoint below the directory `root`, with real processes, and checks every byte.
pub fn verify_files(checkpoint: &Checkpoint, root: &Path, on_progress: &mut dyn FnMut(u64)) -> CliResult<Pace> {
    // Each reads its neighbour's file, which is not in a cache of its own.
    phase(checkpoint, root, Action::Check, 1, on_progress)
}

fn phase(
    checkpoint: &Checkpoint,
    root: &Path,
    action: Action,
    shift: u32,
    on_progress: &mut dyn FnMut(u64),
) -> CliResult<Pace> {
    let (path, processes) = (utf8(&root.join(checkpoint.base()))?, checkpoint.size.processes);
    let config = |rank| TaskConfig {
        rank,
        shape: checkpoint.shape(),
        path: path.clone(),
        fsync: true,
        stonewall_ms: None,
        direct: false,
        stamp: true,
        check: true,
    };
    let order = |rank| {
        let of_rank = (rank + shift) % processes;
        Order { action, repetition: checkpoint.number, of_rank, transfers: u64::MAX }
    };
    let configs: Vec<TaskConfig> = (0..processes).map(config).collect();
    let orders: Vec<Order> = (0..processes).map(order).collect();
    Crew::<Task>::start(&configs)?.phase(&orders, on_progress).map(|results| Pace::of(&results))
}
