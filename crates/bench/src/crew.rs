//! The processes of a run: started by re-executing this program, kept in step through pipes.
//!
//! Orders and replies are lines of JSON; before a phase begins every process waits for a line that says `go`.
//!
//! Invariant: dropping a crew leaves no process behind.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::mpsc,
    thread,
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix, processes,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Least time between two reports of progress.
const PROGRESS_NS: u64 = 100_000_000;

/// The work of a crew's processes.
pub trait Work: Sized {
    /// The hidden command that runs one process.
    const COMMAND: &'static str;
    /// The configuration of a process for the whole run.
    type Config: Serialize + DeserializeOwned;
    /// One phase of one process.
    type Order: Serialize + DeserializeOwned;
    /// What a process measured in a phase.
    type Result: Serialize + DeserializeOwned + Clone;

    /// Runs before the first phase.
    fn new(config: Self::Config) -> CliResult<Self>;
    /// Runs one phase, from `go` on.
    fn phase(&mut self, order: Self::Order, progress: &mut Progress) -> CliResult<Self::Result>;
    /// How much was done, in the unit of the progress.
    fn done(result: &Self::Result) -> u64;
}

/// Reports to the crew at intervals how much of a phase is done.
pub struct Progress {
    reported_ns: u64,
}

impl Progress {
    /// Reports `done` so far; `now_ns` is the time that the worker has just read.
    pub fn report(&mut self, now_ns: u64, done: u64) -> CliResult {
        if now_ns < self.reported_ns + PROGRESS_NS {
            return Ok(());
        }
        self.reported_ns = now_ns;
        say(&Reply::<()>::Progress(done))
    }
}

/// A message from a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Reply<R> {
    /// The order is understood; waiting for `go`.
    Ready,
    /// Done so far in this phase.
    Progress(u64),
    /// The phase is over.
    Finished(R),
    /// The phase failed; the process ends.
    Failed(String),
}

/// Runs as one process: serves the crew until the crew closes the pipe.
pub fn serve<W: Work>() -> CliResult {
    let mut orders = std::io::stdin().lines();
    let mut next = || match orders.next() {
        Some(line) => line.map(Some).doing(|| "cannot read an order of the crew".into()),
        None => Ok(None),
    };
    let Some(line) = next()? else { return Ok(()) };
    let config: W::Config = serde_json::from_str(&line).doing(|| "not a configuration of a bench process".into())?;
    let mut work = match W::new(config) {
        Ok(work) => work,
        Err(error) => return say(&Reply::<()>::Failed(error.to_string())),
    };
    while let Some(line) = next()? {
        let order: W::Order = serde_json::from_str(&line).doing(|| "not an order of a bench crew".into())?;
        say(&Reply::<()>::Ready)?;
        if next()?.is_none() {
            return Ok(());
        }
        match work.phase(order, &mut Progress { reported_ns: posix::monotonic_ns() }) {
            Ok(result) => say(&Reply::Finished(result))?,
            Err(error) => return say(&Reply::<()>::Failed(error.to_string())),
        }
    }
    Ok(())
}

fn say<R: Serialize>(reply: &Reply<R>) -> CliResult {
    let line = serde_json::to_string(reply).expect("a reply becomes JSON");
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).doing(|| "the crew has gone".into())
}

fn parse_reply<R: DeserializeOwned>(line: &str) -> CliResult<Reply<R>> {
    serde_json::from_str(line).doing(|| format!("a bench process said '{line}'"))
}

/// Running processes, one per rank.
pub struct Crew<W: Work> {
    members: Vec<Member>,
    replies: Replies<W::Result>,
}

type Heard<R> = (usize, CliResult<Reply<R>>);
type Replies<R> = mpsc::Receiver<Heard<R>>;

struct Member {
    child: Child,
    orders: ChildStdin,
}

impl<W: Work<Result: Send + 'static>> Crew<W> {
    /// Starts a process per configuration.
    pub fn start(configs: &[W::Config]) -> CliResult<Self> {
        let (sender, replies) = mpsc::channel();
        let mut crew = Self { members: Vec::new(), replies };
        for (rank, config) in configs.iter().enumerate() {
            let mut child = processes::this_program()
                .arg(W::COMMAND)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .doing(|| "cannot start a bench process".into())?;
            let orders = child.stdin.take().expect("stdin is a pipe");
            let stdout = child.stdout.take().expect("stdout is a pipe");
            crew.members.push(Member { child, orders });
            let sender = sender.clone();
            thread::spawn(move || forward_replies(rank, stdout, &sender));
            crew.send(rank, &serde_json::to_string(config).doing(|| "the path must be UTF-8".into())?)?;
        }
        Ok(crew)
    }

    /// Runs one phase, which all processes begin together. `on_progress` receives the total done so far.
    pub fn phase(&mut self, orders: &[W::Order], mut on_progress: impl FnMut(u64)) -> CliResult<Vec<W::Result>> {
        assert_eq!(orders.len(), self.members.len(), "one order per process");
        for (rank, order) in orders.iter().enumerate() {
            self.send(rank, &serde_json::to_string(order).expect("an order becomes JSON"))?;
        }
        for _ in orders {
            self.expect_ready()?;
        }
        for rank in 0..orders.len() {
            self.send(rank, "go")?;
        }
        self.collect(&mut on_progress)
    }

    fn expect_ready(&self) -> CliResult {
        match self.receive()? {
            (_, Reply::Ready) => Ok(()),
            (rank, Reply::Failed(words)) => Err(CliError::failed(format!("process {rank}: {words}"))),
            (rank, _) => Err(CliError::failed(format!("process {rank} spoke before the phase began"))),
        }
    }

    fn collect(&self, on_progress: &mut dyn FnMut(u64)) -> CliResult<Vec<W::Result>> {
        let mut done = vec![0; self.members.len()];
        let mut results = vec![None; self.members.len()];
        while results.iter().any(Option::is_none) {
            match self.receive()? {
                (rank, Reply::Progress(so_far)) => done[rank] = so_far,
                (rank, Reply::Finished(result)) => {
                    done[rank] = W::done(&result);
                    results[rank] = Some(result);
                }
                (rank, Reply::Failed(words)) => return Err(CliError::failed(format!("process {rank}: {words}"))),
                (rank, Reply::Ready) => return Err(CliError::failed(format!("process {rank} is out of step"))),
            }
            on_progress(done.iter().sum());
        }
        Ok(results.into_iter().flatten().collect())
    }

    fn receive(&self) -> CliResult<(usize, Reply<W::Result>)> {
        let (rank, reply) = self.replies.recv().doing(|| "all bench processes have ended".into())?;
        Ok((rank, reply?))
    }

    fn send(&mut self, rank: usize, line: &str) -> CliResult {
        let orders = &mut self.members[rank].orders;
        writeln!(orders, "{line}").and_then(|()| orders.flush()).doing(|| format!("bench process {rank} has gone"))
    }
}

impl<W: Work> Drop for Crew<W> {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Errors mean that the process has already ended, as intended.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

fn forward_replies<R: DeserializeOwned>(rank: usize, stdout: ChildStdout, sender: &mpsc::Sender<Heard<R>>) {
    for line in BufReader::new(stdout).lines() {
        let reply = line.doing(|| format!("bench process {rank} cannot be heard")).and_then(|l| parse_reply(&l));
        if sender.send((rank, reply)).is_err() {
            return;
        }
    }
    // If the crew has been dropped, nothing receives this.
    let _ = sender.send((rank, Err(CliError::failed(format!("bench process {rank} ended unexpectedly")))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_survive_their_lines_and_other_words_are_refused() {
        let line = serde_json::to_string(&Reply::Finished(7_u64)).expect("JSON");
        assert!(matches!(parse_reply(&line), Ok(Reply::Finished(7_u64))));
        let ready = serde_json::to_string(&Reply::<()>::Ready).expect("JSON");
        assert!(matches!(parse_reply::<u64>(&ready), Ok(Reply::Ready)), "whoever says it need not know the result");
        assert!(parse_reply::<u64>("hello").is_err());
    }
}
