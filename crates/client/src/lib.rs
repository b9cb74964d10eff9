//! The file system as a library: POSIX meaning lives here once; mounts, the command line and simulations call it.
//!
//! A [`Client`] belongs to one shard (it is an `Rc`, its futures are not `Send`) and owns no runtime. It keeps one
//! session with each target it talks to; what was acknowledged and is not yet committed stays pinned in those sessions
//! and is replayed when a target restarts (FAULTS P2).
//!
//! Invariant: nothing is cached but what is leased (see `leases`), the layout of open files, and sizes that cannot shrink
//! unnoticed (see `size`).
//! Invariant: dropping the future of any call is safe: what was sent goes on, handles that nobody got are closed.
//! Not here: redundant layouts, several MDTs (names all live on MDT0000).

mod access;
mod ahead;
mod allocate;
mod append;
mod assemble;
mod attributes;
mod choices;
mod client;
mod config;
mod copy;
mod early;
mod eras;
mod errors;
mod extend;
mod fids;
mod file;
mod fsync;
mod inline;
mod layouts;
mod leases;
mod levels;
pub mod limits;
mod listings;
mod locks;
mod map;
pub mod mode;
mod mount;
mod names;
mod open;
mod paths;
mod payload;
mod peers;
mod plan;
mod pools;
mod read;
mod read_cache;
mod recalls;
mod reserve;
mod set_ahead;
mod sharing;
mod size;
mod statfs;
mod stats;
mod tasks;
#[cfg(test)]
mod testing;
mod unanswered;
mod waits;
mod watches;
mod write;
mod write_back;

pub use access::AccessTimes;
pub use ahead::Coming;
pub use allocate::Allocate;
pub use attributes::{SetAttributes, SetTime};
pub use client::Client;
pub use config::MountOptions;
pub use errors::{ClientError, ClientResult};
pub use forebay_proto::message::{
    Attr, COMMIT_XATTR, Caller, CommitLevel, DirEntry, INLINE_XATTR, InlineBound, LayoutSpec, LockSpec, lock_kind,
    lock_mode, open_flags,
};
pub use forebay_proto::parse_size;
pub use layouts::{LAYOUT_XATTR, parse_layout};
pub use leases::Dropped;
pub use limits::TAKEN_LATE;
pub use locks::LockOutcome;
pub use names::DirPage;
pub use open::{OpenFile, OpenMode};
pub use payload::Payload;
pub use statfs::StatFs;
pub use stats::ClientStats;
pub use waits::Awaited;
