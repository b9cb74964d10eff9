//! The server: its state, its startup, and the dispatch of requests to operations.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use forebay_env::{Address, Boxed, Bug, Env, PeerIdentity, Time, planted, sync::Notify};
use forebay_keys::{Authority, NODE_LIFE};
use forebay_proto::{
    ClientId, Decode, Errno, ErrorReply, Fid, SessionId, Transno, Uuid, WriteId,
    limits::LEASE_TERM,
    message::{
        AwaitRecalls, ExtendLayout, LayoutSpec, LookupStatahead, Migrate, Op, Open, OpenReply, Outline, RecallsReply,
        SetAttr, SetLayout,
    },
};
use forebay_store::Store;
use forebay_target::{Answer, Attempt, Context, Service, Target, TargetOptions};

use crate::{
    bootstrap::Owner,
    inode::Inode,
    keys::{self, Key},
    leases::LeaseWaits,
    leases::{Leases, PendingRecalls},
    limits, load,
    membership::{self, Membership},
    memory::Memory,
    opens::OpenChange,
    ops,
    osts::{OstAddresses, Osts},
    placement::{OstSpace, SlowOsts},
    tx::Effects,
};

/// How a metadata server is run.
#[derive(Clone)]
pub struct MdsOptions {
    /// The cluster, for sessions with the OSTs.
    pub cluster: Uuid,
    /// The OSTs, by index, with their addresses. Those that the map names (`target`) take precedence.
    pub osts: BTreeMap<u32, Vec<Address>>,
    /// Default stripe count and size; zeros mean this program's defaults.
    pub default_layout: LayoutSpec,
    /// The owner of a new MDT's root directory.
    pub owner: Owner,
    /// How long a key signs capabilities.
    pub capability_life: Duration,
    /// How long the certificates of nodes that join are valid, and those that are renewed.
    pub certificate_life: Duration,
    /// The cluster's authority, if this server is the MGS and hosts may join.
    pub authority: Option<std::sync::Arc<Authority>>,
    /// Sessions, recovery, and the cluster's map as it is described, if this server is the MGS.
    pub target: TargetOptions,
}

impl MdsOptions {
    /// Default options, with these OSTs.
    pub fn new(cluster: Uuid, osts: BTreeMap<u32, Vec<Address>>) -> Self {
        let (default_layout, owner) = (LayoutSpec::inherit(), Owner::default());
        Self {
            cluster,
            osts,
            default_layout,
            owner,
            capability_life: limits::CAPABILITY_LIFE,
            certificate_life: NODE_LIFE,
            authority: None,
            target: TargetOptions::default(),
        }
    }
}

/// The metadata server of one MDT. It lives as long as its [`Target`] is served.
pub struct Mds {
    pub(crate) env: Env,
    pub(crate) store: Store,
    pub(crate) osts: Osts,
    pub(crate) memory: RefCell<Memory>,
    /// The space that each OST reported.
    pub(crate) spaces: RefCell<BTreeMap<u32, Option<OstSpace>>>,
    /// OSTs that new files avoid.
    pub(crate) slow_osts: RefCell<SlowOsts>,
    /// Time of the last completed poll of all OSTs.
    pub(crate) polled: Cell<Time>,
    /// Wakes each OST's destroy driver.
    pub(crate) destroys: RefCell<BTreeMap<u32, Rc<Notify>>>,
    /// How long a key signs capabilities.
    pub(crate) capability_life: Duration,
    /// How long a certificate is valid that this server signs.
    pub(crate) certificate_life: Duration,
    /// Who is in the cluster.
    pub(crate) membership: Membership,
    /// Sessions whose handles are being closed.
    pub(crate) ending: RefCell<BTreeSet<SessionId>>,
    /// Clients with a session that was evicted since the start, until their sequences are given up.
    pub(crate) evicted: RefCell<BTreeSet<ClientId>>,
    /// Sequences being collected, for `status`.
    pub(crate) collecting: Cell<usize>,
    /// The target, which in turn holds this server; taken out at the end.
    target: RefCell<Option<Target>>,
    /// Notified when the memory changes, such as at the end of a truncate or the commit of a placement table.
    changed: Notify,
    /// Requests that wait for leases.
    pub(crate) lease_waits: LeaseWaits,
    /// Time and result of the last measurement of free space.
    space: Cell<(Time, u64)>,
    /// Number of writes to OSTs since this start of the server.
    writes: Cell<u64>,
    /// A weak reference to itself, for background tasks.
    this: OnceCell<std::rc::Weak<Mds>>,
}

impl Mds {
    /// Starts serving the MDT of `store`: writes the first rows of a new one, loads the memory, begins recovery. Serve
    /// connections with [`Target::serve`].
    pub fn start(
        env: &Env,
        store: Store,
        mut options: MdsOptions,
    ) -> Boxed<'_, Result<(Rc<Self>, Target), ErrorReply>> {
        Box::pin(async move {
            // Leases of clients that do not come back within it have expired.
            options.target.recovery_window = options.target.recovery_window.max(LEASE_TERM);
            load::bootstrap(env, &store, options.owner, options.osts.keys().copied()).await?;
            let mut memory = load::memory(&store).await?;
            overlay(&mut memory.default_layout, &options.default_layout);
            memory.leases = Leases::new(store.incarnation());
            for (session, fid) in memory.opens.writers() {
                memory.leases.data.presume(session, fid);
            }
            let membership = Membership::new(env, options.target.map.take(), options.authority.take());
            membership::load(&store, &membership).await?;
            membership.adopt_bans();
            options.target.map = membership.map();
            let life = (store.identity().target, store.incarnation());
            let osts: BTreeSet<u32> = options.osts.keys().copied().chain(membership.osts()).collect();
            let addresses = OstAddresses { known: options.osts, map: options.target.map.clone() };
            let mds = Rc::new(Self {
                env: env.clone(),
                osts: Osts::start(env, options.cluster, life, addresses, osts.iter().copied()),
                memory: RefCell::new(memory),
                spaces: RefCell::new(osts.iter().map(|ost| (*ost, None)).collect()),
                slow_osts: RefCell::default(),
                polled: Cell::default(),
                destroys: RefCell::new(osts.iter().map(|ost| (*ost, Rc::new(Notify::new()))).collect()),
                capability_life: options.capability_life,
                certificate_life: options.certificate_life,
                membership,
                ending: RefCell::default(),
                evicted: RefCell::default(),
                collecting: Cell::new(0),
                store: store.clone(),
                target: RefCell::default(),
                changed: Notify::new(),
                lease_waits: LeaseWaits::default(),
                space: Cell::new((Time(0), 0)),
                writes: Cell::new(0),
                this: OnceCell::new(),
            });
            mds.this.set(Rc::downgrade(&mds)).unwrap_or_else(|_| unreachable!("it was made a moment ago"));
            let target = Target::start(env, store, options.target, mds.clone()).await?;
            Ok((mds, target))
        })
    }

    /// Ends background work and the sessions with the OSTs. Close the target first.
    pub fn close(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            self.target.take();
            self.destroys.borrow().values().for_each(|logged| logged.notify_one());
            self.osts.close().await;
        })
    }

    /// True before the start and after [`Mds::close`].
    pub(crate) fn is_closed(&self) -> bool {
        self.target.borrow().is_none()
    }

    /// Another OST has registered.
    pub(crate) fn add_ost(self: &Rc<Self>, ost: u32) {
        self.osts.add(ost);
        self.spaces.borrow_mut().insert(ost, None);
        self.destroys.borrow_mut().insert(ost, Rc::new(Notify::new()));
        self.start_destroys(ost);
    }

    pub(crate) fn strong(&self) -> Rc<Self> {
        self.this.get().and_then(std::rc::Weak::upgrade).expect("it is being used")
    }

    pub(crate) fn target(&self) -> Result<Target, ErrorReply> {
        let target = self.target.borrow().clone();
        target.ok_or_else(|| ErrorReply::new(Errno::RECOVERING, "the server starts or stops"))
    }

    /// Updates the memory after a transaction was applied.
    pub(crate) fn follow(&self, effects: &Effects) {
        let mut memory = self.memory.borrow_mut();
        memory.inodes = memory.inodes.saturating_add_signed(effects.inodes);
        let mut ended = Vec::new();
        for change in &effects.opens {
            memory.opens.follow(*change);
            if let OpenChange::Closed { fid, session, .. } = *change {
                let closed = memory.opens.count(fid).writers == 0 && memory.leases.data.closed(fid);
                if memory.left(session, fid) || closed {
                    ended.push(fid);
                }
            }
        }
        self.leases_ended(&ended);
        effects.locks.iter().for_each(|(session, fid, lock)| memory.locks.set(*session, *fid, lock));
        memory.truncating.extend(effects.truncate);
        memory.truncating.extend(effects.hidden);
        memory.placing |= effects.table.is_some();
        if let Some((sequence, client)) = effects.lease {
            memory.sequences.insert(sequence, client);
            memory.next_sequence = memory.next_sequence.max(sequence.0 + 1);
        }
        if effects.destroys {
            self.destroys.borrow().values().for_each(|logged| logged.notify_one());
        }
    }

    /// The id of the server's next write to an OST.
    pub(crate) fn write_id(&self) -> WriteId {
        self.writes.set(self.writes.get() + 1);
        let life = Uuid::of_life(self.store.identity().target.index, self.store.incarnation());
        WriteId { client: life.low(), sequence: self.writes.get() }
    }

    /// Wakes all callers of [`Mds::wait_until`], and all requests that wait for leases.
    pub(crate) fn memory_changed(&self) {
        self.changed.notify_waiters();
        self.lease_waits.all.notify_waiters();
    }

    /// Wakes all callers of [`Mds::wait_until`], and the requests that wait for leases on `fids`.
    pub(crate) fn leases_ended(&self, fids: &[Fid]) {
        if !fids.is_empty() {
            self.changed.notify_waiters();
            self.lease_waits.ended(fids);
        }
    }

    /// Completes when the memory changes after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }

    /// Waits until the memory is as `wanted`.
    pub(crate) async fn wait_until(&self, wanted: impl Fn(&Memory) -> bool) {
        loop {
            let changed = self.changed.notified();
            if wanted(&self.memory.borrow()) {
                return;
            }
            changed.await;
        }
    }

    /// True while there is space for more than deletes.
    pub(crate) fn has_space(&self) -> bool {
        self.usable_bytes() > limits::KEEP_FREE_BYTES
    }

    /// True while there is also space for inline data: for as much as may arrive before the next measurement.
    pub(crate) fn has_space_for_inline(&self) -> bool {
        self.usable_bytes() > limits::KEEP_FREE_BYTES + limits::INLINE_SPACE_BYTES
    }

    /// Free space minus what the pages of unwritten changes may take.
    fn usable_bytes(&self) -> u64 {
        let (asked, answer) = self.space.get();
        let now = self.env.now();
        if asked != Time(0) && now.since(asked) < limits::SPACE_INTERVAL {
            return answer;
        }
        let dirty_bytes = self.store.stats().table_dirty_bytes;
        let bytes = self.store.space().available_bytes.saturating_sub(2 * dirty_bytes);
        self.space.set((now, bytes));
        bytes
    }

    /// Writes the changed rows with a checkpoint. Until then each takes space twice, at its old and its new position,
    /// and the space of deleted rows is not free yet. False if there is no space for that.
    pub(crate) async fn free_space(&self) -> Attempt<bool> {
        if self.store.stats().table_dirty_bytes == 0 {
            return Ok(false);
        }
        let Ok(written) = self.env.timeout(limits::FREE_SPACE_TIMEOUT, self.store.checkpoint()).await else {
            return Ok(false);
        };
        written?;
        let bytes = self.store.space().available_bytes;
        self.space.set((Time(0), bytes));
        Ok(bytes > limits::KEEP_FREE_BYTES)
    }

    async fn dispatch(self: Rc<Self>, ctx: Context, op: Op, body: Bytes) -> Attempt<Answer> {
        /// Decodes the request, prefetches its first rows, and applies it.
        macro_rules! run {
            ($how:ident, $keys:path, $apply:path) => {{
                let request = Decode::from_bytes(&body)?;
                self.$how(&ctx, &$keys(&request), |tx| $apply(tx, &request)).await
            }};
        }
        match op {
            Op::LeaseSequence => run!(modify, ops::lease_sequence::keys, ops::lease_sequence::apply),
            Op::Lookup => run!(read, ops::lookup::keys, ops::lookup::apply),
            Op::LookupStatahead => self.lookup_statahead(&ctx, &body).await,
            Op::GetAttr => run!(read, ops::getattr::keys, ops::getattr::apply),
            Op::SetAttr => run!(modify, ops::setattr::keys, ops::setattr::apply),
            Op::Create => {
                let answer = run!(modify, ops::create::keys, ops::create::apply)?;
                self.with_capability(&ctx, answer)
            }
            Op::Make => run!(modify, ops::make::keys, ops::make::apply),
            Op::Link => run!(modify, ops::link::keys, ops::link::apply),
            Op::Unlink => run!(modify, ops::unlink::keys, ops::unlink::apply),
            Op::Rmdir => run!(modify, ops::rmdir::keys, ops::rmdir::apply),
            Op::Rename => run!(modify, ops::rename::keys, ops::rename::apply),
            Op::ReadLink => run!(read, ops::readlink::keys, ops::readlink::apply),
            Op::ReadDir => self.readdir(&ctx, &body).await,
            Op::Open => {
                let answer = run!(modify, ops::open::keys, ops::open::apply)?;
                self.with_capability(&ctx, answer)
            }
            Op::Close => run!(modify, ops::close::keys, ops::close::apply),
            Op::Reclaim => run!(modify, ops::reclaim::keys, ops::reclaim::apply),
            Op::GetXattr => run!(read, ops::xattr::get_keys, ops::xattr::get),
            Op::SetXattr => run!(modify, ops::xattr::set_keys, ops::xattr::set),
            Op::ListXattr => run!(read, ops::xattr::list_keys, ops::xattr::list),
            Op::RemoveXattr => run!(modify, ops::xattr::remove_keys, ops::xattr::remove),
            Op::SetLayout => {
                if !ctx.is_replay() {
                    self.look_for_stripes(&body).await?;
                }
                run!(modify, ops::setlayout::keys, ops::setlayout::apply)
            }
            Op::ExtendLayout => run!(modify, ops::extend::keys, ops::extend::apply),
            Op::Outline => run!(modify, ops::inline::outline_keys, ops::inline::outline),
            Op::ReadInline => run!(read, ops::inline::read_keys, ops::inline::read),
            Op::GetContentVersion => run!(read, ops::migrate::start_keys, ops::migrate::start),
            Op::Migrate => run!(modify, ops::migrate::keys, ops::migrate::apply),
            Op::SetPool => run!(modify, ops::pool::keys, ops::pool::set),
            Op::GetPools => Ok(Answer::read(&ops::pool::list(self.memory.borrow().placement.newest_table()))),
            Op::Authorize => self.authorize(&ctx, &body).await,
            Op::Lock => {
                self.check_reach(&ctx, forebay_proto::message::Lock::from_bytes(&body)?.fid).await?;
                Ok(self.lock(&ctx, &body).await?)
            }
            Op::AwaitRecalls => Ok(self.await_recalls(&ctx, &body).await?),
            Op::Claim => {
                self.check_reach(&ctx, forebay_proto::message::Claim::from_bytes(&body)?.fid).await?;
                self.claim(&ctx, &body).await
            }
            Op::FinishDestroys => self.finish_destroys(&body).await,
            Op::FlushBuffered => Ok(self.flush_buffered(ctx.session()).await),
            Op::MdtStatFs => Ok(Answer::read(&ops::statfs::reply(self.memory.borrow().inodes, &self.store.space()))),
            _ => {
                let message = format!("{} is not an operation of a metadata server", op.name());
                Err(ErrorReply::new(Errno::EOPNOTSUPP, message).into())
            }
        }
    }

    /// Returns the recalls for a client, which acknowledges them with its next such request. The reply is empty if
    /// there are none for a while.
    async fn await_recalls(&self, ctx: &Context, body: &[u8]) -> Result<Answer, ErrorReply> {
        let said: AwaitRecalls = Decode::from_bytes(body)?;
        let ended = self.memory.borrow_mut().leases.acknowledge(ctx.session(), &said);
        self.leases_ended(&ended);
        let until = self.env.now() + limits::RECALL_WAIT;
        loop {
            let PendingRecalls { fids, data, sequence, next } = self.memory.borrow_mut().leases.recalls(ctx.session());
            let next = next.notified();
            let left = until.since(self.env.now());
            if !fids.is_empty() || !data.is_empty() || left.is_zero() {
                return Ok(Answer::read(&RecallsReply { fids, data, sequence: sequence.max(said.acknowledged) }));
            }
            let _ = self.env.timeout(left, next).await;
        }
    }

    async fn lookup_statahead(&self, ctx: &Context, body: &[u8]) -> Attempt<Answer> {
        let request: LookupStatahead = Decode::from_bytes(body)?;
        let (parent, keys) = (request.lookup.parent, ops::lookup::keys(&request.lookup));
        let (first, _) = self.look(ctx, &keys, |tx| ops::lookup_statahead::first(tx, &request)).await?;
        let (from, to) = (keys::dirent(parent, first), keys::after(keys::dirents(parent).as_ref()));
        let rows = self.store.scan(from.as_ref(), &to, ops::lookup_statahead::rows(&request)).await?;
        let others = ops::readdir::decode(&rows)?;
        prefetch_in_steps(ctx, &ops::lookup_statahead::other_keys(&request, &others)).await?;
        self.read(ctx, &keys, |tx| ops::lookup_statahead::apply(tx, &request, &others)).await
    }

    async fn readdir(&self, ctx: &Context, body: &[u8]) -> Attempt<Answer> {
        let request = Decode::from_bytes(body)?;
        // Other clients' delayed changes are sent to the MDT before the scan.
        self.read(ctx, &ops::readdir::keys(&request), |tx| ops::readdir::shows(tx, &request)).await?;
        let (from, to, limit) = ops::readdir::rows(&request);
        let rows = self.store.scan(from.as_ref(), &to, limit).await?;
        let entries = ops::readdir::decode(&rows)?;
        prefetch_in_steps(ctx, &ops::readdir::inode_keys(&request, &entries)).await?;
        self.read(ctx, &ops::readdir::keys(&request), |tx| {
            ops::readdir::apply(tx, &request, &entries, rows.len() < limit)
        })
        .await
    }
}

/// Prefetches in small steps: a small cache need not hold all rows at once.
async fn prefetch_in_steps(ctx: &Context, keys: &[Key]) -> Attempt<()> {
    for keys in keys.chunks(limits::PREFETCH_ROWS) {
        ctx.prefetch(keys).await?;
    }
    Ok(())
}

fn overlay(default: &mut LayoutSpec, given: &LayoutSpec) {
    if given.stripe_count != 0 {
        default.stripe_count = given.stripe_count;
    }
    if given.stripe_bytes != 0 {
        default.stripe_bytes = given.stripe_bytes;
    }
}

impl Service for Mds {
    async fn started(self: Rc<Self>, target: Target) -> Result<(), ErrorReply> {
        self.target.replace(Some(target));
        Ok(())
    }

    async fn handle(self: Rc<Self>, ctx: Context, op: Op, body: Bytes, _bulk: Bytes) -> Attempt<Answer> {
        self.memory.borrow_mut().leases.note_request(ctx.session(), self.env.now());
        let body = self.confine(&ctx, op, body)?;
        self.dispatch(ctx, op, body).await
    }

    async fn membership(self: Rc<Self>, peer: PeerIdentity, op: Op, body: Bytes) -> Result<Bytes, ErrorReply> {
        self.membership_request(&peer, op, &body).await
    }

    /// Waits until the OSTs have done the truncate: a write after the reply would otherwise be lost.
    async fn settled(self: Rc<Self>, op: Op, body: Bytes, reply: Bytes) {
        let cut = match op {
            Op::SetAttr => SetAttr::from_bytes(&body).ok().map(|request| request.fid),
            Op::Open => Open::from_bytes(&body).ok().map(|request| request.fid),
            Op::ExtendLayout => ExtendLayout::from_bytes(&body).ok().map(|request| request.fid),
            Op::SetLayout => SetLayout::from_bytes(&body).ok().map(|request| request.fid),
            Op::Migrate => Migrate::from_bytes(&body).ok().map(|request| request.fid),
            Op::Outline => Outline::from_bytes(&body).ok().map(|request| request.fid),
            Op::Create => OpenReply::from_bytes(&reply).ok().map(|reply| reply.attr.fid),
            Op::SetPool => return self.wait_until(|memory| !memory.placing).await,
            _ => None,
        };
        if let Some(fid) = cut {
            self.wait_until(|memory| !memory.truncating.contains(&fid)).await;
        }
    }

    async fn recovered(self: Rc<Self>) {
        if let Ok(target) = self.target() {
            self.memory.borrow_mut().leases.data.recovered(|session| target.has_session(session));
            self.memory_changed();
        }
        self.start_background().await;
    }

    async fn session_ended(self: Rc<Self>, session: SessionId, client: ClientId, evicted: bool) {
        if !evicted {
            self.memory.borrow_mut().leases.forget(session);
            self.memory_changed();
        }
        // This may wait for OSTs that are away; nothing else should wait for it.
        self.env.clone().spawn(async move { self.end_session(session, client, evicted).await });
    }

    fn last_change(&self, fid: Fid) -> Option<Transno> {
        let row = self.store.get(keys::inode(fid).as_ref()).ok()??;
        let inode = Inode::decode(&row).ok()?;
        // The open of the last writing handle must be durable too: without it nobody would fetch the file's size
        // from the OSTs after a crash.
        let opened = self.memory.borrow().opens.count(fid).opened;
        let opened = Some(opened).filter(|_| !planted(Bug::OpensNotSynced));
        Some(inode.transno.max(opened.unwrap_or_default()))
    }

    fn status(&self) -> String {
        let memory = self.memory.borrow();
        let (leases, granted, recalled) = memory.leases.counters();
        format!(
            "{{\"inodes\": {}, \"open_handles\": {}, \"truncating\": {}, \"leased_sequences\": {}, \"collecting\": {}, \"locks\": {}, \"leases\": {}, \"leases_granted\": {}, \"leases_recalled\": {}}}",
            memory.inodes,
            memory.opens.handle_count(),
            memory.truncating.len(),
            memory.sequences.len(),
            self.collecting.get(),
            memory.locks.len(),
            leases,
            granted,
            recalled,
        )
    }
}
