//! One process of a run: executes one phase after another as the crew orders.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
};
use serde::{Deserialize, Serialize};

use super::plan::Shape;
use crate::{
    aligned::AlignedBuffer,
    crew::{Progress, Work},
};

/// The configuration of a process for the whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskConfig {
    /// Its number.
    pub rank: u32,
    /// Which process writes which bytes.
    pub shape: Shape,
    /// Path of the file; with a file per process the rank follows.
    pub path: String,
    /// fsync before close.
    pub fsync: bool,
    /// Begin no transfer later than this after the start of the phase.
    pub stonewall_ms: Option<u64>,
    /// O_DIRECT.
    pub direct: bool,
    /// Write stamps; otherwise the buffer's previous content.
    pub stamp: bool,
    /// Check stamps while reading.
    pub check: bool,
}

/// What to do in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Write every transfer.
    Write,
    /// Read every transfer.
    Read,
    /// Read and check every transfer.
    Check,
}

/// One phase of one process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    /// What to do.
    pub action: Action,
    /// Repetition, from 0; part of the stamps.
    pub repetition: u32,
    /// The rank whose bytes to use: its own, or (`-C`) a neighbour's.
    pub of_rank: u32,
    /// At most this many transfers: as many as the writer completed before its stonewall.
    pub transfers: u64,
}

/// Times of one process in one phase, on the machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TaskResult {
    /// Before open.
    pub begin_ns: u64,
    /// After open.
    pub opened_ns: u64,
    /// After the last transfer.
    pub moved_ns: u64,
    /// After fsync.
    pub synced_ns: u64,
    /// After close.
    pub closed_ns: u64,
    /// The longest of all calls (open, transfers, fsync, close).
    pub longest_call_ns: u64,
    /// Transfers.
    pub transfers: u64,
    /// Bytes.
    pub bytes: u64,
    /// CPU seconds of the process.
    pub cpu_s: f64,
}

/// One process.
pub struct Task {
    config: TaskConfig,
    buffer: AlignedBuffer,
    scratch: Vec<u8>,
}

impl Work for Task {
    const COMMAND: &'static str = super::TASK_COMMAND;
    type Config = TaskConfig;
    type Order = Order;
    type Result = TaskResult;

    fn new(config: TaskConfig) -> CliResult<Self> {
        let length = config.shape.transfer_bytes as usize;
        let mut buffer = AlignedBuffer::new(length);
        config.shape.stamp(config.rank, 0).fill(buffer.bytes_mut(), 0);
        let scratch = vec![0; if config.check || config.stamp { length } else { 0 }];
        Ok(Self { config, buffer, scratch })
    }

    fn phase(&mut self, order: Order, progress: &mut Progress) -> CliResult<TaskResult> {
        let path = self.config.shape.file_name(&self.config.path, order.of_rank);
        let cpu_before = posix::own_cpu_seconds();
        let begin_ns = posix::monotonic_ns();
        let mut result = TaskResult { begin_ns, ..TaskResult::default() };
        let file = self.open(&path, order.action)?;
        result.opened_ns = posix::monotonic_ns();
        result.longest_call_ns = result.opened_ns - begin_ns;
        self.move_bytes(&file, &path, order, &mut result, progress)?;
        result.moved_ns = posix::monotonic_ns();
        if order.action == Action::Write && self.config.fsync {
            file.sync_all().doing(|| format!("fsync of {path}"))?;
        }
        result.synced_ns = posix::monotonic_ns();
        posix::close(file).doing(|| format!("close of {path}"))?;
        result.closed_ns = posix::monotonic_ns();
        let ends = [result.synced_ns - result.moved_ns, result.closed_ns - result.synced_ns];
        result.longest_call_ns = ends.into_iter().fold(result.longest_call_ns, u64::max);
        result.cpu_s = posix::own_cpu_seconds() - cpu_before;
        Ok(result)
    }

    fn done(result: &TaskResult) -> u64 {
        result.bytes
    }
}

impl Task {
    fn open(&self, path: &str, action: Action) -> CliResult<File> {
        let mut options = OpenOptions::new();
        match action {
            Action::Write => options.write(true).create(true),
            Action::Read | Action::Check => options.read(true),
        };
        if self.config.direct {
            options.custom_flags(libc::O_DIRECT);
        }
        options.open(path).doing(|| format!("cannot open {path}"))
    }

    fn move_bytes(
        &mut self,
        file: &File,
        path: &str,
        order: Order,
        result: &mut TaskResult,
        progress: &mut Progress,
    ) -> CliResult {
        let stonewall_ns = self.config.stonewall_ms.map(|ms| result.begin_ns + ms * 1_000_000);
        let shape = self.config.shape.clone();
        for offset in shape.offsets(order.of_rank).take(usize::try_from(order.transfers).unwrap_or(usize::MAX)) {
            let before_ns = posix::monotonic_ns();
            if stonewall_ns.is_some_and(|wall| before_ns >= wall) {
                break;
            }
            let call_ns = self.transfer(file, path, order, offset)?;
            result.longest_call_ns = result.longest_call_ns.max(call_ns);
            result.transfers += 1;
            result.bytes += shape.transfer_bytes;
            progress.report(before_ns, result.bytes)?;
        }
        Ok(())
    }

    /// One read or write; returns how long the call itself took.
    fn transfer(&mut self, file: &File, path: &str, order: Order, offset: u64) -> CliResult<u64> {
        let stamp = self.config.shape.stamp(order.of_rank, order.repetition);
        if order.action == Action::Write {
            if self.config.stamp {
                stamp.fill(self.buffer.bytes_mut(), offset);
            }
            let before_ns = posix::monotonic_ns();
            file.write_all_at(self.buffer.bytes(), offset).doing(|| at("write", path, offset, self.length()))?;
            return Ok(posix::monotonic_ns() - before_ns);
        }
        let before_ns = posix::monotonic_ns();
        let length = self.length();
        file.read_exact_at(self.buffer.bytes_mut(), offset).doing(|| at("read", path, offset, length))?;
        let call_ns = posix::monotonic_ns() - before_ns;
        if order.action == Action::Check || self.config.check {
            stamp
                .check(self.buffer.bytes(), offset, &mut self.scratch)
                .map_err(|wrong| CliError::mismatch(format!("{path} is damaged: {wrong}")))?;
        }
        Ok(call_ns)
    }

    fn length(&self) -> u64 {
        self.config.shape.transfer_bytes
    }
}

fn at(what: &str, path: &str, offset: u64, length: u64) -> String {
    format!("{what} of {length} bytes at {offset} of {path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_their_lines() {
        let order = Order { action: Action::Check, repetition: 2, of_rank: 1, transfers: 9 };
        let back: Order = serde_json::from_str(&serde_json::to_string(&order).expect("JSON")).expect("an order");
        assert_eq!((back.action, back.repetition, back.of_rank, back.transfers), (Action::Check, 2, 1, 9));
    }
}
