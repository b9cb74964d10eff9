//! What every served store shares: sessions, transnos, reply rows, last_committed, recovery, fencing.
//!
//! Invariant: a modifying request is executed exactly once, whatever is lost or repeated: its reply lies in the same
//! transaction as its changes.
//! Invariant: transnos are applied in order, so that `last_committed` names a prefix.
//! Invariant: until recovery ends nothing but replays and reclaims reaches the service.
//! Not here: what requests mean (crates `mds` and `oss`).

mod config;
mod context;
pub mod limits;
mod service;
mod ticket;

pub use config::TargetOptions;
pub use context::{Answer, Context};
pub use service::{Service, SessionInfo};
pub use ticket::Ticket;

use std::rc::Rc;

use forebay_env::{Env, Listener};
use forebay_proto::{ErrorReply, Incarnation, SessionId, TargetId, Transno};
use forebay_store::{CommitPoint, Store, Txn};

/// A served target. Clones share it.
#[derive(Clone)]
pub struct Target {}

/// Where a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// Waiting for the clients of before the restart.
    Recovering,
    /// Serving.
    Serving,
    /// The store failed or lost commits: nothing is acknowledged any more.
    Stopped,
}

#[allow(clippy::unused_async)]
impl Target {
    /// Loads the sessions, calls [`Service::started`], and begins recovery (or serves at once when there is no session).
    pub async fn start<S: Service>(
        _env: &Env,
        _store: Store,
        _options: TargetOptions,
        _service: Rc<S>,
    ) -> Result<Self, ErrorReply> {
        todo!()
    }

    /// Serves connections from `listener` until the target is closed. May be called for several listeners.
    pub async fn serve(&self, _listener: Listener) {
        todo!()
    }

    /// Which target.
    pub fn id(&self) -> TargetId {
        todo!()
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        todo!()
    }

    /// The environment it runs in.
    pub fn env(&self) -> &Env {
        todo!()
    }

    /// The store's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        todo!()
    }

    /// Where it stands.
    pub fn state(&self) -> TargetState {
        todo!()
    }

    /// All sessions, ordered.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        todo!()
    }

    /// True while the session exists (its client is alive, or was a moment ago).
    pub fn has_session(&self, _session: SessionId) -> bool {
        todo!()
    }

    /// A change of the service's own (reaping, log rows), outside of any request. Only after recovery. On a target whose
    /// requests take tickets, take one too: [`Target::admit`].
    pub fn apply<R>(
        &self,
        _change: impl FnOnce(&mut Txn, Transno) -> Result<R, ErrorReply>,
    ) -> Result<(R, CommitPoint), ErrorReply> {
        todo!()
    }

    /// A place in the order of changes for a change of the service's own.
    pub fn admit(&self) -> Ticket {
        todo!()
    }

    /// Waits until `point` is durable, hurrying it.
    pub async fn commit(&self, _point: CommitPoint) -> Result<(), ErrorReply> {
        todo!()
    }

    /// Ends a session: durable row and all. The service hears of it through [`Service::session_ended`].
    pub async fn evict(&self, _session: SessionId, _reason: &str) {
        todo!()
    }

    /// The JSON object `forebay status` shows.
    pub fn status_json(&self) -> String {
        todo!()
    }

    /// Stops serving: closes all connections, ends the background tasks. The store is the caller's to close.
    pub async fn close(&self) {
        todo!()
    }
}

/// What to answer for an error of the store. `NotResident` and `Busy` become an internal error that makes the target run
/// the request again; it never crosses the wire.
pub fn store_error(_error: forebay_store::StoreError) -> ErrorReply {
    todo!()
}
