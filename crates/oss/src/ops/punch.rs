//! Punch: a hole in an object.
//!
//! One transaction makes the hole. If the range has too many extents for one, the request is refused with E2BIG, and
//! the caller punches its halves instead. Holes of up to [`PUNCH_BYTES`] are never refused for that.

use std::{ops::Range, slice};

use forebay_proto::{
    Errno, ErrorReply, Fid,
    limits::PUNCH_BYTES,
    message::{ObjectReply, Punch},
};
use forebay_target::{Answer, Attempt, Context};

use super::{
    change::{Change, describe, give_back, is_superseded},
    truncate::STEP_EXTENTS,
};
use crate::{Oss, unacknowledged::Growth};

/// Runs a punch. The size stays.
pub async fn run(oss: &Oss, ctx: &Context, request: Punch) -> Attempt<Answer> {
    let _cutting = oss.cutting();
    let end = request.offset.checked_add(request.length);
    let (Some(end), 1..) = (end, request.length) else {
        let words = format!("a hole of {} bytes at {}", request.length, request.offset);
        return Err(ErrorReply::new(Errno::EINVAL, words).into());
    };
    let row = oss.admissible(ctx, &request.object).await?;
    // The original of a replay was not too large.
    if request.length > PUNCH_BYTES && !ctx.is_replay() {
        refuse_many(oss, request.object.fid, request.offset..end).await?;
    }
    let range = request.offset..end;
    oss.overwrites_acknowledged(ctx, request.object.fid, slice::from_ref(&range)).await?;
    let ticket = ctx.admit();
    oss.note_change(ctx, request.object.fid, ticket.transno(), vec![range], Growth::None);
    let version = ticket.transno();
    let epoch = request.object.truncate_epoch;
    let superseded = is_superseded(ctx, row.as_ref(), epoch, version);
    let now_ns = ctx.time_ns();
    let fid = request.object.fid;
    Change { fid, under: Some(request.object.clone()), extents: Some(request.offset..end) }
        .apply(oss, ctx, ticket, move |txn, row| {
            if !superseded {
                give_back(txn, fid, row, &(request.offset..end))?;
                txn.punch(fid, request.offset..end, version)?;
            }
            row.touch(epoch, request.attr_epoch, now_ns);
            let file_bytes = oss.reportable_size(ctx, fid, version, 0, row.file_bytes);
            Ok(ObjectReply { file_bytes, ..describe(Some(row)) })
        })
        .await
}

async fn refuse_many(oss: &Oss, fid: Fid, range: Range<u64>) -> Attempt<()> {
    oss.store().prefetch_tail(fid, range.clone(), STEP_EXTENTS).await?;
    let begins = oss.store().begin().tail_begins(fid, range.clone(), STEP_EXTENTS)?;
    if begins == range.start {
        return Ok(());
    }
    Err(ErrorReply::new(Errno::E2BIG, format!("a hole of {range:?} takes more than one step")).into())
}
