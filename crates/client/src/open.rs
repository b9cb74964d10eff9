//! Open files: the handles the MDT knows, their reclaim after its restart, their end.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use bytes::Bytes;
use forebay_env::{Boxed, Bug, planted};
use forebay_proto::{
    Errno, Fid, Layout,
    limits::OPEN_FILES,
    message::{
        Attr, Close, Closed, Create, LayoutSpec, Open, OpenHandle, OpenReply, Reclaim, attr_flags, lease_flags,
        open_flags,
    },
};

use forebay_rpc::RpcError;

use crate::{
    Caller, Client, ClientError, ClientResult,
    access::with_access,
    client::Inner,
    eras::Era,
    file::FileState,
    inline,
    leases::{Holds, Ticket},
    limits,
    read_cache::Pattern,
    tasks::detached,
};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Fail if the name exists (create).
    pub exclusive: bool,
    /// Cut to zero bytes.
    pub truncate: bool,
    /// Writes are durable when they return (O_SYNC, O_DSYNC).
    pub sync: bool,
}

impl OpenMode {
    /// For reading only.
    pub const READ: Self = Self { read: true, write: false, exclusive: false, truncate: false, sync: false };
    /// For writing only.
    pub const WRITE: Self = Self { read: false, write: true, ..Self::READ };
    /// For reading and writing.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };

    pub(crate) fn flags(self) -> u32 {
        let bit = |on: bool, flag: u32| if on { flag } else { 0 };
        bit(self.read, open_flags::READ)
            | bit(self.write, open_flags::WRITE)
            | bit(self.exclusive, open_flags::EXCLUSIVE)
            | bit(self.truncate, open_flags::TRUNCATE)
    }

    /// What is left of the flags once the file is open.
    fn access(self) -> u32 {
        self.flags() & (open_flags::READ | open_flags::WRITE)
    }
}

/// An open regular file. Cheap to clone: all clones are one handle.
///
/// Close it with [`Client::close`], which reports errors; if the last clone is dropped, it is closed in the background.
#[derive(Clone)]
pub struct OpenFile {
    pub(crate) inner: Rc<OpenInner>,
}

pub(crate) struct OpenInner {
    client: Client,
    caller: Caller,
    pub state: Rc<FileState>,
    /// Permission bits when it was opened.
    permissions: u32,
    /// It had extended attributes when it was opened.
    has_xattrs: bool,
    handle: u64,
    mode: OpenMode,
    stage: Cell<Stage>,
    /// Something was written through it: its close brings size and time.
    pub wrote: Rc<Cell<bool>>,
    /// How many names this client had given the file when its name was known to be durable (asked for by the first write of a
    /// `sync` handle). `None`: not known.
    pub named: Cell<Option<u64>>,
    /// A lock that was set through it is lost: it is good for nothing but its close.
    lock_lost: Cell<bool>,
    /// Losses of the file that this handle has reported to whoever reads, writes or closes.
    reported: Cell<u64>,
    /// Losses of the file that it has reported to fsync: nobody else's call uses up that report.
    synced: Cell<u64>,
    /// How it is read.
    pub pattern: RefCell<Pattern>,
    /// Losses of the file that it has reported to close(2): a call that was cut short tells its program of none.
    closed: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Closed,
    /// The MDT lost the handle, and the file could not be opened again.
    Gone,
}

/// A handle in the client's table.
pub(crate) struct Held {
    open: OpenHandle,
    inner: Weak<OpenInner>,
    /// Its Close is on its way.
    closing: bool,
}

impl OpenFile {
    /// The file.
    pub fn fid(&self) -> Fid {
        self.inner.state.fid
    }

    /// The handle's number, unique in this client.
    pub fn handle(&self) -> u64 {
        self.inner.handle
    }

    /// How it was opened.
    pub fn mode(&self) -> OpenMode {
        self.inner.mode
    }

    /// Permission bits of the file when it was opened.
    pub fn permissions(&self) -> u32 {
        self.inner.permissions
    }

    /// Whether the file had extended attributes when it was opened.
    pub fn has_xattrs(&self) -> bool {
        self.inner.has_xattrs
    }

    /// The file's layout.
    pub fn layout(&self) -> Rc<Layout> {
        self.inner.state.layout()
    }

    /// How many of this client's handles write to the file.
    pub fn writers(&self) -> usize {
        self.inner.state.writers.get()
    }

    /// Somebody acts by the size that it knows of the file, without asking.
    pub fn size_is_used(&self) {
        let used = &self.state().size_used;
        used.set(used.get() + 1);
    }

    /// Whether a write at `offset` may leave a gap behind the file's end, as far as this client knows where that is.
    pub fn leaves_a_gap(&self, offset: u64) -> bool {
        let state = self.state();
        offset > state.size.borrow().seen().max(state.kept.borrow().end())
    }

    pub(crate) fn state(&self) -> &Rc<FileState> {
        &self.inner.state
    }

    /// Fails if the handle is no longer good, or (once per loss) if acknowledged changes of the file were lost.
    pub(crate) fn check(&self) -> ClientResult<()> {
        self.check_handle().and_then(|()| self.report())
    }

    /// [`OpenFile::check`] for close(2), whatever other calls have told: of a write in several requests the kernel tells what was
    /// written before the one that failed, and a copy what it copied.
    pub(crate) fn check_close(&self) -> ClientResult<()> {
        self.check_handle().and_then(|()| self.report_to_close())
    }

    fn check_handle(&self) -> ClientResult<()> {
        match self.inner.stage.get() {
            Stage::Open if self.has_lost_lock() => {
                let words = format!("a lock of {} was lost with the MDT's session; open it again", self.fid());
                Err(ClientError::new(Errno::EIO, words))
            }
            Stage::Open => Ok(()),
            Stage::Closed => Err(Errno::EBADF.into()),
            Stage::Gone => self.check_not_gone(),
        }
    }

    /// Fails if the MDT has lost the handle for good.
    pub(crate) fn check_not_gone(&self) -> ClientResult<()> {
        if self.inner.stage.get() != Stage::Gone {
            return Ok(());
        }
        let words = format!("{} could not be opened again after the MDT ended the session", self.fid());
        Err(ClientError::new(Errno::ESTALE, words))
    }

    pub(crate) fn lose_lock(&self) {
        self.inner.lock_lost.set(true);
    }

    pub(crate) fn has_lost_lock(&self) -> bool {
        self.inner.lock_lost.get()
    }

    /// Fails if acknowledged changes were lost and this handle has not said so.
    pub(crate) fn report(&self) -> ClientResult<()> {
        let losses = self.inner.state.losses();
        if self.inner.reported.replace(losses) == losses { Ok(()) } else { Err(self.inner.state.loss()) }
    }

    fn report_to_close(&self) -> ClientResult<()> {
        let losses = self.inner.state.losses();
        self.inner.reported.set(losses);
        if self.inner.closed.replace(losses) == losses { Ok(()) } else { Err(self.inner.state.loss()) }
    }

    /// [`OpenFile::report`] for fsync, which close(2) by another process that has the descriptor too must not silence.
    pub(crate) fn report_to_sync(&self) -> ClientResult<()> {
        let state = &self.inner.state;
        let losses = state.losses();
        self.inner.reported.set(losses);
        self.inner.closed.set(losses);
        state.told.set(losses);
        if self.inner.synced.replace(losses) == losses { Ok(()) } else { Err(state.loss()) }
    }

    /// [`OpenFile::check`], and the era in which whatever is written now is begun.
    pub(crate) fn check_write(&self) -> ClientResult<Era> {
        if !self.inner.mode.write {
            return Err(Errno::EBADF.into());
        }
        self.check().map(|()| self.inner.client.inner.era())
    }

    pub(crate) fn check_read(&self) -> ClientResult<()> {
        if self.inner.mode.read { self.check() } else { Err(Errno::EBADF.into()) }
    }
}

impl Drop for OpenInner {
    fn drop(&mut self) {
        if self.stage.get() == Stage::Open {
            let close = self.client.clone().end(self.state.clone(), self.handle, self.mode.write, self.wrote.clone());
            drop(self.client.env().spawn(close));
        }
    }
}

impl Client {
    /// Opens the regular file that a name leads to, `found` a moment ago, neither to read nor to write: so long it is there. Errors:
    /// ENOENT, ESTALE or EISDIR if it is no regular file by now.
    pub fn hold<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        name: &'a [u8],
        found: Fid,
    ) -> Boxed<'a, ClientResult<(Attr, OpenFile)>> {
        Box::pin(async move {
            let (client, caller, name) = (self.clone(), caller.clone(), Bytes::copy_from_slice(name));
            detached(self.env(), async move {
                let (handle, flags, layout) = (client.new_handle()?, open_flags::EXISTING, LayoutSpec::inherit());
                let request = Create {
                    caller: caller.clone(),
                    parent,
                    name,
                    fid: found,
                    mode: 0,
                    flags,
                    handle,
                    layout,
                    at_ns: 0,
                };
                client.settle(parent).await;
                let asked = client.inner.leases.ticket();
                let reply = client.mdt(found, &request).await?;
                let attr = reply.attr.clone();
                let file = client.opened(caller, asked, (reply, Bytes::new()), handle, OpenMode::default())?;
                Ok((client.with_sizes(attr, Some(&file.layout())).await?, file))
            })
            .await
        })
    }

    /// Opens a regular file.
    pub fn open<'a>(&'a self, caller: &'a Caller, fid: Fid, mode: OpenMode) -> Boxed<'a, ClientResult<OpenFile>> {
        Box::pin(async move {
            let (client, caller) = (self.clone(), caller.clone());
            detached(self.env(), async move {
                let handle = client.new_handle()?;
                let flags = mode.flags() & !open_flags::EXCLUSIVE;
                let request = Open { caller: caller.clone(), fid, flags, handle };
                let changes = mode.write || mode.truncate;
                let changing = mode.truncate.then(|| client.all_bytes_change(fid));
                let _outside = if mode.truncate { client.send_kept_of(fid).await? } else { None };
                if changes {
                    client.inner.leases.touch(fid);
                }
                let asked = client.inner.leases.ticket();
                let called = client.call_mdt(fid, &request).await;
                if changes {
                    client.inner.leases.touch(fid);
                }
                drop(changing);
                let called = called?;
                let file = client.opened(caller, asked, (called.reply, called.bulk), handle, mode)?;
                client.watch_size(file.state()).await;
                Ok(file)
            })
            .await
        })
    }

    /// close(2) of one descriptor: reports acknowledged writes that were lost; sends what was kept back, unless nobody else can tell
    /// where it is: then it goes a moment later, before anybody opens the file. The handle stays open.
    ///
    /// Does not wait for servers for long: exec(2) closes descriptors too, perhaps the very exec that brings a server back.
    pub fn flush<'a>(&'a self, file: &'a OpenFile) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let is_ours = self.inner.leases.may_keep(file.fid()) == Holds::All;
            if !is_ours && !file.state().kept.borrow().is_clean() {
                let _ = self.env().timeout(limits::FLUSH_TERM, self.send_kept(file.state())).await;
            }
            file.check_close()
        })
    }

    /// Ends the handle: waits for its writes, brings size and times to the MDT. Other clones of it become invalid.
    pub fn close(&self, file: OpenFile) -> Boxed<'_, ClientResult<()>> {
        Box::pin(async move {
            let reported = file.check_close();
            if file.inner.stage.replace(Stage::Closed) == Stage::Open {
                let end =
                    self.clone().end(file.state().clone(), file.handle(), file.mode().write, file.inner.wrote.clone());
                detached(self.env(), end).await?;
            }
            reported.and(file.report_to_close())
        })
    }

    /// The number of a handle that is about to be opened. ENFILE: there are too many.
    pub(crate) fn new_handle(&self) -> ClientResult<u64> {
        if self.inner.handles.borrow().len() >= OPEN_FILES {
            let words =
                format!("this mount has {OPEN_FILES} files open, and may have no more: close some, or mount again");
            return Err(ClientError::new(Errno::ENFILE, words));
        }
        let handle = self.inner.next_handle.get();
        self.inner.next_handle.set(handle + 1);
        Ok(handle)
    }

    /// Takes over a file the MDT has opened as `handle`, as it was `asked` to; its bytes may have come along.
    pub(crate) fn opened(
        &self,
        caller: Caller,
        asked: Ticket,
        (reply, bulk): (OpenReply, Bytes),
        handle: u64,
        mode: OpenMode,
    ) -> ClientResult<OpenFile> {
        let fid = reply.attr.fid;
        self.learn_data(asked, &reply);
        let layout = reply.layout.ok_or_else(|| {
            ClientError::new(Errno::EIO, format!("the MDT opened {fid} without a layout: that is a bug, report it"))
        })?;
        let state = self.file_state(asked, &reply.attr, layout);
        // Without them they are asked for.
        let _ = self.learn_bytes(&state, &reply.attr, bulk);
        state.is_like(asked, &reply.attr);
        if reply.leases & lease_flags::INODE != 0 && !reply.created {
            self.inner.leases.learn_attributes(asked, &reply.attr);
            self.inner.listen();
        }
        state.handles.set(state.handles.get() + 1);
        let is_new = reply.created || mode.truncate && reply.attr.size == 0;
        state.untouched.set(is_new && mode.write && state.handles.get() == 1);
        if mode.write {
            state.writers.set(state.writers.get() + 1);
            self.inner.leases.writers.set(self.inner.leases.writers.get() + 1);
            self.inner.listen();
        }
        let inner = Rc::new(OpenInner {
            client: self.clone(),
            caller,
            permissions: reply.attr.mode & crate::mode::PERMISSIONS,
            has_xattrs: reply.attr.flags & attr_flags::XATTRS != 0,
            handle,
            mode,
            stage: Cell::new(Stage::Open),
            wrote: Rc::default(),
            named: Cell::new(None),
            lock_lost: Cell::new(false),
            pattern: RefCell::default(),
            reported: Cell::new(state.losses()),
            // As on a local file system, what no fsync was told yet whoever opens the file next is told.
            synced: Cell::new(state.told.get()),
            closed: Cell::new(state.losses()),
            state,
        });
        let held = Held {
            open: OpenHandle { fid, handle, flags: mode.access() },
            inner: Rc::downgrade(&inner),
            closing: false,
        };
        self.inner.handles.borrow_mut().insert(handle, held);
        let file = OpenFile { inner };
        if asked < self.inner.era_begun.get() {
            // By a session that the MDT has ended since, maybe.
            self.inner.reopen(file.clone());
        }
        Ok(file)
    }

    fn learn_data(&self, asked: Ticket, reply: &OpenReply) {
        if reply.leases & lease_flags::DATA != 0 {
            self.inner.leases.learn_data(asked, reply.attr.fid);
            self.inner.listen();
        }
    }

    /// The same of any handle.
    fn handle_goes(&self, file: &FileState) {
        file.handles.set(file.handles.get() - 1);
    }

    /// A handle ends. True if it was the last one that `writes`: with it the lease on the data ends, here and at the MDT.
    fn writer_goes(&self, file: &FileState, writes: bool) -> bool {
        if !writes {
            return false;
        }
        let leases = &self.inner.leases;
        leases.writers.set(leases.writers.get() - 1);
        file.writers.set(file.writers.get() - 1);
        if file.writers.get() == 0 {
            leases.end_data(file.fid);
        }
        file.writers.get() == 0
    }

    /// Closes a handle at the MDT, after all writes of the file were replied.
    async fn end(self, file: Rc<FileState>, handle: u64, writes: bool, wrote: Rc<Cell<bool>>) -> ClientResult<()> {
        let taken = if writes { self.take_inline(&file).await } else { None };
        if taken.is_none() {
            // What is lost of it, `close` reports.
            let _ = self.send_kept(&file).await;
        }
        file.sharing.leave(handle);
        file.idle().await;
        // As long as it takes the lease on the data is watched; and before what was set ahead is taken: while that is on its way the MDT
        // is asked for nothing else.
        let done = match writes && wrote.get() && taken.is_none() {
            true => self.learn_what_was_done(&file).await,
            false => None,
        };
        if self.writer_goes(&file, writes) && taken.is_none() {
            let _ = self.send_kept(&file).await;
        }
        self.handle_goes(&file);
        let (mut slot, taken, mut set) = match taken {
            Some((slot, taken, set)) => (Some(slot), Some(taken), set),
            None => (None, None, None),
        };
        if let Some(setting) = file.take_setting() {
            let (own, request) = setting.into_request(file.fid);
            (slot, set) = (Some(own), Some(request));
        }
        let accessed = file.take_access();
        let (truncate_epoch, size) = file.size_to_close(done);
        let (attr_epoch, mtime_ns) = file.time();
        let mut request = Close {
            fid: file.fid,
            handle,
            // Whoever was still writing when it was closed has ended by now.
            wrote: wrote.get(),
            size,
            truncate_epoch,
            mtime_ns,
            attr_epoch,
            // What was lost is a hole, where more follows.
            sparse: file.is_sparse() || file.losses() > 0,
            inline: None,
            set: with_access(set.clone(), file.fid, accessed),
        };
        if let Some(taken) = &taken {
            // No OST has told a time.
            (request.attr_epoch, request.mtime_ns) = (taken.by().attr_epoch, taken.by().at_ns);
            request.size = taken.bytes().len() as u64;
            request.inline = Some(taken.bytes().clone());
        }
        // Nobody waits for it but the kernel's own memory of the handle.
        let mut asked = self.inner.leases.ticket();
        if let Some(held) = self.inner.handles.borrow_mut().get_mut(&handle) {
            held.closing = true;
        }
        let mut closed = self.mdt_patiently(file.fid, &request, slot).await;
        let brought = taken.is_some() || set.is_some();
        if brought && closed.as_ref().is_err_and(inline::is_refused) {
            // By themselves, and the attributes first: what sends bytes may ask the MDT for something.
            if let Some(set) = set {
                self.send_set(&file, &set, None).await;
            }
            if let Some(taken) = taken {
                self.send_inline(&file, taken).await;
            }
            let done = self.learn_what_was_done(&file).await;
            (request.truncate_epoch, request.size) = file.size_to_close(done);
            (request.inline, request.set) = (None, None);
            (request.attr_epoch, request.mtime_ns) = file.time();
            asked = self.inner.leases.ticket();
            closed = self.mdt_patiently(file.fid, &request, None).await;
        } else {
            let outcome = closed.as_ref().map(drop);
            if let Some(taken) = taken {
                match outcome {
                    Ok(()) => {
                        file.size.borrow_mut().see(request.truncate_epoch, request.size);
                        file.told_time(request.attr_epoch, request.mtime_ns);
                    }
                    Err(error) => self.lose_inline(&file, error),
                }
                self.end_inline(&file, taken);
            }
            if set.is_some() {
                self.closed_set(&file, outcome);
            }
        }
        if let Some(at_ns) = accessed {
            file.access_told(at_ns);
        }
        // Only now: while the MDT may not have executed it, the handle is named to it after a restart.
        self.inner.handles.borrow_mut().remove(&handle);
        let closed = match closed {
            // It was lost with the MDT's session, and not opened again yet: it is closed.
            Err(error) if error.errno() == Errno::EBADF => return Ok(()),
            closed => closed?,
        };
        if let Some(attr) = closed.attr {
            self.inner.leases.learn_attributes(asked, &attr);
            self.inner.listen();
        }
        Ok(())
    }

    /// A close that brought the bytes of a file has not come to pass.
    fn lose_inline(&self, file: &FileState, error: &RpcError) {
        let words = format!("they went with its close, and {error}");
        self.env().log(&format!("client: the bytes of {} are lost: {words}", file.fid));
        self.inner.lost_requests.set(self.inner.lost_requests.get() + 1);
        file.lose(&words);
    }
}

impl Inner {
    /// What to bring back after a restart of the MDT, ordered.
    pub fn reclaim(&self) -> Reclaim {
        let open = |held: &Held| {
            let fid = held.open.fid;
            let kept = self.leases.holds(fid) > Holds::Nothing
                || self.set_ahead.has(fid)
                || self.file(fid).is_some_and(|file| !file.kept.borrow().is_clean());
            let data = if kept { open_flags::DATA_LEASE } else { 0 };
            let closing = if held.closing { open_flags::CLOSING } else { 0 };
            OpenHandle { flags: held.open.flags | data | closing, ..held.open.clone() }
        };
        let handles = self.handles.borrow().values().map(open).collect();
        let directories = if planted(Bug::NamesNotReclaimed) { Vec::new() } else { self.leases.changing() };
        Reclaim { handles, locks: self.locks_to_reclaim(), directories }
    }

    /// All handles somebody holds and has not closed, ordered.
    pub fn open_handles(&self) -> Vec<OpenFile> {
        let handles = self.handles.borrow();
        let open = handles.values().filter_map(|held| held.inner.upgrade());
        open.filter(|inner| inner.stage.get() == Stage::Open).map(|inner| OpenFile { inner }).collect()
    }

    /// The MDT has forgotten all handles: opens them again, in the background.
    pub fn reopen_all(self: &Rc<Self>) {
        self.open_handles().into_iter().for_each(|file| self.reopen(file));
    }

    fn reopen(&self, file: OpenFile) {
        let reopening = file.state().reopens();
        drop(self.env.spawn(async move {
            file.inner.reopen().await;
            drop(reopening);
        }));
    }
}

/// The end of a handle through which nothing was written.
fn close_only(fid: Fid, handle: u64) -> Close {
    let (size, truncate_epoch, mtime_ns, attr_epoch) = (0, 0, 0, u64::MAX);
    Close {
        fid,
        handle,
        wrote: false,
        size,
        truncate_epoch,
        mtime_ns,
        attr_epoch,
        sparse: false,
        inline: None,
        set: None,
    }
}

impl OpenFile {
    /// Has the MDT open a handle again that it knows: the reply may bring a lease on the data.
    pub(crate) async fn open_again(&self) {
        if self.inner.stage.get() == Stage::Open {
            // It was allowed once; that it is not any more is no matter.
            let _ = self.inner.ask_to_open().await;
        }
    }
}

impl OpenInner {
    async fn ask_to_open(&self) -> Result<(), RpcError> {
        let (fid, handle) = (self.state.fid, self.handle);
        let request = Open { caller: self.caller.clone(), fid, flags: self.mode.access(), handle };
        let leases = &self.client.inner.leases;
        if self.mode.write {
            leases.touch(fid);
        }
        let asked = leases.ticket();
        let reply = self.client.mdt(fid, &request).await;
        if self.mode.write {
            leases.touch(fid);
        }
        let reply = reply?;
        self.state.adopt(asked, &reply.attr, reply.layout.as_ref());
        self.client.learn_data(asked, &reply);
        self.state.is_like(asked, &reply.attr);
        Ok(())
    }

    async fn reopen(&self) {
        let (fid, handle) = (self.state.fid, self.handle);
        match self.ask_to_open().await {
            Ok(())
                if self.stage.get() == Stage::Closed && !self.client.inner.handles.borrow().contains_key(&handle) =>
            {
                // It was closed meanwhile, which the MDT may have heard first.
                let leases = &self.client.inner.leases;
                let asked = leases.ticket();
                if let Ok(Closed { attr: Some(attr) }) = self.client.mdt(fid, &close_only(fid, handle)).await {
                    leases.learn_attributes(asked, &attr);
                    self.client.inner.listen();
                }
            }
            Ok(()) => {}
            Err(error) => {
                self.client.env().log(&format!("client: {fid} could not be opened again: {error}"));
                if self.stage.get() == Stage::Open {
                    self.stage.set(Stage::Gone);
                    self.client.writer_goes(&self.state, self.mode.write);
                    self.client.handle_goes(&self.state);
                }
                self.client.inner.handles.borrow_mut().remove(&handle);
            }
        }
    }
}
