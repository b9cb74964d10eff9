//! Choices of a directory or file that take precedence over the mount's: its commit level and its inline bound. Each is
//! an extended attribute for users, and bits of [`Attr::flags`] for clients.

use std::borrow::Cow;

use super::{Attr, attr_flags};
use crate::{limits::INLINE_BYTES, sizes::parse_size};

/// The extended attribute that gives a file or directory a level of its own: [`CommitLevel::name`].
pub const COMMIT_XATTR: &[u8] = b"user.forebay.commit";

/// The extended attribute that gives a file or directory an inline bound of its own: [`InlineBound::name`].
pub const INLINE_XATTR: &[u8] = b"user.forebay.inline";

/// A choice that a directory or file may have of its own.
pub trait FileChoice: Copy {
    /// The extended attribute that sets it.
    const XATTR: &'static [u8];
    /// What the attribute's values are, for the user who sets another one.
    const USAGE: &'static str;
    /// Its bits of [`Attr::flags`]: 0 is none, else its code.
    const ATTR_FLAGS: u32;

    /// The attribute's value.
    fn text(self) -> Cow<'static, str>;

    /// The choice that users write so.
    fn parse(text: &str) -> Option<Self>;

    /// Its code in attributes, from 1.
    fn attr_code(self) -> u8;

    /// The choice with this code; none has code 0.
    fn from_attr_code(code: u8) -> Option<Self>;
}

/// A choice as encoded in [`Attr::flags`].
pub fn choice_flags<C: FileChoice>(choice: Option<C>) -> u32 {
    choice.map_or(0, |choice| u32::from(choice.attr_code()) << C::ATTR_FLAGS.trailing_zeros())
}

impl Attr {
    /// The inode's own commit level; none: the mount's applies.
    pub fn level(&self) -> Option<CommitLevel> {
        self.choice()
    }

    /// The inode's own inline bound; none: the mount's applies.
    pub fn inline_bound(&self) -> Option<InlineBound> {
        self.choice()
    }

    fn choice<C: FileChoice>(&self) -> Option<C> {
        C::from_attr_code(((self.flags & C::ATTR_FLAGS) >> C::ATTR_FLAGS.trailing_zeros()) as u8)
    }
}

/// When the reply to a modifying request may leave.
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

impl FileChoice for CommitLevel {
    const XATTR: &'static [u8] = COMMIT_XATTR;
    const USAGE: &'static str =
        "user.forebay.commit is commit, data or memory; remove it to have the mount's level again";
    const ATTR_FLAGS: u32 = attr_flags::LEVEL;

    fn text(self) -> Cow<'static, str> {
        self.name().into()
    }

    fn parse(text: &str) -> Option<Self> {
        Self::named(text)
    }

    fn attr_code(self) -> u8 {
        self.number() + 1
    }

    fn from_attr_code(code: u8) -> Option<Self> {
        code.checked_sub(1).and_then(Self::from_number)
    }
}

/// Largest file that is kept inline at the MDT: whole KiB, [`INLINE_BYTES`] at most. 0: none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineBound {
    kib: u8,
}

impl InlineBound {
    /// `None`: it is above [`INLINE_BYTES`], or not whole KiB.
    pub const fn new(bytes: u64) -> Option<Self> {
        let fits = bytes <= INLINE_BYTES as u64 && bytes.is_multiple_of(1024);
        if fits { Some(Self { kib: (bytes / 1024) as u8 }) } else { None }
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        self.kib as usize * 1024
    }

    /// The bound as it is shown to users; they may write it as any size.
    pub fn name(self) -> String {
        if self.kib == 0 { "0".into() } else { format!("{}KiB", self.kib) }
    }

    /// Parses a size. `None`: it is not a valid bound.
    pub fn named(size: &str) -> Option<Self> {
        parse_size(size).and_then(Self::new)
    }

    /// Its code in attributes and in an inode's row, where 0 means no bound: its KiB plus one.
    pub const fn code(self) -> u8 {
        self.kib + 1
    }

    /// The bound with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        code.checked_sub(1).and_then(|kib| Self::new(u64::from(kib) * 1024))
    }
}

impl FileChoice for InlineBound {
    const XATTR: &'static [u8] = INLINE_XATTR;
    const USAGE: &'static str = "user.forebay.inline is whole KiB up to 16KiB, or 0 to have every file on the OSTs; remove \
                                 it to have the mount's bound again";
    const ATTR_FLAGS: u32 = attr_flags::INLINE_BOUND;

    fn text(self) -> Cow<'static, str> {
        self.name().into()
    }

    fn parse(text: &str) -> Option<Self> {
        Self::named(text)
    }

    fn attr_code(self) -> u8 {
        self.code()
    }

    fn from_attr_code(code: u8) -> Option<Self> {
        Self::from_code(code)
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

    fn all_bounds() -> impl Iterator<Item = InlineBound> {
        (0..=16).map(|kib| InlineBound::new(kib << 10).expect("it is one"))
    }

    #[test]
    fn names_and_codes_lead_back_to_their_bound() {
        for (kib, bound) in all_bounds().enumerate() {
            assert_eq!((bound.bytes(), usize::from(bound.code())), (kib << 10, kib + 1));
            assert_eq!(InlineBound::named(&bound.name()), Some(bound));
            assert_eq!(InlineBound::from_code(bound.code()), Some(bound));
        }
        assert_eq!([0, 18, 31, 255].map(InlineBound::from_code), [None; 4]);
    }

    #[test]
    fn a_bound_is_any_size_of_whole_kib_up_to_16() {
        for (size, name) in [("0", "0"), ("0KiB", "0"), ("1024", "1KiB"), ("3k", "3KiB"), ("16384", "16KiB")] {
            assert_eq!(InlineBound::named(size).map(InlineBound::name).as_deref(), Some(name), "{size}");
        }
        for wrong in ["", "512", "1000", "4KB", "17KiB", "1M", "inherit", "4KiB ", "4KiB\0", "-1", "99999999999G"] {
            assert_eq!(InlineBound::named(wrong), None, "{wrong:?}");
        }
    }

    fn attr(flags: u32) -> Attr {
        Attr {
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
        }
    }

    /// The bits of docs/protocol.md: the choice reads back from its bits alone, whatever the `others` are.
    fn check<C: FileChoice + PartialEq + std::fmt::Debug>(
        cases: &[(Option<C>, u32)],
        others: &[u32],
        own: fn(&Attr) -> Option<C>,
    ) {
        for (choice, bits) in cases {
            assert_eq!(choice_flags(*choice), *bits);
            for others in others.iter().copied().chain([0, !C::ATTR_FLAGS]) {
                assert_eq!(own(&attr(bits | others)), *choice);
            }
            assert_eq!(choice.and_then(|choice| C::parse(&choice.text())), *choice);
        }
    }

    #[test]
    fn attributes_carry_a_level_beside_their_other_flags() {
        let [memory, data, commit] = CommitLevel::ALL.map(Some);
        check(&[(None, 0), (memory, 32), (data, 64), (commit, 96)], &[31], Attr::level);
    }

    #[test]
    fn attributes_carry_a_bound_beside_their_other_flags() {
        let [none, four, most] = [0, 4 << 10, 16 << 10].map(InlineBound::new);
        check(&[(None, 0), (none, 256), (four, 1280), (most, 4352)], &[255], Attr::inline_bound);
    }
}
