//! Allocate: reserves space for later writes (fallocate).

use std::ops::Range;

use forebay_proto::{
    Errno, ErrorReply, Fid,
    limits::FILE_BYTES,
    message::{Allocate, AllocateReply},
};
use forebay_target::{Answer, Attempt, Context};

use super::change::{Change, is_superseded};
use crate::{ObjectRow, Oss, limits};

/// Reserves space for all of the range, or of its first part, that holds no bytes and is not reserved. Whether there is
/// space is decided at admission.
pub async fn run(oss: &Oss, ctx: &Context, request: Allocate) -> Attempt<Answer> {
    let _cutting = oss.cutting();
    let end = request.offset.checked_add(request.length).filter(|end| *end <= FILE_BYTES && *end > request.offset);
    let Some(end) = end else {
        let words = format!("to set room aside for {} bytes at {}", request.length, request.offset);
        return Err(ErrorReply::new(Errno::EFBIG, words).into());
    };
    let row = oss.admissible(ctx, &request.object).await?;
    let (fid, epoch, now_ns) = (request.object.fid, request.object.truncate_epoch, ctx.time_ns());
    let end = first_part(row.as_ref(), request.offset, end);
    let asked = request.offset..end;
    let range = row.as_ref().map_or_else(|| asked.clone(), |row| row.aside.reach(asked.clone()));
    let wanted = wanted(oss, row.as_ref(), fid, &range).await?;
    // The original of a replay had its space.
    let room = if ctx.is_replay() { None } else { Some(oss.store().promise(wanted)?) };
    let ticket = ctx.admit();
    let superseded = is_superseded(ctx, row.as_ref(), epoch, ticket.transno());
    let answer = Change { fid, under: Some(request.object.clone()), extents: Some(range.clone()) }
        .apply(oss, ctx, ticket, move |txn, row| {
            // Other ranges may have been added meanwhile. If the extended range then exceeds what space was promised
            // for, reserve only what was asked for.
            let reached = row.aside.reach(asked.clone());
            let fits = range.start <= reached.start && reached.end <= range.end;
            let range = if fits { reached } else { asked };
            let range = range.start..if superseded { range.end.min(row.truncated_bytes) } else { range.end };
            let mut bytes = 0;
            for part in row.aside.outside(&range) {
                bytes += part.end - part.start - txn.data_bytes(fid, part)?;
            }
            if bytes > 0 && !row.aside.add(range, bytes) {
                let words = format!("{fid}: room is set aside in {} places already", limits::RESERVED_RANGES);
                return Err(ErrorReply::new(Errno::ENOSPC, words).into());
            }
            row.touch(epoch, request.attr_epoch, now_ns);
            Ok(AllocateReply { end, mtime_ns: row.mtime_ns, attr_epoch: row.attr_epoch })
        })
        .await;
    // Held until the row counts it.
    drop(room);
    answer
}

/// End of the part that one request covers. Beyond the object's bytes there are no extents to read.
fn first_part(row: Option<&ObjectRow>, offset: u64, end: u64) -> u64 {
    let object_bytes = row.map_or(0, |row| row.object_bytes);
    if offset >= object_bytes { end } else { end.min(offset + limits::ALLOCATE_BYTES) }
}

async fn wanted(oss: &Oss, row: Option<&ObjectRow>, fid: Fid, range: &Range<u64>) -> Attempt<u64> {
    let outside = row.map_or_else(|| vec![range.clone()], |row| row.aside.outside(range));
    let mut bytes = 0;
    for part in outside {
        bytes += part.end - part.start - oss.data_bytes(fid, part).await?;
    }
    Ok(bytes)
}
