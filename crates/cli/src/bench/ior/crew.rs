//! The processes of a run: started by re-executing this program, kept in step through pipes.
//!
//! Invariant: dropping a crew leaves no process behind.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::mpsc,
    thread,
};

use super::task::{self, Order, Reply, TaskConfig, TaskResult};
use crate::{
    error::{CliError, CliResult, Doing},
    processes,
};

/// Running processes, one per rank.
pub struct Crew {
    members: Vec<Member>,
    replies: mpsc::Receiver<(usize, CliResult<Reply>)>,
}

struct Member {
    child: Child,
    orders: ChildStdin,
}

impl Crew {
    /// Starts a process per configuration.
    pub fn start(configs: &[TaskConfig]) -> CliResult<Self> {
        let (sender, replies) = mpsc::channel();
        let mut crew = Self { members: Vec::new(), replies };
        for (rank, config) in configs.iter().enumerate() {
            let mut child = processes::this_program()
                .arg(super::TASK_COMMAND)
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

    /// Runs one phase, all processes beginning together; `on_progress` hears the bytes moved by all so far.
    pub fn phase(&mut self, orders: &[Order], mut on_progress: impl FnMut(u64)) -> CliResult<Vec<TaskResult>> {
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
            (rank, reply) => Err(CliError::failed(format!("process {rank} said {reply:?} before the phase began"))),
        }
    }

    fn collect(&self, on_progress: &mut dyn FnMut(u64)) -> CliResult<Vec<TaskResult>> {
        let mut bytes = vec![0; self.members.len()];
        let mut results = vec![None; self.members.len()];
        while results.iter().any(Option::is_none) {
            match self.receive()? {
                (rank, Reply::Progress(moved)) => bytes[rank] = moved,
                (rank, Reply::Finished(result)) => {
                    bytes[rank] = result.bytes;
                    results[rank] = Some(result);
                }
                (rank, Reply::Failed(words)) => return Err(CliError::failed(format!("process {rank}: {words}"))),
                (rank, Reply::Ready) => return Err(CliError::failed(format!("process {rank} is out of step"))),
            }
            on_progress(bytes.iter().sum());
        }
        Ok(results.into_iter().flatten().collect())
    }

    fn receive(&self) -> CliResult<(usize, Reply)> {
        let (rank, reply) = self.replies.recv().doing(|| "all bench processes have ended".into())?;
        Ok((rank, reply?))
    }

    fn send(&mut self, rank: usize, line: &str) -> CliResult {
        let orders = &mut self.members[rank].orders;
        writeln!(orders, "{line}").and_then(|()| orders.flush()).doing(|| format!("bench process {rank} has gone"))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // A process that has ended already is what we want.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

fn forward_replies(rank: usize, stdout: ChildStdout, sender: &mpsc::Sender<(usize, CliResult<Reply>)>) {
    for line in BufReader::new(stdout).lines() {
        let reply = line.doing(|| format!("bench process {rank} cannot be heard")).and_then(|l| task::parse_reply(&l));
        if sender.send((rank, reply)).is_err() {
            return;
        }
    }
    // Nobody listens any more when the crew has been dropped.
    let _ = sender.send((rank, Err(CliError::failed(format!("bench process {rank} ended unexpectedly")))));
}
