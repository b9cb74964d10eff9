//! One request while a service executes it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{Bug, PeerIdentity, planted};
use forebay_proto::{
    ClientId, Encode, Errno, ErrorReply, Fid, SessionId, Transno,
    message::{Capability, CommitLevel, FrameHeader, FrameKind, frame_flags},
};
use forebay_rpc::limits::CONTROL_SLOT;
use forebay_store::{CommitPoint, Store, Txn};

use crate::{
    Abort, Attempt, Target, Ticket, Update,
    core::Core,
    dispatch::reply_to,
    limits,
    rows::{self, ReplyRow},
    session::{CachedReply, Reply, Session},
    update::TransnoOrigin,
};

/// A service's answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The encoded reply.
    pub body: Bytes,
    /// Bulk of the reply (reads only).
    pub bulk: Vec<Bytes>,
    /// The transno under which it changed the target; 0 if it did not.
    pub transno: Transno,
    /// What the client may do with the objects of the file that the reply opens. A reply that is sent again has none.
    pub capability: Capability,
}

impl Answer {
    /// An answer that changed nothing.
    pub fn read(reply: &impl Encode) -> Self {
        Self { body: reply.to_bytes().into(), ..Self::default() }
    }

    /// An answer with bulk.
    pub fn with_bulk(reply: &impl Encode, bulk: Vec<Bytes>) -> Self {
        Self { body: reply.to_bytes().into(), bulk, ..Self::default() }
    }
}

/// One request: its session and client, and the means to change the target on its behalf. Clones share it.
#[derive(Clone)]
pub struct Context {
    inner: Rc<Inner>,
}

struct Inner {
    target: Target,
    session: Rc<Session>,
    header: FrameHeader,
    /// Keys that the request changes; moved to `dirty` once the change is applied.
    touched: RefCell<Vec<Box<[u8]>>>,
    applied: Cell<Transno>,
    /// The request has, or had, a place in the apply queue.
    in_line: Cell<bool>,
    /// The file that the request changes, if it was acknowledged before it was applied.
    early: Cell<Option<Fid>>,
    /// The session's own last change that the reply shows: this reply leaves after the reply to that change.
    shows: Cell<Transno>,
    /// What [`Context::time_ns`] returned last.
    time_ns: Cell<i64>,
}

impl Context {
    pub(crate) fn new(target: Target, session: Rc<Session>, header: FrameHeader) -> Self {
        let (touched, applied, in_line, early, shows, time_ns) = Default::default();
        Self { inner: Rc::new(Inner { target, session, header, touched, applied, in_line, early, shows, time_ns }) }
    }

    /// The session that it belongs to.
    pub fn session(&self) -> SessionId {
        self.inner.session.id
    }

    /// The client that sent it.
    pub fn client(&self) -> ClientId {
        self.inner.session.client
    }

    /// Who sent it, as far as the connection shows. `None`: the client has not connected since the restart.
    pub fn peer(&self) -> Option<PeerIdentity> {
        self.inner.session.peer.borrow().clone()
    }

    /// The same, without a copy.
    pub fn with_peer<R>(&self, look: impl FnOnce(Option<&PeerIdentity>) -> R) -> R {
        look(self.inner.session.peer.borrow().as_ref())
    }

    /// The capability that came with it.
    pub fn capability(&self) -> Capability {
        self.inner.header.capability
    }

    /// Identity of the request, which a resend keeps: session, slot and sequence.
    pub fn request(&self) -> (SessionId, u16, u64) {
        (self.session(), self.inner.header.slot, self.inner.header.sequence)
    }

    /// True if the request is a replay: it succeeded before the restart, under [`Context::replay_transno`].
    pub fn is_replay(&self) -> bool {
        self.inner.header.flags & frame_flags::REPLAY != 0
    }

    /// The transno that a replay had before the restart, and keeps.
    pub fn replay_transno(&self) -> Option<Transno> {
        self.is_replay().then_some(self.inner.header.transno)
    }

    /// The Unix time of the change, for the times of the files it changes. A replay keeps the time of its first
    /// execution, as other clients may have been shown that. The reply carries the value returned last.
    pub fn time_ns(&self) -> i64 {
        let told = self.inner.header.time_ns;
        let ns = match self.is_replay() && told != 0 && !planted(Bug::ReplayTakesNewTime) {
            true => told,
            false => self.core().env.unix_time().0,
        };
        self.inner.time_ns.set(ns);
        ns
    }

    fn cached_reply(&self, transno: Transno, body: &Bytes) -> CachedReply {
        CachedReply { transno, time_ns: self.inner.time_ns.get(), op: self.header().op, body: body.clone() }
    }

    pub(crate) fn reply(&self, body: Bytes) -> Reply {
        Reply { time_ns: self.inner.time_ns.get(), ..reply_to(self.header(), FrameKind::Reply, body) }
    }

    /// The commit level: when the reply may leave. The target enforces it; a service need not.
    pub fn level(&self) -> CommitLevel {
        self.inner.header.level
    }

    /// The job on whose behalf the request is sent; 0 = unknown.
    pub fn job(&self) -> u64 {
        self.inner.header.job
    }

    /// The store.
    pub fn store(&self) -> &Store {
        self.inner.target.store()
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    fn core(&self) -> &Rc<Core> {
        self.inner.target.core()
    }

    pub(crate) fn header(&self) -> &FrameHeader {
        &self.inner.header
    }

    pub(crate) fn session_ref(&self) -> &Rc<Session> {
        &self.inner.session
    }

    /// Transno under which the request was applied; 0 if it was not.
    pub(crate) fn applied(&self) -> Transno {
        self.inner.applied.get()
    }

    /// Highest transno of the session's own changes that the reply shows.
    pub(crate) fn shows(&self) -> Transno {
        self.inner.shows.get()
    }

    /// Brings rows to memory, including the request's own reply row. The last await before [`Context::apply`] or
    /// [`Ticket::apply`].
    pub async fn prefetch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Attempt<()> {
        let reply = rows::reply_key(self.session(), self.inner.header.slot);
        let mut all: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        if self.keeps_reply() {
            all.push(&reply);
        }
        Ok(self.store().prefetch(&all).await?)
    }

    fn keeps_reply(&self) -> bool {
        let header = &self.inner.header;
        header.slot != CONTROL_SLOT && self.inner.session.may_keep(header.slot, header.sequence)
    }

    /// Changes the target: gives the request its transno (a replay keeps its own), runs `change`, adds the reply row,
    /// and applies it all in one transaction. If `change` fails, nothing is changed and no transno is used up. At most
    /// once per request.
    pub fn apply<R: Encode>(&self, change: impl FnOnce(&mut Txn, Transno) -> Attempt<R>) -> Attempt<Answer> {
        let mut update = self.begin()?;
        let transno = update.transno();
        let reply = change(update.txn(), transno)?;
        update.apply(&reply)
    }

    /// As [`Context::apply`], for a caller that fills and applies the transaction itself.
    pub fn begin(&self) -> Result<Update<'_>, ErrorReply> {
        if let Some(transno) = self.replay_transno() {
            return self.begin_as(transno, TransnoOrigin::Assigned);
        }
        let order = &self.core().order;
        assert!(order.line_is_empty(), "a target that uses tickets applies with tickets only");
        self.begin_as(order.peek(), TransnoOrigin::Next)
    }

    /// Begins the update under `transno`, with the reply row.
    pub(crate) fn begin_as(&self, transno: Transno, origin: TransnoOrigin) -> Result<Update<'_>, ErrorReply> {
        assert!(self.applied() == Transno(0), "a request is applied once");
        let update = Update::begin(self.core(), Some(self), transno, origin)?;
        self.check_session()?;
        Ok(update)
    }

    /// A request of an ended session changes nothing, however far its execution has come.
    fn check_session(&self) -> Result<(), ErrorReply> {
        if self.inner.session.ended.get() {
            return Err(ErrorReply::new(Errno::EVICTED, "the session was ended while the request was executed"));
        }
        Ok(())
    }

    /// Adds the reply row.
    pub(crate) fn keep_reply(&self, txn: &mut Txn, transno: Transno, body: &Bytes) -> Result<(), ErrorReply> {
        if body.len() > limits::REPLY_ROW_BYTES {
            let words = format!("a reply of {} bytes to a change; {} can be kept", body.len(), limits::REPLY_ROW_BYTES);
            return Err(ErrorReply::new(Errno::EFBIG, words));
        }
        if self.keeps_reply() {
            let header = &self.inner.header;
            let row = ReplyRow { sequence: header.sequence, transno, op: header.op, body: body.clone() };
            txn.put(rows::reply_key(self.session(), header.slot), rows::value(&row));
        }
        Ok(())
    }

    /// The update of the request was applied.
    pub(crate) fn note_applied(&self, transno: Transno, body: &Bytes, point: CommitPoint) {
        let (session, header) = (&self.inner.session, &self.inner.header);
        self.inner.applied.set(transno);
        if header.slot != CONTROL_SLOT {
            session.applied(header.slot, header.sequence, self.cached_reply(transno, body));
        }
        match self.inner.in_line.get() {
            _ if self.is_replay() => {}
            true => session.applied_in_turn(transno),
            false => session.expect_reply(transno),
        }
        let bytes = u64::from(header.body_bytes) + u64::from(header.bulk_bytes);
        session.pinned.note(self.store(), point, bytes);
        let touched = self.inner.touched.take();
        let mut dirty = self.core().dirty.borrow_mut();
        touched.into_iter().for_each(|key| dirty.touch(key, session.id, transno));
    }

    /// Lets later replies of the session leave before this one: the change is committed, and its reply waits for other
    /// servers.
    pub fn unblock_later_replies(&self) {
        let (core, transno) = (self.core(), self.applied());
        assert!(transno <= core.store.last_committed(), "what may be lost yet holds up what was built on it");
        self.inner.session.unblock_later(transno);
        core.flush(&self.inner.session);
    }

    /// The request has a place in the apply queue: replies to later changes of the session wait for its reply.
    pub(crate) fn admitted(&self, transno: Transno) {
        self.inner.in_line.set(true);
        self.inner.session.admitted(transno);
    }

    /// The request's ticket was dropped, whether its change was applied or not.
    pub(crate) fn left_line(&self, transno: Transno) {
        if let Some(fid) = self.inner.early.get() {
            self.core().held.gone(fid, transno);
        }
        if self.applied() == Transno(0) {
            self.inner.session.given_up(transno);
            self.core().flush(&self.inner.session);
        }
    }

    /// See [`Ticket::reply_early`].
    pub(crate) fn reply_early(&self, fid: Fid, transno: Transno, body: Bytes) {
        let (core, session, header) = (self.core(), &self.inner.session, self.header());
        self.inner.early.set(Some(fid));
        core.held.answered(fid, transno);
        // A resend is answered from the cached reply: the change is on its way to be applied.
        if header.slot != CONTROL_SLOT {
            session.applied(header.slot, header.sequence, self.cached_reply(transno, &body));
        }
        session.ready(transno, Reply { transno, ..self.reply(body) });
        core.flush(session);
    }

    /// True if the request was acknowledged before it was applied.
    pub(crate) fn is_answered(&self) -> bool {
        self.inner.early.get().is_some()
    }

    /// Ends the session, because a change that was acknowledged with this ticket cannot be applied. Its client still
    /// has the change, and reports the loss to the writer.
    ///
    /// The end of the session is in the journal before any later change is applied, and perhaps committed with it.
    /// Otherwise, after a crash, the client would take the lost change for committed.
    pub async fn fail_acknowledged(&self, ticket: Ticket, error: ErrorReply) -> ErrorReply {
        let (core, session) = (self.core(), &self.inner.session);
        if error.errno == Errno::STOPPED {
            return error;
        }
        let words = format!("a change that was answered could not be made: {}", error.message);
        let was_there = core.forget_evicted(session, &words);
        if core.remove_rows(session).await.is_none() {
            return ErrorReply::new(Errno::STOPPED, words);
        }
        drop(ticket);
        if was_there {
            let (core, session) = (core.clone(), session.clone());
            core.clone().env.spawn(async move { core.remove_session(&session, true).await });
        }
        error
    }

    /// True once the request's session has ended.
    pub fn has_ended(&self) -> bool {
        self.inner.session.ended.get()
    }

    /// Returns when an aborted attempt may be repeated. Errors: that of the attempt, if it is final.
    pub async fn wait_to_retry(&self, abort: Abort) -> Result<(), ErrorReply> {
        match abort {
            Abort::Retry(retry) => {
                self.core().wait_to_retry(retry).await;
                Ok(())
            }
            Abort::Failed(error) => Err(error),
        }
    }

    /// Takes a place in the apply queue: the transno is assigned now, and the change is applied later, in its turn.
    pub fn admit(&self) -> Ticket {
        Ticket::of_request(self.core().clone(), self.clone())
    }

    /// Waits until the changes of *other* sessions to these keys are committed (commit-on-share). The reply to this
    /// request leaves after the replies to this session's own changes of these keys. True if it had to wait: the caller
    /// then reads again what it read before.
    pub async fn settle<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<bool, ErrorReply> {
        let core = self.core();
        let mut waited = false;
        loop {
            let others = core.dirty.borrow().by_others(self.session(), keys);
            let may = self.is_replay() || planted(Bug::CommitOnShareSkipped);
            let Some(transno) = others.filter(|_| !may) else { break };
            core.wait_committed(transno).await?;
            waited = true;
        }
        self.note_shown(keys);
        Ok(waited)
    }

    fn note_shown<K: AsRef<[u8]>>(&self, keys: &[K]) {
        if let Some(own) = self.core().dirty.borrow().by_itself(self.session(), keys) {
            self.inner.shows.set(self.inner.shows.get().max(own));
        }
    }

    /// True if [`Context::settle`] of these keys would not wait; the reply is then ordered as `settle` requires.
    pub fn is_settled<K: AsRef<[u8]>>(&self, keys: &[K]) -> bool {
        let may = self.is_replay() || planted(Bug::CommitOnShareSkipped);
        let settled = may || self.core().dirty.borrow().by_others(self.session(), keys).is_none();
        if settled {
            self.note_shown(keys);
        }
        settled
    }

    /// Marks these keys as changed by this request: other sessions settle them first. Call it before `apply`, within
    /// its closure, or right after it.
    pub fn touch<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let keys = keys.iter().map(|k| Box::from(k.as_ref()));
        match self.applied() {
            Transno(0) => self.inner.touched.borrow_mut().extend(keys),
            transno => {
                let mut dirty = self.core().dirty.borrow_mut();
                keys.for_each(|key| dirty.touch(key, self.session(), transno));
            }
        }
    }

    /// Clears the keys of a failed run before the request is run again.
    pub(crate) fn forget_touched(&self) {
        self.inner.touched.borrow_mut().clear();
    }
}
