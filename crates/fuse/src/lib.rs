//! Kernel requests to client calls, and nothing else: POSIX meaning is the client's.
//!
//! The client's shard reads requests from the kernel itself (`kernel`); each becomes a task, which answers the kernel.
//!
//! Invariant: nothing is cached. Attributes and entries live 0 s in the kernel, data goes past its page cache
//! (FOPEN_DIRECT_IO): leases come later. Only a shared mapping has pages of its own.
//! Invariant: inode numbers are fids ([`forebay_proto::Fid::low`]), so FORGET has nothing to forget.
//! Not here: ioctl.

mod answer;
mod attributes;
mod caller;
mod config;
mod convert;
mod data;
mod directories;
mod floor;
mod holes;
mod kernel;
mod layout;
pub mod limits;
mod locks;
mod mount;
mod names;
mod server;
mod signals;
mod transport;
mod turns;
mod xattrs;

pub use config::{FuseOptions, FuseTransport};
pub use mount::{Mounted, mount, mount_floor};
