//! Who lists a directory looks at what it listed: `ls -l`, find, tar, rsync. So after a listing the first names that are
//! looked up bring others with them, under leases: few at first, then more with each that was not among them, as whoever
//! looks at many names looks at all.
//!
//! Invariant: no more names are brought than were listed, so that who looks at few of them has paid for one listing more.

use forebay_proto::{
    Fid,
    message::{EntryReply, Lookup, LookupReply, LookupStatahead, NamedAttr, lease_flags},
};

use crate::{Client, delayed::queue::Scope, leases::Ticket};

impl Client {
    /// How many names to look up beside this one, if any.
    fn looks_at_listed(&self, request: &Lookup) -> Option<u32> {
        // For others than the superuser, each is requested alone.
        let is_plain = request.caller.uid == 0 && !matches!(&request.name[..], b"." | b"..");
        if !is_plain {
            return None;
        }
        self.inner.cache.listings.begin(request.parent, self.env().now())
    }

    /// Looks a name up, and learns what others lead to, if its directory was listed. `None`: it is to be looked up by itself; so if
    /// that failed, as it may be another name's fault.
    pub(crate) async fn statahead(&self, asked: Ticket, request: &Lookup) -> Option<LookupReply> {
        let names = self.looks_at_listed(request)?;
        let mut coming = Coming { client: self, dir: request.parent, names: 0, any_new: false };
        self.flush_delayed(Scope::Entries(request.parent)).await;
        // The MDT may not know yet what programs were shown of these.
        let concerned = self.inner.delayed.queue.borrow().inodes();
        let question = LookupStatahead { lookup: request.clone(), names };
        let reply = self.call(&question, Scope::SetAttrs, self.changes(request.parent)).await.ok()?.reply;
        let is_new = |other: &NamedAttr| self.inner.mdt.leases.name(request.parent, &other.name).is_none();
        (coming.names, coming.any_new) = (reply.others.len(), reply.others.iter().any(is_new));
        drop(coming);
        for other in reply.others.into_iter().filter(|other| !concerned.contains(&other.attr.fid)) {
            self.learn_other(asked, request.parent, other);
        }
        Some(reply.found)
    }

    fn learn_other(&self, asked: Ticket, parent: Fid, other: NamedAttr) {
        self.learn_choices(asked, &other.attr);
        let (layout, default_layout) = (None, None);
        let leases = other.leases | lease_flags::INODE | lease_flags::PARENT;
        let entry = EntryReply { attr: other.attr, layout, default_layout, leases, parent: None };
        self.learn_name(asked, parent, &other.name, leases, Some(&entry));
    }
}

/// Names on their way; if they do not come, that is over too, and none were brought.
struct Coming<'a> {
    client: &'a Client,
    dir: Fid,
    names: usize,
    any_new: bool,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.client.inner.cache.listings.brought(self.dir, self.names, self.any_new, self.client.env().now());
    }
}
