//! The metadata server: names, inodes, layouts, open handles.
//!
//! Everything durable is a row of the store's table (`keys`, docs/format-mdt.md); an operation is one transaction
//! (`ops`), sent through [`forebay_target`], which gives it its transno and its replay.
//!
//! Invariant: an operation is applied without waiting, as a whole or not at all (`tx`).
//! Invariant: whatever has to happen on OSTs (destroy, truncate) is logged in the transaction that entails it, and driven
//! from the log after its commit, whoever dies (`background`).
//! Not here: sessions, replay, reply rows (crate `target`); file data (crate `oss`).

mod acl;
mod background;
mod bootstrap;
mod claims;
mod contended;
mod data_leases;
mod directory;
mod dirent;
mod empties;
mod halt;
mod inode;
mod inode_leases;
mod keys;
mod layout_row;
mod lease_waits;
mod leases;
pub mod limits;
mod load;
mod locks;
mod memory;
#[cfg(test)]
mod model;
mod name;
mod opens;
mod ops;
mod osts;
mod patience;
mod perm;
mod placement;
mod run;
mod server;
mod sharing;
mod siphash;
#[cfg(test)]
mod testing;
mod tx;
mod varint;

pub use bootstrap::Owner;
pub use server::{Mds, MdsOptions};
