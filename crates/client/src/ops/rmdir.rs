//! Removal of an empty directory.

use crate::{Caller, Client, ClientResult, delayed::queue::Scope, leases::AllPaused, tasks::detached};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{Fid, message::Rmdir};

impl Client {
    /// Removes an empty directory.
    pub fn rmdir<'a>(&'a self, caller: &'a Caller, parent: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            if self.with_slot(|| self.delay_rmdir(caller, parent, name).then_some(())).await.is_some() {
                return Ok(());
            }
            let request = Rmdir { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name), at_ns: 0 };
            detached(self.env(), self.clone().send_rmdir(request)).await
        })
    }

    async fn send_rmdir(self, request: Rmdir) -> ClientResult<()> {
        let (parent, name, leases) = (request.parent, &request.name[..], &self.inner.mdt.leases);
        // What was made in it, too; and nothing more is, until it is gone or not.
        let paused = match leases.name(parent, name) {
            Some(Some(victim)) => {
                leases.stop_answering(victim.attr.fid);
                None
            }
            _ => Some(leases.pause_answering_all()),
        };
        self.flush_delayed(Scope::All).await;
        let asked = leases.ticket();
        let changed = self.change_name(parent, name, self.call_mdt(parent, &request)).await;
        paused.into_iter().for_each(AllPaused::over);
        let changed = changed?;
        leases.learn_changes(asked, changed.reply.leases, parent, None);
        changed.reply.fids.iter().for_each(|fid| leases.gave_names_back(*fid));
        self.touch_all(&changed);
        Ok(())
    }
}
