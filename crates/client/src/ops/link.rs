//! Another name for an inode.

use crate::{Attr, Caller, Client, ClientResult, delayed::queue::Scope, tasks::detached};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{Errno, Fid, Transno, message::Link};

impl Client {
    /// Gives `fid` another name.
    pub fn link<'a>(
        &'a self,
        caller: &'a Caller,
        fid: Fid,
        parent: Fid,
        name: &'a [u8],
    ) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            let request = Link { caller: caller.clone(), fid, parent, name: Bytes::copy_from_slice(name) };
            detached(self.env(), self.clone().send_link(request)).await
        })
    }

    async fn send_link(self, request: Link) -> ClientResult<Attr> {
        let (fid, parent, leases) = (request.fid, request.parent, &self.inner.mdt.leases);
        self.flush_delayed(Scope::Entries(fid)).await;
        self.flush_delayed(Scope::Entries(parent)).await;
        leases.links_change(fid);
        let change = leases.change_begins(fid);
        let entry = self.change_name(parent, &request.name, self.change_mdt(fid, parent, &request)).await;
        let transno = entry.as_ref().map_or(Transno(0), |called| called.transno);
        leases.touch_at(fid, transno);
        drop(change);
        // Also if it failed, as nobody knows: then a durable write makes sure of a name too many.
        if let Some(file) = self.inner.file(fid) {
            file.activity.links.set(file.activity.links.get() + 1);
        }
        let entry = entry?.reply;
        let attr = entry.attr.clone();
        match self.complete(entry).await {
            // It was linked, and all its names were removed before the OSTs replied.
            Err(error) if error.errno == Errno::ESTALE => Ok(attr),
            other => other,
        }
    }
}
