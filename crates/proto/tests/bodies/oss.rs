//! Values of the object storage server's messages.

use forebay_proto::{FidSequence, SessionId, message::*};

use crate::sample::{Numbers, Samples};

fn place(n: &mut Numbers) -> AppendOffset {
    let session = SessionId(n.u64());
    AppendOffset { session, slot: n.u32() as u16, sequence: n.u64(), file_offset: n.u64(), length: n.u32() }
}

pub fn add(samples: &mut Samples) {
    let n = &mut Numbers::default();
    let written = WriteReply { file_bytes: n.u64(), mtime_ns: n.i64(), attr_epoch: Numbers::default().u64() };
    samples.exchange(vec![write()], vec![written.clone()]);
    samples.exchange(vec![write_pieces()], vec![written]);
    samples.exchange(vec![ReadObject { object: object(n), offset: n.u64(), length: n.u32() }], vec![read_reply()]);

    let n = &mut Numbers::default();
    // Numbers of their own, so that the golden bytes of other bodies do not change.
    let p = &mut Numbers::default();
    let added = &mut Numbers::default();
    let replies = || vec![object_reply(true), object_reply(false)];
    samples.exchange(
        vec![RaiseSize {
            object: object(n),
            file_bytes: n.u64(),
            attr_epoch: n.u64(),
            before: vec![place(p), place(p)],
        }],
        replies(),
    );
    // A removed operation used these numbers: skipping them keeps the golden bytes of the next bodies.
    let _ = (object(n), n.u32(), n.u64(), n.u64(), place(p));
    samples.exchange(vec![truncate()], replies());
    samples
        .exchange(vec![Punch { object: object(n), offset: n.u64(), length: n.u64(), attr_epoch: n.u64() }], replies());
    samples.exchange(vec![Destroy { fids: vec![n.fid(), n.fid()] }, Destroy { fids: Vec::new() }], vec![Empty {}]);

    let n = &mut Numbers::default();
    samples.exchange(vec![GetObject { object: object(n) }], replies());
    samples.exchange(
        vec![OstStatFs {}],
        vec![OstStatFsReply {
            total_bytes: n.u64(),
            available_bytes: n.u64(),
            objects: n.u64(),
            granted_bytes: added.u64(),
            promisable_bytes: added.u64(),
        }],
    );
    samples.exchange(
        vec![ListObjects { from: FidSequence(n.u64()), to: FidSequence(n.u64()), after: n.fid(), limit: n.u32() }],
        vec![
            ListObjectsReply { fids: vec![n.fid(), n.fid()], end: true },
            ListObjectsReply { fids: vec![], end: false },
        ],
    );
    samples.exchange(
        vec![MapObject { object: object(n), offset: n.u64(), what: n.u32() }],
        vec![MapReply { bytes: n.u64() }],
    );
    samples.exchange(
        vec![Allocate { object: object(n), offset: n.u64(), length: n.u64(), attr_epoch: n.u64() }],
        vec![AllocateReply { end: n.u64(), mtime_ns: n.i64(), attr_epoch: Numbers::default().u64() }],
    );
    samples.exchange(vec![OstLatency {}], vec![OstLatencyReply { commit_us: n.u64() }]);
    let n = &mut Numbers::default();
    let pieces = ReadPieces { object: object(n), pieces: vec![piece(n), piece(n)] };
    samples.exchange(vec![pieces], vec![read_reply()]);
    samples.exchange(vec![Grant { bytes: n.u64() }], vec![GrantReply { bytes: n.u64() }]);
    let n = &mut Numbers::default();
    let watch = |n: &mut Numbers, waits| WatchSize { object: object(n), known_bytes: n.u64(), waits, ends: !waits };
    samples.exchange(vec![watch(n, true), watch(n, false)], vec![WatchSizeReply { file_bytes: n.u64() }]);
    appends(samples);
    let n = &mut Numbers::default();
    samples.exchange(vec![FenceLayout { fid: n.fid(), layout_generation: n.u32() }], vec![Empty {}]);
    let n = &mut Numbers::default();
    samples.exchange(
        vec![SetCapabilityKeys { keys: vec![NumberedKey { number: n.u32(), secret: n.name() }] }],
        vec![Empty {}],
    );
}

fn appends(samples: &mut Samples) {
    let n = &mut Numbers::default();
    let append = AppendObject {
        object: object(n),
        file_bytes: n.u64(),
        from: n.u64(),
        to: n.u64(),
        offset: n.u64(),
        length: n.u32(),
        write_id: n.write_id(),
        sum: n.u64(),
        attr_epoch: n.u64(),
        file_offset: n.u64(),
        before: vec![place(n)],
    };
    let appended = AppendReply {
        appended: true,
        file_offset: n.u64(),
        mtime_ns: n.i64(),
        attr_epoch: n.u64(),
        before: vec![place(n)],
    };
    samples.exchange(vec![append], vec![appended]);
    let reserve = ReserveAppend { object: object(n), file_bytes: n.u64(), length: n.u32() };
    let reserved = ReserveReply { file_offset: n.u64(), number: n.u64(), generation: n.u64() };
    samples.exchange(vec![reserve], vec![reserved]);
    let w = &mut Numbers::default();
    let written = WriteReply { file_bytes: w.u64(), mtime_ns: w.i64(), attr_epoch: Numbers::default().u64() };
    samples.exchange(vec![WriteReserved { write: write(), generation: n.u64() }], vec![written]);
    let fill = CompleteAppend {
        object: object(n),
        number: n.u64(),
        file_offset: n.u64(),
        length: n.u32(),
        attr_epoch: n.u64(),
        before: vec![place(n)],
    };
    let filled = CompleteReply { filled: true, mtime_ns: n.i64(), attr_epoch: n.u64(), before: vec![place(n)] };
    samples.exchange(vec![fill], vec![filled]);
    let remove =
        RemoveWritten { object: object(n), offset: n.u64(), length: n.u64(), client: n.u64(), sequence: n.u64() };
    samples.exchange(vec![remove], vec![Empty {}]);
}

fn object(n: &mut Numbers) -> ObjectRef {
    ObjectRef { fid: n.fid(), layout_generation: n.u32(), truncate_epoch: n.u64() }
}

fn piece(n: &mut Numbers) -> Piece {
    Piece { offset: n.u64(), length: n.u32() }
}

fn write() -> WriteObject {
    let n = &mut Numbers::default();
    WriteObject {
        object: object(n),
        offset: n.u64(),
        length: n.u32(),
        write_id: n.write_id(),
        sums: vec![n.u64(), n.u64(), n.u64()],
        file_bytes: n.u64(),
        attr_epoch: n.u64(),
        granted_bytes: n.u32(),
    }
}

fn write_pieces() -> WritePieces {
    let n = &mut Numbers::default();
    WritePieces {
        object: object(n),
        pieces: vec![piece(n), piece(n)],
        write_id: n.write_id(),
        sums: vec![n.u64(), n.u64(), n.u64()],
        file_bytes: n.u64(),
        attr_epoch: n.u64(),
        granted_bytes: n.u32(),
    }
}

fn read_reply() -> ReadReply {
    let n = &mut Numbers::default();
    let data = ReadSegment {
        offset: n.u64(),
        length: n.u32(),
        data: true,
        write_id: n.write_id(),
        sums: vec![n.u64(), n.u64()],
    };
    let hole = ReadSegment { offset: n.u64(), length: n.u32(), data: false, write_id: n.write_id(), sums: Vec::new() };
    ReadReply { segments: vec![data, hole], file_bytes: n.u64(), settled: n.u64() % 2 == 0 }
}

fn truncate() -> TruncateObject {
    let n = &mut Numbers::default();
    TruncateObject {
        fid: n.fid(),
        truncate_epoch: n.u64(),
        object_bytes: n.u64(),
        file_bytes: n.u64(),
        attr_epoch: n.u64(),
    }
}

fn object_reply(exists: bool) -> ObjectReply {
    let n = &mut Numbers::default();
    ObjectReply {
        exists,
        file_bytes: n.u64(),
        object_bytes: n.u64(),
        used_bytes: n.u64(),
        mtime_ns: n.i64(),
        attr_epoch: n.u64(),
        truncate_epoch: n.u64(),
    }
}
