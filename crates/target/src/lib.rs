//! What MDT and OST servers share: sessions, transnos, reply rows, last_committed, recovery, fencing.
//!
//! Invariant: a modifying request is executed exactly once, whatever is lost or resent. Its reply is a row in the same
//! transaction as its changes.
//! Invariant: transnos are applied in order, so that `last_committed` names a prefix.
//! Invariant: until recovery ends, only replays and reclaims reach the service.
//! Not here: what requests mean (crates `mds` and `oss`).

mod attempt;
mod background;
mod config;
mod connect;
mod context;
mod core;
mod dirty;
mod dispatch;
mod held;
pub mod limits;
mod metrics;
mod order;
mod pinned;
mod recovery;
mod rows;
mod service;
mod session;
mod status;
mod target;
mod ticket;
mod update;

pub use attempt::{Abort, Attempt, Retry, store_error};
pub use config::TargetOptions;
pub use context::{Answer, Context};
pub use metrics::{Asked, NetworkMetrics, TargetMetrics};
pub use service::{Service, SessionInfo};
pub use target::{Target, TargetState};
pub use ticket::Ticket;
pub use update::Update;
