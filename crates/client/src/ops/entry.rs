//! What all changes of entries share: what is cached of the entry and its directory follows the change.

use crate::{Attr, Client};
use forebay_proto::{
    Fid,
    message::{Changed, EntryReply, OpenReply},
};
use forebay_rpc::{Called, RpcError};

impl Client {
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
