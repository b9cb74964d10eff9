//! One operation in execution: rows of a transaction, memory, the request's origin, and the effects to carry out when
//! it is applied.
//!
//! Invariant: nothing here waits. If something is missing, the operation stops with a [`Halt`], and is started again
//! later.
//! Invariant: every inode, name and set of names that is read or changed is noted for commit-on-share. A change may
//! build on another session's uncommitted one, as commits are a prefix; its reply then leaves only after the commit.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    ClientId, Errno, ErrorReply, Fid, FidSequence, SessionId, Transno,
    message::{Caller, LockSpec},
};
use forebay_store::{StoreErrorKind, StoreResult, Txn};

use crate::{
    halt::{Halt, Step, corrupt},
    inode::Inode,
    keys::{self, Key},
    leases::Use,
    memory::Memory,
    opens::OpenChange,
    perm,
    placement::Table,
    tenant::Tenant,
    xattr_row,
};

/// Rows that can be read and changed together.
pub trait Rows {
    /// A row's value.
    fn get(&self, key: &[u8]) -> StoreResult<Option<Bytes>>;
    /// Sets a row.
    fn put(&mut self, key: &[u8], value: Bytes);
    /// Removes a row, if it exists.
    fn delete(&mut self, key: &[u8]);
}

impl Rows for Txn {
    fn get(&self, key: &[u8]) -> StoreResult<Option<Bytes>> {
        Txn::get(self, key)
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        Txn::put(self, key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        Txn::delete(self, key);
    }
}

/// Is notified of every key that an operation reads (inode, first cookie of a name, all names of a directory).
pub trait Sharing {
    /// The operation builds on, or shows, the row under `key`.
    fn note(&self, key: Key);

    /// The inodes noted so far on which other clients hold conflicting leases. Called once, at the end.
    fn conflicts(&self) -> BTreeMap<Fid, Use> {
        BTreeMap::new()
    }

    /// True if the operation has waited until no other client held a lease on `fid`.
    fn waited_for(&self, _fid: Fid) -> bool {
        false
    }
}

/// For changes of the server's own: they are shown to no session.
pub struct Alone;

impl Sharing for Alone {
    fn note(&self, _key: Key) {}
}

/// The origin of a request.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The session.
    pub session: SessionId,
    /// The client.
    pub client: ClientId,
    /// True if it is executed again after a restart.
    pub is_replay: bool,
    /// Its transno (0 for one that only reads).
    pub transno: Transno,
    /// The server's Unix time; a replay keeps that of its first execution.
    pub now_ns: i64,
    /// True if the MDT's device has space for more than deletes.
    pub has_space: bool,
    /// True if it also has space for inline data.
    pub has_space_for_inline: bool,
}

/// What remains to be done after the transaction was applied.
#[derive(Debug, Default)]
pub struct Effects {
    /// Handles that were opened or closed.
    pub opens: Vec<OpenChange>,
    /// Inodes created minus inodes removed.
    pub inodes: i64,
    /// True if there are new objects to destroy.
    pub destroys: bool,
    /// A truncate to be driven to the OSTs.
    pub truncate: Option<Fid>,
    /// A file whose new layout nobody may see before it is committed, not even the requester.
    pub hidden: Option<Fid>,
    /// A new placement table, and the transno from which it is in force.
    pub table: Option<(Transno, Table)>,
    /// Locks that were reclaimed.
    pub locks: Vec<(SessionId, Fid, LockSpec)>,
    /// The reply waits for the commit. Either the client acts on it elsewhere, and the change must not be lost after
    /// that, or the inode's level demands it.
    pub durable: bool,
    /// A sequence was leased.
    pub lease: Option<(FidSequence, ClientId)>,
    /// Keys whose changes other sessions must not see before they are committed.
    pub touched: Vec<Key>,
    /// Rows that are set or removed.
    pub written: Vec<Key>,
    /// A file that a session may write to from now on: the OSTs know its size and times.
    pub opened: Option<Fid>,
    /// Inodes on which the reply grants a lease.
    pub granted: Vec<Fid>,
    /// The file on which it grants a data lease.
    pub granted_data: Option<Fid>,
    /// Directories on which it grants an entries-write lease.
    pub granted_entries_write: Vec<Fid>,
    /// Leases among these that no other session may get meanwhile, each with the directory whose entries the session
    /// changes.
    pub alone: Vec<(Fid, Fid)>,
    /// A directory that was removed.
    pub removed: Option<Fid>,
    /// Directories of which the session has delayed changes in flight.
    pub changing: Vec<Fid>,
    /// Files that the session reclaims, and whether it holds a data lease on each.
    pub reclaimed: Vec<(Fid, bool)>,
    /// Bulk of the reply; not stored with it.
    pub bulk: Option<Bytes>,
}

impl Effects {
    /// Inodes whose leases must be recalled: their attributes, their entries, or their writers change.
    pub fn changes(&self) -> impl Iterator<Item = Fid> {
        self.written.iter().filter_map(|key| keys::leased(key.as_ref())).chain(self.opened)
    }
}

/// One operation in execution. See the module.
pub struct Tx<'a> {
    rows: &'a mut dyn Rows,
    sharing: &'a dyn Sharing,
    /// The server's state in memory.
    pub memory: &'a Memory,
    /// The request's origin.
    pub origin: Origin,
    /// What remains to be done after the transaction.
    pub effects: Effects,
    /// The tenant of the requester's node: it reaches nothing outside of the tenant's subtree.
    pub tenant: Option<Tenant>,
    /// True if the client has acknowledged the change already: it is not refused for lack of space.
    answered: bool,
    scratch: Vec<u8>,
}

impl<'a> Tx<'a> {
    /// An operation of `origin` over `rows`.
    pub fn new(rows: &'a mut dyn Rows, sharing: &'a dyn Sharing, memory: &'a Memory, origin: Origin) -> Self {
        Self {
            rows,
            sharing,
            memory,
            origin,
            effects: Effects::default(),
            tenant: None,
            answered: false,
            scratch: Vec::with_capacity(256),
        }
    }

    /// The same, on behalf of a node of this tenant.
    pub fn of_tenant(self, tenant: Option<Tenant>) -> Self {
        Self { tenant, ..self }
    }

    /// A row as it is, whichever session changed it.
    pub fn row(&self, key: Key) -> Step<Option<Bytes>> {
        self.rows.get(key.as_ref()).map_err(|error| match error.kind {
            StoreErrorKind::NotResident => Halt::Missing(vec![key]),
            _ => Halt::Fail(forebay_target::store_error(error)),
        })
    }

    /// Sets a row.
    pub fn put(&mut self, key: Key, value: &[u8]) {
        self.effects.written.push(key);
        self.rows.put(key.as_ref(), Bytes::copy_from_slice(value));
    }

    /// Sets a row to what `encode` appends.
    pub fn put_with(&mut self, key: Key, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        encode(&mut scratch);
        self.put(key, &scratch);
        self.scratch = scratch;
    }

    /// Removes a row.
    pub fn delete(&mut self, key: Key) {
        self.effects.written.push(key);
        self.rows.delete(key.as_ref());
    }

    /// For a delayed directory operation: the client acknowledged it at `at_ns`, so it must be applied with that
    /// result. No effect if `at_ns` is 0. Errors: ESTALE if the client did not hold the lease, or has lost it.
    pub fn answered_at(&mut self, parent: Fid, at_ns: i64) -> Step<()> {
        if at_ns == 0 {
            return Ok(());
        }
        let has_names = || self.memory.leases.data.entries_write_of(self.origin.session, parent).is_some();
        if !self.origin.is_replay && !has_names() && !planted(Bug::LateChangeMade) {
            let words = format!("a change of {parent} was answered under a lease that has ended since");
            return Err(ErrorReply::new(Errno::ESTALE, words).into());
        }
        self.origin.now_ns = at_ns;
        // There was space when the lease was granted, and it is recalled when space runs short.
        self.answered = true;
        Ok(())
    }

    /// See [`Tx::answered_at`].
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// True if other clients released their leases on `fid` for this request.
    pub fn waited_for(&self, fid: Fid) -> bool {
        self.sharing.waited_for(fid)
    }

    /// Notes that the operation shows, or builds on, the row under `key`.
    pub fn share(&self, key: Key) {
        self.sharing.note(key);
    }

    /// Notes that the row under `key` changes in a way that others must not see before it is committed.
    pub fn touch(&mut self, key: Key) {
        self.effects.touched.push(key);
    }

    /// The inode of `fid`, if there is one.
    pub fn find_inode(&self, fid: Fid) -> Step<Option<Inode>> {
        let key = keys::inode(fid);
        let row = self.row(key)?;
        let mut inode = match row.as_deref().map(Inode::decode).transpose() {
            Ok(inode) => inode,
            Err(error) => return Err(corrupt(key.as_ref(), error)),
        };
        if let (Some(tenant), Some(inode)) = (&self.tenant, &mut inode) {
            // Before it is shared: nobody has to wait, or give a lease back, for what is not shown.
            tenant.check_reaches(inode)?;
            inode.guard = tenant.guard(inode);
        }
        self.share(key);
        let Some(mut inode) = inode else { return Ok(None) };
        if inode.has_acl {
            let list = self.xattrs(fid, &inode)?;
            inode.acls = xattr_row::acls(&list).map_err(|error| corrupt(keys::xattrs(fid).as_ref(), error))?;
        }
        Ok(Some(inode))
    }

    /// Errors: ESTALE if the inode exists and is out of the requester's reach. For operations that do not look at it.
    pub fn check_reach(&self, fid: Fid) -> Step<()> {
        match self.tenant {
            Some(_) => self.find_inode(fid).map(drop),
            None => Ok(()),
        }
    }

    /// Errors: EACCES if user 0 of a tenant's node may not read the inode. For requests that name no caller.
    pub fn check_guard(&self, inode: &Inode) -> Step<()> {
        match inode.guard {
            Some(_) => Ok(perm::access(&Caller { uid: 0, gid: 0, groups: Vec::new() }, inode, perm::READ)?),
            None => Ok(()),
        }
    }

    /// The highest directory that the requester can name.
    pub fn highest(&self) -> Fid {
        self.tenant.as_ref().map_or(Fid::ROOT, |tenant| tenant.root)
    }

    /// The directory above `fid`, as the requester sees it. Errors: ENOTDIR.
    pub fn parent_of(&self, fid: Fid, dir: &Inode) -> Step<Fid> {
        let above = dir.dir().ok_or(Errno::ENOTDIR)?.parent;
        Ok(if fid == self.highest() { fid } else { above })
    }

    /// Errors: EXDEV if a name in `dir` would lead to an inode of another project. So all that is below a tenant's subtree
    /// is of its project, and nothing else is.
    pub fn check_project(dir: &Inode, inode: &Inode) -> Step<()> {
        match dir.project == inode.project {
            true => Ok(()),
            false => {
                Err(ErrorReply::new(Errno::EXDEV, "the subtree of a tenant is as a file system of its own").into())
            }
        }
    }

    /// The extended attributes of an inode.
    pub fn xattrs(&self, fid: Fid, inode: &Inode) -> Step<xattr_row::List> {
        let key = keys::xattrs(fid);
        let row = if inode.xattrs { self.row(key)? } else { None };
        row.map_or(Ok(Vec::new()), |row| xattr_row::decode(&row).map_err(|error| corrupt(key.as_ref(), error)))
    }

    /// The inode of `fid`. Errors: ESTALE.
    pub fn inode(&self, fid: Fid) -> Step<Inode> {
        self.find_inode(fid)?.ok_or(Halt::Fail(Errno::ESTALE.into()))
    }

    /// The inode that a name points to. Errors: EIO, as a name without an inode is damage.
    pub fn named_inode(&self, fid: Fid) -> Step<Inode> {
        self.find_inode(fid)?.ok_or_else(|| {
            ErrorReply::new(Errno::EIO, format!("a name points to {fid}, which has no inode; run forebay fsck")).into()
        })
    }

    /// A directory for lookups. Errors: ESTALE, ENOTDIR.
    pub fn dir(&self, fid: Fid) -> Step<Inode> {
        let inode = self.inode(fid)?;
        if inode.is_dir() { Ok(inode) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// If the inode's level demands it, the reply waits for the commit.
    pub fn insist_on_commit(&mut self, inode: &Inode) {
        self.effects.durable |= inode.commits() && !planted(Bug::LevelOfInodeIgnored);
    }

    /// Writes an inode's row.
    pub fn put_inode(&mut self, fid: Fid, inode: &mut Inode) {
        self.insist_on_commit(inode);
        if self.origin.transno != Transno(0) {
            inode.transno = self.origin.transno;
        }
        self.put_with(keys::inode(fid), |out| inode.encode(out));
    }

    /// Writes an inode's row; others must not see it before it is committed.
    pub fn put_inode_touched(&mut self, fid: Fid, inode: &mut Inode) {
        self.touch(keys::inode(fid));
        self.put_inode(fid, inode);
    }

    /// Writes an inode's row of which only the access time changed. Other clients keep their leases, and no reply waits
    /// for the commit.
    pub fn put_inode_accessed(&mut self, fid: Fid, inode: &Inode) {
        let mut row = Vec::new();
        inode.encode(&mut row);
        self.rows.put(keys::inode(fid).as_ref(), row.into());
    }

    /// Counts inodes that are created or removed.
    pub fn count_inodes(&mut self, difference: i64) {
        self.effects.inodes += difference;
        let inodes = self.memory.inodes.saturating_add_signed(self.effects.inodes);
        self.put_with(keys::inode_count(), |out| {
            out.push(1);
            crate::varint::put(out, inodes);
        });
    }

    /// Halts while a truncate of `fid` is in progress. A replay need not wait, as the OSTs order it by the epoch. EIO
    /// if the truncate is stuck.
    pub fn wait_for_truncate(&self, fid: Fid) -> Step<()> {
        if self.origin.is_replay || !self.memory.truncating.contains(&fid) {
            return Ok(());
        }
        if self.memory.stuck.contains(&fid) {
            return Err(stuck_truncate(fid).into());
        }
        Err(Halt::Truncating(fid))
    }

    /// The same for operations that only read the inode's attributes, or remove it: a stuck truncate does not stop
    /// them.
    pub fn wait_while_cut(&self, fid: Fid) -> Step<()> {
        if self.memory.stuck.contains(&fid) { Ok(()) } else { self.wait_for_truncate(fid) }
    }

    /// Halts an operation that would use the last free bytes, which deletes need. A replay had its space.
    pub fn need_space(&self) -> Step<()> {
        if self.origin.has_space || self.origin.is_replay || self.answered {
            return Ok(());
        }
        Err(Halt::NoSpace)
    }
}
/// The error for a file whose truncate is stuck on an OST.
pub fn stuck_truncate(fid: Fid) -> ErrorReply {
    let words = format!("a truncate of {fid} does not come to an end on its OSTs; the log of the MDT says why");
    ErrorReply::new(Errno::EIO, words)
}
