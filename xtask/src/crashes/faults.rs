//! The faults, drawn from a seed.

use forebay_history::Dice;

use super::site::OSTS;

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Servers die together and restart after a while. They may be killed again, also during their recovery.
    Servers {
        /// The servers.
        servers: Vec<usize>,
        /// Time until the restart.
        away_ms: u64,
        /// For each further kill, the time after the start.
        again_ms: Vec<u64>,
    },
    /// Servers are stopped and continued.
    PauseServers {
        /// The servers.
        servers: Vec<usize>,
        /// For how long.
        ms: u64,
    },
    /// A mount is stopped and continued. Servers may die meanwhile.
    PauseMount {
        /// The mount.
        mount: usize,
        /// For how long.
        ms: u64,
        /// Servers that die meanwhile.
        servers: Vec<usize>,
    },
    /// A mount dies with its workers.
    Mount {
        /// The mount.
        mount: usize,
    },
    /// Mounts and servers die together.
    Together {
        /// The mounts.
        mounts: Vec<usize>,
        /// The servers.
        servers: Vec<usize>,
        /// Time until the restart.
        away_ms: u64,
    },
}

/// Number of servers; the MDT is server 0.
const SERVERS: usize = OSTS + 1;
/// Longest time that a killed server is down, besides its start.
const AWAY_MS: u64 = 250;
/// Longest pause.
const PAUSE_MS: u64 = 2500;

impl Fault {
    /// Draws a kill.
    pub fn kill(dice: &mut Dice, mounts: usize) -> Self {
        let away_ms = dice.below(AWAY_MS);
        match dice.below(100) {
            0..88 => {
                let again = if dice.below(6) == 0 { 1 + dice.below(2) } else { 0 };
                let again_ms = (0..again).map(|_| dice.below(150)).collect();
                Self::Servers { servers: servers(dice), away_ms, again_ms }
            }
            88..91 => Self::Mount { mount: dice.below(mounts as u64) as usize },
            _ => {
                let all = dice.below(2) == 0;
                let one = dice.below(mounts as u64) as usize;
                let mounts = if all { (0..mounts).collect() } else { vec![one] };
                Self::Together { mounts, servers: servers(dice), away_ms }
            }
        }
    }

    /// Draws a pause.
    pub fn pause(dice: &mut Dice, mounts: usize) -> Self {
        let (ms, mount) = (1 + dice.below(PAUSE_MS), dice.below(mounts as u64) as usize);
        match dice.below(3) {
            0 => Self::PauseServers { servers: servers(dice), ms },
            1 => Self::PauseMount { mount, ms, servers: Vec::new() },
            _ => Self::PauseMount { mount, ms, servers: servers(dice) },
        }
    }

    /// The mounts that are killed.
    pub fn killed_mounts(&self) -> &[usize] {
        match self {
            Self::Mount { mount } => std::slice::from_ref(mount),
            Self::Together { mounts, .. } => mounts,
            _ => &[],
        }
    }

    /// True if a mount may be evicted: it was stopped while servers waited for it.
    pub fn excuses_eio(&self) -> bool {
        matches!(self, Self::PauseMount { ms, servers, .. } if *ms > 1000 && !servers.is_empty())
    }

    /// True if all servers died together.
    pub fn is_of_all_servers(&self) -> bool {
        matches!(self, Self::Servers { servers, .. } | Self::Together { servers, .. } if servers.len() == SERVERS)
    }

    /// True if a client of the servers dies or is stopped.
    pub fn stops_clients(&self) -> bool {
        // The MDT is a client of the OSTs that die with it.
        let with_mdt = |servers: &[usize]| servers.contains(&0) && servers.len() > 1;
        !matches!(self, Self::Servers { servers, .. } if !with_mdt(servers))
    }

    /// The servers that are killed.
    pub fn killed_servers(&self) -> &[usize] {
        match self {
            Self::Servers { servers, .. } | Self::PauseMount { servers, .. } | Self::Together { servers, .. } => {
                servers
            }
            Self::PauseServers { .. } | Self::Mount { .. } => &[],
        }
    }
}

/// One server, some, or all.
fn servers(dice: &mut Dice) -> Vec<usize> {
    match dice.below(10) {
        0..6 => vec![dice.below(SERVERS as u64) as usize],
        6..8 => {
            let (one, more) = (dice.below(SERVERS as u64) as usize, 1 + dice.below(SERVERS as u64 - 1) as usize);
            let mut two = vec![one, (one + more) % SERVERS];
            two.sort_unstable();
            two
        }
        _ => (0..SERVERS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_fault_is_drawn_and_the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..400).map(|n| if n % 4 == 0 { Fault::pause(&mut dice, 2) } else { Fault::kill(&mut dice, 2) }).collect()
        };
        let all: Vec<Fault> = draw(1);
        assert_eq!(all, draw(1));
        let count = |is: fn(&Fault) -> bool| all.iter().filter(|fault| is(fault)).count();
        assert!(count(|fault| matches!(fault, Fault::Servers { again_ms, .. } if !again_ms.is_empty())) > 5);
        assert!(count(|fault| matches!(fault, Fault::Mount { .. })) > 2);
        assert!(count(|fault| matches!(fault, Fault::Together { mounts, .. } if mounts.len() == 2)) > 2);
        assert!(count(Fault::excuses_eio) > 2 && count(Fault::is_of_all_servers) > 20);
    }
}
