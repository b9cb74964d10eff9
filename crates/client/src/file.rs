//! What this client knows of a file that it has open: layout, epochs, size, losses. All handles of a file share it.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use forebay_env::{
    Time,
    sync::{Mutex, Notify},
};
use forebay_proto::{
    Errno, Fid, Layout, Transno,
    message::{Attr, Caller, CommitLevel, InlineBound, OpenHandle},
};

use crate::{
    ClientError,
    cache::choices::Known,
    cache::inline_data::InlineData,
    cache::read_cache::{Pattern, ReaderGroup},
    cache::size::KnownSize,
    delayed::buffered::BufferedWrites,
    delayed::byte_ranges::Sharing,
    delayed::set_attr::DelayedSetAttr,
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
    /// When to request leases.
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
    /// Attributes of a file that only this client has open, and when they were requested.
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

/// When leases on a file are worth a request.
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

    /// The reply to the request `asked` contains its attributes.
    pub fn learn_choices(&self, asked: Ticket, attr: &Attr) {
        let (mut level, mut bound) = (self.attributes.level.get(), self.attributes.inline_bound.get());
        level.see(attr.level(), asked);
        bound.see(attr.inline_bound(), asked);
        self.attributes.level.set(level);
        self.attributes.inline_bound.set(bound);
    }

    /// What the MDT replied to the request `asked` about a file that is open for this client alone: it is so until
    /// something happens to it.
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

    /// Takes over what the MDT replied to the request `asked`. Replies may come in any order.
    pub fn adopt(&self, asked: Ticket, attr: &Attr, layout: Option<&Layout>) {
        self.learn_choices(asked, attr);
        if layout.is_none() && attr.truncate_epoch > self.size.borrow().epoch() {
            // The layout may be another one since, whose OSTs alone have the bytes: OSTs refuse requests under the
            // previous epoch.
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

    /// Truncate epoch and size that a close sends to the MDT: what the OSTs replied last about lost changes (see
    /// `unanswered`), else what this client knows.
    pub fn size_to_close(&self, told: Option<(u64, u64)>) -> (u64, u64) {
        let known = *self.size.borrow();
        told.filter(|(epoch, _)| *epoch == known.epoch()).unwrap_or((known.epoch(), known.seen()))
    }

    /// A target replied with the modification time of its object after a change of `attr_epoch`.
    pub fn told_time(&self, attr_epoch: u64, mtime_ns: i64) {
        self.attributes.mtime.set(self.attributes.mtime.get().max((attr_epoch, mtime_ns)));
    }

    /// Latest modification time that a target replied, and its attribute epoch.
    pub fn told(&self) -> Option<(u64, i64)> {
        Some(self.attributes.mtime.get()).filter(|(_, mtime_ns)| *mtime_ns != 0)
    }

    /// As [`FileState::told`]; an epoch that matches none if no target replied with a time.
    pub fn time(&self) -> (u64, i64) {
        self.told().unwrap_or((u64::MAX, 0))
    }

    /// The current client instance.
    pub fn instance(&self) -> ClientInstance {
        self.owner.upgrade().map_or_else(ClientInstance::default, |owner| owner.instance())
    }

    /// A change of the file is under way until the answer is dropped.
    pub fn busy(self: &Rc<Self>) -> Counted<Self> {
        Counted::new(self, |file| &file.activity.changes)
    }

    /// Attribute epoch of what is done now.
    pub fn attr_epoch(&self) -> u64 {
        self.attributes.epoch.get()
    }

    /// Acknowledged changes are lost: every handle reports that, to each kind of call once (`posix/handle.rs`).
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
    /// How many names this client had given the file when its name was known to be durable (needed by the first write
    /// of a `sync` handle). `None`: not known.
    pub named: Cell<Option<u64>>,
    /// A lock that was set through it is lost: it is good for nothing but its close.
    pub(super) lock_lost: Cell<bool>,
    /// Losses of the file that this handle has reported to whoever reads, writes or closes.
    pub(super) reported: Cell<u64>,
    /// Losses of the file that it has reported to fsync: nobody else's call uses up that report.
    pub(super) synced: Cell<u64>,
    /// How it is read.
    pub pattern: RefCell<Pattern>,
    /// Losses of the file that it has reported to close(2): a call that was cut short reports none to its program.
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

impl Drop for OpenInner {
    fn drop(&mut self) {
        if self.stage.get() == Stage::Open {
            self.owner.clone().handle_dropped(self);
        }
    }
}

#[cfg(test)]
mod tests;
