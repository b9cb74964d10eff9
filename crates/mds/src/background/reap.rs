//! Reaps orphans that no session has open any more.

use forebay_proto::{ErrorReply, Fid};
use forebay_target::store_error;

use crate::{Mds, keys, limits, ops};

impl Mds {
    /// Reaps every orphan that no session has open, in steps.
    pub(crate) async fn reap_orphans(&self) {
        if let Err(error) = self.try_reap_orphans().await {
            self.log_failure("orphans wait for the next start", &error);
        }
    }

    async fn try_reap_orphans(&self) -> Result<(), ErrorReply> {
        let (mut from, to) = (vec![keys::ORPHAN], keys::after(&[keys::ORPHAN]));
        loop {
            let rows = self.store.scan(&from, &to, limits::SCAN_ROWS).await.map_err(store_error)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            from = last.to_vec();
            from.push(0);
            for fid in rows.iter().filter_map(|(key, _)| keys::fid_of(key)) {
                self.reap_if_closed(fid).await?;
            }
        }
    }

    /// Reaps `fid` if it has neither a name nor a handle.
    async fn reap_if_closed(&self, fid: Fid) -> Result<(), ErrorReply> {
        self.change(|tx| {
            if tx.memory.opens.count(fid).handles > 0 {
                return Ok(());
            }
            tx.delete(keys::orphan(fid));
            match tx.find_inode(fid)? {
                Some(inode) if inode.nlink == 0 => ops::reap(tx, fid, &inode),
                _ => Ok(()),
            }
        })
        .await
    }
}
