//! Messages of the metadata server.

use bytes::Bytes;

use super::{Attr, Caller, HeldLock, LayoutSpec};
use crate::{Fid, FidSequence, Layout, wire_struct};

/// Bits of [`Open::flags`] and [`Create::flags`].
pub mod open_flags {
    /// For reading.
    pub const READ: u32 = 1;
    /// For writing.
    pub const WRITE: u32 = 2;
    /// Fail if the entry exists (Create).
    pub const EXCLUSIVE: u32 = 4;
    /// Truncate to zero bytes.
    pub const TRUNCATE: u32 = 8;
    /// Create a file without a name (Create; the name is empty). With [`EXCLUSIVE`] it never gets one.
    pub const NAMELESS: u32 = 16;
    /// The session has a data-write lease on the file, or buffered writes to send (Reclaim).
    pub const DATA_WRITE_LEASE: u32 = 32;
    /// The Close of the handle is in flight: the handle may be closed already (Reclaim).
    pub const CLOSING: u32 = 64;
    /// Open the existing file; create none (Create).
    pub const EXISTING: u32 = 128;
}

/// Position of the umask in [`Create::mode`] and [`Make::mode`]. The MDT applies it unless the directory has a default
/// access control list. 0: the client has applied it.
pub const UMASK_SHIFT: u32 = 16;

wire_struct! {
    /// Leases a sequence of fids.
    pub struct LeaseSequence {}
}

wire_struct! {
    /// The lease, durable.
    pub struct LeaseSequenceReply {
        /// The MDT's index, for the fid's high word.
        pub mdt_index: u32,
        /// The sequence.
        pub sequence: FidSequence,
    }
}

wire_struct! {
    /// Name to attributes. `.` and `..` are allowed.
    pub struct Lookup {
        /// The requesting user.
        pub caller: Caller,
        /// Directory.
        pub parent: Fid,
        /// Name.
        pub name: Bytes,
    }
}

wire_struct! {
    /// Attributes and layout.
    pub struct EntryReply {
        /// Attributes.
        pub attr: Attr,
        /// A regular file's layout.
        pub layout: Option<Layout>,
        /// A directory's default layout, if it has one of its own.
        pub default_layout: Option<LayoutSpec>,
        /// See [`lease_flags`].
        pub leases: u32,
        /// Current attributes of the changed directory, if the client has a lease on it.
        pub parent: Option<Attr>,
    }
}

wire_struct! {
    /// The inode that a name refers to.
    pub struct LookupReply {
        /// `None`: there is no such name.
        pub entry: Option<EntryReply>,
        /// See [`lease_flags`]; those of the directory are valid also if there is no such name.
        pub leases: u32,
    }
}

wire_struct! {
    /// A Lookup with statahead: the client expects to look up the names that follow, too.
    pub struct LookupStatahead {
        /// As in a plain Lookup; not `.` or `..`.
        pub lookup: Lookup,
        /// How many further names to return, in the order of their cookies.
        pub names: u32,
    }
}

wire_struct! {
    /// The inode that a name refers to, and names that follow it in the directory.
    pub struct LookupStataheadReply {
        /// As in the reply to a plain Lookup.
        pub found: LookupReply,
        /// Names whose inodes could be leased at once, and are. The attributes are valid for as long as these leases.
        pub others: Vec<NamedAttr>,
    }
}

wire_struct! {
    /// A name and the attributes of its inode.
    pub struct NamedAttr {
        /// Name.
        pub name: Bytes,
        /// The inode's attributes.
        pub attr: Attr,
        /// Leases granted on the inode: [`lease_flags`].
        pub leases: u32,
    }
}

wire_struct! {
    /// Side effects of a change that the client could not predict.
    pub struct Changed {
        /// Inodes whose names or link counts changed, beside the directories that the request named.
        pub fids: Vec<Fid>,
        /// Current attributes of these directories, if the client has leases on them.
        pub parents: Vec<Attr>,
        /// [`lease_flags`] of these directories.
        pub leases: u32,
    }
}

wire_struct! {
    /// Attributes of a fid.
    pub struct GetAttr {
        /// The inode.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Changes attributes.
    pub struct SetAttr {
        /// The requesting user.
        pub caller: Caller,
        /// The inode.
        pub fid: Fid,
        /// The attributes to set: [`set_attr`].
        pub mask: u32,
        /// Permission bits.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Size.
        pub size: u64,
        /// Access time.
        pub atime_ns: i64,
        /// Modification time.
        pub mtime_ns: i64,
        /// The open handle the request came through (ftruncate needs no permission); 0 = none.
        pub handle: u64,
        /// A delayed SETATTR: the time at which the client acknowledged it, under a data-write lease on the file; 0 =
        /// not delayed.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// Creates a regular file and opens it; opens an existing one unless `EXCLUSIVE`.
    pub struct Create {
        /// The requesting user.
        pub caller: Caller,
        /// Directory.
        pub parent: Fid,
        /// Name.
        pub name: Bytes,
        /// The new file's fid, from a sequence leased to the client.
        pub fid: Fid,
        /// Permission bits; above them the umask ([`UMASK_SHIFT`]).
        pub mode: u32,
        /// [`open_flags`].
        pub flags: u32,
        /// Handle chosen by the client, unique in its session; 0 = do not open.
        pub handle: u64,
        /// The requested layout.
        pub layout: LayoutSpec,
        /// A delayed create: the Unix time that the client reported to its program when it acknowledged it, under
        /// [`lease_flags::NAMES`] of the directory. 0: the client waits for the reply.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// An open file. If it was opened for reading and its bytes are inline at the MDT ([`attr_flags::INLINE`]), they
    /// are the bulk. A reply that is sent again has no bulk.
    ///
    /// [`attr_flags::INLINE`]: super::attr_flags::INLINE
    pub struct OpenReply {
        /// Attributes.
        pub attr: Attr,
        /// A regular file's layout.
        pub layout: Option<Layout>,
        /// Create: this request created the file.
        pub created: bool,
        /// See [`lease_flags`].
        pub leases: u32,
        /// Current attributes of the changed directory, if the client has a lease on it.
        pub parent: Option<Attr>,
    }
}

wire_struct! {
    /// Creates a directory, symbolic link, fifo, socket or device.
    pub struct Make {
        /// The requesting user.
        pub caller: Caller,
        /// Directory.
        pub parent: Fid,
        /// Name.
        pub name: Bytes,
        /// The new inode's fid, from a sequence leased to the client.
        pub fid: Fid,
        /// Type and permission bits; above them the umask ([`UMASK_SHIFT`]).
        pub mode: u32,
        /// Device number of a special file.
        pub rdev: u64,
        /// Target of a symbolic link.
        pub symlink: Bytes,
        /// A delayed create: the Unix time that the client reported to its program when it acknowledged it, under
        /// [`lease_flags::NAMES`] of the directory. 0: the client waits for the reply.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// Another name for a file.
    pub struct Link {
        /// The requesting user.
        pub caller: Caller,
        /// The file.
        pub fid: Fid,
        /// Directory of the new name.
        pub parent: Fid,
        /// New name.
        pub name: Bytes,
    }
}

wire_struct! {
    /// Removes a name.
    pub struct Unlink {
        /// The requesting user.
        pub caller: Caller,
        /// Directory.
        pub parent: Fid,
        /// Name.
        pub name: Bytes,
        /// A delayed unlink: the Unix time that the client reported to its program when it acknowledged it, under
        /// [`lease_flags::NAMES`] of the directory. 0: the client waits for the reply.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// Removes an empty directory.
    pub struct Rmdir {
        /// The requesting user.
        pub caller: Caller,
        /// Directory.
        pub parent: Fid,
        /// Name.
        pub name: Bytes,
        /// A delayed rmdir: the Unix time that the client reported to its program when it acknowledged it, under
        /// [`lease_flags::NAMES`] of the directory. 0: the client waits for the reply.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// Moves a name.
    pub struct Rename {
        /// The requesting user.
        pub caller: Caller,
        /// Directory of the old name.
        pub from_parent: Fid,
        /// Old name.
        pub from_name: Bytes,
        /// Directory of the new name.
        pub to_parent: Fid,
        /// New name.
        pub to_name: Bytes,
        /// RENAME_NOREPLACE (1), RENAME_EXCHANGE (2), as renameat2(2).
        pub flags: u32,
    }
}

wire_struct! {
    /// Target of a symbolic link.
    pub struct ReadLink {
        /// The link.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Target of a symbolic link.
    pub struct ReadLinkReply {
        /// The target, as it was created.
        pub target: Bytes,
    }
}

wire_struct! {
    /// Entries of a directory, `.` and `..` first, in the order of their cookies.
    pub struct ReadDir {
        /// Directory.
        pub fid: Fid,
        /// Continue after this entry; 0 = from the beginning.
        pub cookie: u64,
        /// Names and attributes up to about this many bytes.
        pub max_bytes: u32,
        /// Return attributes too.
        pub with_attributes: bool,
    }
}

wire_struct! {
    /// One name of a directory.
    pub struct DirEntry {
        /// Name.
        pub name: Bytes,
        /// Inode.
        pub fid: Fid,
        /// Type bits of `st_mode`.
        pub mode: u32,
        /// Cookie of this entry: the listing can continue after it.
        pub cookie: u64,
        /// Attributes, if requested.
        pub attr: Option<Attr>,
    }
}

wire_struct! {
    /// Entries of a directory.
    pub struct ReadDirReply {
        /// In the order of cookies.
        pub entries: Vec<DirEntry>,
        /// True if nothing follows.
        pub end: bool,
    }
}

wire_struct! {
    /// Opens a fid.
    pub struct Open {
        /// The requesting user.
        pub caller: Caller,
        /// The inode.
        pub fid: Fid,
        /// [`open_flags`].
        pub flags: u32,
        /// Handle chosen by the client, unique in its session, not 0.
        pub handle: u64,
    }
}

wire_struct! {
    /// Closes a handle. All its writes have been replied to.
    pub struct Close {
        /// The file.
        pub fid: Fid,
        /// Its handle.
        pub handle: u64,
        /// The handle wrote: size, time and epochs below are valid.
        pub wrote: bool,
        /// The file's size as its home last reported it.
        pub size: u64,
        /// Truncate epoch the size belongs to.
        pub truncate_epoch: u64,
        /// Latest modification time that the OSTs reported.
        pub mtime_ns: i64,
        /// Attribute epoch it belongs to.
        pub attr_epoch: u64,
        /// The writes may have left holes.
        pub sparse: bool,
        /// All bytes of the file, to be kept inline at the MDT. No OST has received a request for the file since it was
        /// created or truncated to zero.
        pub inline: Option<Bytes>,
        /// Attributes to set after that, except the size: of the same file, through the same handle.
        pub set: Option<SetAttr>,
    }
}

wire_struct! {
    /// Writes the inline bytes of a file to its OSTs, under another truncate epoch, because a client is going to change
    /// them. Replied to when they are there, or at once if the file is not inline.
    pub struct Outline {
        /// The file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Reads the inline bytes of a file: the bulk of the reply, if the attributes still have the flag.
    pub struct ReadInline {
        /// The file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// A handle is closed.
    pub struct Closed {
        /// The file's current attributes, with a lease on it ([`lease_flags::INODE`]), if no handle may write to it any
        /// more.
        pub attr: Option<Attr>,
    }
}

wire_struct! {
    /// A handle to reclaim.
    pub struct OpenHandle {
        /// File.
        pub fid: Fid,
        /// Handle.
        pub handle: u64,
        /// [`open_flags`] it was opened with.
        pub flags: u32,
    }
}

wire_struct! {
    /// Recovery: reclaims handles whose open was committed or replayed, and locks. In as many requests as it takes.
    #[derive(Default)]
    pub struct Reclaim {
        /// Handles the session holds.
        pub handles: Vec<OpenHandle>,
        /// Locks the session holds.
        pub locks: Vec<HeldLock>,
        /// Directories with delayed changes that the MDT does not have completely.
        pub directories: Vec<Fid>,
    }
}

wire_struct! {
    /// Value of an extended attribute.
    pub struct GetXattr {
        /// The requesting user.
        pub caller: Caller,
        /// The inode.
        pub fid: Fid,
        /// Name with its namespace (`user.x`).
        pub name: Bytes,
    }
}

wire_struct! {
    /// Value of an extended attribute.
    pub struct XattrReply {
        /// Value.
        pub value: Bytes,
    }
}

wire_struct! {
    /// Sets an extended attribute.
    pub struct SetXattr {
        /// The requesting user.
        pub caller: Caller,
        /// The inode.
        pub fid: Fid,
        /// Name with its namespace.
        pub name: Bytes,
        /// Value.
        pub value: Bytes,
        /// XATTR_CREATE (1) or XATTR_REPLACE (2), as setxattr(2).
        pub flags: u32,
    }
}

wire_struct! {
    /// Names of the extended attributes.
    pub struct ListXattr {
        /// The inode.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Names of the extended attributes.
    pub struct ListXattrReply {
        /// With their namespaces, sorted.
        pub names: Vec<Bytes>,
    }
}

wire_struct! {
    /// Removes an extended attribute.
    pub struct RemoveXattr {
        /// The requesting user.
        pub caller: Caller,
        /// The inode.
        pub fid: Fid,
        /// Name with its namespace.
        pub name: Bytes,
    }
}

wire_struct! {
    /// Sets a directory's default layout, or the layout of a file that was never written.
    pub struct SetLayout {
        /// The requesting user.
        pub caller: Caller,
        /// The inode.
        pub fid: Fid,
        /// The requested layout.
        pub layout: LayoutSpec,
    }
}

wire_struct! {
    /// Chooses OSTs for parts of an open file that have none. If OSTs are full, also for all that follows the end of
    /// the file.
    pub struct ExtendLayout {
        /// The file.
        pub fid: Fid,
        /// A handle of this session that is open for writing.
        pub handle: u64,
        /// Start of the range to be written.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
        /// OSTs that had no space for the write; empty: the range has no OSTs yet.
        pub full: Vec<u32>,
    }
}

wire_struct! {
    /// Asks for the version of a file's content, which is valid until the content changes.
    pub struct GetContentVersion {
        /// The file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// The version of the content.
    pub struct MigrateReply {
        /// For [`Migrate`].
        pub version: u64,
    }
}

wire_struct! {
    /// A file and its copy exchange their objects, if the file has not changed since it was copied.
    pub struct Migrate {
        /// The requesting user.
        pub caller: Caller,
        /// The file.
        pub fid: Fid,
        /// Its copy.
        pub other: Fid,
        /// Version of the file's content from before the copy.
        pub version: u64,
    }
}

/// What [`SetPool`] does.
pub mod pool_change {
    /// Creates the pool with these OSTs.
    pub const NEW: u32 = 0;
    /// Adds OSTs.
    pub const ADD: u32 = 1;
    /// Removes OSTs.
    pub const REMOVE: u32 = 2;
    /// Destroys the pool, which must be empty.
    pub const DESTROY: u32 = 3;
}

wire_struct! {
    /// Changes a pool of OSTs.
    pub struct SetPool {
        /// The requesting user.
        pub caller: Caller,
        /// The pool.
        pub name: String,
        /// See [`pool_change`].
        pub change: u32,
        /// OSTs.
        pub osts: Vec<u32>,
    }
}

wire_struct! {
    /// Lists the pools.
    pub struct GetPools {}
}

wire_struct! {
    /// What layouts can name: OSTs and pools.
    pub struct PoolsReply {
        /// All OSTs.
        pub osts: Vec<u32>,
        /// All pools, by name.
        pub pools: Vec<Pool>,
    }
}

wire_struct! {
    /// A named set of OSTs.
    pub struct Pool {
        /// At most 15 characters.
        pub name: String,
        /// Ordered.
        pub osts: Vec<u32>,
    }
}

wire_struct! {
    /// Waits for space that deleted files occupy.
    pub struct FinishDestroys {
        /// OSTs on which space is needed; empty: any, and the MDT checks anew which OSTs have space.
        pub osts: Vec<u32>,
    }
}

wire_struct! {
    /// The result of a [`FinishDestroys`].
    pub struct FinishDestroysReply {
        /// Number of objects that were still to be destroyed, at least, plus OSTs that turned out to have space again.
        pub objects: u64,
    }
}

wire_struct! {
    /// Inodes used and free.
    pub struct MdtStatFs {}
}

wire_struct! {
    /// Inodes used and free.
    pub struct MdtStatFsReply {
        /// Number of inodes.
        pub files: u64,
        /// Inodes that can still be created.
        pub files_free: u64,
        /// Bytes of the MDT's device.
        pub total_bytes: u64,
        /// Bytes still free.
        pub free_bytes: u64,
    }
}
