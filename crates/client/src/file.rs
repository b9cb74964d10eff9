//! What this client knows of a file that it has open: layout, epochs, size, losses. All handles of a file share it.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::Duration,
};

use forebay_env::{
    Bug, Time, planted,
    sync::{Mutex, Notify},
};
use forebay_proto::{
    Errno, Fid, Layout, Transno,
    message::{Attr, CommitLevel, GetAttr, InlineBound, ObjectRef, RaiseSize},
};
use forebay_rpc::{Call, Lost};

use crate::{
    Client, ClientError, ClientResult, cache::access_times::Accessed, cache::choices::Known, cache::inline::Inline,
    cache::read_cache::ReaderGroup, cache::size::KnownSize, client::Inner, delayed::byte_ranges::Sharing,
    delayed::set_attr::DelayedSetAttr, delayed::write_back::BufferedWrites, errors::Trouble, leases::Ticket, limits,
    session::instance::ClientInstance,
};

/// A file with open handles.
pub(crate) struct FileState {
    pub fid: Fid,
    layout: RefCell<Rc<Layout>>,
    pub size: RefCell<KnownSize>,
    /// What is known of its attributes.
    pub attributes: FileAttributes,
    /// Raises of its size at the home.
    raises: Raises,
    /// Handles and requests.
    pub activity: Activity,
    /// What was written and not sent yet.
    pub buffered: RefCell<BufferedWrites>,
    /// Some of that has arrived.
    pub arrived: Notify,
    /// Attributes that were set and not sent yet.
    pub set_attr: RefCell<Option<DelayedSetAttr>>,
    /// What is known of other clients that write to it.
    pub sharing: Sharing,
    pub reading: Reading,
    /// When to ask for leases.
    pub asks: LeaseAsks,
    /// Its bytes are with the MDT.
    pub inline: RefCell<Option<Inline>>,
    pub losses: FileLosses,
    owner: Weak<Inner>,
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
    /// When it was read last, if the MDT may not know.
    pub accessed: Cell<Option<Accessed>>,
}

/// Raises of a file's size at its home.
struct Raises {
    /// One raise at a time; those that wait are served by the next.
    turn: Mutex<()>,
    /// Truncate epoch and transno of the last raise.
    last: Cell<(u64, Transno)>,
}

/// Handles of a file, and changes in flight.
#[derive(Default)]
pub(crate) struct Activity {
    /// Handles that this client has of it.
    pub handles: Cell<usize>,
    /// Handles that write.
    pub writers: Cell<usize>,
    in_flight: Cell<usize>,
    idle: Notify,
    /// Handles that the MDT has lost, and that are being opened again.
    reopening: Cell<usize>,
    reopened: Notify,
    /// Names that this client has given it since it was opened: the first one may be one of them (O_TMPFILE).
    pub links: Cell<u64>,
    /// The directory in which it was made, if its create was delayed.
    pub made_in: Cell<Option<Fid>>,
    /// This client has written beyond the end, or made a hole.
    sparse: Cell<bool>,
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

/// A change of the file is under way; its handles are not closed before it ends.
pub(crate) struct Busy(Rc<FileState>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.activity.in_flight.set(self.0.activity.in_flight.get() - 1);
        if self.0.activity.in_flight.get() == 0 {
            self.0.activity.idle.notify_waiters();
        }
    }
}

/// A handle is being opened again.
pub(crate) struct Reopening(Rc<FileState>);

impl Drop for Reopening {
    fn drop(&mut self) {
        self.0.activity.reopening.set(self.0.activity.reopening.get() - 1);
        if self.0.activity.reopening.get() == 0 {
            self.0.activity.reopened.notify_waiters();
        }
    }
}

impl FileState {
    fn new(owner: &Rc<Inner>, attr: &Attr, layout: Layout) -> Self {
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
            buffered: RefCell::new(BufferedWrites::new(owner.options.max_rpc_bytes.into())),
            arrived: Notify::new(),
            set_attr: RefCell::default(),
            sharing: Sharing::default(),
            reading: Reading::default(),
            asks: LeaseAsks::default(),
            inline: RefCell::default(),
            losses: FileLosses { count: Cell::new(0), reported: Cell::new(0), last: RefCell::new(Errno::EIO.into()) },
            owner: Rc::downgrade(owner),
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
        self.learn_inline(attr);
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
        self.owner.upgrade().map_or_else(ClientInstance::default, |inner| inner.instance())
    }

    /// Stripe 0's target has replied to this client's raise, under the epochs of `at`.
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

    pub fn busy(self: &Rc<Self>) -> Busy {
        self.activity.in_flight.set(self.activity.in_flight.get() + 1);
        Busy(self.clone())
    }

    /// Waits until no change is under way.
    pub async fn idle(&self) {
        while self.activity.in_flight.get() > 0 {
            self.activity.idle.notified().await;
        }
    }

    /// Attribute epoch of what is done now.
    pub fn attr_epoch(&self) -> u64 {
        self.attributes.epoch.get()
    }

    /// The MDT has lost a handle, which is opened again until the answer is dropped.
    pub fn reopens(self: &Rc<Self>) -> Reopening {
        self.activity.reopening.set(self.activity.reopening.get() + 1);
        Reopening(self.clone())
    }

    /// Some handle is being opened again.
    pub fn is_reopening(&self) -> bool {
        self.activity.reopening.get() > 0
    }

    /// Waits until no handle is being opened again.
    pub async fn reopened(&self) {
        while self.activity.reopening.get() > 0 {
            self.activity.reopened.notified().await;
        }
    }

    /// What this client does may leave a hole.
    pub fn make_sparse(&self) {
        self.activity.sparse.set(true);
    }

    /// This client may have left a hole.
    pub fn is_sparse(&self) -> bool {
        self.activity.sparse.get()
    }

    /// Acknowledged changes are lost: every handle reports it once.
    fn lose(&self, loss: ClientError) {
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
    fn version(&self) -> (u64, u32) {
        (self.size.borrow().epoch(), self.layout.borrow().generation)
    }
}

fn loss_of(fid: Fid, errno: Errno, reason: &str) -> ClientError {
    ClientError::new(errno, format!("acknowledged changes of {fid} were lost: {reason}"))
}

impl Drop for FileState {
    fn drop(&mut self) {
        if let Some(inner) = self.owner.upgrade() {
            let mut files = inner.opens.files.borrow_mut();
            if files.get(&self.fid).is_some_and(|file| file.strong_count() == 0) {
                files.remove(&self.fid);
            }
            drop(files);
            if self.set_attr.borrow().is_some() {
                inner.end_set(self.fid);
            }
            if self.losses.count.get() > self.losses.reported.get() {
                inner.remember_loss(self.fid, self.loss());
            }
        }
    }
}

impl Client {
    /// The state of a file just opened, as it was `asked` for.
    pub(crate) fn file_state(&self, asked: Ticket, attr: &Attr, layout: Layout) -> Rc<FileState> {
        if let Some(file) = self.inner.file(attr.fid) {
            file.adopt(asked, attr, Some(&layout));
            return file;
        }
        let file = Rc::new(FileState::new(&self.inner, attr, layout));
        file.adopt(asked, attr, None);
        if let Some(loss) = self.inner.losses.unreported.borrow_mut().remove(&attr.fid) {
            file.losses.count.set(1);
            *file.losses.last.borrow_mut() = loss;
        }
        self.inner.opens.files.borrow_mut().insert(attr.fid, Rc::downgrade(&file));
        file
    }

    /// As [`Client::try_fresh`], for attempts that need no new OSTs.
    pub(crate) async fn fresh<T>(
        &self,
        file: &FileState,
        attempt: impl AsyncFn() -> Result<T, Trouble>,
    ) -> ClientResult<T> {
        Ok(self.try_fresh(file, attempt).await?)
    }

    /// Repeats `attempt` until its truncate epoch and layout generation were current.
    pub(crate) async fn try_fresh<T>(
        &self,
        file: &FileState,
        attempt: impl AsyncFn() -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut pause = Duration::from_millis(1);
        for _ in 0..limits::STALE_ATTEMPTS {
            file.reopened().await;
            self.outline(file).await?;
            let before = file.version();
            match attempt().await {
                Err(Trouble::Stale(_)) => {}
                other => return other,
            }
            self.refresh(file).await?;
            if file.version() == before {
                // The OST is ahead of what the MDT tells: its reply is on the way.
                self.env().sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
        }
        let words = format!("{} is truncated again and again; try later", file.fid);
        Err(ClientError::new(Errno::EIO, words).into())
    }

    /// Fetches epochs and layout.
    pub(crate) async fn refresh(&self, file: &FileState) -> ClientResult<()> {
        let asked = self.inner.mdt.leases.ticket();
        let entry = self.mdt(file.fid, &GetAttr { fid: file.fid }).await?;
        file.adopt(asked, &entry.attr, entry.layout.as_ref());
        Ok(())
    }

    /// Returns when stripe 0's target has replied to a raise of the size to at least `end`.
    ///
    /// Raises of one file go one after another; one raise serves all writes that ended while the last was under way.
    pub(crate) async fn raise(
        &self,
        file: &FileState,
        at: &Snapshot,
        end: u64,
        level: CommitLevel,
    ) -> Result<(), Trouble> {
        let epoch = at.object.truncate_epoch;
        if level != CommitLevel::Commit && file.size.borrow().covers(epoch, end) {
            return Ok(());
        }
        file.size.borrow_mut().want(epoch, end);
        let _turn = file.raises.turn.lock().await;
        let peer = self.ost_of(at, at.layout.home()).await?;
        if file.size.borrow().covers(epoch, end) {
            if level == CommitLevel::Commit {
                let (_, transno) = file.raises.last.get();
                peer.session.committed(transno).await?;
            }
            return Ok(());
        }
        if file.size.borrow().epoch() != epoch {
            return Err(Trouble::Stale(Errno::STALE_EPOCH.into()));
        }
        let file_bytes = file.size.borrow().next_raise(end);
        let (object, before) = (at.object.clone(), Vec::new());
        let request = RaiseSize { object, file_bytes, attr_epoch: at.attr_epoch, before };
        let call = Call { fid: Some(file.fid), ..Call::level(level) };
        let called = peer.call(&request, call).await?;
        file.raised(at, file_bytes, called.transno);
        file.size.borrow_mut().see(epoch, called.reply.file_bytes);
        file.told_time(called.reply.attr_epoch, called.reply.mtime_ns);
        Ok(())
    }
}

impl Inner {
    /// An acknowledged change of `fid` is lost: its handles report that, or the next one that is opened, or a directory's next fsync.
    pub fn note_loss(&self, fid: Fid, errno: Errno, reason: &str) -> ClientError {
        let loss = loss_of(fid, errno, reason);
        match self.file(fid) {
            Some(file) => file.lose(loss.clone()),
            None => self.remember_loss(fid, loss.clone()),
        }
        loss
    }

    /// Nobody has the file open: who opens it next hears of the loss at fsync.
    fn remember_loss(&self, fid: Fid, loss: ClientError) {
        let mut untold = self.losses.unreported.borrow_mut();
        if untold.len() < limits::UNTOLD_LOSSES || untold.contains_key(&fid) {
            untold.insert(fid, loss);
        }
    }

    /// A target has ended the session, and what it had not committed is lost; or it could not do a replay.
    pub fn lost(self: &Rc<Self>, target: forebay_proto::TargetId, lost: &Lost) {
        let what = if lost.ended { "ended the session" } else { "lost a change" };
        self.env.log(&format!("client: {target} {what} ({}); {} requests lost", lost.reason, lost.requests));
        self.losses.requests.set(self.losses.requests.get() + lost.requests);
        for fid in &lost.fids {
            self.note_loss(*fid, Errno::EIO, &lost.reason);
        }
        match target.kind {
            forebay_proto::TargetKind::Mdt => {
                self.lose_leases();
                // Handles and locks are brought back where the session goes on.
                if lost.ended {
                    self.begin_instance();
                    self.lose_all_set(&lost.reason);
                    self.mdt.leases.lose_data();
                    self.mdt.fids.forget();
                    self.lose_locks();
                    self.reopen_all();
                    self.mdt.instance_begun.set(self.mdt.leases.ticket());
                }
            }
            forebay_proto::TargetKind::Ost => {
                let first = |file: &Rc<FileState>| file.layout().home() == target.index;
                if lost.ended {
                    self.write_back.room.forget(target.index);
                }
                self.open_files().iter().filter(|file| first(file)).for_each(|file| {
                    file.size.borrow_mut().forget_raises();
                });
            }
        }
    }
}
