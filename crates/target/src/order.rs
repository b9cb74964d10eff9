//! Transnos, and the queue that applies changes in their order.
//!
//! Invariant: transnos are applied in increasing order, so that `last_committed` names a prefix of history.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    task::{Context, Poll, Waker},
};

use forebay_env::sync::Notify;
use forebay_proto::{Incarnation, Transno};

/// Assigns transnos, and queues those whose change is not ready yet.
pub struct Order {
    incarnation: Incarnation,
    counter: Cell<u64>,
    line: RefCell<BTreeMap<Transno, Option<Waker>>>,
    last_joined: Cell<Transno>,
    last_applied: Cell<Transno>,
    /// A transno left the queue.
    left: Notify,
}

impl Order {
    /// The first transno will be the first of `incarnation`.
    pub fn new(incarnation: Incarnation, last_applied: Transno) -> Self {
        let (last_joined, last_applied) = (Cell::new(last_applied), Cell::new(last_applied));
        let (counter, line, left) = (Cell::new(0), RefCell::default(), Notify::new());
        Self { incarnation, counter, line, last_joined, last_applied, left }
    }

    /// The transno that [`Order::give`] would assign.
    pub fn peek(&self) -> Transno {
        Transno::new(self.incarnation, self.counter.get() + 1)
    }

    /// Assigns a new transno, for a change that is applied at once.
    pub fn give(&self) -> Transno {
        self.counter.set(self.counter.get() + 1);
        Transno::new(self.incarnation, self.counter.get())
    }

    /// True if the queue is empty.
    pub fn line_is_empty(&self) -> bool {
        self.line.borrow().is_empty()
    }

    /// Number of transnos in the queue.
    pub fn line_len(&self) -> usize {
        self.line.borrow().len()
    }

    /// Adds `transno` to the queue: a new one, or a replay's.
    pub fn join(&self, transno: Transno) {
        self.line.borrow_mut().insert(transno, None);
        self.last_joined.set(transno);
    }

    /// The last transno that joined the queue. Later ones must be larger.
    pub fn last_joined(&self) -> Transno {
        self.last_joined.get()
    }

    /// Removes `transno` from the queue, whether its change was applied or not.
    pub fn leave(&self, transno: Transno) {
        let next = {
            let mut line = self.line.borrow_mut();
            line.remove(&transno);
            line.first_entry().and_then(|mut first| first.get_mut().take())
        };
        if let Some(waker) = next {
            waker.wake();
        }
        self.left.notify_waiters();
    }

    /// True if the queue has no transno up to `transno` any more.
    pub fn has_passed(&self, transno: Transno) -> bool {
        self.line.borrow().first_key_value().is_none_or(|(first, _)| *first > transno)
    }

    /// Waits until the queue has no transno up to `transno` any more.
    pub async fn passed(&self, transno: Transno) {
        loop {
            let left = self.left.notified();
            if self.has_passed(transno) {
                return;
            }
            left.await;
        }
    }

    /// True if `transno` is first in the queue.
    pub fn is_first(&self, transno: Transno) -> bool {
        self.line.borrow().first_key_value().is_some_and(|(first, _)| *first == transno)
    }

    /// Ready when `transno` is first in the queue.
    pub fn poll_turn(&self, transno: Transno, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_first(transno) {
            return Poll::Ready(());
        }
        if let Some(waker) = self.line.borrow_mut().get_mut(&transno) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// A change was applied.
    pub fn applied(&self, transno: Transno) {
        assert!(transno > self.last_applied.get(), "{transno} applied after {}", self.last_applied.get());
        self.last_applied.set(transno);
    }

    /// Transno of the change applied last.
    pub fn last_applied(&self) -> Transno {
        self.last_applied.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_pass_in_order_and_a_dropped_one_is_skipped() {
        let order = Order::new(Incarnation(3), Transno(0));
        let [a, b, c] = [order.give(), order.give(), order.give()];
        for transno in [a, b, c] {
            order.join(transno);
        }
        let mut cx = Context::from_waker(Waker::noop());
        assert!(order.poll_turn(c, &mut cx).is_pending() && order.poll_turn(a, &mut cx).is_ready());
        order.leave(b);
        assert!(order.poll_turn(c, &mut cx).is_pending());
        order.leave(a);
        assert!(order.poll_turn(c, &mut cx).is_ready());
        order.leave(c);
        assert!(order.line_is_empty());
        assert_eq!(order.peek(), Transno::new(Incarnation(3), 4));
    }
}
