//! A checkpoint: processes that write a file each, all bytes stamped, and read them back later.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    bench::ior::{Action, Crew, Order, Shape, TaskConfig, TaskResult},
    demo::site::Site,
    error::{CliResult, Doing},
    format::utf8,
    stripe,
    units::MIB,
};

/// Bytes of one write, as codes that checkpoint well do.
const TRANSFER_BYTES: u64 = 1 << 20;

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

/// What a phase took, as the processes saw it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From the first open to the last close.
    pub mib_per_s: f64,
    /// The longest single call.
    pub longest_call_s: f64,
}

/// A checkpoint in `dir`; `number` is part of its stamps and of its files' names.
pub struct Checkpoint {
    size: Size,
    path: PathBuf,
    number: u32,
}

impl Checkpoint {
    /// Checkpoint `number` in the directory `dir`, which is made.
    pub fn new(size: Size, dir: &Path, number: u32) -> CliResult<Self> {
        std::fs::create_dir_all(dir).doing(|| format!("cannot make {}", dir.display()))?;
        Ok(Self { size, path: dir.join(format!("checkpoint-{number}")), number })
    }

    /// Writes it, with fsync; `on_progress` hears how many bytes are written.
    pub fn write(&self, on_progress: impl FnMut(u64)) -> CliResult<Pace> {
        self.phase(Action::Write, on_progress)
    }

    /// Reads it back, checking every byte.
    pub fn verify(&self, on_progress: impl FnMut(u64)) -> CliResult<Pace> {
        self.phase(Action::Check, on_progress)
    }

    /// Its files.
    pub fn files(&self) -> Vec<PathBuf> {
        let base = self.path.to_string_lossy();
        (0..self.size.processes).map(|rank| self.shape().file_name(&base, rank).into()).collect()
    }

    fn phase(&self, action: Action, on_progress: impl FnMut(u64)) -> CliResult<Pace> {
        let path = utf8(&self.path)?;
        let config = |rank| TaskConfig {
            rank,
            shape: self.shape(),
            path: path.clone(),
            fsync: true,
            stonewall_ms: None,
            direct: false,
            stamp: true,
            check: true,
            progress: true,
        };
        let configs: Vec<TaskConfig> = (0..self.size.processes).map(config).collect();
        // A reader checks its neighbour's file: nothing it may still have in a cache of its own.
        let shift = if action == Action::Write { 0 } else { 1 };
        let order = |rank| {
            let of_rank = (rank + shift) % self.size.processes;
            Order { action, repetition: self.number, of_rank, transfers: u64::MAX }
        };
        let orders: Vec<Order> = (0..self.size.processes).map(order).collect();
        Crew::start(&configs)?.phase(&orders, on_progress).map(|results| Pace::of(&results))
    }

    fn shape(&self) -> Shape {
        Shape {
            tasks: self.size.processes,
            file_per_process: true,
            transfer_bytes: TRANSFER_BYTES,
            block_bytes: self.size.bytes,
            segments: 1,
            random_seed: None,
        }
    }
}

impl Pace {
    fn of(results: &[TaskResult]) -> Self {
        let begin_ns = results.iter().map(|r| r.begin_ns).min().unwrap_or(0);
        let end_ns = results.iter().map(|r| r.closed_ns).max().unwrap_or(0);
        let bytes: u64 = results.iter().map(|r| r.bytes).sum();
        let longest_ns = results.iter().map(|r| r.longest_call_ns).max().unwrap_or(0);
        let seconds = (end_ns - begin_ns).max(1) as f64 / 1e9;
        Self { mib_per_s: bytes as f64 / MIB / seconds, longest_call_s: longest_ns as f64 / 1e9 }
    }
}

/// Bytes of each OST that files occupy, by their layouts: a row per file.
pub fn bytes_per_ost(files: &[PathBuf], osts: usize) -> CliResult<Vec<(String, Vec<u64>)>> {
    files.iter().map(|file| Ok((name_of(file), spread(file, osts)?))).collect()
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn spread(file: &Path, osts: usize) -> CliResult<Vec<u64>> {
    let size = file.metadata().doing(|| format!("cannot look at {}", file.display()))?.len();
    let layout = stripe::layout_of(file)?;
    let mut bytes = vec![0; osts];
    let list = layout["osts"].as_array().map_or(&[][..], Vec::as_slice);
    let layout = forebay_proto::Layout {
        generation: 1,
        stripe_bytes: layout["stripe_size"].as_u64().unwrap_or(1 << 20) as u32,
        osts: list.iter().filter_map(Value::as_u64).map(|ost| ost as u32).collect(),
    };
    for (stripe, &ost) in layout.osts.iter().enumerate() {
        if let Some(place) = bytes.get_mut(ost as usize) {
            *place += layout.object_bytes(stripe, size);
        }
    }
    Ok(bytes)
}

/// Lets new files of `dir` lie over all OSTs of the site.
pub fn stripe_over_all(site: &Site, dir: &Path) -> CliResult {
    std::fs::create_dir_all(dir).doing(|| format!("cannot make {}", dir.display()))?;
    stripe::set_layout(dir, site.cluster().ost_count())
}
