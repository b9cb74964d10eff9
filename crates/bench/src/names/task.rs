//! One process of a run: applies one kind of operation to each of its items, as fast as it can.
//!
//! Its current directory is that of the run, so that paths are only as long as the tree is deep.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    path::Path,
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
};
use serde::{Deserialize, Serialize};

use super::tree::Layout;
use crate::{
    crew::{Progress, Work},
    ior::shuffled,
};

/// The configuration of a process for the whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskConfig {
    /// Its number.
    pub rank: u32,
    /// All items of all processes.
    pub layout: Layout,
    /// The directory of the run.
    pub base: String,
    /// Bytes written to each new file.
    pub write_bytes: u64,
    /// Bytes read from each file.
    pub read_bytes: u64,
    /// fsync before close.
    pub sync: bool,
    /// Read-only phases visit the items in a random order of this seed.
    pub random_seed: Option<u64>,
}

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Directories of the tree: parents first.
    MakeTree,
    /// The same, children first.
    RemoveTree,
    /// mkdir.
    MakeDirectory,
    /// stat of a directory.
    StatDirectory,
    /// rmdir.
    RemoveDirectory,
    /// open with O_CREAT and O_EXCL, perhaps write, close.
    Create,
    /// stat of a file.
    Stat,
    /// open, perhaps read, close.
    Read,
    /// utimensat.
    Utime,
    /// unlink.
    Remove,
}

impl Op {
    /// The name in reports that know files only. Other reports combine it with [`Op::is_of_files`].
    pub fn name(self) -> &'static str {
        match self {
            Op::MakeTree => "tree-create",
            Op::RemoveTree => "tree-remove",
            Op::MakeDirectory => "directory-create",
            Op::StatDirectory => "directory-stat",
            Op::RemoveDirectory => "directory-remove",
            Op::Create => "create",
            Op::Stat => "stat",
            Op::Read => "read",
            Op::Utime => "utime",
            Op::Remove => "remove",
        }
    }

    /// Whether its items are files.
    pub fn is_of_files(self) -> bool {
        matches!(self, Op::Create | Op::Stat | Op::Read | Op::Utime | Op::Remove)
    }

    /// Whether it works on the tree, not on items in it.
    pub fn is_of_tree(self) -> bool {
        matches!(self, Op::MakeTree | Op::RemoveTree)
    }

    /// Whether it is read-only, so that it may use another process's items, in any order.
    pub fn only_looks(self) -> bool {
        matches!(self, Op::StatDirectory | Op::Stat | Op::Read)
    }
}

/// One phase of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// What to do.
    pub op: Op,
    /// The rank whose items to use: its own, or a neighbour's.
    pub of_rank: u32,
    /// The directory of the items, if it is not the working directory of this process.
    pub elsewhere: Option<String>,
    /// Idle in this phase: another process creates the tree for all.
    pub idle: bool,
}

/// What one process did in one phase; times on the machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TaskResult {
    /// Before the first operation.
    pub begin_ns: u64,
    /// After the last.
    pub end_ns: u64,
    /// Operations.
    pub ops: u64,
    /// The longest of them.
    pub longest_ns: u64,
    /// CPU seconds of the process.
    pub cpu_s: f64,
}

/// One process.
pub struct Task {
    config: TaskConfig,
    buffer: Vec<u8>,
}

impl Work for Task {
    const COMMAND: &'static str = super::TASK_COMMAND;
    type Config = TaskConfig;
    type Order = Order;
    type Result = TaskResult;

    fn new(config: TaskConfig) -> CliResult<Self> {
        std::env::set_current_dir(&config.base).doing(|| format!("cannot work in {}", config.base))?;
        let buffer = vec![config.rank as u8; config.write_bytes.max(config.read_bytes) as usize];
        Ok(Self { config, buffer })
    }

    fn phase(&mut self, order: Order, progress: &mut Progress) -> CliResult<TaskResult> {
        let cpu_before = posix::own_cpu_seconds();
        let begin_ns = posix::monotonic_ns();
        let mut clock = Clock { result: TaskResult { begin_ns, end_ns: begin_ns, ..Default::default() }, progress };
        match order.op {
            _ if order.idle => {}
            op if op.is_of_tree() => self.tree(&order, &mut clock)?,
            _ => self.items(&order, &mut clock)?,
        }
        Ok(TaskResult { cpu_s: posix::own_cpu_seconds() - cpu_before, ..clock.result })
    }

    fn done(result: &TaskResult) -> u64 {
        result.ops
    }
}

/// Counts and times operations: each begins where the previous one ended.
struct Clock<'a> {
    result: TaskResult,
    progress: &'a mut Progress,
}

impl Clock<'_> {
    fn tick(&mut self) -> CliResult {
        let now_ns = posix::monotonic_ns();
        let result = &mut self.result;
        result.longest_ns = result.longest_ns.max(now_ns - result.end_ns);
        result.end_ns = now_ns;
        result.ops += 1;
        self.progress.report(now_ns, result.ops)
    }
}

impl Task {
    fn tree(&mut self, order: &Order, clock: &mut Clock<'_>) -> CliResult {
        let layout = self.config.layout;
        let (root, count) = (layout.root(order.of_rank), layout.tree.directories().unwrap_or(0));
        for number in 0..count {
            let number = if order.op == Op::MakeTree { number } else { count - 1 - number };
            self.one(order.op, &layout.tree.path(&root, number), number)?;
            clock.tick()?;
        }
        Ok(())
    }

    fn items(&mut self, order: &Order, clock: &mut Clock<'_>) -> CliResult {
        let layout = self.config.layout;
        let seed = self.config.random_seed.filter(|_| order.op.only_looks());
        let numbers = seed.map(|seed| shuffled(layout.items, seed ^ u64::from(self.config.rank)));
        let root = layout.root(order.of_rank);
        let root = order.elsewhere.as_ref().map_or(root.clone(), |base| format!("{base}/{root}"));
        let kind = if order.op.is_of_files() { "file" } else { "dir" };
        let (mut current, mut path) = (None, String::new());
        let mut prefix = 0;
        for i in 0..layout.items {
            let number = numbers.as_ref().map_or(i, |numbers| numbers[i as usize]);
            let directory = layout.directory_of(number);
            if current != Some(directory) {
                current = Some(directory);
                path = format!("{}/{kind}.{}.", layout.tree.path(&root, directory), order.of_rank);
                prefix = path.len();
            }
            path.truncate(prefix);
            path.push_str(&number.to_string());
            self.one(order.op, &path, number)?;
            clock.tick()?;
        }
        Ok(())
    }

    fn one(&mut self, op: Op, path: &str, number: u64) -> CliResult {
        let done = match op {
            Op::MakeTree | Op::MakeDirectory => fs::create_dir(path),
            Op::RemoveTree | Op::RemoveDirectory => fs::remove_dir(path),
            Op::StatDirectory | Op::Stat => fs::metadata(path).map(drop),
            Op::Create => self.create(path),
            Op::Read => self.read(path),
            Op::Utime => posix::set_times(Path::new(path), 1_000_000_000 + number as i64),
            Op::Remove => fs::remove_file(path),
        };
        done.map_err(|error| self.failed(op, path, &error))
    }

    fn create(&self, path: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        if self.config.write_bytes > 0 {
            file.write_all(&self.buffer[..self.config.write_bytes as usize])?;
        }
        if self.config.sync {
            file.sync_all()?;
        }
        posix::close(file)
    }

    fn read(&mut self, path: &str) -> io::Result<()> {
        let mut file = fs::File::open(path)?;
        file.read_exact(&mut self.buffer[..self.config.read_bytes as usize])?;
        posix::close(file)
    }

    fn failed(&self, op: Op, path: &str, error: &io::Error) -> CliError {
        let hint = match error.kind() {
            io::ErrorKind::NotFound if op != Op::MakeTree => " (was it made with the same -N, -n, -I, -b, -z and -u?)",
            io::ErrorKind::UnexpectedEof => " (the file is shorter than -e)",
            io::ErrorKind::StorageFull => " (the file system has no room for that many; use a smaller -n)",
            _ => "",
        };
        CliError::failed(format!("{} of {path} in {}: {error}{hint}", op.name(), self.config.base))
    }
}
