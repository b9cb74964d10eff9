//! Messages: a frame's header, and a request and a reply for every operation.
//!
//! One frame carries one request or one reply: header, body (a structure of this module), bulk (file data, apart from the
//! body and never copied into it). `docs/protocol.md` has the byte maps.

mod attributes;
mod common;
mod frame;
mod inline_bound;
mod leases;
mod level;
mod locks;
mod mds;
mod oss;

pub use attributes::*;
pub use common::*;
pub use frame::*;
pub use inline_bound::*;
pub use leases::*;
pub use level::*;
pub use locks::*;
pub use mds::*;
pub use oss::*;

use crate::{Decode, Encode};

/// What an operation does to its target's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes it: gets a transno, a committed reply, replay.
    Modify,
    /// Leaves it as it is: may be asked again at will.
    Read,
    /// Of the session itself.
    Control,
}

/// A request type: its number, its reply, what it does.
pub trait Operation: Encode + Decode + Clone + std::fmt::Debug + 'static {
    /// Its number in the frame's header.
    const OP: Op;
    /// What comes back when it succeeds.
    type Reply: Encode + Decode + Clone + std::fmt::Debug + 'static;
    /// Whether it changes the target.
    const CLASS: Class;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $class:ident, $request:ident -> $reply:ident;)*) => {
        /// The number of an operation in a frame's header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Op { $($(#[$doc])* $name = $number,)* }

        impl Op {
            /// The operation of a number from outside.
            pub fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// What it does to its target's state.
            pub fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)* }
            }

            /// Its name, for logs and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }

        $(impl Operation for $request {
            const OP: Op = Op::$name;
            type Reply = $reply;
            const CLASS: Class = Class::$class;
        })*
    };
}

operations! {
    /// Begins or resumes a session.
    Connect = 1, Control, Connect -> ConnectReply;
    /// Ends a session for good.
    Disconnect = 2, Control, Disconnect -> Empty;
    /// Fetches `last_committed`, keeps the session alive.
    Ping = 3, Control, Ping -> Empty;
    /// Recovery: this session has no more replays.
    ReplayDone = 4, Control, ReplayDone -> Empty;
    /// Recovery: this session has reclaimed what it held.
    ReclaimDone = 5, Control, ReclaimDone -> Empty;
    /// Waits until what was applied before it (of one file, or all) is committed.
    Sync = 6, Read, Sync -> SyncReply;
    /// The target's state for `forebay status`; needs no session.
    Status = 7, Control, Status -> StatusReply;
    /// The cluster's map; needs no session (the MGS is MDT0000's server).
    GetMap = 8, Control, GetMap -> ClusterMap;
    /// Ends another client's session and refuses what it sends later.
    Fence = 9, Modify, Fence -> Empty;

    /// Leases a sequence of fids.
    LeaseSequence = 32, Modify, LeaseSequence -> LeaseSequenceReply;
    /// Name to attributes.
    Lookup = 33, Read, Lookup -> LookupReply;
    /// Attributes of a fid.
    GetAttr = 34, Read, GetAttr -> EntryReply;
    /// Changes attributes; a new size truncates.
    SetAttr = 35, Modify, SetAttr -> EntryReply;
    /// Makes a regular file and opens it, or opens the one that is there.
    Create = 36, Modify, Create -> OpenReply;
    /// Makes a directory, symbolic link or special file.
    Make = 37, Modify, Make -> EntryReply;
    /// Another name for a file.
    Link = 38, Modify, Link -> EntryReply;
    /// Takes a name away.
    Unlink = 39, Modify, Unlink -> Changed;
    /// Removes an empty directory.
    Rmdir = 40, Modify, Rmdir -> Changed;
    /// Moves a name.
    Rename = 41, Modify, Rename -> Changed;
    /// Target of a symbolic link.
    ReadLink = 42, Read, ReadLink -> ReadLinkReply;
    /// Entries of a directory, with attributes.
    ReadDir = 43, Read, ReadDir -> ReadDirReply;
    /// Opens a fid.
    Open = 44, Modify, Open -> OpenReply;
    /// Closes a handle, with the file's size and times if it was written.
    Close = 45, Modify, Close -> Closed;
    /// Recovery: brings back handles.
    Reclaim = 46, Modify, Reclaim -> Empty;
    /// Value of an extended attribute.
    GetXattr = 47, Read, GetXattr -> XattrReply;
    /// Sets an extended attribute.
    SetXattr = 48, Modify, SetXattr -> Empty;
    /// Names of the extended attributes.
    ListXattr = 49, Read, ListXattr -> ListXattrReply;
    /// Removes an extended attribute.
    RemoveXattr = 50, Modify, RemoveXattr -> Empty;
    /// A directory's default layout, or an empty file's layout.
    SetLayout = 51, Modify, SetLayout -> EntryReply;
    /// Inodes used and free.
    MdtStatFs = 52, Read, MdtStatFs -> MdtStatFsReply;
    /// Sets, lets go of, or waits for an advisory lock.
    Lock = 53, Read, Lock -> LockReply;
    /// Waits for leases that are recalled, and says which were dropped.
    AwaitRecalls = 54, Control, AwaitRecalls -> RecallsReply;

    /// Answers when every other client has sent what it kept back so far.
    SendKept = 65, Read, SendKept -> Empty;
    /// Names what a client is going to write of a file that others have open; with nothing, ends that.
    Claim = 66, Read, Claim -> ClaimReply;
    /// Name to attributes, and those of the names that follow it.
    LookupAhead = 68, Read, LookupAhead -> LookupAheadReply;
    /// Has the bytes of a small file written to its OSTs.
    Outline = 69, Modify, Outline -> EntryReply;
    /// Bytes of a small file.
    ReadInline = 70, Read, ReadInline -> EntryReply;
    /// Answers when objects of deleted files are destroyed on some OSTs, or after a while.
    FinishDestroys = 67, Read, FinishDestroys -> FinishDestroysReply;

    /// Chooses OSTs for parts of a file that have none, or none with room.
    ExtendLayout = 60, Modify, ExtendLayout -> Empty;

    /// Changes a pool of OSTs.
    SetPool = 61, Modify, SetPool -> Empty;
    /// Asks what a file's content is called until it changes.
    MigrateStart = 63, Read, MigrateStart -> MigrateReply;
    /// A file and its copy exchange their objects.
    Migrate = 64, Modify, Migrate -> Empty;
    /// The OSTs and the pools there are.
    GetPools = 62, Read, GetPools -> PoolsReply;

    /// Writes bytes of one object.
    Write = 128, Modify, WriteObject -> WriteReply;
    /// Reads bytes of one object.
    Read = 129, Read, ReadObject -> ReadReply;
    /// Raises a file's size (at the target of stripe 0).
    RaiseSize = 130, Modify, RaiseSize -> ObjectReply;
    /// Cuts or extends an object under a new truncate epoch (from the MDT).
    TruncateObject = 132, Modify, TruncateObject -> ObjectReply;
    /// Makes a hole.
    Punch = 133, Modify, Punch -> ObjectReply;
    /// Destroys objects (from the MDT).
    Destroy = 134, Modify, Destroy -> Empty;
    /// Size, times and epoch of an object.
    GetObject = 135, Read, GetObject -> ObjectReply;
    /// Bytes used and free.
    OstStatFs = 136, Read, OstStatFs -> OstStatFsReply;
    /// Objects in a range of fids (the collection).
    ListObjects = 137, Read, ListObjects -> ListObjectsReply;
    /// Where an object has bytes and where holes.
    MapObject = 138, Read, MapObject -> MapReply;
    /// Sets room aside for a range that is to be written.
    Allocate = 139, Modify, Allocate -> AllocateReply;
    /// Writes bytes of one object in several places.
    WritePieces = 140, Modify, WritePieces -> WriteReply;
    /// How long commits take lately.
    OstPace = 141, Read, OstPace -> OstPaceReply;
    /// Reads bytes of one object in several places.
    ReadPieces = 142, Read, ReadPieces -> ReadReply;
    /// Sets room aside for what the client keeps back.
    Grant = 143, Read, Grant -> GrantReply;
    /// Waits until a file is larger than the client knows.
    WatchSize = 144, Control, WatchSize -> WatchSizeReply;
    /// Writes bytes at the end of a file that lies at its home.
    Append = 145, Modify, AppendObject -> AppendReply;
    /// Gives a place at the end of a file whose bytes go elsewhere (at the home).
    ReservePlace = 146, Read, ReservePlace -> PlaceReply;
    /// Writes bytes of such a place.
    WritePlace = 147, Modify, WritePlace -> WriteReply;
    /// Makes the file longer by such a place.
    FillPlace = 148, Modify, FillPlace -> FillReply;
    /// Removes bytes that were written for a place that is void.
    RemoveWritten = 149, Modify, RemoveWritten -> Empty;
}
