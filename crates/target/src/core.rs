//! What the parts of a target share: the store, sessions, the order of changes, what is uncommitted.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::{Rc, Weak},
};

use forebay_env::{Address, Bug, Env, planted, sync::Notify};
use forebay_proto::{
    ClientId, Encode, Errno, ErrorReply, Fid, Incarnation, SessionId, Transno, limits as proto_limits,
    message::{FrameHeader, FrameKind},
};
use forebay_rpc::{
    Frame, Latch, Traffic,
    limits::CONTROL_SLOT,
    server::{BulkGate, Connection, Refusals},
};
use forebay_store::{CommitPoint, Store, StoreError, StoreErrorKind, Txn};

use crate::{
    Abort, Asked, Attempt, Retry, Target, TargetOptions, TargetState,
    attempt::{overloaded, store_error},
    dirty::Dirty,
    held::Held,
    limits,
    order::Order,
    recovery::Recovery,
    service::AnyService,
    session::{Reply, Session},
};

/// Counters of a target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub requests: u64,
    /// Requests sent again by clients, after a lost connection or a restart.
    pub resends: u64,
    /// Resends of executed requests, answered from the cached reply.
    pub resends_answered: u64,
    pub evictions: u64,
    pub reruns: u64,
}

/// What the parts of a target share. No borrow of a `RefCell` in here is held over an await or a call of the service.
pub(crate) struct Core {
    pub env: Env,
    pub store: Store,
    pub options: TargetOptions,
    /// Replaced by `Nobody` when the target ends: the service holds its target, and the two would keep each other
    /// alive.
    pub service: RefCell<Rc<dyn AnyService>>,
    pub order: Order,
    pub held: Held,
    pub dirty: RefCell<Dirty>,
    /// Sessions with a reply that waits for a commit.
    pub awaiting_commit: RefCell<BTreeSet<SessionId>>,
    pub sessions: RefCell<BTreeMap<SessionId, Rc<Session>>>,
    pub by_client: RefCell<BTreeMap<ClientId, SessionId>>,
    /// Sessions begun in this incarnation.
    pub sessions_begun: Cell<u32>,
    pub fenced: RefCell<BTreeMap<ClientId, Transno>>,
    /// Why sessions ended, for their clients.
    pub ended: RefCell<VecDeque<(SessionId, String)>>,
    pub recovery: RefCell<Recovery>,
    /// The replay that runs right now, while its future is being polled.
    pub replaying: Cell<Option<Transno>>,
    pub state: Cell<TargetState>,
    pub stop_reason: RefCell<String>,
    /// `last_committed` moved, or the target stopped.
    pub commits: Notify,
    /// Something was applied that is not committed.
    pub applied: Notify,
    pub last_point: Cell<Option<CommitPoint>>,
    pub gate: Rc<BulkGate>,
    /// What goes over each address it listens at.
    pub networks: RefCell<Vec<(Address, Rc<Traffic>)>>,
    /// Of requests about the cluster's nodes.
    pub refusals: Rc<Refusals>,
    pub closed: Rc<Latch>,
    pub counters: Cell<Counters>,
    pub asked: RefCell<Asked>,
    pub this: Weak<Core>,
}

impl Core {
    /// A strong handle to itself.
    pub fn strong(&self) -> Rc<Core> {
        self.this.upgrade().expect("it is being used")
    }

    pub fn target(&self) -> Target {
        Target::from_core(self.strong())
    }

    pub fn service(&self) -> Rc<dyn AnyService> {
        self.service.borrow().clone()
    }

    pub fn incarnation(&self) -> Incarnation {
        self.store.incarnation()
    }

    pub fn log(&self, line: &str) {
        self.env.log(&format!("{}: {line}", self.store.identity().target));
    }

    /// As [`Core::log`], about what anybody may cause: a flood takes a line a second.
    pub fn log_refusal(&self, line: &str) {
        self.refusals.say(&self.env, format!("{}: {line}", self.store.identity().target));
    }

    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    // ---- changes

    /// Errors with STOPPED once the target has stopped.
    pub fn check_running(&self) -> Result<(), ErrorReply> {
        match self.state.get() {
            TargetState::Stopped => Err(ErrorReply::new(Errno::STOPPED, self.stop_reason.borrow().clone())),
            _ => Ok(()),
        }
    }

    /// Applies a transaction. A final error of the store stops the target.
    pub fn apply(&self, txn: Txn) -> Attempt<CommitPoint> {
        let point = txn.apply().map_err(|error| self.note_error(error))?;
        self.last_point.set(Some(point));
        self.applied.notify_one();
        Ok(point)
    }

    /// Changes the target's own rows, without a transno. It brings the rows to memory and tries again until the change
    /// is applied.
    pub async fn change_rows(&self, keys: &[Vec<u8>], change: impl Fn(&mut Txn)) -> Result<CommitPoint, ErrorReply> {
        for _ in 0..limits::RETRIES {
            match self.try_change_rows(keys, &change).await {
                Ok(point) => return Ok(point),
                Err(Abort::Retry(retry)) => self.wait_to_retry(retry).await,
                Err(Abort::Failed(error)) => return Err(error),
            }
        }
        Err(overloaded())
    }

    async fn try_change_rows(&self, keys: &[Vec<u8>], change: impl Fn(&mut Txn)) -> Attempt<CommitPoint> {
        self.check_running()?;
        self.store.prefetch(keys).await.map_err(|e| self.note_error(e))?;
        let mut txn = self.store.begin();
        change(&mut txn);
        self.apply(txn)
    }

    /// Waits until an aborted attempt may be repeated.
    pub async fn wait_to_retry(&self, retry: Retry) {
        match retry {
            Retry::NotResident => {}
            Retry::JournalFull => self.wait_any_commit().await,
        }
    }

    /// Waits until acknowledged changes of `fid`, or of all files, are applied.
    pub async fn wait_applied(&self, fid: Option<Fid>) {
        if let Some(last) = self.held.last(fid)
            && !planted(Bug::EarlyRepliesIgnored)
        {
            self.order.passed(last).await;
        }
    }

    /// Requests a commit, and waits until everything up to `transno` is committed.
    pub async fn wait_committed(&self, transno: Transno) -> Result<(), ErrorReply> {
        while self.store.last_committed() < transno {
            self.check_running()?;
            self.store.commit_soon();
            self.commits.notified().await;
        }
        Ok(())
    }

    /// Requests a commit, and waits until `point` is durable.
    pub async fn commit(&self, point: CommitPoint) -> Result<(), ErrorReply> {
        self.store.commit_soon();
        self.store.committed(point).await.map_err(|e| store_error(self.note_error(e)))
    }

    /// The journal is full of uncommitted changes: waits for one commit.
    pub async fn wait_any_commit(&self) {
        self.store.commit_soon();
        // The commit may be over already, hence the timeout; the caller checks again anyway.
        let _ = self.env.timeout(std::time::Duration::from_millis(10), self.commits.notified()).await;
    }

    // ---- stopping

    /// A final error of the store stops the target.
    pub fn note_error(&self, error: StoreError) -> StoreError {
        if error.kind == StoreErrorKind::Stopped {
            self.stop(&error.message);
        }
        error
    }

    /// Stops the target: nothing is acknowledged any more.
    pub fn stop(&self, reason: &str) {
        if self.state.replace(TargetState::Stopped) == TargetState::Stopped {
            return;
        }
        self.log(&format!("stopped: {reason}"));
        *self.stop_reason.borrow_mut() = reason.to_owned();
        self.commits.notify_waiters();
        let error = ErrorReply::new(Errno::STOPPED, reason);
        for session in self.all_sessions() {
            if let Some(connection) = session.disconnect() {
                self.say_and_close(&connection, &error);
            }
        }
    }

    /// Sends the error to the other side, and closes the connection.
    pub fn say_and_close(&self, connection: &Rc<Connection>, error: &ErrorReply) {
        let header = FrameHeader { slot: CONTROL_SLOT, ..FrameHeader::new(FrameKind::Error, 0) };
        self.send(connection, header, error.to_bytes().into(), Vec::new());
        connection.finish();
    }

    // ---- sessions and replies

    /// All sessions, ordered.
    pub fn all_sessions(&self) -> Vec<Rc<Session>> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// A session, if it exists.
    pub fn session(&self, id: SessionId) -> Option<Rc<Session>> {
        self.sessions.borrow().get(&id).cloned()
    }

    /// Sends a frame with what every reply has: session, incarnation, last_committed, credits.
    pub fn send(&self, connection: &Connection, mut header: FrameHeader, body: bytes::Bytes, bulk: Vec<bytes::Bytes>) {
        header.session = connection.session.get();
        header.incarnation = self.incarnation();
        header.last_committed = self.store.last_committed();
        header.credits = self.credits();
        connection.send(Frame::new(header, body, bulk));
    }

    /// Sends a reply on the session's current connection. If it has none, the client will resend the request.
    pub fn send_reply(&self, session: &Session, reply: Reply) {
        let connection = session.connection.borrow().clone();
        let Some(connection) = connection else { return };
        let mut header = FrameHeader::new(reply.kind, reply.op);
        (header.flags, header.slot, header.sequence) = (reply.flags, reply.slot, reply.sequence);
        (header.level, header.transno, header.time_ns) = (reply.level, reply.transno, reply.time_ns);
        header.capability = reply.capability;
        session.sent(reply.slot, reply.sequence);
        self.send(&connection, header, reply.body, reply.bulk);
    }

    /// Sends the replies of a session that may leave.
    pub fn flush(&self, session: &Session) {
        if self.state.get() == TargetState::Stopped {
            return;
        }
        for reply in session.leaving(self.store.last_committed()) {
            self.send_reply(session, reply);
        }
        if session.waits_for_commit() {
            self.awaiting_commit.borrow_mut().insert(session.id);
            self.store.commit_soon();
        }
    }

    /// Credits to grant: fewer for every session while bulk memory runs short.
    fn credits(&self) -> u16 {
        let (used, limit) = (self.gate.used_bytes(), self.gate.limit_bytes());
        let free = limit.saturating_sub(used);
        if used <= limit / 2 {
            return proto_limits::SLOTS;
        }
        let share = u64::from(proto_limits::SLOTS) * free / limit.max(1);
        (share as u16).max(limits::CREDITS_MIN)
    }
}
