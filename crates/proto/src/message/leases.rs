//! Leases: what is granted with replies, recalled and claimed.

use crate::{Fid, wire_struct};

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
