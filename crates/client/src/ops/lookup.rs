//! Lookup of an entry.

use crate::{Attr, Caller, Client, ClientResult, delayed::queue::Scope, leases::Ticket, limits};
use bytes::Bytes;
use forebay_env::{Boxed, Bug, planted};
use forebay_proto::{
    Errno, Fid,
    message::{EntryReply, Lookup},
};

impl Client {
    /// Attributes of the entry `name`; `.` and `..` too.
    pub fn lookup<'a>(&'a self, caller: &'a Caller, parent: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            // Who is not the superuser may not search every directory.
            // What lies above a directory is no name in it, and is not kept with those that are.
            let is_dots = matches!(name, b"." | b"..") && !planted(Bug::DotDotFromCache);
            if caller.uid == 0
                && !is_dots
                && let Some(kept) = self.inner.mdt.leases.name(parent, name)
            {
                return Ok(self.with_accessed(kept.ok_or(Errno::ENOENT)?.attr));
            }
            let request = Lookup { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name) };
            for _ in 0..limits::STALE_ATTEMPTS {
                let asked = self.inner.mdt.leases.ticket();
                let reply = match self.statahead(asked, &request).await {
                    Some(reply) => reply,
                    None => {
                        // Changes of other names in the directory are nothing to it.
                        self.flush_delayed(Scope::Entry(parent, name)).await;
                        self.call(&request, Scope::SetAttrs, self.changes(parent)).await?.reply
                    }
                };
                self.learn_name(asked, parent, name, reply.leases, reply.entry.as_ref());
                let entry = reply.entry.ok_or(Errno::ENOENT)?;
                self.learn_choices(asked, &entry.attr);
                let fid = entry.attr.fid;
                let entry = if self.inner.delayed.has(Scope::Entries(fid)) {
                    // The MDT does not know of all its names yet.
                    self.getattr(fid, None).await
                } else {
                    self.complete(entry).await
                };
                match entry {
                    // The file was removed before the OSTs replied: the name leads to another one by now, or to none.
                    Err(error) if error.errno == Errno::ESTALE => {}
                    other => return other.map(|attr| self.with_accessed(attr)),
                }
            }
            Err(Errno::ESTALE.into())
        })
    }

    pub(crate) fn learn_name(&self, asked: Ticket, parent: Fid, name: &[u8], leases: u32, entry: Option<&EntryReply>) {
        if leases == 0 {
            return;
        }
        entry.inspect(|entry| self.inner.mdt.leases.learn(asked, entry));
        if !matches!(name, b"." | b"..") {
            entry.inspect(|entry| {
                self.inner.mdt.leases.learn_changes(asked, entry.leases, parent, Some(entry.attr.fid));
            });
            self.inner.mdt.leases.learn_name(asked, parent, name, leases, entry.map(|entry| entry.attr.fid));
        }
        self.inner.listen();
    }
}
