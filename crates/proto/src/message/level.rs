//! Commit levels, and their encoding in headers, attributes, rows and extended attributes.

use super::{Attr, attr_flags};

/// The extended attribute that gives a file or directory a level of its own: [`CommitLevel::name`].
pub const COMMIT_XATTR: &[u8] = b"user.forebay.commit";

/// When the reply to a modifying request may leave (DESIGN section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitLevel {
    /// The server has it in memory.
    Memory,
    /// Data written to the device, no flush implied.
    #[default]
    Data,
    /// Data and journal written and flushed.
    Commit,
}

impl CommitLevel {
    /// All levels, the weakest first.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Data, Self::Commit];

    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Data => "data",
            Self::Commit => "commit",
        }
    }

    /// The level with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Its number in a frame's header and in an inode's row.
    pub const fn number(self) -> u8 {
        match self {
            Self::Memory => 0,
            Self::Data => 1,
            Self::Commit => 2,
        }
    }

    /// The level with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.number() == number)
    }
}

/// Lowest bit of [`attr_flags::LEVEL`].
const SHIFT: u32 = attr_flags::LEVEL.trailing_zeros();

/// [`Attr::level`] as encoded in [`Attr::flags`]: 0 is none, else one more than the number.
pub fn level_flags(level: Option<CommitLevel>) -> u32 {
    level.map_or(0, |level| (u32::from(level.number()) + 1) << SHIFT)
}

impl Attr {
    /// The inode's own commit level; none: the mount's applies.
    pub fn level(&self) -> Option<CommitLevel> {
        let bits = (self.flags & attr_flags::LEVEL) >> SHIFT;
        bits.checked_sub(1).and_then(|number| CommitLevel::from_number(number as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fid;

    #[test]
    fn names_and_numbers_lead_back_to_their_level() {
        for level in CommitLevel::ALL {
            assert_eq!(CommitLevel::named(level.name()), Some(level));
            assert_eq!(CommitLevel::from_number(level.number()), Some(level));
        }
        for wrong in ["", "Commit", "commit ", "commit\0", "inherit"] {
            assert_eq!(CommitLevel::named(wrong), None, "{wrong:?}");
        }
        assert_eq!(CommitLevel::from_number(3), None);
    }

    /// The bits of docs/protocol.md.
    #[test]
    fn attributes_carry_a_level_beside_their_other_flags() {
        let attr = |flags| Attr {
            fid: Fid::ROOT,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            btime_ns: 0,
            truncate_epoch: 0,
            attr_epoch: 0,
            flags,
        };
        let [memory, data, commit] = CommitLevel::ALL.map(Some);
        for (level, bits) in [(None, 0), (memory, 32), (data, 64), (commit, 96)] {
            assert_eq!(level_flags(level), bits);
            for others in [0, 31, !attr_flags::LEVEL] {
                assert_eq!(attr(bits | others).level(), level);
            }
        }
    }
}
