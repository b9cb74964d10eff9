//! Read: verified bytes with their sums, so that the client can verify them again.

use bytes::Bytes;
use forebay_proto::{
    Errno, ErrorReply, WriteId,
    message::{ReadObject, ReadReply, ReadSegment},
};
use forebay_store::{Segment, SegmentBody};
use forebay_target::{Answer, Context, store_error};

use crate::{ObjectRow, Oss, limits};

/// Runs a read. Beyond the object's end there is a hole.
pub async fn run(oss: &Oss, ctx: &Context, request: ReadObject) -> Result<Answer, ErrorReply> {
    if request.length == 0 || request.length > limits::READ_BYTES {
        return Err(ErrorReply::new(Errno::EINVAL, format!("a read of {} bytes", request.length)));
    }
    let Some(end) = request.offset.checked_add(u64::from(request.length)) else {
        return Err(ErrorReply::new(Errno::EINVAL, format!("a read at {} wraps around", request.offset)));
    };
    let row = oss.admissible(ctx, &request.object).await?.unwrap_or_default();
    let data_end = end.min(row.object_bytes);
    let mut segments = Vec::new();
    let mut bulk = Vec::new();
    if request.offset < data_end {
        let fid = request.object.fid;
        let pieces = oss.read_ahead.read(fid, request.offset..data_end, row.object_bytes).await.map_err(store_error)?;
        for piece in pieces {
            segments.push(describe(piece, &mut bulk));
        }
    }
    let hole_start = request.offset.max(data_end);
    if hole_start < end {
        segments.push(hole(hole_start, (end - hole_start) as u32));
    }
    let settled = is_settled(oss, ctx, &request, &row).await;
    Ok(Answer::with_bulk(&ReadReply { segments, file_bytes: row.file_bytes, settled }, bulk))
}

/// The object did not change while it was read, as its row was `before`, and its last change is committed.
async fn is_settled(oss: &Oss, ctx: &Context, request: &ReadObject, before: &ObjectRow) -> bool {
    let now = oss.load_applied(request.object.fid).await.map(Option::unwrap_or_default);
    now.is_ok_and(|now| now.transno == before.transno && now.transno <= ctx.store().last_committed())
}

fn describe(piece: Segment, bulk: &mut Vec<Bytes>) -> ReadSegment {
    let (offset, length) = (piece.offset, piece.length as u32);
    match piece.body {
        SegmentBody::Hole => hole(offset, length),
        SegmentBody::Data { bytes, write_id, sums, .. } => {
            bulk.push(bytes);
            ReadSegment { offset, length, data: true, write_id, sums }
        }
    }
}

fn hole(offset: u64, length: u32) -> ReadSegment {
    ReadSegment { offset, length, data: false, write_id: WriteId::default(), sums: Vec::new() }
}
