//! Object storage server: the objects of one OST.
//!
//! Invariant: a write becomes visible whole, after its bytes are on the device, in the order of transnos.
//! Invariant: room is reserved before a request is admitted: ENOSPC is decided there and nowhere later.
//! Invariant: a file's home keeps its size; it grows only, within a truncate epoch.
//! Not here: where bytes lie (crate `store`), sessions and replay (crate `target`), names (crate `mds`).

mod admission;
mod aside;
mod destroyed;
mod granted;
mod growing;
pub mod limits;
mod lines;
mod object;
mod ops;
mod places;
mod readahead;
mod recent;
mod server;
mod unheard;
mod watches;

pub use aside::Aside;
pub use object::{ObjectRow, fid_of, key};
pub use server::Oss;
