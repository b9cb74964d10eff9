//! Removal of an entry that is no directory.

use crate::{Caller, Client, ClientResult, delayed::queue::Scope, tasks::detached};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{Fid, message::Unlink};

impl Client {
    /// Takes a name away; not a directory's.
    pub fn unlink<'a>(&'a self, caller: &'a Caller, parent: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            if self.with_slot(|| self.delay_unlink(caller, parent, name).then_some(())).await.is_some() {
                return Ok(());
            }
            let request = Unlink { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name), at_ns: 0 };
            detached(self.env(), self.clone().send_unlink(request)).await
        })
    }

    async fn send_unlink(self, request: Unlink) -> ClientResult<()> {
        let parent = request.parent;
        self.flush_delayed(Scope::Entries(parent)).await;
        let asked = self.inner.mdt.leases.ticket();
        let changed = self.change_name(parent, &request.name, self.call_mdt(parent, &request)).await?;
        self.inner.mdt.leases.learn_changes(asked, changed.reply.leases, parent, None);
        self.touch_all(&changed);
        Ok(())
    }
}
