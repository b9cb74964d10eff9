//! What all changes share: what is cached of the inode, or of the entry and its directory, follows the change.
//!
//! A change is run to its end ([`crate::tasks::detached`]), even if its caller stops waiting: the MDT may execute it at any time
//! until then, and what it replied to others before must not be cached.

use crate::{Attr, Client, delayed::queue::Scope};
use forebay_proto::{
    Fid, Transno,
    message::{Changed, EntryReply, OpenReply, Operation},
};
use forebay_rpc::{Call, Called, RpcError};

impl Client {
    /// A change of an inode of which something may be kept.
    pub(crate) async fn change<O: Operation>(&self, fid: Fid, request: &O) -> Result<O::Reply, RpcError> {
        // What is made in a directory may depend on it.
        self.inner.mdt.leases.stop_answering(fid);
        let reply = self.change_inode(fid, request, Call::level(self.level())).await;
        self.inner.mdt.leases.stop_answering(fid);
        reply
    }

    /// The same, whatever was made in a directory.
    pub(crate) async fn change_inode<O: Operation>(
        &self,
        fid: Fid,
        request: &O,
        call: Call,
    ) -> Result<O::Reply, RpcError> {
        self.inner.mdt.leases.links_change(fid);
        let change = self.inner.mdt.leases.change_begins(fid);
        let result = self.call(request, Scope::Inode(fid), Call { fid: Some(fid), ..call }).await;
        let transno = result.as_ref().map_or(Transno(0), |called| called.transno);
        self.inner.mdt.leases.touch_at(fid, transno);
        drop(change);
        Ok(result?.reply)
    }

    /// Changes one name.
    pub(crate) async fn change_name<R: Names>(
        &self,
        parent: Fid,
        name: &[u8],
        request: impl Future<Output = Result<Called<R>, RpcError>>,
    ) -> Result<Called<R>, RpcError> {
        let leases = &self.inner.mdt.leases;
        let change = leases.name_changes(parent, name);
        let result = request.await;
        leases.name_changed(change.begun(), parent, name, result.as_ref().ok().map(|called| called.reply.leads()));
        let called = result?;
        if let Some(dir) = called.reply.directory() {
            leases.directory_changed(change.begun(), dir, called.transno);
        }
        Ok(called)
    }

    /// What a change concerned beside the names that were given.
    pub(crate) fn touch_all(&self, changed: &Called<Changed>) {
        changed.reply.fids.iter().for_each(|fid| self.inner.mdt.leases.touch_at(*fid, changed.transno));
    }
}

/// What a reply contains of the name that was changed.
pub(crate) trait Names {
    /// Where it leads now.
    fn leads(&self) -> Option<Fid>;
    /// Its directory now.
    fn directory(&self) -> Option<&Attr>;
    /// Leases that come with it.
    fn leases(&self) -> u32;
}

impl Names for OpenReply {
    fn leads(&self) -> Option<Fid> {
        Some(self.attr.fid)
    }
    fn directory(&self) -> Option<&Attr> {
        self.parent.as_ref()
    }
    fn leases(&self) -> u32 {
        self.leases
    }
}

impl Names for EntryReply {
    fn leads(&self) -> Option<Fid> {
        Some(self.attr.fid)
    }
    fn directory(&self) -> Option<&Attr> {
        self.parent.as_ref()
    }
    fn leases(&self) -> u32 {
        self.leases
    }
}

impl Names for Changed {
    fn leads(&self) -> Option<Fid> {
        None
    }
    fn directory(&self) -> Option<&Attr> {
        self.parents.first()
    }
    fn leases(&self) -> u32 {
        self.leases
    }
}
