//! What is believed of what is kept, and what others may believe.

use std::time::Duration;

use forebay_env::Time;
use forebay_proto::{
    Fid,
    limits::NAME_BYTES,
    message::{Attr, EntryReply},
};

use super::{Holds, LeaseTable, Node, Ticket};
use crate::limits;

impl LeaseTable {
    /// The inode's attributes.
    pub fn entry(&mut self, fid: Fid) -> Option<EntryReply> {
        self.wanted()?;
        self.nodes.get(&fid)?.entry()
    }

    /// There is a lease on the inode: nobody else writes to the file before that is recalled.
    pub fn is_leased(&mut self, fid: Fid) -> bool {
        self.alive().is_some() && self.leased(fid).is_some()
    }

    /// The attributes of a file that only we write, as they were before what we did to it since.
    pub fn written(&mut self, fid: Fid) -> Option<EntryReply> {
        self.wanted()?;
        self.nodes.get(&fid).filter(|_| self.holds(fid) == Holds::All)?.written.as_deref().cloned()
    }

    /// What a name leads to; `Some(None)`: to nothing.
    pub fn name(&mut self, parent: Fid, name: &[u8]) -> Option<Option<EntryReply>> {
        self.wanted()?;
        match self.leased(parent)?.known(name)? {
            // It is too long to be one; the MDT replies with that error.
            None if name.len() > NAME_BYTES => None,
            None => Some(None),
            Some(fid) => self.nodes.get(&fid)?.entry().map(Some),
        }
    }

    /// How long `attr` may be cached by somebody else, who is notified when that ends.
    pub fn attributes_for(&mut self, attr: &Attr) -> Duration {
        let is_current = |node: &Node| node.entry.as_ref().is_some_and(|entry| entry.attr == *attr);
        self.believed_for(attr.fid, is_current, |node| &mut node.attributes_until)
    }

    /// How long the attributes of a file that we have just made, and have open, may be believed by somebody else who knows
    /// what it does to them itself.
    pub fn new_file_for(&mut self, fid: Fid) -> Duration {
        self.believed_for(fid, |_| true, |node| &mut node.attributes_until)
    }

    /// How long `name` may be believed to lead to `fid` by somebody else, if that is what is kept.
    pub fn name_for(&mut self, parent: Fid, name: &[u8], fid: Option<Fid>) -> Duration {
        self.believed_for(parent, |node| node.known(name) == Some(fid), |node| &mut node.names_until)
    }

    /// Until when somebody may believe names of a directory.
    pub fn names_until(&self, dir: Fid) -> Time {
        self.nodes.get(&dir).map_or(Time(0), |node| node.names_until)
    }

    /// A name that may be cached `until` then was moved to another directory, and may be cached there as long. True if
    /// the end of that needs a notification, as the names of this directory are not leased.
    pub fn name_moved(&mut self, until: Time, to: Fid) -> bool {
        if until <= self.now {
            return false;
        }
        let Some(node) = self.leased_mut(to) else { return true };
        node.names_until = node.names_until.max(until);
        false
    }

    /// Nothing has happened to the inode since the request `asked`: we have not changed it, and nobody else may have.
    pub fn is_unchanged(&self, fid: Fid, asked: Ticket) -> bool {
        self.nodes.get(&fid).map_or(self.forgotten, Node::last) <= asked.0
    }

    /// Somebody wants some of what is leased. `None`: the time is over.
    pub(super) fn wanted(&mut self) -> Option<()> {
        self.alive().map(|_| self.used = self.now)
    }

    /// How long somebody else may believe something of a leased inode, if it `is_so`; `until` is where that is noted.
    fn believed_for(
        &mut self,
        fid: Fid,
        is_so: impl FnOnce(&Node) -> bool,
        until: impl FnOnce(&mut Node) -> &mut Time,
    ) -> Duration {
        let Some(left) = self.alive() else { return Duration::ZERO };
        let believed = self.now + left + limits::KERNEL_DELAY;
        let Some(node) = self.leased_mut(fid).filter(|node| is_so(node)) else { return Duration::ZERO };
        *until(node) = believed;
        left
    }
}
