//! Messages: a frame's header, and a request and a reply for every operation.
//!
//! One frame carries one request or one reply: header, body (a structure of this module), bulk (file data, apart from
//! the body and never copied into it). `docs/protocol.md` has the byte maps.

mod attributes;
mod capability;
mod choices;
mod cluster;
mod common;
mod frame;
mod id_maps;
mod leases;
mod locks;
mod mds;
mod oss;

pub use attributes::*;
pub use capability::*;
pub use choices::*;
pub use cluster::*;
pub use common::*;
pub use frame::*;
pub use id_maps::*;
pub use leases::*;
pub use locks::*;
pub use mds::*;
pub use oss::*;

use crate::{Decode, Encode};

/// How an operation affects its target's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes it: has a transno and a committed reply, and is replayed.
    Modify,
    /// Does not change it: may be repeated at will.
    Read,
    /// Concerns the session itself.
    Control,
}

/// A request type: its number, its reply, and its class.
pub trait Operation: Encode + Decode + Clone + PartialEq + std::fmt::Debug + 'static {
    /// Its number in the frame's header.
    const OP: Op;
    /// The reply when it succeeds.
    type Reply: Encode + Decode + Clone + PartialEq + std::fmt::Debug + 'static;
    /// Whether it changes the target.
    const CLASS: Class;
}

/// Does something with the types of an operation of which only the number is known ([`Op::visit`]).
pub trait OperationVisitor {
    /// What comes of it.
    type Output;

    /// Does it with the operation whose request is `O`.
    fn visit<O: Operation>(self) -> Self::Output;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $class:ident, $request:ident -> $reply:ident;)*) => {
        /// The number of an operation in a frame's header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Op { $($(#[$doc])* $name = $number,)* }

        impl Op {
            /// The operation with this number, which comes from outside.
            pub fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// How it affects its target's state.
            pub fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)* }
            }

            /// Its name, for logs and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Shows its request's type to `visitor`.
            pub fn visit<V: OperationVisitor>(self, visitor: V) -> V::Output {
                match self { $(Self::$name => visitor.visit::<$request>(),)* }
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
    /// Recovery: this session has reclaimed all that it held.
    ReclaimDone = 5, Control, ReclaimDone -> Empty;
    /// Waits until the changes applied before it (of one file, or all) are committed.
    Sync = 6, Read, Sync -> SyncReply;
    /// The target's state for `forebay status`; needs no session.
    Status = 7, Control, Status -> StatusReply;
    /// The cluster's map; needs no session (the MGS is MDT0000's server).
    GetMap = 8, Control, GetMap -> ClusterMap;
    /// Ends another client's session and refuses its later requests.
    Fence = 9, Modify, Fence -> Empty;
    /// Who is banned; needs no session.
    GetBans = 10, Control, GetBans -> Bans;
    /// Tells an OST who is banned (from the MDT); needs no session.
    SetBans = 11, Control, SetBans -> Empty;
    /// Makes the sender a node of the cluster; needs a token, and neither certificate nor session.
    Join = 12, Control, Join -> JoinReply;
    /// Tells where a node's targets can be reached; needs no session.
    Register = 13, Control, Register -> ClusterMap;
    /// Makes a token for [`Join`]; needs no session.
    NewToken = 14, Control, NewToken -> NewTokenReply;
    /// The cluster's nodes; needs no session.
    ListNodes = 15, Control, ListNodes -> ListNodesReply;
    /// Bans a node, or ends its ban; needs no session.
    BanNode = 16, Control, BanNode -> Empty;
    /// Removes a node; needs no session.
    RemoveNode = 17, Control, RemoveNode -> Empty;
    /// Makes a tenant; needs no session.
    NewTenant = 18, Control, NewTenant -> Empty;
    /// The tenants; needs no session.
    ListTenants = 19, Control, ListTenants -> ListTenantsReply;
    /// Removes a tenant; needs no session.
    RemoveTenant = 20, Control, RemoveTenant -> Empty;
    /// Which directory is the sender's root; needs no session.
    GetRoot = 21, Control, GetRoot -> RootReply;
    /// Makes a tenant whose hosts have other ids than the file system; needs no session.
    NewMappedTenant = 22, Control, NewMappedTenant -> Empty;
    /// The id maps of the tenants; needs no session.
    ListIdMaps = 23, Control, ListIdMaps -> ListIdMapsReply;
    /// Signs the sender's key for another term; needs no session.
    Renew = 24, Control, Renew -> RenewReply;
    /// Makes a stream one more of a session's connection; needs no session of its own.
    JoinRail = 25, Control, JoinRail -> Empty;

    /// Leases a sequence of fids.
    LeaseSequence = 32, Modify, LeaseSequence -> LeaseSequenceReply;
    /// Name to attributes.
    Lookup = 33, Read, Lookup -> LookupReply;
    /// Attributes of a fid.
    GetAttr = 34, Read, GetAttr -> EntryReply;
    /// Changes attributes; a new size truncates.
    SetAttr = 35, Modify, SetAttr -> EntryReply;
    /// Creates a regular file and opens it, or opens the existing one.
    Create = 36, Modify, Create -> OpenReply;
    /// Creates a directory, symbolic link or special file.
    Make = 37, Modify, Make -> EntryReply;
    /// Another name for a file.
    Link = 38, Modify, Link -> EntryReply;
    /// Removes a name.
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
    /// Recovery: reclaims handles, locks and directories with delayed changes.
    Reclaim = 46, Modify, Reclaim -> Empty;
    /// Value of an extended attribute.
    GetXattr = 47, Read, GetXattr -> XattrReply;
    /// Sets an extended attribute.
    SetXattr = 48, Modify, SetXattr -> Empty;
    /// Names of the extended attributes.
    ListXattr = 49, Read, ListXattr -> ListXattrReply;
    /// Removes an extended attribute.
    RemoveXattr = 50, Modify, RemoveXattr -> Empty;
    /// Sets a directory's default layout, or an empty file's layout.
    SetLayout = 51, Modify, SetLayout -> EntryReply;
    /// Inodes used and free.
    MdtStatFs = 52, Read, MdtStatFs -> MdtStatFsReply;
    /// Sets, releases, tests, or waits for an advisory lock.
    Lock = 53, Read, Lock -> LockReply;
    /// Waits for recalls of leases, and reports which were dropped.
    AwaitRecalls = 54, Control, AwaitRecalls -> RecallsReply;

    /// Replied to when every other client has sent the writes that it buffered so far.
    FlushBuffered = 65, Read, FlushBuffered -> Empty;
    /// Claims the ranges of a file that a client is going to write while others have it open; without pieces, ends the
    /// claim.
    Claim = 66, Read, Claim -> ClaimReply;
    /// Name to attributes, and the attributes of the names that follow it (statahead).
    LookupStatahead = 68, Read, LookupStatahead -> LookupStataheadReply;
    /// Writes the inline bytes of a small file to its OSTs.
    Outline = 69, Modify, Outline -> EntryReply;
    /// Reads the inline bytes of a small file.
    ReadInline = 70, Read, ReadInline -> EntryReply;
    /// Replied to when objects of deleted files are destroyed on some OSTs, or after a while.
    FinishDestroys = 67, Read, FinishDestroys -> FinishDestroysReply;

    /// A capability for the objects of a file; outside of the slots.
    Authorize = 71, Control, Authorize -> AuthorizeReply;

    /// Chooses OSTs for parts of a file that have none, or whose OSTs have no space.
    ExtendLayout = 60, Modify, ExtendLayout -> Empty;

    /// Changes a pool of OSTs.
    SetPool = 61, Modify, SetPool -> Empty;
    /// Asks for the version of a file's content, valid until it changes.
    GetContentVersion = 63, Read, GetContentVersion -> MigrateReply;
    /// A file and its copy exchange their objects.
    Migrate = 64, Modify, Migrate -> Empty;
    /// Lists the OSTs and the pools.
    GetPools = 62, Read, GetPools -> PoolsReply;

    /// Writes bytes of one object.
    Write = 128, Modify, WriteObject -> WriteReply;
    /// Reads bytes of one object.
    Read = 129, Read, ReadObject -> ReadReply;
    /// Raises a file's size (at its home).
    RaiseSize = 130, Modify, RaiseSize -> ObjectReply;
    /// Truncates or extends an object under a new truncate epoch (from the MDT).
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
    /// Finds data and holes of an object.
    MapObject = 138, Read, MapObject -> MapReply;
    /// Reserves space for a range that is to be written (fallocate).
    Allocate = 139, Modify, Allocate -> AllocateReply;
    /// Writes several pieces of one object.
    WritePieces = 140, Modify, WritePieces -> WriteReply;
    /// How long recent commits took.
    OstLatency = 141, Read, OstLatency -> OstLatencyReply;
    /// Reads several pieces of one object.
    ReadPieces = 142, Read, ReadPieces -> ReadReply;
    /// Grants space for the client's delayed writes.
    Grant = 143, Read, Grant -> GrantReply;
    /// Waits until a file is larger than the client knows.
    WatchSize = 144, Control, WatchSize -> WatchSizeReply;
    /// Writes bytes at the end of a file, where that lies in the home's object.
    Append = 145, Modify, AppendObject -> AppendReply;
    /// Reserves the end of a file for an append whose bytes go to other OSTs (at the home).
    ReserveAppend = 146, Read, ReserveAppend -> ReserveReply;
    /// Writes bytes of such a reservation.
    WriteReserved = 147, Modify, WriteReserved -> WriteReply;
    /// Extends the file by such a reservation.
    CompleteAppend = 148, Modify, CompleteAppend -> CompleteReply;
    /// Removes bytes that were written for a cancelled reservation.
    RemoveWritten = 149, Modify, RemoveWritten -> Empty;
    /// Refuses requests under older generations of a file's layout (from the MDT).
    FenceLayout = 150, Read, FenceLayout -> Empty;
    /// Tells with which keys capabilities are signed (from the MDT).
    SetCapabilityKeys = 151, Modify, SetCapabilityKeys -> Empty;
}
