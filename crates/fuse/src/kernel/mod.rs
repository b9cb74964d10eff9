//! The kernel's protocol, spoken by the shard itself: no thread stands between the kernel and the client.
//!
//! Requests come by a ring (FUSE over io_uring, `ring`) where the kernel has one for us, else by `/dev/fuse`, and some by
//! that in any case. From `/dev/fuse` a request is read with one call: its fixed part to one place, what follows to memory of an [`forebay_env::Arena`],
//! aligned to pages. So the bytes of a write are copied once, by the kernel, to where the client keeps them. A reply is
//! one vectored write; the bytes of a read go from where they arrived.
//!
//! `fuser` mounts, negotiates (FUSE_INIT) and unmounts; its types are used for what they name.
//!
//! Invariant: every request but FORGET and INTERRUPT is answered once: a dropped reply answers EIO.
//! Invariant: no byte of a request is believed before its length was checked.

mod args;
mod device;
mod dispatch;
mod drops;
mod known;
mod notify;
mod reply;
mod ring;

pub(crate) use device::{Device, serve};
pub(crate) use dispatch::{Filesystem, Request};
pub(crate) use drops::Drops;
pub(crate) use known::Known;
pub(crate) use notify::Notifier;
pub(crate) use reply::*;
