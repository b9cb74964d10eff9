//! Drives logged destroys to one OST, in batches.
//!
//! Order: the rows are committed; then the OST destroys and commits; then the rows are deleted.

use std::rc::{Rc, Weak};

use forebay_proto::{
    Decode, ErrorReply, Fid,
    message::{Destroy, FinishDestroys, FinishDestroysReply},
};
use forebay_target::{Answer, Attempt, store_error};

use crate::{Mds, keys, limits};

/// Runs until the server ends.
pub async fn drive(mds: Weak<Mds>, ost: u32) {
    loop {
        let Some(this) = mds.upgrade().filter(|this| !this.is_closed()) else { return };
        let Some(logged) = this.destroys.borrow().get(&ost).cloned() else { return };
        match this.destroy_some(ost).await {
            Ok(0) => {
                let env = this.env.clone();
                drop(this);
                logged.notified().await;
                // Deletes come in bursts: wait so that a batch collects.
                env.sleep(limits::DESTROY_DELAY).await;
            }
            Ok(_) => {}
            Err(error) => {
                this.log_failure(&format!("destroys on OST{ost:04x} are tried again"), &error);
                let env = this.env.clone();
                drop(this);
                env.sleep(limits::DESTROY_RETRY).await;
            }
        }
    }
}

impl Mds {
    /// Replies when the destroys that are logged now are done (the first batch of each OST), or after
    /// [`limits::DESTROY_WAIT`].
    pub(crate) async fn finish_destroys(self: &Rc<Self>, body: &[u8]) -> Attempt<Answer> {
        let FinishDestroys { osts } = Decode::from_bytes(body)?;
        let objects = self.destroyed(osts).await?;
        Ok(Answer::read(&FinishDestroysReply { objects }))
    }

    /// The same for a caller that needs space on these OSTs, or (if empty) on any. Returns how many destroys it waited
    /// for and, without `osts`, how many OSTs have space again.
    pub(crate) async fn destroyed(self: &Rc<Self>, osts: Vec<u32>) -> Attempt<u64> {
        let anywhere = osts.is_empty();
        let osts = if anywhere { self.osts.indices() } else { osts };
        let until = self.env.now() + limits::DESTROY_WAIT;
        let mut objects = 0;
        for ost in osts.into_iter().filter(|ost| self.destroys.borrow().contains_key(ost)) {
            let prefix = keys::destroys(ost);
            let to = keys::after(prefix.as_ref());
            let rows = self.store.scan(prefix.as_ref(), &to, limits::DESTROY_BATCH).await?;
            objects += rows.len() as u64;
            let Some((last, _)) = rows.last() else { continue };
            let to = keys::after(last);
            while self.env.now() < until && !self.store.scan(prefix.as_ref(), &to, 1).await?.is_empty() {
                self.env.sleep(limits::DESTROY_POLL).await;
            }
        }
        if anywhere {
            objects += self.poll_for_space().await?;
        }
        Ok(objects)
    }

    /// Destroys logged objects, up to one batch; returns their number.
    async fn destroy_some(&self, ost: u32) -> Result<usize, ErrorReply> {
        let prefix = keys::destroys(ost);
        let to = keys::after(prefix.as_ref());
        let rows = self.store.scan(prefix.as_ref(), &to, limits::DESTROY_BATCH).await.map_err(store_error)?;
        let fids: Vec<Fid> = rows.iter().filter_map(|(key, _)| keys::destroy_of(key).map(|(_, fid)| fid)).collect();
        if fids.is_empty() {
            return Ok(0);
        }
        self.store.sync().await.map_err(store_error)?;
        if self.osts.insist(ost, &Destroy { fids: fids.clone() }).await.is_none() {
            return Ok(0);
        }
        self.change(|tx| {
            fids.iter().for_each(|fid| tx.delete(keys::destroy(ost, *fid)));
            Ok(())
        })
        .await?;
        Ok(fids.len())
    }
}
