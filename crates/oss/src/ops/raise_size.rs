//! RaiseSize: a write to another OST has extended the file; this raises the size at the home.

use forebay_proto::{
    Errno, ErrorReply,
    limits::FILE_BYTES,
    message::{ObjectRef, ObjectReply, RaiseSize},
};
use forebay_target::{Answer, Attempt, Context};

use super::change::{Change, describe, is_superseded};
use crate::{Oss, unacknowledged::Growth};

/// Runs a raise. It takes the maximum, so order does not matter within an epoch.
pub async fn run(oss: &Oss, ctx: &Context, request: RaiseSize) -> Attempt<Answer> {
    if request.file_bytes > FILE_BYTES {
        return Err(ErrorReply::new(Errno::EFBIG, format!("a size of {}", request.file_bytes)).into());
    }
    let row = oss.admissible(ctx, &request.object).await?;
    let _raising = oss.raising(row.as_ref(), &request.object);
    if ctx.is_replay() {
        let ObjectRef { fid, truncate_epoch, .. } = request.object;
        oss.append_offsets.report(fid, truncate_epoch, &request.before, request.file_bytes);
    }
    let ticket = ctx.admit();
    let growth = Growth::between(row.as_ref().map_or(0, |row| row.file_bytes), request.file_bytes);
    let (fid, epoch, transno) = (request.object.fid, request.object.truncate_epoch, ticket.transno());
    oss.note_change(ctx, fid, transno, Vec::new(), growth);
    let _grows = oss.growing.to(fid, transno, request.file_bytes);
    let superseded = is_superseded(ctx, row.as_ref(), epoch, transno);
    let now_ns = ctx.time_ns();
    Change { fid, under: Some(request.object.clone()), extents: None }
        .apply(oss, ctx, ticket, move |_txn, row| {
            if !superseded {
                row.file_bytes = row.file_bytes.max(request.file_bytes);
            }
            row.touch(epoch, request.attr_epoch, now_ns);
            let file_bytes = oss.reportable_size(ctx, fid, transno, request.file_bytes, row.file_bytes);
            Ok(ObjectReply { file_bytes, ..describe(Some(row)) })
        })
        .await
}
