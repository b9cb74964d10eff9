//! The handle of a served target.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use forebay_env::{Boxed, Env, Listener, sync::Notify};
use forebay_proto::{Errno, ErrorReply, Fid, Incarnation, SessionId, TargetId, Transno};
use forebay_rpc::{Latch, server};
use forebay_store::{CommitPoint, Store};

use crate::{
    Service, SessionInfo, TargetOptions, Ticket, Update,
    attempt::store_error,
    background,
    core::Core,
    dispatch::Door,
    held::Held,
    limits,
    order::Order,
    rows::{self, Row},
    service::Erased,
    session::Session,
    update::TransnoOrigin,
};

/// A served target. Clones share it.
#[derive(Clone)]
pub struct Target {
    core: Rc<Core>,
}

/// State of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// Waiting for the clients that were known before the restart.
    Recovering,
    /// Serving.
    Serving,
    /// The store failed or lost commits: nothing is acknowledged any more.
    Stopped,
}

impl TargetState {
    /// As `status` shows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recovering => "recovering",
            Self::Serving => "serving",
            Self::Stopped => "stopped",
        }
    }
}

impl Target {
    /// Loads the sessions, calls [`Service::started`], and begins recovery (or serves at once when there is no
    /// session).
    pub async fn start<S: Service>(
        env: &Env,
        store: Store,
        options: TargetOptions,
        service: Rc<S>,
    ) -> Result<Self, ErrorReply> {
        let recovered = store.recovery().last_transno.max(store.last_committed());
        let core = Rc::new_cyclic(|this| Core {
            env: env.clone(),
            order: Order::new(store.incarnation(), recovered),
            store,
            gate: server::BulkGate::new(options.bulk_bytes),
            networks: RefCell::default(),
            options,
            service: RefCell::new(Rc::new(Erased(service))),
            held: Held::default(),
            dirty: RefCell::default(),
            awaiting_commit: RefCell::default(),
            sessions: RefCell::default(),
            by_client: RefCell::default(),
            sessions_begun: Cell::new(0),
            fenced: RefCell::default(),
            ended: RefCell::default(),
            recovery: RefCell::default(),
            replaying: Cell::new(None),
            state: Cell::new(TargetState::Recovering),
            stop_reason: RefCell::default(),
            commits: Notify::new(),
            applied: Notify::new(),
            last_point: Cell::new(None),
            refusals: Rc::default(),
            closed: Rc::new(Latch::default()),
            counters: Cell::default(),
            asked: RefCell::default(),
            this: this.clone(),
        });
        load(&core).await?;
        let target = Self::from_core(core.clone());
        core.service().started(target.clone()).await?;
        background::start(&core);
        core.begin_recovery();
        Ok(target)
    }

    pub(crate) fn from_core(core: Rc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// Serves connections from `listener` until the target is closed. May be called for several listeners.
    pub fn serve(&self, listener: Listener) -> Boxed<'_, ()> {
        Box::pin(async move {
            let core = &self.core;
            let traffic = core.listens_at(listener.address());
            let door = Rc::new(Door(core.clone()));
            server::serve(&core.env, listener, door, core.gate.clone(), traffic, core.closed.clone()).await;
        })
    }

    /// Stops the target if a file of its store was deleted: it acknowledges nothing that would be lost with this
    /// process.
    pub fn check_devices(&self) {
        if let Err(error) = self.core.store.check_devices() {
            self.core.stop(&error.message);
        }
    }

    /// Logs that a request was refused; not more lines than a person can read.
    pub fn log_refusal(&self, line: &str) {
        self.core.log_refusal(line);
    }

    /// Which target.
    pub fn id(&self) -> TargetId {
        self.core.store.identity().target
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.core.store
    }

    /// The environment it runs in.
    pub fn env(&self) -> &Env {
        &self.core.env
    }

    /// The store's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.core.incarnation()
    }

    /// Its state.
    pub fn state(&self) -> TargetState {
        self.core.state.get()
    }

    /// All sessions, ordered.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let info = |s: &Rc<Session>| SessionInfo {
            session: s.id,
            client: s.client,
            description: s.description.clone(),
            connected: s.is_connected(),
        };
        self.core.sessions.borrow().values().map(info).collect()
    }

    /// True while the session exists (its client is alive, or was a moment ago).
    pub fn has_session(&self, session: SessionId) -> bool {
        self.core.sessions.borrow().contains_key(&session)
    }

    /// Whether the client of `session` has the reply to the change `transno`, its request of `sequence` in `slot`, or
    /// will not request it again.
    pub fn has_reply_received(&self, session: SessionId, slot: u16, sequence: u64, transno: Transno) -> bool {
        let sessions = self.core.sessions.borrow();
        sessions.get(&session).is_none_or(|session| session.has_reply_received(slot, sequence, transno))
    }

    /// True if the request of `sequence` in `slot` was executed, or will not be resent.
    pub fn has_done(&self, session: SessionId, slot: u16, sequence: u64) -> bool {
        let sessions = self.core.sessions.borrow();
        sessions.get(&session).is_none_or(|session| session.has_done(slot, sequence))
    }

    /// As [`Target::has_reply_received`], or the reply is on its way, as far as the target knows. Nobody replays the changes of
    /// an ended session: for those, true once the change is committed or given up.
    pub fn has_replied(&self, session: SessionId, slot: u16, sequence: u64, transno: Transno) -> bool {
        match self.core.sessions.borrow().get(&session) {
            Some(session) => session.has_replied(slot, sequence, transno),
            None => self.is_settled(transno),
        }
    }

    /// True if `transno` is committed, or was given up.
    fn is_settled(&self, transno: Transno) -> bool {
        let order = &self.core.order;
        order.has_passed(transno) && transno.min(order.last_applied()) <= self.core.store.last_committed()
    }

    /// The last change that was applied.
    pub fn last_applied(&self) -> Transno {
        self.core.order.last_applied()
    }

    /// Waits until the apply queue has no transno up to `transno` any more.
    pub async fn passed(&self, transno: Transno) {
        self.core.order.passed(transno).await;
    }

    /// Requests a commit, and waits for it briefly.
    pub async fn wait_any_commit(&self) -> Result<(), ErrorReply> {
        self.core.check_running()?;
        self.core.wait_any_commit().await;
        Ok(())
    }

    /// Begins a change of the service itself (reaping, log rows), outside of any request. Only after recovery. On a
    /// target whose requests take tickets, take one too: [`Target::admit`].
    pub fn begin(&self) -> Result<Update<'_>, ErrorReply> {
        let core = &self.core;
        if let Some(transno) = core.replaying.get() {
            return Update::begin(core, None, transno, TransnoOrigin::Replay);
        }
        assert!(core.state.get() != TargetState::Recovering, "changes of the service's own come after recovery");
        assert!(core.order.line_is_empty(), "a target that uses tickets applies with tickets only");
        Update::begin(core, None, core.order.peek(), TransnoOrigin::Next)
    }

    /// Takes a place in the apply queue for a change of the service itself. During the replay of a request, the change
    /// is part of that replay: it has the replay's transno and turn.
    pub fn admit(&self) -> Ticket {
        Ticket::own(self.core.clone())
    }

    /// Waits until acknowledged changes of `fid`, or of all files, are applied. Call it before showing any of their
    /// state.
    pub async fn wait_applied(&self, fid: Option<Fid>) {
        self.core.wait_applied(fid).await;
    }

    /// Requests a commit, and waits until `point` is durable.
    pub async fn commit(&self, point: CommitPoint) -> Result<(), ErrorReply> {
        self.core.commit(point).await
    }

    /// Requests a commit, and waits until everything up to `transno` is durable.
    pub async fn wait_committed(&self, transno: Transno) -> Result<(), ErrorReply> {
        self.core.wait_committed(transno).await
    }

    /// Evicts a session, and removes its rows. The service is notified through [`Service::session_ended`].
    pub async fn evict(&self, session: SessionId, reason: &str) {
        if let Some(session) = self.core.session(session) {
            self.core.evict(&session, reason).await;
        }
    }

    /// Waits until an ended session cannot come back after any crash: its row is removed, durably. Checks every
    /// `interval`.
    pub async fn wait_forgotten(&self, session: SessionId, interval: Duration) -> Result<(), ErrorReply> {
        let key = rows::session_key(session);
        while self.core.store.load(key.as_ref()).await.map_err(store_error)?.is_some() {
            self.core.check_running()?;
            self.core.env.sleep(interval).await;
        }
        self.core.store.sync().await.map_err(store_error)
    }

    /// Current phase of recovery, as `status` shows it.
    pub fn recovery_phase(&self) -> &'static str {
        self.core.recovery.borrow().describe().0
    }

    /// Number of requests, over all sessions, that are in execution or whose reply has not left.
    pub fn under_way(&self) -> usize {
        self.core.sessions.borrow().values().map(|session| session.under_way()).sum()
    }

    /// True if a change was acknowledged that is not applied.
    pub fn has_held(&self) -> bool {
        self.core.held.last(None).is_some()
    }

    /// True if a change was applied that is not durable.
    pub fn has_uncommitted(&self) -> bool {
        self.core.order.last_applied() > self.core.store.last_committed()
    }

    /// The JSON object `forebay status` shows.
    pub fn status_json(&self) -> String {
        self.core.status_json()
    }

    /// Stops serving: closes all connections, ends the background tasks. The caller closes the store.
    pub fn close(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            // Applies what was acknowledged, so that it needs no replay after a clean stop.
            let _ = self.core.env.timeout(limits::HELD_WAIT, self.core.wait_applied(None)).await;
            self.core.closed.raise();
            for session in self.core.all_sessions() {
                if let Some(connection) = session.disconnect() {
                    connection.close();
                }
            }
            // Lets the tasks that hold the store see the latch.
            self.core.env.yield_now().await;
        })
    }
}

/// Loads sessions, replies and fences. Sessions of an older generation (before `fsck --repair`) are void.
async fn load(core: &Rc<Core>) -> Result<(), ErrorReply> {
    let (mut from, to) = (rows::RANGE.0.to_vec(), rows::RANGE.1);
    let mut void = Vec::new();
    loop {
        let page = core.store.scan(&from, &to, limits::LOAD_ROWS).await.map_err(store_error)?;
        for (key, value) in &page {
            let row = Row::read(key, value).map_err(|e| {
                ErrorReply::new(Errno::EIO, format!("a row of the target's own is damaged: {e}; run forebay fsck"))
            })?;
            void.extend(load_row(core, row));
        }
        match page.last() {
            Some((key, _)) if page.len() == limits::LOAD_ROWS => {
                from = key.to_vec();
                from.push(0);
            }
            _ => break,
        }
    }
    for session in void {
        core.log(&format!("session {} ({}) is void: the target was repaired", session.id, session.description));
        core.forget(&session, "the target was repaired; what was not committed is lost");
        core.remove_rows(&session).await;
    }
    Ok(())
}

/// Returns the session of the row if it is void.
fn load_row(core: &Rc<Core>, row: Row) -> Option<Rc<Session>> {
    match row {
        Row::Session(id, row) => {
            let session = Session::new(id, row.client, row.description, row.created_ns, core.env.now());
            core.sessions.borrow_mut().insert(id, session.clone());
            core.by_client.borrow_mut().insert(row.client, id);
            return (row.generation != core.store.identity().generation).then_some(session);
        }
        Row::Reply(id, slot, row) => {
            if let Some(session) = core.session(id) {
                session.load(slot, row);
            }
        }
        Row::Fence(client, row) => {
            core.fenced.borrow_mut().insert(client, row.transno);
        }
    }
    None
}
