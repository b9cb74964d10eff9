//! Reads and writes: plan, then execute.

pub(crate) mod allocate;
pub(crate) mod append;
pub(crate) mod assemble;
pub(crate) mod copy;
pub(crate) mod extend;
pub(crate) mod fresh;
pub(crate) mod fsync;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod reserve;
pub(crate) mod snapshot;
pub(crate) mod unanswered;
pub(crate) mod write;
