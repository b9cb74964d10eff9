//! Messages of the object storage server. Offsets are the object's unless a field says the file's.

use crate::{Fid, FidSequence, SessionId, WriteId, wire_struct};

wire_struct! {
    /// An object, with the layout generation and truncate epoch that the client knows.
    pub struct ObjectRef {
        /// The file.
        pub fid: Fid,
        /// Generation of its layout: older than the object's fence ([`FenceLayout`]) = `STALE_LAYOUT`.
        pub layout_generation: u32,
        /// Its truncate epoch: newer than the object's = wait for the truncate; older = `STALE_EPOCH`.
        pub truncate_epoch: u64,
    }
}

wire_struct! {
    /// Writes the bulk's bytes at `offset`. They all become visible at once, or none.
    pub struct WriteObject {
        /// The object.
        pub object: ObjectRef,
        /// First byte.
        pub offset: u64,
        /// Bytes; the length of the bulk.
        pub length: u32,
        /// Chosen by the writer.
        pub write_id: WriteId,
        /// Block sums (`crc::block_sum`), blocks cut at multiples of 64 KiB of the object's offset.
        pub sums: Vec<u64>,
        /// At the file's home: raise the size to at least this. 0: elsewhere.
        pub file_bytes: u64,
        /// Attribute epoch of the writer, for the modification time.
        pub attr_epoch: u64,
        /// How much of the session's grant ([`Grant`]) this write may use.
        pub granted_bytes: u32,
    }
}

wire_struct! {
    /// As [`WriteObject`], with several pieces: the bulk has their bytes one after another.
    pub struct WritePieces {
        /// The object.
        pub object: ObjectRef,
        /// In order, without overlaps; their lengths add up to the bulk's.
        pub pieces: Vec<Piece>,
        /// Chosen by the writer.
        pub write_id: WriteId,
        /// Block sums of each piece, one piece after another.
        pub sums: Vec<u64>,
        /// As in [`WriteObject`].
        pub file_bytes: u64,
        /// As in [`WriteObject`].
        pub attr_epoch: u64,
        /// As in [`WriteObject`].
        pub granted_bytes: u32,
    }
}

wire_struct! {
    /// A contiguous range of an object.
    pub struct Piece {
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u32,
    }
}

wire_struct! {
    /// The bytes are visible.
    pub struct WriteReply {
        /// The file's size at its home; elsewhere 0.
        pub file_bytes: u64,
        /// The object's current modification time.
        pub mtime_ns: i64,
        /// Attribute epoch of that time. It is newer than the request's if a time was set that the writer does not know
        /// of.
        pub attr_epoch: u64,
    }
}

wire_struct! {
    /// Asks for granted space: a total of `bytes` that is reserved for this session's later writes, including what it
    /// has.
    pub struct Grant {
        /// If this is less than the session has, the rest is returned.
        pub bytes: u64,
    }
}

wire_struct! {
    /// The session's grant, which may be less than it asked for.
    pub struct GrantReply {
        /// Bytes.
        pub bytes: u64,
    }
}

wire_struct! {
    /// Reads `[offset, offset + length)`.
    pub struct ReadObject {
        /// The object.
        pub object: ObjectRef,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u32,
    }
}

wire_struct! {
    /// As [`ReadObject`], with several pieces.
    pub struct ReadPieces {
        /// The object.
        pub object: ObjectRef,
        /// In order, without overlaps.
        pub pieces: Vec<Piece>,
    }
}

wire_struct! {
    /// A segment of the bytes read, in the order of offsets. Together the segments cover exactly the requested ranges.
    pub struct ReadSegment {
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u32,
        /// True: in the bulk. False: a hole, zeros, not in the bulk.
        pub data: bool,
        /// Id of the write; the seed of `sums`.
        pub write_id: WriteId,
        /// Block sums of the segment; the client verifies them.
        pub sums: Vec<u64>,
    }
}

wire_struct! {
    /// The bytes read; the bulk holds the data segments one after another.
    pub struct ReadReply {
        /// Data and holes.
        pub segments: Vec<ReadSegment>,
        /// The file's size at its home; elsewhere 0.
        pub file_bytes: u64,
        /// All of it is committed: a crash cannot undo what is shown here.
        pub settled: bool,
    }
}

wire_struct! {
    /// Raises the file's size to at least `file_bytes` (at its home).
    pub struct RaiseSize {
        /// The object.
        pub object: ObjectRef,
        /// The new size, at least.
        pub file_bytes: u64,
        /// Attribute epoch of the writer.
        pub attr_epoch: u64,
        /// When this replaces the replay of an append of an older version: the appends before it. Else empty.
        pub before: Vec<AppendOffset>,
    }
}

/// [`ObjectReply::mtime_ns`] of an object that was not written in its attribute epoch.
pub const NEVER: i64 = i64::MIN;

wire_struct! {
    /// The current state of an object.
    pub struct ObjectReply {
        /// False: nothing was ever written to the object; the rest is zero.
        pub exists: bool,
        /// The file's size, at its home; elsewhere 0.
        pub file_bytes: u64,
        /// End of the object's last byte.
        pub object_bytes: u64,
        /// Bytes of the device that it uses.
        pub used_bytes: u64,
        /// Time of its last write, or [`NEVER`].
        pub mtime_ns: i64,
        /// Attribute epoch of that time.
        pub attr_epoch: u64,
        /// Its truncate epoch.
        pub truncate_epoch: u64,
    }
}

/// [`AppendObject::file_offset`]: at the end of the file; the home chooses the offset.
pub const AT_END: u64 = u64::MAX;

wire_struct! {
    /// Writes the bulk's bytes at the end of the file, if that lies in the home's object. Sent to the home, which
    /// chooses the offset.
    pub struct AppendObject {
        /// The object.
        pub object: ObjectRef,
        /// The file is at least this long; the home may not know that yet.
        pub file_bytes: u64,
        /// Start of a range `[from, to)` of the file whose bytes are contiguous in the object. The append must fit in
        /// it.
        pub from: u64,
        /// End of that range.
        pub to: u64,
        /// Object offset of `from`.
        pub offset: u64,
        /// Bytes; the bulk's length.
        pub length: u32,
        /// Chosen by the writer.
        pub write_id: WriteId,
        /// Sum of the whole bulk (`crc::block_sum`, as of a block at offset 0): the writer does not know where blocks
        /// will be cut.
        pub sum: u64,
        /// Attribute epoch of the writer, for the modification time.
        pub attr_epoch: u64,
        /// [`AT_END`]; in a replay, the offset that it got.
        pub file_offset: u64,
        /// In a replay: as in its [`AppendReply`].
        pub before: Vec<AppendOffset>,
    }
}

wire_struct! {
    /// The result of an append.
    pub struct AppendReply {
        /// The bytes are visible, and the file is longer. False: they do not fit between `from` and `to`, and nothing
        /// was written.
        pub appended: bool,
        /// File offset of the first byte, which a replay keeps. If nothing was appended: where the next append would
        /// lie.
        pub file_offset: u64,
        /// The object's current modification time.
        pub mtime_ns: i64,
        /// Attribute epoch of that time.
        pub attr_epoch: u64,
        /// Earlier appends that are not committed, and whose clients may not have their replies.
        pub before: Vec<AppendOffset>,
    }
}

wire_struct! {
    /// Reserves the end of the file (at the home) for an append whose bytes go to other OSTs, or come in several
    /// requests. The file does not become longer yet.
    pub struct ReserveAppend {
        /// The object.
        pub object: ObjectRef,
        /// As in [`AppendObject`].
        pub file_bytes: u64,
        /// Length of the append.
        pub length: u32,
    }
}

wire_struct! {
    /// The reservation belongs to the session until it is completed or cancelled.
    pub struct ReserveReply {
        /// File offset of its first byte.
        pub file_offset: u64,
        /// Identifies the reservation to the home.
        pub number: u64,
        /// Generation: OSTs refuse bytes of an older one.
        pub generation: u64,
    }
}

wire_struct! {
    /// Writes bytes of an append reservation.
    pub struct WriteReserved {
        /// The write.
        pub write: WriteObject,
        /// Generation of [`ReserveReply`].
        pub generation: u64,
    }
}

wire_struct! {
    /// All bytes of a reservation are written: the file grows by them, after the earlier ones are complete (at the
    /// home).
    pub struct CompleteAppend {
        /// The object.
        pub object: ObjectRef,
        /// Number of the reservation ([`ReserveReply::number`]).
        pub number: u64,
        /// File offset of its first byte.
        pub file_offset: u64,
        /// Bytes; 0: the reservation is given up.
        pub length: u32,
        /// Attribute epoch of the writer.
        pub attr_epoch: u64,
        /// In a replay: as in its [`CompleteReply`].
        pub before: Vec<AppendOffset>,
    }
}

wire_struct! {
    /// Whether the reservation is complete.
    pub struct CompleteReply {
        /// The bytes are part of the file. False: the reservation was cancelled, and the bytes written for it are not
        /// in the file.
        pub filled: bool,
        /// The object's current modification time.
        pub mtime_ns: i64,
        /// Attribute epoch of that time.
        pub attr_epoch: u64,
        /// As in [`AppendReply`].
        pub before: Vec<AppendOffset>,
    }
}

wire_struct! {
    /// The offset that was given to an append.
    pub struct AppendOffset {
        /// Session, slot and sequence of the request.
        pub session: SessionId,
        /// See `session`.
        pub slot: u16,
        /// See `session`.
        pub sequence: u64,
        /// File offset of its first byte.
        pub file_offset: u64,
        /// Bytes.
        pub length: u32,
    }
}

wire_struct! {
    /// Truncates or extends an object under a new truncate epoch. The MDT repeats it until it has the reply.
    pub struct TruncateObject {
        /// File.
        pub fid: Fid,
        /// The new epoch; at or below the object's: the truncate was applied before.
        pub truncate_epoch: u64,
        /// New end of the object's bytes.
        pub object_bytes: u64,
        /// The file's new size, at its home; u64::MAX elsewhere.
        pub file_bytes: u64,
        /// The new attribute epoch. It ends an older one of the object, also if the truncate epoch is the same.
        pub attr_epoch: u64,
    }
}

wire_struct! {
    /// Removes bytes in `[offset, offset + length)` that a client wrote for cancelled reservations; no bytes of others.
    /// It applies in any truncate epoch.
    pub struct RemoveWritten {
        /// The object.
        pub object: ObjectRef,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
        /// The writer ([`WriteId::client`]).
        pub client: u64,
        /// The write ([`WriteId::sequence`]); 0: all of the writer's writes for reservations.
        pub sequence: u64,
    }
}

wire_struct! {
    /// Makes a hole of `[offset, offset + length)`.
    pub struct Punch {
        /// The object.
        pub object: ObjectRef,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
        /// Attribute epoch of the writer.
        pub attr_epoch: u64,
    }
}

wire_struct! {
    /// Reserves space for the parts of `[offset, offset + length)` that hold no bytes. Fails with ENOSPC at once.
    pub struct Allocate {
        /// The object.
        pub object: ObjectRef,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
        /// Attribute epoch of the writer.
        pub attr_epoch: u64,
    }
}

wire_struct! {
    /// Space was reserved.
    pub struct AllocateReply {
        /// End of the reserved part; if that is not the end of the range, ask for the rest.
        pub end: u64,
        /// The object's current modification time.
        pub mtime_ns: i64,
        /// As in [`WriteReply`].
        pub attr_epoch: u64,
    }
}

wire_struct! {
    /// Destroys objects (from the MDT). A missing object is not an error.
    pub struct Destroy {
        /// Files.
        pub fids: Vec<Fid>,
    }
}

wire_struct! {
    /// Asks for the current state of an object.
    pub struct GetObject {
        /// The object.
        pub object: ObjectRef,
    }
}

wire_struct! {
    /// Bytes used and free.
    pub struct OstStatFs {}
}

wire_struct! {
    /// Bytes used and free.
    pub struct OstStatFsReply {
        /// Bytes that can hold file data, used or not.
        pub total_bytes: u64,
        /// Bytes that can still be written.
        pub available_bytes: u64,
        /// Number of objects.
        pub objects: u64,
        /// Granted space, which reduces the available bytes. Clients that write nothing return it.
        pub granted_bytes: u64,
        /// Bytes that could be reserved or granted if all grants were returned.
        pub promisable_bytes: u64,
    }
}

wire_struct! {
    /// Asks how long recent commits took, which shows an OST with a slow disk.
    pub struct OstLatency {}
}

wire_struct! {
    /// Recent commit latency.
    pub struct OstLatencyReply {
        /// The recent average, or the age of the oldest commit or data write in progress if that is larger. Zero:
        /// neither.
        pub commit_us: u64,
    }
}

wire_struct! {
    /// Lists the objects whose fids are in sequences `[from, to)`.
    pub struct ListObjects {
        /// First sequence.
        pub from: FidSequence,
        /// Sequence to stop before.
        pub to: FidSequence,
        /// Continue after this fid; zero = from the beginning.
        pub after: Fid,
        /// Limit of the number of fids.
        pub limit: u32,
    }
}

wire_struct! {
    /// Objects, in the order of their fids.
    pub struct ListObjectsReply {
        /// Their fids.
        pub fids: Vec<Fid>,
        /// True if nothing follows.
        pub end: bool,
    }
}

/// Values of [`MapObject::what`].
pub mod map_what {
    /// The next byte of a block (`limits::HOLE_BYTES`) with some data.
    pub const DATA: u32 = 0;
    /// The next byte of a block without data.
    pub const HOLE: u32 = 1;
    /// How many bytes are used, reserved space included.
    pub const USED: u32 = 2;
}

wire_struct! {
    /// Asks for the next data or hole of an object, or for its used bytes.
    pub struct MapObject {
        /// The object.
        pub object: ObjectRef,
        /// Start of the search.
        pub offset: u64,
        /// [`map_what`].
        pub what: u32,
    }
}

wire_struct! {
    /// The result of a [`MapObject`].
    pub struct MapReply {
        /// Object offset of the next byte, u64::MAX if there is none; or the number of bytes.
        pub bytes: u64,
    }
}

wire_struct! {
    /// A size watch, at the file's home: the client acts by the size of a file that others may make larger. Until a
    /// request with `ends`, a writer that makes the file larger has its reply only after this client has confirmed the
    /// new size.
    pub struct WatchSize {
        /// The object.
        pub object: ObjectRef,
        /// The size that the client acts by.
        pub known_bytes: u64,
        /// Wait: reply when the file is larger, or after a moment. Otherwise reply at once.
        pub waits: bool,
        /// End the watch.
        pub ends: bool,
    }
}

wire_struct! {
    /// The current size of the file.
    pub struct WatchSizeReply {
        /// Bytes.
        pub file_bytes: u64,
    }
}

wire_struct! {
    /// The file's bytes were moved to other objects or OSTs. From now on the OST refuses requests for the object under an
    /// older generation of the layout. Needs an OST with [`super::features::LAYOUT_FENCES`].
    pub struct FenceLayout {
        /// The object.
        pub fid: Fid,
        /// The oldest generation that is served.
        pub layout_generation: u32,
    }
}
