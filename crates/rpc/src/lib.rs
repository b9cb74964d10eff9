//! Frames on streams, connections of a server, and the client's half of a session.
//!
//! Invariant: a call never fails because a server is away: it waits, is resent, and is executed exactly once.
//! Invariant: a modifying request that was replied is kept, bulk and all, until its transno is committed; after a restart
//! of the target it is replayed under the same transno.
//! Not here: what a target does with a request, its reply rows and its recovery (crate `target`).

mod error;
pub mod limits;
mod pins;
pub mod session;

pub use error::RpcError;
pub use pins::PinBudget;
pub use session::{Call, Called, ClientSession, Lost, SessionOptions, SessionState, SessionStats};

use forebay_env::{Address, Env};
use forebay_proto::message::Operation;

/// Asks one question outside of any session (`Status`, `GetMap`): tries each address once, in order, for at most
/// `limits::ASK_TIMEOUT` each.
pub async fn ask<O: Operation>(_env: &Env, _addresses: &[Address], _request: &O) -> Result<O::Reply, RpcError> {
    todo!()
}
