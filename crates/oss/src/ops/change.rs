//! What all changes of one object share: wait for the turn with everything in memory, check epoch and layout again,
//! update the row.

use std::ops::Range;

use forebay_proto::{
    Encode, ErrorReply, Fid, Transno,
    message::{ObjectRef, ObjectReply},
};
use forebay_store::Txn;
use forebay_target::{Abort, Answer, Attempt, Context, Ticket};

use crate::{
    Oss,
    admission::{Standing, stale, standing},
    object::{self, ObjectRow},
    server::decode,
};

/// The object that a change is made to, and what the change needs in memory.
pub struct Change {
    /// The object.
    pub fid: Fid,
    /// Refuse if the object has a newer truncate epoch, or a fence of a newer layout; `None`: do not check.
    pub under: Option<ObjectRef>,
    /// Extents it touches.
    pub extents: Option<Range<u64>>,
}

impl Change {
    /// Waits for the ticket's turn, then applies `change` to the object's row (a new one if there is none).
    pub async fn apply<R: Encode, E: From<Abort>>(
        self,
        oss: &Oss,
        ctx: &Context,
        ticket: Ticket,
        change: impl FnOnce(&mut Txn, &mut ObjectRow) -> Result<R, E>,
    ) -> Result<Answer, E> {
        self.attempt(oss, ctx, &ticket, change).await
    }

    /// As [`Change::apply`], for a ticket that has been replied to: repeats aborted attempts, in the same place of the
    /// order.
    pub async fn apply_surely<R: Encode>(
        self,
        oss: &Oss,
        ctx: &Context,
        ticket: &Ticket,
        mut change: impl FnMut(&mut Txn, &mut ObjectRow) -> Attempt<R>,
    ) -> Result<Answer, ErrorReply> {
        loop {
            match self.attempt(oss, ctx, ticket, &mut change).await {
                Ok(answer) => return Ok(answer),
                Err(abort) => ctx.wait_to_retry(abort).await?,
            }
        }
    }

    async fn attempt<R: Encode, E: From<Abort>>(
        &self,
        oss: &Oss,
        ctx: &Context,
        ticket: &Ticket,
        change: impl FnOnce(&mut Txn, &mut ObjectRow) -> Result<R, E>,
    ) -> Result<Answer, E> {
        self.prefetch(oss, ctx).await?;
        ticket.turn().await;
        self.prefetch(oss, ctx).await?;
        let mut update = ticket.begin().map_err(Abort::from)?;
        let row = self.row(oss, ctx, update.txn())?;
        let is_new = row.is_none();
        let mut row = row.unwrap_or_else(|| self.new_row());
        let reserved_before = row.aside.bytes();
        let reply = change(update.txn(), &mut row)?;
        row.transno = ticket.transno();
        update.txn().put(object::key(self.fid), row.to_bytes());
        let answer = update.apply(&reply)?;
        oss.store().set_aside(reserved_before, row.aside.bytes());
        if is_new {
            oss.objects.set(oss.objects.get() + 1);
        }
        oss.read_ahead.changed(self.fid);
        Ok(answer)
    }

    async fn prefetch(&self, oss: &Oss, ctx: &Context) -> Attempt<()> {
        if let Some(extents) = self.extents.clone() {
            oss.store().prefetch_extents(self.fid, extents).await?;
        }
        ctx.prefetch(&[object::key(self.fid)]).await
    }

    /// The object's row, if there is one.
    fn row(&self, oss: &Oss, ctx: &Context, txn: &Txn) -> Attempt<Option<ObjectRow>> {
        let row = txn.get(&object::key(self.fid))?.map(|value| decode(&value)).transpose()?;
        self.check_again(oss, ctx, row.as_ref())?;
        Ok(row)
    }

    /// A truncate may have been applied, or a fence set, since the request was admitted.
    fn check_again(&self, oss: &Oss, ctx: &Context, row: Option<&ObjectRow>) -> Result<(), ErrorReply> {
        let Some(object) = self.under.as_ref().filter(|_| !ctx.is_replay()) else { return Ok(()) };
        match standing(row, object.truncate_epoch) {
            Standing::Stale => Err(stale(self.fid, row.map_or(0, |row| row.truncate_epoch), object.truncate_epoch)),
            _ => oss.layout_fences.check(object),
        }
    }

    fn new_row(&self) -> ObjectRow {
        let truncate_epoch = self.under.as_ref().map_or(0, |object| object.truncate_epoch);
        ObjectRow { truncate_epoch, ..ObjectRow::default() }
    }
}

/// The object as it is reported to clients and the MDT.
pub fn describe(row: Option<&ObjectRow>) -> ObjectReply {
    let exists = row.is_some();
    let row = row.cloned().unwrap_or_default();
    ObjectReply {
        exists,
        file_bytes: row.file_bytes,
        object_bytes: row.object_bytes,
        used_bytes: row.object_bytes,
        mtime_ns: row.mtime_ns,
        attr_epoch: row.attr_epoch,
        truncate_epoch: row.truncate_epoch,
    }
}

/// `range` of the object is about to lose its bytes: releases the space reserved in it.
pub fn give_back(txn: &Txn, fid: Fid, row: &mut ObjectRow, range: &Range<u64>) -> Attempt<()> {
    let mut bytes = 0;
    for part in row.aside.within(range) {
        bytes += txn.data_bytes(fid, part)?;
    }
    row.aside.remove(range, bytes);
    Ok(())
}

/// True if a replayed request is older than the object's last truncate: it acts only on what that truncate left.
pub fn is_superseded(ctx: &Context, row: Option<&ObjectRow>, epoch: u64, transno: Transno) -> bool {
    ctx.is_replay() && row.is_some_and(|row| epoch < row.truncate_epoch && transno < row.transno)
}
