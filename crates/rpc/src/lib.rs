//! Frames on streams, connections of a server, and the client's half of a session.
//!
//! Invariant: a call never fails because a server is down: it waits, is resent, and is executed exactly once.
//! Invariant: a modifying request that was replied to is pinned, bulk included, until its transno is committed. After a
//! restart of the target it is replayed under the same transno.
//! Not here: what a target does with a request, its reply rows and its recovery (crate `target`).

mod ask;
mod error;
mod frame;
mod latch;
pub mod limits;
mod pins;
mod renewal;
mod resolve;
pub mod server;
pub mod session;
mod turns;

pub use ask::ask;
pub use error::RpcError;
pub use frame::{Frame, FrameError, FrameReader, Outbox, Received, Traffic};
pub use latch::Latch;
pub use pins::PinBudget;
pub use renewal::keep_renewed;
pub use resolve::{Resolve, addresses_in};
pub use session::{
    Call, Called, Capabilities, ClientSession, Lost, RailStats, Reservation, SessionOptions, SessionState, SessionStats,
};
