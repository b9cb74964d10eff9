//! The client's sessions with its servers: peers, the map, client instances, fid sequences.

pub(crate) mod capabilities;
pub(crate) mod eviction;
pub(crate) mod fid_leases;
pub(crate) mod fids;
pub(crate) mod instance;
pub(crate) mod losses;
pub(crate) mod map;
pub(crate) mod mount;
pub(crate) mod peers;
pub(crate) mod waits;
pub(crate) mod window;
