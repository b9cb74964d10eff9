//! Commit levels of the mounts: what is certain of what was acknowledged there (docs/promises.md).

/// The level of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The default: data are with the servers' kernels, and the client replays.
    #[default]
    Data,
    /// What is acknowledged is durable, whoever dies.
    Commit,
    /// What is acknowledged is in the servers' memory and in the client's: either may die alone.
    Memory,
}

impl Level {
    /// All, as `-o commit=` knows them.
    pub const ALL: [(Self, &str); 3] = [(Self::Data, "data"), (Self::Commit, "commit"), (Self::Memory, "memory")];

    /// Of the mount with this number: two of level data, one of each other.
    pub fn of_mount(mount: usize) -> Self {
        [Self::Data, Self::Data, Self::Commit, Self::Memory][mount % 4]
    }

    /// As `-o commit=` knows it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("", |(_, name)| name)
    }

    /// The level of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(level, _)| *level)
    }
}
