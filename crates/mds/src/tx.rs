//! One operation at work: rows of a transaction, memory, the request's origin, and what follows when it is applied.
//!
//! Invariant: nothing here waits. What is not there stops the operation with a [`Halt`], and it begins anew.
//! Invariant: every inode, name and set of names that is read or changed is noted for commit on share. A change may be
//! built on another session's uncommitted one, as commits are a prefix; its reply then leaves only after the commit.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    ClientId, Errno, ErrorReply, Fid, FidSequence, SessionId, Transno,
    message::{Attr, LockSpec, lease_flags, open_flags},
};
use forebay_store::{StoreErrorKind, StoreResult, Txn};

use crate::{
    halt::{Halt, Step, corrupt},
    inode::Inode,
    keys::{self, Key},
    leases::Use,
    memory::Memory,
    opens::OpenChange,
    ops,
    placement::Table,
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

/// Hears of every key under which an operation looks (inode, first cookie of a name, all names of a directory).
pub trait Sharing {
    /// The operation builds on, or shows, what lies under `key`.
    fn note(&self, key: Key);

    /// What other clients may show differently so far. Asked once, at the end.
    fn kept(&self) -> BTreeMap<Fid, Use> {
        BTreeMap::new()
    }

    /// The operation has waited until no other client kept this.
    fn waited_for(&self, _fid: Fid) -> bool {
        false
    }
}

/// For changes of the server's own: nobody sees them.
pub struct Alone;

impl Sharing for Alone {
    fn note(&self, _key: Key) {}
}

/// Whose request it is, and when.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The session.
    pub session: SessionId,
    /// The client.
    pub client: ClientId,
    /// It is executed again after a restart.
    pub is_replay: bool,
    /// Its transno (0 for one that only reads).
    pub transno: Transno,
    /// The server's Unix time; of a replay what it was the first time.
    pub now_ns: i64,
    /// There is room on the MDT's device for more than deleting.
    pub has_room: bool,
    /// And for bytes of small files.
    pub has_room_for_bytes: bool,
}

/// What follows when the transaction was applied.
#[derive(Debug, Default)]
pub struct Effects {
    /// Handles that came or went.
    pub opens: Vec<OpenChange>,
    /// Inodes made less inodes gone.
    pub inodes: i64,
    /// There is something new to destroy.
    pub destroys: bool,
    /// A truncate to be driven to the OSTs.
    pub truncate: Option<Fid>,
    /// A file whose new layout nobody must see before it is committed, not even who asked for it.
    pub hidden: Option<Fid>,
    /// A new placement table, and from when on it is in force.
    pub table: Option<(Transno, Table)>,
    /// Locks that were brought back.
    pub locks: Vec<(SessionId, Fid, LockSpec)>,
    /// The reply waits for the commit: what the client does when it has it, elsewhere, must not outlive the change; or the
    /// level of an inode wants it so.
    pub durable: bool,
    /// A sequence was leased.
    pub lease: Option<(FidSequence, ClientId)>,
    /// Keys whose change other sessions must not see before it is committed.
    pub touched: Vec<Key>,
    /// Rows that are set or removed.
    pub written: Vec<Key>,
    /// A session may write to it from now on: the OSTs know its size and times.
    pub opened: Option<Fid>,
    /// Leases given with the reply.
    pub granted: Vec<Fid>,
    /// The same on data.
    pub granted_data: Option<Fid>,
    /// The same on names of directories.
    pub granted_names: Vec<Fid>,
    /// Which of the leases given nobody else is to have meanwhile, and whose names the session changes.
    pub alone: Vec<(Fid, Fid)>,
    /// A directory that is gone.
    pub removed: Option<Fid>,
    /// Directories of which the session has changes under way.
    pub changing: Vec<Fid>,
    /// Whether the session holds leases on the data of files that it brings back.
    pub reclaimed: Vec<(Fid, bool)>,
    /// Goes with the reply as its bulk, and is not kept with it.
    pub bulk: Option<Bytes>,
}

impl Effects {
    /// Inodes that whoever keeps anything of them has to drop: attributes, names, or who may write.
    pub fn changes(&self) -> impl Iterator<Item = Fid> {
        self.written.iter().filter_map(|key| keys::leased(key.as_ref())).chain(self.opened)
    }
}

/// See the module.
pub struct Tx<'a> {
    rows: &'a mut dyn Rows,
    sharing: &'a dyn Sharing,
    /// Beside the rows.
    pub memory: &'a Memory,
    /// Whose request it is.
    pub origin: Origin,
    /// What follows.
    pub effects: Effects,
    /// The client has answered it already: it is not refused for want of room.
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
            answered: false,
            scratch: Vec::with_capacity(256),
        }
    }

    /// A row as it is, whoever changed it.
    pub fn row(&self, key: Key) -> Step<Option<Bytes>> {
        self.rows.get(key.as_ref()).map_err(|error| match error.kind {
            StoreErrorKind::NotResident => Halt::Missing(key),
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

    /// Leases `fid` to the session with the reply: `flag` of [`lease_flags`], or 0. A file's attributes are not to be had
    /// while another session may write to it: what this one does to it, it knows.
    pub fn lease(&mut self, fid: Fid, flag: u32) -> u32 {
        let is_written = self.memory.opens.has_writer(fid) || self.effects.opened == Some(fid);
        let is_written = is_written && !self.memory.opens.is_sole_holder(fid, self.origin.session);
        let is_cut = self.effects.truncate == Some(fid) || self.memory.truncating.contains(&fid);
        if is_written || is_cut { 0 } else { self.lease_anyway(fid, flag) }
    }

    /// The same, also of an inode that others gave back for this very request.
    pub fn lease_waited_for(&mut self, fid: Fid, flag: u32) -> u32 {
        let origin = &self.origin;
        let is_written = self.memory.opens.has_writer(fid) || self.memory.truncating.contains(&fid);
        let is_given_back = self.sharing.waited_for(fid) && self.memory.kept.is_free_after_wait(origin.session, fid);
        if !is_given_back || origin.is_replay || is_written {
            return self.lease(fid, flag);
        }
        self.effects.granted.push(fid);
        flag
    }

    /// The same of a file that nobody else has open, as this request makes it.
    pub fn lease_anyway(&mut self, fid: Fid, flag: u32) -> u32 {
        let origin = &self.origin;
        let is_client = origin.session != SessionId(0) && !origin.is_replay;
        if !is_client || !self.memory.kept.is_free(origin.session, fid) {
            return 0;
        }
        self.effects.granted.push(fid);
        flag
    }

    /// Leases the data of `fid` to the session with the reply, if it opens it for writing and nobody else has it open.
    pub fn lease_data(&mut self, fid: Fid, flags: u32) -> u32 {
        let origin = &self.origin;
        let is_client = origin.session != SessionId(0) && !origin.is_replay;
        let is_alone = self.memory.opens.is_sole_holder(fid, origin.session);
        let writes = flags & open_flags::WRITE != 0;
        if !is_client || !writes || !is_alone || !self.memory.kept.is_data_free(origin.session, fid) {
            return 0;
        }
        self.effects.granted_data = Some(fid);
        lease_flags::DATA
    }

    /// Leases `fid` for the session alone, if it can be had so while it changes the names of `parent`; `flags`: what it has
    /// been given of `fid`.
    pub fn lease_alone(&mut self, fid: Fid, parent: Fid, flags: u32) -> u32 {
        if flags & lease_flags::INODE == 0 || !self.memory.kept.is_alone(self.origin.session, fid, parent) {
            return flags;
        }
        self.effects.alone.push((fid, parent));
        flags | lease_flags::ALONE
    }

    /// Leases the names of a directory for changes, if the session keeps it and nobody else does: `flag`, or 0. Not where what is
    /// made in it depends on more than its mode, nor where there may be no room for it, nor where a change is to be durable when
    /// it is answered.
    pub fn lease_names(&mut self, fid: Fid, dir: &Inode, flag: u32) -> u32 {
        let origin = &self.origin;
        let is_kept = self.memory.kept.has(origin.session, fid) || self.effects.granted.contains(&fid);
        let is_client = origin.session != SessionId(0) && !origin.is_replay;
        let is_plain = !dir.has_acl && !dir.commits() && dir.nlink > 0 && dir.is_dir();
        if !is_client || !is_kept || !is_plain || !origin.has_room || !ops::create::takes_files(self, dir) {
            return 0;
        }
        if !self.memory.kept.is_names_free(origin.session, fid) {
            return 0;
        }
        self.effects.granted_names.push(fid);
        flag
    }

    /// The request was answered at `at_ns` by the client, if that is not 0: as it was told, so it has to be. Errors: ESTALE if the
    /// client had no right to, or has lost it.
    pub fn answered_at(&mut self, parent: Fid, at_ns: i64) -> Step<()> {
        if at_ns == 0 {
            return Ok(());
        }
        let has_names = || self.memory.kept.data.of_names(self.origin.session, parent).is_some();
        if !self.origin.is_replay && !has_names() && !planted(Bug::LateChangeMade) {
            let words = format!("a change of {parent} was answered under a lease that has ended since");
            return Err(ErrorReply::new(Errno::ESTALE, words).into());
        }
        self.origin.now_ns = at_ns;
        // There was room when the lease was given, and it is recalled when there is little.
        self.answered = true;
        Ok(())
    }

    /// See [`Tx::answered_at`].
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// A directory as this operation leaves it, for a client that keeps it.
    pub fn kept_parent(&self, fid: Fid) -> Step<Option<Attr>> {
        if self.origin.is_replay || !self.memory.kept.has(self.origin.session, fid) {
            return Ok(None);
        }
        Ok(self.find_inode(fid)?.map(|dir| self.attr(fid, &dir)))
    }

    /// Notes that the operation shows, or builds on, what lies under `key`.
    pub fn share(&self, key: Key) {
        self.sharing.note(key);
    }

    /// What lies under `key` changes in a way that others must not see before it is committed.
    pub fn touch(&mut self, key: Key) {
        self.effects.touched.push(key);
    }

    /// The inode of `fid`, if there is one.
    pub fn find_inode(&self, fid: Fid) -> Step<Option<Inode>> {
        let key = keys::inode(fid);
        self.share(key);
        let Some(row) = self.row(key)? else { return Ok(None) };
        let mut inode = Inode::decode(&row).map_err(|error| corrupt(key.as_ref(), error))?;
        if inode.has_acl {
            inode.acls = ops::read_acls(self, fid, &inode)?;
        }
        Ok(Some(inode))
    }

    /// The inode of `fid`. Errors: ESTALE.
    pub fn inode(&self, fid: Fid) -> Step<Inode> {
        self.find_inode(fid)?.ok_or(Halt::Fail(Errno::ESTALE.into()))
    }

    /// The inode a name points to. Errors: EIO, as a name without an inode is damage.
    pub fn named_inode(&self, fid: Fid) -> Step<Inode> {
        self.find_inode(fid)?.ok_or_else(|| {
            ErrorReply::new(Errno::EIO, format!("a name points to {fid}, which has no inode; run forebay fsck")).into()
        })
    }

    /// A directory that names can be looked up in. Errors: ESTALE, ENOTDIR.
    pub fn dir(&self, fid: Fid) -> Step<Inode> {
        let inode = self.inode(fid)?;
        if inode.is_dir() { Ok(inode) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// A change of the inode is replied when it is committed, if its level says so.
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

    /// Writes an inode's row of which only the access time is another. What others keep of it is good enough, and nothing waits
    /// for it.
    pub fn put_inode_accessed(&mut self, fid: Fid, inode: &Inode) {
        let mut row = Vec::new();
        inode.encode(&mut row);
        self.rows.put(keys::inode(fid).as_ref(), row.into());
    }

    /// Counts inodes that come or go.
    pub fn count_inodes(&mut self, difference: i64) {
        self.effects.inodes += difference;
        let inodes = self.memory.inodes.saturating_add_signed(self.effects.inodes);
        self.put_with(keys::inode_count(), |out| {
            out.push(1);
            crate::varint::put(out, inodes);
        });
    }

    /// Stops while a truncate of `fid` is on its way; a replay need not wait, as the epoch orders it at the OSTs. EIO if it does
    /// not come to an end.
    pub fn wait_for_truncate(&self, fid: Fid) -> Step<()> {
        if self.origin.is_replay || !self.memory.truncating.contains(&fid) {
            return Ok(());
        }
        if self.memory.stuck.contains(&fid) {
            return Err(stuck_truncate(fid).into());
        }
        Err(Halt::Truncating(fid))
    }

    /// The same for who only looks at the inode, or takes it away.
    pub fn wait_while_cut(&self, fid: Fid) -> Step<()> {
        if self.memory.stuck.contains(&fid) { Ok(()) } else { self.wait_for_truncate(fid) }
    }

    /// Stops what would fill the last bytes, which deleting needs. A replay had its room.
    pub fn need_room(&self) -> Step<()> {
        if self.origin.has_room || self.origin.is_replay || self.answered {
            return Ok(());
        }
        Err(Halt::NoRoom)
    }
}
/// What is told of a file whose truncate an OST cannot do.
pub fn stuck_truncate(fid: Fid) -> ErrorReply {
    let words = format!("a truncate of {fid} does not come to an end on its OSTs; the log of the MDT says why");
    ErrorReply::new(Errno::EIO, words)
}
