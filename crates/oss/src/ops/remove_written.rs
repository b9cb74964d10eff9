//! RemoveWritten: removes bytes beyond the end of the file that were written for a cancelled append, so that a hole
//! made there later does not show them.
//!
//! It does not remove bytes that were written at explicit offsets: once other clients have made the file longer, they
//! may have been read.

use std::ops::Range;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Transno, WriteId,
    message::{Empty, RemoveWritten},
};
use forebay_store::Txn;
use forebay_target::{Answer, Attempt, Context};

use super::{change::Change, truncate::STEP_EXTENTS};
use crate::{ObjectRow, Oss, key, server::decode};

/// Removes them, in any truncate epoch: the bytes of such a write never become part of the file. Works in steps from
/// the end, each a transaction of its own, until one more can cover the rest.
pub async fn run(oss: &Oss, ctx: &Context, request: RemoveWritten) -> Attempt<Answer> {
    let fid = request.object.fid;
    let end = request.offset.checked_add(request.length).filter(|end| *end > request.offset);
    let Some(mut end) = end else {
        let words = format!("what was written in {} bytes at {}", request.length, request.offset);
        return Err(ErrorReply::new(Errno::EINVAL, words).into());
    };
    oss.target().wait_applied(Some(fid)).await;
    let is_there = oss.load_applied(fid).await?.is_some() && !oss.destroyed.borrow().contains(fid);
    if !is_there && !ctx.is_replay() {
        return Ok(Answer::read(&Empty {}));
    }
    let _cutting = oss.cutting();
    loop {
        let rest = request.offset..end;
        oss.store().prefetch_tail(fid, rest.clone(), STEP_EXTENTS).await?;
        let begins = oss.store().begin().tail_begins(fid, rest.clone(), STEP_EXTENTS)?;
        if begins == rest.start {
            break;
        }
        step(oss, &request, begins..end).await?;
        end = begins;
    }
    let rest = request.offset..end;
    oss.store().prefetch_extents(fid, rest.clone()).await?;
    let writes = oss.store().begin().writes(fid, rest.clone())?;
    if !ctx.is_replay() && !writes.iter().any(|(_, write_id)| is_named(&request, *write_id)) {
        return Ok(Answer::read(&Empty {}));
    }
    let ticket = ctx.admit();
    let version = ticket.transno();
    // A replay whose object is gone creates one, in the epoch that its client knew.
    let under = ctx.is_replay().then(|| request.object.clone());
    Change { fid, under, extents: Some(rest.clone()) }
        .apply(oss, ctx, ticket, |txn, row| remove(txn, row, &request, rest, version).map(|()| Empty {}))
        .await
}

async fn step(oss: &Oss, request: &RemoveWritten, range: Range<u64>) -> Attempt<()> {
    let fid = request.object.fid;
    let ticket = oss.target().admit();
    ticket.turn().await;
    oss.store().prefetch_extents(fid, range.clone()).await?;
    oss.store().prefetch(&[key(fid)]).await?;
    let mut update = ticket.begin()?;
    let (txn, version) = (update.txn(), ticket.transno());
    let mut reserved = (0, 0);
    if let Some(value) = txn.get(&key(fid))? {
        let mut row = decode(&value)?;
        let before = row.aside.bytes();
        remove(txn, &mut row, request, range, version)?;
        reserved = (before, row.aside.bytes());
        row.transno = version;
        txn.put(key(fid), row.to_bytes());
    }
    update.apply(&Empty {})?;
    oss.store().set_aside(reserved.0, reserved.1);
    oss.read_ahead.changed(fid);
    Ok(())
}

fn remove(
    txn: &mut Txn,
    row: &mut ObjectRow,
    request: &RemoveWritten,
    range: Range<u64>,
    version: Transno,
) -> Attempt<()> {
    let fid = request.object.fid;
    for (range, write_id) in txn.writes(fid, range)? {
        if is_named(request, write_id) && !planted(Bug::CancelledBytesLeft) {
            let mut emptied = 0;
            for part in row.aside.within(&range) {
                emptied += txn.data_bytes(fid, part)?;
            }
            row.aside.empty(emptied);
            txn.punch(fid, range, version)?;
        }
    }
    Ok(())
}

fn is_named(request: &RemoveWritten, write_id: WriteId) -> bool {
    let is_it = write_id.sequence == request.sequence || request.sequence == 0 && write_id.is_reserved();
    write_id.client == request.client && is_it
}
