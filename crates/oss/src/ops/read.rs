//! Read: verified bytes with their sums, so that the client can verify them again.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use forebay_proto::{
    Errno, ErrorReply, Fid, WriteId, crc,
    limits::{BLOCK_BYTES, FILE_BYTES, OBJECT_PIECES},
    message::{ObjectRef, Piece, ReadObject, ReadPieces, ReadReply, ReadSegment},
};
use forebay_store::{Segment, SegmentBody};
use forebay_target::{Answer, Attempt, Context};

use crate::{ObjectRow, Oss, key, limits, server::decode};

/// A read of one piece, in the form of a read of several.
pub fn one_piece(request: ReadObject) -> ReadPieces {
    let ReadObject { object, offset, length } = request;
    ReadPieces { object, pieces: vec![Piece { offset, length }] }
}

/// Bytes that the request asks for. Errors: EINVAL if it is malformed or beyond the limits.
pub fn bytes(request: &ReadPieces) -> Result<u64, ErrorReply> {
    let refused = |words: String| ErrorReply::new(Errno::EINVAL, words);
    if request.pieces.is_empty() || request.pieces.len() > OBJECT_PIECES {
        return Err(refused(format!("a read in {} places", request.pieces.len())));
    }
    let (mut at, mut bytes, mut block_bytes, mut blocks_end) = (0, 0, 0, 0);
    for Piece { offset, length } in &request.pieces {
        let end =
            offset.checked_add(u64::from(*length)).filter(|end| *length > 0 && *offset >= at && *end <= FILE_BYTES);
        at = end.ok_or_else(|| refused(format!("a read of {length} bytes at {offset}, behind {at}")))?;
        bytes += u64::from(*length);
        let blocks = blocks_end.max(offset / BLOCK_BYTES * BLOCK_BYTES)..at.next_multiple_of(BLOCK_BYTES);
        (block_bytes, blocks_end) = (block_bytes + blocks.end - blocks.start, blocks.end);
    }
    if bytes > limits::READ_BYTES.into() || block_bytes > limits::READ_BLOCK_BYTES {
        return Err(refused(format!("a read of {bytes} bytes, which lie in {block_bytes} bytes of blocks")));
    }
    Ok(bytes)
}

/// Runs a read of pieces that [`bytes`] has checked. Beyond the object's end there is a hole.
pub async fn run(oss: &Oss, ctx: &Context, request: ReadPieces) -> Attempt<Answer> {
    let fid = request.object.fid;
    let wanted: Vec<Range<u64>> =
        request.pieces.iter().map(|piece| piece.offset..piece.offset + u64::from(piece.length)).collect();
    oss.reported_appends_return(ctx, fid).await?;
    let (row, read) = look(oss, ctx, &request.object, &wanted).await?;
    let mut bulk = Vec::new();
    let mut segments: Vec<ReadSegment> = read.into_iter().map(|segment| describe(segment, &mut bulk)).collect();
    if segments.len() > limits::READ_SEGMENTS {
        (segments, bulk) = in_one(fid, &wanted, &segments, bulk);
    }
    oss.reads_acknowledged(ctx, fid, &wanted).await?;
    let settled = is_settled(oss, ctx, fid, &row).await;
    Ok(Answer::with_bulk(&ReadReply { segments, file_bytes: row.file_bytes, settled }, bulk))
}

/// The object's row and the `wanted` parts of it, both as of one moment. A client that is shown a size is also shown
/// the bytes that made it so, even if other clients write or truncate while the index is read.
async fn look(
    oss: &Oss,
    ctx: &Context,
    object: &ObjectRef,
    wanted: &[Range<u64>],
) -> Attempt<(ObjectRow, Vec<Segment>)> {
    let fid = object.fid;
    loop {
        let known = oss.admissible(ctx, object).await?;
        let was_there = known.is_some();
        let row = known.unwrap_or_default();
        if let [one] = wanted
            && one.start < row.object_bytes
        {
            let there = one.start..one.end.min(row.object_bytes);
            if let Some(mut segments) = oss.read_ahead.read(fid, &there, row.object_bytes).await {
                if there.end < one.end {
                    let (offset, length) = (there.end, one.end - there.end);
                    segments.push(Segment { offset, length, body: SegmentBody::Hole });
                }
                return Ok((row, segments));
            }
        }
        let (now, segments) = oss.store().read_with_row(fid, wanted, &key(fid)).await?;
        let is_gone = was_there && now.is_none();
        let now = now.map(|value| decode(&value)).transpose()?.unwrap_or_default();
        // A truncate or destroy came in between: check again, as a client that does not know of it is to be refused.
        if now.truncate_epoch == row.truncate_epoch && !is_gone {
            return Ok((now, segments));
        }
    }
}

/// The object did not change while it was read, as its row was `before`, and its last change is committed.
async fn is_settled(oss: &Oss, ctx: &Context, fid: Fid, before: &ObjectRow) -> bool {
    let now = oss.load_applied(fid).await.map(Option::unwrap_or_default);
    now.is_ok_and(|now| now.transno == before.transno && now.transno <= ctx.store().last_committed())
}

/// The same verified bytes as one segment for each range, under sums of their own. For data that was written in tiny
/// pieces.
fn in_one(
    fid: Fid,
    wanted: &[Range<u64>],
    segments: &[ReadSegment],
    bulk: Vec<Bytes>,
) -> (Vec<ReadSegment>, Vec<Bytes>) {
    let (mut segments, mut bulk) = (segments.iter().peekable(), bulk.into_iter());
    let mut merged = (Vec::with_capacity(wanted.len()), Vec::with_capacity(wanted.len()));
    for range in wanted {
        let length = (range.end - range.start) as usize;
        let mut bytes = BytesMut::with_capacity(length);
        while let Some(segment) = segments.next_if(|segment| segment.offset < range.end) {
            match segment.data {
                true => bytes.extend_from_slice(&bulk.next().unwrap_or_default()),
                false => bytes.resize(bytes.len() + segment.length as usize, 0),
            }
        }
        let write_id = WriteId::default();
        let sum = |(at, length): (u64, u64)| {
            let from = (at - range.start) as usize;
            crc::block_sum(fid, at, write_id, &bytes[from..from + length as usize])
        };
        let sums = crc::blocks(range.start, length as u64, BLOCK_BYTES).map(sum).collect();
        merged.0.push(ReadSegment { offset: range.start, length: length as u32, data: true, write_id, sums });
        merged.1.push(bytes.freeze());
    }
    merged
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
