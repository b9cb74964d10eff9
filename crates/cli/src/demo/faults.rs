//! Kills servers while programs write, and restarts them.
//!
//! The programs are the processes of a checkpoint and a copier of the tree. They are not informed of the kills, and any
//! error that reaches one of them fails the demo.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use forebay_command::{
    error::{CliError, CliResult},
    posix,
    processes::wait_until,
};
use forebay_proto::TargetId;
use serde_json::Value;

use super::{
    checkpoint::{Checkpoint, Pace},
    site::Site,
    tree::{Pulse, Tree},
    volume::Volume,
};

/// How long a killed server stays away.
const AWAY: Duration = Duration::from_millis(500);
/// Longest wait for the programs to reach the progress at which the next server is killed.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long a target may take to recover.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// One kill.
#[derive(Clone, Debug)]
pub struct Kill {
    /// The target that was killed.
    pub target: TargetId,
    /// Percentage of the checkpoint that was written at that time.
    pub at_percent: u64,
    /// From the kill until the target served again.
    pub away_s: f64,
    /// Number of requests that clients replayed, if the target reports it.
    pub replayed: Option<u64>,
}

/// The result of the phase with kills.
#[derive(Clone, Debug)]
pub struct KillPhase {
    /// The kills, in order.
    pub kills: Vec<Kill>,
    /// The checkpoint's pace, interruptions included.
    pub pace: Pace,
    /// What the copiers copied meanwhile.
    pub copied: Tree,
    /// The longest a copier waited for one file.
    pub longest_file_s: f64,
}

/// Writes `checkpoint` and copies `tree` to `to` while an OST and then the MDS are killed and restarted.
pub fn run(site: &Site, volume: &dyn Volume, checkpoint: &Checkpoint, tree: &Tree, to: &str) -> CliResult<KillPhase> {
    let bytes = checkpoint.size.total();
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let ended = AtomicBool::new(false);
    let pulse = Pulse::default();
    thread::scope(|scope| {
        let copier = scope.spawn(|| volume.copy(tree, to, &pulse, &|| !over.load(Ordering::Relaxed)));
        let writer = scope.spawn(|| {
            let result = volume.write(checkpoint, &mut |now| written.store(now, Ordering::Relaxed));
            ended.store(true, Ordering::Relaxed);
            result
        });
        let victims = [(TargetId::ost(1), 25), (TargetId::mdt(0), 60)];
        let watch = Watch { site, written: &written, ended: &ended, bytes };
        let kills: CliResult<Vec<Kill>> =
            victims.into_iter().map(|(target, percent)| watch.kill_and_bring_back(target, percent)).collect();
        if let Err(error) = &kills {
            site.abandon(&error.message);
        }
        let pace = writer.join().expect("the writer's thread does not panic");
        over.store(true, Ordering::Relaxed);
        let copied = copier.join().expect("the copier's thread does not panic");
        let kills = kills?;
        let longest_file_s = pulse.longest_ns.load(Ordering::Relaxed) as f64 / 1e9;
        let error = |what: &str, e: CliError| CliError::failed(format!("an error reached {what}: {e}"));
        Ok(KillPhase {
            kills,
            pace: pace.map_err(|e| error("the checkpoint", e))?,
            copied: copied.map_err(|e| error("a copier", e))?,
            longest_file_s,
        })
    })
}

/// Watches the programs' progress and kills servers.
struct Watch<'a> {
    site: &'a Site,
    written: &'a AtomicU64,
    ended: &'a AtomicBool,
    bytes: u64,
}

impl Watch<'_> {
    fn percent(&self) -> u64 {
        self.written.load(Ordering::Relaxed) * 100 / self.bytes
    }

    fn kill_and_bring_back(&self, target: TargetId, percent: u64) -> CliResult<Kill> {
        let reached = || self.percent() >= percent || self.ended.load(Ordering::Relaxed);
        if !wait_until(TIMEOUT, reached) {
            return Err(CliError::failed(format!("the checkpoint is stuck at {} %", self.percent())));
        }
        let at_percent = self.percent();
        let killed_ns = posix::monotonic_ns();
        self.site.kill(target)?;
        thread::sleep(AWAY);
        self.site.bring_back(target)?;
        let mut status = Value::Null;
        let served = wait_until(RECOVERY_TIMEOUT, || {
            status = self.site.status_of(target).unwrap_or(Value::Null);
            status["state"] == "serving"
        });
        if !served {
            return Err(CliError::failed(format!("{target} is back but does not serve: it says {status}")));
        }
        let away_s = (posix::monotonic_ns() - killed_ns) as f64 / 1e9;
        Ok(Kill { target, at_percent, away_s, replayed: status["recovery"]["replayed"].as_u64() })
    }
}
