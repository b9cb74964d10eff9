//! Rename, also across directories, and exchange of two entries.

use crate::{
    Caller, Client, ClientResult, Dropped, delayed::queue::Scope, leases::AllPaused, limits, mode, tasks::detached,
};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{Fid, message::Rename};

/// `RENAME_EXCHANGE` of renameat2(2).
const EXCHANGE: u32 = 2;

impl Client {
    /// Moves a name. `flags`: RENAME_NOREPLACE (1), RENAME_EXCHANGE (2).
    pub fn rename<'a>(
        &'a self,
        caller: &'a Caller,
        from: (Fid, &'a [u8]),
        to: (Fid, &'a [u8]),
        flags: u32,
    ) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let request = Rename {
                caller: caller.clone(),
                from_parent: from.0,
                from_name: Bytes::copy_from_slice(from.1),
                to_parent: to.0,
                to_name: Bytes::copy_from_slice(to.1),
                flags,
            };
            detached(self.env(), self.clone().send_rename(request)).await
        })
    }

    async fn send_rename(self, request: Rename) -> ClientResult<()> {
        let leases = &self.inner.mdt.leases;
        let (from, to) = (request.from_parent, request.to_parent);
        let names = [(from, &request.from_name[..]), (to, &request.to_name[..])];
        let moved = leases.name(from, &request.from_name).flatten();
        // What was made in a directory that gives way, too.
        let is_file = moved.is_some_and(|moved| !mode::is_dir(moved.attr.mode));
        let paused = (!is_file).then(|| leases.pause_answering_all());
        self.flush_delayed(Scope::All).await;
        let changes = names.map(|(parent, name)| (leases.name_changes(parent, name), parent, name));
        let believed = [from, to].map(|parent| leases.names_until(parent));
        let result = self.change_mdt(from, to, &request).await;
        paused.into_iter().for_each(AllPaused::over);
        // What the names lead to now is looked up when somebody wants to know.
        changes.iter().for_each(|(change, parent, name)| leases.name_changed(change.begun(), *parent, name, None));
        let called = result?;
        let exchanges = request.flags & EXCHANGE != 0;
        if let ([_, gone], false) = (&called.reply.fids[..], exchanges) {
            leases.gave_names_back(*gone);
        }
        self.touch_all(&called);
        for dir in &called.reply.parents {
            leases.directory_changed(changes[0].0.begun(), dir, called.transno);
        }
        let moved = from != to && leases.name_moved(believed[0], to);
        let moved_back = from != to && exchanges && leases.name_moved(believed[1], from);
        if moved || moved_back {
            self.names_are_forgotten().await;
        }
        Ok(())
    }

    /// Returns when no kernel caches a name any more that it received before.
    async fn names_are_forgotten(&self) {
        while !self.inner.mdt.leases.tell(vec![Dropped::Names]).is_empty() {
            self.env().sleep(limits::NOTIFY_PAUSE).await;
        }
    }
}
