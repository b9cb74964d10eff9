//! The journaled store of one device: slabs of appended runs, and one ordered table that is journaled and paged.
//!
//! Invariant: no sector that holds committed bytes is ever rewritten.
//! Invariant: committed transactions survive any crash. Of those applied and not committed, a crash loses at most a
//! suffix.
//! Invariant: a read returns bytes only after the whole blocks that hold them have matched their checksums.
//! Not here: sessions, transnos, replies (crate `target`), what rows mean (crates `mds` and `oss`).
//!
//! Use: `prefetch` (async) loads rows into memory, and `place` (async) writes bytes to the device. Then `begin` ..
//! `apply` (sync, no await in between) changes the index. `committed` waits until the change is durable.

mod checkpoint;
mod clean;
mod commit;
mod config;
mod core;
mod error;
mod extent;
mod format;
mod identity;
#[cfg_attr(not(test), expect(dead_code, reason = "reports of recovery that only tests read"))]
mod journal;
pub mod limits;
mod map;
mod mirror;
mod pace;
mod place;
mod read;
mod recovery;
mod redo;
mod scan;
mod slab;
mod slots;
mod snapshot;
mod space;
mod stats;
mod store;
#[cfg_attr(not(test), expect(dead_code, reason = "a failed checkpoint stops the store, so none is abandoned yet"))]
mod table;
mod txn;

pub use config::{FormatOptions, OpenOptions};
pub use error::{StoreError, StoreErrorKind, StoreResult};
pub use identity::{Features, Identity};
pub use mirror::{CopyState, CopyStatus, MirrorPlace, MirrorStatus, PartStatus};
pub use place::Placed;
pub use slots::{JournalSlot, MovedJournal, NewJournal};
pub use space::{Reservation, SlabCounts, Space};
pub use stats::{DeviceStats, StoreStats};
pub use store::{CommitPoint, Fragment, RecoveryReport, Segment, SegmentBody, Store};
pub use txn::Txn;
