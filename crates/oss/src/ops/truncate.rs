//! TruncateObject: the MDT repeats a committed truncate until it has the reply. With the object's own truncate epoch
//! nothing is cut: the request then only reports that the file's time was set.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{Empty, TruncateObject},
};
use forebay_target::{Answer, Attempt, Context};

use super::change::{Change, describe, give_back};
use crate::{ObjectRow, Oss, server::decode};

/// Extents that one transaction removes: keeps it far below the journal's limit.
pub(super) const STEP_EXTENTS: usize = 16 << 10;

/// Runs a truncate. It was applied before, if its epochs are not above the object's.
pub async fn run(oss: &Oss, ctx: &Context, request: TruncateObject) -> Attempt<Answer> {
    let fid = request.fid;
    // An append with a reservation comes before the truncate, if its bytes arrive in time.
    let turn = oss.turn(ctx, (fid, None), 0).await?;
    let _cutting = oss.cutting();
    if request.file_bytes != u64::MAX {
        super::write::check_size(request.file_bytes)?;
    }
    let row = oss.load(fid).await?.unwrap_or_default();
    if row.truncate_epoch < request.truncate_epoch {
        shorten(oss, fid, request.object_bytes).await?;
    }
    let ticket = ctx.admit();
    let version = ticket.transno();
    let change = Change { fid, under: None, extents: Some(request.object_bytes..u64::MAX) };
    let answer = change
        .apply(oss, ctx, ticket, move |txn, row| -> Attempt<_> {
            if row.truncate_epoch < request.truncate_epoch {
                give_back(txn, fid, row, &(request.object_bytes..u64::MAX))?;
                if row.object_bytes > request.object_bytes && !planted(Bug::TruncateKeepsBytes) {
                    txn.truncate(fid, request.object_bytes, version)?;
                }
                cut(row, &request);
            }
            row.begin_attr_epoch(request.attr_epoch);
            Ok(describe(Some(row)))
        })
        .await?;
    drop(turn);
    oss.reservations.cancel(fid);
    oss.truncated.notify_waiters();
    Ok(answer)
}

/// Removes the bytes beyond `keep` in steps from the end, each a transaction of its own, until one more can remove the
/// rest. How many steps depends on the number of extents, not on their size or distance.
///
/// The bytes beyond the new size are lost in any case: the MDT has committed the truncate.
pub(super) async fn shorten(oss: &Oss, fid: Fid, keep: u64) -> Attempt<()> {
    loop {
        oss.store().prefetch_tail(fid, keep..u64::MAX, STEP_EXTENTS).await?;
        let begins = oss.store().begin().tail_begins(fid, keep..u64::MAX, STEP_EXTENTS)?;
        if begins == keep {
            return Ok(());
        }
        let ticket = oss.target().admit();
        ticket.turn().await;
        oss.store().prefetch_tail(fid, keep..u64::MAX, STEP_EXTENTS).await?;
        oss.store().prefetch(&[crate::key(fid)]).await?;
        let mut update = ticket.begin()?;
        let (txn, version) = (update.txn(), ticket.transno());
        let mut reserved = (0, 0);
        let end = txn.tail_begins(fid, keep..u64::MAX, STEP_EXTENTS)?;
        if let Some(value) = txn.get(&crate::key(fid))? {
            let mut row = decode(&value)?;
            let before = row.aside.bytes();
            give_back(txn, fid, &mut row, &(end..u64::MAX))?;
            reserved = (before, row.aside.bytes());
            txn.truncate(fid, end, version)?;
            row.object_bytes = row.object_bytes.min(end);
            row.transno = version;
            txn.put(crate::key(fid), row.to_bytes());
        }
        update.apply(&Empty {})?;
        oss.store().set_aside(reserved.0, reserved.1);
        oss.read_ahead.changed(fid);
    }
}

fn cut(row: &mut ObjectRow, request: &TruncateObject) {
    row.truncate_epoch = request.truncate_epoch;
    // Bytes for earlier reservations are of an older epoch.
    row.reservation_generation = 0;
    row.truncated_bytes = request.object_bytes;
    row.object_bytes = row.object_bytes.min(request.object_bytes);
    if request.file_bytes != u64::MAX {
        row.file_bytes = request.file_bytes;
    }
}
