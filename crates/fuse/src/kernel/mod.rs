//! The kernel's protocol, handled by the shard itself: no other thread stands between the kernel and the client.
//!
//! Requests arrive by a ring (FUSE over io_uring, `ring`) where the kernel offers one, else by `/dev/fuse`. Some always
//! arrive by `/dev/fuse`. One call reads a request from `/dev/fuse`: its fixed part into one buffer, the rest into
//! memory of an [`forebay_env::Arena`], aligned to pages. So the kernel copies the bytes of a write once, to where the
//! client keeps them. A reply is one vectored write; the bytes of a read are sent from where they arrived.
//!
//! `fuser` mounts, negotiates (FUSE_INIT) and unmounts. Its types are used where they fit.
//!
//! Invariant: every request but FORGET and INTERRUPT gets one reply; a reply object that is dropped sends EIO.
//! Invariant: the length of a request is checked before any of its bytes are used.

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
