//! The end of an inode: its last name, its last handle, its rows, its objects.
//!
//! Invariant: an inode without a name has an orphan row while it is open, and no row at all afterwards.
//! Invariant: the destroy of its objects is logged in the transaction that removes its row.

use forebay_env::{Bug, planted};
use forebay_proto::{Errno, Fid, SessionId};

use crate::{
    halt::Step,
    inode::{Body, Inode},
    keys,
    tx::Tx,
};

const VERSION: u8 = 1;
/// The orphan was created without a name, and may get one.
const LINKABLE: u8 = 1;

impl Tx<'_> {
    /// Marks a new inode without a name; `linkable`: it may get one.
    pub fn put_orphan(&mut self, fid: Fid, linkable: bool) {
        self.put(keys::orphan(fid), &[VERSION, if linkable { LINKABLE } else { 0 }]);
    }

    /// Removes the mark of an orphan that may get a name. Errors: ENOENT for one that may not.
    pub fn adopt_orphan(&mut self, fid: Fid) -> Step<()> {
        let key = keys::orphan(fid);
        let row = self.row(key)?.ok_or(Errno::ENOENT)?;
        if row.get(1).is_none_or(|flags| flags & LINKABLE == 0) {
            return Err(Errno::ENOENT.into());
        }
        self.delete(key);
        Ok(())
    }

    /// Removes a link of `inode` (its row is not yet written): it has fewer links, or becomes an orphan, or is reaped.
    pub fn drop_link(&mut self, fid: Fid, inode: &mut Inode) -> Step<()> {
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
        inode.changed_at(self.origin.now_ns);
        if inode.nlink > 0 {
            self.put_inode_touched(fid, inode);
            return Ok(());
        }
        self.touch(keys::inode(fid));
        if self.memory.opens.count(fid).handles == 0 || planted(Bug::OpenFileReaped) {
            return reap(self, fid, inode);
        }
        self.put_inode(fid, inode);
        self.put_orphan(fid, false);
        Ok(())
    }

    /// Removes a handle's row, and the inode with the last handle of an orphan. True if the inode was removed. `wrote`:
    /// bytes were written, or may have been, through the handle.
    pub fn drop_handle(&mut self, fid: Fid, session: SessionId, handle: u64, inode: &Inode, wrote: bool) -> Step<bool> {
        let counted = self.memory.opens.flags(fid, session, handle).is_some();
        self.delete(keys::handle(fid, session, handle));
        self.effects.opens.push(crate::opens::OpenChange::Closed { fid, session, handle, wrote });
        let others = self.memory.opens.count(fid).handles - u32::from(counted);
        let ends = others == 0 && inode.nlink == 0;
        if ends {
            self.delete(keys::orphan(fid));
            reap(self, fid, inode)?;
        }
        Ok(ends)
    }
}

/// Removes all rows of an inode without names and handles, except its orphan row, and logs the destroy of its objects.
pub fn reap(tx: &mut Tx<'_>, fid: Fid, inode: &Inode) -> Step<()> {
    // A truncate in flight would recreate the object after its destroy. (A stuck truncate has none in flight; when it
    // is retried it finds no file.)
    tx.wait_while_cut(fid)?;
    tx.insist_on_commit(inode);
    if inode.xattrs {
        tx.delete(keys::xattrs(fid));
    }
    tx.delete(keys::inode(fid));
    if inode.inline {
        tx.delete(keys::inline(fid));
    }
    if inode.truncate_epoch > 0 {
        tx.delete(keys::truncate(fid));
    }
    tx.count_inodes(-1);
    // A truncate, a migration or a new layout raises the epoch.
    let is_empty = inode.truncate_epoch == 0 && tx.memory.opens.is_certainly_empty(fid);
    if let (Body::File(layout), true) = (&inode.body, inode.written && !is_empty) {
        let objects = layout.objects_of(fid);
        if objects != fid {
            tx.delete(keys::objects(objects));
        }
        let osts = if planted(Bug::ObjectsLeaked) { Vec::new() } else { layout.osts() };
        osts.into_iter().for_each(|ost| tx.put(keys::destroy(ost, objects), &[VERSION]));
        tx.effects.destroys = true;
    }
    Ok(())
}
