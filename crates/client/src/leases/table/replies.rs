//! What replies bring. Each counts only for what has not happened since its request was sent.

use forebay_proto::{
    Fid,
    message::{Attr, EntryReply, OpenReply, attr_flags, lease_flags},
};

use super::{Holds, LeaseTable, Ticket, entry_of};

impl LeaseTable {
    /// What a reply contains of an inode.
    pub fn learn(&mut self, asked: Ticket, entry: &EntryReply) {
        let fid = entry.attr.fid;
        if entry.leases & lease_flags::INODE == 0 || !self.lease(asked, fid) {
            return;
        }
        // Of a file that somebody has open for writing the OSTs know more, or we do.
        let written = entry.attr.flags & attr_flags::SIZE_ON_OST != 0;
        let ours = entry.attr.flags & attr_flags::SOLE_WRITER != 0 && self.holds(fid) == Holds::All;
        if self.is_told(fid) || self.is_changing(fid) || self.node(fid).changed > asked.0 {
            return;
        }
        let node = self.node(fid);
        if !written {
            node.entry = Some(Box::new(entry.clone()));
        } else if ours && node.data_ended <= asked.0 {
            node.written = Some(Box::new(entry.clone()));
        }
    }

    /// What a reply contains of a name: `leases` of the reply.
    pub fn learn_name(&mut self, asked: Ticket, parent: Fid, name: &[u8], leases: u32, fid: Option<Fid>) {
        if leases & lease_flags::PARENT == 0 || !self.lease(asked, parent) || self.is_name_changing(parent, name) {
            return;
        }
        let since = self.sequence;
        // Where all names are known one that is not there is known to be absent, since whenever.
        let node = self.node(parent);
        if node.names.get(name).map_or(!node.complete, |known| known.since <= asked.0) {
            self.set_name(parent, name, Some(fid), since);
        }
    }

    /// A file that was just made, by this client. Its attributes are for who follows what we do to it.
    pub fn learn_file(&mut self, asked: Ticket, file: &OpenReply) {
        if file.leases & lease_flags::INODE != 0 {
            self.lease(asked, file.attr.fid);
        }
    }

    /// What a file is like that this client opened to read, or of which it closed the last handle that could write.
    pub fn learn_attributes(&mut self, asked: Ticket, file: &Attr) {
        self.learn(asked, &entry_of(file));
    }

    /// A directory that was just made, by this client: it has no names.
    pub fn learn_empty(&mut self, asked: Ticket, entry: &EntryReply) {
        self.learn(asked, entry);
        if let Some(node) = self.leased_mut(entry.attr.fid).filter(|node| node.names.is_empty()) {
            // After a recall others may have made names in it, whatever lease has come since.
            node.complete = node.changed.max(node.recalled) <= asked.0;
        }
    }

    /// It was read at `at_ns`: the MDT will be notified.
    pub fn accessed(&mut self, fid: Fid, at_ns: i64) {
        if let Some(node) = self.nodes.get_mut(&fid) {
            let entries = [node.entry.as_mut(), node.written.as_mut()];
            entries.into_iter().flatten().for_each(|entry| entry.attr.atime_ns = entry.attr.atime_ns.max(at_ns));
        }
    }

    /// The reply to the request `asked` granted a lease. False if it was recalled since.
    fn lease(&mut self, asked: Ticket, fid: Fid) -> bool {
        let holds = self.node(fid).recalled <= asked.0;
        if holds {
            self.begin_lease(fid);
        }
        holds
    }
}
