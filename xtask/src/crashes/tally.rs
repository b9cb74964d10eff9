//! Counters and times of a run.

use std::{collections::BTreeMap, fmt, time::Duration};

use forebay_proto::message::CommitLevel;

use super::crew;

/// A set of durations.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds a duration.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// The smallest duration that `percent` of all do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let mut all = self.0.clone();
        all.sort_unstable();
        let rank = (all.len() * percent).div_ceil(100).max(1);
        all.get(rank - 1).copied().unwrap_or_default()
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let [p50, p99, max] = [50, 99, 100].map(|percent| self.percentile(percent).as_secs_f64());
        write!(f, "p50 {p50:.3} s, p99 {p99:.3} s, longest {max:.3} s ({} times)", self.0.len())
    }
}

/// The figures of a run.
#[derive(Debug, Default)]
pub struct Figures {
    /// Number of faults.
    pub faults: u64,
    /// Servers that got SIGKILL with disks that keep what was written.
    pub servers_killed: u64,
    /// Servers that lost power.
    pub servers_cut: u64,
    /// Mounts that got SIGKILL.
    pub mounts_killed: BTreeMap<CommitLevel, u64>,
    /// Processes that were stopped and continued.
    pub paused: u64,
    /// Times that a mount got an error for a loss and was mounted again.
    pub told: u64,
    /// Time from a server's start to its first answer to a new request, if all its clients live.
    pub first: Samples,
    /// The same to its answer to the last client.
    pub last: Samples,
    /// Time from its start to its first answer, if it waits for a client that does not come. That is a dead mount, or
    /// for an OST the process of an MDT that died since the OST's last start.
    pub first_with_dead: Samples,
    /// The longest call of a program between two checks in which servers died and all their clients lived.
    pub stalls: Samples,
    /// The same if a mount died too or had died before, or something was stopped.
    pub other_stalls: Samples,
    /// The counts of all workers, by the level of their mount.
    pub work: BTreeMap<CommitLevel, crew::Tally>,
    /// Runs of fsck that found nothing.
    pub fscks: u64,
}

impl Figures {
    /// Adds the counts of a worker on a mount of this level.
    pub fn add(&mut self, level: CommitLevel, tally: crew::Tally) {
        self.work.entry(level).or_default().add(tally);
    }

    /// Prints what was done and compared on mounts of one level.
    fn level(&self, f: &mut fmt::Formatter<'_>, level: CommitLevel, work: &crew::Tally) -> fmt::Result {
        let killed = self.mounts_killed.get(&level).copied().unwrap_or(0);
        writeln!(
            f,
            "level {}: {} calls, {} blocks and {} names compared, {killed} mounts killed; {} writes and changes of names that \
             were acknowledged, not synced, and had to be there after that",
            level.name(),
            work.calls,
            work.blocks,
            work.names,
            work.unsynced,
        )
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut work = crew::Tally::default();
        self.work.values().for_each(|tally| work.add(*tally));
        let mounts_killed: u64 = self.mounts_killed.values().sum();
        writeln!(
            f,
            "{} faults: {} servers killed, {} servers lost power, {} mounts killed, {} processes stopped and continued",
            self.faults, self.servers_killed, self.servers_cut, mounts_killed, self.paused
        )?;
        writeln!(
            f,
            "{} calls of programs; compared: {} blocks, {} names; {} times fsck found nothing; {} mounts that had been stopped \
             were told of losses",
            work.calls, work.blocks, work.names, self.fscks, self.told
        )?;
        self.work.iter().try_for_each(|(level, work)| self.level(f, *level, work))?;
        writeln!(f, "files left by a dead mount of which stat told less than could be read: {}", work.sizes)?;
        writeln!(f, "a server's start to its first new reply, all clients alive: {}", self.first)?;
        writeln!(f, "... to the reply to its last client: {}", self.last)?;
        writeln!(
            f,
            "... to its first, where a client of before does not come (a mount; an OST's MDT): {}",
            self.first_with_dead
        )?;
        writeln!(f, "longest call of a program, by fault, all clients alive: {}", self.stalls)?;
        write!(f, "... where a client of before did not come, or something was stopped: {}", self.other_stalls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_samples() {
        let mut samples = Samples::default();
        assert_eq!(samples.to_string(), "none");
        (1..=200).rev().for_each(|ms| samples.push(Duration::from_millis(ms)));
        assert_eq!(samples.to_string(), "p50 0.100 s, p99 0.198 s, longest 0.200 s (200 times)");
    }
}
