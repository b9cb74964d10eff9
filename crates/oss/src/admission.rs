//! Whether a request may act on an object: destroyed fids, truncate epochs, layout fences.

use std::{cell::Cell, rc::Rc};

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{CommitLevel, ObjectRef},
};
use forebay_target::{Attempt, Context};

use crate::{
    Oss,
    object::{ObjectRow, key},
    server::decode,
};

/// A request's truncate epoch, compared with the object's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As new as the object's: go on.
    Current,
    /// A truncate came since: the client has to fetch the attributes again.
    Stale,
    /// The truncate that the request knows of has not arrived here yet.
    Ahead,
}

/// Compares a request's epoch with the object's. An object that does not exist accepts any epoch.
pub fn standing(row: Option<&ObjectRow>, epoch: u64) -> Standing {
    match row.map(|row| row.truncate_epoch) {
        Some(have) if epoch < have && !planted(Bug::TruncateEpochIgnored) => Standing::Stale,
        Some(have) if epoch > have => Standing::Ahead,
        _ => Standing::Current,
    }
}

/// The error for a request of an older epoch.
pub fn stale(fid: Fid, have: u64, got: u64) -> ErrorReply {
    ErrorReply::new(Errno::STALE_EPOCH, format!("{fid} was truncated: its epoch is {have}, the request's {got}"))
}

impl Oss {
    /// Waits until the request may act on its object; returns the object's row, including all acknowledged changes.
    /// Replays are never refused here.
    pub(crate) async fn admissible(&self, ctx: &Context, object: &ObjectRef) -> Attempt<Option<ObjectRow>> {
        self.target().wait_applied(Some(object.fid)).await;
        self.may_write(ctx, object).await
    }

    /// As [`Oss::admissible`], for requests that do not show other clients' changes: the row as applied.
    pub(crate) async fn may_write(&self, ctx: &Context, object: &ObjectRef) -> Attempt<Option<ObjectRow>> {
        let fid = object.fid;
        if self.destroyed.borrow().contains(fid) && !ctx.is_replay() {
            return Err(ErrorReply::new(Errno::ESTALE, format!("{fid} was destroyed")).into());
        }
        let deadline = self.env().now() + crate::limits::TRUNCATE_WAIT;
        loop {
            // Registered before the row is read, so that a truncate in between is not missed.
            let truncated = self.truncated.notified();
            let row = self.load_applied(fid).await?;
            match standing(row.as_ref(), object.truncate_epoch) {
                _ if ctx.is_replay() => return Ok(row),
                Standing::Current => {
                    self.layout_fences.check(object)?;
                    return Ok(row);
                }
                Standing::Stale => {
                    let have = row.map_or(0, |row| row.truncate_epoch);
                    return Err(stale(fid, have, object.truncate_epoch).into());
                }
                Standing::Ahead => {}
            }
            let left = deadline.since(self.env().now());
            if self.env().timeout(left, truncated).await.is_err() {
                let words = format!("{fid}: truncate {} has not arrived yet", object.truncate_epoch);
                return Err(ErrorReply::new(Errno::RECOVERING, words).into());
            }
        }
    }
}

/// While it exists, no write is replied to before it is applied.
pub(crate) struct Cutting(Rc<Cell<u32>>);

impl Drop for Cutting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Oss {
    /// For requests that remove bytes, raise the epoch or fence the layout: beside one, a write that was replied to early
    /// might have no effect.
    pub(crate) fn cutting(&self) -> Cutting {
        self.cutting.set(self.cutting.get() + 1);
        Cutting(self.cutting.clone())
    }

    /// [`Oss::cutting`] for a request that may create the object, in an epoch that other requests may not know.
    pub(crate) fn raising(&self, row: Option<&ObjectRow>, object: &ObjectRef) -> Option<Cutting> {
        (row.is_none() && object.truncate_epoch > 0).then(|| self.cutting())
    }

    /// The object's row, if a write that has its space may be replied to before its bytes are on the device. That takes
    /// level `memory`, and that nothing can refuse the write any more. The caller asks this in one step with the
    /// write's admission.
    pub(crate) fn may_reply_early(&self, ctx: &Context, object: &ObjectRef) -> Option<ObjectRow> {
        let asked = ctx.level() == CommitLevel::Memory && !ctx.is_replay();
        if !asked
            || ctx.has_ended()
            || self.store().is_out_of_backing_space()
            || self.cutting.get() > 0
            || self.destroyed.borrow().contains(object.fid)
            || self.layout_fences.check(object).is_err()
        {
            return None;
        }
        let row = self.store().get(&key(object.fid)).ok()?;
        let row = row.map(|row| decode(&row)).transpose().ok()?;
        (standing(row.as_ref(), object.truncate_epoch) == Standing::Current).then(|| row.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_epoch_is_stale_a_newer_one_ahead_and_a_new_object_takes_any() {
        let row = ObjectRow { truncate_epoch: 5, ..ObjectRow::default() };
        assert_eq!(standing(Some(&row), 4), Standing::Stale);
        assert_eq!(standing(Some(&row), 5), Standing::Current);
        assert_eq!(standing(Some(&row), 6), Standing::Ahead);
        assert_eq!(standing(None, 6), Standing::Current);
    }
}
