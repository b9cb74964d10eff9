//! Kills servers with SIGKILL and brings them back, and stops and continues servers and mounts, again and again, while others work.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use forebay_history::Dice;

use crate::{figures::Outcome, suites::cluster::Servers};

/// Longest wait between two faults.
const CALM_MS: u64 = 2500;
/// Longest time a server is away, besides what its start takes.
const AWAY_MS: u64 = 400;

/// Longest time a process is stopped: beyond that of a lease, so that what a mount believes of inodes and names has ended when
/// it goes on; not as long as anybody is waited for who keeps data back.
const STOP_MS: u64 = 4000;
/// A server that has come back waits so long for clients: a mount that is stopped meanwhile would be evicted.
const RECOVERY: Duration = Duration::from_millis(2500);

/// A thread that kills and stops.
pub struct Killer {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Outcome<Faults>>,
}

/// How often it did what.
#[derive(Default)]
pub struct Faults {
    kills: u64,
    servers_stopped: u64,
    mounts_stopped: u64,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, servers_stopped, mounts_stopped } = self;
        write!(f, "servers killed {kills} and stopped {servers_stopped} times, mounts stopped {mounts_stopped} times")
    }
}

impl Killer {
    /// Begins.
    pub fn start(servers: Servers, seed: u64) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let until = ends.clone();
        let thread = std::thread::spawn(move || {
            let (mut dice, mut faults) = (Dice::new(seed), Faults::default());
            loop {
                std::thread::sleep(Duration::from_millis(dice.below(CALM_MS)));
                if until.load(Ordering::Relaxed) {
                    return Ok(faults);
                }
                match dice.below(4) {
                    0..2 => kill(&servers, &mut dice, &mut faults)?,
                    2 => stop(&servers, &servers.pids()?, &mut dice, &mut faults.servers_stopped)?,
                    _ => {
                        std::thread::sleep(RECOVERY);
                        stop(&servers, &servers.mount_pids()?, &mut dice, &mut faults.mounts_stopped)?;
                    }
                }
            }
        });
        Self { ends, thread }
    }

    /// Fails if it does not go on.
    pub fn check(&self) -> Outcome {
        if self.thread.is_finished() { Err("servers could not be killed and brought back".into()) } else { Ok(()) }
    }

    /// Ends it, with all servers up; what it did.
    pub fn end(self) -> Outcome<Faults> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the thread that kills has panicked".to_owned())?
    }
}

/// One of them, or all at once.
fn some(pids: &[u32], dice: &mut Dice) -> Vec<u32> {
    if dice.below(5) == 0 { pids.to_vec() } else { dice.pick(pids).copied().into_iter().collect() }
}

/// Stops some for a while.
fn stop(servers: &Servers, pids: &[u32], dice: &mut Dice, count: &mut u64) -> Outcome {
    let pids = some(pids, dice);
    *count += pids.len() as u64;
    servers.stop(&pids, Duration::from_millis(dice.below(STOP_MS)))
}

/// Kills some servers, and brings them back.
fn kill(servers: &Servers, dice: &mut Dice, faults: &mut Faults) -> Outcome {
    let pids = some(&servers.pids()?, dice);
    faults.kills += pids.len() as u64;
    servers.kill(&pids)?;
    std::thread::sleep(Duration::from_millis(dice.below(AWAY_MS)));
    servers.bring_back()
}
