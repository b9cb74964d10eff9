//! How an experiment writes: commit level, where journals lie, and whose transactions they look like.
//!
//! The paper's modes are configurations of our own commit path, on journals whose transactions are written in the shape of
//! ext3's: blocks first, the commit record when they are down. Group commit, ordering, replies and pins are ours in all.

use std::time::Duration;

use forebay_client::CommitLevel;
use forebay_env::sim::JournalShape;
use forebay_store::OpenOptions;

use super::Machine;

/// Where journals lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalPlace {
    /// On the OST's own tier.
    Internal,
    /// On tiers of other disks, shared.
    Sas,
    /// On a shared solid-state device.
    Ssd,
    /// Nowhere: on a device that takes no time. What no journal at all would cost.
    Nowhere,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its row.
    pub name: &'static str,
    /// When replies leave.
    pub level: CommitLevel,
    /// Where journals lie.
    pub journal: JournalPlace,
    /// Data are written to the journal too, before their place.
    pub data_too: bool,
    /// Transactions look like ext3's, and nobody hurries them but who waits; else all is ours.
    pub paper: bool,
}

/// All modes, in the order of the tables.
pub const MODES: [Mode; 9] = [
    Mode {
        name: "sync-internal",
        level: CommitLevel::Commit,
        journal: JournalPlace::Internal,
        data_too: false,
        paper: true,
    },
    Mode { name: "external-sas", level: CommitLevel::Commit, journal: JournalPlace::Sas, data_too: false, paper: true },
    Mode { name: "external-ssd", level: CommitLevel::Commit, journal: JournalPlace::Ssd, data_too: false, paper: true },
    Mode {
        name: "async-internal",
        level: CommitLevel::Data,
        journal: JournalPlace::Internal,
        data_too: false,
        paper: true,
    },
    Mode {
        name: "async-external-ssd",
        level: CommitLevel::Data,
        journal: JournalPlace::Ssd,
        data_too: false,
        paper: true,
    },
    Mode {
        name: "data-journal",
        level: CommitLevel::Commit,
        journal: JournalPlace::Internal,
        data_too: true,
        paper: true,
    },
    Mode { name: "no-journal", level: CommitLevel::Data, journal: JournalPlace::Nowhere, data_too: false, paper: true },
    Mode { name: "commit", level: CommitLevel::Commit, journal: JournalPlace::Internal, data_too: false, paper: false },
    Mode { name: "default", level: CommitLevel::Data, journal: JournalPlace::Internal, data_too: false, paper: false },
];

/// The mode of this name.
pub fn mode(name: &str) -> Option<Mode> {
    MODES.into_iter().find(|mode| mode.name == name)
}

impl Mode {
    /// How often it commits where nobody waits, and how many commits are under way. ext3 knows one.
    pub fn commits(&self, machine: &Machine) -> OpenOptions {
        let commit_interval = Duration::from_secs_f64(machine.journal.interval_s.value);
        let papers = OpenOptions { commit_interval, commits_under_way: 1, ..OpenOptions::default() };
        if self.paper { papers } else { OpenOptions::default() }
    }

    /// What its transactions look like on the device.
    pub fn shape(&self, machine: &Machine) -> Option<JournalShape> {
        let (least_bytes, record_bytes) = (machine.journal.blocks_kib.kib(), machine.journal.record_kib.kib());
        (self.paper && record_bytes > 0).then_some(JournalShape { least_bytes, record_bytes })
    }
}
