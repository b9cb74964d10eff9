//! Kills servers with SIGKILL and brings them back, again and again, while others work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use forebay_history::Dice;

use crate::{figures::Outcome, suites::cluster::Servers};

/// Longest wait between two kills.
const CALM_MS: u64 = 2500;
/// Longest time a server is away, besides what its start takes.
const AWAY_MS: u64 = 400;

/// A thread that kills.
pub struct Killer {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Outcome<u64>>,
}

impl Killer {
    /// Begins.
    pub fn start(servers: Servers, seed: u64) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let until = ends.clone();
        let thread = std::thread::spawn(move || {
            let (mut dice, mut kills) = (Dice::new(seed), 0);
            loop {
                std::thread::sleep(Duration::from_millis(dice.below(CALM_MS)));
                if until.load(Ordering::Relaxed) {
                    return Ok(kills);
                }
                kill(&servers, &mut dice)?;
                kills += 1;
            }
        });
        Self { ends, thread }
    }

    /// Fails if it does not go on.
    pub fn check(&self) -> Outcome {
        if self.thread.is_finished() { Err("servers could not be killed and brought back".into()) } else { Ok(()) }
    }

    /// Ends it, with all servers up; how often it killed.
    pub fn end(self) -> Outcome<u64> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the thread that kills has panicked".to_owned())?
    }
}

/// One server, or all of them at once.
fn kill(servers: &Servers, dice: &mut Dice) -> Outcome {
    let pids = servers.pids()?;
    servers.kill(&if dice.below(5) == 0 { pids } else { dice.pick(&pids).copied().into_iter().collect() })?;
    std::thread::sleep(Duration::from_millis(dice.below(AWAY_MS)));
    servers.bring_back()
}
