//! AppendReserve: the next bytes of the file are the caller's, and nobody else's.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Transno,
    limits::{BLOCK_BYTES, FILE_BYTES},
    message::{AppendPlace, AppendReply, AppendReserve, ObjectRef},
};
use forebay_target::{Answer, Context, store_error};

use super::change::Change;
use crate::{Oss, limits, unheard::Growth};

/// Runs a reservation. A writer that dies before it writes leaves zeros.
///
/// A client that has the reply replays it as a raise to the end of what it was given (crate `rpc`, session/replay.rs): the size
/// that the first execution found may not be there again, if who was given the place before has no reply and is late, or gone. One that
/// had no reply, and asks again, is given the place that it had, where others can tell it (see [`crate::places`]).
pub async fn run(oss: &Oss, ctx: &Context, request: AppendReserve) -> Result<Answer, ErrorReply> {
    let row = oss.admissible(ctx, &request.object).await?;
    // Its room may have been set aside: then the write itself will tell.
    let has_room = row.as_ref().is_some_and(|row| row.aside.bytes() >= request.length.into());
    if request.here && !has_room && !ctx.is_replay() {
        // A range that cannot be filled would stay in the file as zeros. Asked and not kept, so with room for others.
        let bytes = 2 * u64::from(request.length) + limits::APPEND_SLACK_BYTES;
        drop(oss.store().reserve(bytes, bytes.div_ceil(BLOCK_BYTES) as usize).await.map_err(store_error)?);
    }
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    let _raising = oss.raising(row.as_ref(), &request.object);
    let ticket = ctx.admit();
    let transno = ticket.transno();
    oss.note_change(ctx, fid, transno, Vec::new(), Growth::Place);
    let now_ns = oss.now_ns();
    let (session, slot, sequence) = ctx.request();
    let mut place = AppendPlace { session, slot, sequence, file_offset: 0, length: request.length };
    let is_over = |place: &AppendPlace, given: Transno| {
        given <= oss.store().last_committed()
            || oss.target().has_heard(place.session, place.slot, place.sequence, given)
    };
    let answer = Change { fid, epoch: Some(truncate_epoch), extents: None }
        .apply(oss, ctx, ticket, |_txn, row| {
            let told = oss.places.told(fid, truncate_epoch, &place).filter(|_| !planted(Bug::PlaceForgotten));
            let file_offset = told.unwrap_or(row.file_bytes);
            place.file_offset = file_offset;
            let end = file_offset.checked_add(request.length.into()).filter(|end| *end <= FILE_BYTES);
            let end = end.ok_or_else(|| ErrorReply::new(Errno::EFBIG, "an append ends beyond the largest file"))?;
            row.file_bytes = row.file_bytes.max(end);
            row.touch(truncate_epoch, request.attr_epoch, now_ns);
            Ok(AppendReply { file_offset, before: oss.places.before(fid, truncate_epoch, is_over) })
        })
        .await?;
    oss.places.give(fid, truncate_epoch, place, transno, is_over);
    // Who has the reply brings the place back, and what lies before it has to be there.
    oss.growth_told(ctx, fid, transno).await?;
    Ok(answer)
}
