//! ReserveAppend: the offset of an append whose bytes follow in other requests. The file does not become longer by it.

use forebay_proto::{
    Errno, ErrorReply,
    limits::FILE_BYTES,
    message::{ObjectRef, ReserveAppend, ReserveReply},
};
use forebay_target::{Answer, Attempt, Context};

use super::write::check_size;
use crate::{
    Oss,
    object::key,
    reservations::{AppendReservation, End},
    server::decode,
};

/// Gives a reservation. It is kept in memory: after a restart of the server, or a lost reply, the client reserves
/// again.
pub async fn run(oss: &Oss, ctx: &Context, request: ReserveAppend) -> Attempt<Answer> {
    check_size(request.file_bytes)?;
    oss.admissible(ctx, &request.object).await?;
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    let row = oss.store().get(&key(fid))?.map(|value| decode(&value)).transpose()?;
    let visible = row.map_or(0, |row| row.file_bytes).max(request.file_bytes);
    let end = End { visible, growing: oss.growing.end(fid) };
    let line = (fid, Some(truncate_epoch));
    let place = oss.reservations.join(line, ctx.session(), end, request.length.into(), oss.env().now());
    let AppendReservation { offset: file_offset, number, generation, .. } = place;
    if file_offset.checked_add(request.length.into()).is_none_or(|end| end > FILE_BYTES) {
        oss.reservations.give_up(fid, number);
        return Err(ErrorReply::new(Errno::EFBIG, "an append ends beyond the largest file").into());
    }
    Ok(Answer::read(&ReserveReply { file_offset, number, generation }))
}
