//! Changes by this client that it waits for. While one is in flight, the MDT is asked for what it concerns, and what a
//! reply contains of that is not cached: the MDT may have sent it before the change.

use bytes::Bytes;
use forebay_proto::{Fid, Transno, message::Attr};

use super::{LeaseTable, Ticket, entry_of};

/// What a change under way concerns.
pub(super) struct OwnChange {
    fids: Vec<Fid>,
    /// The name that is changed, in the first inode.
    name: Option<Bytes>,
}

impl LeaseTable {
    /// [`LeaseTable::touch`] of a change that ends with [`LeaseTable::change_ends`], for which the number is.
    pub fn change_begins(&mut self, fid: Fid) -> Ticket {
        self.touch(fid);
        self.own.under_way.insert(self.sequence, OwnChange { fids: vec![fid], name: None });
        Ticket(self.sequence)
    }

    /// The change that `begun` numbers is over, or nobody waits for it any more.
    pub fn change_ends(&mut self, begun: Ticket) {
        self.own.under_way.remove(&begun.0);
    }

    /// A change of the inode is under way.
    pub(super) fn is_changing(&self, fid: Fid) -> bool {
        self.own.under_way.values().any(|change| change.fids.contains(&fid))
    }

    /// A change of `name` is under way.
    pub(super) fn is_name_changing(&self, parent: Fid, name: &[u8]) -> bool {
        self.own.under_way.values().any(|change| change.fids[0] == parent && change.name.as_deref() == Some(name))
    }

    /// A change of the inode begins, or has ended.
    pub fn touch(&mut self, fid: Fid) {
        self.next();
        self.change(fid);
    }

    /// The same of a change of its links, owner or permissions.
    pub fn links_change(&mut self, fid: Fid) {
        self.next();
        self.change_links(fid);
    }

    /// A change of the inode has ended, under `transno`: what earlier ones left it as does not count any more.
    pub fn touch_at(&mut self, fid: Fid, transno: Transno) {
        self.links_change(fid);
        let node = self.node(fid);
        node.transno = node.transno.max(transno);
    }

    /// A change of `name` begins. The number is for [`LeaseTable::name_changed`] and [`LeaseTable::change_ends`].
    pub fn name_changes(&mut self, parent: Fid, name: &[u8]) -> Ticket {
        let since = self.next();
        self.change(parent);
        let mut fids = vec![parent];
        let known = self.node(parent).names.get(name).and_then(|name| name.known);
        if let Some(Some(fid)) = known {
            self.change_links(fid);
            fids.push(fid);
        }
        self.set_name(parent, name, None, since);
        self.own.under_way.insert(since, OwnChange { fids, name: Some(Bytes::copy_from_slice(name)) });
        Ticket(since)
    }

    /// The change that `begun` numbers has ended, under `transno`, and left the directory as `dir`.
    pub fn directory_changed(&mut self, begun: Ticket, dir: &Attr, transno: Transno) {
        // The MDT may have executed another one since; nobody else can see that in a directory whose entries are ours to change.
        let is_known = !self.is_told(dir.fid) && (self.answers(dir.fid) || !self.is_changing(dir.fid));
        let counts = self.leased_mut(dir.fid).filter(|node| node.recalled <= begun.0);
        // Replies come in the order of the changes; their readers may run in another.
        if let Some(node) = counts.filter(|node| node.transno < transno) {
            node.transno = transno;
            node.entry = is_known.then(|| Box::new(entry_of(dir))).or(node.entry.take());
        }
    }

    /// The change that `begun` numbers has ended: `name` leads to `fid`; `None`: nobody knows where.
    pub fn name_changed(&mut self, begun: Ticket, parent: Fid, name: &[u8], fid: Option<Option<Fid>>) {
        self.change_ends(begun);
        let since = self.next();
        self.change(parent);
        // If another change of the same name was under way, which came first is not known.
        let is_changing = self.is_name_changing(parent, name);
        let node = self.node(parent);
        if !node.leased {
            // Nothing is known of it. Replies to earlier requests do not count either.
            node.recalled = since;
            return self.drop_name(parent, name);
        }
        let alone = !is_changing && node.names.get(name).is_some_and(|known| known.since == begun.0);
        let known = fid.filter(|_| alone && node.recalled <= begun.0);
        self.set_name(parent, name, known, since);
    }
}
