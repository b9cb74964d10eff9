//! Commit levels of the mounts: which acknowledged changes are certain (docs/promises.md).

/// The level of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The default: data is with the servers' kernels, and the client replays.
    #[default]
    Data,
    /// Acknowledged changes are durable, whoever dies.
    Commit,
    /// Acknowledged changes are in the memory of the servers and of the client; either may die alone.
    Memory,
}

impl Level {
    /// All levels with their names for `-o commit=`.
    pub const ALL: [(Self, &str); 3] = [(Self::Data, "data"), (Self::Commit, "commit"), (Self::Memory, "memory")];

    /// The level of the mount with this number. Of four mounts two have level data, one each of the other levels.
    pub fn of_mount(mount: usize) -> Self {
        [Self::Data, Self::Data, Self::Commit, Self::Memory][mount % 4]
    }

    /// The name for `-o commit=`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("", |(_, name)| name)
    }

    /// The level with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(level, _)| *level)
    }
}
