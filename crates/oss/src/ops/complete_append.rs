//! CompleteAppend: the bytes of an append are written, so the file becomes longer by them; or its reservation is given
//! up.

use forebay_proto::{
    Errno, ErrorReply, Transno,
    limits::FILE_BYTES,
    message::{AppendOffset, CompleteAppend, CompleteReply, ObjectRef},
};
use forebay_target::{Answer, Attempt, Context};

use super::change::{Change, is_superseded};
use crate::{Oss, append_offsets::own_offset, reservations::Turn, unacknowledged::Growth};

/// Makes the file longer, once all reservations before it are complete; if it was cancelled, the reply says that it is
/// not filled. A replay, or a request sent again because its reply was lost, raises the size as it did before.
pub async fn run(oss: &Oss, ctx: &Context, request: CompleteAppend) -> Attempt<Answer> {
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    let end = request.file_offset.checked_add(request.length.into()).filter(|end| *end <= FILE_BYTES);
    let end = end.ok_or_else(|| ErrorReply::new(Errno::EFBIG, "an append ends beyond the largest file"))?;
    if ctx.is_replay() {
        oss.append_offsets.report(fid, truncate_epoch, &request.before, end);
        return raise(oss, ctx, &request, end, None).await;
    }
    if request.length == 0 {
        oss.reservations.give_up(fid, request.number);
        return Ok(Answer::read(&NOT_FILLED));
    }
    oss.admissible(ctx, &request.object).await?;
    if oss.reported_offset(ctx, fid, truncate_epoch, request.length) == Some(request.file_offset) {
        let answer = raise(oss, ctx, &request, end, None).await;
        oss.append_offsets.returned();
        oss.applied_is_committed().await?;
        return answer;
    }
    match oss.turn_of(ctx, fid, request.number).await {
        Some(turn) => raise(oss, ctx, &request, end, Some(turn)).await,
        None => Ok(Answer::read(&NOT_FILLED)),
    }
}

const NOT_FILLED: CompleteReply = CompleteReply { filled: false, mtime_ns: 0, attr_epoch: 0, before: Vec::new() };

async fn raise(oss: &Oss, ctx: &Context, request: &CompleteAppend, end: u64, turn: Option<Turn>) -> Attempt<Answer> {
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    let row = oss.may_write(ctx, &request.object).await?;
    let file_bytes = row.as_ref().map_or(0, |row| row.file_bytes);
    if turn.as_ref().is_some_and(|turn| !turn.is_own(oss) || turn.base > file_bytes) {
        // It timed out, or an append that it was placed behind was not made.
        return Ok(Answer::read(&NOT_FILLED));
    }
    let _raising = oss.raising(row.as_ref(), &request.object);
    let ticket = ctx.admit();
    let transno = ticket.transno();
    oss.note_change(ctx, fid, transno, Vec::new(), Growth::Append);
    let _grows = oss.growing.to(fid, transno, end);
    let superseded = is_superseded(ctx, row.as_ref(), truncate_epoch, transno);
    let now_ns = ctx.time_ns();
    let is_over = |place: &AppendOffset, given: Transno| oss.is_reply_received(place, given);
    let answer = Change { fid, under: Some(request.object.clone()), extents: None }
        .apply(oss, ctx, ticket, |_txn, row| -> Attempt<_> {
            if !superseded {
                row.file_bytes = row.file_bytes.max(end);
            }
            row.touch(truncate_epoch, request.attr_epoch, now_ns);
            let before = oss.append_offsets.before(fid, truncate_epoch, is_over);
            Ok(CompleteReply { filled: true, mtime_ns: row.mtime_ns, attr_epoch: row.attr_epoch, before })
        })
        .await?;
    if let Some(turn) = turn {
        turn.done(oss);
    }
    let own = own_offset(ctx, request.length, request.file_offset);
    oss.append_offsets.give(fid, truncate_epoch, own, transno, is_over);
    oss.growth_acknowledged(ctx, fid, transno).await?;
    Ok(answer)
}
