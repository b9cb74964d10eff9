//! Append: bytes to the end of the file, where that lies in this object. Size and bytes become visible together.

use std::ops::Range;

use bytes::Bytes;
use forebay_proto::{
    Errno, ErrorReply, Transno, crc,
    limits::{BLOCK_BYTES, BULK_BYTES, FILE_BYTES},
    message::{AppendObject, AppendOffset, AppendReply, ObjectRef, Piece, WritePieces, WriteReply},
};
use forebay_store::Fragment;
use forebay_target::{Abort, Answer, Attempt, Context};

use super::{
    change::Change,
    write::{WriteOf, check_size, run_as},
};
use crate::{Oss, append_offsets::own_offset, limits, object::key, server::decode, unacknowledged::Growth};

/// Runs an append.
///
/// Its offset is the end at its admission: behind everything admitted before it, so appends are in flight side by side.
/// If one of those fails, this append moves to where the file ends then. The reply waits until the changes before it
/// are acknowledged: a client with the reply replays the append at its offset, and the bytes before it must be there. A
/// replay names its offset.
pub async fn run(oss: &Oss, ctx: &Context, request: AppendObject, bulk: Bytes) -> Attempt<Answer> {
    check(&request, &bulk)?;
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    if ctx.is_replay() {
        let end = request.file_offset.saturating_add(request.length.into());
        oss.append_offsets.report(fid, truncate_epoch, &request.before, end);
        return write_at(oss, ctx, &request, request.file_offset, bulk).await;
    }
    oss.admissible(ctx, &request.object).await?;
    if let Some(offset) = oss.reported_offset(ctx, fid, truncate_epoch, request.length) {
        let answer = write_at(oss, ctx, &request, offset, bulk).await;
        oss.append_offsets.returned();
        oss.applied_is_committed().await?;
        return answer;
    }
    let mut end = 0;
    for _ in 0..limits::APPEND_TRIES {
        match once(oss, ctx, &request, &bulk).await? {
            Outcome::Appended(answer) => return Ok(answer),
            Outcome::Elsewhere(now) => {
                end = now;
                break;
            }
            Outcome::Moved(now) => end = now,
        }
    }
    let (mtime_ns, attr_epoch, before) = (0, 0, Vec::new());
    Ok(Answer::read(&AppendReply { appended: false, file_offset: end, mtime_ns, attr_epoch, before }))
}

enum Outcome {
    Appended(Answer),
    /// The file ends there: outside the range of this request.
    Elsewhere(u64),
    /// A change before it was not made, or the end has moved.
    Moved(u64),
}

/// Why an append was not applied.
enum NotAppended {
    /// The file ends elsewhere by now.
    Moved,
    Aborted(Abort),
}

impl From<Abort> for NotAppended {
    fn from(abort: Abort) -> Self {
        Self::Aborted(abort)
    }
}

fn check(request: &AppendObject, bulk: &Bytes) -> Result<(), ErrorReply> {
    let (length, from, to) = (request.length as usize, request.from, request.to);
    if length == 0 || length > BULK_BYTES || bulk.len() != length || from > to {
        let words = format!("an append of {length} bytes between {from} and {to} came with {}", bulk.len());
        return Err(ErrorReply::new(Errno::EINVAL, words));
    }
    if request.offset.checked_add(to.min(FILE_BYTES).saturating_sub(from)).is_none_or(|end| end > FILE_BYTES) {
        return Err(ErrorReply::new(Errno::EFBIG, "an object ends beyond the largest file"));
    }
    check_size(request.file_bytes)
}

/// Where in the object the append lies if it begins at `end` of the file. `None`: it does not fit.
fn object_range(request: &AppendObject, end: u64) -> Option<Range<u64>> {
    let length = u64::from(request.length);
    let fits = end >= request.from && end.checked_add(length)? <= request.to.min(FILE_BYTES);
    let at = fits.then(|| request.offset + (end - request.from))?;
    Some(at..at + length)
}

/// Sums of the blocks of `bulk` at `offset`. Their combination must match the writer's sum.
fn block_sums(request: &AppendObject, offset: u64, bulk: &Bytes) -> Result<Vec<u64>, ErrorReply> {
    let (fid, write_id) = (request.object.fid, request.write_id);
    let (mut sums, mut whole) = (Vec::new(), None);
    for (block, length) in crc::blocks(offset, bulk.len() as u64, BLOCK_BYTES) {
        let at = (block - offset) as usize;
        let plain = crc::crc64(&bulk[at..at + length as usize]);
        whole = Some(whole.map_or(plain, |before| crc::combine(before, plain, length)));
        sums.push(crc::seal(fid, block, write_id, plain, length));
    }
    let got = crc::seal(fid, 0, write_id, whole.unwrap_or(0), bulk.len() as u64);
    if got != request.sum {
        let words = format!(
            "{fid}: an append arrived damaged: its writer summed {:#018x}, here it is {got:#018x}",
            request.sum
        );
        return Err(ErrorReply::new(Errno::EPROTO, words));
    }
    Ok(sums)
}

async fn once(oss: &Oss, ctx: &Context, request: &AppendObject, bulk: &Bytes) -> Attempt<Outcome> {
    let ObjectRef { fid, truncate_epoch, .. } = request.object;
    let row = oss.admissible(ctx, &request.object).await?;
    let visible = row.as_ref().map_or(0, |row| row.file_bytes).max(request.file_bytes);
    let end = visible.max(oss.growing.end(fid)).max(oss.reservations.end(fid));
    let Some(expected) = object_range(request, end) else { return Ok(Outcome::Elsewhere(end)) };
    let turn = oss.turn(ctx, (fid, Some(truncate_epoch)), request.length.into()).await?;
    let aside = oss.unwritten_reserved_in(fid, row.as_ref(), &expected).await?;
    let mut room = oss.store().reserve_from(bulk.len() as u64, 1, aside).await?;
    room.fills(aside);
    // From here to the admission nothing is awaited.
    let row = oss.store().get(&key(fid))?.map(|value| decode(&value)).transpose()?;
    let end = row.as_ref().map_or(0, |row| row.file_bytes).max(request.file_bytes).max(oss.growing.end(fid));
    let is_its_turn = match &turn {
        Some(turn) => turn.is_own(oss) && end >= turn.base,
        None => oss.reservations.is_empty(fid),
    };
    if !is_its_turn {
        return Ok(Outcome::Moved(end));
    }
    let Some(range) = object_range(request, end) else { return Ok(Outcome::Elsewhere(end)) };
    let sums = block_sums(request, range.start, bulk)?;
    let file_end = end + u64::from(request.length);
    let _raising = oss.raising(row.as_ref(), &request.object);
    let ticket = ctx.admit();
    let transno = ticket.transno();
    oss.note_change(ctx, fid, transno, vec![range.clone()], Growth::Append);
    let _grows = oss.growing.to(fid, transno, file_end);
    let fragment = Fragment {
        fid,
        offset: range.start,
        data: bulk.clone(),
        write_id: request.write_id,
        version: transno,
        generation: request.object.layout_generation,
        sums,
    };
    let placed = oss.store().place(room, vec![fragment]).await?;
    let now_ns = ctx.time_ns();
    let is_over = |place: &AppendOffset, given: Transno| oss.is_reply_received(place, given);
    let change = Change { fid, under: Some(request.object.clone()), extents: Some(range.clone()) };
    let applied = change
        .apply(oss, ctx, ticket, |txn, row| {
            if row.file_bytes.max(request.file_bytes) != end {
                return Err(NotAppended::Moved);
            }
            let mut filled = 0;
            for part in row.aside.within(&range) {
                filled += part.end - part.start - txn.data_bytes(fid, part).map_err(Abort::from)?;
            }
            row.aside.fill(filled);
            txn.insert(placed).map_err(Abort::from)?;
            row.object_bytes = row.object_bytes.max(range.end);
            row.file_bytes = file_end;
            row.reservation_generation = row.reservation_generation.max(oss.reservations.fence(fid));
            row.touch(truncate_epoch, request.attr_epoch, now_ns);
            let before = oss.append_offsets.before(fid, truncate_epoch, is_over);
            let (mtime_ns, attr_epoch) = (row.mtime_ns, row.attr_epoch);
            Ok(AppendReply { appended: true, file_offset: end, mtime_ns, attr_epoch, before })
        })
        .await;
    let answer = match applied {
        Ok(answer) => answer,
        Err(NotAppended::Moved) => return Ok(Outcome::Moved(end)),
        Err(NotAppended::Aborted(abort)) => return Err(abort),
    };
    if let Some(turn) = turn {
        turn.done(oss);
    }
    oss.append_offsets.give(fid, truncate_epoch, own_offset(ctx, request.length, end), transno, is_over);
    oss.growth_acknowledged(ctx, fid, transno).await?;
    Ok(Outcome::Appended(answer))
}

/// An append that already has its offset.
async fn write_at(oss: &Oss, ctx: &Context, request: &AppendObject, file_offset: u64, bulk: Bytes) -> Attempt<Answer> {
    let Some(range) = object_range(request, file_offset) else {
        return Err(ErrorReply::new(Errno::EINVAL, format!("no append lies at {file_offset}")).into());
    };
    let write = WritePieces {
        object: request.object.clone(),
        pieces: vec![Piece { offset: range.start, length: request.length }],
        write_id: request.write_id,
        sums: block_sums(request, range.start, &bulk)?,
        file_bytes: file_offset + u64::from(request.length),
        attr_epoch: request.attr_epoch,
        granted_bytes: 0,
    };
    let reply = |WriteReply { mtime_ns, attr_epoch, .. }| {
        let before = Vec::new();
        AppendReply { appended: true, file_offset, mtime_ns, attr_epoch, before }
    };
    run_as(oss, ctx, write, bulk, WriteOf::Append, reply).await
}

impl Oss {
    /// Whether the append at `place` is committed, or its client has received the reply.
    pub(super) fn is_reply_received(&self, place: &AppendOffset, given: Transno) -> bool {
        given <= self.store().last_committed()
            || self.target().has_reply_received(place.session, place.slot, place.sequence, given)
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Fid, WriteId, message::AT_END};

    use super::*;

    fn request(bulk: &Bytes) -> AppendObject {
        let object = ObjectRef { fid: Fid { high: 0, low: 77 }, layout_generation: 1, truncate_epoch: 0 };
        let write_id = WriteId { client: 1, sequence: 2 };
        let sum = crc::block_sum(object.fid, 0, write_id, bulk);
        let (file_bytes, attr_epoch, file_offset) = (0, 0, AT_END);
        let (from, to, offset, length) = (1 << 20, 2 << 20, 5 << 20, bulk.len() as u32);
        let before = Vec::new();
        AppendObject { object, file_bytes, from, to, offset, length, write_id, sum, attr_epoch, file_offset, before }
    }

    #[test]
    fn an_append_fits_between_the_ends_of_what_its_object_has_of_the_file() {
        let bulk = Bytes::from(vec![7u8; 100]);
        let at = |end| object_range(&request(&bulk), end);
        assert_eq!(at(1 << 20), Some(5 << 20..(5 << 20) + 100));
        assert_eq!(at((2 << 20) - 100), Some((6 << 20) - 100..6 << 20));
        assert_eq!((at((1 << 20) - 1), at((2 << 20) - 99), at(u64::MAX)), (None, None, None));
    }

    #[test]
    fn blocks_are_summed_where_the_append_lies_and_are_what_its_writer_summed() {
        let bulk: Bytes = (0..200_000u32).map(|i| (i >> 3) as u8).collect();
        let request = request(&bulk);
        for offset in [0, 1, 65_535, 65_536, 1_000_000] {
            let expected: Vec<u64> = crc::blocks(offset, bulk.len() as u64, BLOCK_BYTES)
                .map(|(block, length)| {
                    let at = (block - offset) as usize;
                    crc::block_sum(request.object.fid, block, request.write_id, &bulk[at..at + length as usize])
                })
                .collect();
            assert_eq!(block_sums(&request, offset, &bulk), Ok(expected));
            let mut damaged = bulk.to_vec();
            damaged[123_456] ^= 1;
            assert_eq!(block_sums(&request, offset, &damaged.into()).unwrap_err().errno, Errno::EPROTO);
        }
    }

    #[test]
    fn lengths_must_agree() {
        let bulk = Bytes::from(vec![7u8; 100]);
        let good = request(&bulk);
        assert_eq!(check(&good, &bulk), Ok(()));
        assert!(check(&AppendObject { length: 99, ..good.clone() }, &bulk).is_err());
        assert!(check(&AppendObject { from: 3 << 20, ..good.clone() }, &bulk).is_err());
        assert!(check(&AppendObject { offset: FILE_BYTES, ..good.clone() }, &bulk).is_err());
        assert!(check(&AppendObject { file_bytes: FILE_BYTES + 1, ..good.clone() }, &bulk).is_err());
        assert!(check(&AppendObject { length: 0, ..good }, &Bytes::new()).is_err());
    }
}
