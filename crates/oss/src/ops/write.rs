//! Write: bytes to the next free place of the device, then the index, in the order of transnos.

use std::ops::Range;

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    Encode, Errno, ErrorReply, Transno, crc,
    limits::{BLOCK_BYTES, BULK_BYTES, FILE_BYTES, OBJECT_PIECES},
    message::{Piece, WriteObject, WritePieces, WriteReply, WriteReserved},
};
use forebay_store::{Fragment, Reservation, StoreErrorKind, StoreResult, Txn};
use forebay_target::{Answer, Attempt, Context, Ticket, store_error};

use super::change::{Change, is_superseded};
use crate::{ObjectRow, Oss, admission::stale, unacknowledged::Growth};

/// More than what a piece takes beside its bytes (sums, extents).
const REPLAY_SLACK_BYTES: u64 = 16 << 10;

/// A write of one piece, in the form of a write of several.
pub fn one_piece(request: WriteObject) -> WritePieces {
    let WriteObject { object, offset, length, write_id, sums, file_bytes, attr_epoch, granted_bytes } = request;
    WritePieces {
        object,
        pieces: vec![Piece { offset, length }],
        write_id,
        sums,
        file_bytes,
        attr_epoch,
        granted_bytes,
    }
}

/// Runs a write. All pieces become visible at once, or none.
pub async fn run(oss: &Oss, ctx: &Context, request: WritePieces, bulk: Bytes) -> Attempt<Answer> {
    run_as(oss, ctx, request, bulk, WriteOf::Offset, |written| written).await
}

/// Runs a write of bytes for an append reservation. It is refused if the object has bytes of a later generation (see
/// [`crate::reservations`]).
pub async fn run_reserved(oss: &Oss, ctx: &Context, request: WriteReserved, bulk: Bytes) -> Attempt<Answer> {
    run_as(oss, ctx, one_piece(request.write), bulk, WriteOf::Place(request.generation), |written| written).await
}

/// What the bytes are written for.
#[derive(Clone, Copy)]
pub enum WriteOf {
    /// An offset that the client chose.
    Offset,
    /// An append reservation of this generation.
    Place(u64),
    /// An append at the home that already has its offset.
    Append,
}

/// Runs a write whose reply is built by `reply`.
pub async fn run_as<R: Encode>(
    oss: &Oss,
    ctx: &Context,
    request: WritePieces,
    bulk: Bytes,
    of: WriteOf,
    reply: impl Fn(WriteReply) -> R,
) -> Attempt<Answer> {
    let parts = check(&request, &bulk)?;
    let row = oss.may_write(ctx, &request.object).await?;
    let fid = request.object.fid;
    let ranges: Vec<Range<u64>> = parts.iter().map(Part::range).collect();
    oss.overwrites_acknowledged(ctx, fid, &ranges).await?;
    let mut aside = 0;
    for part in &parts {
        aside += oss.unwritten_reserved_in(fid, row.as_ref(), &part.range()).await?;
    }
    let fills = aside;
    if ctx.is_replay() {
        // The original found space before the writes behind it, which now wait for their replay beside it.
        aside = aside.max(bulk.len() as u64 + parts.len() as u64 * REPLAY_SLACK_BYTES);
    }
    let mut room = room_for(oss, ctx, &request, &bulk, aside).await?;
    room.fills(fills);
    // Mostly those changes are acknowledged by now. A wait here holds reserved space.
    oss.overwrites_acknowledged(ctx, fid, &ranges).await?;
    let early = oss.may_reply_early(ctx, &request.object).filter(|_| !matches!(of, WriteOf::Place(_)));
    let _raising = oss.raising(row.as_ref(), &request.object);
    let ticket = ctx.admit();
    let transno = ticket.transno();
    let growth = Growth::between(row.as_ref().map_or(0, |row| row.file_bytes), request.file_bytes);
    oss.note_change(ctx, fid, transno, ranges, growth);
    let _grows = oss.growing.to(fid, transno, request.file_bytes);
    let told_ns = early.map(|row| reply_early(oss, ctx, &ticket, &request, row, &reply));
    let end = kept_end(ctx, row.as_ref(), &request, &ticket);
    let parts: Vec<Part> = parts.into_iter().filter_map(|part| part.until(end, &request)).collect();
    let written: Vec<Range<u64>> = parts.iter().map(Part::range).collect();
    let whole = written.first().map_or(0, |first| first.start)..written.last().map_or(0, |last| last.end);
    let change = Change { fid, under: Some(request.object.clone()), extents: Some(whole.clone()) };
    let fragments: Vec<Fragment> = parts.into_iter().map(|part| part.fragment(&request, transno)).collect();
    let placed = match fragments.len() {
        0 => {
            // Nothing is placed. The request waits for its turn now, and others may wait for this space.
            drop(room);
            None
        }
        _ => match oss.store().place(room, fragments).await {
            Err(error) if told_ns.is_some() => {
                return Err(ctx.fail_acknowledged(ticket, store_error(error)).await.into());
            }
            placed => Some(placed?),
        },
    };
    let now_ns = told_ns.unwrap_or_else(|| ctx.time_ns());
    let apply = |txn: &mut Txn, row: &mut ObjectRow| -> Attempt<R> {
        match of {
            WriteOf::Offset => {}
            WriteOf::Place(generation) => admit_reserved(ctx, &request, row, generation)?,
            WriteOf::Append => row.reservation_generation = row.reservation_generation.max(oss.reservations.fence(fid)),
        }
        if let Some(placed) = &placed {
            let mut filled = 0;
            for part in written.iter().flat_map(|written| row.aside.within(written)) {
                filled += part.end - part.start - txn.data_bytes(fid, part)?;
            }
            row.aside.fill(filled);
            txn.insert(placed.clone())?;
            row.object_bytes = row.object_bytes.max(whole.end);
            row.file_bytes = row.file_bytes.max(request.file_bytes);
        }
        row.touch(request.object.truncate_epoch, request.attr_epoch, now_ns);
        let file_bytes = oss.reportable_size(ctx, fid, transno, request.file_bytes, row.file_bytes);
        Ok(reply(WriteReply { file_bytes, mtime_ns: row.mtime_ns, attr_epoch: row.attr_epoch }))
    };
    if told_ns.is_none() {
        return change.apply(oss, ctx, ticket, apply).await;
    }
    match change.apply_surely(oss, ctx, &ticket, apply).await {
        Ok(answer) => Ok(answer),
        Err(error) => Err(ctx.fail_acknowledged(ticket, error).await.into()),
    }
}

/// Replays run side by side until one finds no space. From then on they run one by one, in order: the replays before
/// one free the space that its original found, and those behind it have taken none of it.
async fn room_for(
    oss: &Oss,
    ctx: &Context,
    request: &WritePieces,
    bulk: &Bytes,
    aside: u64,
) -> StoreResult<Reservation> {
    let reserve = |aside| oss.store().reserve_from(bulk.len() as u64, request.pieces.len(), aside);
    if !ctx.is_replay() {
        let Some(granted) = oss.grants.take(ctx.session(), request.granted_bytes.into()) else {
            return reserve(aside).await;
        };
        let room = reserve(aside + granted.bytes()).await;
        if room.is_err() && !ctx.has_ended() {
            oss.grants.put_back(ctx.session(), granted);
        }
        return room;
    }
    let reserve = || reserve(aside);
    if !oss.replays_in_turn.get() {
        match reserve().await {
            Err(error) if error.kind == StoreErrorKind::Full => oss.replays_in_turn.set(true),
            room => return room,
        }
    }
    ctx.admit().turn().await;
    reserve().await
}

/// Bytes for a reservation of `generation` are written. They are refused if the object has bytes of a later generation,
/// whose reservation may be at the same offset.
fn admit_reserved(
    ctx: &Context,
    request: &WritePieces,
    row: &mut ObjectRow,
    generation: u64,
) -> Result<(), ErrorReply> {
    let epoch = request.object.truncate_epoch;
    if generation < row.reservation_generation && !ctx.is_replay() && !planted(Bug::ReservationNotFenced) {
        return Err(stale(request.object.fid, row.truncate_epoch, epoch));
    }
    if epoch == row.truncate_epoch {
        row.reservation_generation = row.reservation_generation.max(generation);
    }
    Ok(())
}

/// Level `memory`: replies with the result of the write as far as it is known. Returns the time of the write.
fn reply_early<R: Encode>(
    oss: &Oss,
    ctx: &Context,
    ticket: &Ticket,
    request: &WritePieces,
    mut row: ObjectRow,
    reply: impl Fn(WriteReply) -> R,
) -> i64 {
    let (fid, now_ns) = (request.object.fid, ctx.time_ns());
    row.touch(request.object.truncate_epoch, request.attr_epoch, now_ns);
    let file_bytes = row.file_bytes.max(request.file_bytes);
    let file_bytes = oss.reportable_size(ctx, fid, ticket.transno(), request.file_bytes, file_bytes);
    let (mtime_ns, attr_epoch) = (row.mtime_ns, row.attr_epoch);
    ticket.reply_early(fid, &reply(WriteReply { file_bytes, mtime_ns, attr_epoch }));
    now_ns
}

/// A piece with its bytes and their sums.
struct Part {
    offset: u64,
    data: Bytes,
    sums: Vec<u64>,
}

impl Part {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }

    /// The part of it before `end`.
    fn until(self, end: u64, request: &WritePieces) -> Option<Self> {
        let kept = end.saturating_sub(self.offset).min(self.data.len() as u64);
        if kept == self.data.len() as u64 {
            return Some(self);
        }
        // A clipped replay cuts its last block, which was verified whole in `check`.
        let data = self.data.slice(..kept as usize);
        let sums = sums(request, self.offset, &data).collect();
        (kept > 0).then_some(Self { data, sums, ..self })
    }

    fn fragment(self, request: &WritePieces, version: Transno) -> Fragment {
        Fragment {
            fid: request.object.fid,
            offset: self.offset,
            data: self.data,
            write_id: request.write_id,
            version,
            generation: request.object.layout_generation,
            sums: self.sums,
        }
    }
}

/// Block sums of `data` at `offset`.
fn sums<'a>(request: &'a WritePieces, offset: u64, data: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
    crc::blocks(offset, data.len() as u64, BLOCK_BYTES).map(move |(block, length)| {
        let at = (block - offset) as usize;
        crc::block_sum(request.object.fid, block, request.write_id, &data[at..at + length as usize])
    })
}

/// Checks that the lengths agree, and that the bytes match their writer's sums. Returns the pieces with their bytes.
fn check(request: &WritePieces, bulk: &Bytes) -> Result<Vec<Part>, ErrorReply> {
    let length: usize = request.pieces.iter().map(|piece| piece.length as usize).sum();
    if length == 0 || length > BULK_BYTES || bulk.len() != length || request.pieces.len() > OBJECT_PIECES {
        return Err(ErrorReply::new(Errno::EINVAL, format!("a write of {length} bytes came with {}", bulk.len())));
    }
    check_size(request.file_bytes)?;
    let (mut parts, mut before, mut at, mut rest) = (Vec::new(), 0, 0, &request.sums[..]);
    for Piece { offset, length } in &request.pieces {
        let Some(end) = offset.checked_add(u64::from(*length)).filter(|end| *end <= FILE_BYTES) else {
            return Err(ErrorReply::new(Errno::EFBIG, format!("a write at {offset} ends beyond the largest file")));
        };
        if *length == 0 || *offset < before {
            return Err(ErrorReply::new(Errno::EINVAL, "a write of pieces that are empty, or not in order"));
        }
        before = end;
        let data = bulk.slice(at..at + *length as usize);
        at += *length as usize;
        let sums = check_sums(request, *offset, &data, &mut rest)?;
        parts.push(Part { offset: *offset, data, sums });
    }
    if rest.is_empty() {
        Ok(parts)
    } else {
        Err(ErrorReply::new(Errno::EPROTO, "a write came with too many block sums"))
    }
}

/// No file is larger. A size that a client sends is stored for good, so it is checked here.
pub(super) fn check_size(file_bytes: u64) -> Result<(), ErrorReply> {
    if file_bytes <= FILE_BYTES {
        return Ok(());
    }
    Err(ErrorReply::new(Errno::EFBIG, format!("no file has {file_bytes} bytes")))
}

/// Takes the sums of one piece from the front of `rest`.
fn check_sums(request: &WritePieces, offset: u64, data: &Bytes, rest: &mut &[u64]) -> Result<Vec<u64>, ErrorReply> {
    let mut checked = Vec::new();
    for got in sums(request, offset, data) {
        let Some((expected, more)) = rest.split_first() else {
            return Err(ErrorReply::new(Errno::EPROTO, "a write came with too few block sums"));
        };
        if *expected != got && !planted(Bug::WriteSumSkipped) {
            let block = (offset / BLOCK_BYTES + checked.len() as u64) * BLOCK_BYTES;
            let (fid, block) = (request.object.fid, block.max(offset));
            let words = format!(
                "{fid}: block at {block} arrived damaged: its writer summed {expected:#018x}, here it is {got:#018x}"
            );
            return Err(ErrorReply::new(Errno::EPROTO, words));
        }
        checked.push(*expected);
        *rest = more;
    }
    Ok(checked)
}

/// The offset up to which the write counts: all of it, unless it is a replay from before a truncate that is already
/// applied.
fn kept_end(ctx: &Context, row: Option<&ObjectRow>, request: &WritePieces, ticket: &Ticket) -> u64 {
    match row {
        Some(row) if is_superseded(ctx, Some(row), request.object.truncate_epoch, ticket.transno()) => {
            row.truncated_bytes
        }
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Fid, WriteId, message::ObjectRef};

    use super::*;

    /// A write of `bytes` in two pieces.
    fn request(bytes: &[u8]) -> WritePieces {
        let object = ObjectRef { fid: Fid { high: 0, low: 77 }, layout_generation: 1, truncate_epoch: 0 };
        let write_id = WriteId { client: 1, sequence: 2 };
        let (one, other) = bytes.split_at(100_000.min(bytes.len()));
        let piece = |offset: u64, bytes: &[u8]| Piece { offset, length: bytes.len() as u32 };
        let pieces = vec![piece(100, one), piece(300_000, other)];
        let request =
            WritePieces { object, pieces, write_id, sums: Vec::new(), file_bytes: 0, attr_epoch: 0, granted_bytes: 0 };
        let sums = sums(&request, 100, one).chain(sums(&request, 300_000, other)).collect();
        WritePieces { sums, ..request }
    }

    fn errno(request: &WritePieces, bytes: &Bytes) -> Option<Errno> {
        check(request, bytes).err().map(|error| error.errno)
    }

    #[test]
    fn bytes_that_are_not_what_was_summed_are_refused() {
        let bytes: Bytes = vec![7u8; 150_000].into();
        assert_eq!(errno(&request(&bytes), &bytes), None);
        for at in [0, 99_999, 100_000, 149_999] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert_eq!(errno(&request(&bytes), &damaged.into()), Some(Errno::EPROTO), "{at}");
        }
        let mut elsewhere = request(&bytes);
        elsewhere.pieces[1].offset += 64;
        assert!(check(&elsewhere, &bytes).is_err());
    }

    #[test]
    fn lengths_and_numbers_of_sums_must_agree() {
        let bytes: Bytes = vec![7u8; 150_000].into();
        let good = request(&bytes);
        assert!(check(&WritePieces { sums: good.sums[1..].to_vec(), ..good.clone() }, &bytes).is_err());
        assert!(check(&WritePieces { sums: good.sums[..3].to_vec(), ..good.clone() }, &bytes).is_err());
        let more = [&good.sums[..], &[0]].concat();
        assert!(check(&WritePieces { sums: more, ..good.clone() }, &bytes).is_err());
        let with = |change: fn(&mut Vec<Piece>)| {
            let mut bad = good.clone();
            change(&mut bad.pieces);
            errno(&bad, &bytes)
        };
        assert_eq!(with(|pieces| pieces[0].length = 1), Some(Errno::EINVAL));
        assert_eq!(with(|pieces| pieces[1].offset = u64::MAX - 5), Some(Errno::EFBIG));
        assert_eq!(with(|pieces| pieces[1].offset = 100_099), Some(Errno::EINVAL), "they overlap");
        assert_eq!(with(|pieces| pieces.push(Piece { offset: 400_000, length: 0 })), Some(Errno::EINVAL));
        assert_eq!(with(Vec::clear), Some(Errno::EINVAL));
        let of_size = |file_bytes| errno(&WritePieces { file_bytes, ..good.clone() }, &bytes);
        assert_eq!((of_size(FILE_BYTES), of_size(FILE_BYTES + 1)), (None, Some(Errno::EFBIG)));
    }

    #[test]
    fn a_replay_of_before_a_truncate_is_clipped_piece_by_piece() {
        let bytes: Bytes = vec![7u8; 150_000].into();
        let request = request(&bytes);
        for (end, lengths) in [(u64::MAX, vec![100_000, 50_000]), (300_010, vec![100_000, 10]), (70_100, vec![70_000])]
        {
            let parts = check(&request, &bytes).expect("it is good");
            let kept: Vec<Part> = parts.into_iter().filter_map(|part| part.until(end, &request)).collect();
            assert_eq!(kept.iter().map(|part| part.data.len()).collect::<Vec<_>>(), lengths);
            assert!(kept.iter().all(|part| part.sums == sums(&request, part.offset, &part.data).collect::<Vec<_>>()));
        }
    }
}
