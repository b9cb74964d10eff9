//! What this client knows of a file that it has open: layout, epochs, size, losses. All handles of a file share it.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use forebay_env::{
    Bug, Time, planted,
    sync::{Mutex, Notify},
};
use forebay_proto::{
    Errno, Fid, Layout, Transno,
    message::{Attr, Caller, CommitLevel, InlineBound, ObjectRef, OpenHandle},
};

use crate::{
    ClientError, ClientResult,
    cache::choices::Known,
    cache::inline_data::InlineData,
    cache::read_cache::{Pattern, ReaderGroup},
    cache::size::KnownSize,
    delayed::buffered::BufferedWrites,
    delayed::byte_ranges::Sharing,
    delayed::set_attr::DelayedSetAttr,
    errors::Trouble,
    leases::Ticket,
    open_mode::OpenMode,
    posix::privileges::Privileges,
    session::instance::ClientInstance,
    tasks::{Counted, UnderWay},
};

/// What an open file needs of its client.
pub(crate) trait FileOwner {
    /// The instance of now.
    fn instance(&self) -> ClientInstance;
    /// The file has no handles and no requests any more.
    fn file_ends(&self, file: &FileState);
    /// The last clone of a handle was dropped, and the handle was not closed.
    fn handle_dropped(self: Rc<Self>, handle: &OpenInner);
}

/// A file with open handles.
pub(crate) struct FileState {
    pub fid: Fid,
    layout: RefCell<Rc<Layout>>,
    pub size: RefCell<KnownSize>,
    /// What is known of its attributes.
    pub attributes: FileAttributes,
    /// Raises of its size at the home.
    pub raises: Raises,
    /// Handles and requests.
    pub activity: Activity,
    /// What was written and not sent yet.
    pub buffered: RefCell<BufferedWrites<Writer>>,
    /// Some of that has arrived.
    pub arrived: Notify,
    /// Attributes that were set and not sent yet.
    pub set_attr: RefCell<Option<DelayedSetAttr>>,
    /// What is known of other clients that write to it.
    pub sharing: Rc<Sharing>,
    pub reading: Reading,
    /// When to ask for leases.
    pub asks: LeaseAsks,
    /// Its bytes are with the MDT.
    pub inline: InlineData,
    pub losses: FileLosses,
    owner: Weak<dyn FileOwner>,
}

/// What is known of a file's attributes.
#[derive(Default)]
pub(crate) struct FileAttributes {
    epoch: Cell<u64>,
    /// Its own commit level.
    pub level: Cell<Known<CommitLevel>>,
    /// Its own inline bound.
    pub inline_bound: Cell<Known<InlineBound>>,
    /// Latest modification time that a target replied, and its attribute epoch.
    mtime: Cell<(u64, i64)>,
    /// Attributes of a file that only this client has open, and when they were asked for.
    pub like: RefCell<Option<(Ticket, Attr)>>,
}

/// Raises of a file's size at its home.
pub(crate) struct Raises {
    /// One raise at a time; those that wait are served by the next.
    pub turn: Mutex<()>,
    /// Truncate epoch and transno of the last raise.
    pub last: Cell<(u64, Transno)>,
}

/// Handles of a file, and changes in flight.
#[derive(Default)]
pub(crate) struct Activity {
    /// Handles that this client has of it.
    pub handles: Cell<usize>,
    /// Handles that write.
    pub writers: Cell<usize>,
    /// Changes of the file; its handles are not closed before they end.
    pub changes: UnderWay,
    /// Handles that the MDT has lost, and that are being opened again.
    pub reopening: UnderWay,
    /// Names that this client has given it since it was opened: the first one may be one of them (O_TMPFILE).
    pub links: Cell<u64>,
    /// The directory in which it was made, if its create was delayed.
    pub made_in: Cell<Option<Fid>>,
    /// This client has written beyond the end, or made a hole.
    pub sparse: Cell<bool>,
    /// This client has made it, or cut it to nothing, and sent no OST a request for it since.
    pub untouched: Cell<bool>,
}

/// How a file is read.
#[derive(Default)]
pub(crate) struct Reading {
    /// Handles that read it together.
    pub readers: ReaderGroup,
    /// No prefetch in large steps before.
    pub no_steps_until: Cell<Time>,
    /// Until then, some bytes that were read are not expected to be committed.
    pub uncommitted_until: Cell<Time>,
    /// How often the kernel acted by the size that it knew.
    pub size_used: Cell<u64>,
}

/// When leases on a file are worth asking for.
#[derive(Default)]
pub(crate) struct LeaseAsks {
    /// On its data.
    pub data_at: Cell<Time>,
    /// On its inode.
    pub inode_at: Cell<Time>,
}

/// Acknowledged changes of a file that are lost.
pub(crate) struct FileLosses {
    count: Cell<u64>,
    /// How many of them an fsync has reported.
    pub reported: Cell<u64>,
    last: RefCell<ClientError>,
}

/// How something was written.
#[derive(Clone)]
pub(crate) struct Writer {
    /// Through this handle.
    pub file: OpenFile,
    /// Under this attribute epoch: a time that is set later stays.
    pub attr_epoch: u64,
    /// When, by the clock.
    pub at_ns: i64,
    /// In which instance.
    pub instance: ClientInstance,
}

impl Writer {
    /// What the requests of an attempt to send it carry.
    pub fn snapshot(&self) -> Result<Snapshot, Trouble> {
        Ok(self.file.snapshot_in(self.instance)?.buffered_under(self.attr_epoch))
    }
}

/// What the requests of one attempt carry.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub layout: Rc<Layout>,
    pub object: ObjectRef,
    pub attr_epoch: u64,
    /// The file is at least this long.
    pub seen: u64,
    /// What is written was kept back: there is room for it.
    pub is_buffered: bool,
    /// In which it was begun.
    pub instance: ClientInstance,
}

impl Snapshot {
    /// The same for what was kept back, under no later attribute epoch than this one.
    pub fn buffered_under(mut self, latest: u64) -> Self {
        self.is_buffered = true;
        if !planted(Bug::SetTimeUndone) {
            self.attr_epoch = self.attr_epoch.min(latest);
        }
        self
    }

    /// The same of something that was begun in `instance`.
    pub fn of_instance(mut self, instance: ClientInstance) -> Self {
        self.instance = self.instance.min(instance);
        self
    }
}

impl FileState {
    pub fn new(owner: Weak<dyn FileOwner>, max_rpc_bytes: u32, attr: &Attr, layout: Layout) -> Self {
        let attributes = FileAttributes {
            epoch: Cell::new(attr.attr_epoch),
            mtime: Cell::new((attr.attr_epoch, 0)),
            ..FileAttributes::default()
        };
        Self {
            fid: attr.fid,
            layout: RefCell::new(Rc::new(layout)),
            size: RefCell::new(KnownSize::new(attr.truncate_epoch, attr.size)),
            attributes,
            raises: Raises { turn: Mutex::new(()), last: Cell::new((0, Transno(0))) },
            activity: Activity::default(),
            buffered: RefCell::new(BufferedWrites::new(max_rpc_bytes.into())),
            arrived: Notify::new(),
            set_attr: RefCell::default(),
            sharing: Rc::default(),
            reading: Reading::default(),
            asks: LeaseAsks::default(),
            inline: InlineData::default(),
            losses: FileLosses { count: Cell::new(0), reported: Cell::new(0), last: RefCell::new(Errno::EIO.into()) },
            owner,
        }
    }

    /// A reply to what was `asked` tells of it.
    pub fn learn_choices(&self, asked: Ticket, attr: &Attr) {
        let (mut level, mut bound) = (self.attributes.level.get(), self.attributes.inline_bound.get());
        level.see(attr.level(), asked);
        bound.see(attr.inline_bound(), asked);
        self.attributes.level.set(level);
        self.attributes.inline_bound.set(bound);
    }

    /// What the MDT told of the file as it was `asked`, to open it for this client alone: it is so until something happens to it.
    pub fn is_like(&self, asked: Ticket, attr: &Attr) {
        *self.attributes.like.borrow_mut() = Some((asked, attr.clone()));
    }

    /// Something is written: a time that was set before, and not sent, does not count.
    pub fn time_changes(&self) {
        if let Some(set_attr) = self.set_attr.borrow_mut().as_mut() {
            set_attr.time_changes();
        }
    }

    pub fn layout(&self) -> Rc<Layout> {
        self.layout.borrow().clone()
    }

    /// What requests to OSTs carry.
    pub fn snapshot(&self) -> Snapshot {
        self.activity.untouched.set(false);
        let (layout, size) = (self.layout(), *self.size.borrow());
        let fid = layout.objects_of(self.fid);
        let object = ObjectRef { fid, layout_generation: layout.generation, truncate_epoch: size.epoch() };
        let (attr_epoch, seen, instance) = (self.attributes.epoch.get(), size.seen(), self.instance());
        Snapshot { layout, object, attr_epoch, seen, is_buffered: false, instance }
    }

    /// Takes over what the MDT says of the file, as it was `asked`. Replies may come in any order.
    pub fn adopt(&self, asked: Ticket, attr: &Attr, layout: Option<&Layout>) {
        self.learn_choices(asked, attr);
        if layout.is_none() && attr.truncate_epoch > self.size.borrow().epoch() {
            // The layout may be another one since, whose OSTs alone have the bytes: under the epoch of before all of them say so.
            return;
        }
        self.size.borrow_mut().see(attr.truncate_epoch, attr.size);
        self.inline.learn(attr, self.size.borrow().epoch());
        self.attributes.epoch.set(self.attributes.epoch.get().max(attr.attr_epoch));
        if let Some(layout) = layout
            && layout.generation > self.layout.borrow().generation
        {
            *self.layout.borrow_mut() = Rc::new(layout.clone());
        }
    }

    /// Truncate epoch and size that a close tells the MDT: what the OSTs told last of changes that were lost (see `unanswered`), else
    /// what this client knows.
    pub fn size_to_close(&self, told: Option<(u64, u64)>) -> (u64, u64) {
        let known = *self.size.borrow();
        told.filter(|(epoch, _)| *epoch == known.epoch()).unwrap_or((known.epoch(), known.seen()))
    }

    /// A target told the modification time of its object after a change of `attr_epoch`.
    pub fn told_time(&self, attr_epoch: u64, mtime_ns: i64) {
        self.attributes.mtime.set(self.attributes.mtime.get().max((attr_epoch, mtime_ns)));
    }

    /// Latest modification time told, and its attribute epoch.
    pub fn told(&self) -> Option<(u64, i64)> {
        Some(self.attributes.mtime.get()).filter(|(_, mtime_ns)| *mtime_ns != 0)
    }

    /// As [`FileState::told`]; an epoch that matches none if no time was told.
    pub fn time(&self) -> (u64, i64) {
        self.told().unwrap_or((u64::MAX, 0))
    }

    fn instance(&self) -> ClientInstance {
        self.owner.upgrade().map_or_else(ClientInstance::default, |owner| owner.instance())
    }

    /// The home has replied to this client's raise, under the epochs of `at`.
    pub fn raised(&self, at: &Snapshot, file_bytes: u64, transno: Transno) {
        if at.instance != self.instance() {
            // It is for a session to bring back that is on its way out, and not the one that a sync asks.
            return;
        }
        let epoch = at.object.truncate_epoch;
        let mut size = self.size.borrow_mut();
        size.raised(epoch, file_bytes);
        // In another epoch another target may be the home, whose numbers are its own.
        let (of, before) = self.raises.last.get();
        if epoch > of {
            self.raises.last.set((epoch, transno));
        } else if epoch == of {
            self.raises.last.set((epoch, before.max(transno)));
        }
    }

    /// A change of the file is under way until the answer is dropped.
    pub fn busy(self: &Rc<Self>) -> Counted<Self> {
        Counted::new(self, |file| &file.activity.changes)
    }

    /// Attribute epoch of what is done now.
    pub fn attr_epoch(&self) -> u64 {
        self.attributes.epoch.get()
    }

    /// Acknowledged changes are lost: every handle reports it once.
    pub fn lose(&self, loss: ClientError) {
        self.losses.count.set(self.losses.count.get() + 1);
        *self.losses.last.borrow_mut() = loss;
    }

    pub fn losses(&self) -> u64 {
        self.losses.count.get()
    }

    pub fn loss(&self) -> ClientError {
        self.losses.last.borrow().clone()
    }

    /// What decides whether a request is stale.
    pub fn version(&self) -> (u64, u32) {
        (self.size.borrow().epoch(), self.layout.borrow().generation)
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.file_ends(self);
        }
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
    pub(super) owner: Rc<dyn FileOwner>,
    pub(super) caller: Caller,
    pub state: Rc<FileState>,
    /// Those of the file that a change of its bytes removes.
    pub privileges: Privileges,
    pub(super) handle: u64,
    pub(super) mode: OpenMode,
    pub(super) stage: Cell<Stage>,
    /// Something was written through it: its close brings size and time.
    pub wrote: Rc<Cell<bool>>,
    /// How many names this client had given the file when its name was known to be durable (asked for by the first write of a
    /// `sync` handle). `None`: not known.
    pub named: Cell<Option<u64>>,
    /// A lock that was set through it is lost: it is good for nothing but its close.
    pub(super) lock_lost: Cell<bool>,
    /// Losses of the file that this handle has reported to whoever reads, writes or closes.
    pub(super) reported: Cell<u64>,
    /// Losses of the file that it has reported to fsync: nobody else's call uses up that report.
    pub(super) synced: Cell<u64>,
    /// How it is read.
    pub pattern: RefCell<Pattern>,
    /// Losses of the file that it has reported to close(2): a call that was cut short tells its program of none.
    pub(super) closed: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    Closed,
    /// The MDT lost the handle, and the file could not be opened again.
    Gone,
}

/// A handle in the client's table.
pub(crate) struct OpenHandleEntry {
    pub(super) open: OpenHandle,
    pub(super) inner: Weak<OpenInner>,
    /// Its Close is on its way.
    pub(super) closing: bool,
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

    /// The file's layout.
    pub fn layout(&self) -> Rc<Layout> {
        self.inner.state.layout()
    }

    /// How many of this client's handles write to the file.
    pub fn writers(&self) -> usize {
        self.inner.state.activity.writers.get()
    }

    /// Somebody acts by the size that it knows of the file, without asking.
    pub fn size_is_used(&self) {
        let used = &self.state().reading.size_used;
        used.set(used.get() + 1);
    }

    /// Whether a write at `offset` may leave a gap behind the file's end, as far as this client knows where that is.
    pub fn leaves_a_gap(&self, offset: u64) -> bool {
        let state = self.state();
        offset > state.size.borrow().seen().max(state.buffered.borrow().end())
    }

    pub(crate) fn state(&self) -> &Rc<FileState> {
        &self.inner.state
    }

    /// Nobody has begun to close it.
    pub(crate) fn is_open(&self) -> bool {
        self.inner.stage.get() != Stage::Closed
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

    pub(super) fn report_to_close(&self) -> ClientResult<()> {
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
        state.losses.reported.set(losses);
        if self.inner.synced.replace(losses) == losses { Ok(()) } else { Err(state.loss()) }
    }

    /// [`OpenFile::check`], and the instance in which whatever is written now is begun.
    pub(crate) fn check_write(&self) -> ClientResult<ClientInstance> {
        if !self.inner.mode.write {
            return Err(Errno::EBADF.into());
        }
        self.check().map(|()| self.inner.owner.instance())
    }

    /// What the requests of one attempt carry, of something that was begun in `instance`. Errors: EIO if that is over, ESTALE if the handle
    /// could not be opened again.
    pub(crate) fn snapshot_in(&self, instance: ClientInstance) -> Result<Snapshot, Trouble> {
        self.check_not_gone()?;
        Ok(self.state().snapshot().of_instance(instance))
    }

    pub(crate) fn check_read(&self) -> ClientResult<()> {
        if self.inner.mode.read { self.check() } else { Err(Errno::EBADF.into()) }
    }
}

impl Drop for OpenInner {
    fn drop(&mut self) {
        if self.stage.get() == Stage::Open {
            self.owner.clone().handle_dropped(self);
        }
    }
}

#[cfg(test)]
mod tests;
