//! Write: bytes to the next free place of the device, then the index, in the order of transnos.

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, crc,
    limits::{BLOCK_BYTES, BULK_BYTES, FILE_BYTES},
    message::{WriteObject, WriteReply},
};
use forebay_store::Fragment;
use forebay_target::{Answer, Context, store_error};

use super::change::{Change, is_superseded};
use crate::{ObjectRow, Oss};

/// Runs a write.
pub async fn run(oss: &Oss, ctx: &Context, request: WriteObject, bulk: Bytes) -> Result<Answer, ErrorReply> {
    check(&request, &bulk)?;
    let row = oss.admissible(ctx, &request.object).await?;
    let fid = request.object.fid;
    let whole = request.offset..request.offset + u64::from(request.length);
    let aside = oss.set_aside_in(fid, row.as_ref(), &whole).await?;
    let room = oss.store().reserve_from(u64::from(request.length), 1, aside).await.map_err(store_error)?;
    let ticket = ctx.admit();
    let kept = kept_bytes(ctx, row.as_ref(), &request, &ticket);
    let change = Change {
        fid: request.object.fid,
        epoch: Some(request.object.truncate_epoch),
        extents: Some(request.offset..request.offset + kept),
    };
    let placed = match kept {
        0 => None,
        _ => {
            let fragment = fragment(&request, bulk, kept, ticket.transno());
            Some(oss.store().place(room, vec![fragment]).await.map_err(store_error)?)
        }
    };
    let now_ns = oss.now_ns();
    change
        .apply(oss, ctx, ticket, move |txn, row| {
            if let Some(placed) = placed {
                let written = request.offset..request.offset + kept;
                let mut filled = 0;
                for part in row.aside.within(&written) {
                    filled += part.end - part.start - txn.data_bytes(fid, part).map_err(store_error)?;
                }
                row.aside.fill(filled);
                txn.insert(placed).map_err(store_error)?;
                row.object_bytes = row.object_bytes.max(request.offset + kept);
                row.file_bytes = row.file_bytes.max(request.file_bytes);
            }
            row.touch(request.attr_epoch, now_ns);
            Ok(WriteReply { file_bytes: row.file_bytes, mtime_ns: row.mtime_ns })
        })
        .await
}

/// Lengths that agree, and bytes that are what their writer summed.
fn check(request: &WriteObject, bulk: &Bytes) -> Result<(), ErrorReply> {
    let length = request.length as usize;
    if length == 0 || length > BULK_BYTES || bulk.len() != length {
        return Err(ErrorReply::new(Errno::EINVAL, format!("a write of {length} bytes came with {}", bulk.len())));
    }
    if request.offset.checked_add(length as u64).is_none_or(|end| end > FILE_BYTES) {
        return Err(ErrorReply::new(
            Errno::EFBIG,
            format!("a write at {} ends beyond the largest file", request.offset),
        ));
    }
    let mut sums = request.sums.iter();
    for (offset, length) in crc::blocks(request.offset, length as u64, BLOCK_BYTES) {
        let at = (offset - request.offset) as usize;
        let got = crc::block_sum(request.object.fid, offset, request.write_id, &bulk[at..at + length as usize]);
        match sums.next() {
            Some(expected) if *expected == got || planted(Bug::WriteSumSkipped) => {}
            Some(expected) => {
                return Err(ErrorReply::new(
                    Errno::EPROTO,
                    format!(
                        "{}: block at {offset} arrived damaged: its writer summed {expected:#018x}, here it is {got:#018x}",
                        request.object.fid
                    ),
                ));
            }
            None => return Err(ErrorReply::new(Errno::EPROTO, "a write came with too few block sums")),
        }
    }
    match sums.next() {
        Some(_) => Err(ErrorReply::new(Errno::EPROTO, "a write came with too many block sums")),
        None => Ok(()),
    }
}

/// How much of the write counts: all of it, unless it is a replay of before a truncate that has been applied already.
fn kept_bytes(ctx: &Context, row: Option<&ObjectRow>, request: &WriteObject, ticket: &forebay_target::Ticket) -> u64 {
    let length = u64::from(request.length);
    match row {
        Some(row) if is_superseded(ctx, Some(row), request.object.truncate_epoch, ticket.transno()) => {
            row.truncated_bytes.saturating_sub(request.offset).min(length)
        }
        _ => length,
    }
}

fn fragment(request: &WriteObject, bulk: Bytes, kept: u64, version: forebay_proto::Transno) -> Fragment {
    let fid = request.object.fid;
    let data = bulk.slice(..kept as usize);
    // A clipped replay cuts its last block, which was verified whole in `check`.
    let sums = if kept == u64::from(request.length) {
        request.sums.clone()
    } else {
        crc::blocks(request.offset, kept, BLOCK_BYTES)
            .map(|(offset, length)| {
                let at = (offset - request.offset) as usize;
                crc::block_sum(fid, offset, request.write_id, &data[at..at + length as usize])
            })
            .collect()
    };
    Fragment {
        fid,
        offset: request.offset,
        data,
        write_id: request.write_id,
        version,
        generation: request.object.layout_generation,
        sums,
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Fid, WriteId, message::ObjectRef};

    use super::*;

    fn request(bytes: &[u8]) -> WriteObject {
        let object = ObjectRef { fid: Fid { high: 0, low: 77 }, layout_generation: 1, truncate_epoch: 0 };
        let write_id = WriteId { client: 1, sequence: 2 };
        let sums = crc::blocks(100, bytes.len() as u64, BLOCK_BYTES)
            .map(|(o, l)| crc::block_sum(object.fid, o, write_id, &bytes[(o - 100) as usize..(o - 100 + l) as usize]))
            .collect();
        let length = bytes.len() as u32;
        WriteObject { object, offset: 100, length, write_id, sums, file_bytes: 0, attr_epoch: 0 }
    }

    #[test]
    fn bytes_that_are_not_what_was_summed_are_refused() {
        let bytes: Bytes = vec![7u8; 150_000].into();
        assert_eq!(check(&request(&bytes), &bytes), Ok(()));
        let mut damaged = bytes.to_vec();
        damaged[149_999] ^= 1;
        assert_eq!(check(&request(&bytes), &damaged.into()).unwrap_err().errno, Errno::EPROTO);
        let elsewhere = WriteObject { offset: 164, ..request(&bytes) };
        assert!(check(&elsewhere, &bytes).is_err());
    }

    #[test]
    fn lengths_and_numbers_of_sums_must_agree() {
        let bytes: Bytes = vec![7u8; 150_000].into();
        let good = request(&bytes);
        assert!(check(&WriteObject { length: 1, ..good.clone() }, &bytes).is_err());
        assert!(check(&WriteObject { sums: good.sums[1..].to_vec(), ..good.clone() }, &bytes).is_err());
        let more = [&good.sums[..], &[0]].concat();
        assert!(check(&WriteObject { sums: more, ..good.clone() }, &bytes).is_err());
        assert!(check(&WriteObject { offset: u64::MAX - 5, ..good }, &bytes).is_err());
    }
}
