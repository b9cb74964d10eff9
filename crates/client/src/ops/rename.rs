//! Rename, also across directories, and exchange of two entries.

use crate::{Caller, Client, ClientResult, Dropped, delayed::queue::Scope, leases::AllPaused, limits, mode};
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
            // What was made in a directory that gives way, too.
            let leases = &self.inner.mdt.leases;
            let is_file = matches!(leases.name(from.0, from.1), Some(Some(moved)) if !mode::is_dir(moved.attr.mode));
            let paused = (!is_file).then(|| leases.pause_answering_all());
            self.flush_delayed(Scope::All).await;
            let changes = [from, to].map(|(parent, name)| (leases.name_changes(parent, name), parent, name));
            let believed = [from, to].map(|(parent, _)| leases.names_until(parent));
            let result = self.change_mdt(from.0, to.0, &request).await;
            paused.into_iter().for_each(AllPaused::over);
            // What the names lead to now is looked up when somebody wants to know.
            changes.iter().for_each(|(change, parent, name)| leases.name_changed(change.begun(), *parent, name, None));
            let called = result?;
            if let ([_, gone], false) = (&called.reply.fids[..], flags & EXCHANGE != 0) {
                leases.gave_names_back(*gone);
            }
            self.touch_all(&called);
            for dir in &called.reply.parents {
                leases.directory_changed(changes[0].0.begun(), dir, called.transno);
            }
            let moved = from.0 != to.0 && leases.name_moved(believed[0], to.0);
            let moved_back = from.0 != to.0 && flags & EXCHANGE != 0 && leases.name_moved(believed[1], from.0);
            if moved || moved_back {
                self.names_are_forgotten().await;
            }
            Ok(())
        })
    }

    /// Returns when no kernel caches a name any more that it received before.
    async fn names_are_forgotten(&self) {
        while !self.inner.mdt.leases.tell(vec![Dropped::Names]).is_empty() {
            self.env().sleep(limits::NOTIFY_PAUSE).await;
        }
    }
}
