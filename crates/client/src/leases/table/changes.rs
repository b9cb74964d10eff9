//! Changes by this client that it waits for. From its beginning to its end the MDT is asked for what a change concerns.

use forebay_proto::{Fid, Transno, message::Attr};

use super::{LeaseTable, Ticket, entry_of};

impl LeaseTable {
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

    /// A change of `name` begins. The number is for [`LeaseTable::name_changed`].
    pub fn name_changes(&mut self, parent: Fid, name: &[u8]) -> Ticket {
        let since = self.next();
        self.change(parent);
        let known = self.node(parent).names.get(name).and_then(|name| name.known);
        if let Some(Some(fid)) = known {
            self.change_links(fid);
        }
        self.set_name(parent, name, None, since);
        Ticket(since)
    }

    /// The change that `begun` numbers has ended, under `transno`, and left the directory as `dir`.
    pub fn directory_changed(&mut self, begun: Ticket, dir: &Attr, transno: Transno) {
        let is_told = self.is_told(dir.fid);
        let counts = self.leased_mut(dir.fid).filter(|node| node.recalled <= begun.0 && !is_told);
        // Replies come in the order of the changes; their readers may run in another.
        if let Some(node) = counts.filter(|node| node.transno < transno) {
            node.transno = transno;
            node.entry = Some(Box::new(entry_of(dir)));
        }
    }

    /// The change that `begun` numbers has ended: `name` leads to `fid`; `None`: nobody knows where.
    pub fn name_changed(&mut self, begun: Ticket, parent: Fid, name: &[u8], fid: Option<Option<Fid>>) {
        let since = self.next();
        self.change(parent);
        let node = self.node(parent);
        if !node.leased {
            // Nothing is known of it; whoever asked before now does not know either.
            node.recalled = since;
            return self.drop_name(parent, name);
        }
        // If another change of the same name was under way, which came first is not known.
        let alone = node.names.get(name).is_some_and(|known| known.since == begun.0);
        let known = fid.filter(|_| alone && node.recalled <= begun.0);
        self.set_name(parent, name, known, since);
    }
}
