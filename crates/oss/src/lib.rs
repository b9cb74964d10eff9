//! Object storage server: the objects of one OST.
//!
//! Invariant: a write becomes visible whole, after its bytes are on the device, in the order of transnos.
//! Invariant: space is reserved before a request is admitted: ENOSPC is decided there and nowhere later.
//! Invariant: a file's home keeps its size; it grows only, within a truncate epoch.
//! Not here: where bytes lie (crate `store`), sessions and replay (crate `target`), names (crate `mds`).

mod admission;
mod append_offsets;
mod capabilities;
mod destroyed;
mod grants;
mod growing;
mod layout_fences;
pub mod limits;
mod object;
mod ops;
mod readahead;
mod recent;
mod reservations;
mod reserved;
mod server;
mod unacknowledged;
mod watches;

pub use object::{ObjectRow, fid_of, key};
pub use reserved::ReservedRanges;
pub use server::Oss;
