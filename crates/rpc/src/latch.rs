//! A flag that is raised once and can be awaited.

use std::cell::Cell;

use forebay_env::sync::Notify;

/// Raised once, for good.
#[derive(Default)]
pub struct Latch {
    raised: Cell<bool>,
    notify: Notify,
}

impl Latch {
    /// Raises it and wakes all waiters.
    pub fn raise(&self) {
        self.raised.set(true);
        self.notify.notify_waiters();
    }

    /// True once raised.
    pub fn is_raised(&self) -> bool {
        self.raised.get()
    }

    /// Waits until it is raised.
    pub async fn wait(&self) {
        while !self.raised.get() {
            self.notify.notified().await;
        }
    }
}
