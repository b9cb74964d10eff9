//! SETATTR: owner, mode, times, size; delayed where the file is the client's alone ([`crate::delayed::set_attr`]).

use crate::{Attr, Caller, Client, ClientResult, OpenFile, delayed::queue::Scope, mode, tasks::detached};
use forebay_env::Boxed;
use forebay_proto::{
    Fid, Transno,
    message::{EntryReply, Operation, SetAttr, set_attr},
};
use forebay_rpc::{Call, RpcError};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's now.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Attributes to change; `None` = as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

impl SetAttributes {
    pub(crate) fn request(&self, caller: &Caller, fid: Fid, handle: u64) -> SetAttr {
        let mut mask = 0;
        let mut take = |value: Option<u64>, bit: u32| {
            mask |= if value.is_some() { bit } else { 0 };
            value.unwrap_or(0)
        };
        let mode = take(self.mode.map(u64::from), set_attr::MODE) as u32;
        let uid = take(self.uid.map(u64::from), set_attr::UID) as u32;
        let gid = take(self.gid.map(u64::from), set_attr::GID) as u32;
        let size = take(self.size, set_attr::SIZE);
        let mut time = |time: Option<SetTime>, given: u32, now: u32| {
            let (bit, ns) = match time {
                None => (0, 0),
                Some(SetTime::Now) => (now, 0),
                Some(SetTime::At(ns)) => (given, ns),
            };
            mask |= bit;
            ns
        };
        let atime_ns = time(self.atime, set_attr::ATIME, set_attr::ATIME_NOW);
        let mtime_ns = time(self.mtime, set_attr::MTIME, set_attr::MTIME_NOW);
        SetAttr { caller: caller.clone(), fid, mask, mode, uid, gid, size, atime_ns, mtime_ns, handle, at_ns: 0 }
    }
}

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
        let result = self.call(request, Scope::Inode(fid), Call { fid: Some(fid), ..call }).await;
        let transno = result.as_ref().map_or(Transno(0), |called| called.transno);
        self.inner.mdt.leases.touch_at(fid, transno);
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
                self.forget_access(fid);
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
                        file.state().reopened().await;
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
