//! State that the tasks of a session share.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::{Rc, Weak},
};

use bytes::Bytes;
use forebay_env::{
    Bug, Env, Time, planted,
    sync::{Notify, oneshot},
};
use forebay_proto::{
    ClientId, Fid, Incarnation, SessionId, Transno, Uuid,
    message::{Capability, Disconnect, FrameHeader, FrameKind, Operation, Ping, Reclaim},
};

use super::{
    Capabilities, Lost, SessionOptions, SessionState, SessionStats,
    by_address::ByAddress,
    replay::{Entry, ReplayList},
    round_trip::RoundTrip,
    slots::Slots,
};
use crate::{
    RpcError,
    frame::{Frame, Outbox},
    latch::Latch,
    limits,
    pins::{Holder, PinShare},
};

pub(super) type LostHook = Rc<dyn Fn(Lost)>;
pub(super) type RestartedHook = Rc<dyn Fn()>;
pub(super) type ReclaimHook = Rc<dyn Fn() -> Reclaim>;
pub(super) type GrantedHook = Rc<dyn Fn() -> u64>;

/// State that the tasks of a session share. No borrow of `state` is held over an await, a hook or a send of an outcome.
pub(super) struct Inner {
    pub env: Env,
    pub options: SessionOptions,
    /// The session's share of the pin budget.
    pub pins: PinShare,
    pub slots: Rc<Slots>,
    pub state: RefCell<State>,
    pub lost: RefCell<Option<LostHook>>,
    pub reclaim: RefCell<Option<ReclaimHook>>,
    pub granted: RefCell<Option<GrantedHook>>,
    pub capabilities: RefCell<Option<Rc<dyn Capabilities>>>,
    pub restarted: RefCell<Option<RestartedHook>>,
    pub by_address: ByAddress,
    pub round_trip: RoundTrip,
    /// Raised when the session is over for good.
    pub over: Latch,
    /// The phase changed, or a reply or a commit arrived: for tasks that wait for a condition of their own.
    pub changed: Notify,
    /// A request is in flight: the ping task checks its timers.
    pub attention: Notify,
    this: Weak<Self>,
}

/// The mutable state of a session.
pub(super) struct State {
    pub phase: SessionState,
    /// The client instance that the target knows us as.
    pub client: ClientId,
    pub session: SessionId,
    pub incarnation: Incarnation,
    /// The target's own uuid, once known: a different one means that it was formatted anew.
    pub target_uuid: Option<Uuid>,
    /// Features that both sides understand.
    pub features: u64,
    pub last_committed: Transno,
    pub replay: ReplayList,
    pub recovery: Recovery,
    /// The connection, while there is one that the target accepted.
    pub link: Option<Rc<Outbox>>,
    pub control_sequence: u64,
    /// Control requests in flight.
    pub controls: BTreeMap<u64, Control>,
    /// Callers that wait for the commit of a transno.
    pub commit_waiters: BTreeMap<Transno, Vec<oneshot::Sender<Result<(), RpcError>>>>,
    /// Ranges of transnos that evictions lost, oldest first.
    pub losses: Vec<(Transno, Transno, String)>,
    /// Why the session ended for good.
    pub end: Option<RpcError>,
    pub stats: SessionStats,
    pub sent_at: Time,
    pub received_at: Time,
    pub ping_sent_at: Option<Time>,
    pub commit_ping: bool,
    /// Message of the last failure to connect: each is logged once.
    pub complaint: String,
}

/// Progress of a session's recovery (`recover`).
#[derive(Default)]
pub(super) struct Recovery {
    /// Highest transno sent as a replay over this connection.
    pub sent_up_to: Transno,
    /// (transno, bytes) of replays in flight.
    pub in_flight: VecDeque<(Transno, u64)>,
    pub done_sent: bool,
    pub reclaims: VecDeque<Reclaim>,
    pub reclaiming: bool,
}

/// A request outside of the slots.
pub(super) enum Control {
    /// A request of the session's owner, which waits for the reply's body.
    Call(oneshot::Sender<Result<Bytes, RpcError>>),
    Ping {
        commit: bool,
    },
    ReplayDone,
    Reclaim,
    ReclaimDone,
    Disconnect,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Call(_) => "a question",
            Self::Ping { .. } => "a ping",
            Self::ReplayDone => "the end of the replays",
            Self::Reclaim => "a reclaim",
            Self::ReclaimDone => "the end of the reclaims",
            Self::Disconnect => "a goodbye",
        })
    }
}

impl Inner {
    pub fn new(env: &Env, options: SessionOptions) -> Rc<Self> {
        let state = State {
            phase: SessionState::Connecting,
            client: options.client,
            session: SessionId(0),
            incarnation: Incarnation(0),
            target_uuid: None,
            features: 0,
            last_committed: Transno(0),
            replay: ReplayList::default(),
            recovery: Recovery::default(),
            link: None,
            control_sequence: 0,
            controls: BTreeMap::new(),
            commit_waiters: BTreeMap::new(),
            losses: Vec::new(),
            end: None,
            stats: SessionStats::default(),
            sent_at: env.now(),
            received_at: env.now(),
            ping_sent_at: None,
            commit_ping: false,
            complaint: String::new(),
        };
        Rc::new_cyclic(|this| Self {
            env: env.clone(),
            pins: options.pins.share(),
            options,
            slots: Rc::default(),
            state: RefCell::new(state),
            lost: RefCell::default(),
            reclaim: RefCell::default(),
            granted: RefCell::default(),
            capabilities: RefCell::default(),
            restarted: RefCell::default(),
            by_address: ByAddress::default(),
            round_trip: RoundTrip::default(),
            over: Latch::default(),
            changed: Notify::new(),
            attention: Notify::new(),
            this: this.clone(),
        })
    }

    /// Registers the session as the holder that the pin budget asks for commits.
    pub fn register(self: &Rc<Self>) {
        let weak: Weak<Self> = Rc::downgrade(self);
        self.pins.set_holder(weak);
    }

    pub fn log(&self, line: &str) {
        self.env.log(&format!("{}: {line}", self.options.target));
    }

    pub fn phase(&self) -> SessionState {
        self.state.borrow().phase
    }

    /// Moves to `phase`, unless the session is over.
    pub fn set_phase(&self, phase: SessionState) {
        let mut state = self.state.borrow_mut();
        if state.end.is_none() {
            state.phase = phase;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub async fn ready(&self) -> Result<(), RpcError> {
        loop {
            {
                let state = self.state.borrow();
                if let Some(error) = &state.end {
                    return Err(error.clone());
                }
                if state.phase == SessionState::Up {
                    return Ok(());
                }
            }
            self.changed.notified().await;
        }
    }

    /// Ends the session for good: all waiting calls fail with `error`.
    pub fn shut(&self, phase: SessionState, error: &RpcError) {
        let waiters = {
            let mut state = self.state.borrow_mut();
            if state.end.is_some() {
                return;
            }
            (state.phase, state.end) = (phase, Some(error.clone()));
            if let Some(link) = state.link.take() {
                link.close();
            }
            drop(state.replay.take_all());
            state.controls.clear();
            std::mem::take(&mut state.commit_waiters)
        };
        self.over.raise();
        for waiter in waiters.into_values().flatten() {
            let _ = waiter.send(Err(error.clone()));
        }
        self.slots.refuse(error);
        self.changed.notify_waiters();
        self.attention.notify_one();
    }

    /// Sends a request outside of the slots, if there is a connection.
    pub fn send_control<O: Operation>(&self, request: &O, control: Control) {
        self.send_control_with(request, control, Capability::NONE);
    }

    /// The same, with a capability.
    pub fn send_control_with<O: Operation>(&self, request: &O, control: Control, capability: Capability) {
        let mut state = self.state.borrow_mut();
        state.control_sequence += 1;
        let mut header = FrameHeader::new(FrameKind::Request, O::OP as u16);
        (header.slot, header.sequence) = (limits::CONTROL_SLOT, state.control_sequence);
        header.capability = capability;
        if state.send(&self.env, header, request.to_bytes().into(), Vec::new()) {
            let sequence = state.control_sequence;
            state.controls.insert(sequence, control);
        }
    }

    /// Asks for a commit if something is uncommitted and no such request is in flight.
    pub fn commit_soon(&self) {
        {
            let mut state = self.state.borrow_mut();
            let needed = !state.replay.is_empty() || !state.commit_waiters.is_empty();
            if state.phase != SessionState::Up || state.commit_ping || !needed {
                return;
            }
            state.commit_ping = true;
            state.stats.pings += 1;
        }
        self.send_control(&Ping { commit: true }, Control::Ping { commit: true });
    }

    pub async fn committed(&self, transno: Transno) -> Result<(), RpcError> {
        let committed = {
            let mut state = self.state.borrow_mut();
            if !state.replay.contains(transno) {
                return state.verdict(transno);
            }
            let (commit, committed) = oneshot::channel();
            state.commit_waiters.entry(transno).or_default().push(commit);
            committed
        };
        self.commit_soon();
        committed.await.unwrap_or(Err(RpcError::Closed))
    }

    /// The target's `last_committed` has advanced: releases the entries that it covers.
    pub fn note_committed(&self, last_committed: Transno) {
        let released = {
            let mut state = self.state.borrow_mut();
            state.last_committed = state.last_committed.max(last_committed);
            let (last, incarnation) = (state.last_committed, state.incarnation);
            state.replay.take_committed(last, incarnation)
        };
        self.release(released, &Ok(()));
    }

    /// Wakes the callers that wait for these entries, and drops them.
    pub fn release(&self, entries: Vec<(Transno, Entry)>, outcome: &Result<(), RpcError>) {
        for (transno, entry) in entries {
            drop(entry);
            let waiters = self.state.borrow_mut().commit_waiters.remove(&transno);
            for waiter in waiters.into_iter().flatten() {
                let _ = waiter.send(outcome.clone());
            }
        }
        self.changed.notify_waiters();
    }

    /// Calls the hook of [`super::ClientSession::set_lost`].
    pub fn report_lost(&self, reason: &str, mut fids: Vec<Fid>, requests: u64, ended: bool) {
        fids.sort_unstable();
        fids.dedup();
        let hook = self.lost.borrow().clone();
        if let Some(hook) = hook.filter(|_| !planted(Bug::LossNotReported)) {
            hook(Lost { reason: reason.to_owned(), fids, requests, ended });
        }
    }

    /// Continues as `client`: the next Connect begins a new session. The current one is left at the target.
    pub fn become_client(&self, client: ClientId) {
        let mut state = self.state.borrow_mut();
        if state.client != client {
            (state.client, state.session) = (client, SessionId(0));
        }
    }

    /// Nothing is in flight, and every replied change is committed, or lost and reported.
    pub fn is_drained(&self) -> bool {
        let state = self.state.borrow();
        state.end.is_some() || state.replay.is_empty() && self.slots.in_use() == 0
    }

    /// Waits until nothing is in flight and nothing is uncommitted.
    pub async fn drained(&self) {
        while !self.is_drained() {
            self.commit_soon();
            // A call that is given up before it was sent wakes no waiter.
            let _ = self.env.timeout(limits::DRAIN_PAUSE, self.changed.notified()).await;
        }
    }

    /// Waits until everything is replied and committed, then ends the session at the target.
    pub async fn say_goodbye(&self) {
        loop {
            let (up, idle) = {
                let state = self.state.borrow();
                if state.end.is_some() {
                    return;
                }
                (state.phase == SessionState::Up, state.replay.is_empty() && self.slots.in_use() == 0)
            };
            if up && idle {
                break;
            }
            // The target never accepted a session and does not answer: there is nothing to end.
            if idle && self.never_connected() && !self.state.borrow().complaint.is_empty() {
                return;
            }
            self.commit_soon();
            self.changed.notified().await;
        }
        self.send_control(&Disconnect {}, Control::Disconnect);
        while self.state.borrow().controls.values().any(|c| matches!(c, Control::Disconnect)) {
            self.changed.notified().await;
        }
    }

    /// A strong handle to itself, for tasks that it starts.
    pub fn strong(&self) -> Rc<Self> {
        self.this.upgrade().expect("it is being used")
    }
}

impl Holder for Inner {
    fn relieve(&self) {
        self.commit_soon();
    }
}

impl State {
    /// Sends a frame, if there is a connection; fills in session and incarnation.
    pub fn send(&mut self, env: &Env, mut header: FrameHeader, body: Bytes, bulk: Vec<Bytes>) -> bool {
        let Some(link) = &self.link else { return false };
        (header.session, header.incarnation) = (self.session, self.incarnation);
        link.send(Frame::new(header, body, bulk));
        self.sent_at = env.now();
        true
    }

    /// The same, but the frame goes with the next one, or after [`limits::TIMEOUT`].
    pub fn send_with_next(&mut self, env: &Env, mut header: FrameHeader, body: Bytes, bulk: Vec<Bytes>) {
        let Some(link) = &self.link else { return };
        (header.session, header.incarnation) = (self.session, self.incarnation);
        if link.send_with_next(Frame::new(header, body, bulk)) {
            let (own, link) = (env.clone(), link.clone());
            drop(env.spawn(async move {
                own.sleep(limits::TIMEOUT).await;
                link.send_waiting();
            }));
        }
    }

    /// The outcome of a transno that is not in the replay list.
    fn verdict(&self, transno: Transno) -> Result<(), RpcError> {
        match self.losses.iter().find(|(first, last, _)| (*first..=*last).contains(&transno)) {
            Some((_, _, reason)) => Err(RpcError::Evicted(reason.clone())),
            None => Ok(()),
        }
    }
}
