//! What goes wrong, drawn from a seed.

use forebay_history::Dice;

use super::site::OSTS;

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Servers die at once and are started again after a while; again so often, the later times while they recover.
    Servers {
        /// Which.
        servers: Vec<usize>,
        /// Away for.
        away_ms: u64,
        /// Killed again so long after each start, if at all.
        again_ms: Vec<u64>,
    },
    /// Servers stop and go on.
    PauseServers {
        /// Which.
        servers: Vec<usize>,
        /// For so long.
        ms: u64,
    },
    /// A mount stops and goes on; meanwhile servers die, perhaps.
    PauseMount {
        /// Which.
        mount: usize,
        /// For so long.
        ms: u64,
        /// These die meanwhile.
        servers: Vec<usize>,
    },
    /// A mount dies, its workers too.
    Mount {
        /// Which.
        mount: usize,
    },
    /// Mounts and servers die together.
    Together {
        /// Which mounts.
        mounts: Vec<usize>,
        /// Which servers.
        servers: Vec<usize>,
        /// Away for.
        away_ms: u64,
    },
}

/// Servers of a cluster: the MDT is number 0.
const SERVERS: usize = OSTS + 1;
/// Longest time that a killed server is away, besides what its start takes.
const AWAY_MS: u64 = 250;
/// Longest pause.
const PAUSE_MS: u64 = 2500;

impl Fault {
    /// A kill.
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

    /// A pause.
    pub fn pause(dice: &mut Dice, mounts: usize) -> Self {
        let (ms, mount) = (1 + dice.below(PAUSE_MS), dice.below(mounts as u64) as usize);
        match dice.below(3) {
            0 => Self::PauseServers { servers: servers(dice), ms },
            1 => Self::PauseMount { mount, ms, servers: Vec::new() },
            _ => Self::PauseMount { mount, ms, servers: servers(dice) },
        }
    }

    /// Mounts that are killed.
    pub fn killed_mounts(&self) -> &[usize] {
        match self {
            Self::Mount { mount } => std::slice::from_ref(mount),
            Self::Together { mounts, .. } => mounts,
            _ => &[],
        }
    }

    /// A mount may be evicted by this one: it was away while servers waited for it.
    pub fn excuses_eio(&self) -> bool {
        matches!(self, Self::PauseMount { ms, servers, .. } if *ms > 1000 && !servers.is_empty())
    }

    /// True if every server died at once.
    pub fn is_of_all_servers(&self) -> bool {
        matches!(self, Self::Servers { servers, .. } | Self::Together { servers, .. } if servers.len() == SERVERS)
    }

    /// A client of the servers does not live through it, or is away.
    pub fn stops_clients(&self) -> bool {
        // An MDT is a client of the OSTs that die with it.
        let with_mdt = |servers: &[usize]| servers.contains(&0) && servers.len() > 1;
        !matches!(self, Self::Servers { servers, .. } if !with_mdt(servers))
    }

    /// Servers that are killed.
    pub fn killed_servers(&self) -> &[usize] {
        match self {
            Self::Servers { servers, .. } | Self::PauseMount { servers, .. } | Self::Together { servers, .. } => {
                servers
            }
            Self::PauseServers { .. } | Self::Mount { .. } => &[],
        }
    }
}

/// One, some, or all.
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
