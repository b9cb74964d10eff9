//! RemoveWritten: bytes that somebody wrote beyond the end of the file for an append that came to nothing, so that no hole that is
//! made there later shows them.

use std::ops::Range;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Transno,
    message::{Empty, RemoveWritten},
};
use forebay_store::Txn;
use forebay_target::{Answer, Context, store_error};

use super::{
    change::{Change, give_back},
    truncate::STEP_EXTENTS,
};
use crate::{ObjectRow, Oss, key, server::decode};

/// Removes them, in whatever truncate epoch: the bytes of such a write are never part of the file later. Steps from the end on are
/// transactions of their own, until one more can look at the rest.
pub async fn run(oss: &Oss, ctx: &Context, request: RemoveWritten) -> Result<Answer, ErrorReply> {
    let fid = request.object.fid;
    let end = request.offset.checked_add(request.length).filter(|end| *end > request.offset);
    let Some(mut end) = end else {
        let words = format!("what was written in {} bytes at {}", request.length, request.offset);
        return Err(ErrorReply::new(Errno::EINVAL, words));
    };
    if oss.load_applied(fid).await?.is_none() && !ctx.is_replay() {
        return Ok(Answer::read(&Empty {}));
    }
    let _cutting = oss.cutting();
    loop {
        let rest = request.offset..end;
        oss.store().prefetch_tail(fid, rest.clone(), STEP_EXTENTS).await.map_err(store_error)?;
        let begins = oss.store().begin().tail_begins(fid, rest.clone(), STEP_EXTENTS).map_err(store_error)?;
        if begins == rest.start {
            break;
        }
        step(oss, &request, begins..end).await?;
        end = begins;
    }
    let ticket = ctx.admit();
    let version = ticket.transno();
    let rest = request.offset..end;
    Change { fid, epoch: None, extents: Some(rest.clone()) }
        .apply(oss, ctx, ticket, |txn, row| remove(txn, row, &request, rest, version).map(|()| Empty {}))
        .await
}

async fn step(oss: &Oss, request: &RemoveWritten, range: Range<u64>) -> Result<(), ErrorReply> {
    let fid = request.object.fid;
    let ticket = oss.target().admit();
    ticket.turn().await;
    oss.store().prefetch_extents(fid, range.clone()).await.map_err(store_error)?;
    oss.store().prefetch(&[key(fid)]).await.map_err(store_error)?;
    let version = ticket.transno();
    let mut aside = (0, 0);
    ticket.apply(|txn| {
        let Some(value) = txn.get(&key(fid)).map_err(store_error)? else { return Ok(Empty {}) };
        let mut row = decode(&value)?;
        let before = row.aside.bytes();
        remove(txn, &mut row, request, range, version)?;
        aside = (before, row.aside.bytes());
        row.transno = version;
        txn.put(key(fid), row.to_bytes());
        Ok(Empty {})
    })?;
    oss.store().set_aside(aside.0, aside.1);
    oss.read_ahead.changed(fid);
    Ok(())
}

fn remove(
    txn: &mut Txn,
    row: &mut ObjectRow,
    request: &RemoveWritten,
    range: Range<u64>,
    version: Transno,
) -> Result<(), ErrorReply> {
    let fid = request.object.fid;
    for (range, write_id) in txn.writes(fid, range).map_err(store_error)? {
        let is_it = request.sequence == 0 || write_id.sequence == request.sequence;
        if write_id.client == request.client && is_it && !planted(Bug::VoidPlacesLeft) {
            give_back(txn, fid, row, &range)?;
            txn.punch(fid, range, version).map_err(store_error)?;
        }
    }
    Ok(())
}
