//! What a metadata or object storage server implements.

use std::rc::Rc;

use bytes::Bytes;
use forebay_env::{Boxed, PeerIdentity};
use forebay_proto::{ClientId, Errno, ErrorReply, Fid, SessionId, Transno, message::Op};

use crate::{Answer, Attempt, Context, Target};

/// The requests of one kind of target. One value serves one target.
#[allow(async_fn_in_trait)]
pub trait Service: 'static {
    /// Called once, before any request: loads state into memory. Nothing may be changed yet.
    async fn started(self: Rc<Self>, target: Target) -> Result<(), ErrorReply> {
        let _ = target;
        Ok(())
    }

    /// Makes an attempt to execute one request. It is called again for the same request after
    /// [`Abort::Retry`](crate::Abort::Retry). Ops of the target itself (sessions, Sync, Status, Fence) do not come here.
    async fn handle(self: Rc<Self>, ctx: Context, op: Op, body: Bytes, bulk: Bytes) -> Attempt<Answer>;

    /// A request about the cluster's nodes, outside of any session; what `peer` may ask for is up to the service. Returns the
    /// reply's body. It may come more than once.
    async fn membership(self: Rc<Self>, peer: PeerIdentity, op: Op, body: Bytes) -> Result<Bytes, ErrorReply> {
        let _ = (peer, body);
        Err(ErrorReply::new(Errno::ENOSYS, format!("{} is for MDT0000, which keeps the cluster's map", op.name())))
    }

    /// A change that an earlier incarnation executed, or that came on an earlier connection, is sent again. Its cached
    /// `reply` leaves after this returns. Wait here for what the execution would have waited for before its reply.
    async fn settled(self: Rc<Self>, op: Op, body: Bytes, reply: Bytes) {
        let _ = (op, body, reply);
    }

    /// True if `op` takes a ticket with [`Context::admit`]; such requests are replayed concurrently. False if it
    /// applies with [`Context::apply`]. A target uses only one of the two ways.
    fn admits(&self, op: Op) -> bool {
        let _ = op;
        false
    }

    /// A known session connected during recovery. Its client counts on `granted_bytes` of what was granted to it.
    fn comes_back(&self, session: SessionId, granted_bytes: u64) {
        let _ = (session, granted_bytes);
    }

    /// All replays are executed, and the sessions in `evicted` were evicted meanwhile. No new request is admitted
    /// before this returns.
    fn replayed(&self, evicted: &[SessionId]) {
        let _ = evicted;
    }

    /// After the recovery window: reap orphans, collect, redrive logs. Runs concurrently with requests.
    async fn recovered(self: Rc<Self>) {}

    /// A session ended (goodbye, eviction, fence): close its handles. After a goodbye its rows are removed afterwards;
    /// after an eviction or a fence they are removed before, durably. After a crash in between, [`Target::has_session`]
    /// tells in [`Service::recovered`] which handles have no session any more.
    async fn session_ended(self: Rc<Self>, session: SessionId, client: ClientId, evicted: bool) {
        let _ = (session, client, evicted);
    }

    /// Transno of the last change of a file, for `Sync` of one file; `None` = not known, wait for everything.
    fn last_change(&self, fid: Fid) -> Option<Transno> {
        let _ = fid;
        None
    }

    /// More for `forebay status`: a JSON object, whose members are added to the target's.
    fn status(&self) -> String {
        "{}".into()
    }
}

/// A session as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number.
    pub session: SessionId,
    /// Its client.
    pub client: ClientId,
    /// The client's description of itself.
    pub description: String,
    /// True while it has a connection.
    pub connected: bool,
}

/// A service behind one pointer, so that the target needs no type parameter.
pub(crate) trait AnyService {
    fn started(&self, target: Target) -> Boxed<'static, Result<(), ErrorReply>>;
    fn handle(&self, ctx: Context, op: Op, body: Bytes, bulk: Bytes) -> Boxed<'static, Attempt<Answer>>;
    fn membership(&self, peer: PeerIdentity, op: Op, body: Bytes) -> Boxed<'static, Result<Bytes, ErrorReply>>;
    fn settled(&self, op: Op, body: Bytes, reply: Bytes) -> Boxed<'static, ()>;
    fn admits(&self, op: Op) -> bool;
    fn comes_back(&self, session: SessionId, granted_bytes: u64);
    fn replayed(&self, evicted: &[SessionId]);
    fn recovered(&self) -> Boxed<'static, ()>;
    fn session_ended(&self, session: SessionId, client: ClientId, evicted: bool) -> Boxed<'static, ()>;
    fn last_change(&self, fid: Fid) -> Option<Transno>;
    fn status(&self) -> String;
}

/// Makes any service an [`AnyService`].
pub(crate) struct Erased<S>(pub Rc<S>);

impl<S: Service> AnyService for Erased<S> {
    fn started(&self, target: Target) -> Boxed<'static, Result<(), ErrorReply>> {
        Box::pin(self.0.clone().started(target))
    }

    fn handle(&self, ctx: Context, op: Op, body: Bytes, bulk: Bytes) -> Boxed<'static, Attempt<Answer>> {
        Box::pin(self.0.clone().handle(ctx, op, body, bulk))
    }

    fn membership(&self, peer: PeerIdentity, op: Op, body: Bytes) -> Boxed<'static, Result<Bytes, ErrorReply>> {
        Box::pin(self.0.clone().membership(peer, op, body))
    }

    fn settled(&self, op: Op, body: Bytes, reply: Bytes) -> Boxed<'static, ()> {
        Box::pin(self.0.clone().settled(op, body, reply))
    }

    fn admits(&self, op: Op) -> bool {
        self.0.admits(op)
    }

    fn comes_back(&self, session: SessionId, granted_bytes: u64) {
        self.0.comes_back(session, granted_bytes);
    }

    fn replayed(&self, evicted: &[SessionId]) {
        self.0.replayed(evicted);
    }

    fn recovered(&self) -> Boxed<'static, ()> {
        Box::pin(self.0.clone().recovered())
    }

    fn session_ended(&self, session: SessionId, client: ClientId, evicted: bool) -> Boxed<'static, ()> {
        Box::pin(self.0.clone().session_ended(session, client, evicted))
    }

    fn last_change(&self, fid: Fid) -> Option<Transno> {
        self.0.last_change(fid)
    }

    fn status(&self) -> String {
        self.0.status()
    }
}

/// Takes the place of the service when its target has ended.
pub(crate) struct Nobody;

impl AnyService for Nobody {
    fn started(&self, _: Target) -> Boxed<'static, Result<(), ErrorReply>> {
        Box::pin(async { Err(Errno::STOPPED.into()) })
    }

    fn handle(&self, _: Context, _: Op, _: Bytes, _: Bytes) -> Boxed<'static, Attempt<Answer>> {
        Box::pin(async { Err(ErrorReply::new(Errno::STOPPED, "the target was closed").into()) })
    }

    fn membership(&self, _: PeerIdentity, _: Op, _: Bytes) -> Boxed<'static, Result<Bytes, ErrorReply>> {
        Box::pin(async { Err(ErrorReply::new(Errno::STOPPED, "the target was closed")) })
    }

    fn settled(&self, _: Op, _: Bytes, _: Bytes) -> Boxed<'static, ()> {
        Box::pin(async {})
    }

    fn admits(&self, _: Op) -> bool {
        false
    }

    fn comes_back(&self, _: SessionId, _: u64) {}

    fn replayed(&self, _: &[SessionId]) {}

    fn recovered(&self) -> Boxed<'static, ()> {
        Box::pin(async {})
    }

    fn session_ended(&self, _: SessionId, _: ClientId, _: bool) -> Boxed<'static, ()> {
        Box::pin(async {})
    }

    fn last_change(&self, _: Fid) -> Option<Transno> {
        None
    }

    fn status(&self) -> String {
        "{}".into()
    }
}
