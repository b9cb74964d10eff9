//! One operation per file: `keys` returns rows worth prefetching together, `apply` executes it over a
//! [`crate::tx::Tx`].
//!
//! Invariant: `apply` never waits, and gives the same result when it is replayed.

pub mod choice;
pub mod close;
pub mod create;
pub mod extend;
pub mod getattr;
pub mod inline;
pub mod lease_sequence;
pub mod link;
pub mod lookup;
pub mod lookup_statahead;
pub mod make;
pub mod migrate;
pub mod open;
pub mod pool;
pub mod readdir;
pub mod readlink;
pub mod reclaim;
pub mod rename;
pub mod rmdir;
pub mod setattr;
pub mod setlayout;
pub mod statfs;
pub mod unlink;
pub mod xattr;

mod entry;
mod orphan;
mod truncate;
mod xattr_flags;

pub use orphan::reap;
pub use truncate::{Purpose, TruncateLog};
