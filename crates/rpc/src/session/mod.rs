//! The client's half of a session with one target.

mod call;
mod connect;
mod inner;
mod ping;
mod recover;
mod replay;
mod reply;
mod slots;

use std::rc::Rc;

use bytes::Bytes;
use forebay_env::{Address, Env};
use forebay_proto::{
    ClientId, Fid, Incarnation, TargetId, Transno, Uuid,
    message::{CommitLevel, Operation, Reclaim},
};

use self::inner::Inner;
use crate::{PinBudget, RpcError, limits};

/// Whom to talk to, and as whom.
#[derive(Clone)]
pub struct SessionOptions {
    /// The cluster; zero = not known yet (accept any).
    pub cluster: Uuid,
    /// The target meant.
    pub target: TargetId,
    /// Where it can be reached, best first.
    pub addresses: Vec<Address>,
    /// Who we are at first: new at each start of a process, and see [`ClientSession::become_client`].
    pub client: ClientId,
    /// What we are, for status and logs (`mount host:/path`, `MDT0000`).
    pub description: String,
    /// Bound of what is kept for replay; usually shared by all sessions of the client.
    pub pins: PinBudget,
}

/// A slot that was set aside for a call. Dropped, others have it.
pub struct Reservation(slots::Lease, crate::pins::Pin);

/// How to make a call.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// When the reply may leave.
    pub level: CommitLevel,
    /// Bulk that goes with the request; not copied.
    pub bulk: Vec<Bytes>,
    /// The job on whose behalf it is; 0 = unknown.
    pub job: u64,
    /// What it changes, to be named in [`Lost`] if the change is lost: a file or a directory.
    pub fid: Option<Fid>,
    /// The directory of which it changes a name as well.
    pub directory: Option<Fid>,
    /// Nobody waits for it: it may wait a little for another request to go with.
    pub patient: bool,
    /// What it rests on ends with the session: once there were more evictions than these ([`SessionStats::evictions`]) it fails with
    /// `Evicted`, rather than go on in the next one.
    pub evictions: Option<u64>,
}

impl Call {
    /// The default, with `level`.
    pub fn level(level: CommitLevel) -> Self {
        Self { level, ..Self::default() }
    }
}

/// A replied call.
#[derive(Clone, Debug)]
pub struct Called<R> {
    /// The reply.
    pub reply: R,
    /// Its transno; 0 if nothing was changed. Give it to [`ClientSession::committed`].
    pub transno: Transno,
    /// Bulk that came with the reply, in memory a device could take.
    pub bulk: Bytes,
}

/// What an eviction cost, or a replay that could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why, in the target's words.
    pub reason: String,
    /// Files and directories with acknowledged changes that are lost (as given in [`Call::fid`] and [`Call::directory`]), ordered,
    /// each once.
    pub fids: Vec<Fid>,
    /// Lost requests, also those without a fid.
    pub requests: u64,
    /// The session is over, and with it all that the target knew of it.
    pub ended: bool,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Not connected; trying.
    Connecting,
    /// Connected to a restarted target: replaying, reclaiming.
    Recovering,
    /// Calls are served.
    Up,
    /// The target stopped (failed flush, lost commits); trying now and then.
    Stopped,
    /// Refused for good; calls fail.
    Refused,
    /// Closed by us; calls fail.
    Closed,
}

/// Counters of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Replies received.
    pub replies: u64,
    /// Connections made.
    pub connects: u64,
    /// Requests sent again after a lost connection.
    pub resends: u64,
    /// Requests replayed after a restart.
    pub replays: u64,
    /// Pings sent.
    pub pings: u64,
    /// Times the target ended the session.
    pub evictions: u64,
    /// Replied, uncommitted requests kept now.
    pub replay_entries: u64,
    /// Requests in flight now.
    pub in_flight: u64,
}

/// One client's session with one target. Clones share it. It ends with [`ClientSession::close`], or when the last clone is
/// dropped (then without a goodbye).
#[derive(Clone)]
pub struct ClientSession {
    handle: Rc<Handle>,
}

/// Ends the background tasks when the last clone goes.
struct Handle {
    inner: Rc<Inner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.shut(SessionState::Closed, &RpcError::Closed);
    }
}

impl ClientSession {
    /// Begins: connects, reconnects, replays, reclaims and resends in the background.
    pub fn start(env: &Env, options: SessionOptions) -> Self {
        let inner = Inner::new(env, options);
        inner.register();
        env.spawn(connect::run(inner.clone()));
        env.spawn(ping::run(inner.clone()));
        Self { handle: Rc::new(Handle { inner }) }
    }

    fn inner(&self) -> &Rc<Inner> {
        &self.handle.inner
    }

    /// Waits until the target serves calls for the first time. Errors: `Refused`, `Closed`.
    pub async fn ready(&self) -> Result<(), RpcError> {
        self.inner().ready().await
    }

    /// Sends a request and waits for its reply, however often the connection or the target breaks meanwhile.
    ///
    /// Dropping the future gives up waiting; a request that was sent is still executed once, kept and replayed.
    pub async fn call<O: Operation>(&self, request: &O, call: Call) -> Result<Called<O::Reply>, RpcError> {
        call::call(self.inner(), request, call, None).await
    }

    /// Sets a slot aside for a change that is certain to come, and room to keep its `bytes` of body for replay; `None`: there is
    /// none to spare.
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let slot = self.inner().slots.reserve()?;
        let pin = self.inner().pins.try_acquire(bytes as u64 + crate::limits::PIN_OVERHEAD_BYTES)?;
        Some(Reservation(slot, pin))
    }

    /// The same, as soon as there is one. Errors: as of [`ClientSession::call`].
    pub async fn reserve_in_turn(&self, bytes: usize) -> Result<Reservation, RpcError> {
        let pin = self.inner().pins.acquire(bytes as u64 + crate::limits::PIN_OVERHEAD_BYTES).await;
        Ok(Reservation(self.inner().slots.acquire().await?, pin))
    }

    /// As [`ClientSession::call`], without waiting for other calls to end.
    pub async fn call_reserved<O: Operation>(
        &self,
        reservation: Reservation,
        request: &O,
        call: Call,
    ) -> Result<Called<O::Reply>, RpcError> {
        call::call(self.inner(), request, call, Some((reservation.0, reservation.1))).await
    }

    /// Sends what waits for another request to go with ([`Call::patient`]).
    pub fn hurry(&self) {
        if let Some(link) = &self.inner().state.borrow().link {
            link.send_waiting();
        }
    }

    /// Asks outside of the slots, so that the question does not wait behind calls that may wait for its answer. Never sent
    /// again: fails with `Unreachable` while there is no connection, and when it breaks.
    pub async fn ask<O: Operation>(&self, request: &O) -> Result<O::Reply, RpcError> {
        self.inner().ask(request).await
    }

    /// Waits until the change of this session that was replied with `transno` is committed; asks for a commit.
    /// Errors: `Evicted` if it was lost, `Closed`.
    pub async fn committed(&self, transno: Transno) -> Result<(), RpcError> {
        self.inner().committed(transno).await
    }

    /// Asks for a commit without waiting for it.
    pub fn commit_soon(&self) {
        self.inner().commit_soon();
    }

    /// Highest transno known to be durable.
    pub fn last_committed(&self) -> Transno {
        self.inner().state.borrow().last_committed
    }

    /// The target understands what the feature bit `bit` stands for, as far as the last connect told.
    pub fn has_feature(&self, bit: u64) -> bool {
        self.inner().state.borrow().features & bit != 0
    }

    /// The target's incarnation at the last connect.
    pub fn incarnation(&self) -> Incarnation {
        self.inner().state.borrow().incarnation
    }

    /// Which target it is.
    pub fn target(&self) -> TargetId {
        self.inner().options.target
    }

    /// Bytes kept for replay.
    pub fn pinned_bytes(&self) -> u64 {
        self.inner().state.borrow().replay.pinned_bytes()
    }

    /// Where it stands.
    pub fn state(&self) -> SessionState {
        self.inner().state.borrow().phase
    }

    /// Counters.
    pub fn stats(&self) -> SessionStats {
        let inner = self.inner();
        let state = inner.state.borrow();
        SessionStats {
            replay_entries: state.replay.len() as u64,
            in_flight: inner.slots.in_use() as u64,
            ..state.stats.clone()
        }
    }

    /// MDT: tells what to bring back after a restart of the target. Called during recovery, after the replays.
    pub fn set_reclaim(&self, held: impl Fn() -> Reclaim + 'static) {
        *self.inner().reclaim.borrow_mut() = Some(Rc::new(held));
    }

    /// Called before each greeting: what is counted on of the room that the target granted. No more is to be used until it
    /// was granted anew.
    pub fn set_granted(&self, bytes: impl Fn() -> u64 + 'static) {
        *self.inner().granted.borrow_mut() = Some(Rc::new(bytes));
    }

    /// Called when the target turns out to have restarted, before it hears anything of this session.
    pub fn set_restarted(&self, hook: impl Fn() + 'static) {
        *self.inner().restarted.borrow_mut() = Some(Rc::new(hook));
    }

    /// Called once at each eviction, before the affected calls fail: fail the next call on these files with EIO, and, if the
    /// session has ended, forget all handles the target knew. Also for each replay that failed.
    pub fn set_lost(&self, hook: impl Fn(Lost) + 'static) {
        *self.inner().lost.borrow_mut() = Some(Rc::new(hook));
    }

    /// From the next session on we are `client`; what the last one held stays with it. To be called by the hook of
    /// [`ClientSession::set_lost`], when the session has ended: what was not sent yet goes on in the new one.
    pub fn become_client(&self, client: ClientId) {
        self.inner().become_client(client);
    }

    /// Waits, however long it takes, until nothing is in flight and everything replied is committed or was reported as lost; then
    /// ends the session. Later calls fail with `Evicted` and `why`.
    pub async fn retire(&self, why: &str) {
        let inner = self.inner();
        inner.drained().await;
        while !inner.never_connected() {
            let _ = inner.env.timeout(limits::CLOSE_TIMEOUT, inner.say_goodbye()).await;
            // A call that waited for its turn may have been made meanwhile.
            if inner.is_drained() {
                break;
            }
            inner.drained().await;
        }
        inner.shut(SessionState::Closed, &RpcError::Evicted(why.to_owned()));
    }

    /// Waits until everything replied is committed, then ends the session at the target. Later calls fail with `Closed`.
    /// If the target is away for longer than `limits::CLOSE_TIMEOUT`, closes without its goodbye.
    pub async fn close(&self) {
        let inner = self.inner();
        let _ = inner.env.timeout(limits::CLOSE_TIMEOUT, inner.say_goodbye()).await;
        inner.shut(SessionState::Closed, &RpcError::Closed);
    }
}
