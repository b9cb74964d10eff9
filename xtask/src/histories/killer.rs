//! Kills servers with SIGKILL and restarts them, and stops and continues servers and mounts, again and again, while
//! others work.

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

/// Longest time between two faults.
const CALM_MS: u64 = 2500;
/// Longest time that a server is down, besides its start.
const AWAY_MS: u64 = 400;

/// Longest time that a process is stopped: longer than a lease, so that the mount's cached inodes and names have
/// expired when it continues. It is shorter than the time after which a holder of buffered data is evicted.
const STOP_MS: u64 = 4000;
/// A restarted server waits this long for its clients. A mount that is stopped during that time would be evicted.
const RECOVERY: Duration = Duration::from_millis(2500);

/// A thread that kills and stops processes.
pub struct Killer {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Outcome<Faults>>,
}

/// Number of faults of each kind.
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
    /// Starts the thread.
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

    /// Fails if the thread has ended.
    pub fn check(&self) -> Outcome {
        if self.thread.is_finished() { Err("servers could not be killed and brought back".into()) } else { Ok(()) }
    }

    /// Ends the thread, with all servers up. Returns what it did.
    pub fn end(self) -> Outcome<Faults> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the thread that kills has panicked".to_owned())?
    }
}

/// One of them, or all.
fn some(pids: &[u32], dice: &mut Dice) -> Vec<u32> {
    if dice.below(5) == 0 { pids.to_vec() } else { dice.pick(pids).copied().into_iter().collect() }
}

/// Stops some processes for a while.
fn stop(servers: &Servers, pids: &[u32], dice: &mut Dice, count: &mut u64) -> Outcome {
    let pids = some(pids, dice);
    *count += pids.len() as u64;
    servers.stop(&pids, Duration::from_millis(dice.below(STOP_MS)))
}

/// Kills some servers and restarts them.
fn kill(servers: &Servers, dice: &mut Dice, faults: &mut Faults) -> Outcome {
    let pids = some(&servers.pids()?, dice);
    faults.kills += pids.len() as u64;
    servers.kill(&pids)?;
    std::thread::sleep(Duration::from_millis(dice.below(AWAY_MS)));
    servers.bring_back()
}
