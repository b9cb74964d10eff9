//! Drives a logged truncate to the OSTs of the file's layout.
//!
//! Order: the log row is committed; then the OSTs; then the row goes and those who wait for the file go on.

use std::rc::Rc;

use forebay_proto::{ErrorReply, Fid, Layout, message::TruncateObject};
use forebay_target::store_error;

use crate::{Mds, halt::corrupt, keys, ops::TruncateLog};

impl Mds {
    /// Drives the truncate of `fid` in a task of its own: it goes on when the request's client goes away.
    pub(crate) fn start_truncate(&self, fid: Fid) {
        let mds = self.strong();
        self.env.spawn(async move {
            if let Err(error) = mds.drive_truncate(fid).await {
                mds.log_failure(&format!("truncate of {fid} waits for the next start"), &error);
                return;
            }
            mds.memory.borrow_mut().truncating.remove(&fid);
            mds.memory_changed();
        });
    }

    async fn drive_truncate(&self, fid: Fid) -> Result<(), ErrorReply> {
        // After a restart the row may be part of a replay that is not committed yet.
        self.store.sync().await.map_err(store_error)?;
        if let Some((log, layout)) = self.read_truncate(fid).await? {
            self.truncate_objects(fid, log, &layout).await?;
        }
        self.change(|tx| {
            tx.delete(keys::truncate(fid));
            Ok(())
        })
        .await
    }

    /// The log row and the layout; `None` if the file ended meanwhile.
    async fn read_truncate(&self, fid: Fid) -> Result<Option<(TruncateLog, Layout)>, ErrorReply> {
        self.change(|tx| {
            let key = keys::truncate(fid);
            let (Some(row), Some(inode)) = (tx.row(key)?, tx.find_inode(fid)?) else { return Ok(None) };
            let log = TruncateLog::decode(&row).map_err(|error| corrupt(key.as_ref(), error))?;
            Ok(inode.layout().map(|layout| (log, layout.clone())))
        })
        .await
    }

    /// All OSTs at once.
    async fn truncate_objects(&self, fid: Fid, log: TruncateLog, layout: &Layout) -> Result<(), ErrorReply> {
        let tasks: Vec<_> = layout
            .osts
            .iter()
            .enumerate()
            .map(|(stripe, ost)| {
                let (object_bytes, file_bytes) = log.of_stripe(layout, stripe);
                let request = TruncateObject {
                    fid,
                    truncate_epoch: log.truncate_epoch,
                    object_bytes,
                    file_bytes,
                    attr_epoch: log.attr_epoch,
                };
                let (mds, ost): (Rc<Mds>, u32) = (self.strong(), *ost);
                self.env.spawn(async move { mds.osts.insist(ost, &request).await })
            })
            .collect();
        for (task, ost) in tasks.into_iter().zip(&layout.osts) {
            if task.await.flatten().is_none() {
                let message = format!("OST{ost:04x} of the file's layout is not in this server's list of targets");
                return Err(ErrorReply::new(forebay_proto::Errno::ENXIO, message));
            }
        }
        Ok(())
    }
}
