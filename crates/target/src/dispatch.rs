//! The path of a request: checked against its session, executed once, answered in order.

use std::{
    rc::Rc,
    task::{Context as TaskContext, Waker},
};

use bytes::Bytes;
use forebay_env::{Boxed, Bug, PeerIdentity, Side, planted};
use forebay_keys::Role;
use forebay_proto::{
    Decode, Encode, Errno, ErrorReply, SessionId, Transno,
    message::{Bans, Capability, Empty, FrameHeader, FrameKind, Op, SetBans, Sync, SyncReply, frame_flags},
};
use forebay_rpc::server::{Connection, Handler, Pass, Request};

use crate::{
    Abort, Answer, Attempt, Context, TargetState,
    attempt::overloaded,
    core::Core,
    limits,
    session::{Begin, Reply, Session},
};

/// Makes a [`Core`] the handler of connections.
pub(crate) struct Door(pub Rc<Core>);

impl Handler for Door {
    fn request(&self, connection: &Rc<Connection>, request: Request) {
        self.0.request(connection, request);
    }

    fn disconnected(&self, connection: &Rc<Connection>) {
        if let Some(session) = self.0.session(connection.session.get())
            && session.is_bound_to(connection)
        {
            session.disconnect();
        }
    }
}

impl Core {
    fn request(&self, connection: &Rc<Connection>, request: Request) {
        let header = &request.header;
        let Some(op) = Op::from_number(header.op) else {
            let words = format!("operation {} is not known to this version", header.op);
            return self.refuse(connection, header, &ErrorReply::new(Errno::EOPNOTSUPP, words));
        };
        if matches!(connection.peer, PeerIdentity::Stranger(_)) && op != Op::Join && !planted(Bug::StrangerBelieved) {
            return self.refuse_stranger(connection, header, op);
        }
        match op {
            Op::Connect => return self.connect(connection, request),
            Op::JoinRail => return self.join_rail(connection, &request),
            Op::Status => return self.answer_status(connection, header),
            Op::GetMap => return self.answer_map(connection, header),
            Op::GetBans => return self.answer_bans(connection, header),
            Op::SetBans => return self.set_bans(connection, &request),
            Op::Join
            | Op::Register
            | Op::NewToken
            | Op::ListNodes
            | Op::BanNode
            | Op::RemoveNode
            | Op::NewTenant
            | Op::ListTenants
            | Op::RemoveTenant
            | Op::GetRoot
            | Op::NewMappedTenant
            | Op::ListIdMaps
            | Op::Renew => return self.membership_request(connection, op, request),
            _ => {}
        }
        if let Err(error) = self.check_running() {
            return self.refuse(connection, header, &error);
        }
        match self.session_of(connection, header) {
            Ok(session) => self.session_request(connection, session, op, request),
            Err(error) => self.refuse(connection, header, &error),
        }
    }

    /// Whoever shows no certificate may only join.
    fn refuse_stranger(&self, connection: &Connection, header: &FrameHeader, op: Op) {
        let peer = &connection.peer;
        self.log_refusal(&format!("{peer}: refused, as it has shown no certificate and asked for {}", op.name()));
        let words =
            "this host has shown no certificate of the cluster: give --keys DIR, or join it with `forebay join`";
        self.refuse(connection, header, &ErrorReply::new(Errno::EPERM, words));
        connection.finish();
    }

    fn answer_bans(&self, connection: &Connection, header: &FrameHeader) {
        let bans = self.env.membership().map(|known| Bans { epoch: known.epoch(), bans: known.bans().to_vec() });
        self.answer(connection, header, &bans.unwrap_or(Bans { epoch: 0, bans: Vec::new() }));
    }

    /// The MDT says who is banned.
    fn set_bans(&self, connection: &Connection, request: &Request) {
        let header = &request.header;
        if let PeerIdentity::Node { node, .. } = &connection.peer
            && node.role != Role::Mds
        {
            let words = format!("{node} may not say who is banned");
            return self.refuse(connection, header, &ErrorReply::new(Errno::EPERM, words));
        }
        match SetBans::from_bytes(&request.body) {
            Ok(SetBans { bans }) => {
                self.env.membership().into_iter().for_each(|known| known.adopt(&bans));
                self.answer(connection, header, &Empty {});
            }
            Err(error) => self.refuse(connection, header, &error.into()),
        }
    }

    /// A request about the cluster's nodes: needs no session.
    fn membership_request(&self, connection: &Rc<Connection>, op: Op, request: Request) {
        let (core, connection) = (self.strong(), connection.clone());
        self.run(Box::pin(async move {
            let Request { header, body, pass, .. } = request;
            let answer = match core.state.get() {
                TargetState::Recovering => Err(ErrorReply::new(Errno::RECOVERING, "the target recovers")),
                _ => match core.check_running() {
                    Ok(()) => core.service().membership(connection.peer.clone(), op, body).await,
                    Err(error) => Err(error),
                },
            };
            match answer {
                Ok(body) => {
                    let mut out = FrameHeader::new(FrameKind::Reply, header.op);
                    (out.flags, out.slot, out.sequence) = (header.flags, header.slot, header.sequence);
                    core.send(&connection, out, body, Vec::new());
                }
                Err(error) => {
                    core.log_refusal(&format!("{}: {} refused: {error}", connection.peer, op.name()));
                    core.refuse(&connection, &header, &error);
                }
            }
            drop(pass);
            if matches!(connection.peer, PeerIdentity::Stranger(_)) {
                connection.finish();
            }
        }));
    }

    /// The session a request belongs to. A request is refused if its incarnation is old, its session has ended, or its
    /// connection was replaced. Its sender has to reconnect.
    fn session_of(&self, connection: &Rc<Connection>, header: &FrameHeader) -> Result<Rc<Session>, ErrorReply> {
        let bound = connection.session.get();
        let session = self.session(bound).filter(|_| header.session == bound && bound != SessionId(0));
        let Some(session) = session.filter(|s| s.is_bound_to(connection)) else {
            let words = format!("session {} is not the one of this connection", header.session);
            return Err(self.why_ended(header.session).unwrap_or_else(|| ErrorReply::new(Errno::EVICTED, words)));
        };
        if header.incarnation != self.incarnation() && !planted(Bug::OldIncarnationServed) {
            let words =
                format!("a request of incarnation {}; this is incarnation {}", header.incarnation, self.incarnation());
            return Err(ErrorReply::new(Errno::RECOVERING, words));
        }
        session.last_seen.set(self.env.now());
        Ok(session)
    }

    fn session_request(&self, connection: &Rc<Connection>, session: Rc<Session>, op: Op, request: Request) {
        let header = &request.header;
        if header.flags & frame_flags::RESEND != 0 {
            self.count(|c| c.resends += 1);
        }
        match op {
            Op::Ping => self.ping(connection, session, request),
            Op::Disconnect if self.state.get() == TargetState::Serving => self.goodbye(connection, session, request),
            Op::ReplayDone => self.replay_done(&session, header.clone()),
            Op::ReclaimDone => self.reclaim_done(&session, header.clone()),
            Op::Reclaim if self.may_reclaim() => self.reclaim(session, request),
            _ if header.flags & frame_flags::REPLAY != 0 => self.replay(session, op, request),
            _ if self.state.get() != TargetState::Serving => {
                let words = "the target recovers; replays and reclaims only";
                self.refuse(connection, header, &ErrorReply::new(Errno::RECOVERING, words));
            }
            // Not in a slot: this is a long poll. Requests in slots may wait for what it brings, such as returned
            // leases, so it must not wait behind them.
            Op::AwaitRecalls | Op::WatchSize | Op::Authorize => self.execute(session, op, request),
            _ => match session.begin(header.slot, header.sequence) {
                Begin::Execute => self.execute(session, op, request),
                Begin::Again(kept) => {
                    let mut reply = reply_to(header, FrameKind::Reply, kept.body);
                    (reply.op, reply.transno, reply.time_ns) = (kept.op, kept.transno, kept.time_ns);
                    self.answer_again(session, op, request.body, reply);
                }
                Begin::UnderWay | Begin::Outdated => {}
                Begin::NoSlot => {
                    let words = format!("slot {} does not exist", header.slot);
                    self.refuse(connection, header, &ErrorReply::new(Errno::EPROTO, words));
                }
            },
        }
    }

    /// Answers with an error, at once and outside of any order.
    pub(crate) fn refuse(&self, connection: &Connection, header: &FrameHeader, error: &ErrorReply) {
        let mut reply = FrameHeader::new(FrameKind::Error, header.op);
        (reply.flags, reply.slot, reply.sequence) = (header.flags, header.slot, header.sequence);
        reply.transno = if header.flags & frame_flags::REPLAY != 0 { header.transno } else { Transno(0) };
        self.send(connection, reply, error.to_bytes().into(), Vec::new());
    }

    /// Answers a control request.
    pub(crate) fn answer(&self, connection: &Connection, header: &FrameHeader, reply: &impl Encode) {
        let mut out = FrameHeader::new(FrameKind::Reply, header.op);
        (out.flags, out.slot, out.sequence) = (header.flags, header.slot, header.sequence);
        self.send(connection, out, reply.to_bytes().into(), Vec::new());
    }

    fn answer_again(&self, session: Rc<Session>, op: Op, body: Bytes, reply: Reply) {
        self.count(|c| c.resends_answered += 1);
        let core = self.strong();
        self.run(Box::pin(async move {
            core.service().settled(op, body, reply.body.clone()).await;
            core.send_reply(&session, reply);
        }));
    }

    fn execute(&self, session: Rc<Session>, op: Op, request: Request) {
        self.count(|c| c.requests += 1);
        let ctx = Context::new(self.target(), session, request.header);
        let run = run_request(self.strong(), ctx, op, request.body, request.bulk, request.pass);
        self.run(Box::pin(async move { _ = run.await }));
    }

    fn reclaim(&self, session: Rc<Session>, request: Request) {
        self.count(|c| c.requests += 1);
        let ctx = Context::new(self.target(), session, request.header);
        let core = self.strong();
        self.reclaim_begins();
        self.run(Box::pin(async move {
            let done = run_request(core.clone(), ctx, Op::Reclaim, request.body, request.bulk, request.pass).await;
            core.reclaim_ended(done);
        }));
    }

    /// Polls the future once, so that the task that read the request answers it if it need not wait. Only a request
    /// that has to wait becomes a task of its own.
    fn run(&self, mut run: Boxed<'static, ()>) {
        // The spawned task polls it again with its own waker, so no wake-up is lost.
        if run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending() {
            self.env.spawn(run);
        }
    }

    /// Executes a request. Aborted attempts are repeated until one succeeds or fails.
    pub(crate) async fn handle(&self, ctx: &Context, op: Op, body: Bytes, bulk: Bytes) -> Result<Answer, ErrorReply> {
        for _ in 0..limits::RETRIES {
            match self.attempt(ctx, op, body.clone(), bulk.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Abort::Retry(retry)) if !ctx.is_answered() => self.wait_to_retry(retry).await,
                Err(abort) => return Err(abort.into_error()),
            }
            self.count(|c| c.reruns += 1);
            ctx.forget_touched();
        }
        Err(overloaded())
    }

    async fn attempt(&self, ctx: &Context, op: Op, body: Bytes, bulk: Bytes) -> Attempt<Answer> {
        match op {
            Op::Sync => self.sync(&body).await,
            Op::Fence => self.fence(ctx, &body).await,
            _ => self.service().handle(ctx.clone(), op, body, bulk).await,
        }
    }

    async fn sync(&self, body: &[u8]) -> Attempt<Answer> {
        let request = Sync::from_bytes(body)?;
        self.wait_applied(request.fid).await;
        match request.fid.and_then(|fid| self.service().last_change(fid)) {
            Some(transno) => self.wait_committed(transno).await?,
            None => self.store.sync().await.map_err(|e| self.note_error(e))?,
        }
        Ok(Answer::read(&SyncReply { incarnation: self.incarnation() }))
    }

    /// The request was executed: its reply leaves now, or in transno order.
    fn finish(&self, ctx: &Context, result: Result<Answer, ErrorReply>) {
        let (session, header) = (ctx.session_ref(), ctx.header());
        if ctx.is_answered() {
            // After any other failure the session was ended, and its client was notified.
            return result.err().filter(|e| e.errno == Errno::STOPPED).map_or((), |error| self.stop(&error.message));
        }
        let mut reply = match result {
            Ok(answer) => Reply { bulk: answer.bulk, capability: answer.capability, ..ctx.reply(answer.body) },
            Err(error) => {
                if error.errno == Errno::STOPPED {
                    self.stop(&error.message);
                }
                reply_to(header, FrameKind::Error, error.to_bytes().into())
            }
        };
        if ctx.applied() == Transno(0) {
            session.reopen(header.slot, header.sequence);
            match session.queue_after(ctx.shows(), reply) {
                Some(reply) => self.send_reply(session, reply),
                None => self.flush(session),
            }
            return;
        }
        reply.transno = ctx.applied();
        session.ready(ctx.applied(), reply);
        self.flush(session);
    }

    fn ping(&self, connection: &Rc<Connection>, session: Rc<Session>, request: Request) {
        let header = request.header;
        let commit = forebay_proto::message::Ping::from_bytes(&request.body).is_ok_and(|p| p.commit);
        let is_committed =
            || self.order.last_applied() <= self.store.last_committed() && self.held.last(None).is_none();
        if !commit || is_committed() {
            return self.answer(connection, &header, &Empty {});
        }
        self.store.commit_soon();
        let (core, connection) = (self.strong(), connection.clone());
        self.env.spawn(async move {
            core.wait_applied(None).await;
            let applied = core.order.last_applied();
            // If the target stopped, it has notified its connections.
            if core.wait_committed(applied).await.is_ok() && session.is_bound_to(&connection) {
                core.answer(&connection, &header, &Empty {});
            }
        });
    }
}

/// A reply's fields that repeat the request's.
pub(crate) fn reply_to(header: &FrameHeader, kind: FrameKind, body: Bytes) -> Reply {
    Reply {
        kind,
        flags: header.flags & frame_flags::REPLAY,
        op: header.op,
        slot: header.slot,
        sequence: header.sequence,
        level: header.level,
        transno: Transno(0),
        time_ns: 0,
        capability: Capability::NONE,
        body,
        bulk: Vec::new(),
    }
}

/// Returns false if the request failed.
async fn run_request(core: Rc<Core>, ctx: Context, op: Op, body: Bytes, bulk: Bytes, pass: Pass) -> bool {
    let result = core.handle(&ctx, op, body, bulk).await;
    if let Ok(answer) = &result
        && !answer.bulk.is_empty()
    {
        let bytes = answer.bulk.iter().map(Bytes::len).sum();
        core.env.charge_bytes(Side::Server, op as u16, bytes).await;
    }
    let done = result.is_ok();
    core.finish(&ctx, result);
    drop(pass);
    done
}
