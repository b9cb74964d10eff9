//! How far the destroys on one OST are.

use std::{cell::Cell, rc::Rc};

use forebay_env::{Time, sync::Notify};

/// See the module.
#[derive(Default)]
pub struct DestroyProgress {
    /// Rows were logged.
    pub logged: Rc<Notify>,
    /// When the last batch was done.
    pub done: Cell<Option<Time>>,
}
