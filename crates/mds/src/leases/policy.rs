//! Which leases a reply grants: what an operation may lease to the session that sent it.
//!
//! Invariant: a replay grants nothing, nor does a request of the server itself.
//! Not here: what is recalled before an operation (`Leases::recall`), and what is remembered of grants
//! (`Leases::grant*`).

use forebay_proto::{
    Fid, SessionId,
    message::{Attr, lease_flags, open_flags},
};

use crate::{halt::Step, inode::Inode, ops, tx::Tx};

impl Tx<'_> {
    /// Leases `fid` to the session with the reply: `flag` of [`lease_flags`], or 0. A file's attributes are not leased
    /// while another session may write to it; the session knows its own writes.
    pub fn lease(&mut self, fid: Fid, flag: u32) -> u32 {
        let is_written = self.memory.opens.has_writer(fid) || self.effects.opened == Some(fid);
        let is_written = is_written && !self.memory.opens.is_sole_holder(fid, self.origin.session);
        let is_cut = self.effects.truncate == Some(fid) || self.memory.truncating.contains(&fid);
        if is_written || is_cut { 0 } else { self.lease_anyway(fid, flag) }
    }

    /// The same, also for an inode whose leases other clients released for this request.
    pub fn lease_waited_for(&mut self, fid: Fid, flag: u32) -> u32 {
        let origin = &self.origin;
        let is_written = self.memory.opens.has_writer(fid) || self.memory.truncating.contains(&fid);
        let is_given_back = self.waited_for(fid) && self.memory.leases.is_free_after_wait(origin.session, fid);
        if !is_given_back || origin.is_replay || is_written {
            return self.lease(fid, flag);
        }
        self.effects.granted.push(fid);
        flag
    }

    /// The same without that check: the caller knows that no other session can write to the file once this request is
    /// done.
    pub fn lease_anyway(&mut self, fid: Fid, flag: u32) -> u32 {
        let origin = &self.origin;
        let is_client = origin.session != SessionId(0) && !origin.is_replay;
        if !is_client || !self.memory.leases.is_free(origin.session, fid) {
            return 0;
        }
        self.effects.granted.push(fid);
        flag
    }

    /// Grants a data-write lease on `fid` with the reply, if the session opens it for writing and nobody else has it
    /// open.
    pub fn lease_data(&mut self, fid: Fid, flags: u32) -> u32 {
        let origin = &self.origin;
        let is_client = origin.session != SessionId(0) && !origin.is_replay;
        let is_alone = self.memory.opens.is_sole_holder(fid, origin.session);
        let writes = flags & open_flags::WRITE != 0;
        if !is_client || !writes || !is_alone || !self.memory.leases.is_data_free(origin.session, fid) {
            return 0;
        }
        self.effects.granted_data = Some(fid);
        lease_flags::DATA
    }

    /// Makes the session the exclusive holder of a lease on `fid`, if possible, while it changes the entries of
    /// `parent`. `flags`: the leases on `fid` granted so far.
    pub fn lease_exclusive(&mut self, fid: Fid, parent: Fid, flags: u32) -> u32 {
        if flags & lease_flags::INODE == 0 || !self.memory.leases.is_alone(self.origin.session, fid, parent) {
            return flags;
        }
        self.effects.alone.push((fid, parent));
        flags | lease_flags::ALONE
    }

    /// Grants the entries-write lease on a directory if the session has a lease on it and no other session has: `flag`,
    /// or 0. Not granted where new inodes depend on more than their mode, where there may be no space for them, or
    /// where a change must be durable before its reply.
    pub fn lease_entries_write(&mut self, fid: Fid, dir: &Inode, flag: u32) -> u32 {
        let origin = &self.origin;
        let is_kept = self.memory.leases.has(origin.session, fid) || self.effects.granted.contains(&fid);
        let is_client = origin.session != SessionId(0) && !origin.is_replay;
        let is_plain = !dir.has_acl && !dir.commits() && dir.nlink > 0 && dir.is_dir();
        if !is_client || !is_kept || !is_plain || !origin.has_space || !ops::create::takes_files(self, dir) {
            return 0;
        }
        if !self.memory.leases.is_names_free(origin.session, fid) {
            return 0;
        }
        self.effects.granted_entries_write.push(fid);
        flag
    }

    /// The directory's attributes after this operation, for a client that caches them.
    pub fn cached_parent(&self, fid: Fid) -> Step<Option<Attr>> {
        if self.origin.is_replay || !self.memory.leases.has(self.origin.session, fid) {
            return Ok(None);
        }
        Ok(self.find_inode(fid)?.map(|dir| self.attr(fid, &dir)))
    }
}
