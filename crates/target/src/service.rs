//! What a metadata or object storage server implements.

use std::rc::Rc;

use bytes::Bytes;
use forebay_proto::{ClientId, ErrorReply, Fid, SessionId, Transno, message::Op};

use crate::{Answer, Context, Target};

/// The requests of one kind of target. One value serves one target.
#[allow(async_fn_in_trait)]
pub trait Service: 'static {
    /// Called once, before any request: load what is kept in memory. Nothing may be changed yet.
    async fn started(self: Rc<Self>, target: Target) -> Result<(), ErrorReply> {
        let _ = target;
        Ok(())
    }

    /// Executes one request. An error means that nothing was changed.
    ///
    /// It may be called again for the same request if it returned an error made from a store's `NotResident` or `Busy`
    /// (see [`crate::store_error`]). Ops of the target itself (sessions, Sync, Status, Fence) do not come here.
    async fn handle(self: Rc<Self>, ctx: Context, op: Op, body: Bytes, bulk: Bytes) -> Result<Answer, ErrorReply>;

    /// True if `op` takes its place in the order with [`Context::admit`]; such requests are replayed side by side.
    /// False: it applies with [`Context::apply`]. A target uses only one of the two ways.
    fn admits(&self, op: Op) -> bool {
        let _ = op;
        false
    }

    /// After the recovery window: reap orphans, collect, redrive logs. Runs beside requests.
    async fn recovered(self: Rc<Self>) {}

    /// A session ended (goodbye, eviction, fence): close its handles. Its rows are removed afterwards; after a crash in
    /// between, [`Target::has_session`] tells in [`Service::recovered`] which handles have no session any more.
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
    /// Whose it is.
    pub client: ClientId,
    /// What the client says it is.
    pub description: String,
    /// A connection is there.
    pub connected: bool,
}
