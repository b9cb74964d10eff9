//! POSIX access control lists: their encoding as xattrs, and how chmod and inheritance change them. Pure.
//! Not here: the access that they allow (`perm`).
//!
//! An inode's access list holds more than its mode can express. Where both apply they agree: the entries for the owner,
//! for others, and for the mask (without a mask, the group) equal the mode's bits. A list that says no more than the
//! mode is not stored.
//!
//! Invariant: a stored list has one entry each for owner, group and others, and a mask if it names other users or
//! groups.

use bytes::Bytes;
use forebay_proto::{DecodeError, Errno};

/// The attribute that holds the access list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the default list, for files and directories created in a directory.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
/// The id in entries that name no user or group.
const NOBODY: u32 = u32::MAX;

/// What an entry applies to, in the order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// The inode's owner.
    Owner,
    /// The user with this id.
    User(u32),
    /// The inode's group.
    Group,
    /// The group with this id.
    NamedGroup(u32),
    /// All but the owner and others: the most that their entries allow.
    Mask,
    /// Everybody else.
    Others,
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<(Tag, u32)>);

/// The lists of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acls {
    /// In force.
    pub access: Option<Acl>,
    /// For what is made in it.
    pub default: Option<Acl>,
}

impl Acl {
    /// Reads an attribute's value. Errors: EINVAL.
    pub fn parse(value: &[u8]) -> Result<Self, Errno> {
        let (version, entries) = value.split_at_checked(4).ok_or(Errno::EINVAL)?;
        if version != VERSION.to_le_bytes() || entries.len() % ENTRY_BYTES != 0 {
            return Err(Errno::EINVAL);
        }
        let list = entries.chunks(ENTRY_BYTES).map(entry).collect::<Result<Vec<_>, _>>()?;
        // Kinds in their order; names of users, and of groups, in any.
        let kinds: Vec<u8> = list.iter().map(|(tag, _)| kind(*tag)).collect();
        let once = |kind: u8| kinds.iter().filter(|k| **k == kind).count() == 1;
        let names_somebody = kinds.iter().any(|kind| matches!(kind, 1 | 3));
        let masks = kinds.iter().filter(|kind| **kind == 4).count();
        let valid = kinds.is_sorted() && once(0) && once(2) && once(5) && masks <= 1 && (masks == 1 || !names_somebody);
        if valid { Ok(Self(list)) } else { Err(Errno::EINVAL) }
    }

    /// As [`Acl::parse`], of a row.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        Self::parse(value).map_err(|_| DecodeError::new("an access control list that none should have kept"))
    }

    /// The attribute's value.
    pub fn encode(&self) -> Bytes {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, bits) in &self.0 {
            let (tag, id) = match tag {
                Tag::Owner => (1, NOBODY),
                Tag::User(id) => (2, *id),
                Tag::Group => (4, NOBODY),
                Tag::NamedGroup(id) => (8, *id),
                Tag::Mask => (0x10, NOBODY),
                Tag::Others => (0x20, NOBODY),
            };
            value.extend_from_slice(&u16::to_le_bytes(tag));
            value.extend_from_slice(&(*bits as u16).to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value.into()
    }

    /// The entries and their permission bits, in their order.
    pub fn entries(&self) -> &[(Tag, u32)] {
        &self.0
    }

    /// The same entries with other ids. Errors: those of `other`.
    pub fn with_tags<E>(&self, other: impl Fn(Tag) -> Result<Tag, E>) -> Result<Self, E> {
        let entries = self.0.iter().map(|(tag, bits)| Ok((other(*tag)?, *bits)));
        entries.collect::<Result<_, _>>().map(Self)
    }

    /// The permission bits of an entry, if there is one.
    pub fn bits(&self, wanted: Tag) -> Option<u32> {
        self.0.iter().find(|(tag, _)| *tag == wanted).map(|(_, bits)| *bits)
    }

    fn set(&mut self, wanted: Tag, bits: u32) {
        self.0.iter_mut().filter(|(tag, _)| *tag == wanted).for_each(|entry| entry.1 = bits);
    }

    /// It grants more than a mode can express.
    pub fn is_extended(&self) -> bool {
        self.0.len() > 3
    }

    /// What stands in the mode for the group: the mask, if there is one.
    fn group_class(&self) -> Tag {
        if self.bits(Tag::Mask).is_some() { Tag::Mask } else { Tag::Group }
    }

    /// The permission bits of the mode that goes with it.
    pub fn mode(&self) -> u32 {
        let bits = |tag| self.bits(tag).unwrap_or(0);
        bits(Tag::Owner) << 6 | bits(self.group_class()) << 3 | bits(Tag::Others)
    }

    /// After chmod(2) to `mode`.
    pub fn chmod(&mut self, mode: u32) {
        self.set(Tag::Owner, mode >> 6 & 7);
        self.set(self.group_class(), mode >> 3 & 7);
        self.set(Tag::Others, mode & 7);
    }

    /// As a default list: what something made with `mode` gets, and the mode it has then.
    pub fn inherited(&self, mode: u32) -> (Self, u32) {
        let mut list = self.clone();
        list.chmod(self.mode() & mode);
        let kept = mode & !0o777 | list.mode();
        (list, kept)
    }
}

/// True for the name of an attribute that holds a list.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

fn kind(tag: Tag) -> u8 {
    match tag {
        Tag::Owner => 0,
        Tag::User(_) => 1,
        Tag::Group => 2,
        Tag::NamedGroup(_) => 3,
        Tag::Mask => 4,
        Tag::Others => 5,
    }
}

fn entry(bytes: &[u8]) -> Result<(Tag, u32), Errno> {
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (tag, bits, id) = (word(0), u32::from(word(2)), u32::from(word(4)) | u32::from(word(6)) << 16);
    let tag = match tag {
        1 => Tag::Owner,
        2 if id != NOBODY => Tag::User(id),
        4 => Tag::Group,
        8 if id != NOBODY => Tag::NamedGroup(id),
        0x10 => Tag::Mask,
        0x20 => Tag::Others,
        _ => return Err(Errno::EINVAL),
    };
    if bits <= 7 { Ok((tag, bits)) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::inode::S_IFREG;

    fn list(entries: &[(Tag, u32)]) -> Acl {
        Acl(entries.to_vec())
    }

    /// rw- owner, user 5 r-x, group r--, group 9 rwx, mask r-x, others ---
    pub(crate) fn sample() -> Acl {
        list(&[
            (Tag::Owner, 6),
            (Tag::User(5), 5),
            (Tag::Group, 4),
            (Tag::NamedGroup(9), 7),
            (Tag::Mask, 5),
            (Tag::Others, 0),
        ])
    }

    #[test]
    fn lists_survive_encoding_and_malformed_lists_are_refused() {
        assert_eq!(Acl::parse(&sample().encode()), Ok(sample()));
        let minimal = list(&[(Tag::Owner, 6), (Tag::Group, 4), (Tag::Others, 4)]);
        assert!(!minimal.is_extended() && Acl::parse(&minimal.encode()) == Ok(minimal.clone()));
        for bad in [
            list(&[(Tag::Owner, 6), (Tag::Others, 4)]),
            list(&[(Tag::Group, 4), (Tag::Owner, 6), (Tag::Others, 4)]),
            list(&[(Tag::Owner, 6), (Tag::User(5), 7), (Tag::Group, 4), (Tag::Others, 4)]),
            list(&[(Tag::Owner, 6), (Tag::Owner, 6), (Tag::Group, 4), (Tag::Others, 4)]),
            list(&[(Tag::Owner, 8), (Tag::Group, 4), (Tag::Others, 4)]),
            list(&[(Tag::Owner, 6), (Tag::Group, 4), (Tag::Mask, 4), (Tag::Mask, 4), (Tag::Others, 4)]),
        ] {
            assert_eq!(Acl::parse(&bad.encode()), Err(Errno::EINVAL), "{bad:?}");
        }
        for bad in [&b""[..], b"\x02\0\0", b"\x01\0\0\0", &sample().encode()[..11]] {
            assert_eq!(Acl::parse(bad), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn chmod_moves_the_mask_and_the_mode_follows_the_list() {
        let mut acl = sample();
        assert_eq!(acl.mode(), 0o650);
        acl.chmod(0o741);
        assert_eq!((acl.mode(), acl.bits(Tag::Mask), acl.bits(Tag::Group)), (0o741, Some(4), Some(4)));
        let mut minimal = list(&[(Tag::Owner, 6), (Tag::Group, 4), (Tag::Others, 4)]);
        minimal.chmod(0o777);
        assert_eq!((minimal.mode(), minimal.bits(Tag::Group)), (0o777, Some(7)));
    }

    #[test]
    fn a_new_file_inherits_the_default_acl_limited_by_the_mode() {
        let (list, mode) = sample().inherited(S_IFREG | 0o2646);
        assert_eq!((mode, list.mode()), (S_IFREG | 0o2640, 0o640));
        assert_eq!((list.bits(Tag::Mask), list.bits(Tag::NamedGroup(9))), (Some(4), Some(7)));
    }
}
