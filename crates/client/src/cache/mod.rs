//! What the client caches under leases: bytes, sizes, statahead results, inline data, access times.

pub(crate) mod access_times;
pub(crate) mod accesses;
pub(crate) mod choices;
pub(crate) mod inline;
pub(crate) mod inline_data;
pub(crate) mod listings;
pub(crate) mod read_cache;
pub(crate) mod size;
pub(crate) mod statahead;
