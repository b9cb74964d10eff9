//! Access by path, as programs that link the library use it.

pub(crate) mod paths;
pub(crate) mod stats;
