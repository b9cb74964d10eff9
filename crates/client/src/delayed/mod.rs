//! Operations that the client acknowledges before a server executes them: creates and removes, SETATTR, writes.

pub(crate) mod buffered;
pub(crate) mod byte_ranges;
pub(crate) mod flush;
pub(crate) mod granted_space;
pub(crate) mod names;
pub(crate) mod pending_create;
pub(crate) mod queue;
pub(crate) mod send_set_attr;
pub(crate) mod set_attr;
pub(crate) mod state;
pub(crate) mod write_back;
