//! TruncateObject: the MDT drives a committed truncate to its end, again and again until it is replied.

use forebay_env::{Bug, planted};
use forebay_proto::{
    ErrorReply, Fid,
    message::{Empty, TruncateObject},
};
use forebay_target::{Answer, Context, store_error};

use super::change::{Change, describe, give_back};
use crate::{ObjectRow, Oss, server::decode};

/// Bytes of an object whose extents one transaction removes: keeps it far below the journal's limit.
const STEP_BYTES: u64 = 256 << 20;

/// Runs a truncate. At or below the object's epoch it has been done before.
pub async fn run(oss: &Oss, ctx: &Context, request: TruncateObject) -> Result<Answer, ErrorReply> {
    let fid = request.fid;
    let row = oss.load(fid).await?.unwrap_or_default();
    if row.truncate_epoch < request.truncate_epoch {
        shorten(oss, fid, row.object_bytes, request.object_bytes).await?;
    }
    let ticket = ctx.admit();
    let version = ticket.transno();
    let change = Change { fid, epoch: None, extents: Some(request.object_bytes..u64::MAX) };
    let answer = change
        .apply(oss, ctx, ticket, move |txn, row| {
            if row.truncate_epoch < request.truncate_epoch {
                give_back(txn, fid, row, &(request.object_bytes..u64::MAX))?;
                if row.object_bytes > request.object_bytes && !planted(Bug::TruncateKeepsBytes) {
                    txn.truncate(fid, request.object_bytes, version).map_err(store_error)?;
                }
                cut(row, &request);
            }
            Ok(describe(Some(row)))
        })
        .await?;
    oss.truncated.notify_waiters();
    Ok(answer)
}

/// Removes the bytes beyond `keep` in steps from the end, all but the last step, each a transaction of its own.
///
/// What is beyond the new size is gone whatever happens: the MDT has committed the truncate.
pub(super) async fn shorten(oss: &Oss, fid: Fid, object_bytes: u64, keep: u64) -> Result<(), ErrorReply> {
    let mut end = object_bytes;
    while end > keep.saturating_add(STEP_BYTES) {
        end -= STEP_BYTES;
        let ticket = oss.target().admit();
        ticket.turn().await;
        oss.store().prefetch_extents(fid, end..u64::MAX).await.map_err(store_error)?;
        oss.store().prefetch(&[crate::key(fid)]).await.map_err(store_error)?;
        let version = ticket.transno();
        let mut aside = (0, 0);
        ticket.apply(|txn| {
            let Some(value) = txn.get(&crate::key(fid)).map_err(store_error)? else { return Ok(Empty {}) };
            let mut row = decode(&value)?;
            let before = row.aside.bytes();
            give_back(txn, fid, &mut row, &(end..u64::MAX))?;
            aside = (before, row.aside.bytes());
            txn.truncate(fid, end, version).map_err(store_error)?;
            row.object_bytes = row.object_bytes.min(end);
            row.transno = version;
            txn.put(crate::key(fid), row.to_bytes());
            Ok(Empty {})
        })?;
        oss.store().set_aside(aside.0, aside.1);
        oss.read_ahead.changed(fid);
    }
    Ok(())
}

fn cut(row: &mut ObjectRow, request: &TruncateObject) {
    row.truncate_epoch = request.truncate_epoch;
    row.truncated_bytes = request.object_bytes;
    row.object_bytes = row.object_bytes.min(request.object_bytes);
    if request.file_bytes != u64::MAX {
        row.file_bytes = request.file_bytes;
    }
    // The truncate's own time is in the inode; write times of before it do not count any more.
    row.attr_epoch = row.attr_epoch.max(request.attr_epoch);
}
