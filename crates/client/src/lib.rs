//! The file system as a library: POSIX meaning lives here once; mounts, the command line and simulations call it.
//!
//! A [`Client`] belongs to one shard (it is an `Rc`, its futures are not `Send`) and owns no runtime. It keeps one
//! session with each target it talks to; what was acknowledged and is not yet committed stays pinned in those sessions
//! and is replayed when a target restarts (promise P2).
//!
//! Invariant: nothing is cached but what is leased (see `leases`), the layout of open files, and sizes that cannot shrink
//! unnoticed (see `size`).
//! Invariant: dropping the future of any call is safe: what was sent goes on, handles that nobody got are closed.
//! Not here: redundant layouts, several MDTs (names all live on MDT0000).

mod api;
mod attributes;
mod cache;
mod client;
mod config;
mod delayed;
mod errors;
mod file;
mod io;
mod leases;
pub mod limits;
pub mod mode;
mod open_mode;
mod ops;
mod payload;
mod posix;
mod session;
mod stats;
mod tasks;
#[cfg(test)]
mod testing;

pub use attributes::{SetAttributes, SetTime};
pub use client::Client;
pub use config::MountOptions;
pub use delayed::{flush::CloseBegun, names::PendingFile};
pub use errors::{ClientError, ClientResult};
pub use file::OpenFile;
pub use forebay_proto::message::{
    Attr, COMMIT_XATTR, Caller, CommitLevel, DirEntry, INLINE_XATTR, InlineBound, LayoutSpec, LockSpec, lock_kind,
    lock_mode, open_flags,
};
pub use forebay_proto::parse_size;
pub use io::allocate::Allocate;
pub use leases::Dropped;
pub use limits::KERNEL_DELAY;
pub use ops::layouts::{LAYOUT_XATTR, parse_layout};
pub use ops::locks::LockOutcome;
pub use ops::readdir::DirPage;

pub use open_mode::OpenMode;
pub use ops::statfs::StatFs;
pub use payload::Payload;
pub use posix::{
    access_times::AccessTimes,
    change::{WriteAt, WriteOptions},
    privileges::{CAPABILITY_XATTR, Process},
};
pub use session::waits::Awaited;
pub use stats::ClientStats;
