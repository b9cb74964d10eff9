//! Destroy: removes the objects of files that are gone. The MDT sends it after it has committed that they are.

use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{Destroy, Empty},
};
use forebay_target::{Abort, Answer, Attempt, Context};

use super::truncate::shorten;
use crate::{Oss, limits, object, server::decode};

/// Runs a destroy. A missing object is not an error. An object that cannot be read stays, for fsck: a repeated request
/// would fail too, and everything behind it would stay as well.
pub async fn run(oss: &Oss, ctx: &Context, request: Destroy) -> Attempt<Answer> {
    let _cutting = oss.cutting();
    if request.fids.len() > limits::DESTROY_FIDS {
        let words = format!("a destroy of {} objects at once", request.fids.len());
        return Err(ErrorReply::new(Errno::EINVAL, words).into());
    }
    for fid in &request.fids {
        match destroy(oss, *fid).await {
            Err(Abort::Failed(error)) if error.errno == Errno::EIO => {
                oss.env().log(&format!("the object of {fid} cannot be destroyed: {}", error.message));
            }
            done => done?,
        }
    }
    // Reports an error if the store has stopped.
    let ticket = ctx.admit();
    ctx.prefetch::<[u8; 0]>(&[]).await?;
    ticket.turn().await;
    ctx.prefetch::<[u8; 0]>(&[]).await?;
    ticket.apply(|_txn| Ok(Empty {}))
}

async fn destroy(oss: &Oss, fid: Fid) -> Attempt<()> {
    oss.destroyed.borrow_mut().insert(fid);
    if oss.load(fid).await?.is_none() {
        return Ok(());
    }
    shorten(oss, fid, 0).await?;
    let ticket = oss.target().admit();
    ticket.turn().await;
    oss.store().prefetch_extents(fid, 0..u64::MAX).await?;
    oss.store().prefetch(&[object::key(fid)]).await?;
    let mut update = ticket.begin()?;
    let row = update.txn().get(&object::key(fid))?;
    let existed = row.is_some();
    let reserved = row.and_then(|row| decode(&row).ok()).map_or(0, |row| row.aside.bytes());
    if existed {
        update.txn().destroy(fid, ticket.transno())?;
        update.txn().delete(object::key(fid));
    }
    update.apply(&Empty {})?;
    oss.store().set_aside(reserved, 0);
    oss.objects.set(oss.objects.get().saturating_sub(u64::from(existed)));
    oss.read_ahead.changed(fid);
    Ok(())
}
