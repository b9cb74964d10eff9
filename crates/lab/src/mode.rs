//! How an experiment writes: the commit level, the location of the journals, and the format of their transactions.
//!
//! The paper's modes are configurations of our own commit path. Their journals write transactions in the shape of
//! ext3's: first the blocks, then the commit record once the blocks are on the device. Group commit, ordering, replies
//! and pins are ours in all modes.

use std::time::Duration;

use forebay_client::CommitLevel;
use forebay_env::sim::JournalShape;
use forebay_store::OpenOptions;

use super::Machine;

/// Where journals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalPlace {
    /// On the OST's own tier.
    Internal,
    /// On tiers of other disks, which OSTs share.
    Sas,
    /// On a shared solid-state device.
    Ssd,
    /// On a device that takes no time. This shows the cost of having no journal at all.
    Nowhere,
}

/// How an experiment writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Name of its row in the tables.
    pub name: &'static str,
    /// The commit level: when replies leave.
    pub level: CommitLevel,
    /// Where the journals are.
    pub journal: JournalPlace,
    /// Data is written to the journal first, then to its final location.
    pub data_too: bool,
    /// Transactions have ext3's shape, and only a waiting request makes one commit early. If false, everything is ours.
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

/// The mode with this name.
pub fn mode(name: &str) -> Option<Mode> {
    MODES.into_iter().find(|mode| mode.name == name)
}

impl Mode {
    /// The commit interval and the number of commits in flight. ext3 has one commit in flight.
    pub fn commits(&self, machine: &Machine) -> OpenOptions {
        let commit_interval = Duration::from_secs_f64(machine.journal.interval_s.value);
        let papers = OpenOptions { commit_interval, commits_in_flight: 1, ..OpenOptions::default() };
        if self.paper { papers } else { OpenOptions::default() }
    }

    /// The shape of its transactions on the device.
    pub fn shape(&self, machine: &Machine) -> Option<JournalShape> {
        let (least_bytes, record_bytes) = (machine.journal.blocks_kib.kib(), machine.journal.record_kib.kib());
        (self.paper && record_bytes > 0).then_some(JournalShape { least_bytes, record_bytes })
    }
}
