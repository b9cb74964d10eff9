//! A connection with the target, which may have several streams.

use std::{cell::Cell, rc::Rc};

use crate::{frame::Outbox, turns::Turns};

/// What the streams of one connection share.
#[derive(Default)]
pub(super) struct Link {
    pub outbox: Rc<Outbox>,
    pub turns: Turns,
    /// Number of its Connect; 0: it is to have one stream.
    pub number: Cell<u64>,
    /// It has had a rail.
    pub has_rails: Cell<bool>,
}
