//! Kernel requests to client calls, and nothing else: POSIX meaning is the client's.
//!
//! The client's shard reads requests from the kernel itself (`kernel`); each becomes a task, which answers the kernel.
//!
//! Invariant: the kernel keeps names and attributes only as long as they are leased to the client, and is told when they are
//! not any more. Data goes past its page cache (FOPEN_DIRECT_IO). Only mappings, and what
//! copies within the kernel, have pages, which show and keep what is written past them (`pages`).
//! Invariant: inode numbers are fids ([`forebay_proto::Fid::low`]), so FORGET has nothing to forget.
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
