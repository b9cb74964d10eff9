//! What an inode is like, for whom, and what its layout is asked to be.

use crate::{Fid, wire_struct};

/// Bits of [`super::SetAttr::mask`].
pub mod set_attr {
    /// Permission bits.
    pub const MODE: u32 = 1;
    /// Owner.
    pub const UID: u32 = 2;
    /// Group.
    pub const GID: u32 = 4;
    /// Size: truncates or extends.
    pub const SIZE: u32 = 8;
    /// Access time, as given.
    pub const ATIME: u32 = 16;
    /// Modification time, as given.
    pub const MTIME: u32 = 32;
    /// Access time: the server's now.
    pub const ATIME_NOW: u32 = 64;
    /// Modification time: the server's now.
    pub const MTIME_NOW: u32 = 128;
    /// Access time, as given, if that is later: the client has read. No other time moves, and nobody's lease is recalled. Of servers
    /// with [`super::features::ACCESS_TIMES`].
    pub const ACCESSED: u32 = 256;
}

/// Bits of [`Attr::flags`].
pub mod attr_flags {
    /// Some session has the file open for writing: ask the target of stripe 0 for the size, and all for the times.
    pub const SIZE_ON_OST: u32 = 1;
    /// With [`SIZE_ON_OST`]: nobody but the asking session has it open for writing, so what that session has been told of
    /// size and times by the OSTs is all there is to know.
    pub const SOLE_WRITER: u32 = 2;
    /// It may have holes: the targets know what it takes.
    pub const SPARSE: u32 = 4;
    /// It has extended attributes.
    pub const XATTRS: u32 = 8;
    /// With [`SIZE_ON_OST`]: it has its modification time from being made, or somebody gave it; that of a write of the same
    /// attribute epoch replaces it.
    pub const MTIME_SET: u32 = 16;
    /// Two bits: its own commit level ([`super::level_flags`]).
    pub const LEVEL: u32 = 96;
    /// Its bytes lie with the MDT, and none with the OSTs. Until the next truncate epoch they stay as they are.
    pub const INLINE: u32 = 128;
    /// Five bits: its own inline bound ([`super::inline_bound_flags`]).
    pub const INLINE_BOUND: u32 = 7936;
    /// What a file or directory has of the directory that it is made in.
    pub const INHERITED: u32 = LEVEL | INLINE_BOUND;
}

wire_struct! {
    /// On whose behalf a request is.
    pub struct Caller {
        /// User.
        pub uid: u32,
        /// Primary group.
        pub gid: u32,
        /// Supplementary groups.
        pub groups: Vec<u32>,
    }
}

wire_struct! {
    /// Attributes of an inode.
    pub struct Attr {
        /// The inode.
        pub fid: Fid,
        /// Type and permissions, as `st_mode`.
        pub mode: u32,
        /// Links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Device number of a special file, as `st_rdev`.
        pub rdev: u64,
        /// Bytes; see [`attr_flags::SIZE_ON_OST`].
        pub size: u64,
        /// Access time, nanoseconds since 1970.
        pub atime_ns: i64,
        /// Modification time.
        pub mtime_ns: i64,
        /// Change time.
        pub ctime_ns: i64,
        /// Birth time.
        pub btime_ns: i64,
        /// Raised by each truncate; writes carry it.
        pub truncate_epoch: u64,
        /// Raised by each utimens; write times of an older epoch do not count.
        pub attr_epoch: u64,
        /// See [`attr_flags`].
        pub flags: u32,
    }
}

wire_struct! {
    /// What a user asks of a layout; zero and -1 mean the default, as with Lustre's lfs.
    pub struct LayoutSpec {
        /// Stripes; 0 = inherited, u32::MAX = over all OSTs.
        pub stripe_count: u32,
        /// Bytes of a stripe; 0 = inherited.
        pub stripe_bytes: u32,
        /// OST of the first stripe; u32::MAX = the server chooses.
        pub stripe_index: u32,
        /// Pool; empty = any OST.
        pub pool: String,
        /// Of a composite layout, in order; then the fields above say nothing. None: the layout is plain.
        pub components: Vec<ComponentSpec>,
    }
}

impl LayoutSpec {
    /// Everything inherited.
    pub fn inherit() -> Self {
        let (pool, components) = (String::new(), Vec::new());
        Self { stripe_count: 0, stripe_bytes: 0, stripe_index: u32::MAX, pool, components }
    }
}

wire_struct! {
    /// What a user asks of one component of a layout; it begins where the one before ends.
    pub struct ComponentSpec {
        /// The byte after its last; u64::MAX: there is no last.
        pub end: u64,
        /// Stripes; 0 = the file system's default, u32::MAX = over all OSTs.
        pub stripe_count: u32,
        /// Bytes of a stripe; 0 = the file system's default.
        pub stripe_bytes: u32,
        /// OST of the first stripe; u32::MAX = the server chooses.
        pub stripe_index: u32,
        /// Pool; empty = any OST.
        pub pool: String,
    }
}
