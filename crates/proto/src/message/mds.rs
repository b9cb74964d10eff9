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
    /// Fail if the name exists (Create).
    pub const EXCLUSIVE: u32 = 4;
    /// Cut to zero bytes.
    pub const TRUNCATE: u32 = 8;
    /// Make a file without a name (Create; the name is empty). With [`EXCLUSIVE`] it never gets one.
    pub const NAMELESS: u32 = 16;
    /// The session has a lease on the file's data, or something to send that it kept back (Reclaim).
    pub const DATA_LEASE: u32 = 32;
    /// Its Close was sent and not replied: it may be closed already (Reclaim).
    pub const CLOSING: u32 = 64;
    /// Open the file that is there; make none (Create).
    pub const EXISTING: u32 = 128;
}

/// Where the umask stands in [`Create::mode`] and [`Make::mode`]: it is applied unless the directory has a default access
/// control list. 0: it was applied.
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
    /// Name to attributes. `.` and `..` are answered too.
    pub struct Lookup {
        /// Who asks.
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
        /// A directory's default layout, where it has one of its own.
        pub default_layout: Option<LayoutSpec>,
        /// See [`lease_flags`].
        pub leases: u32,
        /// The directory that was changed, as it is now, if the client has a lease on it.
        pub parent: Option<Attr>,
    }
}

wire_struct! {
    /// What a name leads to.
    pub struct LookupReply {
        /// `None`: there is no such name.
        pub entry: Option<EntryReply>,
        /// See [`lease_flags`]; of the directory also where there is no such name.
        pub leases: u32,
    }
}

wire_struct! {
    /// A Lookup of who is going to look at what follows, too.
    pub struct LookupAhead {
        /// As for itself; not `.` or `..`.
        pub lookup: Lookup,
        /// How many names to tell of beside that one, in the order of their cookies.
        pub names: u32,
    }
}

wire_struct! {
    /// What a name leads to, and names that follow it in the directory.
    pub struct LookupAheadReply {
        /// As for itself.
        pub found: LookupReply,
        /// Those whose inodes could be leased at once, and are: attributes count for as long as these leases.
        pub others: Vec<NamedAttr>,
    }
}

wire_struct! {
    /// A name and what it leads to.
    pub struct NamedAttr {
        /// Name.
        pub name: Bytes,
        /// The inode's attributes.
        pub attr: Attr,
        /// What is leased of it with that: [`lease_flags`].
        pub leases: u32,
    }
}

wire_struct! {
    /// What the client could not know it would change.
    pub struct Changed {
        /// Inodes whose names or links were changed, beside the directories that the request named.
        pub fids: Vec<Fid>,
        /// These directories, as they are now, if the client has leases on them.
        pub parents: Vec<Attr>,
        /// [`lease_flags`] of these.
        pub leases: u32,
    }
}

wire_struct! {
    /// Attributes of a fid.
    pub struct GetAttr {
        /// Whose.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Changes attributes.
    pub struct SetAttr {
        /// Who asks.
        pub caller: Caller,
        /// Of what.
        pub fid: Fid,
        /// Which: [`set_attr`].
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
        /// The client has answered it already, as of then, under a lease on the file's data; 0 = no.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// Makes a regular file and opens it; opens the one that is there unless `EXCLUSIVE`.
    pub struct Create {
        /// Who asks.
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
        /// The layout asked for.
        pub layout: LayoutSpec,
        /// Unix time that the client has told its program, if it has answered it already, under [`lease_flags::NAMES`] of the
        /// directory; 0: it waits for the reply.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// An open file. The bytes of one opened for reading that lie with the MDT ([`attr_flags::INLINE`]) are the bulk, unless the
    /// reply is one that was sent before.
    ///
    /// [`attr_flags::INLINE`]: super::attr_flags::INLINE
    pub struct OpenReply {
        /// Attributes.
        pub attr: Attr,
        /// A regular file's layout.
        pub layout: Option<Layout>,
        /// Create: the file was made by this request.
        pub created: bool,
        /// See [`lease_flags`].
        pub leases: u32,
        /// The directory that was changed, as it is now, if the client has a lease on it.
        pub parent: Option<Attr>,
    }
}

wire_struct! {
    /// Makes a directory, symbolic link, fifo, socket or device.
    pub struct Make {
        /// Who asks.
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
        /// Unix time that the client has told its program, if it has answered it already, under [`lease_flags::NAMES`] of the
        /// directory; 0: it waits for the reply.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// Another name for a file.
    pub struct Link {
        /// Who asks.
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
    /// Takes a name away.
    pub struct Unlink {
        /// Who asks.
        pub caller: Caller,
        /// Directory.
        pub parent: Fid,
        /// Name.
        pub name: Bytes,
        /// Unix time that the client has told its program, if it has answered it already, under [`lease_flags::NAMES`] of the
        /// directory; 0: it waits for the reply.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// Removes an empty directory.
    pub struct Rmdir {
        /// Who asks.
        pub caller: Caller,
        /// Directory.
        pub parent: Fid,
        /// Name.
        pub name: Bytes,
        /// Unix time that the client has told its program, if it has answered it already, under [`lease_flags::NAMES`] of the
        /// directory; 0: it waits for the reply.
        pub at_ns: i64,
    }
}

wire_struct! {
    /// Moves a name.
    pub struct Rename {
        /// Who asks.
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
        /// As it was given.
        pub target: Bytes,
    }
}

wire_struct! {
    /// Entries of a directory, `.` and `..` first, in the order of their cookies.
    pub struct ReadDir {
        /// Directory.
        pub fid: Fid,
        /// After which entry; 0 = from the beginning.
        pub cookie: u64,
        /// Names and attributes up to about this many bytes.
        pub max_bytes: u32,
        /// With attributes.
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
        /// Continue after this entry with it.
        pub cookie: u64,
        /// If asked for.
        pub attr: Option<Attr>,
    }
}

wire_struct! {
    /// Entries of a directory.
    pub struct ReadDirReply {
        /// In the order of cookies.
        pub entries: Vec<DirEntry>,
        /// Nothing follows.
        pub end: bool,
    }
}

wire_struct! {
    /// Opens a fid.
    pub struct Open {
        /// Who asks.
        pub caller: Caller,
        /// What.
        pub fid: Fid,
        /// [`open_flags`].
        pub flags: u32,
        /// Handle chosen by the client, unique in its session, not 0.
        pub handle: u64,
    }
}

wire_struct! {
    /// Closes a handle. All of its writes were replied before.
    pub struct Close {
        /// What.
        pub fid: Fid,
        /// Its handle.
        pub handle: u64,
        /// The handle wrote: size, time and epochs below count.
        pub wrote: bool,
        /// The file's size as the target of stripe 0 last told.
        pub size: u64,
        /// Truncate epoch the size belongs to.
        pub truncate_epoch: u64,
        /// Latest modification time the targets told.
        pub mtime_ns: i64,
        /// Attribute epoch it belongs to.
        pub attr_epoch: u64,
        /// What was written may have left holes.
        pub sparse: bool,
        /// All bytes of the file, of which no OST has been asked anything since it was made, or cut to nothing: they lie with
        /// the MDT from now on.
        pub inline: Option<Bytes>,
        /// Attributes to set after that, but the size: of the same file, through the same handle.
        pub set: Option<SetAttr>,
    }
}

wire_struct! {
    /// Has the bytes of a file that lie with the MDT written to its OSTs, under another truncate epoch: somebody is going to
    /// change them. Answered when they are there, or at once if none lie with the MDT.
    pub struct Outline {
        /// Which file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// Bytes of a file that lie with the MDT: the bulk of the reply, if the attributes still say so.
    pub struct ReadInline {
        /// Which file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// A handle is closed.
    pub struct Closed {
        /// The file as it is now, with a lease on it ([`lease_flags::INODE`]): if nobody may write to it any more.
        pub attr: Option<Attr>,
    }
}

wire_struct! {
    /// A handle to bring back.
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
    /// Recovery: brings back handles whose open was committed, or replayed, and locks. In as many requests as it takes.
    #[derive(Default)]
    pub struct Reclaim {
        /// Handles the session holds.
        pub handles: Vec<OpenHandle>,
        /// Locks the session holds.
        pub locks: Vec<HeldLock>,
        /// Directories whose names the client has changed for its programs, and not all of it at the MDT.
        pub directories: Vec<Fid>,
    }
}

wire_struct! {
    /// Value of an extended attribute.
    pub struct GetXattr {
        /// Who asks.
        pub caller: Caller,
        /// Of what.
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
        /// Who asks.
        pub caller: Caller,
        /// Of what.
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
        /// Of what.
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
        /// Who asks.
        pub caller: Caller,
        /// Of what.
        pub fid: Fid,
        /// Name with its namespace.
        pub name: Bytes,
    }
}

wire_struct! {
    /// A directory's default layout, or the layout of a file nobody has written.
    pub struct SetLayout {
        /// Who asks.
        pub caller: Caller,
        /// Of what.
        pub fid: Fid,
        /// What is asked for.
        pub layout: LayoutSpec,
    }
}

wire_struct! {
    /// Chooses OSTs for parts of an open file that have none; where OSTs are full, for all that follows its end.
    pub struct ExtendLayout {
        /// The file.
        pub fid: Fid,
        /// A handle of this session that writes.
        pub handle: u64,
        /// Where it is to be written.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
        /// OSTs that had no room for it; none: it has none yet.
        pub full: Vec<u32>,
    }
}

wire_struct! {
    /// Asks what a file's content is called until it changes.
    pub struct MigrateStart {
        /// The file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// What it is called.
    pub struct MigrateReply {
        /// For [`Migrate`].
        pub version: u64,
    }
}

wire_struct! {
    /// A file and its copy exchange their objects, if the file has not changed since.
    pub struct Migrate {
        /// Who asks.
        pub caller: Caller,
        /// The file.
        pub fid: Fid,
        /// Its copy.
        pub other: Fid,
        /// Of the file's content before it was copied.
        pub version: u64,
    }
}

/// What [`SetPool`] does.
pub mod pool_change {
    /// Makes it, with these OSTs.
    pub const NEW: u32 = 0;
    /// Adds them.
    pub const ADD: u32 = 1;
    /// Takes them out.
    pub const REMOVE: u32 = 2;
    /// Forgets the pool, which has none any more.
    pub const DESTROY: u32 = 3;
}

wire_struct! {
    /// Changes a pool of OSTs.
    pub struct SetPool {
        /// Who asks.
        pub caller: Caller,
        /// Which.
        pub name: String,
        /// See [`pool_change`].
        pub change: u32,
        /// OSTs.
        pub osts: Vec<u32>,
    }
}

wire_struct! {
    /// The pools there are.
    pub struct GetPools {}
}

wire_struct! {
    /// What layouts can name.
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
    /// Waits for room of deleted files.
    pub struct FinishDestroys {
        /// Where it is wanted; none: anywhere, and the MDT is to look anew where there is room.
        pub osts: Vec<u32>,
    }
}

wire_struct! {
    /// What came of it.
    pub struct FinishDestroysReply {
        /// Objects that were still to be destroyed, at least; and OSTs that turned out to have room again.
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
        /// Inodes there are.
        pub files: u64,
        /// Inodes that can still be made.
        pub files_free: u64,
        /// Bytes of the MDT's device.
        pub total_bytes: u64,
        /// Bytes still free.
        pub free_bytes: u64,
    }
}
