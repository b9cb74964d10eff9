//! Messages of the metadata server.

use bytes::Bytes;

use super::HeldLock;
use crate::{Fid, FidSequence, Layout, wire_struct};

/// Bits of [`SetAttr::mask`].
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
    /// With [`SIZE_ON_OST`]: somebody gave it its modification time; that of a write of the same attribute epoch replaces it.
    pub const MTIME_SET: u32 = 16;
    /// Two bits: its own commit level ([`super::level_flags`]).
    pub const LEVEL: u32 = 96;
}

/// Bits of `leases` in replies: what the client may keep until it is recalled, and while it hears from the server
/// ([`crate::limits::LEASE_CLIENT_TERM`]).
pub mod lease_flags {
    /// The inode of the reply: its attributes, extended ones too, and, of a directory, its names, present and absent.
    pub const INODE: u32 = 1;
    /// The same of the directory that the request named.
    pub const PARENT: u32 = 2;
    /// The data of a file that was opened for writing: what is written may be kept back, until it is recalled.
    pub const DATA: u32 = 4;
    /// The names of the reply's inode, a directory, for changes: nobody else sees or changes them, so that the client may
    /// answer a change of them before it asks for it, until that is recalled as [`DATA`] is.
    pub const NAMES: u32 = 8;
    /// The same of the directory that the request named.
    pub const PARENT_NAMES: u32 = 16;
    /// Nobody else has a lease on the reply's inode, nor gets one while the client has [`PARENT_NAMES`] of the directory
    /// that the request named, or that the file was made in.
    pub const ALONE: u32 = 32;
}

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
    /// Waits until leases are recalled, or a moment.
    pub struct AwaitRecalls {
        /// Everything up to this [`RecallsReply::sequence`] is kept no more.
        pub acknowledged: u64,
        /// Inodes the client keeps no more of its own accord.
        pub returned: Vec<Fid>,
        /// Recalls of data after which everything was sent.
        pub flushed: Vec<DataRecall>,
    }
}

wire_struct! {
    /// A lease on a file's data is recalled: send what was kept back, then say so.
    pub struct DataRecall {
        /// File.
        pub fid: Fid,
        /// Number of the recall.
        pub sequence: u64,
    }
}

wire_struct! {
    /// Leases that are recalled: drop what is kept, then say so with the next [`AwaitRecalls`].
    pub struct RecallsReply {
        /// Inodes, in the order of their recalls.
        pub fids: Vec<Fid>,
        /// Data.
        pub data: Vec<DataRecall>,
        /// Number of the last one; what was acknowledged before if there is none.
        pub sequence: u64,
    }
}

wire_struct! {
    /// Has everything sent that other clients keep back of what was written (see [`lease_flags::DATA`]).
    pub struct SendKept {}
}

wire_struct! {
    /// Pieces of a file, all as long and as far from each other: `count` times `length` bytes, the first at `start`, the others
    /// `stride` bytes after the one before.
    pub struct Pieces {
        /// Where the first begins.
        pub start: u64,
        /// Bytes of each.
        pub length: u64,
        /// From where one begins to where the next does; at least `length`.
        pub stride: u64,
        /// How many.
        pub count: u64,
    }
}

wire_struct! {
    /// From before this is sent, and until the next of its claims without pieces was replied, the client does nothing with the
    /// file but to write in these pieces. Without pieces: replied when all that others kept back of the file was sent.
    pub struct Claim {
        /// File, of which the session has a handle.
        pub fid: Fid,
        /// Where it writes.
        pub pieces: Vec<Pieces>,
    }
}

wire_struct! {
    /// What became of a claim.
    pub struct ClaimReply {
        /// All who have the file open have claims, of pieces that nobody else claims: what is written there may be kept back
        /// until it is recalled, as under a lease on the data. Else the claim stays, and may be repeated.
        pub granted: bool,
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
    /// An open file.
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
