//! The workers, from the side of the process that started them.

use std::{
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use super::{model::Death, site::die_with_parent};
use crate::figures::Outcome;

/// A worker that does not report for this long hangs.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A worker's process.
pub struct Hand {
    /// The mount that it works on.
    pub mount: usize,
    /// Its number.
    pub number: u64,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

/// A worker's report.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// Everything is as it should be.
    Fine(Tally),
    /// A call returned EIO or ESTALE, and the worker has ended.
    Told(String),
}

/// What a worker counted since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Longest call.
    pub longest: Duration,
    /// System calls.
    pub calls: u64,
    /// Records compared.
    pub blocks: u64,
    /// Names compared.
    pub names: u64,
    /// Files whose size in stat was below what could be read, after their mount and the MDT died.
    pub sizes: u64,
    /// Unsynced writes and changes of names that had to survive the mount's death.
    pub unsynced: u64,
}

impl Hand {
    /// Starts a worker. [`Hand::hear`] returns once it is ready.
    pub fn start(mount: usize, number: u64, dir: &Path, notes: &Path, seed: u64, death: Death) -> Outcome<Self> {
        let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
        let mut command = Command::new(own);
        command.arg("crashes-worker").arg(number.to_string()).arg(dir).arg(notes).arg(death.level.name());
        command.args([seed, u64::from(death.alone), death.sent_before_ms].map(|number| number.to_string()));
        die_with_parent(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut child = command.spawn().map_err(|error| format!("a worker: {error}"))?;
        let (orders, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line)).ok();
        });
        Ok(Self { mount, number, child, orders, answers })
    }

    /// Sends an order. A worker that has ended says why at the next [`Hand::hear`].
    pub fn order(&mut self, words: &str) {
        let _ = writeln!(self.orders, "{words}");
    }

    /// Waits for its report. Errors: a broken promise, or the worker hangs.
    pub fn hear(&mut self) -> Outcome<Said> {
        let line = match self.answers.recv_timeout(TIMEOUT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Err(format!("worker {} hangs for {TIMEOUT:?}", self.number)),
            Err(RecvTimeoutError::Disconnected) => return Err(format!("worker {} has ended", self.number)),
        };
        match line.split_once(' ') {
            Some(("ready" | "ok", numbers)) => Ok(Said::Fine(Tally::parse(numbers).ok_or(format!("it said {line}"))?)),
            Some(("told", words)) => Ok(Said::Told(words.to_owned())),
            _ => Err(line),
        }
    }

    /// Sends SIGKILL. Earlier reports still count, as they may contain an error.
    pub fn kill(mut self) -> Outcome {
        let _ = self.child.kill();
        self.child.wait().map_err(|error| error.to_string())?;
        let broken = self.answers.iter().find(|line| line.starts_with("fail") && !is_gone(line));
        broken.map_or(Ok(()), Err)
    }
}

/// True if the worker failed because its mount died.
fn is_gone(line: &str) -> bool {
    ["os error 107)", "os error 103)", "os error 5)"].iter().any(|code| line.contains(code))
}

impl Tally {
    fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<u64> = text.split(' ').filter_map(|number| number.parse().ok()).collect();
        let [longest, calls, blocks, names, sizes, unsynced] = numbers[..] else { return None };
        Some(Self { longest: Duration::from_micros(longest), calls, blocks, names, sizes, unsynced })
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.longest = self.longest.max(other.longest);
        self.calls += other.calls;
        self.blocks += other.blocks;
        self.names += other.names;
        self.sizes += other.sizes;
        self.unsynced += other.unsynced;
    }
}
