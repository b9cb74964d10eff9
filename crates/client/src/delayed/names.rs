//! Delayed changes of entries: create, mkdir, symlink, unlink and rmdir are acknowledged before the MDT executes them.
//!
//! Under an entries-write lease no other client sees or changes the directory. The client then knows whether an entry can be made or
//! removed, and what the directory and the new inode will be like. It acknowledges the change at once, and the requests of many
//! programs go to the MDT together. A change that may depend on more (access control lists, set-id bits, inodes with several
//! links) is sent first.
//!
//! Invariant: an acknowledged change has a slot of the session, and waits for no other client.
//! Invariant: any other request that may concern the same inodes or entries is sent after it was replied
//! ([`Client::flush_delayed`]).
//! Invariant: the lease is returned, and a recall of an inode that it concerns acknowledged, after that too. The MDT refuses a delayed
//! change without the lease: nothing is changed late.
//! Lost only with this client before it is sent (a millisecond or two), or with its session. Then the directory's next fsync, and
//! operations on the file, fail with EIO.

use std::{cell::RefCell, rc::Rc};

use bytes::Bytes;
use forebay_env::sync::Notify;
use forebay_proto::{
    Errno, Fid,
    limits::{NAME_BYTES, SYMLINK_BYTES},
    message::{
        Attr, Caller, Changed, CommitLevel, Create, EntryReply, LayoutSpec, Make, OpenReply, Operation, Rmdir, Unlink,
        attr_flags,
    },
};
use forebay_rpc::{Call, Called, Reservation, RpcError};

use crate::{
    Client, ClientError, ClientResult, OpenFile, OpenMode,
    attributes::new_inode,
    client::Inner,
    delayed::queue::{EntryOp, OpNumber, Scope},
    delayed::state::{Made, OnPendingCreate},
    leases::{EntryChange, Leases, SoleLease, Ticket, commits},
    limits, mode, open_flags,
    ops::change::Names,
    payload::Payload,
    tasks::Counted,
};

const S_ISVTX: u32 = 0o1000;
const SET_IDS: u32 = 0o6000;

/// An open file, or one that [`Client::create_delayed`] has answered for: open as soon as the MDT has made it.
#[derive(Clone)]
pub struct PendingFile {
    /// The client that creates it; `None` if the file was open at once.
    client: Option<Client>,
    inner: Rc<Made>,
}

impl PendingFile {
    /// The handle's number.
    pub fn handle(&self) -> u64 {
        self.inner.handle
    }

    /// As [`PendingFile::file`], if that is known already.
    pub fn arrived(&self) -> Option<ClientResult<OpenFile>> {
        self.inner.result.borrow().clone()
    }

    /// Takes a small write to a pending create: it is buffered as soon as the file exists. False: the write has to wait
    /// for that.
    pub fn write(&self, offset: u64, data: &Bytes) -> bool {
        let mut on_pending = self.inner.on_pending.borrow_mut();
        let (Some(client), Some(on_pending)) = (&self.client, on_pending.as_mut()) else { return false };
        client.write_on_pending_create(on_pending, offset, &Payload::from(data.clone()))
    }

    /// The open file: has the create sent at once. Errors: EIO if the change was lost.
    pub async fn file(&self) -> ClientResult<OpenFile> {
        if let Some(result) = self.arrived() {
            return result;
        }
        let _waiting = self.client.as_ref().map(|client| {
            client.inner.peers.mdt().session.hurry();
            Counted::new(&client.inner, |inner| &inner.delayed.waiting)
        });
        self.file_batched().await
    }

    /// The same for somebody who is in no hurry: the request for it may go with others.
    pub async fn file_batched(&self) -> ClientResult<OpenFile> {
        loop {
            let arrived = self.inner.arrived.notified();
            if let Some(result) = self.arrived() {
                return result;
            }
            arrived.await;
        }
    }
}

impl From<OpenFile> for PendingFile {
    fn from(file: OpenFile) -> Self {
        let handle = file.handle();
        let result = RefCell::new(Some(Ok(file)));
        let (arrived, on_pending) = (Notify::new(), RefCell::default());
        Self { client: None, inner: Rc::new(Made { handle, result, arrived, on_pending }) }
    }
}

/// What a change of an entry can be answered from.
struct Answerable {
    slot: Reservation,
    /// The directory as it will be, but for its links.
    dir: Attr,
    now_ns: i64,
}

impl Client {
    /// Creates a regular file and opens it, as [`Client::create`] does: what it will be like, before a request is sent
    /// to the MDT. `None`: the MDT has to execute it first.
    pub fn create_delayed(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        open: OpenMode,
    ) -> Option<(Attr, PendingFile)> {
        let (Answerable { slot, dir, now_ns }, fid) = self.may_make(caller, parent, name, mode, 0)?;
        let written = match open.write {
            true => attr_flags::SIZE_ON_OST | attr_flags::SOLE_WRITER | attr_flags::MTIME_SET,
            false => 0,
        };
        let flags = written | dir.flags & attr_flags::INHERITED;
        let attr = new_inode(&self.owner(caller), fid, mode::S_IFREG | mode::without_umask(mode), flags, now_ns);
        let handle = self.new_handle().ok()?;
        let begun = self.begin_delayed(slot, &EntryChange { dir: &dir, name, fid, made: Some(&attr) });
        let request = Create {
            caller: caller.clone(),
            parent,
            name: begun.op.name.clone(),
            fid,
            mode,
            flags: open.flags() | open_flags::EXCLUSIVE,
            handle,
            layout: LayoutSpec::inherit(),
            at_ns: now_ns,
        };
        let (result, arrived) = (RefCell::default(), Notify::new());
        let on_pending =
            RefCell::new((open.write && !open.sync).then(|| OnPendingCreate::new(attr.clone(), self.inner.instance())));
        let made = Rc::new(Made { handle, result, arrived, on_pending });
        self.inner.delayed.coming.borrow_mut().insert(fid, made.clone());
        let coming = PendingFile { client: Some(self.clone()), inner: made.clone() };
        let (client, caller, number) = (self.clone(), caller.clone(), begun.number);
        drop(self.env().spawn(async move {
            let result = match client.run_delayed(begun, &request, Leases::learn_created).await {
                Ok((asked, called)) if called.reply.created => client.opened(caller, asked, called, handle, open),
                Ok(_) => Err(client.fail(parent, fid, &there_already())),
                Err(error) => Err(error),
            };
            client.inner.delayed.coming.borrow_mut().remove(&fid);
            let on_pending = made.on_pending.borrow_mut().take();
            match (on_pending, &result) {
                (Some(on_pending), Ok(file)) => client.adopt_pending(on_pending, parent, file).await,
                (Some(on_pending), Err(_)) => client.lose_pending(fid, on_pending),
                (None, _) => {}
            }
            *made.result.borrow_mut() = Some(result);
            made.arrived.notify_waiters();
            client.end_delayed(number);
        }));
        Some((attr, coming))
    }

    /// Makes a directory or symbolic link.
    pub(crate) fn delay_make(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        symlink: &[u8],
    ) -> Option<Attr> {
        let kind = mode & mode::S_IFMT;
        let is_target = !symlink.is_empty() && symlink.len() <= SYMLINK_BYTES && !symlink.contains(&0);
        if kind != mode::S_IFDIR && !(kind == mode::S_IFLNK && is_target) {
            return None;
        }
        let (Answerable { slot, mut dir, now_ns }, fid) = self.may_make(caller, parent, name, mode, symlink.len())?;
        let inherited = if mode::is_dir(mode) { dir.flags & attr_flags::INHERITED } else { 0 };
        let mut attr = new_inode(&self.owner(caller), fid, kind | mode::without_umask(mode), inherited, now_ns);
        attr.size = symlink.len() as u64;
        if mode::is_dir(mode) {
            (attr.nlink, dir.nlink) = (2, dir.nlink.checked_add(1)?);
        }
        let begun = self.begin_delayed(slot, &EntryChange { dir: &dir, name, fid, made: Some(&attr) });
        let (name, symlink) = (begun.op.name.clone(), Bytes::copy_from_slice(symlink));
        let request = Make { caller: caller.clone(), parent, name, fid, mode, rdev: 0, symlink, at_ns: now_ns };
        self.start_delayed(begun, request, Leases::learn_made);
        Some(attr)
    }

    /// Removes the only name of a file. False: the MDT has to execute it first.
    pub(crate) fn delay_unlink(&self, caller: &Caller, parent: Fid, name: &[u8]) -> bool {
        let file = |file: &SoleLease| !mode::is_dir(file.mode) && file.nlink == 1;
        let Some((Answerable { slot, dir, now_ns }, victim)) = self.may_remove(caller, parent, name, file) else {
            return false;
        };
        let begun = self.begin_delayed(slot, &EntryChange { dir: &dir, name, fid: victim, made: None });
        let request = Unlink { caller: caller.clone(), parent, name: begun.op.name.clone(), at_ns: now_ns };
        self.start_delayed(begun, request, Leases::learn_removed);
        true
    }

    /// Removes a directory that has no entries. False: the MDT has to execute it first.
    pub(crate) fn delay_rmdir(&self, caller: &Caller, parent: Fid, name: &[u8]) -> bool {
        let empty =
            |dir: &SoleLease| mode::is_dir(dir.mode) && dir.nlink == 2 && self.inner.mdt.leases.is_empty(dir.fid);
        let Some((Answerable { slot, mut dir, now_ns }, victim)) = self.may_remove(caller, parent, name, empty) else {
            return false;
        };
        dir.nlink = dir.nlink.saturating_sub(1);
        self.inner.mdt.leases.stop_answering(victim);
        let begun = self.begin_delayed(slot, &EntryChange { dir: &dir, name, fid: victim, made: None });
        let request = Rmdir { caller: caller.clone(), parent, name: begun.op.name.clone(), at_ns: now_ns };
        self.start_delayed(begun, request, Leases::learn_removed);
        true
    }

    /// Whether `name` can certainly be made, and the inode's fid.
    fn may_make(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        symlink: usize,
    ) -> Option<(Answerable, Fid)> {
        let is_name = !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_BYTES;
        if mode & SET_IDS != 0 || !is_name || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return None;
        }
        // One that is being taken away is there for the MDT until it is.
        if self.inner.delayed.queue.borrow().has_entry(parent, name) {
            return None;
        }
        let answerable = self.may_change(caller, parent, name.len() + symlink)?;
        let is_absent = matches!(self.inner.mdt.leases.name(parent, name), Some(None));
        // A set-group-id directory gives its group, and to directories the bit.
        if !is_absent || answerable.dir.mode & mode::S_ISGID != 0 {
            return None;
        }
        Some((answerable, self.fid_at_once()?))
    }

    /// Whether `name` can certainly be taken away, and from what; `wanted`: what may be lost with it.
    fn may_remove(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        wanted: impl FnOnce(&SoleLease) -> bool,
    ) -> Option<(Answerable, Fid)> {
        let answerable = self.may_change(caller, parent, name.len())?;
        let victim = self.inner.mdt.leases.alone(parent, name)?;
        let sticky = answerable.dir.mode & S_ISVTX != 0;
        let is_one_of = [0, answerable.dir.uid, victim.uid].contains(&caller.uid);
        let may = !sticky || is_one_of && !(caller.uid != answerable.dir.uid && self.is_guarded(victim.uid));
        let is_known = !self.inner.delayed.has(Scope::Entries(victim.fid));
        (may && is_known && !victim.commits && wanted(&victim)).then_some((answerable, victim.fid))
    }

    /// `bytes`: of its names.
    fn may_change(&self, caller: &Caller, parent: Fid, bytes: usize) -> Option<Answerable> {
        if self.level() == CommitLevel::Commit {
            return None;
        }
        // The MDT grants no entries-write lease on a directory of level `commit`; until it has recalled one, changes
        // are sent to it.
        let mut dir = self.inner.mdt.leases.answers_for(parent).filter(|dir| !commits(dir))?;
        // What the owner may, no access control list takes away; of others the MDT knows.
        let owner_may = dir.uid == caller.uid && dir.mode & 0o300 == 0o300;
        // Where ids are mapped, an owner is not always who is shown.
        if caller.uid != 0 && !owner_may || self.is_guarded(dir.uid) {
            return None;
        }
        let slot = self.reserve_slot(bytes + limits::CHANGE_BYTES)?;
        let now_ns = self.env().unix_time().0;
        (dir.mtime_ns, dir.ctime_ns) = (now_ns, now_ns);
        Some(Answerable { slot, dir, now_ns })
    }

    fn begin_delayed(&self, slot: Reservation, change: &EntryChange<'_>) -> Begun {
        let op = EntryOp { directory: change.dir.fid, name: Bytes::copy_from_slice(change.name), fid: change.fid };
        let number = self.inner.delayed.queue.borrow_mut().add_entry(op.clone());
        let ticket = self.inner.mdt.leases.answer(change);
        self.inner.counters.delayed_operations();
        Begun { slot, op, number, ticket }
    }

    /// Has the MDT execute a change; nobody waits for its reply.
    fn start_delayed<O>(&self, begun: Begun, request: O, learn: Learn<O::Reply>)
    where
        O: Operation + 'static,
        O::Reply: Names,
    {
        let (client, number) = (self.clone(), begun.number);
        drop(self.env().spawn(async move {
            let _ = client.run_delayed(begun, &request, learn).await;
            client.end_delayed(number);
        }));
    }

    /// Has the MDT execute a change; its reply, and when the request was sent. `learn` takes over what it says of the inode.
    async fn run_delayed<O>(
        &self,
        Begun { slot, op: EntryOp { directory, name, fid }, ticket, .. }: Begun,
        request: &O,
        learn: Learn<O::Reply>,
    ) -> ClientResult<(Ticket, Called<O::Reply>)>
    where
        O: Operation,
        O::Reply: Names,
    {
        let leases = &self.inner.mdt.leases;
        let asked = leases.ticket();
        let patient = !self.inner.delayed.waiting.any();
        let call = Call { fid: Some(fid), directory: Some(directory), patient, ..Call::level(self.level()) };
        let called = match self.mdt_in(Some(slot), request, call).await {
            Ok(called) => called,
            Err(error) => return Err(self.fail(directory, fid, &error)),
        };
        learn(leases, asked, fid, &called);
        let (made, granted) = (called.reply.leads(), called.reply.leases());
        if made.is_some() {
            self.inner.tell_again(leases.unless_leased(fid, granted));
        }
        leases.learn_changes(asked, granted, directory, made);
        leases.entry_applied(ticket, (directory, &name), called.reply.directory(), called.transno);
        Ok((asked, called))
    }

    /// The change was answered, and cannot be made.
    fn fail(&self, parent: Fid, fid: Fid, error: &RpcError) -> ClientError {
        self.inner.mdt.leases.failed(parent, fid);
        self.inner.report_loss(parent, Errno::EIO, &format!("a change of names, of {fid}: {error}"))
    }

    fn end_delayed(&self, number: OpNumber) {
        self.inner.delayed.queue.borrow_mut().end_entry(number);
        self.inner.delayed.ended.notify_waiters();
        self.inner.listen();
    }

    /// Waits until the changes of names that concern `fid`, and were answered so far, have been made by the MDT.
    pub async fn settled(&self, fid: Fid) {
        self.flush_delayed(Scope::Entries(fid)).await;
    }

    /// Names whose changes were answered and are not made yet.
    pub fn delayed_entries(&self) -> Vec<(Fid, Bytes)> {
        self.inner.delayed.queue.borrow().entries().map(|op| (op.directory, op.name.clone())).collect()
    }
}

impl Inner {
    /// The MDT recalls the lease on the entries of a directory: the client acknowledges when all changes of them are
    /// applied.
    pub(crate) fn give_names_back(self: &Rc<Self>, fid: Fid) -> impl Future<Output = ()> + 'static {
        self.mdt.leases.stop_answering(fid);
        let client = Client { inner: self.clone() };
        async move {
            client.flush_delayed(Scope::Entries(fid)).await;
            client.flush_made_in(fid).await;
            client.inner.mdt.leases.gave_names_back(fid);
        }
    }
}

/// A change under way.
struct Begun {
    slot: Reservation,
    op: EntryOp,
    number: OpNumber,
    ticket: Ticket,
}

/// Takes over what a reply says of the inode that was made or removed.
type Learn<R> = fn(&Leases, Ticket, Fid, &Called<R>);

impl Leases {
    fn learn_created(&self, asked: Ticket, _: Fid, called: &Called<OpenReply>) {
        self.learn_file(asked, &called.reply);
    }

    fn learn_made(&self, asked: Ticket, _: Fid, called: &Called<EntryReply>) {
        self.learn_empty(asked, &called.reply);
    }

    fn learn_removed(&self, _: Ticket, fid: Fid, called: &Called<Changed>) {
        self.touch_at(fid, called.transno);
        self.gave_names_back(fid);
    }
}

fn there_already() -> RpcError {
    RpcError::Protocol("the name was there already: that is a bug, report it".into())
}
