//! The metadata server: names, inodes, layouts, open handles.
//!
//! Everything durable is a row of the store's table (`keys`, docs/format-mdt.md). An operation is one transaction
//! (`ops`), sent through [`forebay_target`], which gives it its transno and its replay.
//!
//! Invariant: an operation is applied without waiting, as a whole or not at all (`tx`).
//! Invariant: work to be done on OSTs (destroy, truncate) is logged in the transaction that causes it. After the commit
//! it is driven from the log, whatever crashes (`background`).
//! Not here: sessions, replay, reply rows (crate `target`); file data (crate `oss`).

mod acl;
mod background;
mod bootstrap;
mod capabilities;
mod directory;
mod dirent;
mod halt;
mod inode;
mod keys;
mod layout_row;
mod leases;
pub mod limits;
mod load;
mod lock_table;
mod locks;
mod membership;
mod memory;
#[cfg(test)]
mod model;
mod name;
mod never_written;
mod opens;
mod ops;
mod osts;
mod perm;
mod placement;
mod run;
mod server;
mod siphash;
mod tenant;
#[cfg(test)]
mod testing;
mod tx;
mod varint;
mod xattr_row;

pub use bootstrap::Owner;
pub use server::{Mds, MdsOptions};
