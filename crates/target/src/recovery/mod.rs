//! Recovery after a restart: known clients reconnect, replay in transno order over all sessions, and reclaim. Then the
//! target serves.
//!
//! Invariant: a replay runs only when no known session can send one with a smaller transno.
//! Invariant: a client that is missing when the window ends is evicted. The eviction precedes every later replay in the
//! journal, so a session that survives a second crash has missed none.
//! Not here: what clients do (crate `rpc`, session/recover.rs).

pub mod merge;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use forebay_env::{Bug, Time, planted};
use forebay_proto::{
    Encode, Errno, ErrorReply, SessionId, Transno,
    message::{Empty, FrameHeader, FrameKind, Op},
};
use forebay_rpc::server::Request;

use self::merge::{Head, Next};
use crate::{
    Context, TargetState,
    core::Core,
    dispatch::reply_to,
    limits,
    session::{Reply, Session},
};

/// State of the recovery.
#[derive(Default)]
pub struct Recovery {
    phase: Phase,
    members: BTreeMap<SessionId, Member>,
    /// Replays in execution; one that applies without a ticket runs alone.
    running: usize,
    /// Reclaims in execution.
    reclaiming: usize,
    alone: bool,
    progress: Time,
    /// Sessions evicted during recovery: the service is notified afterwards.
    evicted: Vec<Rc<Session>>,
    /// Replays executed.
    pub replayed: u64,
    /// Sessions that were known at the start.
    pub expected: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Replaying,
    Reclaiming,
    Over,
}

/// A session that was known before the restart.
#[derive(Default)]
struct Member {
    /// It has connected in this incarnation.
    joined: bool,
    replay_done: bool,
    reclaim_done: bool,
    queue: BTreeMap<Transno, (Op, Request)>,
    /// Replays in execution.
    running: BTreeSet<Transno>,
    /// Its progress: the highest replay that arrived, and the phase that it reported to be ready for. To report it
    /// again is no progress.
    highest: Transno,
    said: Phase,
    /// The control request that is answered when the phase ends.
    waiting: Option<FrameHeader>,
}

impl Member {
    /// True if the others wait for this session: it is absent, or has not sent what comes next. A session whose replays
    /// wait for another session's does not hold up recovery.
    fn holds_up(&self, phase: Phase) -> bool {
        match phase {
            Phase::Replaying => !self.replay_done && self.queue.is_empty() && self.running.is_empty(),
            Phase::Reclaiming => !self.reclaim_done,
            Phase::Over => false,
        }
    }
}

impl Recovery {
    /// (state for `status`, sessions still awaited)
    pub fn describe(&self) -> (&'static str, usize) {
        let state = match self.phase {
            Phase::Replaying => "replaying",
            Phase::Reclaiming => "reclaiming",
            Phase::Over => "complete",
        };
        (state, self.members.values().filter(|member| member.holds_up(self.phase)).count())
    }

    /// How much longer recovery waits, unless an awaited session makes progress.
    pub fn left(&self, now: Time, window: Duration) -> Duration {
        match self.phase {
            Phase::Over => Duration::ZERO,
            _ => window.saturating_sub(now.since(self.progress)),
        }
    }

    /// True if nothing is in execution: recovery waits for clients.
    fn is_idle(&self) -> bool {
        self.running == 0 && self.reclaiming == 0
    }

    fn next(&self) -> Next<SessionId> {
        merge::next(self.members.iter().map(|(id, member)| Head {
            id: *id,
            first: member.queue.first_key_value().map(|(transno, _)| *transno),
            done: member.replay_done,
        }))
    }

    fn take(&mut self, session: SessionId, transno: Transno) -> (Op, Request) {
        let member = self.members.get_mut(&session).expect("the merge chose it");
        member.running.insert(transno);
        member.queue.remove(&transno).expect("the merge chose it")
    }

    /// A replay was executed, or refused.
    fn ran(&mut self, session: SessionId, transno: Transno) {
        (self.running, self.alone) = (self.running - 1, false);
        if let Some(member) = self.members.get_mut(&session) {
            member.running.remove(&transno);
        }
    }

    /// The session is ready for `phase`. The first report counts as progress.
    fn said(&mut self, session: SessionId, phase: Phase, now: Time) {
        if let Some(member) = self.members.get_mut(&session)
            && member.said < phase
        {
            (member.said, self.progress) = (phase, now);
        }
    }

    fn take_waiting(&mut self) -> Vec<(SessionId, FrameHeader)> {
        self.members.iter_mut().filter_map(|(id, m)| m.waiting.take().map(|header| (*id, header))).collect()
    }
}

impl Core {
    /// Starts to wait for the sessions that were loaded; without any, the target serves at once.
    pub(crate) fn begin_recovery(&self) {
        let sessions = self.all_sessions();
        {
            let mut recovery = self.recovery.borrow_mut();
            recovery.progress = self.env.now();
            recovery.expected = sessions.len();
            recovery.members = sessions.iter().map(|s| (s.id, Member::default())).collect();
        }
        if sessions.is_empty() {
            return self.end_recovery();
        }
        let window = self.options.recovery_window;
        self.log(&format!("recovering: waiting up to {window:?} for {} sessions", sessions.len()));
        let core = self.strong();
        self.env.spawn(async move { core.watch_window().await });
    }

    /// A known session has connected.
    pub(crate) fn joined(&self, session: &Session) {
        let mut recovery = self.recovery.borrow_mut();
        let (now, reclaiming) = (self.env.now(), recovery.phase != Phase::Replaying);
        // Only its first connect is progress: a client that connects again and again makes none.
        if recovery.members.get(&session.id).is_none_or(|member| !member.joined) {
            recovery.progress = now;
        }
        if let Some(member) = recovery.members.get_mut(&session.id) {
            // The client starts its recovery anew; replays that arrived already are just replaced.
            (member.joined, member.replay_done, member.reclaim_done) = (true, reclaiming, false);
            member.waiting = None;
        }
    }

    /// True once all replays are done.
    pub(crate) fn may_reclaim(&self) -> bool {
        self.recovery.borrow().phase != Phase::Replaying
    }

    /// A replay arrived.
    pub(crate) fn replay(&self, session: Rc<Session>, op: Op, request: Request) {
        let transno = request.header.transno;
        if transno.incarnation() >= self.incarnation() {
            let words = format!("a replay of {transno}, which no earlier incarnation gave");
            return self.reply_to_replay(&session, &request.header, Err(ErrorReply::new(Errno::EPROTO, words)));
        }
        let running = self.recovery.borrow().members.get(&session.id).is_some_and(|m| m.running.contains(&transno));
        if running {
            // Its connection broke meanwhile. The reply goes to the connection that the session has when the replay
            // ends.
            return;
        }
        let failed = session.failed.borrow().get(&transno).cloned();
        if let Some(error) = failed {
            // The client did not receive the error.
            return self.reply_to_replay(&session, &request.header, Err(error));
        }
        let known = transno <= self.store.recovery().last_transno || transno <= session.replayed.get();
        if known && !planted(Bug::ReplaysRepeated) || planted(Bug::ReplaysSkipped) {
            // The change is here already; nobody needs its reply.
            return self.reply_to_replay(&session, &request.header, Ok(Bytes::new()));
        }
        if self.state.get() != TargetState::Recovering || self.may_reclaim() {
            let words = format!("replay of {transno} came after the replays ended");
            return self.reply_to_replay(&session, &request.header, Err(ErrorReply::new(Errno::EIO, words)));
        }
        {
            let mut recovery = self.recovery.borrow_mut();
            if let Some(member) = recovery.members.get_mut(&session.id) {
                member.queue.insert(transno, (op, request));
                if member.highest < transno {
                    member.highest = transno;
                    recovery.progress = self.env.now();
                }
            }
        }
        self.pump();
    }

    /// The session has no more replays. It is answered when no session has any.
    pub(crate) fn replay_done(&self, session: &Session, header: FrameHeader) {
        let at_once = {
            let mut recovery = self.recovery.borrow_mut();
            recovery.said(session.id, Phase::Reclaiming, self.env.now());
            let replaying = recovery.phase == Phase::Replaying;
            match recovery.members.get_mut(&session.id).filter(|_| replaying) {
                Some(member) => {
                    (member.replay_done, member.waiting) = (true, Some(header.clone()));
                    false
                }
                None => true,
            }
        };
        if at_once { self.answer_session(session, &header) } else { self.pump() }
    }

    /// The session has reclaimed what it held. It is answered when all sessions have.
    pub(crate) fn reclaim_done(&self, session: &Session, header: FrameHeader) {
        let at_once = {
            let mut recovery = self.recovery.borrow_mut();
            recovery.said(session.id, Phase::Over, self.env.now());
            let reclaiming = recovery.phase == Phase::Reclaiming;
            match recovery.members.get_mut(&session.id).filter(|_| reclaiming) {
                Some(member) => {
                    (member.reclaim_done, member.waiting) = (true, Some(header.clone()));
                    false
                }
                None => true,
            }
        };
        if at_once { self.answer_session(session, &header) } else { self.pump() }
    }

    fn answer_session(&self, session: &Session, header: &FrameHeader) {
        self.send_reply(session, reply_to(header, FrameKind::Reply, Empty {}.to_bytes().into()));
    }

    /// Starts every replay that may run now. Moves to the next phase when all sessions have finished this one.
    fn pump(&self) {
        while self.run_next() {}
        let (phase, finished) = {
            let recovery = self.recovery.borrow();
            let finished = match recovery.phase {
                Phase::Replaying => recovery.running == 0 && recovery.next() == Next::Finished,
                Phase::Reclaiming => recovery.members.values().all(|m| m.reclaim_done),
                Phase::Over => false,
            };
            (recovery.phase, finished)
        };
        match phase {
            Phase::Replaying if finished => self.begin_reclaims(),
            Phase::Reclaiming if finished => self.end_recovery(),
            _ => {}
        }
    }

    fn run_next(&self) -> bool {
        let (session, transno, op, request) = {
            let mut recovery = self.recovery.borrow_mut();
            let room = !recovery.alone && recovery.running < limits::REPLAYS;
            let Next::Run(id, transno) = recovery.next() else { return false };
            let op = recovery.members[&id].queue[&transno].0;
            let beside = self.service().admits(op) || op == Op::Fence && self.service().admits(Op::Write);
            if !room || recovery.phase != Phase::Replaying || (!beside && recovery.running > 0) {
                return false;
            }
            // An evicted session is removed once its eviction is committed, and its replays with it.
            let Some(session) = self.session(id) else { return false };
            (recovery.running, recovery.alone) = (recovery.running + 1, !beside);
            let (op, request) = recovery.take(id, transno);
            (session, transno, op, request)
        };
        if transno <= self.order.last_joined() {
            let words = format!("a replay of {transno} after {}: it is not this session's", self.order.last_joined());
            self.reply_to_replay(&session, &request.header, Err(ErrorReply::new(Errno::EPROTO, words)));
            self.recovery.borrow_mut().ran(session.id, transno);
            return true;
        }
        // The transno joins the queue here, in the order of the merge, and leaves it when the whole replay is done.
        self.order.join(transno);
        let core = self.strong();
        self.env.spawn(async move { core.run_replay(session, op, request).await });
        true
    }

    async fn run_replay(&self, session: Rc<Session>, op: Op, request: Request) {
        let transno = request.header.transno;
        let ctx = Context::new(self.target(), session.clone(), request.header.clone());
        let mut run = Box::pin(self.handle(&ctx, op, request.body, request.bulk));
        let result = std::future::poll_fn(|cx| {
            // Marks a change that the service itself makes meanwhile as part of this replay.
            let outer = self.replaying.replace(Some(transno));
            let poll = run.as_mut().poll(cx);
            self.replaying.set(outer);
            poll
        })
        .await;
        drop(run);
        self.order.leave(transno);
        if let Err(error) = &result {
            self.log(&format!("replay of {} {transno} of session {} failed: {error}", op.name(), session.id));
            session.failed.borrow_mut().insert(transno, error.clone());
        }
        session.replayed.set(session.replayed.get().max(transno));
        self.reply_to_replay(&session, &request.header, result.map(|answer| answer.body));
        {
            let mut recovery = self.recovery.borrow_mut();
            recovery.ran(session.id, transno);
            recovery.replayed += 1;
            recovery.progress = self.env.now();
        }
        self.pump();
    }

    fn reply_to_replay(&self, session: &Session, header: &FrameHeader, result: Result<Bytes, ErrorReply>) {
        let reply = match result {
            Ok(body) => reply_to(header, FrameKind::Reply, body),
            Err(error) => reply_to(header, FrameKind::Error, error.to_bytes().into()),
        };
        self.send_reply(session, Reply { transno: header.transno, ..reply });
    }

    fn begin_reclaims(&self) {
        let waiting = {
            let mut recovery = self.recovery.borrow_mut();
            recovery.phase = Phase::Reclaiming;
            recovery.progress = self.env.now();
            recovery.take_waiting()
        };
        self.log(&format!("{} replays executed; reclaiming", self.recovery.borrow().replayed));
        self.answer_all(waiting);
        // All sessions may have been evicted meanwhile.
        self.pump();
    }

    fn end_recovery(&self) {
        let (waiting, evicted) = {
            let mut recovery = self.recovery.borrow_mut();
            recovery.phase = Phase::Over;
            (recovery.take_waiting(), std::mem::take(&mut recovery.evicted))
        };
        if self.state.get() != TargetState::Recovering {
            return;
        }
        self.service().replayed(&evicted.iter().map(|session| session.id).collect::<Vec<_>>());
        self.state.set(TargetState::Serving);
        self.log(&format!("serving, incarnation {}", self.incarnation()));
        self.answer_all(waiting);
        let core = self.strong();
        self.env.spawn(async move {
            for session in evicted {
                core.service().session_ended(session.id, session.client, true).await;
            }
            core.service().recovered().await;
        });
    }

    fn answer_all(&self, waiting: Vec<(SessionId, FrameHeader)>) {
        for (id, header) in waiting {
            if let Some(session) = self.session(id) {
                self.answer_session(&session, &header);
            }
        }
    }

    /// Evicts clients that do not connect within the window, and later those that hold up the others without progress.
    async fn watch_window(&self) {
        let window = self.options.recovery_window;
        self.sleep_running(window).await;
        // If the server stops again (another of its targets did not start), clients cannot connect. The next start
        // waits for them.
        if self.closed.is_raised() {
            return;
        }
        self.evict_missing(|member, _| !member.joined, "it did not come back within the recovery window").await;
        while self.state.get() == TargetState::Recovering && !self.closed.is_raised() {
            let stopped = self.sleep_running(window / 4).await;
            let progress = self.recovery.borrow().progress + stopped;
            self.recovery.borrow_mut().progress = progress;
            let idle = self.env.now().since(progress);
            if idle >= window && self.recovery.borrow().is_idle() {
                self.evict_missing(Member::holds_up, "it held up the recovery").await;
                self.recovery.borrow_mut().progress = self.env.now();
            }
        }
    }

    /// A Reclaim is in execution: no session is evicted for lack of progress meanwhile.
    pub(crate) fn reclaim_begins(&self) {
        self.recovery.borrow_mut().reclaiming += 1;
    }

    /// A Reclaim was executed, or failed. Only success is progress: a client that repeats the request for the
    /// impossible makes none.
    pub(crate) fn reclaim_ended(&self, done: bool) {
        let mut recovery = self.recovery.borrow_mut();
        recovery.reclaiming -= 1;
        if done {
            recovery.progress = self.env.now();
        }
    }

    async fn evict_missing(&self, which: impl Fn(&Member, Phase) -> bool, reason: &str) {
        let missing: Vec<SessionId> = {
            let recovery = self.recovery.borrow();
            recovery.members.iter().filter(|(_, m)| which(m, recovery.phase)).map(|(id, _)| *id).collect()
        };
        self.evict_members(missing, reason).await;
    }

    /// Evicts sessions, whether recovery waits for them or not.
    pub(crate) async fn evict_all(&self, sessions: Vec<SessionId>, reason: &str) {
        let is_member = |id: &SessionId| self.recovery.borrow().members.contains_key(id);
        let recovering = self.state.get() == TargetState::Recovering;
        let (members, others): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|id| recovering && is_member(id));
        self.evict_members(members, reason).await;
        for session in others.into_iter().filter_map(|id| self.session(id)) {
            self.evict(&session, reason).await;
        }
    }

    /// A session ended that recovery may have waited for.
    pub(crate) fn leave_recovery(&self, session: SessionId) {
        let was_member = self.recovery.borrow_mut().members.remove(&session).is_some();
        if was_member {
            self.pump();
        }
    }

    async fn evict_members(&self, missing: Vec<SessionId>, reason: &str) {
        let missing: Vec<Rc<Session>> = missing.into_iter().filter_map(|id| self.session(id)).collect();
        let mut gone = None;
        for session in &missing {
            self.log(&format!("evicted session {} ({}): {reason}", session.id, session.described()));
            self.count(|c| c.evictions += 1);
            self.forget(session, reason);
            gone = self.remove_rows(session).await.or(gone);
        }
        // The eviction is committed before any later replay and before any reply. Otherwise another crash would bring
        // the session back, with changes that precede what others were shown without them. Until then the sessions stay
        // members and hold up the merge.
        if let Some(point) = gone {
            let _ = self.commit(point).await;
        }
        {
            let mut recovery = self.recovery.borrow_mut();
            for session in missing {
                recovery.members.remove(&session.id);
                recovery.evicted.push(session);
            }
        }
        self.pump();
    }
}
