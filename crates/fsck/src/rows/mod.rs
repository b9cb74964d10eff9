//! Decoders of rows: the meaning of the table's keys and values (docs/format.md, docs/format-mdt.md).
//!
//! Invariant: as in [`crate::format`]: pure, bounds-checked, never a panic.

mod layout;
pub mod mdt;
pub mod ost;
pub mod siphash;
pub mod target;

/// The first byte of a key tells the kind of the row.
pub mod space {
    /// Slabs in which a write failed.
    pub const BAD_SLAB: u8 = 0x02;
    /// Sessions.
    pub const SESSION: u8 = 0x10;
    /// Replies.
    pub const REPLY: u8 = 0x11;
    /// Fenced clients.
    pub const FENCE: u8 = 0x12;
    /// Superblock of an MDT.
    pub const SUPERBLOCK: u8 = 0x20;
    /// Inodes.
    pub const INODE: u8 = 0x21;
    /// Names.
    pub const DIRENT: u8 = 0x22;
    /// Extended attributes.
    pub const XATTR: u8 = 0x23;
    /// Inodes without a name.
    pub const ORPHAN: u8 = 0x24;
    /// Open handles.
    pub const HANDLE: u8 = 0x25;
    /// Leased sequences.
    pub const LEASE: u8 = 0x26;
    /// Objects to destroy.
    pub const DESTROY: u8 = 0x27;
    /// Truncates in progress.
    pub const TRUNCATE: u8 = 0x28;
    /// Counters.
    pub const COUNTER: u8 = 0x29;
    /// Placement tables.
    pub const PLACEMENT: u8 = 0x2a;
    /// Owners of a fid's objects.
    pub const OBJECTS: u8 = 0x2b;
    /// Inline bytes.
    pub const INLINE: u8 = 0x2c;
    /// Members of the cluster.
    pub const MEMBER: u8 = 0x2d;
    /// Objects of an OST.
    pub const OBJECT: u8 = 0x80;
    /// Keys of capabilities on an OST.
    pub const CAPABILITY_KEYS: u8 = 0x81;
}

/// The fid behind a key's first byte, if the key has exactly that length.
pub fn fid_key(key: &[u8]) -> Option<forebay_proto::Fid> {
    if key.len() == 17 { forebay_proto::Fid::from_key(&key[1..]) } else { None }
}
