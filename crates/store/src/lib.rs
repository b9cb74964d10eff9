//! The journaled store of one device: slabs of appended runs, and one ordered table that is journaled and paged.
//!
//! Invariant: no sector that holds committed bytes is ever rewritten.
//! Invariant: what is committed survives any crash; what is applied but not committed is kept or lost as a suffix.
//! Invariant: bytes are returned only after the whole blocks they were cut from matched their sums.
//! Not here: sessions, transnos, replies (crate `target`), what rows mean (crates `mds` and `oss`).
//!
//! Use: `prefetch` (async) brings rows to memory, `place` (async) brings bytes to the device, then `begin` .. `apply`
//! (sync, no await in between) changes the index; `committed` waits until that is durable.

mod config;
mod error;
pub mod limits;
mod space;
mod stats;
mod store;
mod txn;

pub use config::{FormatOptions, OpenOptions};
pub use error::{StoreError, StoreErrorKind, StoreResult};
pub use space::{Reservation, SlabCounts, Space};
pub use stats::StoreStats;
pub use store::{CommitPoint, Fragment, Identity, Placed, RecoveryReport, Segment, SegmentBody, Store};
pub use txn::Txn;
