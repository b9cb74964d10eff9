//! ReservePlace: where the next append lies whose bytes go elsewhere. The file does not become longer by it.

use forebay_proto::{
    Errno, ErrorReply,
    limits::FILE_BYTES,
    message::{ObjectRef, PlaceReply, ReservePlace},
};
use forebay_target::{Answer, Context, store_error};

use super::write::check_size;
use crate::{
    Oss,
    lines::{End, Place},
    object::key,
    server::decode,
};

/// Gives a place. It is kept in memory: whoever has one when this server ends asks again, and so does one that is not told.
pub async fn run(oss: &Oss, ctx: &Context, request: ReservePlace) -> Result<Answer, ErrorReply> {
    check_size(request.file_bytes)?;
    oss.admissible(ctx, &request.object).await?;
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    let row = oss.store().get(&key(fid)).map_err(store_error)?.map(|value| decode(&value)).transpose()?;
    let visible = row.map_or(0, |row| row.file_bytes).max(request.file_bytes);
    let end = End { visible, growing: oss.growing.end(fid) };
    let line = (fid, Some(truncate_epoch));
    let place = oss.lines.join(line, ctx.session(), end, request.length.into(), oss.env().now());
    let Place { offset: file_offset, number, generation, .. } = place;
    if file_offset.checked_add(request.length.into()).is_none_or(|end| end > FILE_BYTES) {
        oss.lines.give_up(fid, number);
        return Err(ErrorReply::new(Errno::EFBIG, "an append ends beyond the largest file"));
    }
    Ok(Answer::read(&PlaceReply { file_offset, number, generation }))
}
