//! Punch: a hole in an object.

use forebay_proto::{Errno, ErrorReply, limits::PUNCH_BYTES, message::Punch};
use forebay_target::{Answer, Context, store_error};

use super::change::{Change, describe, give_back, is_superseded};
use crate::Oss;

/// Runs a punch. The size stays.
pub async fn run(oss: &Oss, ctx: &Context, request: Punch) -> Result<Answer, ErrorReply> {
    let end = request.offset.checked_add(request.length);
    let (Some(end), 1..=PUNCH_BYTES) = (end, request.length) else {
        return Err(ErrorReply::new(
            Errno::EINVAL,
            format!("a hole of {} bytes at {}", request.length, request.offset),
        ));
    };
    let row = oss.admissible(ctx, &request.object).await?;
    let ticket = ctx.admit();
    let version = ticket.transno();
    let epoch = request.object.truncate_epoch;
    let superseded = is_superseded(ctx, row.as_ref(), epoch, version);
    let now_ns = oss.now_ns();
    let fid = request.object.fid;
    Change { fid, epoch: Some(epoch), extents: Some(request.offset..end) }
        .apply(oss, ctx, ticket, move |txn, row| {
            if !superseded {
                give_back(txn, fid, row, &(request.offset..end))?;
                txn.punch(fid, request.offset..end, version).map_err(store_error)?;
            }
            row.touch(request.attr_epoch, now_ns);
            Ok(describe(Some(row)))
        })
        .await
}
