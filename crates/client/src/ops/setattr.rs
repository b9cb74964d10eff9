//! SETATTR: owner, mode, times, size; delayed where the file is the client's alone ([`crate::delayed::set_attr`]).

use crate::{
    Attr, Caller, Client, ClientResult, OpenFile, SetAttributes, delayed::queue::Scope, mode, tasks::detached,
};
use forebay_env::Boxed;
use forebay_proto::{
    Fid, Transno,
    message::{EntryReply, Operation, SetAttr},
};
use forebay_rpc::{Call, RpcError};

impl Client {
    /// A change of an inode of which something may be kept.
    pub(crate) async fn change<O: Operation>(&self, fid: Fid, request: &O) -> Result<O::Reply, RpcError> {
        // What is made in a directory may depend on it.
        self.inner.mdt.leases.stop_answering(fid);
        let reply = self.change_inode(fid, request).await;
        self.inner.mdt.leases.stop_answering(fid);
        reply
    }

    /// The same of what a client can see of a directory whose names are its own: owner, permissions, times.
    async fn change_attributes(&self, request: &SetAttr, call: Call) -> Result<EntryReply, RpcError> {
        self.inner.mdt.leases.pause_answering(request.fid);
        let reply = self.change_inode_with(request.fid, request, call).await;
        self.inner.mdt.leases.resume_answering(request.fid);
        reply
    }

    async fn change_inode<O: Operation>(&self, fid: Fid, request: &O) -> Result<O::Reply, RpcError> {
        self.change_inode_with(fid, request, Call::level(self.level())).await
    }

    async fn change_inode_with<O: Operation>(&self, fid: Fid, request: &O, call: Call) -> Result<O::Reply, RpcError> {
        self.inner.mdt.leases.links_change(fid);
        let change = self.inner.mdt.leases.change_begins(fid);
        let result = self.call(request, Scope::Inode(fid), Call { fid: Some(fid), ..call }).await;
        let transno = result.as_ref().map_or(Transno(0), |called| called.transno);
        self.inner.mdt.leases.touch_at(fid, transno);
        drop(change);
        Ok(result?.reply)
    }

    /// Changes attributes. Through an `open` handle a truncate needs no permission (ftruncate), and fails as a write through it would.
    pub fn setattr<'a>(
        &'a self,
        caller: &'a Caller,
        fid: Fid,
        changes: SetAttributes,
        open: Option<&'a OpenFile>,
    ) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            if changes.atime.is_some() {
                self.inner.cache.accesses.forget(fid);
            }
            if let Some(attr) = self.delay_set_attr(caller, fid, &changes) {
                return Ok(attr);
            }
            let request = changes.request(caller, fid, open.map_or(0, OpenFile::handle));
            let (client, open) = (self.clone(), open.cloned());
            let through = open.clone().filter(|_| changes.size.is_some());
            // To its end: once it is asked for, the file is as long as that says, whoever hears of it.
            detached(self.env(), async move {
                let mut call = Call::level(client.level());
                let outside = match through {
                    Some(file) => {
                        client.settle_coming(fid).await;
                        let outside = client.flush_writes_through(&file).await?;
                        // What lets it cut the file may end with the session, as what lets it write does.
                        file.state().activity.reopening.ended().await;
                        file.check()?;
                        call.evictions = Some(client.inner.peers.mdt().session.stats().evictions);
                        Some(outside)
                    }
                    None => client.flush_writes_of(fid).await?,
                };
                let asked = client.inner.mdt.leases.ticket();
                let changing = changes.size.map(|_| client.all_bytes_change(fid));
                let entry = client.change_attributes(&request, call).await?;
                if let Some(file) = client.inner.file(fid) {
                    file.adopt(asked, &entry.attr, entry.layout.as_ref());
                    file.times_told(&entry.attr);
                }
                drop((outside, changing, open));
                if changes.mode.is_some_and(mode::has_set_ids) {
                    client.got_set_ids(fid);
                }
                client.complete(entry).await
            })
            .await
        })
    }
}
