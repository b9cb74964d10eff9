//! SETATTR: owner, mode, times, size; delayed where the file is the client's alone ([`crate::delayed::send_set_attr`]).

use crate::{Attr, Caller, Client, ClientResult, OpenFile, SetAttributes, mode, tasks::detached};
use forebay_env::Boxed;
use forebay_proto::{
    Fid,
    message::{EntryReply, SetAttr},
};
use forebay_rpc::{Call, RpcError};

impl Client {
    /// A change of what a client can see of a directory whose names are its own: owner, permissions, times.
    async fn change_attributes(&self, request: &SetAttr, call: Call) -> Result<EntryReply, RpcError> {
        self.inner.mdt.leases.pause_answering(request.fid);
        let reply = self.change_inode(request.fid, request, call).await;
        self.inner.mdt.leases.resume_answering(request.fid);
        reply
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
            if let Some(attr) = self.with_slot(|| self.delay_set_attr(caller, fid, &changes)).await {
                return Ok(attr);
            }
            let request = changes.request(caller, fid, open.map_or(0, OpenFile::handle));
            let (client, open) = (self.clone(), open.cloned());
            let through = open.clone().filter(|_| changes.size.is_some());
            // To its end: once the request is sent, the file is as long as it says, whether or not anybody receives the
            // reply.
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
