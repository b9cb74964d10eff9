//! Whether a request may act on an object: destroyed fids, truncate epochs.

use forebay_env::{Bug, planted};
use forebay_proto::{Errno, ErrorReply, Fid, message::ObjectRef};
use forebay_target::Context;

use crate::{Oss, object::ObjectRow};

/// What a request's truncate epoch means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As new as the object's: go on.
    Current,
    /// A truncate came since: the client has to fetch the attributes again.
    Stale,
    /// The truncate it knows of has not arrived here.
    Ahead,
}

/// Compares a request's epoch with the object's. An object that does not exist takes any.
pub fn standing(row: Option<&ObjectRow>, epoch: u64) -> Standing {
    match row.map(|row| row.truncate_epoch) {
        Some(have) if epoch < have && !planted(Bug::TruncateEpochIgnored) => Standing::Stale,
        Some(have) if epoch > have => Standing::Ahead,
        _ => Standing::Current,
    }
}

/// The answer to a request of an older epoch.
pub fn stale(fid: Fid, have: u64, got: u64) -> ErrorReply {
    ErrorReply::new(Errno::STALE_EPOCH, format!("{fid} was truncated: its epoch is {have}, the request's {got}"))
}

impl Oss {
    /// Waits until the request may act on its object; returns the object's row. Replays are never refused here.
    pub(crate) async fn admissible(&self, ctx: &Context, object: &ObjectRef) -> Result<Option<ObjectRow>, ErrorReply> {
        let fid = object.fid;
        if self.destroyed.borrow().contains(fid) && !ctx.is_replay() {
            return Err(ErrorReply::new(Errno::ESTALE, format!("{fid} was destroyed")));
        }
        let deadline = self.env().now() + crate::limits::TRUNCATE_WAIT;
        loop {
            // Registered before the row is read, so that a truncate in between is not missed.
            let truncated = self.truncated.notified();
            let row = self.load(fid).await?;
            match standing(row.as_ref(), object.truncate_epoch) {
                _ if ctx.is_replay() => return Ok(row),
                Standing::Current => return Ok(row),
                Standing::Stale => {
                    let have = row.map_or(0, |row| row.truncate_epoch);
                    return Err(stale(fid, have, object.truncate_epoch));
                }
                Standing::Ahead => {}
            }
            let left = deadline.since(self.env().now());
            if self.env().timeout(left, truncated).await.is_err() {
                return Err(ErrorReply::new(
                    Errno::RECOVERING,
                    format!("{fid}: truncate {} has not arrived yet", object.truncate_epoch),
                ));
            }
        }
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
