//! Leases: granted with replies, recalled, and range claims.

use crate::{Fid, wire_struct};

/// Bits of `leases` in replies: what the client may cache or buffer, until it is recalled and while the server replies
/// to the client ([`crate::limits::LEASE_CLIENT_TERM`]).
pub mod lease_flags {
    /// Attribute lease on the reply's inode: its attributes, extended ones too, and, of a directory, its entries,
    /// present and absent.
    pub const INODE: u32 = 1;
    /// The same for the directory that the request named.
    pub const PARENT: u32 = 2;
    /// Data-write lease on a file that was opened for writing: writes may be buffered until it is recalled.
    pub const DATA: u32 = 4;
    /// Entries-write lease on the reply's inode, a directory: nobody else sees or changes its entries. The client may
    /// reply to its programs about changes of entries before it sends them, until the lease is recalled as [`DATA`] is.
    pub const NAMES: u32 = 8;
    /// The same for the directory that the request named.
    pub const PARENT_ENTRIES_WRITE: u32 = 16;
    /// No other client has a lease on the reply's inode. None gets one while the client has [`PARENT_ENTRIES_WRITE`] of the
    /// directory that the request named, or in which the file was created.
    pub const ALONE: u32 = 32;
}

wire_struct! {
    /// Waits until leases are recalled, or for a moment.
    pub struct AwaitRecalls {
        /// The client has dropped all leases up to this [`RecallsReply::sequence`].
        pub acknowledged: u64,
        /// Inodes that the client has dropped of its own accord.
        pub returned: Vec<Fid>,
        /// Recalls of data-write leases after which everything was sent.
        pub flushed: Vec<DataRecall>,
    }
}

wire_struct! {
    /// A data-write lease is recalled: the client sends what it buffers, then reports that.
    pub struct DataRecall {
        /// File.
        pub fid: Fid,
        /// Number of the recall.
        pub sequence: u64,
    }
}

wire_struct! {
    /// Recalled leases: the client drops what it caches, then reports that with the next [`AwaitRecalls`].
    pub struct RecallsReply {
        /// Inodes, in the order of their recalls.
        pub fids: Vec<Fid>,
        /// Data-write leases.
        pub data: Vec<DataRecall>,
        /// Number of the last recall; if there is none, the number acknowledged before.
        pub sequence: u64,
    }
}

wire_struct! {
    /// Makes all other clients send the writes that they buffer (see [`lease_flags::DATA`]).
    pub struct FlushBuffered {}
}

wire_struct! {
    /// Pieces of a file, of equal length and distance: `count` times `length` bytes, the first at `start`, each
    /// following one `stride` bytes after the previous.
    pub struct Pieces {
        /// Offset of the first.
        pub start: u64,
        /// Bytes of each.
        pub length: u64,
        /// Distance between the starts of two pieces; at least `length`.
        pub stride: u64,
        /// Number of pieces.
        pub count: u64,
    }
}

wire_struct! {
    /// A range claim. While it stands, the client does nothing with the file but write in these pieces. It stands from
    /// before this request is sent until the client's next claim without pieces was replied to. That one is replied to
    /// when all writes that other clients buffer for the file were sent.
    pub struct Claim {
        /// File; the session has a handle of it.
        pub fid: Fid,
        /// The claimed ranges.
        pub pieces: Vec<Pieces>,
    }
}

wire_struct! {
    /// The result of a claim.
    pub struct ClaimReply {
        /// Every session that has the file open has a claim, and no claims overlap. Writes in the claimed pieces may be
        /// buffered until the lease is recalled, as under a data-write lease. False: the claim stands, and may be
        /// repeated.
        pub granted: bool,
    }
}
