//! Attributes of an inode, the user who asks, and the requested layout.

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
    /// Access time, as in the request.
    pub const ATIME: u32 = 16;
    /// Modification time, as in the request.
    pub const MTIME: u32 = 32;
    /// Access time: the server's current time.
    pub const ATIME_NOW: u32 = 64;
    /// Modification time: the server's current time.
    pub const MTIME_NOW: u32 = 128;
    /// Deferred atime: access time as in the request, if that is later. No other time moves, and no lease is recalled.
    /// Needs a server with [`super::features::ACCESS_TIMES`].
    pub const ACCESSED: u32 = 256;
}

/// Bits of [`Attr::flags`].
pub mod attr_flags {
    /// Some session has the file open for writing: ask the home for the size, and all OSTs for the times.
    pub const SIZE_ON_OST: u32 = 1;
    /// With [`SIZE_ON_OST`]: only the asking session has the file open for writing. So the sizes and times that the
    /// OSTs reported to that session are complete.
    pub const SOLE_WRITER: u32 = 2;
    /// The file may have holes: the OSTs know the space that it uses.
    pub const SPARSE: u32 = 4;
    /// The inode has extended attributes.
    pub const XATTRS: u32 = 8;
    /// With [`SIZE_ON_OST`]: the modification time is that of the file's creation, or a client has set it. The time of
    /// a write with the same attribute epoch replaces it.
    pub const MTIME_SET: u32 = 16;
    /// Two bits: the inode's own commit level ([`super::choice_flags`]).
    pub const LEVEL: u32 = 96;
    /// The file's bytes are inline at the MDT, and none lie on OSTs. They do not change until the next truncate epoch.
    pub const INLINE: u32 = 128;
    /// Five bits: the inode's own inline bound ([`super::choice_flags`]).
    pub const INLINE_BOUND: u32 = 7936;
    /// Flags that a file or directory inherits from the directory that it is created in.
    pub const INHERITED: u32 = LEVEL | INLINE_BOUND;
}

wire_struct! {
    /// The user on whose behalf a request is made.
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
        /// Number of links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Device number of a special file, as `st_rdev`.
        pub rdev: u64,
        /// Size in bytes; see [`attr_flags::SIZE_ON_OST`].
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
    /// The layout that a user requests; zero and -1 mean the default, as with Lustre's lfs.
    pub struct LayoutSpec {
        /// Stripes; 0 = inherited, u32::MAX = over all OSTs.
        pub stripe_count: u32,
        /// Bytes of a stripe; 0 = inherited.
        pub stripe_bytes: u32,
        /// OST of the first stripe; u32::MAX = the server chooses.
        pub stripe_index: u32,
        /// Pool; empty = any OST.
        pub pool: String,
        /// Components of a composite layout, in order; the fields above are then ignored. None: the layout is plain.
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
    /// One component of a requested layout; it begins where the previous one ends.
    pub struct ComponentSpec {
        /// The byte after its last; u64::MAX: no end.
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
