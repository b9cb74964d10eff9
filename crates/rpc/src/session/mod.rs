//! The client's half of a session with one target.

mod by_address;
mod call;
mod connect;
mod inner;
mod link;
mod ping;
mod rails;
mod recover;
mod replay;
mod reply;
mod round_trip;
mod slots;

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_env::{Boxed, Env};
use forebay_proto::{
    ClientId, Fid, Incarnation, TargetId, Transno, Uuid,
    message::{Capability, CommitLevel, Operation, Reclaim},
};

pub use self::by_address::RailStats;
use self::inner::Inner;
use crate::{PinBudget, Resolve, RpcError, limits};

/// The target to connect to, and the client to connect as.
#[derive(Clone)]
pub struct SessionOptions {
    /// The cluster; zero = not known yet (accept any).
    pub cluster: Uuid,
    /// The target.
    pub target: TargetId,
    /// Says where it can be reached.
    pub resolve: Rc<dyn Resolve>,
    /// The first client instance: new at each start of a process, and see [`ClientSession::become_client`].
    pub client: ClientId,
    /// A description of the client, for status and logs (`mount host:/path`, `MDT0000`).
    pub description: String,
    /// Bound of the bytes pinned for replay; usually shared by all sessions of the client.
    pub pins: PinBudget,
}

/// Where capabilities come from.
pub trait Capabilities {
    /// One for the object, with at least this right ([`forebay_proto::message::rights`]). `refused`: the target does not
    /// take this one (any more).
    fn get(&self, object: Fid, right: u8, refused: Option<Capability>) -> Boxed<'_, Result<Capability, RpcError>>;
}

/// A slot reserved for a call. When dropped, other calls may use it.
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
    /// The file or directory that it changes, to be named in [`Lost`] if the change is lost.
    pub fid: Option<Fid>,
    /// The directory in which it changes an entry as well.
    pub directory: Option<Fid>,
    /// The caller does not wait for it: it may wait a little for another request to go with.
    pub patient: bool,
    /// The call depends on the current session. Once the session has had more evictions than this
    /// ([`SessionStats::evictions`]) the call fails with `Evicted`, instead of going on in the next session.
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
    /// Its transno; 0 if it changed nothing. Pass it to [`ClientSession::committed`].
    pub transno: Transno,
    /// Bulk of the reply, in memory that a device can write from.
    pub bulk: Bytes,
    /// What came with the reply to an Open or Create.
    pub capability: Capability,
}

/// Changes that were lost by an eviction, or by a replay that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why, in the target's words.
    pub reason: String,
    /// Files and directories with acknowledged changes that are lost (as given in [`Call::fid`] and
    /// [`Call::directory`]), ordered, each once.
    pub fids: Vec<Fid>,
    /// Lost requests, also those without a fid.
    pub requests: u64,
    /// The session is over, and with it all state that the target had for it.
    pub ended: bool,
}

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Not connected; retrying.
    Connecting,
    /// Connected to a restarted target: replaying, reclaiming.
    Recovering,
    /// Calls are served.
    Up,
    /// The target stopped (failed flush, lost commits); retries with long pauses.
    Stopped,
    /// Refused for good; calls fail.
    Refused,
    /// Closed by the client; calls fail.
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
    /// Evictions by the target.
    pub evictions: u64,
    /// Replied, uncommitted requests pinned now.
    pub replay_entries: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// The streams, by address.
    pub rails: Vec<RailStats>,
}

/// One client's session with one target. Clones share it. It ends with [`ClientSession::close`], or when the last clone
/// is dropped (then without a goodbye).
#[derive(Clone)]
pub struct ClientSession {
    handle: Rc<Handle>,
}

/// Ends the background tasks when the last clone is dropped.
struct Handle {
    inner: Rc<Inner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.shut(SessionState::Closed, &RpcError::Closed);
    }
}

impl ClientSession {
    /// Starts a session, which connects, reconnects, replays, reclaims and resends in the background.
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

    /// Sends a request and waits for its reply, however often the connection or the target fails meanwhile.
    ///
    /// Dropping the future gives up waiting. A request that was sent is still executed once, pinned and replayed.
    pub async fn call<O: Operation>(&self, request: &O, call: Call) -> Result<Called<O::Reply>, RpcError> {
        call::call(self.inner(), request, call, None).await
    }

    /// Reserves a slot for a change that is certain to come, and space to pin its `bytes` of body for replay. `None`:
    /// there is none to spare.
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let slot = self.inner().slots.reserve()?;
        let pin = self.inner().pins.try_acquire(bytes as u64 + crate::limits::PIN_OVERHEAD_BYTES)?;
        Some(Reservation(slot, pin))
    }

    /// There is a slot to spare. A reservation also needs space to pin.
    pub fn has_slot_to_spare(&self) -> bool {
        self.inner().slots.has_to_spare()
    }

    /// Waits until there is a slot to spare. False: there will never be one.
    pub async fn reservable(&self) -> bool {
        self.inner().slots.reservable().await
    }

    /// Reserves as soon as possible. Errors: as [`ClientSession::call`].
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

    /// Sends the requests that wait for another one to go with ([`Call::patient`]).
    pub fn hurry(&self) {
        if let Some(link) = &self.inner().state.borrow().link {
            link.send_waiting();
        }
    }

    /// Sends a request outside of the slots, so that it does not wait behind calls that may depend on its reply. It is
    /// never resent: fails with `Unreachable` while there is no connection, and when the connection breaks.
    pub async fn ask<O: Operation>(&self, request: &O) -> Result<O::Reply, RpcError> {
        self.inner().ask(request).await
    }

    /// Waits until the change of this session that was replied to with `transno` is committed; asks for a commit.
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

    /// Whether the target understands the feature bit `bit`, according to its last Connect reply.
    pub fn has_feature(&self, bit: u64) -> bool {
        self.inner().state.borrow().features & bit != 0
    }

    /// The target's incarnation at the last connect.
    pub fn incarnation(&self) -> Incarnation {
        self.inner().state.borrow().incarnation
    }

    /// The target of the session.
    pub fn target(&self) -> TargetId {
        self.inner().options.target
    }

    /// Bytes pinned for replay.
    pub fn pinned_bytes(&self) -> u64 {
        self.inner().state.borrow().replay.pinned_bytes()
    }

    /// The phase of the session.
    pub fn state(&self) -> SessionState {
        self.inner().state.borrow().phase
    }

    /// How long the network takes to the target and back, without queues; zero within the machine.
    pub fn round_trip(&self) -> Duration {
        self.inner().round_trip.get()
    }

    /// Counters.
    pub fn stats(&self) -> SessionStats {
        let inner = self.inner();
        let state = inner.state.borrow();
        SessionStats {
            replay_entries: state.replay.len() as u64,
            in_flight: inner.slots.in_use() as u64,
            rails: inner.by_address.stats(),
            ..state.stats.clone()
        }
    }

    /// MDT: sets the hook that returns what to reclaim after a restart of the target. Called during recovery, after the
    /// replays.
    pub fn set_reclaim(&self, held: impl Fn() -> Reclaim + 'static) {
        *self.inner().reclaim.borrow_mut() = Some(Rc::new(held));
    }

    /// Called before each Connect: returns how much of the space granted by the target the client relies on. The client
    /// must use no more than that until it is granted anew.
    pub fn set_granted(&self, bytes: impl Fn() -> u64 + 'static) {
        *self.inner().granted.borrow_mut() = Some(Rc::new(bytes));
    }

    /// OST: sets where the capabilities come from that the target asks for. Without, requests have none.
    pub fn set_capabilities(&self, from: Rc<dyn Capabilities>) {
        *self.inner().capabilities.borrow_mut() = Some(from);
    }

    /// Called when the target turns out to have restarted, before it receives anything from this session.
    pub fn set_restarted(&self, hook: impl Fn() + 'static) {
        *self.inner().restarted.borrow_mut() = Some(Rc::new(hook));
    }

    /// Called once at each eviction, before the affected calls fail. The hook fails the next call on these files with
    /// EIO and, if the session has ended, forgets all handles that the target knew. Also called for each replay that
    /// failed.
    pub fn set_lost(&self, hook: impl Fn(Lost) + 'static) {
        *self.inner().lost.borrow_mut() = Some(Rc::new(hook));
    }

    /// Makes the next session that of the client instance `client`; what the last session held stays with the last
    /// instance. Called by the hook of [`ClientSession::set_lost`] when the session has ended: requests that were not
    /// sent yet go on in the new session.
    pub fn become_client(&self, client: ClientId) {
        self.inner().become_client(client);
    }

    /// Waits, without a time limit, until nothing is in flight and every replied change is committed or was reported as
    /// lost. Then ends the session. Later calls fail with `Evicted` and `why`.
    pub async fn retire(&self, why: &str) {
        let inner = self.inner();
        inner.drained().await;
        while !inner.never_connected() {
            let _ = inner.env.timeout(limits::CLOSE_TIMEOUT, inner.say_goodbye()).await;
            // A call that waited for its turn may have been sent meanwhile.
            if inner.is_drained() {
                break;
            }
            inner.drained().await;
        }
        inner.shut(SessionState::Closed, &RpcError::Evicted(why.to_owned()));
    }

    /// Waits until everything replied is committed, then ends the session at the target. Later calls fail with
    /// `Closed`. If that takes longer than `limits::CLOSE_TIMEOUT`, for example because the target is down, closes
    /// without ending the session there.
    pub async fn close(&self) {
        let inner = self.inner();
        let _ = inner.env.timeout(limits::CLOSE_TIMEOUT, inner.say_goodbye()).await;
        inner.shut(SessionState::Closed, &RpcError::Closed);
    }
}
