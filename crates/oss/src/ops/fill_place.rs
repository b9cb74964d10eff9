//! FillPlace: the bytes of an append are where they belong, so the file becomes longer by them; or its place is given up.

use forebay_proto::{
    Errno, ErrorReply, Transno,
    limits::FILE_BYTES,
    message::{AppendPlace, FillPlace, FillReply, ObjectRef},
};
use forebay_target::{Answer, Context};

use super::change::{Change, is_superseded};
use crate::{Oss, lines::Turn, places::own_place, unheard::Growth};

/// Makes the file longer, when those before it have, or were given up. A replay, and one that was not told that it did, raises
/// the size as it did before.
pub async fn run(oss: &Oss, ctx: &Context, request: FillPlace) -> Result<Answer, ErrorReply> {
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    let end = request.file_offset.checked_add(request.length.into()).filter(|end| *end <= FILE_BYTES);
    let end = end.ok_or_else(|| ErrorReply::new(Errno::EFBIG, "an append ends beyond the largest file"))?;
    if ctx.is_replay() {
        oss.places.tell(fid, truncate_epoch, &request.before, end);
        return raise(oss, ctx, &request, end, None).await;
    }
    if request.length == 0 {
        oss.lines.give_up(fid, request.number);
        return Ok(Answer::read(&NOT_FILLED));
    }
    oss.admissible(ctx, &request.object).await?;
    if oss.place_told(ctx, fid, truncate_epoch, request.length) == Some(request.file_offset) {
        let answer = raise(oss, ctx, &request, end, None).await;
        oss.places.came();
        oss.applied_is_committed().await?;
        return answer;
    }
    match oss.turn_of(ctx, fid, request.number).await {
        Some(turn) => raise(oss, ctx, &request, end, Some(turn)).await,
        None => Ok(Answer::read(&NOT_FILLED)),
    }
}

const NOT_FILLED: FillReply = FillReply { filled: false, mtime_ns: 0, attr_epoch: 0, before: Vec::new() };

async fn raise(
    oss: &Oss,
    ctx: &Context,
    request: &FillPlace,
    end: u64,
    turn: Option<Turn>,
) -> Result<Answer, ErrorReply> {
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    let row = oss.may_write(ctx, &request.object).await?;
    let file_bytes = row.as_ref().map_or(0, |row| row.file_bytes);
    if turn.as_ref().is_some_and(|turn| !turn.is_own(oss) || turn.base > file_bytes) {
        // It took too long, or what it was put behind was not made.
        return Ok(Answer::read(&NOT_FILLED));
    }
    let _raising = oss.raising(row.as_ref(), &request.object);
    let ticket = ctx.admit();
    let transno = ticket.transno();
    oss.note_change(ctx, fid, transno, Vec::new(), Growth::Append);
    let _grows = oss.growing.to(fid, transno, end);
    let superseded = is_superseded(ctx, row.as_ref(), truncate_epoch, transno);
    let now_ns = ctx.time_ns();
    let is_over = |place: &AppendPlace, given: Transno| oss.is_heard(place, given);
    let answer = Change { fid, epoch: Some(truncate_epoch), extents: None }
        .apply(oss, ctx, ticket, |_txn, row| {
            if !superseded {
                row.file_bytes = row.file_bytes.max(end);
            }
            row.touch(truncate_epoch, request.attr_epoch, now_ns);
            let before = oss.places.before(fid, truncate_epoch, is_over);
            Ok(FillReply { filled: true, mtime_ns: row.mtime_ns, attr_epoch: row.attr_epoch, before })
        })
        .await?;
    if let Some(turn) = turn {
        turn.done(oss);
    }
    let own = own_place(ctx, request.length, request.file_offset);
    oss.places.give(fid, truncate_epoch, own, transno, is_over);
    oss.growth_told(ctx, fid, transno).await?;
    Ok(answer)
}
