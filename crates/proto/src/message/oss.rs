//! Messages of the object storage server. Offsets are the object's unless a field says the file's.

use crate::{Fid, FidSequence, SessionId, WriteId, wire_struct};

wire_struct! {
    /// Which object, under which layout and truncate epoch the client believes it to be.
    pub struct ObjectRef {
        /// The file.
        pub fid: Fid,
        /// Generation of its layout.
        pub layout_generation: u32,
        /// Its truncate epoch: newer than the object's = wait for the truncate; older = `STALE_EPOCH`.
        pub truncate_epoch: u64,
    }
}

wire_struct! {
    /// Writes the bulk's bytes at `offset`. All of it becomes visible at once, or nothing.
    pub struct WriteObject {
        /// Where.
        pub object: ObjectRef,
        /// First byte.
        pub offset: u64,
        /// Bytes; the bulk's length.
        pub length: u32,
        /// Chosen by the writer.
        pub write_id: WriteId,
        /// Block sums (`crc::block_sum`), blocks cut at multiples of 64 KiB of the object's offset.
        pub sums: Vec<u64>,
        /// This target keeps the file's size (stripe 0): raise it to at least this; 0 = it does not.
        pub file_bytes: u64,
        /// Attribute epoch of the writer, for the modification time.
        pub attr_epoch: u64,
        /// So much of what was granted to the session ([`Grant`]) may be used for it.
        pub granted_bytes: u32,
    }
}

wire_struct! {
    /// As [`WriteObject`], in several places: the bulk has their bytes one after another.
    pub struct WritePieces {
        /// Where.
        pub object: ObjectRef,
        /// In order, apart; their lengths add up to the bulk's.
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
    /// Bytes of an object, one after another.
    pub struct Piece {
        /// First.
        pub offset: u64,
        /// How many.
        pub length: u32,
    }
}

wire_struct! {
    /// The bytes are visible.
    pub struct WriteReply {
        /// The file's size at stripe 0's target; elsewhere 0.
        pub file_bytes: u64,
        /// The object's modification time now.
        pub mtime_ns: i64,
        /// Attribute epoch that time belongs to: a newer one than the request's where a time was set that the writer does not know of.
        pub attr_epoch: u64,
    }
}

wire_struct! {
    /// Asks for room that nobody else is given, for writes to come of this session: so much, with what it has of it already.
    pub struct Grant {
        /// Fewer than it has: the rest is given back.
        pub bytes: u64,
    }
}

wire_struct! {
    /// What the session has now; it may be less than was asked for.
    pub struct GrantReply {
        /// Bytes.
        pub bytes: u64,
    }
}

wire_struct! {
    /// Reads `[offset, offset + length)`.
    pub struct ReadObject {
        /// What.
        pub object: ObjectRef,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u32,
    }
}

wire_struct! {
    /// As [`ReadObject`], in several places.
    pub struct ReadPieces {
        /// What.
        pub object: ObjectRef,
        /// In order, apart.
        pub pieces: Vec<Piece>,
    }
}

wire_struct! {
    /// A stretch of the bytes read, in the order of offsets; together they cover what was asked for, and no more.
    pub struct ReadSegment {
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u32,
        /// True: in the bulk. False: a hole, zeros, not in the bulk.
        pub data: bool,
        /// Who wrote it; the seed of `sums`.
        pub write_id: WriteId,
        /// Block sums of the stretch; the client verifies them.
        pub sums: Vec<u64>,
    }
}

wire_struct! {
    /// The bytes read; the bulk holds the data segments one after another.
    pub struct ReadReply {
        /// Data and holes.
        pub segments: Vec<ReadSegment>,
        /// The file's size at stripe 0's target; elsewhere 0.
        pub file_bytes: u64,
        /// All of it is committed: no crash takes back what is shown here.
        pub settled: bool,
    }
}

wire_struct! {
    /// Raises the file's size to at least `file_bytes` (at the target of stripe 0).
    pub struct RaiseSize {
        /// What.
        pub object: ObjectRef,
        /// At least this.
        pub file_bytes: u64,
        /// Attribute epoch of the writer.
        pub attr_epoch: u64,
        /// In place of the replay of an append of an older version: appends before it. Else empty.
        pub before: Vec<AppendPlace>,
    }
}

/// [`ObjectReply::mtime_ns`] of an object that was not written in its attribute epoch.
pub const NEVER: i64 = i64::MIN;

wire_struct! {
    /// An object as it is.
    pub struct ObjectReply {
        /// False: nothing was ever written there; the rest is zero.
        pub exists: bool,
        /// The file's size, at the target of stripe 0; elsewhere 0.
        pub file_bytes: u64,
        /// End of the object's last byte.
        pub object_bytes: u64,
        /// Bytes of the device it uses.
        pub used_bytes: u64,
        /// Time of its last write, or [`NEVER`].
        pub mtime_ns: i64,
        /// Attribute epoch that time belongs to.
        pub attr_epoch: u64,
        /// Its truncate epoch.
        pub truncate_epoch: u64,
    }
}

/// [`AppendObject::file_offset`]: at the end of the file, wherever that is.
pub const AT_END: u64 = u64::MAX;

wire_struct! {
    /// Writes the bulk's bytes at the end of the file, if that lies in the home's object (at the home, which chooses the place).
    pub struct AppendObject {
        /// Where.
        pub object: ObjectRef,
        /// The file is at least this long: the home may not have heard of it.
        pub file_bytes: u64,
        /// From this byte of the file on ...
        pub from: u64,
        /// ... and up to this one, its bytes lie one after another in the object: the append has to fit in between.
        pub to: u64,
        /// Object offset of `from`.
        pub offset: u64,
        /// Bytes; the bulk's length.
        pub length: u32,
        /// Chosen by the writer.
        pub write_id: WriteId,
        /// Sum of the whole bulk (`crc::block_sum`, as of a block at offset 0): its writer does not know where blocks will be cut.
        pub sum: u64,
        /// Attribute epoch of the writer, for the modification time.
        pub attr_epoch: u64,
        /// [`AT_END`]; a replay: where it was.
        pub file_offset: u64,
        /// A replay: as in its [`AppendReply`].
        pub before: Vec<AppendPlace>,
    }
}

wire_struct! {
    /// What came of an append.
    pub struct AppendReply {
        /// The bytes are visible, and the file is longer. False: they do not fit between `from` and `to`, and nothing was done.
        pub appended: bool,
        /// File offset of the first byte, which a replay keeps; if it was not appended: where the next append would lie.
        pub file_offset: u64,
        /// The object's modification time now.
        pub mtime_ns: i64,
        /// Attribute epoch that time belongs to.
        pub attr_epoch: u64,
        /// Appends before it that others may not have heard of, and that are not committed.
        pub before: Vec<AppendPlace>,
    }
}

wire_struct! {
    /// Asks for a place at the end of the file (at the home) whose bytes go to other OSTs, or come in several requests. The file
    /// does not become longer yet.
    pub struct ReservePlace {
        /// Where.
        pub object: ObjectRef,
        /// As in [`AppendObject`].
        pub file_bytes: u64,
        /// How many bytes.
        pub length: u32,
    }
}

wire_struct! {
    /// The place is the caller's until it is filled, or given to another.
    pub struct PlaceReply {
        /// File offset of its first byte.
        pub file_offset: u64,
        /// Names it to the home.
        pub number: u64,
        /// Of the places that are open beside it: OSTs refuse bytes for places of an older generation.
        pub generation: u64,
    }
}

wire_struct! {
    /// Writes bytes of a place.
    pub struct WritePlace {
        /// What and where.
        pub write: WriteObject,
        /// The place's, of [`PlaceReply`].
        pub generation: u64,
    }
}

wire_struct! {
    /// The bytes of a place are where they belong: the file becomes so much longer, once those before it are (at the home).
    pub struct FillPlace {
        /// Where.
        pub object: ObjectRef,
        /// The place.
        pub number: u64,
        /// File offset of its first byte.
        pub file_offset: u64,
        /// Bytes; 0: it is given up.
        pub length: u32,
        /// Attribute epoch of the writer.
        pub attr_epoch: u64,
        /// A replay: as in its [`FillReply`].
        pub before: Vec<AppendPlace>,
    }
}

wire_struct! {
    /// What came of a place.
    pub struct FillReply {
        /// The file has it. False: it was given up, or to another; what was written in it is not in the file.
        pub filled: bool,
        /// The object's modification time now.
        pub mtime_ns: i64,
        /// Attribute epoch that time belongs to.
        pub attr_epoch: u64,
        /// As in [`AppendReply`].
        pub before: Vec<AppendPlace>,
    }
}

wire_struct! {
    /// A place that an append has, or had.
    pub struct AppendPlace {
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
    /// Cuts or extends an object under a new truncate epoch (from the MDT, again and again until it is replied).
    pub struct TruncateObject {
        /// File.
        pub fid: Fid,
        /// The new epoch; at or below the object's: already done.
        pub truncate_epoch: u64,
        /// What is left of the object.
        pub object_bytes: u64,
        /// The file's new size if this target keeps it (stripe 0); u64::MAX = it does not.
        pub file_bytes: u64,
        /// The new attribute epoch: an older one of the object ends with it, also if the truncate epoch is the same.
        pub attr_epoch: u64,
    }
}

wire_struct! {
    /// Removes what a client has written in `[offset, offset + length)` for places that are void. Nothing of others, and in any truncate
    /// epoch.
    pub struct RemoveWritten {
        /// What.
        pub object: ObjectRef,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
        /// Of which writer ([`WriteId::client`]).
        pub client: u64,
        /// Which write of it ([`WriteId::sequence`]); 0: each that was for a place.
        pub sequence: u64,
    }
}

wire_struct! {
    /// Makes a hole of `[offset, offset + length)`.
    pub struct Punch {
        /// What.
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
    /// Sets room aside for what of `[offset, offset + length)` holds no bytes. ENOSPC at once.
    pub struct Allocate {
        /// What.
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
    /// Room was set aside.
    pub struct AllocateReply {
        /// Up to here; where that is not the end of the range, ask for the rest.
        pub end: u64,
        /// The object's modification time now.
        pub mtime_ns: i64,
        /// As in [`WriteReply`].
        pub attr_epoch: u64,
    }
}

wire_struct! {
    /// Destroys objects (from the MDT). What does not exist is not an error.
    pub struct Destroy {
        /// Files.
        pub fids: Vec<Fid>,
    }
}

wire_struct! {
    /// Asks for an object as it is.
    pub struct GetObject {
        /// What.
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
        /// Objects there are.
        pub objects: u64,
        /// What is granted to clients for writes to come takes so much off the available bytes: those that write nothing give it back.
        pub granted_bytes: u64,
        /// Bytes that room could be set aside for, were what is granted given back.
        pub promisable_bytes: u64,
    }
}

wire_struct! {
    /// How long commits take lately: a disk that is slower than others shows.
    pub struct OstPace {}
}

wire_struct! {
    /// How long commits take lately.
    pub struct OstPaceReply {
        /// What one takes; one under way, or a write, that takes longer by now counts by itself. Zero: there were none lately.
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
        /// At most this many.
        pub limit: u32,
    }
}

wire_struct! {
    /// Objects, in the order of fids.
    pub struct ListObjectsReply {
        /// Their fids.
        pub fids: Vec<Fid>,
        /// Nothing follows.
        pub end: bool,
    }
}

/// Values of [`MapObject::what`].
pub mod map_what {
    /// The next byte of a block (`limits::HOLE_BYTES`) that has some data.
    pub const DATA: u32 = 0;
    /// The next byte of a block that has none.
    pub const HOLE: u32 = 1;
    /// How many bytes there are.
    pub const USED: u32 = 2;
}

wire_struct! {
    /// Asks where an object has bytes and where holes.
    pub struct MapObject {
        /// What.
        pub object: ObjectRef,
        /// From here on.
        pub offset: u64,
        /// [`map_what`].
        pub what: u32,
    }
}

wire_struct! {
    /// Where, or how many.
    pub struct MapReply {
        /// Object offset of the next byte, u64::MAX if there is none; or the number of bytes.
        pub bytes: u64,
    }
}

wire_struct! {
    /// The client acts by the size of a file without asking for it, which somebody else may make larger (at the target of stripe 0).
    /// Until the next one `ends` that, who makes it larger has his reply when the client has said that it knows.
    pub struct WatchSize {
        /// Which.
        pub object: ObjectRef,
        /// The size that it acts by.
        pub known_bytes: u64,
        /// Answered when the file is larger, or after a moment; else at once.
        pub waits: bool,
        /// It does not act by it any more.
        pub ends: bool,
    }
}

wire_struct! {
    /// How large it is.
    pub struct WatchSizeReply {
        /// Bytes.
        pub file_bytes: u64,
    }
}
