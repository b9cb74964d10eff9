//! The copier: a separate program that copies a tree, as users' programs do.
//!
//! It must be a separate process. The demo restarts servers while a copier waits for them. A process with an open file
//! on the mount may then block in exec(2). exec closes the descriptors, and close(2) waits in the kernel for another
//! thread's write to the same file. That write waits for the server that exec is to start.
//!
//! One line of JSON on its stdin says what to copy; it stops when its stdin ends. It reports on its stdout what it did.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult, Doing},
    processes,
};
use forebay_proto::crc;
use serde::{Deserialize, Serialize};

use super::{
    copy::{Pace, copy},
    tree::{Bounds, Pulse, Tree},
};

/// Name of the hidden command.
pub const COMMAND: &str = "demo-copier";

/// The hidden command that is a copier.
#[derive(Debug, Args)]
pub struct CopierArgs {}

/// What to copy.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    root: PathBuf,
    bounds: Bounds,
    /// Checksum of the names: the tree must not change while the demo runs.
    names_sum: u64,
    to: PathBuf,
}

/// A message from a copier.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// An entry of the tree is copied.
    Copied { number: usize, ns: u64 },
    /// The task is finished.
    Done,
    /// The task failed.
    Failed(String),
}

/// Serves one task, then ends.
pub fn run(_args: &CopierArgs) -> CliResult {
    let mut task = String::new();
    io::stdin().read_line(&mut task).doing(|| "cannot read what to copy".into())?;
    let task: Task = serde_json::from_str(&task).doing(|| "not a task of a copier".into())?;
    static STOPPED: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        // Only the end of stdin matters.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        STOPPED.store(true, Ordering::Relaxed);
    });
    let copied = |number, ns| {
        if say(&Said::Copied { number, ns }).is_err() {
            STOPPED.store(true, Ordering::Relaxed);
        }
    };
    let go_on = || !STOPPED.load(Ordering::Relaxed);
    match task.tree().and_then(|tree| copy(&tree, &task.to, &Pace { copied: &copied, go_on: &go_on })) {
        Ok(()) => say(&Said::Done),
        Err(error) => say(&Said::Failed(error.to_string())),
    }
}

fn say(said: &Said) -> CliResult {
    let line = serde_json::to_string(said).expect("it becomes JSON");
    writeln!(io::stdout().lock(), "{line}").doing(|| "nobody listens to the copier".into())
}

impl Task {
    fn tree(&self) -> CliResult<Tree> {
        let tree = Tree::scan(&self.root, self.bounds)?;
        if names_sum(&tree) == self.names_sum {
            return Ok(tree);
        }
        Err(CliError::failed(format!("{} changes while it is copied; give --tree one that rests", self.root.display())))
    }
}

fn names_sum(tree: &Tree) -> u64 {
    let names: Vec<&[u8]> = tree.entries.iter().map(|entry| entry.path.as_os_str().as_bytes()).collect();
    crc::crc64(&names.join(&0))
}

/// Lets a copier copy `tree` to the new directory `to`. `go_on` is asked after each entry. Returns what was copied.
pub fn have_copied(tree: &Tree, to: &Path, pulse: &Pulse, go_on: &(dyn Fn() -> bool + Sync)) -> CliResult<Tree> {
    let mut copier = Copier::start()?;
    let task = Task { root: tree.root.clone(), bounds: tree.bounds, names_sum: names_sum(tree), to: to.to_owned() };
    let task = serde_json::to_string(&task).doing(|| "the paths must be UTF-8".into())?;
    let sent = copier.orders.as_mut().map_or(Ok(()), |orders| writeln!(orders, "{task}"));
    sent.doing(|| "the copier has gone".into())?;
    let mut copied = vec![false; tree.entries.len()];
    for line in copier.words.by_ref().lines() {
        let line = line.doing(|| "the copier cannot be heard".into())?;
        match serde_json::from_str(&line).doing(|| format!("the copier said {line:?}"))? {
            Said::Copied { number, ns } => {
                pulse.took(ns);
                let place = copied.get_mut(number);
                *place.ok_or_else(|| CliError::failed(format!("the copier says it copied a {number}th entry")))? = true;
            }
            Said::Done => return Ok(tree.only(&copied)),
            Said::Failed(words) => return Err(CliError::failed(words)),
        }
        if !go_on() {
            drop(copier.orders.take());
        }
    }
    Err(CliError::failed("the copier ended unexpectedly"))
}

/// A running copier; dropping it ends it.
struct Copier {
    child: Child,
    orders: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

impl Copier {
    fn start() -> CliResult<Self> {
        let mut command = processes::this_program();
        let command = command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().doing(|| "cannot start a copier".into())?;
        let orders = child.stdin.take();
        let words = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        Ok(Self { child, orders, words })
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        // Errors mean that the process has already ended, as intended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
