//! Kernel requests to client calls, and nothing else: the client implements the POSIX semantics.
//!
//! The client's shard reads requests from the kernel itself (`kernel`). Each becomes a task, which replies to the
//! kernel.
//!
//! Invariant: the kernel caches names and attributes only while they are leased to the client, and is notified when a
//! lease ends. Data bypasses its page cache (FOPEN_DIRECT_IO). Only mappings, and copies within the kernel, have pages.
//! They show and keep what is written past them (`pages`).
//! Invariant: inode numbers are fids ([`forebay_proto::Fid::low`]), so a FORGET needs no work here.
//! Not here: ioctl.

mod answer;
mod attributes;
mod below;
mod caller;
mod config;
mod convert;
mod data;
mod directories;
mod floor;
mod helper;
mod holes;
mod kernel;
mod labels;
mod layout;
pub mod limits;
mod locks;
mod mount;
mod names;
mod pages;
mod point;
mod races;
mod server;
mod signals;
#[cfg(test)]
mod testing;
mod transport;
mod turns;
mod xattrs;

pub use config::{FuseOptions, FuseTransport};
pub use mount::{Mounted, mount, mount_floor};
pub use point::{check_device, unmount};
