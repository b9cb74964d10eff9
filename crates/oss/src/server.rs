//! The service: dispatches requests to `ops/`, and holds the state that they share.

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{Boxed, Env, sync::Notify};
use forebay_proto::{
    ClientId, Decode, Errno, ErrorReply, Fid, Reader, SessionId, Transno,
    limits::BLOCK_BYTES,
    message::{ObjectRef, Op},
};
use forebay_store::Store;
use forebay_target::{Answer, Attempt, Context, Service, Target, TargetOptions, store_error};

use crate::{
    ObjectRow, append_offsets::AppendOffsets, capabilities, capabilities::Capabilities, destroyed::Destroyed,
    grants::Grants, growing::Growing, layout_fences::LayoutFences, object, ops, readahead::ReadAhead,
    reservations::AppendReservations, unacknowledged::Unacknowledged, watches::Watches,
};

/// Length of the field that each message begins with.
const LENGTH_BYTES: usize = 4;

/// The object storage server of one OST.
pub struct Oss {
    env: Env,
    store: Store,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) destroyed: RefCell<Destroyed>,
    pub(crate) layout_fences: LayoutFences,
    pub(crate) capabilities: Capabilities,
    pub(crate) append_offsets: AppendOffsets,
    pub(crate) reservations: AppendReservations,
    pub(crate) growing: Growing,
    pub(crate) unacknowledged: Unacknowledged,
    pub(crate) grants: Grants,
    pub(crate) watches: Watches,
    /// Notified when a truncate was applied.
    pub(crate) truncated: Notify,
    /// Set once a replay found no space beside other replays: from then on they run one by one.
    pub(crate) replays_in_turn: Cell<bool>,
    /// Number of requests under way that remove bytes, or beside which object rows must not change.
    pub(crate) cutting: Rc<Cell<u32>>,
    /// Number of objects.
    pub(crate) objects: Cell<u64>,
    target: OnceCell<Target>,
}

impl Oss {
    /// Starts serving a store; call [`Target::serve`] for each listener.
    pub fn start(env: &Env, store: Store, options: TargetOptions) -> Boxed<'_, Result<(Rc<Self>, Target), ErrorReply>> {
        Box::pin(async move {
            let oss = Rc::new(Self {
                env: env.clone(),
                read_ahead: ReadAhead::new(env, &store),
                store: store.clone(),
                destroyed: RefCell::default(),
                layout_fences: LayoutFences::default(),
                capabilities: Capabilities::default(),
                append_offsets: AppendOffsets::default(),
                reservations: AppendReservations::default(),
                growing: Growing::default(),
                unacknowledged: Unacknowledged::default(),
                grants: Grants::default(),
                watches: Watches::default(),
                truncated: Notify::new(),
                replays_in_turn: Cell::new(false),
                cutting: Rc::default(),
                objects: Cell::new(0),
                target: OnceCell::new(),
            });
            let target = Target::start(env, store, options, oss.clone()).await?;
            Ok((oss, target))
        })
    }

    /// The environment.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// The store.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The target; there is one before the first request.
    pub(crate) fn target(&self) -> &Target {
        self.target.get().expect("`started` was called before any request")
    }

    /// The object's row, including all acknowledged changes.
    pub(crate) async fn load(&self, fid: Fid) -> Attempt<Option<ObjectRow>> {
        self.target().wait_applied(Some(fid)).await;
        self.load_applied(fid).await
    }

    /// The object's row as applied, read from the device if need be.
    pub(crate) async fn load_applied(&self, fid: Fid) -> Attempt<Option<ObjectRow>> {
        let value = self.store.load(&object::key(fid)).await?;
        Ok(value.map(|v| decode(&v)).transpose()?)
    }

    /// How many bytes of `range` are reserved and hold no data.
    pub(crate) async fn unwritten_reserved_in(
        &self,
        fid: Fid,
        row: Option<&ObjectRow>,
        range: &std::ops::Range<u64>,
    ) -> Attempt<u64> {
        let Some(row) = row.filter(|row| row.aside.bytes() > 0) else { return Ok(0) };
        let mut bytes = 0;
        for part in row.aside.within(range) {
            bytes += part.end - part.start - self.data_bytes(fid, part).await?;
        }
        Ok(bytes.min(row.aside.bytes()))
    }

    /// How many bytes of `range` hold data.
    pub(crate) async fn data_bytes(&self, fid: Fid, range: std::ops::Range<u64>) -> Attempt<u64> {
        let (mut from, mut bytes) = (range.start, 0);
        // Writes mostly have few extents under them, whatever their length. The limit bounds the extents that one step
        // reads.
        let limit = ((range.end - range.start) / BLOCK_BYTES + 4).min(crate::limits::MAP_EXTENTS as u64) as usize;
        loop {
            let (ranges, next) = self.store.data_ranges(fid, from, limit).await?;
            bytes += ranges.iter().map(|of| of.end.min(range.end).saturating_sub(of.start)).sum::<u64>();
            match next {
                Some(next) if next > from && next < range.end => from = next,
                _ => return Ok(bytes),
            }
        }
    }

    /// Waits, after a request that may have made a file larger, until the size watchers of the file know its size.
    async fn notify_watchers(&self, by: SessionId, op: Op, body: &[u8]) {
        let never_grow = matches!(
            op,
            Op::WriteReserved
                | Op::RemoveWritten
                | Op::TruncateObject
                | Op::Punch
                | Op::Destroy
                | Op::Allocate
                | Op::SetCapabilityKeys
        );
        let may_grow = self.admits(op) && !never_grow;
        // Each of these requests begins with its object, behind the message's own length.
        let object = |body: &[u8]| ObjectRef::decode(&mut Reader::new(body.get(LENGTH_BYTES..)?)).ok();
        let Some(fid) = may_grow.then(|| object(body)).flatten().map(|object| object.fid) else { return };
        if self.watches.has(fid)
            && let Ok(Some(row)) = self.load_applied(fid).await
        {
            self.watches.grew(&self.env, by, fid, row.file_bytes).await;
        }
    }

    /// Counts the objects at start, and the space reserved in them; a scan of rows, page by page.
    async fn count_objects(&self) -> Result<u64, ErrorReply> {
        const PAGE: usize = 4096;
        let mut from = object::key(Fid::default()).to_vec();
        let end = object::key(Fid { high: u64::MAX, low: u64::MAX });
        let mut count = 0;
        loop {
            let rows = self.store.scan(&from, &end, PAGE).await.map_err(store_error)?;
            count += rows.len() as u64;
            // A damaged row is reported when its object is requested.
            let aside = rows.iter().filter_map(|(_, value)| decode(value).ok()).map(|row| row.aside.bytes()).sum();
            self.store.set_aside(0, aside);
            match rows.last() {
                Some((key, _)) if rows.len() == PAGE => {
                    from = key.to_vec();
                    from.push(0);
                }
                _ => return Ok(count),
            }
        }
    }
}

/// Reads a row; a damaged one is EIO for its object.
pub(crate) fn decode(value: &[u8]) -> Result<ObjectRow, ErrorReply> {
    ObjectRow::from_bytes(value).map_err(|e| ErrorReply::new(Errno::EIO, format!("an object's row is damaged: {e}")))
}

impl Service for Oss {
    async fn started(self: Rc<Self>, target: Target) -> Result<(), ErrorReply> {
        self.reservations.begin(target.incarnation());
        let _ = self.target.set(target);
        self.objects.set(self.count_objects().await?);
        let keys = self.store.load(&capabilities::ROW).await.map_err(store_error)?;
        Ok(self.capabilities.load(keys.as_deref())?)
    }

    async fn handle(self: Rc<Self>, ctx: Context, op: Op, body: Bytes, bulk: Bytes) -> Attempt<Answer> {
        self.capabilities.check(&ctx, op, &body)?;
        let answer = ops::dispatch(&self, &ctx, op, &body, bulk).await?;
        if !ctx.is_replay() {
            self.notify_watchers(ctx.session(), op, &body).await;
        }
        Ok(answer)
    }

    fn admits(&self, op: Op) -> bool {
        matches!(
            op,
            Op::Write
                | Op::WritePieces
                | Op::RaiseSize
                | Op::Append
                | Op::WriteReserved
                | Op::CompleteAppend
                | Op::RemoveWritten
                | Op::TruncateObject
                | Op::Punch
                | Op::Destroy
                | Op::Allocate
                | Op::SetCapabilityKeys
        )
    }

    fn comes_back(&self, session: SessionId, granted_bytes: u64) {
        self.grants.again(&self.store, session, granted_bytes);
    }

    fn replayed(&self, evicted: &[SessionId]) {
        evicted.iter().for_each(|session| self.grants.end(*session));
        self.grants.replayed(&self.store);
        self.capabilities.replayed();
    }

    async fn session_ended(self: Rc<Self>, session: SessionId, _: ClientId, _: bool) {
        self.watches.end_session(session);
        self.grants.end(session);
        self.reservations.end_session(session);
        self.append_offsets.returned();
    }

    fn last_change(&self, fid: Fid) -> Option<Transno> {
        match self.store.get(&object::key(fid)).ok()? {
            Some(value) => ObjectRow::from_bytes(&value).ok().map(|row| row.transno),
            None => Some(Transno(0)),
        }
    }

    fn status(&self) -> String {
        format!(
            "{{\"objects\":{},\"read_ahead_hits\":{},\"granted_bytes\":{}}}",
            self.objects.get(),
            self.read_ahead.hits(),
            self.grants.bytes()
        )
    }
}
